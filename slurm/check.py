"""What is wrong with a sweep, found before anything waits in the queue for hours."""

from collections.abc import Iterator
from pathlib import Path

from eval.config import EvalConfig
from eval.runner import limits_of
from infer.config import GenerateConfig, check_config
from mlbench_data.bad_input import BadInput
from mlbench_data.cli import parse
from mlbench_data.files import PROJECT_ROOT
from mlbench_data.models import resolve_model
from mlbench_data.sources import benchmark_named
from slurm.hours import gpus_or_cores, seconds_per_step
from slurm.jobs import SHARD, Job, Stage
from slurm.prefetched import check_prefetched
from slurm.recipe import train_config
from slurm.site_settings import Site, seconds_of
from slurm.sweep import Cell, Sweep, adapters_in

SET_BY_US = {
    *("benchmark", "split", "model", "task", "seed", "out", "output_dir", "shard", "adapter", "candidates"),
    *("reuse", "config", "dry_run", "engine", "gold", "rows", "help", "print_config", "resume", "limit"),
}
"""Options that each job gets a value of its own for."""


def check_own_options(sweep: Sweep) -> None:
    """Raises BadInput for options that each job gets a value of its own for."""
    for part in ("train", "generate", "eval"):
        if ours := [name for name in getattr(sweep, part) if name in SET_BY_US]:
            raise BadInput(f"{part} has {', '.join(ours)}, which the sweep decides; leave it out")


def check_sweep(sweep: Sweep, site: Site, cells: list[Cell], jobs: list[Job], *, planned: bool) -> None:
    """Raises BadInput for what would fail in its jobs. A plan can be made before the data are there."""
    for model in sweep.models:
        resolve_model(model)
    _check_options(jobs)
    if not (PROJECT_ROOT / sweep.accelerate).is_file():
        raise BadInput(f"accelerate is {sweep.accelerate}; there is no such file")
    if planned:
        return
    splits = [sweep.split, *(f"{name}_train" for name in sweep.trained_on if name != "raw")]
    if sweep.benchmark != "mini" and sweep.source is not None and not Path(sweep.benchmark).is_dir():
        raise BadInput(f"{sweep.benchmark}: not built yet; run slurm/prefetch.py with the same --config")
    for name, what in (("repositories", "checkouts as DIR/REPOSITORY"), ("environments", "a file")):
        if name in sweep.eval and not Path(str(sweep.eval[name])).exists():
            raise BadInput(f"eval has {name} {sweep.eval[name]}; there is no such path, expected {what}")
    benchmark = benchmark_named(sweep.benchmark)
    counts = {split: benchmark.count(split) for split in splits}
    if counts[sweep.split] < sweep.shards:
        raise BadInput(
            f"shards is {sweep.shards} and {sweep.split} has {counts[sweep.split]} rows; use fewer shards"
        )
    if site.offline:
        check_prefetched(sweep)


def _check_options(jobs: list[Job]) -> None:
    """The scripts' own checks of their options; an unknown one ends the script with its name."""
    words = {job.stage: [word.replace(SHARD, "0") for word in job.words] for job in jobs}
    check_config(parse(GenerateConfig, "", words["generate"]))
    limits_of(parse(EvalConfig, "", words["eval"]))


def warnings_of(sweep: Sweep, site: Site, cells: list[Cell]) -> Iterator[str]:
    """What may be meant, and will cost time."""
    stages: list[Stage] = ["train", "generate", "join", "eval", "collect"]
    for stage in stages[0 if any(adapters_in(cells)) else 1 :]:
        limit = seconds_of(site.chosen(stage).get("time", ""))
        if limit is not None and limit <= site.seconds_to_save:
            yield (
                f"{stage}: its time limit of {limit:.0f} s is not longer than seconds_to_save "
                f"({site.seconds_to_save} s): it would be asked to stop at once"
            )
    yield from _slow_checkpoints(site, cells)
    asked = int(sweep.generate.get("tensor_parallel", 1)) * int(sweep.generate.get("pipeline_parallel", 1))
    given = gpus_or_cores(site, "generate", "gpus-per-node", "gpus", "gres")
    if asked > 1 and given != asked:
        yield f"generate shares a model over {asked} GPUs, and its jobs ask for {given}; make them the same"


def _slow_checkpoints(site: Site, cells: list[Cell]) -> Iterator[str]:
    """A run that is stopped before its first checkpoint never comes further."""
    limit = seconds_of(site.chosen("train").get("time", ""))
    if limit is None:
        return
    nodes = gpus_or_cores(site, "train", "nodes") or 1
    gpus = nodes * (gpus_or_cores(site, "train", "gpus-per-node", "gpus", "gres") or 1)
    for cell in adapters_in(cells):
        between = train_config(cell).save_steps * seconds_per_step(cell, site, gpus)
        if between > limit:
            yield (
                f"{cell.adapter}: about {between / 60:.0f} minutes from one checkpoint to the next, and the "
                f"time limit is {limit / 60:.0f}: what ends without a signal would start over; lower "
                "save_steps, or raise time"
            )
