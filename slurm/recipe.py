"""The training settings of a cell's adapter, as train/sft.py will read them."""

from functools import lru_cache

from mlbench_data.bad_input import BadInput
from mlbench_data.cli import parse
from mlbench_data.files import PROJECT_ROOT
from slurm.jobs import recipe_of, training_words
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
