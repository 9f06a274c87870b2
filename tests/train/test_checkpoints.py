"""Whose folder it is: nothing of others is deleted, nothing half-done is taken for done."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from mlbench_data.bad_input import BadInput
from train.checkpoints import claim_folder, finish_run, is_finished, last_checkpoint
from train.trained import ADAPTER_FILES

IDENTITY = {"model": "tiny"}


def checkpoint(folder: Path, name: str, whole: bool = True) -> Path:
    path = folder / name
    path.mkdir()
    save_file({"weights": torch.ones(2)}, path / "adapter_model.safetensors")
    torch.save({}, path / "optimizer.pt")
    (path / "trainer_state.json").write_text('{"global_step": 1}' if whole else "{")
    return path


def test_checkpoints_of_another_program_are_left_alone(tmp_path: Path) -> None:
    precious = checkpoint(tmp_path, "checkpoint-500")
    with pytest.raises(BadInput, match="checkpoint-500 of another program"):
        claim_folder(tmp_path, IDENTITY, resume=True)
    assert precious.is_dir()


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "adapter_config.json"])
@pytest.mark.parametrize("resume", [True, False])
def test_models_of_others_are_left_alone(name: str, resume: bool, tmp_path: Path) -> None:
    """The base model's own folder, given as --output_dir by mistake, lost its weights."""
    (tmp_path / name).write_text("precious")
    with pytest.raises(BadInput, match=f"{name} of another program"):
        claim_folder(tmp_path, IDENTITY, resume=resume)
    assert (tmp_path / name).read_text() == "precious"


def test_starting_over_removes_the_old_run_s_adapter_and_checkpoints_only(tmp_path: Path) -> None:
    claim_folder(tmp_path, IDENTITY, resume=True)
    old, other = checkpoint(tmp_path, "checkpoint-2"), checkpoint(tmp_path, "checkpoint-best")
    (tmp_path / ADAPTER_FILES[1]).write_text("old weights")
    claim_folder(tmp_path, IDENTITY, resume=False)
    assert not old.exists()
    assert not (tmp_path / ADAPTER_FILES[1]).exists()
    assert other.is_dir()


def test_a_finished_run_without_its_adapter_is_not_finished(tmp_path: Path) -> None:
    for name in ADAPTER_FILES:
        (tmp_path / name).write_text("{}")
    finish_run(tmp_path, IDENTITY, {})
    assert is_finished(tmp_path, IDENTITY)
    (tmp_path / ADAPTER_FILES[1]).unlink()
    assert not is_finished(tmp_path, IDENTITY)


def test_checkpoints_are_ordered_by_step_and_torn_ones_removed(tmp_path: Path) -> None:
    whole = checkpoint(tmp_path, "checkpoint-8")
    torn = checkpoint(tmp_path, "checkpoint-10", whole=False)
    checkpoint(tmp_path, "checkpoint-best")
    assert last_checkpoint(tmp_path) == whole
    assert not torn.exists()


@pytest.mark.parametrize("name", ["adapter_model.safetensors", "optimizer.pt", "trainer_state.json"])
@pytest.mark.parametrize("damage", ["gone", "cut", "other bytes"])
def test_a_damaged_checkpoint_gives_way_to_the_one_before(name: str, damage: str, tmp_path: Path) -> None:
    before, damaged = checkpoint(tmp_path, "checkpoint-2"), checkpoint(tmp_path, "checkpoint-4")
    content = (damaged / name).read_bytes()
    (damaged / name).write_bytes(content[: len(content) // 2] if damage == "cut" else b"\xff[]")
    if damage == "gone" and name != "adapter_model.safetensors":
        (damaged / name).unlink()
    (tmp_path / "checkpoint-6").write_text("a file, not a folder")
    assert last_checkpoint(tmp_path) == before
    assert not (tmp_path / "checkpoint-6").exists()
