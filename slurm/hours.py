"""How many hours of GPUs a sweep may take: arithmetic from sizes, to plan with."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from statistics import mean
from typing import Any

from mlbench_data.files import read_json
from mlbench_data.models import Shape, resolve_model
from mlbench_data.papers_tables import papers_table
from mlbench_data.sources import benchmark_named
from slurm.jobs import Stage, jobs_of
from slurm.recipe import train_config
from slurm.site_settings import Gpu, Site
from slurm.sweep import Cell, Sweep, adapters_in
from train.config import TrainConfig, step_size

PUBLISHED = {
    "full": (260, 14, "test"),
    "quarter": (68, 14, "test"),
    "id_train": (6551, 14, "train"),
    "ood_train": (3564, 4, "ood_train"),
}
"""Rows, READMEs and Table 7's column of the published splits."""
KINDS = {1: "readme", 2: "bm25", 3: "oracle"}
CHARACTERS_PER_TOKEN = 3.6
WINDOW_TOKENS = 500
AROUND_TOKENS = 150
"""An instruction and the template, roughly."""
ANSWER_TOKENS = 80
"""A candidate, roughly."""


@dataclass(frozen=True)
class Work:
    """The rows of a split, how many READMEs they share, and the tokens that each row reads of one."""

    rows: int
    readmes: int
    tokens: float


def work_of(sweep: Sweep, split: str, task: int) -> Work:
    """From the benchmark, or, before that is there, the paper's Table 7 for the published splits."""
    if sweep.benchmark == "mini" or Path(sweep.benchmark).is_dir():
        return _counted(sweep.benchmark, split, task)
    rows, readmes, column = PUBLISHED[split]
    return Work(rows, readmes, papers_table("table7")[column][KINDS[task]]["average"])


@lru_cache
def _counted(name: str, split: str, task: int) -> Work:
    benchmark = benchmark_named(name)
    rows = benchmark.rows(split)
    readmes = {row.github_id for row in rows}
    if task == 3:
        return Work(len(rows), len(readmes), mean(len(row.oracle) for row in rows) / CHARACTERS_PER_TOKEN)
    lengths = [
        len(benchmark.readme(row, split)) / CHARACTERS_PER_TOKEN for row in rows if benchmark.has_readme(row)
    ]
    length = mean(lengths) if lengths else 0.0
    return Work(len(rows), len(readmes), min(length, WINDOW_TOKENS) if task == 2 else length)


def parameters(model: str) -> float:
    """How many weights a model has, from its sizes; 7 billion where they are not at hand."""
    found = resolve_model(model)
    shape = found.shape
    if shape is None and (config := Path(found.location, "config.json")).is_file():
        shape = _shape_in(config)
    if shape is None:
        return 7e9
    width = shape.hidden_size * shape.num_key_value_heads // shape.num_attention_heads
    layer = (
        2 * shape.hidden_size * (shape.hidden_size + width) + 3 * shape.hidden_size * shape.intermediate_size
    )
    return shape.num_hidden_layers * layer + 2 * shape.vocab_size * shape.hidden_size


def _shape_in(config: Path) -> Shape | None:
    """The sizes in a model's config.json; None if it has no such sizes."""
    values = read_json(config, "a model's config.json")
    sizes: dict[str, Any] = values if isinstance(values, dict) else {}
    found = {name: sizes.get(name) for name in Shape.__dataclass_fields__}
    numbers = {name: number for name, number in found.items() if type(number) is int and number > 0}
    return Shape(**numbers) if numbers.keys() == found.keys() else None


def training_hours(cell: Cell, gpu: Gpu, gpus: int = 1) -> float:
    """GPU hours of one adapter. A README counts once for each group of rows that shares a pass over it."""
    config, work = train_config(cell), work_of(cell.sweep, f"{cell.trained_on}_train", cell.task)
    rows = min(work.rows, config.max_rows or work.rows) * config.epochs
    context = resolve_model(cell.given_model).context
    read = min(work.tokens, context - config.answer_tokens - AROUND_TOKENS)
    sharing = step_size(config, gpus).group_size if config.prefix_sharing and cell.task == 1 else 1
    tokens = rows * (read / sharing + AROUND_TOKENS + ANSWER_TOKENS)
    if config.max_steps is not None:
        tokens *= min(1.0, config.max_steps / _steps(config, rows, gpus))
    passes = (4 if config.method == "lora" else 6) + (2 if config.activation_checkpointing else 0)
    return _hours(passes * parameters(cell.given_model) * tokens, gpu)


def _steps(config: TrainConfig, rows: float, gpus: int) -> float:
    return max(1.0, rows / (config.batch_size * step_size(config, gpus).accumulation * gpus))


def seconds_per_step(cell: Cell, site: Site, gpus: int) -> float:
    """How long one optimizer step may take."""
    config, work = train_config(cell), work_of(cell.sweep, f"{cell.trained_on}_train", cell.task)
    rows = min(work.rows, config.max_rows or work.rows) * config.epochs
    steps = _steps(config, rows, gpus)
    return training_hours(cell, site.gpu, gpus) * 3600 / gpus / min(steps, config.max_steps or steps)


def sampling_hours(cell: Cell, gpu: Gpu) -> float:
    """GPU hours of one cell's candidates: READMEs once a shard, and the start of every shard."""
    sweep, work = cell.sweep, work_of(cell.sweep, cell.sweep.split, cell.task)
    shared = (work.readmes + sweep.shards) * work.tokens if cell.task == 1 else work.rows * work.tokens
    prompts = _hours(2 * parameters(cell.given_model) * (shared + work.rows * AROUND_TOKENS), gpu)
    candidates = int(sweep.generate.get("n", 5))
    generated = work.rows * candidates * ANSWER_TOKENS / gpu.generated_tokens_per_second
    return prompts + (generated + sweep.shards * gpu.seconds_to_start) / 3600


def evaluation_hours(cell: Cell, gpu: Gpu) -> float:
    """Hours of one cell's candidates and of its answer key, one at a time."""
    rows = work_of(cell.sweep, cell.sweep.split, cell.task).rows
    return rows * (int(cell.sweep.generate.get("n", 5)) + 1) * gpu.seconds_per_candidate / 3600


def _hours(operations: float, gpu: Gpu) -> float:
    return operations / (gpu.tflops * 1e12 * gpu.utilisation) / 3600


def print_hours(sweep: Sweep, site: Site, cells: list[Cell]) -> None:
    """The hours of each model's work that is not done, as a comment below the lines of sbatch."""
    for line in hours_table(sweep, site, cells):
        print(f"# {line}")


def hours_table(sweep: Sweep, site: Site, cells: list[Cell]) -> Iterator[str]:
    """A line for each model, and what the figures rest on."""
    open_jobs = {job.name for job in jobs_of(sweep, cells) if job.missing()}
    trained = [cell for cell in adapters_in(cells) if f"{cell.adapter}.train" in open_jobs]
    sampled = [cell for cell in cells if f"{cell.name}.generate" in open_jobs]
    evaluated = [cell for cell in cells if f"{cell.name}.eval" in open_jobs]
    workers = max(1, gpus_or_cores(site, "eval", "cpus-per-task"))
    yield f"{'estimated':28}{'train':>10}{'sample':>10}{'evaluate':>10}"
    yield f"{'':28}{'GPU hours':>10}{'GPU hours':>10}{'job hours':>10}"
    totals, start = [0.0, 0.0, 0.0], site.gpu.seconds_to_start / 3600
    for model in dict.fromkeys(cell.given_model for cell in cells):
        hours = [
            sum(training_hours(cell, site.gpu) + start for cell in trained if cell.given_model == model),
            sum(sampling_hours(cell, site.gpu) for cell in sampled if cell.given_model == model),
            sum(evaluation_hours(cell, site.gpu) for cell in evaluated if cell.given_model == model)
            / workers,
        ]
        totals = [total + value for total, value in zip(totals, hours, strict=True)]
        yield _line(Path(model).name, hours)
    yield _line("all", totals)
    known = sweep.benchmark == "mini" or Path(sweep.benchmark).is_dir()
    sizes = (
        f"{sweep.benchmark}'s rows" if known else f"the paper's Table 7, as there is no {sweep.benchmark} yet"
    )
    yield f"from {sizes}, and {sweep.site}'s gpu, an A100 if it says nothing: "
    yield "perhaps half, perhaps twice as much"


def _line(name: str, hours: list[float]) -> str:
    return f"{name[:27]:28}" + "".join(f"{value:>10.1f}" for value in hours)


def gpus_or_cores(site: Site, stage: Stage, *names: str) -> int:
    """The number in the first of some options that is given, such as 2 in gres=gpu:a100:2; 0 without any."""
    options = site.chosen(stage)
    for name in names:
        last = options.get(name, "").rpartition(":")[2]
        if last.isdecimal():
            return int(last)
    return 0
