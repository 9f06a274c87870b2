"""Grades saved results again, compares them, and writes one HTML page that needs nothing else. Runs nothing.

python eval/report.py runs/results/A runs/results/B --out report.html
"""

import base64
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from eval.checks import MODES
from eval.comparison import Comparison, compare
from eval.differences import Piece, differences
from eval.grading import STATUSES, Status
from eval.paper import paper_scores
from eval.results import Result
from eval.saved_run import Run, read_run
from eval.summary import passes_of
from eval.sweep_table import is_sweep, report_sweep
from eval.table import points, share
from mlbench_data.bad_input import BadInput
from mlbench_data.cli import run_script
from mlbench_data.files import write_text
from mlbench_data.rows import Row

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
    """Folders that eval/run.py wrote, named without a flag; the others are compared with the first. Default:
    all below runs/results. Or the folder of one sweep (slurm/submit.py): the paper's Table 1 is filled."""
    out: str = "report.html"
    """The page to write."""


def main(config: ReportConfig) -> int:
    """Grades saved results again, compares them, and writes one HTML page. Runs nothing."""
    folders = [Path(name) for name in config.results] or sorted(
        path.parent for path in Path("runs/results").glob("*/summary.json")
    )
    if not folders:
        raise BadInput("no results below runs/results; name folders that eval/run.py wrote")
    if any(map(is_sweep, folders)):
        if len(folders) > 1:
            raise BadInput("a sweep's folder is reported alone; name it, or folders that eval/run.py wrote")
        return report_sweep(folders[0], Path(config.out))
    runs = [read_run(folder) for folder in folders]
    write_report(runs, Path(config.out))
    for pair in pairs_of(runs):
        print(f"{pair.second.name} against {pair.first.name}, mode {pair.first.mode}: {in_words(pair.found)}")
    compared = {pair.second.name for pair in pairs_of(runs)}
    for run in runs[1:]:
        if run.name not in compared:
            print(f"{run.name} has other rows, mode or execution than {runs[0].name}: not compared with it")
    print(f"{len(runs)} {'run' if len(runs) == 1 else 'runs'} in {config.out}")
    return 0


def write_report(runs: list[Run], out: Path) -> None:
    """The page that compares runs. Raises BadInput if it cannot be written."""
    page = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    ).get_template("report_page.html.jinja")
    script = Path(__file__).with_name("report_page.js").read_text(encoding="utf-8")
    try:
        write_text(
            out,
            page.render(
                runs=runs,
                pairs=list(pairs_of(runs)),
                points=points,
                repositories=list(dict.fromkeys(row.repository for run in runs for row in run.rows)),
                statuses=STATUSES,
                error_classes=ERROR_CLASSES,
                rows=list(_rows(runs)),
                paper=paper_scores(),
                script=script,
                script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
                share=share,
            ),
        )
    except OSError as error:
        raise BadInput(f"{out}: cannot write there ({error.strerror}); give a writable --out") from error


@dataclass(frozen=True)
class Pair:
    """Two runs of the same rows, and how they differ under the mode of both."""

    first: Run
    second: Run
    found: Comparison


def pairs_of(runs: list[Run]) -> Iterator[Pair]:
    """The first run against every other that has the same rows, mode and execution."""
    first, *others = runs
    for second in others:
        if (first.mode, first.executed, first.rows) == (second.mode, second.executed, second.rows):
            one, other = (passes_of(run.rows, run.results[run.mode]) for run in (first, second))
            repositories = [row.repository for row in first.rows]
            yield Pair(first, second, compare(list(one.values()), list(other.values()), repositories))


def in_words(found: Comparison) -> str:
    """A comparison in one line."""
    each = [
        f"Pass@{item.k} {points(item.difference)} ({points(item.interval[0])} to {points(item.interval[1])})"
        for item in found.differences
    ]
    split = f"only it {found.only_second}, only the other {found.only_first}"
    return f"{', '.join(each)}; first candidates: {split}, McNemar p = {found.p_value:.3g}"


@dataclass(frozen=True)
class Answer:
    """Equal candidates of one run to one row. `numbers` count from 1; `other_status` is the other mode's;
    `pieces` are the answer's text and what it lacks of the key's.
    """

    run: int
    numbers: list[int]
    result: Result
    other_status: Status
    missing: dict[str, str]
    pieces: list[Piece]


@dataclass(frozen=True)
class RowAnswers:
    """One row and what every run answered to it."""

    row: Row
    required: dict[str, str]
    answers: list[Answer]


def _rows(runs: list[Run]) -> Iterator[RowAnswers]:
    """Every row of any run, in the order in which the runs bring them up. Rows of equal keys can differ, as
    those of two versions of a benchmark do.
    """
    answers: dict[Row, list[Answer]] = {}
    for position, run in enumerate(runs):
        by_key = {row.key: row for row in run.rows}
        [other] = [mode for mode in MODES if mode != run.mode]
        both = zip(run.results[run.mode], run.results[other], strict=True)
        for key, results in groupby(both, lambda pair: pair[0].key):
            row = by_key[key]
            required = row.parameters()
            same: dict[tuple[str | None, Status, Status], list[Result]] = {}
            for result, elsewhere in results:
                same.setdefault((result.code, result.status, elsewhere.status), []).append(result)
            for (_, _, status), group in same.items():
                missing = {name: required[name] for name in group[0].checks[run.mode].missing}
                numbers = [result.candidate + 1 for result in group]
                pieces = differences(row.output, group[0].code or "")
                answer = Answer(position, numbers, group[0], status, missing, pieces)
                answers.setdefault(row, []).append(answer)
    for row, given in answers.items():
        yield RowAnswers(row, row.parameters(), given)


if __name__ == "__main__":
    run_script(ReportConfig, main)
