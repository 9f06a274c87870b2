"""Running candidates, forked and sandboxed, against the reference's way; and what the sandbox costs.

    python benchmarks/sandbox.py

Not called eval.py, which would stand before the package `eval` in the script's own folder.
"""

import statistics
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.measuring import print_result, print_table, seconds_of
from benchmarks.reference.sandbox import run_serially
from eval.sandbox.bubblewrap import Bubblewrap
from eval.sandbox.interface import Limits, Program
from mlbench_data.cli import run_script

LIMITS = Limits()
PYTHON = Path(sys.executable)
TORCH = (
    "import torch\nassert torch.full(({0} + 1,), 1.0).sum() == {0} + 1\nprint('candidate {0} of row {1}')\n"
)


@dataclass(frozen=True)
class SandboxBenchmarkConfig:
    """How much is run, and how often."""

    rows: int = 24
    """Rows whose candidates are python programs that import torch."""
    candidates: int = 5
    """Candidates of each row, all of them different."""
    commands: int = 100
    """Bash candidates that do nothing."""
    workers: int = 2
    """Candidates that run at a time."""
    repeats: int = 3
    """How often each side is timed, in turn."""
    quick: bool = False
    """Six rows, once: under two minutes."""


def main(config: SandboxBenchmarkConfig) -> int:
    """Running candidates: forked and sandboxed against the reference's way, and what the sandbox costs."""
    if config.quick:
        config = replace(config, rows=6, repeats=1)
    numbers = [(number, row) for row in range(config.rows) for number in range(config.candidates)]
    programs = [TORCH.format(*pair) for pair in numbers]
    jobs, empty = [("python", code) for code in programs], [("bash", "true")] * config.commands
    sandbox = Bubblewrap(preload=["numpy", "torch"])
    times: dict[str, list[float]] = {
        "ours": [],
        "reference": [],
        "bash ours": [],
        "bash bare": [],
        "no-op": [],
    }
    same = True
    with tempfile.TemporaryDirectory() as folder:
        checkout = Path(folder)
        run(sandbox, [("python", TORCH.format(0, 0))], checkout, 1)  # starts the fork server
        for _ in range(config.repeats):
            seconds, ours = seconds_of(lambda: run(sandbox, jobs, checkout, config.workers))
            times["ours"].append(seconds)
            seconds, reference = seconds_of(lambda: run_serially(programs, checkout, LIMITS.seconds))
            times["reference"].append(seconds)
            same = same and ours == reference == [True] * len(programs)
            times["bash ours"].append(seconds_of(lambda: run(sandbox, empty, checkout, 1))[0])
            times["bash bare"].append(seconds_of(lambda: bare(config.commands))[0])
            times["no-op"].append(seconds_of(lambda: run(sandbox, empty, checkout, config.workers))[0])
    sandbox.close()
    report(config, times, len(programs), same)
    return 0 if same else 1


def run(sandbox: Bubblewrap, jobs: list[tuple[str, str]], checkout: Path, workers: int) -> list[bool]:
    """Whether each program ended with 0 in the sandbox."""

    def one(job: tuple[str, str]) -> bool:
        kind, code = job
        program = Program(code, "bash" if kind == "bash" else "python", checkout, ".", PYTHON)
        return sandbox.run(program, LIMITS).exit_code == 0

    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(one, jobs))


def bare(times: int) -> None:
    """The same command without any sandbox, one after another."""
    for _ in range(times):
        subprocess.run(["bash", "-e", "-o", "pipefail", "-c", "true"], check=True, capture_output=True)


def report(config: SandboxBenchmarkConfig, times: dict[str, list[float]], programs: int, same: bool) -> None:
    """The table and the line of JSON."""
    middle = {name: statistics.median(found) for name, found in times.items()}
    overhead = 1000 * (middle["bash ours"] - middle["bash bare"]) / config.commands
    print_table(
        ("what", "candidates/s"),
        [
            ("python that imports torch, ours", programs / middle["ours"]),
            ("python that imports torch, reference", programs / middle["reference"]),
            (f"bash that does nothing, {config.workers} workers", config.commands / middle["no-op"]),
        ],
    )
    print(f"the sandbox costs {overhead:.1f} ms a bash candidate over a bare subprocess")
    ratios = [theirs / ours for ours, theirs in zip(times["ours"], times["reference"], strict=True)]
    noop = round(config.commands / middle["no-op"], 1)
    print_result("sandbox", ratios, same_answer=same, overhead_ms=round(overhead, 1), noop_per_second=noop)


if __name__ == "__main__":
    run_script(SandboxBenchmarkConfig, main)
