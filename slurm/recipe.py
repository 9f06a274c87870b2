"""The training settings of a cell's adapter, as train/sft.py will read them."""

import json
from functools import lru_cache
from typing import Any

from mlbench_data.bad_input import BadInput
from mlbench_data.cli import parse
from mlbench_data.files import PROJECT_ROOT
from slurm.sweep import Cell
from train.config import TrainConfig, check_config


def train_config(cell: Cell) -> TrainConfig:
    """Its recipe and the sweep's options. Raises BadInput; an unknown option ends the script."""
    if not (PROJECT_ROOT / recipe_of(cell)).is_file():
        raise BadInput(
            f"{recipe_of(cell)}: no such recipe for {cell.adapter}; write it, or change train_config"
        )
    return _parsed(tuple(training_words(cell)))


@lru_cache
def _parsed(words: tuple[str, ...]) -> TrainConfig:
    config = parse(TrainConfig, "", list(words))
    check_config(config)
    return config


def training_words(cell: Cell) -> list[str]:
    """The options of train/sft.py for a cell's adapter."""
    sweep = cell.sweep
    words = ["--config", recipe_of(cell), *options_of(sweep.train)]
    words += ["--benchmark", sweep.benchmark, "--split", f"{cell.trained_on}_train"]
    words += ["--model", cell.given_model, "--task", str(cell.task)]
    return [*words, "--seed", str(cell.seed), "--output_dir", str(cell.adapter_folder)]


def recipe_of(cell: Cell) -> str:
    """The file with an adapter's settings. Raises BadInput."""
    pattern, values = (
        cell.sweep.train_config,
        {"model": cell.model, "trained_on": cell.trained_on, "task": cell.task},
    )
    try:
        return pattern.format(**values)
    except (KeyError, IndexError, ValueError) as error:
        raise BadInput(
            f"train_config is {pattern!r}; only {{model}}, {{trained_on}} and {{task}} are known"
        ) from error


def options_of(options: dict[str, Any]) -> list[str]:
    """Options of a script, as words of its command line."""
    words: list[str] = []
    for name, value in options.items():
        words += [f"--{name}", value if isinstance(value, str) else json.dumps(value)]
    return words
