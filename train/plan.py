"""What a run would do, from the rows and the model's configuration alone: no weight is loaded."""

import math
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from statistics import mean

import torch

from mlbench_data.models import Model
from train.config import TrainConfig, step_size
from train.examples import Example
from train.launch import processes, wants_deepspeed, wants_fsdp
from train.memory import Case, Sharding, architecture_of, estimate, table
from train.packs import Pack, PackSettings
from train.steps import readme_of, training_steps

SOURCES = {1: "README", 2: "window", 3: "segment"}
"""What the rows of a task read, and can share."""


@dataclass(frozen=True)
class Plan:
    """The packs of a whole run, in their order, and how many of them make one optimizer step."""

    packs: list[Pack]
    packs_per_step: int

    @property
    def steps(self) -> int:
        """Optimizer steps of the whole run."""
        return math.ceil(len(self.packs) / self.packs_per_step)

    def rows_of_steps(self) -> list[list[Example]]:
        """The rows that each step learns from."""
        starts = range(0, len(self.packs), self.packs_per_step)
        steps = [self.packs[start : start + self.packs_per_step] for start in starts]
        return [[row for pack in step if pack.counted for row in pack.examples] for step in steps]

    def mixture(self) -> "Mixture":
        """How diverse the steps are, and what sharing saves."""
        steps = self.rows_of_steps()
        read = sum(len(row) for step in steps for row in step)
        readmes = [Counter(map(readme_of, step)) for step in steps]
        shares = [max(found.values()) / found.total() for found in readmes]
        repositories = [len({row.prompt.row.repository for row in step}) for step in steps]
        return Mixture(
            rows=mean(map(len, steps)),
            readmes=mean(map(len, readmes)),
            repositories=mean(repositories),
            share=mean(shares),
            largest_share=max(shares),
            tokens_saved=read / sum(pack.tokens for pack in self.packs),
            idle_packs=sum(not pack.counted for pack in self.packs),
        )


@dataclass(frozen=True)
class Mixture:
    """Of a plan's steps, on average: their rows, the different READMEs (windows, segments) and repositories
    in them, and the largest share that one README has of a step's rows; also the largest of these shares.
    Then how many times fewer tokens are computed than separate sequences have, and the packs that only keep
    processes busy.
    """

    rows: float
    readmes: float
    repositories: float
    share: float
    largest_share: float
    tokens_saved: float
    idle_packs: int

    def record(self) -> dict[str, float]:
        """For training.json."""
        return {name: round(value, 4) for name, value in asdict(self).items()}


def make_plan(config: TrainConfig, training: list[Example], processes: int) -> Plan:
    """The run of a configuration on so many processes."""
    packs = step_size(config, processes).accumulation * processes
    settings = pack_settings(config, processes)
    steps = training_steps(training, settings, packs, config.epochs, config.max_steps)
    return Plan([pack for step in steps for pack in step], packs)


def pack_settings(config: TrainConfig, processes: int) -> PackSettings:
    """How rows become packs."""
    return PackSettings(
        config.batch_size,
        step_size(config, processes).group_size,
        config.pack_tokens,
        config.prefix_sharing,
        config.mixing,
        config.seed,
    )


def why_not_mixed(config: TrainConfig, training: list[Example], mixture: Mixture) -> str | None:
    """Why one README has more of a step than prefixes_per_step asks for; None if none has."""
    wanted = 1 / config.prefixes_per_step
    if mixture.largest_share <= wanted + 1e-9:
        return None
    count = Counter(map(readme_of, training))
    source = SOURCES[config.task]
    largest = max(count.values()) / count.total()
    if len(count) < config.prefixes_per_step:
        return f"the rows have only {len(count)} different {source}s"
    if largest > wanted:
        return f"{largest:.1%} of all rows read the same {source}"
    return "groups differ in rows, so that some steps have fewer"


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
    rows = [row for step in plan.rows_of_steps() for row in step]
    read, answers = sum(map(len, rows)), sum(len(row.answer_ids) for row in rows)
    computed = sum(pack.tokens for pack in plan.packs)
    cut = sum(example.prompt.cut.kept < example.prompt.cut.readme for example in training)
    print(f"model      {model.name} ({model.location}), {model.format} format, {context}")
    print(
        f"rows       {len(training)} for training, {len(evaluation)} for evaluation loss; task {config.task}"
    )
    print(f"tokens     {read} in {config.epochs:g} epochs, {answers} of answers; README cut in {cut} rows")
    mixture = plan.mixture()
    print(f"computed   {computed} unique tokens after sharing, {mixture.tokens_saved:.2f} times fewer")
    print("\n".join(step_lines(config, training, plan, mixture)))
    case = largest_case(config, model, plan)
    print(f"largest    pack: {case.tokens} tokens, {case.answers} of answers")
    print("\n".join(table(estimate(case), case.device)))


def step_lines(config: TrainConfig, training: list[Example], plan: Plan, mixture: Mixture) -> Iterator[str]:
    """What a step mixes, and what stands in the way of mixing as much as asked for."""
    devices, source = processes(), SOURCES[config.task]
    size = step_size(config, devices)
    idle = f", {mixture.idle_packs} of all only keep a process busy" if mixture.idle_packs else ""
    yield f"steps      {plan.steps} of {plan.packs_per_step} packs{idle}"
    yield (
        f"a step     {mixture.rows:.1f} rows, at most {size.group_size} in a group; {mixture.readmes:.1f} "
        f"different {source}s of {mixture.repositories:.1f} repositories on average"
    )
    yield (
        f"mixing     no {source} has more than {mixture.largest_share:.1%} of a step's rows, "
        f"{mixture.share:.1%} on average"
    )
    if reason := why_not_mixed(config, training, mixture):
        wanted = f"prefixes_per_step {config.prefixes_per_step} asks for {1 / config.prefixes_per_step:.1%}"
        yield f"           {wanted}: {reason}"
    asked = config.prefixes_per_step * size.group_size
    if config.gradient_accumulation is None and plan.packs_per_step * config.batch_size > asked:
        yield (
            f"           a pass on each of {devices} devices makes steps of up to "
            f"{plan.packs_per_step * config.batch_size} rows, not {asked}"
        )
