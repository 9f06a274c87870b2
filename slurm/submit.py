"""Submits a sweep to Slurm, says how far it is, or cancels it.

    python slurm/submit.py --config configs/paper.yaml --dry_run

Only what is not done and not in the queue is submitted: the same command continues a sweep that was stopped.
"""

import os
import shlex
import sys
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from mlbench_data.bad_input import BadInput, JobFailed
from mlbench_data.cli import run_script
from mlbench_data.files import PROJECT_ROOT, claim, make_folder, sha256_of, write_json
from slurm.check import check_own_options, check_sweep, warnings_of
from slurm.fingerprint import fingerprint
from slurm.hours import print_hours
from slurm.jobs import Job, jobs_of, write_job
from slurm.prefetched import hub_models, read_record
from slurm.queue_state import Queued, ask, cancel, queue
from slurm.recipe import train_config
from slurm.site_settings import Site, read_site
from slurm.status import print_status
from slurm.sweep import Cell, Sweep, adapters_in, cells_of, folder_of, sweep_in
from slurm.sweep_file import SWEEP_FILE, check_folder, description, submitted_sweep


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
    check_own_options(sweep)
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
    write_json(folder / SWEEP_FILE, description(sweep, cells))
    submitted = submit_jobs(jobs, site, prefix_of(sweep), shell_settings(sweep, site))
    print(f"{submitted} jobs submitted" if submitted else "nothing to submit: all is done or in the queue")
    return 0


def submit_jobs(jobs: list[Job], site: Site, prefix: str, settings: dict[str, str]) -> int:
    """Submits what is missing of each job after what it needs; how many jobs that were."""
    queued = queue(prefix)
    numbers: dict[str, list[str]] = {}
    fresh: set[str] = set()
    for job in jobs:
        there = still_valid(job, [item for item in queued.get(job.name, []) if item.is_alive], fresh)
        parts = [part for part in missing(job, fresh) if not any(item.covers(part) for item in there)]
        numbers[job.name] = sorted({name for item in there for name in item.names})
        if parts or there:  # what waits begins with the site and the code of now
            write_job(job, settings)
        if parts:
            needed = [number for name in job.needs for number in numbers[name]]
            number = submit_line(sbatch(job, parts, site, prefix, needed), len(fresh))
            numbers[job.name].append(number)
            fresh.add(job.name)
            print(f"{number}  {job.name}{_of_all(job, parts)}")
    return len(fresh)


def still_valid(job: Job, there: list[Queued], fresh: Collection[str]) -> list[Queued]:
    """What of a job in the queue stays when those named `fresh` are submitted: what waits for earlier ones is
    cancelled, and a report under way shows less than there will be.
    """
    if not any(name in fresh for name in job.needs):
        return there
    cancel([name for item in there if item.is_waiting for name in item.names])
    return [] if job.stage == "report" else [item for item in there if not item.is_waiting]


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


if __name__ == "__main__":
    run_script(SubmitConfig, main)
