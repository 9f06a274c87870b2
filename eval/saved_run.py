"""A folder of results that eval/run.py has left, read and graded again under both modes."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from eval.checks import MODES, Mode
from eval.errors import error_of
from eval.grading import grade
from eval.results import Result, read_results
from eval.summary import summarise
from mlbench_data.bad_input import BadInput
from mlbench_data.files import read_json
from mlbench_data.rows import Row, read_rows


@dataclass(frozen=True)
class Run:
    """One folder of results, graded again under both modes. `mode` is the one it was run with, `sampled` says
    how its candidates were made and `context` how many tokens their model read, if that is known.
    """

    name: str
    mode: Mode
    executed: bool
    sampled: str
    context: int | None
    rows: list[Row]
    results: dict[Mode, list[Result]]
    summaries: dict[Mode, dict[str, Any]]
    ceilings: dict[Mode, dict[str, Any]]


def read_run(folder: Path) -> Run:
    """Reads a results folder and grades it under both modes. Raises BadInput."""
    summary = read_json(folder / "summary.json", "the summary of a finished evaluation by eval/run.py")
    try:
        mode, executed, gold = summary["mode"], summary["executed"], summary["gold"]
        expected = summary["candidates"]
        if mode not in MODES:
            raise KeyError(f"mode {mode!r}")
    except (TypeError, KeyError) as error:
        raise BadInput(
            f"{folder / 'summary.json'}: no {error}; expected the summary of eval/run.py"
        ) from error
    rows = read_rows(folder / "rows.jsonl")
    results = read_results(folder / "results.jsonl")
    if len(results) != expected:
        raise BadInput(
            f"{folder / 'results.jsonl'}: {len(results)} results where summary.json says {expected}; "
            "the evaluation is unfinished: run the same command again"
        )
    _check_keys(rows, results, folder / "results.jsonl")
    if executed and any(_was_left_out(result) for result in results):
        raise BadInput(
            f"{folder}: candidates that may pass in the other mode were not run; evaluate them again"
        )
    key_results = results if gold else read_results(folder / "gold.jsonl")
    _check_keys(rows, key_results, folder / "gold.jsonl")
    graded = {mode: list(regrade(rows, results, mode, executed=executed)) for mode in MODES}
    keys = {mode: list(regrade(rows, key_results, mode, executed=executed)) for mode in MODES}
    return Run(
        name=name_of(folder.resolve()),
        mode=mode,
        executed=executed,
        sampled=_sampled(summary.get("sampled")),
        context=_context(summary.get("sampled")),
        rows=rows,
        results=graded,
        summaries={mode: summarise(rows, graded[mode], mode, executed=executed) for mode in MODES},
        ceilings={mode: summarise(rows, keys[mode], mode, executed=executed) for mode in MODES},
    )


def name_of(folder: Path) -> str:
    """What a run is called: its folder, or in a sweep its cell: CELL/results/all is of all its shards."""
    return folder.parents[1].name if folder.parts[-2:] == ("results", "all") else folder.name


def _sampled(identity: Any) -> str:
    """What made the candidates, in few words; empty if their file did not say."""
    if not isinstance(identity, dict):
        return ""
    adapter = Path(identity["adapter"]).name if isinstance(identity.get("adapter"), str) else None
    task = f"task {identity['task']}" if "task" in identity else None
    temperature = f"temperature {identity['temperature']}" if "temperature" in identity else None
    return ", ".join(str(part) for part in (identity.get("model"), adapter, task, temperature) if part)


def _context(identity: Any) -> int | None:
    """The tokens of prompt and answer that the candidates' model could read."""
    context = identity.get("context") if isinstance(identity, dict) else None
    return context if isinstance(context, int) else None


def _check_keys(rows: list[Row], results: list[Result], path: Path) -> None:
    """Raises BadInput unless there are equally many results for every row, with parameters that it has."""
    by_key = {row.key: row for row in rows}
    for result in results:
        row = by_key.get(result.key)
        unknown = row is None or {
            name for check in result.checks.values() for name in check.missing if name not in row.parameters()
        }
        if unknown or result.checks.keys() != set(MODES):
            raise BadInput(
                f"{path}: result {result.github_id}/{result.id} does not fit rows.jsonl; evaluate again"
            )
    if len(set(Counter(result.key for result in results).values())) != 1 or len(
        {result.key for result in results}
    ) != len(rows):
        raise BadInput(f"{path}: not equally many results for every row; evaluate again")


def _was_left_out(result: Result) -> bool:
    return result.ending is None and any(check.ok for check in result.checks.values())


def regrade(rows: list[Row], results: list[Result], mode: Mode, *, executed: bool) -> Iterator[Result]:
    """The results under a mode, from the stored checks and outcomes: what may pass in either mode was run."""
    by_key = {row.key: row for row in rows}
    for result in results:
        check = result.checks[mode]
        status, stage = grade(
            result.code, check, mode, execute=executed, ending=result.ending, exit_code=result.exit_code
        )
        error = error_of(by_key[result.key], status, result.code, check.missing, result.stderr)
        yield replace(
            result,
            status=status,
            stage=stage,
            type_ok=check.type_ok,
            parameters_ok=check.parameters_ok,
            error_class=error.kind if error else None,
            evidence=error.evidence if error else "",
        )
