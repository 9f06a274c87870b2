"""pass@1 during training: rows kept out are sampled with the adapter so far, and their answers are evaluated.

Both are done by the scripts that do it after training, as programs of their own, which meet in files.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback

from mlbench_data.bad_input import JobFailed
from mlbench_data.files import PROJECT_ROOT, write_text
from mlbench_data.processes import end_with_parent
from mlbench_data.rows import Row
from train.config import TrainConfig
from train.launch import decided_by_main, is_main
from train.trained import save_trained, trained_tensors

PASS_AT_1 = "pass@1"
SECONDS = 720
"""Until a program is given up: both together end before the half hour after which waiting processes do."""
MINI_REPOSITORIES = PROJECT_ROOT / "mlbench_data" / "mini" / "repositories"
LAUNCHERS = ("ACCELERATE_", "FSDP_", "TORCHELASTIC_", "MASTER_", "RANK", "LOCAL_", "WORLD_", "GROUP_")
"""Beginnings of variables that would tell a program that it is one process of many."""


class NotScored(JobFailed):
    """Sampling or evaluating failed: nothing is known about the adapter."""


@dataclass(frozen=True)
class SampledScore:
    """How an adapter is scored: the configuration that trains it, and rows that are kept out of training."""

    config: TrainConfig
    rows: list[Row]

    def of(self, network: Any, tensors: dict[str, torch.Tensor]) -> float:
        """The share of rows whose greedy answer passes. Raises NotScored if that could not be found out."""
        with tempfile.TemporaryDirectory(dir=self.config.output_dir, prefix=".scoring-") as temporary:
            folder = Path(temporary)
            save_trained(network, tensors, folder)
            lines = [json.dumps(row.as_dict(), ensure_ascii=False) + "\n" for row in self.rows]
            write_text(folder / "rows.jsonl", "".join(lines))
            if torch.cuda.is_available():
                torch.cuda.empty_cache()  # the program's model is on the same GPU
            _run("infer/generate.py", *self._sampling(folder))
            _run("eval/run.py", *self._evaluating(folder))
            return _score_in(folder / "results" / "summary.json")

    def _sampling(self, folder: Path) -> list[str]:
        """The options of infer/generate.py: prompts cut as in training, one greedy answer each."""
        config = self.config
        names = [f"{row.key.github_id}/{row.key.id}" for row in self.rows]
        settings = {
            "task": config.task,
            "benchmark": config.benchmark,
            "split": config.split,
            "model": config.model,
            "engine": "transformers",
            "quantization": config.quantization,
            "n": 1,
            "temperature": 0,
            "max_new_tokens": config.answer_tokens,
            "budget": config.budget,
            "windows": json.dumps(config.windows),
            "trust_remote_code": str(config.trust_remote_code).lower(),
            "out": folder / "candidates.jsonl",
        } | ({"prompt_template": config.prompt_template} if config.prompt_template else {})
        options = [word for name, value in settings.items() for word in (f"--{name}", str(value))]
        return [*options, "--adapter", str(folder), "--rows", *names]

    def _evaluating(self, folder: Path) -> list[str]:
        """The options of eval/run.py; without repositories answers are checked and not run."""
        repositories = self.config.eval_repositories
        if repositories is None and self.config.benchmark == "mini":
            repositories = str(MINI_REPOSITORIES)
        options = ["--candidates", str(folder / "candidates.jsonl"), "--rows", str(folder / "rows.jsonl")]
        how = ["--repositories", repositories] if repositories else ["--execute", "false"]
        return [*options, *how, "--out", str(folder / "results")]


class ScoreBySampling(TrainerCallback):
    """Every so many steps, and after the last one, logs pass@1. A failure is said, and scores nothing."""

    def __init__(self, trainer: Any, score: SampledScore, every: int) -> None:
        self.trainer, self.score, self.every = trainer, score, every

    def on_step_end(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
        """All processes give their part of the adapter; the main one has it scored while others wait."""
        if state.global_step % self.every and state.global_step < state.max_steps:
            return
        network = self.trainer.accelerator.unwrap_model(self.trainer.model)
        began, should_log = time.monotonic(), control.should_log
        tensors = trained_tensors(network, keep=is_main())
        score = decided_by_main(lambda: self._score(network, tensors, state.global_step))
        if score is not None:
            self.trainer.log({PASS_AT_1: score})
        control.should_log = should_log  # the step's own line is still to come
        self.trainer.throughput.clock += time.monotonic() - began  # not the time of training

    def _score(self, network: Any, tensors: dict[str, torch.Tensor], step: int) -> float | None:
        try:
            return self.score.of(network, tensors)
        except JobFailed as failed:
            print(f"warning: step {step}: no {PASS_AT_1}: {failed}", file=sys.stderr, flush=True)
            return None


def _run(script: str, *options: str) -> None:
    """Runs one of the toolkit's scripts as a program of its own. Raises NotScored with its last line."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(LAUNCHERS)}
    command = [sys.executable, str(PROJECT_ROOT / script), *options]
    try:
        done = subprocess.run(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            preexec_fn=end_with_parent,
        )
    except subprocess.TimeoutExpired as error:
        raise NotScored(f"{script} took more than {SECONDS} s; lower eval_generate_rows") from error
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise NotScored(f"{script} ended with {done.returncode} ({last})")


def _score_in(summary: Path) -> float:
    """pass@1 as eval/run.py has found it. Raises NotScored if it has none."""
    try:
        score = json.loads(summary.read_text(encoding="utf-8"))["pass_at_k"]["1"]["first_k"]
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise NotScored(f"{summary.name} holds no score ({error})") from error
    if not isinstance(score, int | float):
        raise NotScored(f"{summary.name} has {score!r} for a score")
    return float(score)
