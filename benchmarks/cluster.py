"""Sampling and evaluating 260 rows × 5 candidates: one process, against 8 shards on three nodes of a Slurm.

    python benchmarks/cluster.py

The nodes are all on this machine and share its cores: what is measured is what shards and the queue cost, not
what nodes of one's own gain. Needs Debian's slurm-wlm and munge.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path

import yaml

from benchmarks.measuring import print_result, print_table, seconds_of
from mlbench_data.bad_input import BadInput
from mlbench_data.cli import run_script
from mlbench_data.files import PROJECT_ROOT, make_folder, write_text
from mlbench_data.rows import Row
from mlbench_data.sources import default_benchmark
from slurm.toy_cluster import PROGRAMS, Cluster, program

REPOSITORIES = "mlbench_data/mini/repositories"
SHARDS = 8


@dataclass(frozen=True)
class ClusterBenchmarkConfig:
    """How much is sampled."""

    rows: int = 260
    """Rows, as many as the published benchmark tests."""
    model: str = "smollm2-135m"
    """What samples them, in task 3."""
    quick: bool = False
    """Two new tokens a candidate instead of 48: what remains is the price of starting."""
    out: str = "runs/benchmarks/cluster"
    """Folder for everything that is made; what was there is removed."""


def main(config: ClusterBenchmarkConfig) -> int:
    """Sampling and evaluating rows: one process, against shards on a toy Slurm."""
    if lacking := [name for name in PROGRAMS if program(name) is None]:
        raise BadInput(f"there is no {lacking[0]} here; install Debian's slurm-wlm and munge")
    out = Path(config.out).resolve()
    shutil.rmtree(out, ignore_errors=True)
    make_folder(out)
    benchmark = build_benchmark(out, config.rows)
    tokens = 2 if config.quick else 48
    sweep = write_sweep(out, benchmark, config.model, tokens)
    cluster = Cluster(Path(tempfile.mkdtemp(prefix="slurm-")))
    try:
        cluster.start()
        on_slurm, _ = seconds_of(lambda: run_sweep(cluster, sweep))
        stages = stage_seconds(cluster)
    finally:
        cluster.stop()
        shutil.rmtree(cluster.folder, ignore_errors=True)
    cell = next(path for path in (out / "sweep").iterdir() if (path / "candidates.jsonl").exists())
    asked = ["--model", config.model, "--task", "3", "--max_new_tokens", str(tokens)]
    data = ["--benchmark", str(benchmark)]
    sampling, _ = seconds_of(lambda: run("infer/generate.py", *asked, *data, "--out", out / "alone.jsonl"))
    evaluated = ["--candidates", cell / "candidates.jsonl", "--repositories", REPOSITORIES]
    evaluating, _ = seconds_of(lambda: run("eval/run.py", *evaluated, *data, "--out", out / "results"))
    same = verdicts(cell / "results" / "all") == verdicts(out / "results")
    print_table(
        ("seconds", "one process", f"{SHARDS} shards on 3 nodes"),
        [
            ("sampling", sampling, stages["generate"] + stages["join"]),
            ("evaluating", evaluating, stages["eval"] + stages["collect"]),
            ("all, with the queue", sampling + evaluating, on_slurm),
        ],
    )
    cores = len(os.sched_getaffinity(0))
    ratio = (sampling + evaluating) / on_slurm
    print_result(
        "cluster", [ratio], same_answer=same, rows=config.rows, candidates=5, shards=SHARDS, cores=cores
    )
    return 0 if same else 1


def build_benchmark(out: Path, count: int) -> Path:
    """MiniBench's test rows and so many of its training rows that there are enough."""
    mini = default_benchmark()
    rows: list[Row] = [*mini.rows("full"), *mini.rows("id_train")][:count]
    if len(rows) < count:
        raise BadInput(f"rows is {count}; MiniBench has {len(rows)}")
    numbered = [asdict(row) | {"id": number} for number, row in enumerate(rows, 1)]
    write_text(out / "rows.jsonl", "".join(json.dumps(row) + "\n" for row in numbered))
    made = out / "benchmark"
    run("mlbench_data/build.py", "--source", out / "rows.jsonl", "--readmes", REPOSITORIES, "--out", made)
    return made


def write_sweep(out: Path, benchmark: Path, model: str, tokens: int) -> Path:
    """The sweep's file: one cell, the model alone in task 3."""
    site = {
        "activate": f"export PATH={Path(sys.executable).parent}:$PATH OMP_NUM_THREADS=1\n",
        "sbatch": {"cpus-per-task": "2", "mem": "3G"},
    }
    sweep = {
        "out": str(out / "sweep"),
        "site": str(out / "site.yaml"),
        "models": [model],
        "trained_on": ["raw"],
        "tasks": [3],
        "shards": SHARDS,
        "benchmark": str(benchmark),
        "generate": {"max_new_tokens": tokens},
        "eval": {"repositories": REPOSITORIES},
    }
    for name, values in (("site", site), ("sweep", sweep)):
        write_text(out / f"{name}.yaml", yaml.safe_dump(values))
    return out / "sweep.yaml"


def run_sweep(cluster: Cluster, sweep: Path) -> None:
    """Submits, and waits for the end."""
    command = [sys.executable, "slurm/submit.py", "--config", str(sweep)]
    subprocess.run(command, cwd=PROJECT_ROOT, env=cluster.environment, check=True)
    while cluster.say("squeue", "--noheader"):
        time.sleep(0.5)


def stage_seconds(cluster: Cluster) -> dict[str, float]:
    """From the first start to the last end of each stage's jobs."""
    times: dict[str, list[float]] = {}
    for line in cluster.say("squeue", "--noheader", "--states=all", "--format=%j %S %e").splitlines():
        name, begin, end = line.split()
        stage = name.rpartition(".")[2]
        times.setdefault(stage, []).extend(datetime.fromisoformat(text).timestamp() for text in (begin, end))
    return {stage: max(found) - min(found) for stage, found in times.items()}


def run(script: str, *arguments: object) -> None:
    """Runs one of the toolkit's scripts; it has to succeed."""
    command = [sys.executable, script, *map(str, arguments)]
    subprocess.run(command, cwd=PROJECT_ROOT, check=True, stdin=subprocess.DEVNULL)


def verdicts(results: Path) -> list[object]:
    """What became of every candidate."""
    lines = (results / "results.jsonl").read_text(encoding="utf-8").splitlines()
    return [
        [line["github_id"], line["id"], line["candidate"], line["status"]] for line in map(json.loads, lines)
    ]


if __name__ == "__main__":
    run_script(ClusterBenchmarkConfig, main)
