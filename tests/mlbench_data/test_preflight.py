"""What would end a run late is found first: on this machine, on pretended ones, in folders and on a hub."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
from huggingface_hub import constants

from mlbench_data import preflight
from mlbench_data.bad_input import BadInput
from mlbench_data.cli import run_script
from mlbench_data.hardware import Gpu, Hardware, hardware
from mlbench_data.models import Model, resolve_model
from mlbench_data.preflight import LARGE
from mlbench_data.weight_files import convert_command, weight_files
from tests.slurm.hub import hub_of

A10 = Gpu("NVIDIA A10", (8, 6), 22 * 2**30)
T4 = Gpu("Tesla T4", (7, 5), 15 * 2**30)
OF_THE_HUB = Model("name", "owner/name", "plain")

NVIDIA_SMI = """#!/bin/sh
echo 'GPU-1111-aa, NVIDIA A10, 8.6, 22528'
echo 'GPU-2222-bb, Tesla T4, 7.5, [N/A]'
"""


@pytest.fixture
def two_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine whose nvidia-smi lists two GPUs."""
    (tmp_path / "nvidia-smi").write_text(NVIDIA_SMI)
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


@pytest.mark.parametrize(
    ("chosen", "names"),
    [
        (None, ["NVIDIA A10", "Tesla T4"]),
        ("1", ["Tesla T4"]),
        ("1,0", ["Tesla T4", "NVIDIA A10"]),
        ("GPU-2222", ["Tesla T4"]),
        ("MIG-3333", ["NVIDIA A10"]),
        ("0,7,1", ["NVIDIA A10"]),
        ("", []),
        ("-1", []),
        ("NoDevFiles", []),
    ],
)
def test_gpus_are_those_that_cuda_will_see(
    chosen: str | None, names: list[str], two_gpus: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if chosen is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", chosen)
    found = hardware.__wrapped__()
    assert [gpu.name for gpu in found.gpus] == names
    assert [gpu.name for gpu in found.installed] == ["NVIDIA A10", "Tesla T4"]
    assert found.installed == (A10, Gpu("Tesla T4", (7, 5), None))


def test_a_machine_without_a_gpu_has_nothing_to_say(
    tokenizer_model: Model, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    weights, problems = preflight.weights_of(tokenizer_model)
    found = Hardware(has_compiler=False)
    problems += preflight.idle_gpu_problems(found, weights)
    problems += preflight.compiler_problems(found, "attention")
    assert problems == []
    assert list(preflight.cpu_warnings(tokenizer_model, found, weights)) == []
    assert weights == Path(tokenizer_model.location, "model.safetensors").stat().st_size


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (Hardware((A10,), (A10,), None), "1 GPU (NVIDIA A10 (sm_86)) and its torch is built without CUDA"),
        (
            Hardware((), (A10, A10), "12.8"),
            "2 GPUs (NVIDIA A10 (sm_86)) and CUDA_VISIBLE_DEVICES='' hides all",
        ),
    ],
)
def test_a_large_model_beside_idle_gpus_is_refused_and_a_small_one_warned_of(
    found: Hardware, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a word it would train on the CPU, for weeks."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    [problem] = preflight.idle_gpu_problems(found, LARGE)
    assert message in problem
    assert problem.endswith("set ACCELERATE_USE_CPU=true")
    assert list(preflight.idle_gpu_problems(found, LARGE - 1)) == []
    assert list(preflight.cpu_warnings(OF_THE_HUB, found, LARGE - 1)) == [problem]
    monkeypatch.setenv("ACCELERATE_USE_CPU", "true")
    assert list(preflight.idle_gpu_problems(found, LARGE)) == []


def test_a_large_model_on_a_machine_without_gpus_is_warned_of() -> None:
    [warning] = preflight.cpu_warnings(OF_THE_HUB, Hardware(), 13_500_000_000)
    assert warning == "name has 13.5 GB of weights and no GPU to run on: a CPU takes days"
    assert list(preflight.cpu_warnings(OF_THE_HUB, Hardware((A10,), (A10,), "12.8"), LARGE)) == []


def test_a_missing_compiler_is_said_where_triton_will_need_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [problem] = preflight.compiler_problems(Hardware((A10,), (A10,), "12.8", has_compiler=False), "vLLM")
    assert "there is no C compiler with Python.h; install gcc" in problem
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    assert not hardware.__wrapped__().has_compiler
    monkeypatch.setenv("CC", sys.executable)
    assert hardware.__wrapped__().has_compiler


def test_missing_packages_are_named_with_what_needs_them(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = {"torch": "everything", "vllm": "engine vllm"}
    there = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "vllm" else there(name))
    assert list(preflight.package_problems(wanted)) == [
        "engine vllm needs the package vllm, which is not installed; pip install vllm, or give --engine "
        "transformers"
    ]


def test_a_full_disk_is_said_before_anything_is_written(tmp_path: Path) -> None:
    [problem] = preflight.room_problems(tmp_path / "not" / "there", 10**18, "a run")
    assert "a run needs 1000000000.0 GB and" in problem
    assert list(preflight.room_problems(tmp_path, 1, "a run")) == []


@pytest.fixture
def other_weights(tokenizer_model: Model, tmp_path: Path) -> Model:
    """A model as many older ones are: pytorch_model.bin only."""
    import torch
    from safetensors.torch import load_file

    folder = tmp_path / "older"
    folder.mkdir()
    for file in Path(tokenizer_model.location).iterdir():
        if file.suffix != ".safetensors":
            (folder / file.name).write_bytes(file.read_bytes())
    torch.save(load_file(Path(tokenizer_model.location, "model.safetensors")), folder / "pytorch_model.bin")
    return resolve_model(str(folder))


def test_weights_that_are_no_safetensors_are_refused_with_a_command_that_converts_them(
    other_weights: Model, tmp_path: Path
) -> None:
    with pytest.raises(BadInput, match=r"older: has pytorch_model.bin and no safetensors") as refused:
        weight_files(other_weights)
    command = convert_command(other_weights)
    assert command in str(refused.value)
    subprocess.run(
        command.replace("python", sys.executable, 1),
        shell=True,
        cwd=tmp_path,
        check=True,
        capture_output=True,
    )
    converted = resolve_model(str(tmp_path / "older-safetensors"))
    assert list(weight_files(converted)) == ["model.safetensors"]
    assert (tmp_path / "older-safetensors" / "tokenizer.json").is_file()


def test_a_folder_that_lacks_a_part_of_its_weights_is_refused(other_weights: Model) -> None:
    folder = Path(other_weights.location)
    (folder / "model-00001-of-00002.safetensors").write_bytes(b"")
    weight_map = {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}
    (folder / "model.safetensors.index.json").write_text(f'{{"weight_map": {weight_map}}}'.replace("'", '"'))
    with pytest.raises(BadInput, match=r"lacks model-00002-of-00002.safetensors; copy or fetch"):
        weight_files(other_weights)


def test_a_model_that_was_not_fetched_is_missed_before_an_offline_job_needs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    model = Model("name", "owner/name", "plain", revision="v1")
    with pytest.raises(
        BadInput, match=r"HF_HUB_OFFLINE is set; .* run: hf download owner/name --revision v1"
    ):
        weight_files(model)


@pytest.fixture
def hub_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """An empty cache, and what a test may point at a hub of its own."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    return monkeypatch


def test_what_the_hub_would_give_is_asked_for_without_fetching_it(
    tokenizer_model: Model, hub_cache: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = Path(tokenizer_model.location)
    with hub_of(folder) as (address, asked):
        hub_cache.setattr(constants, "ENDPOINT", address)
        found = weight_files(OF_THE_HUB)
    assert found == {"model.safetensors": (folder / "model.safetensors").stat().st_size}
    assert not any("resolve" in path for path in asked)
    assert not (tmp_path / "cache").exists()


def test_a_gated_model_without_a_token_is_one_line(
    tokenizer_model: Model, hub_cache: pytest.MonkeyPatch
) -> None:
    with hub_of(Path(tokenizer_model.location), gated=True) as (address, _):
        hub_cache.setattr(constants, "ENDPOINT", address)
        [problem] = preflight.weights_of(OF_THE_HUB)[1]
    assert problem.startswith("owner/name: given only to those who have accepted its terms; accept them on")
    assert problem.endswith(f"{address}/owner/name, then run: hf auth login (or set HF_TOKEN)")


def test_a_name_that_the_hub_does_not_know_is_one_line(
    tokenizer_model: Model, hub_cache: pytest.MonkeyPatch
) -> None:
    with hub_of(Path(tokenizer_model.location)) as (address, _):
        hub_cache.setattr(constants, "ENDPOINT", address)
        [problem] = preflight.weights_of(Model("x", "owner/other", "plain"))[1]
    assert problem.startswith("owner/other: the hub knows no such model, or it is private")


def test_a_hub_that_cannot_be_reached_is_one_line(hub_cache: pytest.MonkeyPatch) -> None:
    hub_cache.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    [problem] = preflight.weights_of(OF_THE_HUB)[1]
    assert "not in the hub's cache; where it can be reached: hf download owner/name" in problem


def test_all_problems_are_told_at_once_a_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    from train.config import TrainConfig

    def main(config: TrainConfig) -> int:
        """Fails twice."""
        preflight.refuse(["no compiler", "no room"])
        return 0

    with pytest.raises(SystemExit) as ended:
        run_script(TrainConfig, main, [])
    assert ended.value.code == 2
    assert capsys.readouterr().err == "error: no compiler\nerror: no room\n"
