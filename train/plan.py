"""What a run would do, from the rows and the model's configuration alone: no weight is loaded."""

import math
from dataclasses import dataclass

from mlbench_data.models import Model
from train.config import TrainConfig
from train.examples import Example
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


def print_plan(
    config: TrainConfig, model: Model, training: list[Example], evaluation: list[Example], plan: Plan
) -> None:
    """Model, rows, tokens and steps, in a few lines."""
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
