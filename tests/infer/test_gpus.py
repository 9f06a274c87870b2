"""Nothing starts CUDA in the process that vLLM is started from, on a machine that has it."""

import os
import sys
from types import ModuleType
from typing import Any

import pytest
import torch

from infer.config import GenerateConfig
from infer.engines.vllm_engine import VllmEngine, VllmSettings
from infer.generate import engine_for
from infer.parallel import devices
from mlbench_data.bad_input import BadInput
from mlbench_data.models import Model
from tests.helpers import RunScript


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What has started the driver, on a machine with two GPUs as torch's CUDA build sees it."""
    started: list[str] = []

    def starts(name: str, value: Any) -> Any:
        def start(*_arguments: Any) -> Any:
            started.append(name)
            return value

        return start

    monkeypatch.setattr(torch._C, "_cuda_getDeviceCount", starts("device count", 2), raising=False)
    monkeypatch.setattr(torch.cuda, "_device_count_nvml", lambda: 2)
    monkeypatch.setattr(torch.cuda, "_lazy_init", starts("a context", None))
    monkeypatch.setattr(torch.cuda, "mem_get_info", starts("free memory", (1 << 40, 1 << 40)))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return started


@pytest.fixture
def vllm(driver: list[str], monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What vLLM was started with. It is not started: its CUDA build is not there."""
    asked: dict[str, Any] = {}

    def start(**arguments: Any) -> Any:
        asked.update(arguments, driver=list(driver), method=os.environ.get("VLLM_WORKER_MULTIPROC_METHOD"))
        raise RuntimeError("no GPU")

    module = ModuleType("vllm")
    monkeypatch.setattr(module, "LLM", start, raising=False)
    monkeypatch.setitem(sys.modules, "vllm", module)
    for name in ("VLLM_LOGGING_LEVEL", "VLLM_CPU_KVCACHE_SPACE", "VLLM_CPU_OMP_THREADS_BIND"):
        monkeypatch.setenv(name, "")
    monkeypatch.setenv("VLLM_WORKER_MULTIPROC_METHOD", "fork")  # so that it is restored
    monkeypatch.delenv("VLLM_WORKER_MULTIPROC_METHOD")
    return asked


def test_gpus_are_counted_without_the_driver(driver: list[str]) -> None:
    """A process that is forked after the driver was started cannot use CUDA."""
    assert engine_for(GenerateConfig()) == "vllm"
    assert devices(2) == [{"CUDA_VISIBLE_DEVICES": "0"}, {"CUDA_VISIBLE_DEVICES": "1"}]
    assert driver == []


def test_vllm_starts_before_cuda_does_and_forks_nothing(
    vllm: dict[str, Any], driver: list[str], tokenizer_model: Model
) -> None:
    with pytest.raises(BadInput, match="vLLM cannot load it"):
        VllmEngine(tokenizer_model, VllmSettings(tensor_parallel=2))
    assert vllm["driver"] == driver == []
    assert vllm["method"] == "spawn"
    assert vllm["dtype"] == "bfloat16"


def test_what_vllm_is_told_about_memory(
    vllm: dict[str, Any], driver: list[str], tokenizer_model: Model
) -> None:
    limits = {"gpu_memory_utilization": 0.8, "max_num_seqs": 16, "kv_cache_dtype": "fp8"}
    for settings, told in (
        (VllmSettings(), {"quantization": None}),
        (VllmSettings(quantization="fp8", limits=limits), {"quantization": "fp8_per_tensor", **limits}),
    ):
        vllm.clear()
        with pytest.raises(BadInput, match="vLLM cannot load it"):
            VllmEngine(tokenizer_model, settings)
        assert {name: vllm[name] for name in [*limits, "quantization"] if name in vllm} == told


def test_the_engine_imports_nothing_that_starts_cuda(run_script: RunScript) -> None:
    """bitsandbytes asks every card for its capability as it is imported, and peft imports it."""
    code = (
        "import sys, infer.generate, infer.engines.vllm_engine\n"
        "print({'peft', 'bitsandbytes', 'accelerate'} & sys.modules.keys())"
    )
    assert run_script("-c", code, check=True).stdout == "set()\n"
