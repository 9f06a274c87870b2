"""train/sft.py with FSDP on CPU processes, where accelerate would silently use DDP instead.

torch itself shards on CPUs; accelerate only asks for a GPU's name. For tests: a user's run is refused.
"""

from accelerate import PartialState
from accelerate.utils import DistributedType
from transformers import TrainingArguments

from mlbench_data.cli import run_script
from train import sft
from train.config import TrainConfig
from train.plan import Plan

original = sft.training_arguments


def training_arguments(config: TrainConfig, plan: Plan, evaluate: bool) -> TrainingArguments:
    """What the script makes, in a process that goes by the name of a GPU's."""
    made = original(config, plan, evaluate)
    PartialState._shared_state["distributed_type"] = DistributedType.MULTI_GPU
    return made


if __name__ == "__main__":
    sft.training_arguments = training_arguments
    run_script(TrainConfig, sft.main)
