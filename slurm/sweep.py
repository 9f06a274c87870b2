"""A sweep: models × training sets × tasks × engines × seeds, as cells with stable names and folders."""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from itertools import product
from pathlib import Path
from typing import Any, Literal

from mlbench_data.bad_input import BadInput

TrainedOn = Literal["raw", "id", "ood"]
Task = Literal[1, 2, 3]
EngineName = Literal["auto", "vllm", "transformers"]


@dataclass(frozen=True)
class Sweep:
    """What to run, and where to."""

    out: str = "runs/sweep"
    """Folder of the sweep, which every node sees: a folder for each adapter and each cell, and the table."""
    models: list[str] = field(default_factory=lambda: ["smollm2-135m"])
    """Names of configs/models, folders with weights, or hub ids."""
    trained_on: list[TrainedOn] = field(default_factory=lambda: ["raw", "id", "ood"])
    """raw is the model alone; id and ood are trained on the benchmark's id_train and ood_train."""
    tasks: list[Task] = field(default_factory=lambda: [3])
    """What models read: 1 raw README, 2 BM25 window, 3 oracle segment."""
    engines: list[EngineName] = field(default_factory=lambda: ["auto"])
    """What samples: auto is vllm on a GPU and transformers on a CPU."""
    seeds: list[int] = field(default_factory=lambda: [0])
    """Each seed trains and samples everything once more."""
    benchmark: str = "mini"
    """mini (embedded), or the folder of a prepared benchmark."""
    split: Literal["full", "quarter"] = "full"
    """The rows to answer."""
    shards: int = 8
    """Parts that sampling and evaluation of a cell are spread over, as elements of a job array."""
    train_config: str = "configs/train/{model}-{trained_on}-task{task}.yaml"
    """The recipe of train/sft.py for each adapter, with the adapter's values in the braces."""
    train: dict[str, Any] = field(default_factory=dict)
    """Further options of train/sft.py, for every adapter."""
    accelerate: str = "configs/accelerate/ddp.yaml"
    """How several GPUs or nodes train together; the site says how many there are."""
    generate: dict[str, Any] = field(default_factory=dict)
    """Further options of infer/generate.py, for every cell."""
    eval: dict[str, Any] = field(default_factory=dict)
    """Further options of eval/run.py, for every cell."""
    source: str | None = None
    """What slurm/prefetch.py builds the benchmark from: a hub id, or what build.py takes besides."""
    image_source: str | None = None
    """What slurm/prefetch.py makes apptainer's image from, such as docker://NAME."""
    site: str = "configs/slurm/site.yaml"
    """Your cluster: partitions, GPUs, times, and how software is switched on."""


MOST_SHARDS = 1000
"""Slurm's own limit of an array's size, as it comes."""
NOT_IDENTITY = ("out", "models", "trained_on", "tasks", "engines", "seeds", "source", "image_source", "site")
"""What may change in a folder: a sweep may grow by cells, and move to other partitions."""


@dataclass(frozen=True)
class Cell:
    """One model, trained on one set or on none, asked one task. `model` is the name in paths and tables."""

    sweep: Sweep
    given_model: str
    trained_on: TrainedOn
    task: Task
    engine: EngineName
    seed: int

    @property
    def model(self) -> str:
        """The model's name without its folder or owner."""
        return Path(self.given_model).name

    @property
    def adapter(self) -> str | None:
        """What its adapter is called, which cells of several engines share; None for the model alone."""
        if self.trained_on == "raw":
            return None
        return f"{self.model}-{self.trained_on}-task{self.task}{self._seed}"

    @property
    def name(self) -> str:
        """What its folder and its jobs are called: the same whatever else the sweep holds."""
        engine = "" if self.engine == "auto" else f"-{self.engine}"
        return f"{self.model}-{self.trained_on}-task{self.task}{engine}{self._seed}"

    @property
    def folder(self) -> Path:
        """Where its candidates, results and logs lie."""
        return folder_of(self.sweep) / self.name

    @property
    def adapter_folder(self) -> Path:
        """Where its adapter lies."""
        return folder_of(self.sweep) / "adapters" / str(self.adapter)

    @property
    def _seed(self) -> str:
        return f"-seed{self.seed}" if self.seed else ""


def folder_of(sweep: Sweep) -> Path:
    """The sweep's folder, whatever it was called by: jobs run elsewhere. Raises BadInput."""
    try:
        return Path(sweep.out).resolve()
    except (OSError, ValueError, RuntimeError) as error:
        raise BadInput(f"out is {sweep.out!r}; expected a folder's name") from error


def cells_of(sweep: Sweep) -> list[Cell]:
    """Every cell, those of one model together. Raises BadInput for no cell, and for two of one name."""
    for item in fields(Sweep):
        if getattr(sweep, item.name) is None and item.default is not None:
            raise BadInput(f"{item.name} is empty; give it a value, or leave it out")
    lists = {name: getattr(sweep, name) for name in ("models", "trained_on", "tasks", "engines", "seeds")}
    for name, values in lists.items():
        if not values or len(set(values)) != len(values):
            raise BadInput(f"{name} is {values}; expected at least one, and each once")
    if not 1 <= sweep.shards <= MOST_SHARDS:
        raise BadInput(f"shards is {sweep.shards}; expected a number from 1 to {MOST_SHARDS}")
    if not sweep.out or not str(folder_of(sweep)).isprintable() or "\\" in str(folder_of(sweep)):
        raise BadInput(f"out is {sweep.out!r}; expected a folder's name without \\ and control characters")
    cells = [Cell(sweep, *values) for values in product(*lists.values())]
    for cell in cells:
        if not re.fullmatch(r"[\w.-]+", cell.model):
            raise BadInput(
                f"model {cell.given_model!r}: its name has to be a folder's; letters, digits, . _ -"
            )
    if twice := [name for name, count in Counter(cell.name for cell in cells).items() if count > 1]:
        raise BadInput(f"several models are called {twice[0]}; rename a folder")
    return cells


def sweep_in(values: Any) -> Sweep:
    """The sweep that is part of a script's configuration."""
    return Sweep(**{item.name: getattr(values, item.name) for item in fields(Sweep)})


def adapters_in(cells: list[Cell]) -> Iterator[Cell]:
    """One cell for each adapter that has to be trained."""
    yield from {cell.adapter: cell for cell in cells if cell.adapter is not None}.values()
