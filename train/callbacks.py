"""What happens beside training: lines on the terminal, the log, and leaving when the cluster asks to."""

import json
import math
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm
from transformers import TrainerCallback

from mlbench_data.bad_input import Stopped
from mlbench_data.files import write_text

LOG_FILE = "log.jsonl"
MEASURED = {"loss", "eval_loss", "pass@1"}
"""What makes a line of the log; the trainer has others."""
SIGNALS = (signal.SIGTERM, signal.SIGUSR1)


class LogFile(TrainerCallback):
    """One JSON line for every log line, without gap or repetition over restarts."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def on_train_begin(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
        """Forgets what a killed run wrote after the checkpoint that this one continues from."""
        if state.is_world_process_zero:
            kept = [line for line in read_log(self.path) if line["step"] <= state.global_step]
            write_text(self.path, "".join(f"{json.dumps(line)}\n" for line in kept))

    def on_log(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
        """Appends the line."""
        logs = {name: value for name, value in rest["logs"].items() if name not in ("epoch", "total_flos")}
        if state.is_world_process_zero and not MEASURED.isdisjoint(logs):
            line = json.dumps({"step": state.global_step, "time": round(time.time(), 3), **_finite(logs)})
            with self.path.open("a", encoding="utf-8") as file:
                file.write(f"{line}\n")


def read_log(path: Path) -> list[dict[str, Any]]:
    """The lines of a log; what is none, as a last line torn by a kill, is left out."""
    if not path.exists():
        return []
    found = []
    for text in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            line = json.loads(text)
        except json.JSONDecodeError:
            continue
        if isinstance(line, dict) and isinstance(line.get("step"), int):
            found.append(line)
    return found


class OwnIntervals(TrainerCallback):
    """A run that continues saves, evaluates and logs as often as it is told now, not as before."""

    def on_train_begin(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
        """The trainer has just taken them from the checkpoint."""
        state.save_steps, state.eval_steps = args.save_steps, args.eval_steps
        state.logging_steps = args.logging_steps


class Progress(TrainerCallback):
    """Loss, speed and time left: a bar on a terminal, otherwise a line a step."""

    def __init__(self) -> None:
        self.bar: tqdm | None = None
        self.began = (0, time.monotonic())

    def on_train_begin(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
        """Starts the clock."""
        self.began = (state.global_step, time.monotonic())
        if state.is_world_process_zero and sys.stderr.isatty():
            self.bar = tqdm(
                total=state.max_steps, initial=state.global_step, desc="training", dynamic_ncols=True
            )

    def on_step_end(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
        """Moves the bar."""
        if self.bar is not None:
            self.bar.update(state.global_step - self.bar.n)

    def on_log(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
        """Shows the line."""
        logs = rest["logs"]
        if not state.is_world_process_zero or MEASURED.isdisjoint(logs):
            return
        text = "  ".join(
            f"{shown} {float(logs[name]):.4g}" for name, shown in _SHOWN.items() if logs.get(name) is not None
        )
        if self.bar is not None:
            self.bar.set_postfix_str(text)
            return
        step, began = self.began
        spent = time.monotonic() - began
        left = spent / max(state.global_step - step, 1) * (state.max_steps - state.global_step)
        clock = f"{_clock(spent)} gone, {_clock(left)} left"
        print(f"step {state.global_step}/{state.max_steps}  {text}  {clock}", flush=True)

    def on_train_end(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
        """Leaves the last line in place."""
        if self.bar is not None:
            self.bar.close()
            self.bar = None


class Preemption(TrainerCallback):
    """SIGTERM or SIGUSR1, to any process, saves a checkpoint after the step and ends training."""

    def __init__(self) -> None:
        self.caught = 0
        self.before: dict[int, Any] = {}

    def on_train_begin(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
        """Listens."""
        self.before = {number: signal.signal(number, self._remember) for number in SIGNALS}

    def on_step_end(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
        """Every process leaves after the same step, whichever of them was asked to."""
        self.caught = _highest(self.caught, args)
        if self.caught and state.global_step < state.max_steps:
            control.should_save = control.should_training_stop = True

    def on_train_end(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
        """Stops listening."""
        for number, handler in self.before.items():
            signal.signal(number, handler)

    def leave_if_asked(self, step: int, steps: int) -> None:
        """Raises Stopped if a signal ended training before its last step."""
        if self.caught and step < steps:
            name = signal.Signals(self.caught).name
            raise Stopped(
                f"stopped by {name} after step {step} of {steps}; the same command continues", self.caught
            )

    def _remember(self, number: int, frame: Any) -> None:
        self.caught = number
        os.write(
            2, b"asked to stop: a checkpoint is saved after this step\n"
        )  # print is not safe in a handler


_SHOWN = {
    "loss": "loss",
    "eval_loss": "eval_loss",
    "pass@1": "pass@1",
    "learning_rate": "learning_rate",
    "tokens_per_second": "tokens/s",
    "row_tokens_per_second": "row_tokens/s",
    "useful_token_ratio": "row_tokens/token",
}


def _highest(value: int, args: Any) -> int:
    """The largest value over all processes."""
    if args.world_size == 1:
        return value
    shared = torch.tensor(value, device=args.device)
    torch.distributed.all_reduce(shared, torch.distributed.ReduceOp.MAX)
    return int(shared)


def _finite(logs: dict[str, Any]) -> dict[str, Any]:
    """JSON knows no NaN."""
    return {name: value if math.isfinite(float(value)) else None for name, value in logs.items()}


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
