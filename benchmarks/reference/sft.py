"""One side of the fine-tuning race: ours, or TRL's SFTTrainer on the same token ids and the same LoRA."""

import resource
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from transformers import Trainer, TrainerCallback, TrainingArguments

from mlbench_data.models import Model, load_tokenizer
from train import prefix_attention
from train.examples import Example
from train.network import Lora, load_network
from train.packs import Pack, PackSettings, epoch_packs
from train.steps import readme_of, training_steps
from train.trainer import PackTrainer

Side = Literal["ours", "TRL", "TRL packed"]

Order = Literal["as given", "shuffled"]


@dataclass(frozen=True)
class Measured:
    """Rows a second in a step after a first one, most bytes of the process, and the mean loss per answer
    token of the rows that both sides train on.
    """

    rows_per_second: float
    memory: int
    loss: float


class Clock(TrainerCallback):
    """Seconds of the last step."""

    def on_step_begin(self, *unused: Any, **more: Any) -> None:
        """Starts."""
        self.started = time.perf_counter()

    def on_step_end(self, *unused: Any, **more: Any) -> None:
        """Stops."""
        self.seconds = time.perf_counter() - self.started


def measure(side: Side, model: Model, examples: list[Example], packs: list[Pack], common: int) -> Measured:
    """Two steps over the same rows, of which the second is timed; the learning rate is 0. The first `common`
    rows are those of both sides.
    """
    with tempfile.TemporaryDirectory() as folder:
        plan = Schedule(steps=2, passes=len(packs) if side == "ours" else len(examples), rate=0.0)
        trainer = make_trainer(side, model, examples, packs * 2, examples[:common], plan, Path(folder))
        clock = Clock()
        trainer.add_callback(clock)
        trainer.train()
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        own = isinstance(trainer, PackTrainer)
        loss = trainer.evaluate()["eval_loss"] if own else trainer.state.log_history[-2]["loss"]
    return Measured(len(examples) / clock.seconds, memory, float(loss))


@dataclass(frozen=True)
class Learned:
    """The loss per answer token on rows kept out; of the training before it the seconds, the tokens computed,
    and, where rows have an order of ours, the largest share that one README has of a step.
    """

    loss: float
    seconds: float
    tokens: int
    share: float | None


@dataclass(frozen=True)
class StepsOf:
    """How ours makes steps of `rows` rows: packs of `batch_size`, in groups of `group_size`, at most."""

    rows: int
    batch_size: int
    group_size: int


def learn(
    side: Side, model: Model, training: list[Example], kept_out: list[Example], seed: int, size: StepsOf
) -> Learned:
    """One epoch with a seed, in as many steps on both sides; ours orders its groups and TRL its rows, each in
    its own way.
    """
    settings = PackSettings(size.batch_size, size.group_size, 10**6, seed=seed)
    steps = training_steps(training, settings, size.rows // size.batch_size, 1.0)
    packs = [pack for step in steps for pack in step]
    passes = len(steps[0]) if side == "ours" else round(len(training) / len(steps))
    plan = Schedule(len(steps), passes, 1e-3, seed)
    with tempfile.TemporaryDirectory() as folder:
        order: Order = "shuffled" if side == "TRL" else "as given"  # ours is the plan's order
        trainer = make_trainer(side, model, training, packs, kept_out, plan, Path(folder), order=order)
        started = time.perf_counter()
        trainer.train()
        seconds = time.perf_counter() - started
        network: Any = trainer.model
        network.config._attn_implementation = prefix_attention.NAME
        judge = make_trainer("ours", model, training, packs, kept_out, plan, Path(folder), network)
        loss = judge.evaluate()["eval_loss"]
    computed = sum(map(len, training)) if side == "TRL" else sum(pack.tokens for pack in packs)
    return Learned(loss, seconds, computed, largest_share(steps) if side == "ours" else None)


def largest_share(steps: list[list[Pack]]) -> float:
    """The largest share that one README has of a step's rows."""
    counts = [Counter(readme_of(row) for pack in step for row in pack.examples) for step in steps]
    return max(max(count.values()) / count.total() for count in counts)


@dataclass(frozen=True)
class Schedule:
    """Optimizer steps, forward passes in each, peak learning rate, and seed."""

    steps: int
    passes: int
    rate: float
    seed: int = 0


def make_trainer(
    side: Side,
    model: Model,
    examples: list[Example],
    packs: list[Pack],
    kept_out: list[Example],
    plan: Schedule,
    folder: Path,
    network: Any = None,
    order: Order = "as given",
) -> Trainer:
    """Either side's trainer with the same LoRA start and schedule. Ours trains `packs`, TRL `examples` in
    `order`.
    """
    torch.manual_seed(plan.seed)
    network = network or load_network(model, torch.float32, lora=Lora(16, 32))
    settings: dict[str, Any] = {
        "output_dir": str(folder), "max_steps": plan.steps, "gradient_accumulation_steps": plan.passes,
        "per_device_train_batch_size": 1, "learning_rate": plan.rate, "lr_scheduler_type": "cosine",
        "warmup_steps": 1, "logging_steps": 1, "save_strategy": "no", "report_to": [], "use_cpu": True,
        "disable_tqdm": True, "seed": plan.seed, "dataloader_pin_memory": False,
        "train_sampling_strategy": "sequential" if order == "as given" else "random",
    }  # fmt: skip
    if side == "ours":
        held_out = epoch_packs(kept_out, PackSettings(8, 8, 10**6))
        arguments = TrainingArguments(**settings, remove_unused_columns=False)
        return PackTrainer(network, arguments, packs, held_out)
    import trl
    from datasets import Dataset

    network.config._attn_implementation = "sdpa"
    longest = max(map(len, examples))
    theirs = trl.SFTConfig(
        **settings, max_length=longest, packing=side == "TRL packed", packing_strategy="bfd",
        completion_only_loss=True, gradient_checkpointing=False, bf16=False,
    )  # fmt: skip
    rows = [
        {
            "input_ids": row.token_ids,
            "completion_mask": [0] * len(row.prompt) + [1] * len(row.answer_ids),
        }
        for row in examples
    ]
    return trl.SFTTrainer(
        network, theirs, train_dataset=Dataset.from_list(rows), processing_class=load_tokenizer(model)
    )
