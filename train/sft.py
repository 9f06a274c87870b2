"""Fine-tunes a causal language model on one split of a benchmark, with LoRA, QLoRA or in full.

accelerate launch train/sft.py --config configs/train/smollm2-135m-id-task3.yaml
"""

import importlib.util
import math
import os
import time
from pathlib import Path
from typing import Any

import torch
from transformers import PrinterCallback, Trainer, TrainingArguments
from transformers.utils import logging as transformers_logging

from mlbench_data.bad_input import BadInput
from mlbench_data.cli import resolved, run_script, versions
from mlbench_data.files import claim, make_folder, sha256_of
from mlbench_data.models import Model, load_tokenizer, resolve_model
from mlbench_data.prompts import PromptBuilder
from mlbench_data.retrieval import windows_of
from mlbench_data.sources import benchmark_named
from mlbench_data.template import read_template
from train.callbacks import LOG_FILE, LogFile, Preempted, Preemption, Progress
from train.checkpoints import claim_folder, finish_run, is_finished, last_checkpoint
from train.config import NOT_IDENTITY, TrainConfig, check_config
from train.curve import CURVE_FILE, draw_curve
from train.examples import Example, make_examples
from train.launch import check_launched, check_running, is_main, processes, wants_deepspeed
from train.model_card import write_card
from train.network import DTYPES, Lora, load_network
from train.packs import epoch_packs
from train.plan import Plan, make_plan, pack_settings, print_plan
from train.trained import save_trained, trained_tensors
from train.trainer import PackTrainer


def main(config: TrainConfig) -> int:
    """Fine-tunes a causal language model on one split of a benchmark, with LoRA, QLoRA or in full."""
    check_config(config)
    check_launched()
    model = resolve_model(config.model)
    examples = load_examples(config, model)
    training, evaluation = split_examples(examples, config.eval_rows)
    plan = make_plan(config, training, processes())
    if config.dry_run:
        print_plan(config, model, training, evaluation, plan)
        print("nothing was written")
        return 0
    return train(config, model, training, evaluation, plan)


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


def train(
    config: TrainConfig, model: Model, training: list[Example], evaluation: list[Example], plan: Plan
) -> int:
    """Trains, resuming from a checkpoint if there is one, and leaves a proven adapter or model in
    output_dir. Raises Preempted if a signal ended it before the last step.
    """
    folder = make_folder(config.output_dir)
    identity = identity_of(config, model, training, evaluation)
    if config.resume and is_finished(folder, identity):
        print(f"{folder}: this run is finished; nothing to do")
        return 0
    started = time.monotonic()
    arguments = training_arguments(
        config, plan, bool(evaluation)
    )  # first: it tells models how they are spread
    torch.manual_seed(config.seed)
    network = load_network(*network_settings(config, model))
    if is_main():
        claim(folder)
        claim_folder(folder, identity, config.resume)
    held_out = epoch_packs(evaluation, pack_settings(config))
    trainer = make_trainer(config, network, arguments, plan, held_out)
    checkpoint = last_checkpoint(folder) if config.resume else None
    if checkpoint is not None and is_main():
        print(f"continuing from {checkpoint}")
    result = trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    leave_if_asked(trainer, folder)
    eval_loss = final_eval_loss(trainer) if evaluation else None
    tensors = trained_tensors(trainer.accelerator.unwrap_model(trainer.model))
    if is_main():
        count = save_trained(trainer.accelerator.unwrap_model(trainer.model), tensors, folder)
        if config.method == "full":
            load_tokenizer(model).save_pretrained(folder)
        record = {
            "rows": len(training),
            "steps": trainer.state.global_step,
            "train_loss": result.training_loss,
            "eval_loss": eval_loss,
            "tensors": count,
            "seconds": round(time.monotonic() - started, 1),
            "resumed_from": checkpoint.name if checkpoint else None,
            "config": resolved(config),
            "versions": versions(),
        }
        draw_curve(
            folder / LOG_FILE, folder / CURVE_FILE, f"{model.name}, {config.split}, task {config.task}"
        )
        write_card(folder, model, identity, record)
        finish_run(folder, identity, record)
        what = "adapter" if config.method == "lora" else "model"
        print(f"{what} with {count} tensors saved to {folder} and read back")
    return 0


def leave_if_asked(trainer: Trainer, folder: Path) -> None:
    """Raises Preempted if a signal ended training before its last step."""
    step, steps = trainer.state.global_step, trainer.state.max_steps
    if step < steps:
        raise Preempted(
            f"{folder}: stopped by a signal after step {step} of {steps}, which checkpoint-{step} holds; "
            "the same command continues"
        )


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
    settings = {name: value for name, value in resolved(config).items() if name not in NOT_IDENTITY}
    settings["processes"] = processes()
    settings["weights"] = model.identity()
    settings["template"] = read_template(config.prompt_template).sha256
    settings.pop("prompt_template")
    learned = [[*item.prompt.row.key, item.token_ids] for item in training + evaluation]
    settings["rows_sha256"] = sha256_of(learned)
    return settings


def make_trainer(
    config: TrainConfig, network: Any, arguments: TrainingArguments, plan: Plan, held_out: list[Any]
) -> PackTrainer:
    """The trainer with the project's own lines, log and signals. Raises BadInput if it would run on fewer
    devices, or with another way of sharing them, than asked for.
    """
    trainer = PackTrainer(network, arguments, plan.packs, held_out)
    check_running(trainer.accelerator)
    trainer.remove_callback(PrinterCallback)
    for callback in (LogFile(Path(config.output_dir, LOG_FILE)), Progress(), Preemption()):
        trainer.add_callback(callback)
    return trainer


def training_arguments(config: TrainConfig, plan: Plan, evaluate: bool) -> TrainingArguments:
    """The Trainer's own settings for a configuration. Raises BadInput if W&B is asked for and missing."""
    if config.wandb and importlib.util.find_spec("wandb") is None:
        raise BadInput("wandb is true and the package wandb is not installed; pip install wandb")
    transformers_logging.disable_progress_bar()
    os.environ["TENSORBOARD_LOGGING_DIR"] = str(Path(config.output_dir) / "tensorboard")
    has_gpu = torch.cuda.is_available()
    return TrainingArguments(
        output_dir=config.output_dir,
        max_steps=plan.steps,
        per_device_train_batch_size=1,
        per_device_eval_batch_size=1,
        train_sampling_strategy="sequential",  # the plan's order, which is what resuming continues
        gradient_accumulation_steps=config.gradient_accumulation,
        learning_rate=config.learning_rate,
        warmup_steps=min(math.ceil(config.warmup * plan.steps), plan.steps - 1),  # the last step must learn
        lr_scheduler_type=config.scheduler,
        weight_decay=config.weight_decay,
        max_grad_norm=config.max_grad_norm,
        bf16=has_gpu and config.dtype != "float32",
        use_cpu=not has_gpu and not wants_deepspeed(),
        ddp_backend="gloo" if processes() > 1 and not has_gpu else None,
        gradient_checkpointing=config.activation_checkpointing,
        gradient_checkpointing_kwargs={"use_reentrant": False} if config.activation_checkpointing else None,
        eval_strategy="steps" if evaluate else "no",
        eval_steps=config.eval_steps,
        save_steps=config.save_steps,
        save_total_limit=2,
        logging_steps=config.logging_steps,
        logging_nan_inf_filter=False,
        report_to=["tensorboard", "wandb"] if config.wandb else ["tensorboard"],
        remove_unused_columns=False,
        label_names=["labels"],
        dataloader_pin_memory=has_gpu,
        disable_tqdm=True,
        seed=config.seed,
        data_seed=config.seed,
    )


def network_settings(config: TrainConfig, model: Model) -> tuple[Any, ...]:
    """The arguments of load_network. All weights are trained in float32, whatever they are computed in."""
    default = torch.bfloat16 if torch.cuda.is_available() else torch.float32
    dtype = torch.float32 if config.method == "full" else DTYPES.get(config.dtype, default)
    lora = None
    if config.method == "lora":
        targets = tuple(config.lora_targets) if config.lora_targets else model.lora_targets
        numbers = (config.lora_rank, config.lora_alpha, config.lora_dropout)
        lora = Lora(*numbers, targets, config.rslora, config.dora)
    checkpointing = config.activation_checkpointing
    return model, dtype, config.quantization, lora, checkpointing, config.trust_remote_code


if __name__ == "__main__":
    run_script(TrainConfig, main)
