"""Sampling with vLLM, on GPUs or on a CPU: adapters by request, rows that share a README share its cache."""

import os
from typing import Any

from infer.engines.interface import Completion, Finish, Request, Sampling
from mlbench_data.adapter import Adapter
from mlbench_data.bad_input import BadInput
from mlbench_data.models import Model

ROWS_IN_A_BATCH = 64  # rows sampled in one call: what a killed run can lose


class VllmEngine:
    """A vLLM engine in this process. Requires the package `vllm`, or `vllm-cpu` where there is no GPU."""

    name = "vllm"

    def __init__(self, model: Model, adapter: Adapter | None, seed: int, trust_remote_code: bool) -> None:
        """Loads the weights. Raises BadInput if vLLM is not installed or cannot take the model."""
        self.adapter = adapter
        self.engine = _load(model, adapter, seed, trust_remote_code)

    def batches(self, requests: list[Request], sampling: Sampling) -> list[list[int]]:
        """Rows with the same leading tokens follow each other, so that the prefix cache is hit."""
        order = sorted(range(len(requests)), key=lambda index: (requests[index].token_ids, index))
        return [order[start : start + ROWS_IN_A_BATCH] for start in range(0, len(order), ROWS_IN_A_BATCH)]

    def sample(self, batch: list[Request], sampling: Sampling) -> list[list[Completion]]:
        """One call for the batch: vLLM schedules rows and candidates itself."""
        from vllm import SamplingParams
        from vllm.lora.request import LoRARequest

        drawn = sampling.n if sampling.temperature > 0 else 1  # greedy candidates are one and the same
        parameters = [
            SamplingParams(
                n=drawn,
                temperature=sampling.temperature,
                top_p=sampling.top_p,
                max_tokens=sampling.max_new_tokens,
                seed=request.seed,
                skip_special_tokens=False,
            )
            for request in batch
        ]
        lora = LoRARequest("adapter", 1, str(self.adapter.folder)) if self.adapter else None
        prompts = [{"prompt_token_ids": request.token_ids} for request in batch]
        outputs = self.engine.generate(prompts, parameters, lora_request=lora, use_tqdm=False)
        copies = sampling.n // drawn
        return [[_completion(item) for item in output.outputs] * copies for output in outputs]


def _completion(output: Any) -> Completion:
    finish: Finish = "stop" if output.finish_reason == "stop" else "length"
    return Completion(output.text, finish, len(output.token_ids))


def _load(model: Model, adapter: Adapter | None, seed: int, trust_remote_code: bool) -> Any:
    import torch

    on_gpu = torch.cuda.is_available()
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "4")  # GiB
    try:
        from vllm import LLM
    except ImportError as error:
        raise BadInput(
            f"engine vllm: not installed ({error}); pip install vllm, or --engine transformers"
        ) from error
    try:
        return LLM(
            model=model.location,
            revision=model.revision,
            dtype="bfloat16" if on_gpu else "float32",
            max_model_len=model.context,
            # A seeded request kills the CPU engine once its prompt is read in chunks.
            enable_chunked_prefill=on_gpu,
            max_num_batched_tokens=None if on_gpu else model.context,
            enable_prefix_caching=True,
            enforce_eager=not on_gpu,
            enable_lora=adapter is not None,
            max_lora_rank=adapter.rank if adapter else 16,
            generation_config="vllm",
            seed=seed,
            trust_remote_code=trust_remote_code,
        )
    except (OSError, ValueError) as error:
        raise BadInput(
            f"{model.location}: vLLM cannot load it ({str(error).strip().splitlines()[0]})"
        ) from error
