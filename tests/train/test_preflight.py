"""What would end a training run late is told by train/sft.py first, dry or not, and nothing is written."""

import shlex
import shutil
from collections import namedtuple
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from mlbench_data.bad_input import BadInput
from mlbench_data.cli import parse
from mlbench_data.hardware import Gpu, Hardware
from mlbench_data.models import Model
from tests.helpers import RunScript
from train import sft
from train.config import TrainConfig
from train.estimate import EstimateConfig
from train.memory import architecture_of
from train.network import Lora, without_weights
from train.preflight import (
    card_problems,
    checkpoint_bytes,
    driver_problems,
    memory_warnings,
    packages_of,
    preflight,
    sharing_problems,
)

A10 = Gpu("NVIDIA A10", (8, 6), 22 * 2**30)
T4 = Gpu("Tesla T4", (7, 5), 15 * 2**30)

Disk = namedtuple("Disk", "total used free")


@pytest.fixture
def config(tokenizer_model: Model, tmp_path: Path) -> TrainConfig:
    out = str(tmp_path / "out")
    return TrainConfig(model=tokenizer_model.location, output_dir=out, max_rows=40, dry_run=True)


@pytest.fixture
def fsdp(monkeypatch: pytest.MonkeyPatch) -> None:
    """What accelerate tells the processes that it starts by configs/accelerate/fsdp2.yaml."""
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    monkeypatch.setenv("FSDP_VERSION", "2")
    monkeypatch.setenv("FSDP_STATE_DICT_TYPE", "FULL_STATE_DICT")


def without_safetensors(model: Model, folder: Path) -> Path:
    """The model as older ones are."""
    shutil.copytree(model.location, folder)
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    return folder


def refused(config: TrainConfig) -> list[str]:
    """The problems of a dry run, which has written nothing."""
    with pytest.raises(BadInput) as found:
        sft.main(config)
    assert not Path(config.output_dir).exists()
    return list(found.value.args)


def test_this_machine_has_nothing_to_say(config: TrainConfig, capsys: pytest.CaptureFixture[str]) -> None:
    assert sft.main(config) == 0
    assert capsys.readouterr().err == ""


def test_int8_weights_are_refused_under_fsdp(config: TrainConfig, fsdp: None) -> None:
    """They end in a traceback when FSDP moves them: Int8Params forget what they are."""
    [problem] = refused(replace(config, quantization="int8"))
    assert problem.startswith("FSDP cannot divide the int8 weights of bitsandbytes; give --quantization nf4")
    assert list(sharing_problems(replace(config, quantization="nf4"), Hardware(), 2)) == []


def test_all_problems_are_lines_of_their_own_and_exit_code_2(
    tokenizer_model: Model, run_script: RunScript, tmp_path: Path, fsdp: None
) -> None:
    older = without_safetensors(tokenizer_model, tmp_path / "older")
    settings = ("--quantization", "int8", "--output_dir", tmp_path / "out", "--lora_rank", 100)
    done = run_script("train/sft.py", "--model", older, *settings)
    assert done.returncode == 2
    lines = done.stderr.splitlines()
    assert len(lines) == 3
    assert lines[0].startswith(f"error: {older}: has pytorch_model.bin and no safetensors")
    assert lines[1].startswith("error: FSDP cannot divide the int8 weights")
    assert lines[2] == "error: lora_rank is 100; q_proj is 64 wide, so at most 64"
    assert not (tmp_path / "out").exists()


def test_a_gpu_without_bfloat16_is_refused() -> None:
    """On sm_75 the kernels for heads of 128 do not fit in float32 either: 81,920 of 65,536 bytes."""
    [problem] = card_problems(Hardware((T4,), (T4,), "12.8"))
    assert problem.startswith("Tesla T4 (sm_75) does not compute in bfloat16")
    assert "sm_80 or newer" in problem
    assert list(card_problems(Hardware((A10,), (A10,), "12.8"))) == []
    assert list(card_problems(Hardware((Gpu(),), (Gpu(),), "12.8"))) == []


def test_more_processes_than_visible_gpus_are_refused(config: TrainConfig) -> None:
    """All but the first would end with an invalid device ordinal."""
    found = Hardware((A10, A10), (A10, A10), "12.8")
    [problem] = sharing_problems(config, found, 8)
    assert problem.startswith("accelerate started 8 processes on this machine and 2 GPUs are visible")
    assert list(sharing_problems(config, found, 2)) == []
    assert list(sharing_problems(config, Hardware(), 8)) == [], "on CPUs they are as many as wanted"


def test_a_driver_that_is_too_old_for_torch_is_not_a_run_on_the_cpu() -> None:
    found = Hardware((A10,), (A10,), "13.0")
    [problem] = driver_problems(found, works=False)
    assert "driver may be older than CUDA 13.0" in problem
    assert list(driver_problems(found, works=True)) == []


def test_packages_that_are_needed(config: TrainConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACCELERATE_USE_DEEPSPEED", "true")
    needed = packages_of(replace(config, quantization="nf4"))
    assert needed == {"bitsandbytes": "quantization nf4", "deepspeed": "accelerate's configuration"}
    assert "vllm" not in needed


def test_a_disk_without_room_for_a_checkpoint_is_refused(
    config: TrainConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Disk(10**6, 10**6 - 1000, 1000))
    [problem] = refused(config)
    assert "a checkpoint needs 0.0 GB" in problem


def test_a_disk_for_one_checkpoint_only_is_a_warning(
    config: TrainConfig, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The run may be short; one whose disk fills up keeps the checkpoint before."""
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Disk(10**6, 0, 500_000))
    assert sft.main(config) == 0
    assert "warning: " in capsys.readouterr().err


def test_checkpoints_of_fsdp_hold_the_base_model_too(
    config: TrainConfig, tokenizer_model: Model, fsdp: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    architecture = architecture_of(tokenizer_model)
    weights = sum(parameter.numel() for parameter in without_weights(architecture).parameters())
    lora = Lora(4, 8)
    sharded = checkpoint_bytes(config, without_weights(architecture), lora)
    monkeypatch.delenv("ACCELERATE_USE_FSDP")
    assert sharded - checkpoint_bytes(config, without_weights(architecture), lora) == 2 * weights
    assert checkpoint_bytes(config, without_weights(architecture), None) == 12 * weights


def test_too_little_memory_is_a_warning_with_a_command_that_runs() -> None:
    arguments = ["--config", "configs/train/smollm2-135m-id-task3.yaml", "--dry_run"]
    [warning] = memory_warnings(31 * 2**30, 22 * 2**30, arguments)
    assert "about 31.00 GiB are needed on each GPU and 22.00 GiB are free" in warning
    command = shlex.split(warning.partition("for less: ")[2])
    assert command[:2] == ["python", "train/estimate.py"]
    parsed = parse(EstimateConfig, "", command[2:])
    assert (parsed.gpu_memory, parsed.gpus, parsed.sharding) == ("22GiB", 1, "ddp")
    assert list(memory_warnings(22, 22, arguments)) == []


def test_a_large_model_on_a_cpu_is_said(
    config: TrainConfig, tokenizer_model: Model, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    large = tmp_path / "large"
    shutil.copytree(tokenizer_model.location, large)
    with (large / "model.safetensors").open("r+b") as file:
        file.truncate(14 * 10**9)  # takes no room
    model = replace(tokenizer_model, name="large", location=str(large))
    preflight(config, model, Lora(4, 8))
    assert capsys.readouterr().err == (
        "warning: large has 14.0 GB of weights and no GPU to run on: a CPU takes days\n"
    )


def test_full_fine_tuning_in_bfloat16_is_refused_on_a_cpu_and_can_be_planned_there(
    config: TrainConfig,
) -> None:
    """A login node has no GPU."""
    full: Any = replace(config, method="full", dtype="bfloat16")
    assert not torch.cuda.is_available()
    assert sft.main(full) == 0
    assert "full fine-tuning keeps float32 weights" in refused(replace(full, dry_run=False))[0]
