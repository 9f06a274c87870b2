"""What would end a sampling run late is told by infer/generate.py first, and nothing is written."""

import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from infer import generate
from infer.config import GenerateConfig
from infer.preflight import gpu_problems, preflight, vllm_problems
from mlbench_data.bad_input import BadInput
from mlbench_data.hardware import Gpu, Hardware
from mlbench_data.models import Model

A10 = Gpu("NVIDIA A10", (8, 6), 22 * 2**30)
T4 = Gpu("Tesla T4", (7, 5), 15 * 2**30)


@pytest.fixture
def config(tokenizer_model: Model, tmp_path: Path) -> GenerateConfig:
    return GenerateConfig(model=tokenizer_model.location, out=str(tmp_path / "c.jsonl"), limit=1)


def test_this_machine_has_nothing_to_say(config: GenerateConfig, capsys: pytest.CaptureFixture[str]) -> None:
    preflight(config, "transformers")
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("dry_run", [True, False])
def test_weights_that_are_no_safetensors_are_refused(
    dry_run: bool, config: GenerateConfig, tmp_path: Path
) -> None:
    shutil.copytree(config.model, tmp_path / "older")
    (tmp_path / "older" / "model.safetensors").rename(tmp_path / "older" / "pytorch_model.bin")
    with pytest.raises(BadInput, match=r"has pytorch_model.bin and no safetensors, which alone are read"):
        generate.main(replace(config, model=str(tmp_path / "older"), dry_run=dry_run))
    assert not (tmp_path / "c.jsonl").exists()


def test_the_model_of_a_server_is_not_looked_for(config: GenerateConfig) -> None:
    preflight(replace(config, model="a server's own name"), "openai")


def test_vllm_and_bitsandbytes_that_are_missing_are_told_together(
    config: GenerateConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    for package in ("vllm", "bitsandbytes"):
        monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(BadInput) as refused:
        preflight(replace(config, quantization="nf4"), "vllm")
    assert [problem.partition(",")[0] for problem in refused.value.args] == [
        "quantization nf4 needs the package bitsandbytes",
        "engine vllm needs the package vllm",
    ]


def test_vllm_on_a_gpu_without_bfloat16_is_refused() -> None:
    [problem] = vllm_problems(Hardware((T4,), (T4,), "12.8"))
    assert problem.startswith("Tesla T4 (sm_75) does not compute in bfloat16, which vLLM needs")
    assert list(vllm_problems(Hardware((A10,), (A10,), "12.8"))) == []


def test_more_gpus_than_are_visible_are_refused(config: GenerateConfig) -> None:
    found = Hardware((A10, A10), (A10, A10), "12.8")
    [problem] = gpu_problems(replace(config, tensor_parallel=2, data_parallel=2), found)
    assert "is 4 and 2 GPUs are visible" in problem
    assert list(gpu_problems(replace(config, tensor_parallel=2), found)) == []
