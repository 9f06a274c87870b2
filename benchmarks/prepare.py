"""Preparing many rows for tasks 1 to 3 against rendering and tokenizing every prompt as a whole.

python benchmarks/prepare.py --readmes checkouts --rows rows.jsonl
"""

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import psutil
import pyarrow.parquet as pq

from benchmarks.bm25 import readme_pages
from benchmarks.measuring import print_result, print_table
from benchmarks.reference.prompts import prompt_ids
from mlbench_data.bad_input import BadInput
from mlbench_data.benchmark import Benchmark, Readmes, write_benchmark
from mlbench_data.cli import run_script
from mlbench_data.files import PROJECT_ROOT
from mlbench_data.models import load_tokenizer, resolve_model
from mlbench_data.prompts import TaskNumber, readme_for
from mlbench_data.rows import Row, read_rows
from mlbench_data.template import read_template

TASKS: tuple[TaskNumber, ...] = (1, 2, 3)
ANSWER_TOKENS = 256


@dataclass(frozen=True)
class PrepareBenchmarkConfig:
    """How many rows, of what, and how they are prepared."""

    count: int = 10_000
    """Rows to prepare, each for three tasks."""
    naive: int = 10_000
    """Of these, rows that are also prepared the plain way, in one process."""
    workers: int = 2
    """Processes of ours."""
    model: str = "smollm2-135m"
    """Whose tokenizer; it must have a chat template."""
    readmes: str = "../shared/data/readmes"
    """Folder of README pages as REPOSITORY/README.md."""
    rows: str = "../shared/data/mlbench/rows.jsonl"
    """Rows whose instructions and segments are drawn."""
    quick: bool = False
    """2,000 rows, 500 of them the plain way too."""


@dataclass(frozen=True)
class Run:
    """One run of mlbench_data/prepare.py: seconds, and the most memory of its processes together, in MiB."""

    seconds: float
    memory: float


def main(config: PrepareBenchmarkConfig) -> int:
    """Preparing many rows for tasks 1 to 3 against rendering and tokenizing every prompt as a whole."""
    if config.quick:
        config = replace(config, count=2_000, naive=500)
    with tempfile.TemporaryDirectory() as folder:
        benchmark = make_benchmark(config, Path(folder) / "benchmark")
        out = Path(folder) / "prepared"
        ours = run_prepare(config, benchmark, out, config.workers)
        single = run_prepare(config, benchmark, Path(folder) / "single", 1)
        same_bytes = files_of(out) == files_of(Path(folder) / "single")
        naive, identical = naive_seconds(config, benchmark, out)
    prompts, compared = config.count * len(TASKS), min(config.naive, config.count) * len(TASKS)
    scaled = naive * prompts / compared
    print_table(
        ("way", "prompts", "seconds", "prompts/s", "most memory, MiB"),
        [
            ("plain, one process", compared, naive, compared / naive, "–"),
            ("ours, one process", prompts, single.seconds, prompts / single.seconds, f"{single.memory:.0f}"),
            (
                f"ours, {config.workers} processes",
                prompts,
                ours.seconds,
                prompts / ours.seconds,
                f"{ours.memory:.0f}",
            ),
        ],
    )
    files = "byte-identical" if same_bytes else "DIFFERENT"
    print(f"\n{identical} of {compared} prompts have identical tokens")
    print(f"the files of 1 and of {config.workers} processes are {files}")
    print_result(
        "prepare",
        [scaled / single.seconds, scaled / ours.seconds],
        same_answer=identical == compared and same_bytes,
        rows=config.count,
        seconds=round(ours.seconds, 1),
        memory_mib=round(ours.memory),
    )
    return 0 if identical == compared and same_bytes else 1


def make_benchmark(config: PrepareBenchmarkConfig, out: Path) -> Benchmark:
    """`count` rows over the real READMEs: the real rows in turn, numbered, so that all prompts differ."""
    pages = readme_pages(Path(config.readmes))
    real = [row for row in read_rows(config.rows) if row.repository in pages]
    if not real:
        raise BadInput(f"{config.rows}: no row of {', '.join(sorted(pages))}")
    rows = [numbered(real[number % len(real)], number) for number in range(config.count)]
    readmes = Readmes({row.github_id: pages[row.repository] for row in real})
    return write_benchmark(out, {"id_train": rows}, readmes, {"source": config.rows})


def numbered(row: Row, number: int) -> Row:
    """A row with another id and another instruction."""
    return replace(row, id=number, instruction=f"{row.instruction} Name the run run-{number}.")


def run_prepare(config: PrepareBenchmarkConfig, benchmark: Benchmark, out: Path, workers: int) -> Run:
    """Runs the script as a user does."""
    source = ["--benchmark", str(benchmark.folder), "--split", "id_train", "--model", config.model]
    settings = ["--answer_tokens", str(ANSWER_TOKENS), "--workers", str(workers), "--out", str(out)]
    command = [sys.executable, "mlbench_data/prepare.py", *source, *settings]
    started = time.perf_counter()
    process = subprocess.Popen(command, cwd=PROJECT_ROOT, stderr=subprocess.DEVNULL)
    most = max(memory_of(process), default=0.0)
    if process.returncode != 0:
        raise BadInput(f"{' '.join(command)}: stopped with exit code {process.returncode}")
    return Run(time.perf_counter() - started, most / 2**20)


def memory_of(process: subprocess.Popen) -> Iterator[float]:
    """Bytes held by a process and its children, twice a second; pages that they share count once."""
    while process.poll() is None:
        try:
            parent = psutil.Process(process.pid)
            yield sum(item.memory_full_info().pss for item in [parent, *parent.children(recursive=True)])
        except psutil.Error:
            pass  # one of them has just ended
        time.sleep(0.5)


def naive_seconds(config: PrepareBenchmarkConfig, benchmark: Benchmark, out: Path) -> tuple[float, int]:
    """Seconds for the plain way, finding the windows of task 2 not counted, and how many prompts are ours."""
    model = resolve_model(config.model)
    tokenizer, template = load_tokenizer(model), read_template(None)
    rows = benchmark.rows("id_train")[: config.naive]
    seconds, identical = 0.0, 0
    for task in TASKS:
        prepared = prepared_ids(out, task)
        for row in rows:
            readme = readme_for(task, row, benchmark, "id_train")
            started = time.perf_counter()
            ids = prompt_ids(tokenizer, template, readme, row.instruction, model.context, ANSWER_TOKENS)
            seconds += time.perf_counter() - started
            identical += ids == next(prepared)
    return seconds, identical


def prepared_ids(out: Path, task: TaskNumber) -> Iterator[list[int]]:
    """The prompts of one task as our script wrote them."""
    starts = pq.read_table(out / "starts.parquet")["tokens"]
    for batch in pq.ParquetFile(out / f"task{task}.parquet").iter_batches():
        for line in batch.to_pylist():
            yield starts[line["start"]].as_py()[: line["start_tokens"]] + line["tokens"]


def files_of(folder: Path) -> dict[str, bytes]:
    """Every file of a folder with its content."""
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


if __name__ == "__main__":
    run_script(PrepareBenchmarkConfig, main)
