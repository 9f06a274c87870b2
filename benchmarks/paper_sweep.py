"""The paper's 27 cells dry but real: every command that slurm/submit.py would start, on tiny random weights.

    python benchmarks/paper_sweep.py --tokenizers DIR

Names, tokenizers and architectures are those of the hub's models, recipes and options those of
configs/paper.yaml but for OVERRIDES. The engine is the sweep's own, vLLM, which takes half a minute to start
for each cell on a CPU. What is in the table means nothing: that it is filled is what is shown.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.hub_cache import environment, write_hub_cache
from benchmarks.measuring import print_table
from mlbench_data.bad_input import BadInput, JobFailed
from mlbench_data.cli import parse, run_script
from mlbench_data.files import PROJECT_ROOT, make_folder, write_json
from slurm.jobs import SCRIPTS, SHARD, Job, jobs_of
from slurm.sweep import Sweep, cells_of, folder_of
from slurm.sweep_file import SWEEP_FILE, description

SWEEP = "configs/paper.yaml"
OVERRIDES: dict[str, Any] = {
    "split": "quarter",  # MiniBench's 17 rows in place of 260
    "shards": 1,  # each would start vLLM anew
    "train": {"dtype": "float32", "max_rows": 16, "eval_rows": 4, "max_steps": 1, "gradient_accumulation": 1},
    "generate": {"max_new_tokens": 24},  # random weights end no answer
    "eval": {"repositories": "mlbench_data/mini/repositories", "memory": "2GiB", "timeout": 60},
}
"""What the lack of GPUs and of the published data forces, and nothing else. Training is one process on a CPU,
as slurm/train.sbatch starts it where one is all there is: no FSDP2, no bfloat16.
"""
TOKENIZERS = ("llama.model", "deepseek-coder.json")


@dataclass(frozen=True)
class PaperSweepConfig:
    """How much of the sweep."""

    tokenizers: str = "tokenizers"
    """Folder with llama.model and deepseek-coder.json, the hub's files."""
    quick: bool = False
    """DeepSeek-Coder in task 3 only: 3 of the 27 cells."""
    engine: str = "vllm"
    """vllm, as configs/paper.yaml has it, or transformers where vLLM is not installed."""
    out: str = "runs/benchmarks/paper-sweep"
    """Folder for everything that is made; what was there is removed."""


def main(config: PaperSweepConfig) -> int:
    """Runs the paper's sweep to its table on simulated models."""
    tokenizers = Path(config.tokenizers).resolve()
    for name in TOKENIZERS:
        if not (tokenizers / name).is_file():
            raise BadInput(f"{tokenizers / name}: no such file; give the folder with --tokenizers")
    os.chdir(PROJECT_ROOT)
    out = Path(config.out).resolve()
    shutil.rmtree(out, ignore_errors=True)
    make_folder(out)
    os.environ.update(environment(write_hub_cache(out / "hub", tokenizers)))
    sweep = sweep_of(config, out)
    run("mlbench_data/build.py", "--source", "mini", "--out", sweep.benchmark)
    cells = cells_of(sweep)
    make_folder(folder_of(sweep))
    write_json(folder_of(sweep) / SWEEP_FILE, description(sweep, cells))
    seconds: Counter[str] = Counter()
    commands: Counter[str] = Counter()
    for job in jobs_of(sweep, cells):
        for part in job.parts:
            started = time.monotonic()
            run(SCRIPTS[job.stage], *words_of(job, part))
            seconds[job.stage] += round(time.monotonic() - started)
            commands[job.stage] += 1
        if job.missing():
            raise JobFailed(f"{job.name}: its command has ended well, and its files are not there")
    print_table(
        ("stage", "commands", "seconds"), [(stage, commands[stage], seconds[stage]) for stage in seconds]
    )
    table = json.loads((folder_of(sweep) / "table.json").read_text(encoding="utf-8"))
    filled = len(table["results"])
    result = {"benchmark": "paper_sweep", "cells": len(cells), "filled": filled, "engine": config.engine}
    print(json.dumps(result | {"commands": commands.total(), "seconds": seconds.total()}))
    return 0 if filled == len(cells) else 1


def sweep_of(config: PaperSweepConfig, out: Path) -> Sweep:
    """The paper's sweep with what has to be otherwise here."""
    sweep = parse(Sweep, "", ["--config", SWEEP])
    changed: dict[str, Any] = {
        name: {**getattr(sweep, name), **value} if isinstance(value, dict) else value
        for name, value in OVERRIDES.items()
    }
    changed |= {"out": str(out / "sweep"), "benchmark": str(out / "benchmark"), "engines": [config.engine]}
    if config.quick:
        changed |= {"models": ["deepseek-coder-6.7b-base"], "tasks": [3]}
    return replace(sweep, **changed)


def words_of(job: Job, part: int) -> list[str]:
    """The command line of one element of a job's array."""
    return [word.replace(SHARD, str(part)) for word in job.words]


def run(script: str, *words: str) -> None:
    """Runs one of the toolkit's scripts; it has to succeed. Raises JobFailed with what it printed."""
    command = [sys.executable, str(PROJECT_ROOT / script), *words]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    print(f"{done.returncode}  {script} {' '.join(words)}", flush=True)
    if done.returncode != 0:
        raise JobFailed(f"{script} ended with {done.returncode}: {(done.stderr or done.stdout)[-2000:]}")


if __name__ == "__main__":
    run_script(PaperSweepConfig, main)
