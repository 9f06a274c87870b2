"""Fine-tunes a causal language model with LoRA on one split of a benchmark.

accelerate launch train/sft.py --config configs/train/smollm2-135m-id-task3.yaml
"""

import math
import os
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors import SafetensorError
from transformers import AutoModelForCausalLM, PrinterCallback, Trainer, TrainerCallback, TrainingArguments
from transformers.utils import logging as transformers_logging

from mlbench_data.bad_input import BadInput
from mlbench_data.budget import Policy
from mlbench_data.cli import resolved, run_script, versions
from mlbench_data.files import claim, make_folder, sha256_of
from mlbench_data.models import Model, load_tokenizer, resolve_model
from mlbench_data.prompts import PromptBuilder
from mlbench_data.retrieval import windows_of
from mlbench_data.sources import benchmark_named
from mlbench_data.template import read_template
from train.adapters import add_lora, save_adapter
from train.checkpoints import claim_folder, finish_run, is_finished, last_checkpoint
from train.examples import Example, make_examples
from train.packs import Pack, PackCollator, PackTrainer, make_packs


@dataclass(frozen=True)
class TrainConfig:
    """What to train on, how, and where to."""

    benchmark: str = "mini"
    """mini (embedded) or a folder made by mlbench_data/build.py."""
    split: Literal["id_train", "ood_train"] = "id_train"
    """Training rows of the test repositories (id_train) or of other repositories (ood_train)."""
    task: Literal[1, 2, 3] = 3
    """What the model reads: 1 raw README, 2 BM25 window, 3 oracle segment."""
    model: str = "smollm2-135m"
    """A name of configs/models, a folder with weights, or a hub id."""
    output_dir: str = "runs/sft/smollm2-135m-id-task3"
    """Where the adapter, checkpoints and logs go; give it to infer/generate.py as --adapter."""
    prompt_template: str | None = None
    """A prompt template file; the project's own if not given."""
    answer_tokens: int = 256
    """Tokens kept free for the answer; sample with the same number to cut READMEs alike."""
    budget: Policy = "readme"
    """What goes if a prompt is too long: readme, from the README's end; paper, whatever comes last."""
    windows: list[int] = field(default_factory=lambda: [10, 1, 1000])
    """Task 2: sentences in a window, sentences from one window's start to the next, most sentences read."""
    max_rows: int | None = None
    """Use the first rows of the split only; all if not given."""
    eval_rows: int = 16
    """The split's last rows, kept out of training to measure evaluation loss."""
    epochs: float = 1.0
    """Passes over the training rows."""
    max_steps: int | None = None
    """Stop after this many optimizer steps, whatever the epochs."""
    batch_size: int = 4
    """Rows a device in one forward pass, fewer where fewer share a README."""
    gradient_accumulation: int = 2
    """Forward passes in one optimizer step."""
    prefix_sharing: bool = True
    """Rows of one forward pass share their README, which is then read once; false mixes READMEs."""
    learning_rate: float = 2e-4
    """Peak learning rate."""
    warmup: float = 0.1
    """Share of the steps over which the learning rate rises."""
    scheduler: Literal["cosine", "linear", "constant_with_warmup"] = "cosine"
    """How the learning rate falls after that."""
    weight_decay: float = 0.0
    """AdamW weight decay."""
    max_grad_norm: float = 1.0
    """Gradients are clipped to this norm."""
    lora_rank: int = 16
    """Rank of the LoRA matrices."""
    lora_alpha: int = 32
    """LoRA scale: updates are multiplied by alpha / rank."""
    lora_dropout: float = 0.0
    """Dropout before the LoRA matrices."""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """Weights and arithmetic; auto is bfloat16 on a GPU and float32 on a CPU, whose bfloat16 is slow."""
    activation_checkpointing: bool = False
    """Recompute activations in the backward pass: less memory, a third more time."""
    save_steps: int = 10
    """Steps between checkpoints."""
    eval_steps: int = 10
    """Steps between evaluations."""
    logging_steps: int = 1
    """Steps between log lines."""
    resume: bool = True
    """Continue from the last checkpoint in output_dir; false starts over."""
    dry_run: bool = False
    """Print model, rows, tokens and steps, and write nothing."""
    trust_remote_code: bool = False
    """Allow the model's own python code to run."""
    seed: int = 0
    """Seeds LoRA's start and the order of rows."""


# Where results go and how often: none of these changes what is learned.
_NOT_IDENTITY = ("output_dir", "resume", "dry_run", "save_steps", "eval_steps", "logging_steps", "benchmark")


def main(config: TrainConfig) -> int:
    """Fine-tunes a causal language model with LoRA on one split of a benchmark."""
    _check(config)
    model = resolve_model(config.model)
    examples = load_examples(config, model)
    training, evaluation = split_examples(examples, config.eval_rows)
    if config.dry_run:
        print_plan(config, model, training, evaluation)
        return 0
    return train(config, model, training, evaluation)


def packs_of(config: TrainConfig, examples: list[Example]) -> list[Pack]:
    """The examples as they go through the model together."""
    return make_packs(examples, config.batch_size, config.prefix_sharing)


def load_examples(config: TrainConfig, model: Model) -> list[Example]:
    """The rows of the split as examples. Raises BadInput."""
    template = read_template(config.prompt_template)
    tokenizer = load_tokenizer(model)
    settings = (config.answer_tokens, config.budget, windows_of(config.windows))
    builder = PromptBuilder(tokenizer, model, template, config.task, *settings)
    benchmark = benchmark_named(config.benchmark)
    rows = benchmark.rows(config.split)[: config.max_rows]
    return make_examples(rows, benchmark, config.split, builder)


def split_examples(examples: list[Example], eval_rows: int) -> tuple[list[Example], list[Example]]:
    """Training and evaluation examples; the last `eval_rows` are kept out. Raises BadInput."""
    if len(examples) <= eval_rows:
        raise BadInput(f"eval_rows is {eval_rows} and only {len(examples)} rows were read; lower eval_rows")
    keep = len(examples) - eval_rows
    return examples[:keep], examples[keep:]


def print_plan(config: TrainConfig, model: Model, training: list[Example], evaluation: list[Example]) -> None:
    """What a run would do, without loading a weight."""
    packs = packs_of(config, training)
    tokens = sum(len(example.token_ids) for example in training)
    computed = sum(pack.tokens for pack in packs)
    answer = sum(len(example.answer_ids) for example in training)
    cut = sum(example.prompt.cut.kept < example.prompt.cut.readme for example in training)
    print(
        f"model      {model.name} ({model.location}), {model.format} format, context {model.context} tokens"
    )
    print(
        f"rows       {len(training)} for training, {len(evaluation)} for evaluation loss; task {config.task}"
    )
    print(f"tokens     {tokens} an epoch, {answer} of answers; {computed} computed; README cut in {cut} rows")
    print(f"steps      {planned_steps(config, packs)} of {packs_per_step(config)} packs")
    print("nothing was written")


def packs_per_step(config: TrainConfig) -> int:
    """Packs in one optimizer step over all processes."""
    return config.gradient_accumulation * int(os.environ.get("WORLD_SIZE", "1"))


def planned_steps(config: TrainConfig, packs: list[Pack]) -> int:
    """Optimizer steps of the whole run."""
    return config.max_steps or math.ceil(config.epochs * math.ceil(len(packs) / packs_per_step(config)))


def train(config: TrainConfig, model: Model, training: list[Example], evaluation: list[Example]) -> int:
    """Trains, resuming from a checkpoint if there is one, and leaves a proven adapter in output_dir."""
    folder = make_folder(config.output_dir)
    identity = identity_of(config, model, training, evaluation)
    is_main = int(os.environ.get("RANK", "0")) == 0
    if config.resume and is_finished(folder, identity):
        print(f"{folder}: this run is finished; nothing to do")
        return 0
    started = time.monotonic()
    torch.manual_seed(config.seed)
    network = load_network(config, model)
    if is_main:
        claim(folder)
        claim_folder(folder, identity, config.resume)
    trainer = make_trainer(config, network, model, training, evaluation)
    checkpoint = last_checkpoint(folder) if config.resume else None
    if checkpoint is not None:
        print(f"continuing from {checkpoint}")
    result = trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    eval_loss = final_eval_loss(trainer) if evaluation else None
    tensors = save_adapter(trainer.accelerator.unwrap_model(trainer.model), folder) if is_main else 0
    if is_main:
        record = {
            "rows": len(training),
            "steps": trainer.state.global_step,
            "train_loss": result.training_loss,
            "eval_loss": eval_loss,
            "tensors": tensors,
            "seconds": round(time.monotonic() - started, 1),
            "resumed_from": checkpoint.name if checkpoint else None,
            "config": resolved(config),
            "versions": versions(),
        }
        finish_run(folder, identity, record)
        print(f"adapter with {tensors} tensors saved to {folder} and read back")
    return 0


def final_eval_loss(trainer: Trainer) -> float:
    """The loss on the evaluation rows after the last step, measured once."""
    last = trainer.state.log_history[-3:]
    found = [
        log["eval_loss"] for log in last if "eval_loss" in log and log["step"] == trainer.state.global_step
    ]
    return found[-1] if found else trainer.evaluate()["eval_loss"]


def identity_of(
    config: TrainConfig, model: Model, training: list[Example], evaluation: list[Example]
) -> dict[str, Any]:
    """What decides the result: weights, every token that is learned from, and the settings."""
    settings = {name: value for name, value in resolved(config).items() if name not in _NOT_IDENTITY}
    settings["processes"] = int(os.environ.get("WORLD_SIZE", "1"))
    settings["weights"] = model.identity()
    settings["template"] = read_template(config.prompt_template).sha256
    settings.pop("prompt_template")
    learned = [[*item.prompt.row.key, item.token_ids] for item in training + evaluation]
    settings["rows_sha256"] = sha256_of(learned)
    return settings


def make_trainer(
    config: TrainConfig, network: Any, model: Model, training: list[Example], evaluation: list[Example]
) -> Trainer:
    """transformers' Trainer over a LoRA model."""
    if not sys.stderr.isatty():
        transformers_logging.disable_progress_bar()
    os.environ["TENSORBOARD_LOGGING_DIR"] = str(Path(config.output_dir) / "tensorboard")
    packs = packs_of(config, training)
    arguments = training_arguments(config, packs, bool(evaluation))
    tokenizer = load_tokenizer(model)
    pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id
    trainer = PackTrainer(
        model=network,
        args=arguments,
        train_dataset=packs,
        eval_dataset=packs_of(config, evaluation) or None,
        data_collator=PackCollator(pad),
    )
    if not sys.stderr.isatty():
        trainer.remove_callback(PrinterCallback)
        trainer.add_callback(PlainProgress())
    return trainer


def training_arguments(config: TrainConfig, packs: list[Pack], evaluate: bool) -> TrainingArguments:
    """The Trainer's own settings for a configuration."""
    steps = planned_steps(config, packs)
    has_gpu = torch.cuda.is_available()
    return TrainingArguments(
        output_dir=config.output_dir,
        max_steps=steps,
        per_device_train_batch_size=1,
        per_device_eval_batch_size=1,
        gradient_accumulation_steps=config.gradient_accumulation,
        learning_rate=config.learning_rate,
        warmup_steps=min(math.ceil(config.warmup * steps), steps - 1),  # the last step must learn
        lr_scheduler_type=config.scheduler,
        weight_decay=config.weight_decay,
        max_grad_norm=config.max_grad_norm,
        bf16=has_gpu and config.dtype != "float32",
        use_cpu=not has_gpu,
        gradient_checkpointing=config.activation_checkpointing,
        gradient_checkpointing_kwargs={"use_reentrant": False} if config.activation_checkpointing else None,
        eval_strategy="steps" if evaluate else "no",
        eval_steps=config.eval_steps,
        save_steps=config.save_steps,
        save_total_limit=2,
        logging_steps=config.logging_steps,
        report_to=["tensorboard"],
        remove_unused_columns=False,
        prediction_loss_only=True,
        label_names=["labels"],
        dataloader_pin_memory=has_gpu,
        disable_tqdm=not sys.stderr.isatty(),
        seed=config.seed,
        data_seed=config.seed,
    )


def load_network(config: TrainConfig, model: Model) -> Any:
    """The base model from safetensors with fresh LoRA matrices. Raises BadInput if it cannot be loaded."""
    dtypes = {"float32": torch.float32, "bfloat16": torch.bfloat16}
    default = torch.bfloat16 if torch.cuda.is_available() else torch.float32
    try:
        weights = AutoModelForCausalLM.from_pretrained(
            model.location,
            revision=model.revision,
            dtype=dtypes.get(config.dtype, default),
            use_safetensors=True,
            trust_remote_code=config.trust_remote_code,
        )
    except (OSError, ValueError, SafetensorError) as error:
        reason = str(error).strip().splitlines()[0]
        raise BadInput(f"{model.location}: no weights could be loaded ({reason})") from error
    network = add_lora(weights, config.lora_rank, config.lora_alpha, config.lora_dropout, model.lora_targets)
    if config.activation_checkpointing:
        network.enable_input_require_grads()
    return network


class PlainProgress(TrainerCallback):
    """One line a step where the output is no terminal."""

    def __init__(self) -> None:
        self.started = time.monotonic()

    def on_log(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
        """Prints step, loss and seconds so far."""
        logs = rest["logs"]
        shown = {name: logs[name] for name in ("loss", "eval_loss", "learning_rate") if name in logs}
        if shown and state.is_world_process_zero:
            values = "  ".join(f"{name} {float(value):.4g}" for name, value in shown.items())
            seconds = time.monotonic() - self.started
            print(f"step {state.global_step}/{state.max_steps}  {values}  {seconds:.0f} s", flush=True)


def _check(config: TrainConfig) -> None:
    positive = (
        "answer_tokens",
        "batch_size",
        "gradient_accumulation",
        "learning_rate",
        "lora_rank",
        "lora_alpha",
        "save_steps",
    )
    if not 0 <= config.seed < 2**32 or not 0 <= config.lora_dropout < 1:
        raise BadInput("seed must be from 0 to 2**32 - 1, and lora_dropout 0 or more and less than 1")
    for name in (*positive, "epochs", "max_steps", "max_rows", "eval_steps", "logging_steps"):
        value = getattr(config, name)
        if value is not None and value <= 0:
            raise BadInput(f"{name} is {value}; expected more than 0")
    if config.activation_checkpointing and config.prefix_sharing:
        raise BadInput(
            "activation_checkpointing drops the shared prefix's cache; set prefix_sharing to false"
        )
    if config.eval_rows < 0 or not 0 <= config.warmup <= 1:
        raise BadInput("eval_rows must be 0 or more, and warmup a share from 0 to 1")


if __name__ == "__main__":
    run_script(TrainConfig, main)
