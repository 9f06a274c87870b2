"""Evaluates candidates: checks every answer, runs those that may pass in a sandbox, prints the scores.

    python eval/run.py --candidates runs/candidates/NAME.jsonl --out runs/results/NAME

What is finished is kept: the same command continues a stopped run, and runs again only what has changed.
"""

import json
import os
import re
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from eval.candidates import Candidates, gold_candidates, read_candidates
from eval.checkouts import find_checkouts
from eval.checks import Mode
from eval.environments import DEFAULT, Environment, read_environments
from eval.evaluation import Evaluation
from eval.execution import Runner
from eval.report import read_run, write_report
from eval.results import Result
from eval.sandbox.apptainer import Apptainer
from eval.sandbox.bubblewrap import Bubblewrap
from eval.sandbox.container import Container
from eval.sandbox.interface import Limits, Sandbox
from eval.sandbox.unsandboxed import Unsandboxed
from eval.summary import summarise
from eval.table import table
from mlbench_data.bad_input import BadInput
from mlbench_data.benchmark import Benchmark
from mlbench_data.cli import resolved, run_script, versions
from mlbench_data.files import (
    PROJECT_ROOT,
    claim,
    make_folder,
    sha256_of,
    sha256_of_file,
    write_json,
    write_text,
)
from mlbench_data.rows import Row, read_rows
from mlbench_data.sources import benchmark_named

MINI_REPOSITORIES = PROJECT_ROOT / "mlbench_data" / "mini" / "repositories"
_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "KI": 1 << 10, "MI": 1 << 20, "GI": 1 << 30}


@dataclass(frozen=True)
class EvalConfig:
    """What to evaluate, by which rules, and within which limits."""

    candidates: str = "runs/candidates/smollm2-135m-task3-full.jsonl"
    """File of answers, one row a line, as infer/generate.py writes it. Not read with --gold."""
    benchmark: str = "mini"
    """mini (embedded), or the folder of a prepared benchmark."""
    rows: str | None = None
    """FILE.jsonl with rows, instead of a benchmark."""
    split: str = "full"
    """Which split of the benchmark the candidates are for. A file of rows has none."""
    out: str | None = None
    """Folder for results.jsonl, summary.json and report.html. Default: runs/results/NAME, NAME that of the
    candidates file, or gold."""
    mode: Mode = "strict"
    """strict: answers are parsed, values compared as values. paper: the published rules (substrings, and a
    timeout passes)."""
    execute: bool = True
    """Run what passes the checks. false: passing the checks counts, and nothing is run."""
    gold: bool = False
    """The rows' own answers are the candidates."""
    repositories: str | None = None
    """Folder of checkouts, DIR/REPOSITORY. Default: MiniBench's own."""
    any_commit: bool = False
    """Run in the paper's repositories as they are, even if they are not at their pinned commits."""
    sandbox: Literal["bubblewrap", "docker", "podman", "apptainer"] = "bubblewrap"
    """What runs candidates. bubblewrap: this machine's programs; the others: an image's, in containers."""
    image: str | None = None
    """The image for containers, which must be there already; for apptainer its file. Not needed for
    repositories that have one in --environments."""
    python: str | None = None
    """The interpreter that python means to candidates. Default: this one; in containers, the image's own."""
    environments: str | None = None
    """FILE.yaml: interpreter, variables, preparation and time of repositories: see eval/environments.py."""
    preload: list[str] = field(default_factory=lambda: ["numpy", "torch"])
    """Modules that python candidates find imported already, as if they had not been: they start from a fork.
    None of them is needed, and [] gives every candidate a fresh interpreter. Containers always do."""
    timeout: float = 60.0
    """Wall-clock seconds for one candidate."""
    memory: str = "2GiB"
    """Memory for one candidate with all its processes, such as 512MiB or 2GiB."""
    cores: float = 1.0
    """Processor cores for one candidate with all its processes, where control groups can limit them."""
    workers: int = len(os.sched_getaffinity(0))
    """How many candidates run at a time. Default: the number of processors."""
    allow_unsandboxed: bool = False
    """Where bubblewrap does not work, run candidates without a sandbox. They can then do all that you can."""


def main(config: EvalConfig) -> int:
    """Evaluates candidates: checks every answer, runs those that may pass in a sandbox, prints the scores."""
    started = time.monotonic()
    benchmark, rows = _benchmark_and_rows(config)
    candidates = _candidates(config, rows, benchmark)
    runner = _runner(config, benchmark, rows) if config.execute else None
    out = make_folder(
        config.out or Path("runs/results", "gold" if config.gold else Path(config.candidates).stem)
    )
    claim(out)

    results = Evaluation(config.mode, runner, out / "results.jsonl").grade(rows, candidates, "evaluating")
    key_results = results
    if not config.gold:
        key_file = Evaluation(config.mode, runner, out / "gold.jsonl")
        key_results = key_file.grade(rows, gold_candidates(rows), "evaluating the answer key")

    summary = {
        **summarise(rows, results, config.mode, executed=config.execute),
        **_ceiling(rows, key_results, config),
        "gold": config.gold,
        "sampled": candidates.sampled,
        "sandbox": runner.sandbox.describe() if runner else None,
        "limits": asdict(runner.limits) if runner else None,
        "checkouts": _checkouts(runner) if runner else None,
        "config": resolved(config),
        "inputs": _inputs(config, rows, benchmark),
        "versions": versions(),
        "seconds": round(time.monotonic() - started, 3),
    }
    write_text(out / "rows.jsonl", _as_jsonl(rows))
    write_json(out / "summary.json", summary)
    write_report([read_run(out)], out / "report.html")
    print(table(summary))
    _print_warnings(summary, rows, results, key_results)
    print(f"\nresults, summary.json and report.html are in {out}")
    return 1 if any(result.status == "infrastructure" for result in [*results, *key_results]) else 0


def _benchmark_and_rows(config: EvalConfig) -> tuple[Benchmark | None, list[Row]]:
    """The rows to evaluate, and the benchmark that they are from; None with a file of rows."""
    if config.rows is None:
        benchmark = benchmark_named(config.benchmark)
        return benchmark, benchmark.rows(config.split)
    if config.benchmark != "mini":
        raise BadInput(
            f"both --benchmark {config.benchmark} and --rows {config.rows} given; give one of them"
        )
    return None, read_rows(config.rows)


def _candidates(config: EvalConfig, rows: list[Row], benchmark: Benchmark | None) -> Candidates:
    if config.gold:
        return gold_candidates(rows)
    return read_candidates(config.candidates, rows, benchmark.sha256 if benchmark else None)


def _runner(config: EvalConfig, benchmark: Benchmark | None, rows: list[Row]) -> Runner:
    if config.repositories is not None:
        repositories = Path(config.repositories).resolve()
    elif benchmark is not None and benchmark.manifest["source"] == "mini":
        repositories = MINI_REPOSITORIES
    else:
        raise BadInput(
            "running candidates needs the repositories: give --repositories DIR with checkouts as "
            "DIR/REPOSITORY, or --execute false to only check them"
        )
    if not repositories.is_dir():
        raise BadInput(f"--repositories {repositories}: no such folder; expected checkouts as DIR/REPOSITORY")
    if config.timeout <= 0:
        raise BadInput(f"--timeout {config.timeout:g}: must be more than 0 seconds")
    if config.workers < 1:
        raise BadInput(f"--workers {config.workers}: must be at least 1")
    if config.cores <= 0:
        raise BadInput(f"--cores {config.cores:g}: must be more than 0")
    limits = Limits(seconds=config.timeout, memory=parse_memory(config.memory), cores=config.cores)
    environments = read_environments(config.environments)
    used = {row.repository: environments.get(row.repository.lower(), DEFAULT) for row in rows}
    sandbox = _sandbox(config, used)
    return Runner(
        sandbox=sandbox,
        limits=limits,
        repositories=repositories,
        checkouts=find_checkouts(repositories, rows, any_commit=config.any_commit),
        python=_python(config, sandbox),
        workers=config.workers,
        environments=environments,
    )


def parse_memory(text: str) -> int:
    """Bytes of a size such as 2GiB, 512MiB, 1.5GB or 1000000. Raises BadInput."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMG]I?|)B?", text.strip().upper())
    if not found or not float(found[1]):
        raise BadInput(f"--memory {text}: not a size; expected a number with KiB, MiB or GiB, such as 2GiB")
    return int(float(found[1]) * _UNITS[found[2]])


def _python(config: EvalConfig, sandbox: Sandbox) -> Path | None:
    """What python means where an environment says nothing else; None if all have an image of their own."""
    if config.sandbox != "bubblewrap" and config.image is None:
        return None
    python = sandbox.find_python(config.python)
    if python is None:
        what = f"{config.python or 'python'}: no such program{f' in {config.image}' if config.image else ''}"
        raise BadInput(f"--python {what}; give the path of a python interpreter")
    return python


def _sandbox(config: EvalConfig, used: dict[str, Environment]) -> Sandbox:
    """The sandbox that was asked for, for repositories with these environments."""
    images = {name: environment.image for name, environment in used.items() if environment.image is not None}
    if config.sandbox == "bubblewrap":
        return _bubblewrap(config, images)
    if config.allow_unsandboxed:
        raise BadInput(f"--allow_unsandboxed with --sandbox {config.sandbox}: only containers have the image")
    without = sorted(used.keys() - images.keys())
    if config.image is None and without:
        raise BadInput(
            f"--sandbox {config.sandbox} needs an image: give --image NAME, or image: NAME of {without[0]} "
            "in --environments"
        )
    if config.image is None and config.python is not None:
        raise BadInput(f"--python {config.python}: give --image too, whose interpreter it is")
    if config.sandbox == "apptainer":
        return Apptainer(config.image, sorted(images.values()))
    return Container(config.sandbox, config.image, sorted(images.values()))


def _bubblewrap(config: EvalConfig, images: dict[str, str]) -> Sandbox:
    """Bubblewrap; where it does not work and the user allows that, no sandbox."""
    if config.image is not None:
        raise BadInput(f"--image {config.image}: bubblewrap has no images; give --sandbox docker or another")
    if images:
        name, image = next(iter(images.items()))
        raise BadInput(
            f"{config.environments}: {name}: image is {image}, and bubblewrap has no images; "
            "give --sandbox docker or another"
        )
    try:
        return Bubblewrap(config.preload)
    except BadInput as error:
        if not config.allow_unsandboxed:
            raise
        print(f"WARNING: {error}\nWARNING: candidates run without a sandbox", file=sys.stderr)
        return Unsandboxed()


def _ceiling(rows: list[Row], key_results: list[Result], config: EvalConfig) -> dict[str, Any]:
    """The share of rows whose published answer passes under the same rules, in total and in detail."""
    numbers = summarise(rows, key_results, config.mode, executed=config.execute)
    by_repository = {
        name: part["pass_at_k"]["1"]["first_k"] for name, part in numbers["per_repository"].items()
    }
    kept = ("status", "checks", "passed_by_timeout", "lower_bound", "parameter_hit_precision")
    return {
        "ceiling": numbers["pass_at_k"]["1"]["first_k"],
        "ceiling_detail": {**{name: numbers[name] for name in kept}, "per_repository": by_repository},
    }


def _inputs(config: EvalConfig, rows: list[Row], benchmark: Benchmark | None) -> dict[str, str | None]:
    """Hashes of what was evaluated."""
    return {
        "rows_sha256": sha256_of([row.as_dict() for row in rows]),
        "benchmark_sha256": benchmark.sha256 if benchmark else None,
        "candidates_sha256": None if config.gold else sha256_of_file(config.candidates),
    }


def _checkouts(runner: Runner) -> dict[str, Any]:
    """Which commit and which files every repository had; None where there was no checkout."""
    return {
        name: found and {"commit": found.commit, "content": found.content, "proven": found.proven}
        for name, found in runner.checkouts.items()
    }


def _as_jsonl(rows: list[Row]) -> str:
    return "".join(json.dumps(row.as_dict(), ensure_ascii=False) + "\n" for row in rows)


def _print_warnings(
    summary: dict[str, Any], rows: list[Row], results: list[Result], key_results: list[Result]
) -> None:
    """What a reader of the scores must know, on stderr."""
    if summary["missing_candidates"]:
        without = {result.key for result in results} - {
            result.key for result in results if result.code is not None
        }
        print(
            f"WARNING: {summary['missing_candidates']} of {summary['candidates']} candidates are missing "
            f"({len(without)} of {len(rows)} rows have none); they count as not passed",
            file=sys.stderr,
        )
    for name, part in (("candidates", results), ("answers of the key", key_results)):
        broken = [result for result in part if result.status == "infrastructure"]
        if broken:
            print(
                f"INFRASTRUCTURE: {len(broken)} {name} could not be run, so the score is a lower bound; "
                f"run the same command again. First: {broken[0].detail}",
                file=sys.stderr,
            )


if __name__ == "__main__":
    run_script(EvalConfig, main)
