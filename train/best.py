"""The best of a run's evaluations: what was trained until then is kept, and it may end training."""

import math
import os
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from transformers import TrainerCallback

from mlbench_data.files import make_folder
from train.launch import decided_by_main, is_main
from train.trained import trained_tensors

HIGHER_IS_BETTER = {"pass@1": True, "eval_loss": False}


@dataclass(frozen=True)
class Best:
    """The step after which a metric was best, and its value then."""

    metric: str
    step: int
    value: float

    def is_beaten_by(self, value: float) -> bool:
        """Whether a later value is better; an equal one is not."""
        return value > self.value if HIGHER_IS_BETTER[self.metric] else value < self.value


class KeepBest(TrainerCallback):
    """Keeps what was trained when `metric` was best, in OUTPUT_DIR/best. After `patience` evaluations without
    a better one training ends. A run that continues goes by its log and by what is kept.
    """

    def __init__(self, trainer: Any, folder: Path, metric: str, patience: int | None) -> None:
        self.trainer, self.metric, self.patience = trainer, metric, patience
        self.file = folder / "best" / "trained.safetensors"

    def on_log(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
        """An evaluation of the metric, in all processes: each of them has a part of what is trained."""
        value = rest["logs"].get(self.metric)
        if value is None:
            return
        if decided_by_main(lambda: self._is_best(float(value))):
            network = self.trainer.accelerator.unwrap_model(self.trainer.model)
            tensors = trained_tensors(network, keep=is_main())
            if is_main():
                self._keep(Best(self.metric, state.global_step, float(value)), tensors)
        elif decided_by_main(lambda: self._is_over(state.log_history)):
            control.should_training_stop = True
            control.should_save = False  # one that is continued from here would train on
            if is_main():
                print(
                    f"no better {self.metric} in {self.patience} evaluations: training ends early", flush=True
                )

    def best(self) -> Best | None:
        """What is kept; None before the first evaluation."""
        if not self.file.is_file():
            return None
        with safe_open(self.file, "pt") as kept:
            told = kept.metadata()
        return Best(told["metric"], int(told["step"]), float(told["value"]))

    def tensors(self) -> dict[str, torch.Tensor]:
        """What was trained when the metric was best."""
        return load_file(self.file)

    def _is_best(self, value: float) -> bool:
        best = self.best()
        return math.isfinite(value) and (best is None or best.is_beaten_by(value))

    def forget(self) -> None:
        """Removes what is kept, once it is saved or if it is another run's."""
        shutil.rmtree(self.file.parent, ignore_errors=True)

    def _keep(self, best: Best, tensors: dict[str, torch.Tensor]) -> None:
        """Never half of it: a run may be killed at any time."""
        make_folder(self.file.parent)
        new = self.file.with_suffix(".new")
        whole = {name: tensor.contiguous() for name, tensor in tensors.items()}
        save_file(whole, new, {name: str(value) for name, value in asdict(best).items()})
        os.replace(new, self.file)

    def _is_over(self, history: list[dict[str, Any]]) -> bool:
        best = self.best()
        since = {log["step"] for log in history if self.metric in log and best and log["step"] > best.step}
        return self.patience is not None and len(since) >= self.patience
