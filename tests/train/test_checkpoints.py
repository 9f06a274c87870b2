"""Whose folder it is: nothing of others is deleted, nothing half-done is taken for done."""

from pathlib import Path

import pytest

from mlbench_data.bad_input import BadInput
from train.checkpoints import claim_folder, finish_run, is_finished, last_checkpoint
from train.trained import ADAPTER_FILES

IDENTITY = {"model": "tiny"}


def checkpoint(folder: Path, name: str, whole: bool = True) -> Path:
    path = folder / name
    path.mkdir()
    (path / "model.safetensors").write_text("weights")
    (path / "trainer_state.json").write_text("{}" if whole else "{")
    return path


def test_checkpoints_of_another_program_are_left_alone(tmp_path: Path) -> None:
    precious = checkpoint(tmp_path, "checkpoint-500")
    with pytest.raises(BadInput, match="checkpoints of another program"):
        claim_folder(tmp_path, IDENTITY, resume=True)
    assert precious.is_dir()


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
