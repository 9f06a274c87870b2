"""Runs of train/sft.py by `accelerate launch`, to be watched, signalled and killed."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from mlbench_data.files import PROJECT_ROOT
from mlbench_data.models import Model

CONFIGS = PROJECT_ROOT / "configs" / "accelerate"
LAUNCH = ("-m", "accelerate.commands.accelerate_cli", "launch", "--config_file")
FSDP_ON_CPU = "tests/train/fsdp_on_cpu.py"
SHORT = ("--max_rows", 40, "--max_steps", 5, "--save_steps", 2, "--eval_rows", 4, "--eval_steps", 3,
         "--batch_size", 4)  # fmt: skip


def sft(model: Model, out: Path, *more: object, script: str = "train/sft.py") -> list[str]:
    """The command line of a short run, after `python` or `accelerate launch`."""
    settings = ["--config", "configs/train/smollm2-135m-id-task3.yaml", "--model", model.location]
    return [script, *settings, "--output_dir", str(out), *map(str, (*SHORT, *more))]


def launched(config: str | Path, command: list[str]) -> list[str]:
    """The command line, after `python`, that launches it with a configuration of ours or another file."""
    return [*LAUNCH, str(CONFIGS / f"{config}.yaml" if isinstance(config, str) else config), *command]


class Run:
    """A launched run whose processes can be found; its output goes to a file."""

    def __init__(self, arguments: list[str], log: Path) -> None:
        self.log = log
        with log.open("w") as file:
            self.launcher = psutil.Popen(
                [sys.executable, *arguments],
                cwd=PROJECT_ROOT,
                env={**os.environ, "PYTHONPATH": str(PROJECT_ROOT)},
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
            )

    def process(self, rank: int) -> psutil.Process:
        """The process of a rank."""
        return next(child for child in self.launcher.children() if child.environ().get("RANK") == str(rank))

    def wait_until(self, ready: Callable[[], bool], seconds: float = 600) -> None:
        """Fails if the run ends before, or if it takes longer; DeepSpeed compiles in its first run."""
        end = time.monotonic() + seconds
        while not ready():
            if self.launcher.poll() is not None or time.monotonic() > end:
                self.kill()
                pytest.fail(self.output())
            time.sleep(0.01)

    def end(self, seconds: float = 300) -> int:
        """Waits for the exit code."""
        try:
            return self.launcher.wait(seconds)
        except psutil.TimeoutExpired:
            self.kill()
            pytest.fail(self.output())

    def kill(self) -> None:
        """SIGKILL to all processes at once: the launcher has put each of them into a session of its own."""
        everyone = [*self.launcher.children(recursive=True), self.launcher]
        for process in everyone:
            process.suspend()
        for process in everyone:
            process.kill()
        psutil.wait_procs(everyone, 30)

    def output(self) -> str:
        """What was printed so far."""
        return self.log.read_text()
