"""Fine-tunes a causal language model on one split of a benchmark, with LoRA, QLoRA or in full.

accelerate launch train/sft.py --config configs/train/smollm2-135m-id-task3.yaml
"""

import math
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from mlbench_data.bad_input import BadInput
from mlbench_data.cli import resolved, run_script, versions
from mlbench_data.files import make_folder, sha256_of
from mlbench_data.gpu_memory import let_segments_grow
from mlbench_data.models import Model, load_tokenizer, resolve_model, save_tokenizer
from mlbench_data.prompts import PromptBuilder
from mlbench_data.retrieval import windows_of
from mlbench_data.sources import benchmark_named
from mlbench_data.template import read_template
from train.best import KeepBest
from train.callbacks import LOG_FILE, LogFile, OwnIntervals, Preemption, Progress
from train.checkpoints import SavedByAll, finish_run, is_finished, naming_a_full_disk, start_run
from train.config import DECIDE_THE_BEST, NOT_IDENTITY, TrainConfig, check_config
from train.curve import CURVE_FILE, draw_curve
from train.examples import Example, make_examples
from train.launch import (
    check_launched,
    check_running,
    decided_by_main,
    is_main,
    main_speaks_first,
    processes,
)
from train.model_card import write_card
from train.network import DTYPES, Lora, load_network
from train.packs import Pack, epoch_packs
from train.plan import Plan, make_plan, pack_settings, print_plan
from train.preflight import preflight, warn_of_memory
from train.sampled_score import PASS_AT_1, SampledScore, ScoreBySampling
from train.trained import save_trained, trained_tensors
from train.trainer import NotLearning, PackTrainer, TrainingArguments, training_arguments


@main_speaks_first()
def main(config: TrainConfig) -> int:
    """Fine-tunes a causal language model on one split of a benchmark, with LoRA, QLoRA or in full."""
    let_segments_grow()
    check_config(config)
    check_launched()
    model = resolve_model(config.model)
    preflight(config, model, lora_of(config, model))
    examples = load_examples(config, model)
    training, evaluation = split_examples(examples, config.eval_rows)
    plan = make_plan(config, training, processes())
    warn_of_memory(config, model, plan)
    if config.dry_run:
        if is_main():
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
    output_dir. Raises Stopped if a signal ended it before the last step.
    """
    folder = make_folder(config.output_dir)
    identity = identity_of(config, model, training, evaluation)
    started = time.monotonic()
    # First: it connects the processes, and tells models how they are spread.
    arguments = training_arguments(config, plan, bool(evaluation))
    if decided_by_main(lambda: config.resume and is_finished(folder, identity)):
        if is_main():
            print(f"{folder}: this run is finished; nothing to do")
        return 0
    torch.manual_seed(config.seed)
    network = load_network(*network_settings(config, model))
    held_out = epoch_packs(evaluation, pack_settings(config, processes()))
    preemption = Preemption()
    trainer = make_trainer(config, network, arguments, plan, held_out, preemption)
    keeper = watch_evaluations(config, trainer, evaluation)
    checkpoint = decided_by_main(lambda: start_run(folder, identity, config.resume, processes()))
    if is_main():
        if checkpoint is not None:
            print(f"continuing from {checkpoint}")
        elif keeper:
            keeper.forget()
    with naming_a_full_disk(folder):
        result = trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    preemption.leave_if_asked(trainer.state.global_step, trainer.state.max_steps)
    eval_loss = final_eval_loss(trainer) if evaluation else None
    best = decided_by_main(keeper.best) if keeper else None
    if best is not None:
        eval_loss = loss_after(trainer, best.step)
    if eval_loss is not None and not math.isfinite(eval_loss):
        raise NotLearning(f"after the last step the evaluation loss is {eval_loss}; lower learning_rate")
    tensors = trained_tensors(trainer.accelerator.unwrap_model(trainer.model), keep=is_main())
    if is_main():
        if keeper and best:
            tensors = keeper.tensors()
        count = save_trained(trainer.accelerator.unwrap_model(trainer.model), tensors, folder)
        if config.method == "full":
            save_tokenizer(model, folder)
        history = trainer.state.log_history
        record = {
            "rows": len(training),
            "steps": trainer.state.global_step,
            "mixture": plan.mixture().record(),
            "train_loss": average_loss(trainer, result.training_loss),
            "eval_loss": eval_loss,
            "pass@1": {log["step"]: log[PASS_AT_1] for log in history if PASS_AT_1 in log},
            "best": asdict(best) if best else None,
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
        if keeper:
            keeper.forget()
        what = "adapter" if config.method == "lora" else "model"
        of_step = f" of step {best.step} (best {best.metric}: {best.value:.4g})" if best else ""
        print(f"{what}{of_step} with {count} tensors saved to {folder} and read back")
    return 0


def average_loss(trainer: PackTrainer, since_start: float) -> float:
    """The mean of the logged losses, also of those before a restart; without any, the loss since then."""
    logged = [float(log["loss"]) for log in trainer.state.log_history if "loss" in log]
    return sum(logged) / len(logged) if logged else since_start


def final_eval_loss(trainer: PackTrainer) -> float:
    """The loss on the evaluation rows after the last step, measured once."""
    found = loss_after(trainer, trainer.state.global_step)
    return trainer.evaluate()["eval_loss"] if found is None else found


def loss_after(trainer: PackTrainer, step: int) -> float | None:
    """The loss on the evaluation rows after a step, if it was measured then."""
    history = trainer.state.log_history
    return next((log["eval_loss"] for log in history if log["step"] == step and "eval_loss" in log), None)


def watch_evaluations(
    config: TrainConfig, trainer: PackTrainer, evaluation: list[Example]
) -> KeepBest | None:
    """Has rows sampled during training, and the best of what is trained kept, if that is asked for."""
    if config.eval_generate_steps is not None:
        rows = [example.prompt.row for example in evaluation[: config.eval_generate_rows]]
        score = SampledScore(config, rows)
        trainer.add_callback(ScoreBySampling(trainer, score, config.eval_generate_steps))
    if config.keep_best == "none":
        return None
    keeper = KeepBest(trainer, Path(config.output_dir), config.keep_best, config.patience)
    trainer.add_callback(keeper)
    return keeper


def identity_of(
    config: TrainConfig, model: Model, training: list[Example], evaluation: list[Example]
) -> dict[str, Any]:
    """What decides the result: weights, every token that is learned from, and the settings."""
    settings = {name: value for name, value in resolved(config).items() if name not in NOT_IDENTITY}
    if config.keep_best != "none":
        settings |= {name: getattr(config, name) for name in DECIDE_THE_BEST}
    settings["processes"] = processes()
    settings["weights"] = model.identity()
    settings["template"] = read_template(config.prompt_template).sha256
    settings.pop("prompt_template")
    learned = [[*item.prompt.row.key, item.token_ids] for item in training + evaluation]
    settings["rows_sha256"] = sha256_of(learned)
    return settings


def make_trainer(
    config: TrainConfig,
    network: Any,
    arguments: TrainingArguments,
    plan: Plan,
    held_out: list[Pack],
    preemption: Preemption,
) -> PackTrainer:
    """The trainer with the project's own lines, log and signals. Raises BadInput if it would run on fewer
    devices, or with another way of sharing them, than asked for.
    """
    trainer = PackTrainer(network, arguments, plan.packs, held_out, config.neftune)
    check_running(trainer.accelerator)
    for callback in (
        LogFile(Path(config.output_dir, LOG_FILE)),
        Progress(),
        preemption,
        SavedByAll(),
        OwnIntervals(),
    ):
        trainer.add_callback(callback)
    return trainer


def network_settings(config: TrainConfig, model: Model) -> tuple[Any, ...]:
    """The arguments of load_network. All weights are trained in float32, whatever they are computed in."""
    default = torch.bfloat16 if torch.cuda.is_available() else torch.float32
    dtype = torch.float32 if config.method == "full" else DTYPES.get(config.dtype, default)
    lora, checkpointing = lora_of(config, model), config.activation_checkpointing
    return model, dtype, config.quantization, lora, checkpointing, config.trust_remote_code


def lora_of(config: TrainConfig, model: Model) -> Lora | None:
    """LoRA's settings; None if all weights are trained."""
    if config.method == "full":
        return None
    named = config.lora_targets or []
    targets = "all-linear" if named == ["all-linear"] else tuple(named) or model.lora_targets
    numbers = (config.lora_rank, config.lora_alpha, config.lora_dropout)
    return Lora(*numbers, targets, config.rslora, config.dora)


if __name__ == "__main__":
    run_script(TrainConfig, main)
