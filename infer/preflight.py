"""What would end a sampling run late: told before any weight is loaded, a line each."""

from collections.abc import Iterator

from infer.config import GenerateConfig
from mlbench_data.hardware import Hardware, hardware
from mlbench_data.models import resolve_model
from mlbench_data.preflight import (
    compiler_problems,
    cpu_warnings,
    idle_gpu_problems,
    package_problems,
    refuse,
    warn,
    weights_of,
)


def preflight(config: GenerateConfig, engine: str) -> None:
    """Raises BadInput with everything on this machine that keeps the model from being sampled. A server's
    model is the server's matter.
    """
    if engine == "openai":
        return
    model, found = resolve_model(config.model), hardware()
    weights, problems = weights_of(model)
    problems += package_problems(packages_of(config, engine))
    problems += idle_gpu_problems(found, weights)
    problems += gpu_problems(config, found)
    if engine == "vllm":
        problems += compiler_problems(found, "vLLM")
        problems += vllm_problems(found)
    refuse(problems)
    warn(cpu_warnings(model, found, weights))


def packages_of(config: GenerateConfig, engine: str) -> dict[str, str]:
    """The packages that an engine needs beyond the toolkit's own, and what for. vLLM makes fp8 itself."""
    if config.quantization in ("nf4", "int8"):
        bits = {"bitsandbytes": f"quantization {config.quantization}"}
    else:
        bits = {}
    return bits | ({"vllm": "engine vllm"} if engine == "vllm" else {})


def gpu_problems(config: GenerateConfig, found: Hardware) -> Iterator[str]:
    """More GPUs asked for than there are."""
    asked = config.tensor_parallel * config.pipeline_parallel * config.data_parallel
    if found.gpus and found.torch_cuda and asked > len(found.gpus):
        yield (
            f"tensor_parallel × pipeline_parallel × data_parallel is {asked} and {len(found.gpus)} GPUs are "
            "visible; lower them, or make more visible"
        )


def vllm_problems(found: Hardware) -> Iterator[str]:
    """bfloat16, which vLLM refuses on GPUs from before 2020 and transformers computes by other means."""
    for gpu in found.gpus[:1]:
        if gpu.capability is not None and gpu.capability < (8, 0):
            yield (
                f"{gpu} does not compute in bfloat16, which vLLM needs; give --engine transformers, which is "
                "slow there, or take a GPU of sm_80 or newer"
            )
