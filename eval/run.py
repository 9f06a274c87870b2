"""Evaluates candidates: checks every answer, runs those that may pass in a sandbox, prints the scores.

    python eval/run.py --candidates runs/candidates/NAME.jsonl --out runs/results/NAME

What is finished is kept: the same command continues a stopped run, and runs again only what has changed.
"""

import json
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from eval.candidates import Candidates, gold_candidates, read_candidates
from eval.config import EvalConfig
from eval.evaluation import Evaluation
from eval.execution import Runner
from eval.report import write_report
from eval.results import Result
from eval.runner import runner_of
from eval.saved_run import read_run
from eval.summary import summarise
from eval.table import table
from mlbench_data.bad_input import BadInput
from mlbench_data.benchmark import Benchmark
from mlbench_data.cli import resolved, run_script, versions
from mlbench_data.files import (
    claim,
    make_folder,
    read_json,
    sha256_of,
    sha256_of_file,
    write_json,
    write_text,
)
from mlbench_data.rows import Row, read_rows
from mlbench_data.shards import rows_of_shard
from mlbench_data.sources import benchmark_named


def main(config: EvalConfig) -> int:
    """Evaluates candidates: checks every answer, runs those that may pass in a sandbox, prints the scores."""
    started = time.monotonic()
    benchmark, rows = _benchmark_and_rows(config)
    candidates = _candidates(config, rows, benchmark)
    rows = rows_of_shard(rows, config.shard)
    runner = runner_of(config, benchmark, rows) if config.execute else None
    checkouts = _checkouts(runner) if runner else None
    for folder in config.reuse:
        check_same_checkouts(Path(folder), checkouts or {})
    out = make_folder(config.out or default_out(config))
    claim(out)
    check_same_shard(out, config.shard)

    results = _evaluation(config, runner, out, "results.jsonl").grade(rows, candidates, "evaluating")
    key_results = results
    if not config.gold:
        key_file = _evaluation(config, runner, out, "gold.jsonl")
        key_results = key_file.grade(rows, gold_candidates(rows), "evaluating the answer key")

    summary = {
        **summarise(rows, results, config.mode, executed=config.execute),
        **_ceiling(rows, key_results, config),
        "gold": config.gold,
        "sampled": candidates.sampled,
        "sandbox": runner.sandbox.describe() if runner else None,
        "limits": asdict(runner.limits) if runner else None,
        "checkouts": checkouts,
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


def default_out(config: EvalConfig) -> Path:
    """Where results go if nothing is said: a shard's do not replace another's."""
    name = "gold" if config.gold else Path(config.candidates).stem
    shard = "" if config.shard == "0/1" else f"-shard{config.shard.replace('/', 'of')}"
    return Path("runs/results", name + shard)


def check_same_shard(out: Path, shard: str) -> None:
    """Raises BadInput if a folder holds the results of another part of the rows, which would be replaced."""
    if not (out / "summary.json").exists():
        return
    summary = read_json(out / "summary.json", "the summary of a finished evaluation by eval/run.py")
    config = summary.get("config") if isinstance(summary, dict) else None
    before = config.get("shard", "0/1") if isinstance(config, dict) else shard
    if before != shard:
        raise BadInput(f"{out}: holds the results of shard {before}; give another --out for {shard}")


def _evaluation(config: EvalConfig, runner: Runner | None, out: Path, name: str) -> Evaluation:
    """The evaluation whose results go to OUT/NAME, and that uses earlier folders' of that name."""
    return Evaluation(config.mode, runner, out / name, [Path(folder, name) for folder in config.reuse])


def check_same_checkouts(folder: Path, now: dict[str, Any]) -> None:
    """Raises BadInput if earlier results come from other checkouts: together they are no evaluation."""
    summary = read_json(folder / "summary.json", "the summary of a finished evaluation by eval/run.py")
    before = summary.get("checkouts") if isinstance(summary, dict) else None
    if not isinstance(before, dict):
        return
    for name in before.keys() & now.keys():
        if before[name] != now[name]:
            raise BadInput(
                f"{folder}: was run in another state of the checkout {name}; bring the checkout back, or "
                "remove these results and evaluate again"
            )


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
