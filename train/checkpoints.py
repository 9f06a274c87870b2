"""Stopping and starting again: which run a folder belongs to, and its last whole checkpoint."""

import errno
import json
import re
import shutil
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from transformers import TrainerCallback

from mlbench_data.bad_input import BadInput
from mlbench_data.files import claim, read_json, write_json

RUN_FILE = "training.json"
SAVED_BY_ALL = "saved_by_all"
_CHECKPOINT = re.compile(r"checkpoint-(\d+)")


class SavedByAll(TrainerCallback):
    """Marks a checkpoint once every process has written its part: the trainer writes `trainer_state.json`
    when the main one has written its own.
    """

    def on_save(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
        """Waits for all, and marks."""
        if args.world_size == 1:
            return
        args.distributed_state.wait_for_everyone()
        if state.is_world_process_zero:
            Path(args.output_dir, f"checkpoint-{state.global_step}", SAVED_BY_ALL).touch()


@contextmanager
def naming_a_full_disk(folder: Path) -> Iterator[None]:
    """Raises OSError (ENOSPC) where libraries say in words of their own that there is no room to save."""
    try:
        yield
    except (RuntimeError, SafetensorError) as error:
        if not any(words in str(error) for words in ("No space left", "inline_container")):
            raise
        raise OSError(errno.ENOSPC, "No space left on device", str(folder)) from error


def start_run(folder: Path, identity: dict[str, Any], resume: bool, processes: int) -> Path | None:
    """Makes the folder this run's own and returns the checkpoint that it continues from. Raises BadInput if
    the folder is another's.
    """
    claim(folder)
    claim_folder(folder, identity, resume)
    return last_checkpoint(folder, processes) if resume else None


def is_finished(folder: Path, identity: dict[str, Any]) -> bool:
    """Whether the run that `identity` describes is finished in `folder`; False for a new folder.

    Raises BadInput if the folder belongs to a run with another identity.
    """
    path = folder / RUN_FILE
    if not path.exists():
        return False
    found = read_json(path, "the record of a training run")
    if not isinstance(found, dict) or not isinstance(found.get("identity"), dict) or "finished" not in found:
        raise BadInput(f"{path}: not the record of a training run; give another --output_dir")
    differing = sorted(
        name
        for name in identity.keys() | found["identity"].keys()
        if identity.get(name) != found["identity"].get(name)
    )
    if differing:
        raise BadInput(
            f"{folder}: holds a run with other {', '.join(differing)}; "
            "give another --output_dir, or --resume false to start over"
        )
    return bool(found["finished"]) and any(folder.glob("*.safetensors"))


def claim_folder(folder: Path, identity: dict[str, Any], resume: bool) -> None:
    """Says whose folder it is; what is left of a run that is not to be resumed is removed.

    Raises BadInput if there are checkpoints or models that no run of ours has made.
    """
    ours = (folder / RUN_FILE).exists()
    if resume and ours:
        return
    checkpoints = _checkpoints(folder)
    foreign = [*checkpoints, *folder.glob("*.safetensors"), *folder.glob("*config.json")]
    if foreign and not ours:
        raise BadInput(f"{folder}: holds {foreign[0].name} of another program; give another --output_dir")
    for path in [*checkpoints, *folder.glob("*.safetensors")]:
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    write_json(folder / RUN_FILE, {"finished": False, "identity": identity})


def finish_run(folder: Path, identity: dict[str, Any], record: dict[str, Any]) -> None:
    """Marks the run as finished, with what it cost and what it was made with. Written last."""
    write_json(folder / RUN_FILE, {"finished": True, "identity": identity, **record})


def last_checkpoint(folder: Path, processes: int = 1) -> Path | None:
    """The newest whole checkpoint of so many processes; torn ones (killed while saving, or damaged) are
    removed, so that the one before counts.
    """
    numbered = _checkpoints(folder)
    while numbered:
        if is_whole(numbered[-1], processes):
            return numbered[-1]
        torn = numbered.pop()
        shutil.rmtree(torn) if torn.is_dir() else torn.unlink()
    return None


def _checkpoints(folder: Path) -> list[Path]:
    """The checkpoint folders, oldest first."""
    found = {int(match[1]): path for path in folder.iterdir() if (match := _CHECKPOINT.fullmatch(path.name))}
    return [found[step] for step in sorted(found)]


def is_whole(checkpoint: Path, processes: int) -> bool:
    """Whether everything is there that training continues from. The trainer writes `trainer_state.json` last;
    DeepSpeed names its own folder in `latest`.
    """
    if processes > 1 and not (checkpoint / SAVED_BY_ALL).exists():
        return False
    if not any((checkpoint / name).is_file() for name in ("optimizer.pt", "optimizer.bin", "latest")):
        return False
    try:
        state = json.loads((checkpoint / "trainer_state.json").read_text(encoding="utf-8"))
        for path in checkpoint.glob("*.safetensors"):
            with safe_open(path, "pt"):
                pass
    except (OSError, ValueError, SafetensorError):
        return False
    saved = [path for path in checkpoint.iterdir() if path.suffix in (".pt", ".bin", ".pth")]
    return isinstance(state, dict) and "global_step" in state and all(map(zipfile.is_zipfile, saved))
