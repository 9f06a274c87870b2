"""Grades saved results again, compares them, and writes one HTML page that needs nothing else. Runs nothing.

python eval/report.py runs/results/A runs/results/B --out report.html
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from eval.checks import MODES, Mode
from eval.errors import error_class
from eval.grading import STATUSES, grade
from eval.results import Result, read_results
from eval.summary import summarise
from eval.table import share
from mlbench_data.bad_input import BadInput
from mlbench_data.cli import run_script
from mlbench_data.files import read_json, write_text
from mlbench_data.rows import Row, RowKey, read_rows

ERROR_CLASSES = {
    "E1": "hallucination: another kind of output, an invented file or API",
    "E2": "lack of knowledge: missing parameter, unknown option, wrong choice, missing path",
    "E3": "knowledge manipulation: values that had to be combined were not",
    "E4": "syntax: undefined names and syntax errors",
}


@dataclass(frozen=True)
class ReportConfig:
    """Which results to show, and where."""

    results: list[str] = field(default_factory=list, metadata={"positional": True})
    """Folders that eval/run.py wrote, named without a flag. Default: all below runs/results."""
    out: str = "report.html"
    """The page to write."""


@dataclass(frozen=True)
class Run:
    """One folder of results, graded again under both modes. `mode` is the one it was run with."""

    name: str
    mode: Mode
    executed: bool
    seconds: float
    rows: list[Row]
    results: dict[Mode, list[Result]]
    summaries: dict[Mode, dict[str, Any]]
    ceilings: dict[Mode, dict[str, Any]]


def main(config: ReportConfig) -> int:
    """Grades saved results again, compares them, and writes one HTML page. Runs nothing."""
    folders = [Path(name) for name in config.results] or sorted(
        path.parent for path in Path("runs/results").glob("*/summary.json")
    )
    if not folders:
        raise BadInput("no results below runs/results; name folders that eval/run.py wrote")
    write_report(folders, Path(config.out))
    print(f"compared {len(folders)} in {config.out}")
    return 0


def write_report(folders: list[Path], out: Path) -> None:
    """The page that compares the results in the folders. Raises BadInput for a folder that is no result."""
    runs = [read_run(folder) for folder in folders]
    page = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    ).get_template("report_page.html.jinja")
    try:
        write_text(
            out,
            page.render(
                runs=runs,
                repositories=list(dict.fromkeys(row.repository for run in runs for row in run.rows)),
                statuses=[*STATUSES, "not_run"],
                error_classes=ERROR_CLASSES,
                rows=list(_rows(runs)),
                share=share,
            ),
        )
    except OSError as error:
        raise BadInput(f"{out}: cannot write there ({error.strerror}); give a writable --out") from error


def read_run(folder: Path) -> Run:
    """Reads a results folder and grades it under both modes. Raises BadInput."""
    summary = read_json(folder / "summary.json", "the summary of a finished evaluation by eval/run.py")
    try:
        mode, executed, gold = summary["mode"], summary["executed"], summary["gold"]
        expected, seconds = summary["candidates"], summary["seconds"]
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
    key_results = results if gold else read_results(folder / "gold.jsonl")
    graded = {mode: list(regrade(rows, results, mode, executed=executed)) for mode in MODES}
    keys = {mode: list(regrade(rows, key_results, mode, executed=executed)) for mode in MODES}
    return Run(
        name=folder.resolve().name,
        mode=mode,
        executed=executed,
        seconds=seconds,
        rows=rows,
        results=graded,
        summaries={mode: summarise(rows, graded[mode], mode, executed=executed) for mode in MODES},
        ceilings={mode: summarise(rows, keys[mode], mode, executed=executed) for mode in MODES},
    )


def regrade(rows: list[Row], results: list[Result], mode: Mode, *, executed: bool) -> Iterator[Result]:
    """The results under a mode, from the stored checks and outcomes.

    A candidate that passes this mode's checks but was never run, because it failed those of the mode that
    it was evaluated with, becomes `not_run`: not passed as far as anyone knows.
    """
    by_key = {row.key: row for row in rows}
    for result in results:
        check = result.checks[mode]
        status, stage = grade(
            result.code, check, mode, execute=executed, ending=result.ending, exit_code=result.exit_code
        )
        yield replace(
            result,
            status=status,
            stage=stage,
            type_ok=check.type_ok,
            parameters_ok=check.parameters_ok,
            error_class=error_class(by_key[result.key], status, result.code, check.missing, result.stderr),
        )


@dataclass(frozen=True)
class Answer:
    """Equal candidates of one run to one row. `numbers` count from 1."""

    run: int
    numbers: list[int]
    result: Result
    missing: dict[str, str]


@dataclass(frozen=True)
class RowAnswers:
    """One row and what every run answered to it."""

    row: Row
    required: dict[str, str]
    answers: list[Answer]


def _rows(runs: list[Run]) -> Iterator[RowAnswers]:
    """Every row of any run, in the order in which the runs bring them up."""
    rows: dict[RowKey, Row] = {}
    answers: dict[RowKey, list[Answer]] = {}
    for position, run in enumerate(runs):
        rows.update({row.key: row for row in run.rows if row.key not in rows})
        for key, results in groupby(run.results[run.mode], lambda result: result.key):
            required = rows[key].parameters()
            same: dict[tuple[str | None, str], list[Result]] = {}
            for result in results:
                same.setdefault((result.code, result.status), []).append(result)
            for group in same.values():
                missing = {name: required[name] for name in group[0].checks[run.mode].missing}
                numbers = [result.candidate + 1 for result in group]
                answers.setdefault(key, []).append(Answer(position, numbers, group[0], missing))
    for key, row in rows.items():
        yield RowAnswers(row, row.parameters(), answers[key])


if __name__ == "__main__":
    run_script(ReportConfig, main)
