"""Submits a sweep to Slurm, says how far it is, or cancels it.

    python slurm/submit.py --config configs/paper.yaml --dry_run

Only what is not done and not in the queue is submitted: the same command continues a sweep that was stopped.
"""

import os
import shlex
import sys
from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from mlbench_data.bad_input import BadInput, JobFailed
from mlbench_data.cli import resolved, run_script
from mlbench_data.files import PROJECT_ROOT, claim, make_folder, read_json, sha256_of, write_json
from slurm.check import check_sweep, warnings_of
from slurm.fingerprint import fingerprint
from slurm.hours import print_hours
from slurm.jobs import Job, jobs_of, write_job
from slurm.prefetched import hub_models, read_record
from slurm.queue_state import ask, cancel, queue
from slurm.recipe import train_config
from slurm.site_settings import Site, read_site
from slurm.status import print_status
from slurm.sweep import NOT_IDENTITY, Cell, Sweep, adapters_in, cells_of, folder_of, sweep_in

SWEEP_FILE = "sweep.json"


@dataclass(frozen=True)
class SubmitConfig(Sweep):
    """Which sweep, and what to do with it."""

    dry_run: bool = False
    """Print the lines of sbatch for what is not done, and the hours it may take; write and submit nothing."""
    status: bool = False
    """Print every cell's state, from its files and the queue; of the other options only out counts."""
    cancel: bool = False
    """Cancel all jobs of the sweep in out; what they have finished stays."""
    changed_code: bool = False
    """Go on in a folder whose finished cells were made by another version of the toolkit."""


def main(config: SubmitConfig) -> int:
    """Submits a sweep to Slurm, says how far it is, or cancels it. Relative paths start at the project."""
    os.chdir(PROJECT_ROOT)  # as its jobs do
    if config.dry_run + config.status + config.cancel > 1:
        raise BadInput("dry_run, status and cancel are three different things; give one of them")
    if config.cancel:
        return cancel_all(prefix_of(config))
    sweep = submitted_sweep(config) if config.status else sweep_in(config)
    cells = cells_of(sweep)
    if config.status:
        print(f"{folder_of(sweep)}:")
        return print_status(cells, jobs_of(sweep, cells), queue(prefix_of(sweep)))
    check_folder(sweep, cells, config.changed_code)
    site = read_site(config.site)
    for cell in adapters_in(cells):
        train_config(cell)
    jobs = jobs_of(sweep, cells)
    check_sweep(sweep, site, cells, jobs, planned=config.dry_run)
    for warning in warnings_of(sweep, site, cells):
        print(f"WARNING: {warning}", file=sys.stderr)
    if config.dry_run:
        for line in plan(jobs, site, prefix_of(sweep)):
            print(line)
        print_hours(sweep, site, cells)
        return 0
    return submit(config, sweep, site, cells, jobs)


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


def cancel_all(prefix: str) -> int:
    """Cancels what is queued or runs."""
    numbers = sorted({job.number for found in queue(prefix).values() for job in found if job.is_alive})
    cancel(numbers)
    print(f"{len(numbers)} jobs cancelled")
    return 0


def prefix_of(sweep: Sweep) -> str:
    """What the names of a sweep's jobs begin with: two folders never have the same."""
    return f"mlb-{sha256_of(str(folder_of(sweep)))[:8]}."


def submit(config: SubmitConfig, sweep: Sweep, site: Site, cells: list[Cell], jobs: list[Job]) -> int:
    """Submits what is not done and not in the queue. A job whose needs were submitted anew is, too."""
    folder = make_folder(folder_of(sweep))
    claim(folder / SWEEP_FILE)
    check_folder(sweep, cells, config.changed_code)  # again, now that nobody else can write it
    prefix = prefix_of(sweep)
    queued = queue(prefix)
    write_json(folder / SWEEP_FILE, description(sweep, cells))
    settings = shell_settings(sweep, site)
    numbers: dict[str, list[str]] = {}
    fresh: set[str] = set()
    for job in jobs:
        there = [item for item in queued.get(job.name, []) if item.is_alive]
        if any(name in fresh for name in job.needs):
            cancel([name for item in there if item.is_waiting for name in item.names])
            there = [] if job.stage == "report" else [item for item in there if not item.is_waiting]
        parts = [part for part in missing(job, fresh) if not any(item.covers(part) for item in there)]
        numbers[job.name] = sorted({name for item in there for name in item.names})
        if parts:
            write_job(job, settings)
            line = sbatch(
                job, parts, site, prefix, [number for name in job.needs for number in numbers[name]]
            )
            number = submit_line(line, len(fresh))
            numbers[job.name].append(number)
            fresh.add(job.name)
            print(f"{number}  {job.name}{_of_all(job, parts)}")
    print(f"{len(fresh)} jobs submitted" if fresh else "nothing to submit: all is done or in the queue")
    return 0


def submit_line(line: list[str], before: int) -> str:
    """The number of the new job. Raises JobFailed with Slurm's own words and what stays in the queue."""
    try:
        return ask(*line).strip().partition(";")[0]
    except JobFailed as error:
        if before:
            raise JobFailed(
                f"{error}; {before} jobs before it stay in the queue, --cancel removes them"
            ) from error
        raise


def missing(job: Job, fresh: Collection[str]) -> list[int]:
    """The parts of a job to submit if those named `fresh` are: what a job needs is made anew before it."""
    return list(job.parts) if any(name in fresh for name in job.needs) else job.missing()


def _of_all(job: Job, parts: list[int]) -> str:
    return f", {len(parts)} of {job.shards} shards" if job.shards else ""


def plan(jobs: list[Job], site: Site, prefix: str) -> Iterator[str]:
    """The lines of sbatch for what is not done, as a shell would run them one after another."""
    variables: dict[str, str] = {}
    for job in jobs:
        if parts := missing(job, variables.keys()):
            needed = [variables[name] for name in job.needs if name in variables]
            line = sbatch(job, parts, site, prefix, [f"${name}" for name in needed])
            words = [word if word.startswith("--dependency=") else shlex.quote(word) for word in line]
            variables[job.name] = f"job{len(variables) + 1}"
            yield f"{variables[job.name]}=$({' '.join(words)})"


def sbatch(job: Job, parts: list[int], site: Site, prefix: str, after: list[str]) -> list[str]:
    """The words of sbatch for some parts of a job. The report is made of the cells that are there."""
    rule = "afterany" if job.stage == "report" else "afterok"
    return [
        "sbatch",
        "--parsable",
        f"--job-name={prefix}{job.name}",
        f"--output={job.log()}",
        "--open-mode=append",
        "--requeue",
        f"--signal=B:USR1@{site.seconds_to_save}",
        *site.options(job.stage),
        *([f"--array={','.join(map(str, parts))}"] if job.shards else []),
        *([f"--dependency={rule}:{':'.join(after)}", "--kill-on-invalid-dep=yes"] if after else []),
        str(PROJECT_ROOT / "slurm" / f"{job.stage}.sbatch"),
        str(job.file),
    ]


def shell_settings(sweep: Sweep, site: Site) -> dict[str, str]:
    """What the shell files need to know."""
    offline = "export HF_HUB_OFFLINE=1 HF_DATASETS_OFFLINE=1\n" if site.offline else ""
    if site.offline and hub_models(sweep):
        offline += f"export HF_HUB_CACHE={shlex.quote(read_record(sweep).cache)}\n"
    return {
        "PROJECT": str(PROJECT_ROOT),
        "CODE": fingerprint(),
        "ACTIVATE": f"{site.activate}\n{offline}",
        "WRAP": site.wrap,
        "ACCELERATE": sweep.accelerate,
        "SECONDS_TO_SAVE": str(site.seconds_to_save),
        "MOST_REQUEUES": str(site.most_requeues),
    }


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


if __name__ == "__main__":
    run_script(SubmitConfig, main)
