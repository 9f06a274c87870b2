"""Stopping and starting again: which run a folder belongs to, and its last whole checkpoint."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

from mlbench_data.bad_input import BadInput
from mlbench_data.files import read_json, write_json
from train.trained import ADAPTER_FILES

RUN_FILE = "training.json"
_CHECKPOINT = re.compile(r"checkpoint-(\d+)")


def is_finished(folder: Path, identity: dict[str, Any]) -> bool:
    """Whether the run that `identity` describes is finished in `folder`; False for a new folder.

    Raises BadInput if the folder belongs to a run with another identity.
    """
    path = folder / RUN_FILE
    if not path.exists():
        return False
    found = read_json(path, "the record of a training run")
    if not isinstance(found, dict) or not {"finished", "identity"} <= found.keys():
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
    return bool(found["finished"]) and all((folder / name).is_file() for name in ADAPTER_FILES)


def claim_folder(folder: Path, identity: dict[str, Any], resume: bool) -> None:
    """Says whose folder it is; what is left of a run that is not to be resumed is removed.

    Raises BadInput if there are checkpoints that no run of ours has made.
    """
    ours = (folder / RUN_FILE).exists()
    if resume and ours:
        return
    checkpoints = _checkpoints(folder)
    if checkpoints and not ours:
        raise BadInput(f"{folder}: holds checkpoints of another program; give another --output_dir")
    for path in [*checkpoints, *(folder / name for name in ADAPTER_FILES)]:
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    write_json(folder / RUN_FILE, {"finished": False, "identity": identity})


def finish_run(folder: Path, identity: dict[str, Any], record: dict[str, Any]) -> None:
    """Marks the run as finished, with what it cost and what it was made with. Written last."""
    write_json(folder / RUN_FILE, {"finished": True, "identity": identity, **record})


def last_checkpoint(folder: Path) -> Path | None:
    """The newest whole checkpoint; torn ones (killed while saving) are removed.

    The trainer writes `trainer_state.json` last, so a checkpoint without it is torn.
    """
    numbered = _checkpoints(folder)
    while numbered:
        if _is_whole(numbered[-1]):
            return numbered[-1]
        shutil.rmtree(numbered.pop())
    return None


def _checkpoints(folder: Path) -> list[Path]:
    """The checkpoint folders, oldest first."""
    found = {int(match[1]): path for path in folder.iterdir() if (match := _CHECKPOINT.fullmatch(path.name))}
    return [found[step] for step in sorted(found)]


def _is_whole(checkpoint: Path) -> bool:
    try:
        json.loads((checkpoint / "trainer_state.json").read_text(encoding="utf-8"))
    except (OSError, json.JSONDecodeError):
        return False
    return True
