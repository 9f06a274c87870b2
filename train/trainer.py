"""transformers' Trainer for packs: one forward pass a pack, loss on answer tokens, the order as given."""

import math
import os
import time
import warnings
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from transformers import PrinterCallback, Trainer, TrainingArguments
from transformers.utils import logging as transformers_logging

from mlbench_data.bad_input import JobFailed
from train.config import TrainConfig
from train.launch import check_precision, processes, wants_deepspeed, wants_fsdp
from train.network import keep_input_dtypes
from train.noise import EmbeddingNoise
from train.packs import IGNORED, Pack, collate, padded
from train.plan import Plan
from train.prefix_attention import block_mask


def training_arguments(config: TrainConfig, plan: Plan, evaluate: bool) -> TrainingArguments:
    """The Trainer's own settings for a configuration. Raises BadInput if accelerate was told to use another
    precision.
    """
    transformers_logging.disable_progress_bar()
    warnings.filterwarnings("ignore", "`torch.distributed", FutureWarning)  # DeepSpeed's, several a step
    os.environ["TENSORBOARD_LOGGING_DIR"] = str(Path(config.output_dir) / "tensorboard")
    has_gpu = torch.cuda.is_available()
    bfloat16 = has_gpu and config.dtype != "float32"
    check_precision(bfloat16)
    arguments = TrainingArguments(
        output_dir=config.output_dir,
        max_steps=plan.steps,
        per_device_train_batch_size=1,
        per_device_eval_batch_size=1,
        train_sampling_strategy="sequential",  # the plan's order, which is what resuming continues
        gradient_accumulation_steps=plan.packs_per_step // processes(),
        accelerator_config=_accelerator_settings(config),
        learning_rate=config.learning_rate,
        warmup_steps=min(math.ceil(config.warmup * plan.steps), plan.steps - 1),  # the last step must learn
        lr_scheduler_type=config.scheduler,
        weight_decay=config.weight_decay,
        max_grad_norm=config.max_grad_norm,
        bf16=bfloat16,
        use_cpu=not has_gpu and not wants_deepspeed(),
        ddp_backend="gloo" if processes() > 1 and not has_gpu else None,
        ddp_find_unused_parameters=False,  # every pass uses all that is trained; looking costs time
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
    if arguments.n_gpu > 1:  # it would split batches over them with threads, and a pack is one sequence
        arguments._n_gpu = 1
    return arguments


def _accelerator_settings(config: TrainConfig) -> dict[str, Any]:
    """Under FSDP each GPU would keep the gradients of all weights, whole, until the last pass of a step: for
    7B parameters 13 GB. Sent after every pass, it keeps its part.
    """
    sends_each = wants_fsdp() and config.method == "full"
    return {"gradient_accumulation_kwargs": {"sync_each_batch": True}} if sends_each else {}


class NotLearning(JobFailed):
    """A step that cannot teach anything: no labels, or a loss that is no number."""


class PackTrainer(Trainer):
    """Trains on packs in their order.

    A step's loss is the mean over all its answer tokens, on all processes; the evaluation loss is the mean
    over all evaluation tokens, however they are packed.
    """

    def __init__(
        self,
        network: Any,
        arguments: TrainingArguments,
        packs: list[Pack],
        evaluation: list[Pack],
        neftune: float = 0.0,
    ) -> None:
        processes = arguments.world_size
        self.noise = EmbeddingNoise(network, neftune) if neftune else None
        _keep_differentiable(network)
        if arguments.bf16:
            keep_input_dtypes(network)
        super().__init__(
            model=network,
            args=arguments,
            train_dataset=padded(packs, processes),
            eval_dataset=padded(evaluation, processes) if evaluation else None,
            data_collator=_batch,
        )
        self.remove_callback(PrinterCallback)
        self.throughput = Throughput(packs, processes * arguments.gradient_accumulation_steps)

    def compute_loss(
        self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """The pack's share of the step's mean loss; times the processes, whose gradients are averaged."""
        summed = self._summed_loss(model, inputs)
        return summed * self.accelerator.num_processes / num_items_in_batch

    def training_step(self, model: Any, inputs: dict[str, Any], num_items_in_batch: Any = None) -> Any:
        """One forward and backward pass. Raises NotLearning where it can teach nothing."""
        step = self.state.global_step + 1
        if num_items_in_batch == 0:
            raise NotLearning(f"step {step}: no token has a label; every answer is masked")
        loss = super().training_step(model, inputs, num_items_in_batch)
        if not torch.isfinite(loss):
            raise NotLearning(f"step {step}: the loss is {loss.item()}; lower learning_rate, or use float32")
        return loss

    def evaluate(self, *unused: Any, **more: Any) -> dict[str, float]:
        """The mean loss over all tokens of the evaluation answers."""
        model = self.model_wrapped
        model.eval()
        packs: Any = self.eval_dataset
        total = torch.zeros(2, device=self.args.device, dtype=torch.float64)
        for pack in packs[self.args.process_index :: self.args.world_size]:
            inputs = self._prepare_inputs(_batch([pack]))
            counted = (inputs["labels"] != IGNORED).sum()
            with torch.no_grad(), self.compute_loss_context_manager():
                total += torch.stack([self._summed_loss(model, inputs).double(), counted.double()])
        summed, count = self.accelerator.reduce(total, "sum").tolist()
        metrics = {"eval_loss": summed / count}
        self.log(metrics)
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        return metrics

    def log(self, logs: dict[str, Any], start_time: float | None = None) -> None:
        """Adds what the steps since the last line cost."""
        if "loss" in logs:
            logs |= self.throughput.since_last(self.state.global_step)
        super().log(logs, start_time)

    def _summed_loss(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        labels = inputs.pop("labels")
        inputs.pop("shift_labels")
        if self.noise is not None:
            self.noise.expect(inputs["layout"], labels.device)
        if labels.is_cuda:
            inputs["attention_mask"] = block_mask(inputs.pop("layout"), labels.device)
        logits = model(**inputs, use_cache=False).logits
        return F.cross_entropy(logits[0].float(), labels, ignore_index=IGNORED, reduction="sum")


class Throughput:
    """Tokens a second. `tokens` are computed, `row_tokens` are those of separate sequences."""

    def __init__(self, packs: list[Pack], packs_per_step: int) -> None:
        starts = range(0, len(packs), packs_per_step)
        steps = [packs[start : start + packs_per_step] for start in starts]
        self.computed = [sum(pack.tokens for pack in step) for step in steps]
        self.rows = [
            sum(len(row) for pack in step if pack.counted for row in pack.examples) for step in steps
        ]
        self.step = 0
        self.clock = time.monotonic()

    def start(self, step: int) -> None:
        """Training begins, or goes on, after `step` steps."""
        self.step, self.clock = step, time.monotonic()

    def since_last(self, step: int) -> dict[str, float]:
        """Speeds since the last call."""
        now = time.monotonic()
        seconds = max(now - self.clock, 1e-9)
        computed, rows = (sum(counts[self.step : step]) for counts in (self.computed, self.rows))
        self.step, self.clock = step, now
        return {
            "tokens": sum(self.computed[:step]),
            "tokens_per_second": round(computed / seconds, 1),
            "row_tokens_per_second": round(rows / seconds, 1),
            "useful_token_ratio": round(rows / computed, 3) if computed else math.nan,
        }


def _batch(packs: list[Pack]) -> dict[str, Any]:
    """A pack as the Trainer takes it, which counts a step's labels under this name."""
    batch = collate(packs)
    return {**batch, "shift_labels": batch["labels"]}


def _keep_differentiable(network: Any) -> None:
    """Keeps bitsandbytes from packing 4-bit weights for a CPU's AVX512-BF16 in the first evaluation: the
    steps after it would compute with the packed ones, through which no gradient flows.
    """
    for module in network.modules():
        if hasattr(module, "support_avx512bf16_for_cpu"):
            module.support_avx512bf16_for_cpu = False
