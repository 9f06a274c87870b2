"""What a run would do, from the rows and the model's configuration alone: no weight is loaded."""

import math
import os
from dataclasses import dataclass

import torch

from mlbench_data.models import Model
from train.config import TrainConfig
from train.examples import Example
from train.launch import processes, wants_deepspeed, wants_fsdp
from train.memory import Case, Sharding, architecture_of, estimate, table
from train.packs import Pack, PackSettings, training_packs


@dataclass(frozen=True)
class Plan:
    """The packs of a whole run, in their order, and how many of them make one optimizer step."""

    packs: list[Pack]
    packs_per_step: int

    @property
    def steps(self) -> int:
        """Optimizer steps of the whole run."""
        return math.ceil(len(self.packs) / self.packs_per_step)

    def repositories_per_step(self) -> float:
        """How diverse a step is: different repositories in one, on average."""
        starts = range(0, len(self.packs), self.packs_per_step)
        steps = [self.packs[start : start + self.packs_per_step] for start in starts]
        seen = [{row.prompt.row.repository for pack in step for row in pack.examples} for step in steps]
        return sum(map(len, seen)) / len(seen)


def make_plan(config: TrainConfig, training: list[Example], processes: int) -> Plan:
    """The run of a configuration on so many processes."""
    packs_per_step = config.gradient_accumulation * processes
    most = None if config.max_steps is None else config.max_steps * packs_per_step
    return Plan(training_packs(training, pack_settings(config), config.epochs, most), packs_per_step)


def pack_settings(config: TrainConfig) -> PackSettings:
    """How rows become packs."""
    return PackSettings(
        config.batch_size,
        config.group_size,
        config.pack_tokens,
        config.prefix_sharing,
        config.mixing,
        config.seed,
    )


def largest_case(config: TrainConfig, model: Model, plan: Plan) -> Case:
    """The most tokens, and answer tokens, of a pack, spread as accelerate was told. A configuration
    in bfloat16 is meant for GPUs, also where there is none.
    """
    tokens = max(pack.tokens for pack in plan.packs)
    answers = max(sum(len(row.answer_ids) for row in pack.examples) for pack in plan.packs)
    on_cpu = not torch.cuda.is_available() and config.dtype != "bfloat16"
    return Case(
        architecture_of(model, config.trust_remote_code),
        config,
        tokens,
        answers,
        model.lora_targets,
        processes(),
        sharding(),
        "cpu" if on_cpu else "gpu",
    )


def sharding() -> Sharding:
    """How accelerate was told to spread the run."""
    if wants_fsdp():
        return "fsdp"
    if wants_deepspeed():
        return "zero3" if os.environ.get("ACCELERATE_DEEPSPEED_ZERO_STAGE") == "3" else "zero2"
    return "ddp" if processes() > 1 else "none"


def print_plan(
    config: TrainConfig, model: Model, training: list[Example], evaluation: list[Example], plan: Plan
) -> None:
    """Model, rows, tokens, steps and memory, in a few lines."""
    context = f"context {model.context} tokens"
    read = sum(len(row) for pack in plan.packs for row in pack.examples)
    computed = sum(pack.tokens for pack in plan.packs)
    answers = sum(len(row.answer_ids) for pack in plan.packs for row in pack.examples)
    cut = sum(example.prompt.cut.kept < example.prompt.cut.readme for example in training)
    print(f"model      {model.name} ({model.location}), {model.format} format, {context}")
    print(
        f"rows       {len(training)} for training, {len(evaluation)} for evaluation loss; task {config.task}"
    )
    print(f"tokens     {read} in {config.epochs:g} epochs, {answers} of answers; README cut in {cut} rows")
    print(f"computed   {computed} unique tokens after sharing, {read / computed:.2f} times fewer")
    print(
        f"steps      {plan.steps} of {plan.packs_per_step} packs, "
        f"{plan.repositories_per_step():.1f} repositories a step"
    )
    case = largest_case(config, model, plan)
    print(f"largest    pack: {case.tokens} tokens, {case.answers} of answers")
    print("\n".join(table(estimate(case), case.device)))
