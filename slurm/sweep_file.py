"""OUT/sweep.json: what a folder was submitted with, so that no other sweep is mixed with it."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from mlbench_data.bad_input import BadInput
from mlbench_data.cli import resolved
from mlbench_data.files import PROJECT_ROOT, read_json
from slurm.fingerprint import fingerprint
from slurm.sweep import NOT_IDENTITY, Cell, Sweep, folder_of

SWEEP_FILE = "sweep.json"


def description(sweep: Sweep, cells: list[Cell]) -> dict[str, Any]:
    """What OUT/sweep.json says: settings, code, and for eval/report.py where each cell's results are."""
    return {
        "settings": {name: value for name, value in asdict(sweep).items() if name not in NOT_IDENTITY},
        "code": fingerprint(),
        "cells": [
            {"name": cell.name, "model": cell.model, "trained_on": cell.trained_on, "task": cell.task,
             "split": sweep.split, "seed": cell.seed, "engine": cell.engine,
             "given_model": cell.given_model, "results": f"{cell.name}/results/all"}
            for cell in cells
        ],
        "config": resolved(sweep),
    }  # fmt: skip


def read_sweep_file(place: Path) -> dict[str, Any]:
    """What OUT/sweep.json says. Raises BadInput if it is no such file."""
    there = read_json(place, "the sweep that slurm/submit.py wrote")
    try:
        whole = (
            {cell["name"] for cell in there["cells"]} and dict(there["settings"]) and dict(there["config"])
        )
    except (TypeError, KeyError, ValueError):
        whole = None
    if not whole or not isinstance(there.get("code"), str):
        raise BadInput(f"{place}: not the sweep that slurm/submit.py wrote; give another --out")
    return there


BEGUN = {
    "eval": "*/results",
    "generate": "*/candidates",
    "train": "adapters/*/training.json",
    "train_config": "adapters/*/training.json",
}
"""What is made with a setting: as long as there is none of it, the setting can still be changed."""


def has_begun(folder: Path, setting: str) -> bool:
    """Whether a sweep's folder holds something that was made with a setting."""
    return setting not in BEGUN or any(folder.glob(BEGUN[setting]))


def check_folder(sweep: Sweep, cells: list[Cell], changed_code: bool) -> None:
    """Raises BadInput if the folder holds another sweep: its cells would be mixed up with these."""
    place = folder_of(sweep) / SWEEP_FILE
    if not place.exists():
        return
    there, asked = read_sweep_file(place), description(sweep, cells)
    before, now = there["settings"], asked["settings"]
    differing = sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))
    if kept := [name for name in differing if has_begun(place.parent, name)]:
        raise BadInput(f"{place}: holds a sweep with other {', '.join(kept)}; give another --out")
    given = {cell["name"]: cell.get("given_model") for cell in there["cells"]}
    for cell in cells:
        if given.get(cell.name, cell.given_model) != cell.given_model:
            raise BadInput(f"{place}: {cell.name} is of the model {given[cell.name]}; give another --out")
    left_out = {cell["name"] for cell in there["cells"]} - {cell["name"] for cell in asked["cells"]}
    if left_out:
        raise BadInput(
            f"{place}: holds {len(left_out)} cells that are not in this sweep, such as {min(left_out)}; "
            "a sweep can grow, but another one needs another --out"
        )
    if there["code"] != asked["code"] and not changed_code:
        raise BadInput(
            f"{place}: was submitted with other code ({there['code']}, now {asked['code']}); bring "
            f"{PROJECT_ROOT} back, give another --out, or --changed_code if the cells that are done may stay"
        )


def submitted_sweep(config: Sweep) -> Sweep:
    """The sweep that a folder holds: of what is asked for now, only the folder counts. Raises BadInput."""
    place = folder_of(config) / SWEEP_FILE
    if not place.exists():
        raise BadInput(f"{place.parent}: no sweep there; submit it first, or give its --out")
    values = read_sweep_file(place)["config"]
    try:
        return replace(Sweep(**values), out=config.out)
    except TypeError as error:
        raise BadInput(f"{place}: not the sweep that slurm/submit.py wrote ({error})") from error
