"""The training settings of a cell's adapter, as train/sft.py will read them."""

import json
from functools import lru_cache
from typing import Any

from mlbench_data.bad_input import BadInput
from mlbench_data.cli import parse
from mlbench_data.files import PROJECT_ROOT, read_yaml
from slurm.sweep import Cell
from train.config import TrainConfig, check_config


def train_config(cell: Cell) -> TrainConfig:
    """Its recipe and the sweep's options. Raises BadInput; an unknown option ends the script."""
    read_yaml(PROJECT_ROOT / recipe_of(cell), f"the recipe of {cell.adapter}, see train_config")
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
    """The file with an adapter's settings: the sweep's pattern with the cell's values in its braces."""
    values = {"{model}": cell.model, "{trained_on}": cell.trained_on, "{task}": str(cell.task)}
    found = cell.sweep.train_config
    for name, value in values.items():
        found = found.replace(name, value)
    return found


def options_of(options: dict[str, Any]) -> list[str]:
    """Options of a script, as words of its command line. Raises BadInput for values that are not plain."""
    try:
        texts = {
            name: value if isinstance(value, str) else json.dumps(value) for name, value in options.items()
        }
    except (TypeError, ValueError, RecursionError) as error:
        raise BadInput(f"an option has a value that is no plain one ({error})") from error
    return [word for name, text in texts.items() for word in (f"--{name}", text)]
