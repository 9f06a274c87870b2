"""The first check of a GPU, as far as a CPU can run it."""

import json
import math
from pathlib import Path

import pytest
import torch

from mlbench_data.bad_input import BadInput
from mlbench_data.models import Model
from train import doctor_gpu
from train.doctor_gpu import DoctorConfig, main


def test_every_check_runs_and_is_told_in_a_table_and_a_json_line(
    tokenizer_model: Model,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(doctor_gpu, "ROWS", 8)
    table = tmp_path / "table.md"
    config = DoctorConfig(model=tokenizer_model.location, steps=2, on_cpu=True, out=str(table))
    assert main(config) == 0
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    verdicts = {check["name"]: check["ok"] for check in told["checks"]}
    assert told["ok"] is True
    assert told["on_cpu"] is True
    assert sum(name.startswith("attention") for name in verdicts) == 20
    assert all(verdicts[name] for name in ("training", "adapter", "sample"))
    lines = table.read_text(encoding="utf-8").splitlines()
    assert "CPU ONLY, says nothing about GPUs" in lines[0]
    assert len([line for line in lines if line.endswith("| ok |")]) == 23


def test_wrong_attention_is_not_ok(monkeypatch: pytest.MonkeyPatch) -> None:
    right = doctor_gpu.shared_prefix_attention

    def wrong_in_float32(module: object, query: torch.Tensor, *rest: object, **more: object) -> object:
        out, weights = right(module, query, *rest, **more)  # type: ignore[arg-type]
        return (out * 1.001 if query.dtype == torch.float32 else out), weights

    monkeypatch.setattr(doctor_gpu, "shared_prefix_attention", wrong_in_float32)
    check = doctor_gpu._attention(torch.device("cpu"), "short", 64, torch.float32)
    assert check.ok is False
    assert check.row().endswith("| NOT OK |")


def test_what_cannot_be_computed_is_not_ok(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_gpu, "attention_error", lambda *unused: math.nan)
    assert doctor_gpu._attention(torch.device("cpu"), "short", 64, torch.float32).ok is False

    def out_of_resources(*unused: object) -> float:
        raise RuntimeError("out of resource: shared memory, Required: 104448\nmore")

    monkeypatch.setattr(doctor_gpu, "attention_error", out_of_resources)
    check = doctor_gpu._attention(torch.device("cpu"), "short", 64, torch.float32)
    assert check.ok is False
    assert check.found == "RuntimeError: out of resource: shared memory, Required: 104448"


def test_without_a_gpu_nothing_is_tried() -> None:
    with pytest.raises(BadInput, match="torch sees no GPU here; --on_cpu tries what a CPU can"):
        main(DoctorConfig())
