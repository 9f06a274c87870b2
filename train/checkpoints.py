"""Stopping and starting again: which run a folder belongs to, and its last whole checkpoint."""

import json
import shutil
from pathlib import Path
from typing import Any

from mlbench_data.bad_input import BadInput
from mlbench_data.files import read_json, write_json

RUN_FILE = "training.json"


def is_finished(folder: Path, identity: dict[str, Any]) -> bool:
    """Whether the run that `identity` describes is finished in `folder`; False for a new folder.

    Raises BadInput if the folder belongs to a run with another identity.
    """
    path = folder / RUN_FILE
    if not path.exists():
        return False
    found = read_json(path, "the record of a training run")
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
    return bool(found["finished"])


def claim_folder(folder: Path, identity: dict[str, Any], resume: bool) -> None:
    """Says whose folder it is. Checkpoints of nobody, or of a run not to be resumed, are removed."""
    if resume and (folder / RUN_FILE).exists():
        return
    for checkpoint in folder.glob("checkpoint-*"):
        shutil.rmtree(checkpoint)
    write_json(folder / RUN_FILE, {"finished": False, "identity": identity})


def finish_run(folder: Path, identity: dict[str, Any], record: dict[str, Any]) -> None:
    """Marks the run as finished, with what it cost and what it was made with. Written last."""
    write_json(folder / RUN_FILE, {"finished": True, "identity": identity, **record})


def last_checkpoint(folder: Path) -> Path | None:
    """The newest whole checkpoint; torn ones (killed while saving) are removed.

    The trainer writes `trainer_state.json` last, so a checkpoint without it is torn.
    """
    numbered = sorted(folder.glob("checkpoint-*"), key=lambda path: int(path.name.rsplit("-", 1)[1]))
    while numbered:
        if _is_whole(numbered[-1]):
            return numbered[-1]
        shutil.rmtree(numbered.pop())
    return None


def _is_whole(checkpoint: Path) -> bool:
    try:
        json.loads((checkpoint / "trainer_state.json").read_text(encoding="utf-8"))
    except (OSError, json.JSONDecodeError):
        return False
    return True
