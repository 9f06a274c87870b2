"""The paper's Table 1 filled from a sweep: ours, the paper's, difference, interval, ceiling of each cell."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from textwrap import fill
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from eval.metrics import KS
from eval.paper import CONTEXT, paper_scores
from eval.saved_run import Run, read_run
from mlbench_data.bad_input import BadInput
from mlbench_data.files import read_json, sha256_of_file, write_json, write_text

SWEEP_FILE = "sweep.json"
MARK = "†"
TASKS = {1: "task 1, raw README", 2: "task 2, BM25 window", 3: "task 3, oracle segment"}
NOTE = (
    "Pass@k in per cent, the first k candidates, under the published rules as in the paper; interval: 95%, "
    "around the unbiased estimate; ceiling: what the answer key itself reaches; strict: values compared as "
    "values, and a timeout fails. missing: no results yet. –: not in the paper, or undefined."
)


@dataclass(frozen=True)
class Score:
    """Pass@k of one cell in per cent; None where it is undefined."""

    ours: float | None
    interval: tuple[float, float] | None
    ceiling: float | None
    strict: float | None
    strict_ceiling: float | None


@dataclass(frozen=True)
class TableCell:
    """A cell of the table: scores and the paper's for Pass@1, 2 and 5. `scores` is None without results,
    `warning` says what must be known of them. `context` is how many tokens its model read, if that is known,
    and `mark` leads to a footnote if the paper's script used more.
    """

    name: str
    results: str
    scores: list[Score] | None
    paper: tuple[float, ...] | None
    warning: str = ""
    context: int | None = None
    mark: str = ""


@dataclass(frozen=True)
class TableLine:
    """One model, trained on one set or on none: its cells by task."""

    title: str
    cells: dict[int, TableCell]


@dataclass(frozen=True)
class Table:
    """A sweep's table: what it is of, its tasks, and its lines."""

    title: str
    tasks: list[int]
    lines: list[TableLine]
    footnotes: list[str]


def is_sweep(folder: Path) -> bool:
    """Whether a folder is one that slurm/submit.py has filled."""
    return (folder / SWEEP_FILE).is_file()


def report_sweep(folder: Path, out: Path) -> int:
    """Prints the table, and writes it as a page to `out` and as JSON into the folder. Raises BadInput."""
    table = read_table(folder)
    for text in as_text(table):
        print(text)
    write_text(out, as_page(table, linked=out.resolve().parent == folder.resolve()))
    cells = [cell for line in table.lines for cell in line.cells.values()]
    found = {
        cell.name: sha256_of_file(folder / cell.results / "summary.json") for cell in cells if cell.scores
    }
    write_json(folder / "table.json", {"results": found, **asdict(table)})
    for cell in cells:
        if cell.warning:
            print(f"WARNING: {cell.name}: {cell.warning}")
    print(f"\n{len(found)} of {len(cells)} cells; the table is in {out} and {folder / 'table.json'}")
    return 0


def read_table(folder: Path) -> Table:
    """The table of a sweep, in its order. Raises BadInput."""
    sweep = read_json(folder / SWEEP_FILE, "a sweep of slurm/submit.py")
    try:
        lines: dict[str, dict[int, TableCell]] = {}
        settings = sweep["settings"]
        sets = f"{settings['benchmark']}, split {sweep['cells'][0]['split']}, code {sweep['code']}"
        for cell in sweep["cells"]:
            seed = f", seed {cell['seed']}" if cell["seed"] else ""
            engine = f", {cell['engine']}" if cell["engine"] != "auto" else ""
            title = f"{cell['model']}, {cell['trained_on'].upper() if cell['trained_on'] != 'raw' else 'raw'}"
            papers = _papers(cell) if settings["benchmark"] != "mini" else None
            lines.setdefault(title + engine + seed, {})[cell["task"]] = _cell(folder, cell, papers)
        tasks = sorted({cell["task"] for cell in sweep["cells"]} & TASKS.keys())
    except (KeyError, TypeError, AttributeError, IndexError, ValueError) as error:
        raise BadInput(f"{folder / SWEEP_FILE}: no {error}; expected what slurm/submit.py writes") from error
    title = f"{folder.resolve().name}: {sets}"
    cells = [cell for line in lines.values() for cell in line.values()]
    contexts = sorted({cell.context for cell in cells if cell.context and cell.context < CONTEXT})
    marks = {context: MARK * count for count, context in enumerate(contexts, start=1)}
    footnotes = [_footnote(mark, context) for context, mark in marks.items()]
    table = [TableLine(title, _marked(cells, marks)) for title, cells in lines.items()]
    return Table(title, tasks, table, footnotes)


def _marked(cells: dict[int, TableCell], marks: dict[int, str]) -> dict[int, TableCell]:
    return {task: replace(cell, mark=marks.get(cell.context or 0, "")) for task, cell in cells.items()}


def _footnote(mark: str, context: int) -> str:
    return f"{mark} reads {context:,} tokens of prompt and answer; the paper's script used {CONTEXT:,}"


def _papers(cell: dict[str, Any]) -> tuple[float, ...] | None:
    """The paper's Pass@1, 2 and 5 of a cell; None where it has none."""
    asked = (cell["model"].lower(), cell["trained_on"], cell["split"])
    for line in paper_scores():
        if (line.model.lower(), line.trained_on.lower(), line.split) == asked:
            return line.tasks[list(TASKS).index(cell["task"])]
    return None


def _cell(folder: Path, cell: dict[str, Any], paper: tuple[float, ...] | None) -> TableCell:
    name, results = cell["name"], cell["results"]
    if not (folder / results / "summary.json").exists():
        return TableCell(name, results, None, paper)
    try:
        run = read_run(folder / results)
    except BadInput as error:
        return TableCell(name, results, None, paper, f"cannot be read: {error}")
    scores = [_score(run, str(k)) for k in KS]
    return TableCell(name, results, scores, paper, _warning(run, cell, paper), run.context)


def _score(run: Run, k: str) -> Score:
    published, strict = (run.summaries[mode]["pass_at_k"][k] for mode in ("paper", "strict"))
    ceiling, strict_ceiling = (
        run.ceilings[mode]["pass_at_k"]["1"].get("first_k") for mode in ("paper", "strict")
    )
    interval = published["interval"]
    return Score(
        ours=_per_cent(published["first_k"]),
        interval=None if interval is None else (100 * interval[0], 100 * interval[1]),
        ceiling=_per_cent(ceiling),
        strict=_per_cent(strict["first_k"]),
        strict_ceiling=_per_cent(strict_ceiling),
    )


def _warning(run: Run, cell: dict[str, Any], paper: tuple[float, ...] | None) -> str:
    rows = {"full": 260, "quarter": 68}.get(cell["split"])
    found = []
    if run.summaries["paper"]["lower_bound"]:
        found.append("some candidates could not be run, so its scores are lower bounds")
    if run.ceilings["paper"]["lower_bound"]:
        found.append("some answers of the key could not be run, so its ceiling is a lower bound")
    if not run.executed:
        found.append("candidates were checked and not run")
    if paper is not None and len(run.rows) != rows:
        found.append(f"has {len(run.rows)} rows where the paper has {rows}")
    return "; ".join(found)


def _per_cent(share: float | None) -> float | None:
    return None if share is None else 100 * share


def rows_of(line: TableLine, tasks: list[int]) -> Iterator[tuple[str, list[str]]]:
    """A label and a text for each Pass@k of each task, as the terminal and the page show them; what is all
    empty is left out.
    """
    for label in ("ours", "interval", "paper", "difference", "ceiling", "strict", "its ceiling"):
        texts = [text for task in tasks for text in _texts(label, line.cells.get(task))]
        if any(texts):
            yield label, texts


def _texts(label: str, cell: TableCell | None) -> list[str]:
    """What one label says of a cell's Pass@1, 2 and 5."""
    if cell is None:
        return [""] * len(KS)
    papers = cell.paper or [None] * len(KS)
    if label == "paper":
        return ["–" if paper is None else f"{paper:.2f}" for paper in papers]
    if cell.scores is None:
        return ["missing" if label == "ours" else ""] * len(KS)
    mark = cell.mark if label == "ours" else ""
    return [_text(label, score, paper) + mark for score, paper in zip(cell.scores, papers, strict=True)]


def _text(label: str, score: Score, paper: float | None) -> str:
    if label == "interval":
        return "–" if score.interval is None else f"{score.interval[0]:.1f}–{score.interval[1]:.1f}"
    if label == "difference":
        return "–" if score.ours is None or paper is None else f"{score.ours - paper:+.2f}"
    names = {"ours": score.ours, "ceiling": score.ceiling, "strict": score.strict}
    value = names.get(label, score.strict_ceiling)
    return "–" if value is None else f"{value:.2f}"


def as_text(table: Table) -> Iterator[str]:
    """The table for a terminal."""
    yield f"{table.title}\n"
    yield f"{'':13}{''.join(f'{TASKS[task]:^33}' for task in table.tasks).rstrip()}"
    yield f"{'':13}" + "".join(f"{f'Pass@{k}':>11}" for _ in table.tasks for k in KS)
    for line in table.lines:
        yield f"\n{line.title}"
        for label, texts in rows_of(line, table.tasks):
            yield f"  {label:11}{''.join(f'{text:>11}' for text in texts).rstrip()}"
    yield f"\n{fill(NOTE, 112)}"
    yield from table.footnotes


def as_page(table: Table, *, linked: bool) -> str:
    """The table as a page that needs nothing else; `linked` if it lies where the cells' reports are."""
    return (
        Environment(
            loader=FileSystemLoader(Path(__file__).parent),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        .get_template("sweep_page.html.jinja")
        .render(table=table, names=TASKS, ks=KS, rows_of=rows_of, note=NOTE, linked=linked)
    )
