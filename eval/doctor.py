"""Examines every row of a benchmark: can it be answered rightly at all, by its own answer?

python eval/doctor.py --rows rows.jsonl --repositories checkouts --out runs/doctor.jsonl
"""

import json
import posixpath
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

from eval.checks import check
from eval.facts import number
from mlbench_data.bad_input import BadInput
from mlbench_data.cli import run_script
from mlbench_data.files import output_file, read_jsonl, read_text, write_text
from mlbench_data.rows import Row, parse_row
from mlbench_data.sources import benchmark_named

Finding = Literal[
    "unreadable",
    "empty",
    "paper_type",
    "paper_parameters",
    "strict_type",
    "strict_parameters",
    "path",
    "instruction",
]
MEANINGS: dict[Finding, str] = {
    "unreadable": "not a row: a column is missing or of the wrong kind, or arguments is no dict literal",
    "empty": "oracle, instruction or answer is empty",
    "paper_type": "the paper's rule takes the answer for the other type",
    "paper_parameters": "the paper's rule does not find a parameter in the answer",
    "strict_type": "the answer parses as the other type, or as neither",
    "strict_parameters": "the strict rules do not find a parameter in the answer",
    "path": "the folder that the answer runs in is not in the repository",
    "instruction": "the instruction does not name the value of a parameter",
}
INDEX = "INDEX.txt"


@dataclass(frozen=True)
class DoctorConfig:
    """Which rows to examine, against what, and where to write what was found."""

    rows: str | None = None
    """Rows as FILE.jsonl; broken ones are found, not refused."""
    benchmark: str | None = None
    """Or mini (default), or a folder made by mlbench_data/build.py: the rows of all its splits."""
    repositories: str | None = None
    """Folder of checkouts, or of REPOSITORY/INDEX.txt with every path of the repository a line."""
    out: str | None = None
    """A jsonl file with a line for each finding."""


@dataclass(frozen=True)
class Found:
    """One thing that is wrong with one row. `where` is a line of the file, or a split."""

    where: str
    repository: str
    github_id: int | None
    id: int | None
    finding: Finding
    detail: str


@dataclass(frozen=True)
class Examined:
    """A row as it was read, or why it could not be."""

    where: str
    row: Row | None
    reason: str = ""


def main(config: DoctorConfig) -> int:
    """Examines every row of a benchmark: can it be answered rightly at all, by its own answer?"""
    if config.rows is not None and config.benchmark is not None:
        raise BadInput("give either --rows FILE.jsonl or --benchmark DIR, not both")
    if config.out is not None:
        output_file(config.out)
    rows = list(_lines(config.rows) if config.rows is not None else _splits(config.benchmark or "mini"))
    if not rows:
        raise BadInput(f"{config.rows or config.benchmark}: no rows; expected at least one")
    folders = Folders(config.repositories)
    found = [item for row in rows for item in examine(row, folders)]
    for line in report(rows, found, folders):
        print(line)
    if config.out is not None:
        write_text(config.out, "".join(json.dumps(asdict(item), ensure_ascii=False) + "\n" for item in found))
        print(f"every finding is in {config.out}")
    return 0


def _lines(path: str) -> Iterator[Examined]:
    for line, values in read_jsonl(path, "one benchmark row a line, as JSON"):
        where = f"line {line}"
        try:
            yield Examined(where, parse_row(values, where))
        except BadInput as error:
            yield Examined(where, None, str(error).removeprefix(f"{where}: "))


def _splits(folder: str) -> Iterator[Examined]:
    benchmark, seen = benchmark_named(folder), set()
    for split in benchmark.manifest["splits"]:
        for row in benchmark.rows(split):
            if row not in seen:  # the quarter's rows are in full too
                seen.add(row)
                yield Examined(split, row)


class Folders:
    """The folders of each repository, from checkouts or from lists of paths."""

    def __init__(self, folder: str | None) -> None:
        """Raises BadInput if the folder is not there."""
        if folder is not None and not Path(folder).is_dir():
            raise BadInput(f"{folder}: no such folder; expected REPOSITORY/ or REPOSITORY/{INDEX} in it")
        self.checkouts = {path.name.lower(): path for path in Path(folder).iterdir()} if folder else {}
        self.unknown: set[str] = set()
        self._listed = lru_cache(maxsize=None)(_listed)

    def has(self, repository: str, path: str) -> bool | None:
        """Whether a repository has a folder; None if the repository is not at hand."""
        checkout = self.checkouts.get(repository.lower())
        if checkout is None:
            self.unknown.add(repository)
            return None
        place = posixpath.normpath(path.strip() or ".")
        if place.startswith(("/", "..")):
            return False
        return (
            place in self._listed(checkout) if (checkout / INDEX).is_file() else (checkout / place).is_dir()
        )


def _listed(checkout: Path) -> set[str]:
    """Every folder that a list of paths names, and the root."""
    folders = {"."}
    for line in read_text(checkout / INDEX, "a path a line").splitlines():
        parents = Path(line.strip()).parents
        folders.update(parent.as_posix() for parent in parents)
    return folders


def examine(examined: Examined, folders: Folders) -> Iterator[Found]:
    """Everything that is wrong with one row."""
    row = examined.row
    if row is None:
        yield Found(examined.where, "", None, None, "unreadable", examined.reason)
        return
    for finding, detail in _examine(row, folders):
        yield Found(examined.where, row.repository, row.github_id, row.id, finding, detail)


def _examine(row: Row, folders: Folders) -> Iterator[tuple[Finding, str]]:
    empty = [name for name in ("oracle", "instruction", "output") if not getattr(row, name).strip()]
    if empty:
        yield "empty", ", ".join(empty)
    paper, strict = check(row, row.output, "paper"), check(row, row.output, "strict")
    required = row.parameters()
    if not paper.type_ok:
        yield "paper_type", f"the row says {row.type}, the rule {paper.type}"
    if not paper.parameters_ok:
        yield "paper_parameters", _named(required, paper.missing)
    if not strict.type_ok:
        yield "strict_type", f"the row says {row.type}, the answer parses as {strict.type or 'neither'}"
    if not strict.parameters_ok:
        yield "strict_parameters", _named(required, strict.missing)
    if folders.has(row.repository, row.path) is False:
        yield "path", row.path
    unsaid = tuple(name for name, value in required.items() if not is_mentioned(name, value, row.instruction))
    if unsaid:
        yield "instruction", _named(required, unsaid)


def _named(required: dict[str, str], names: tuple[str, ...]) -> str:
    return ", ".join(f"{name}={required[name]}" for name in names)


def is_mentioned(name: str, value: str, instruction: str) -> bool:
    """Whether an instruction gives a parameter away: its value stands there, letters without case, numbers as
    numbers, quotes and the option's own dashes aside; or, for a bare switch, its name.
    """
    text = " ".join(instruction.lower().split())
    wanted = value.lower().strip().strip("\"'")
    if number(wanted) is not None:
        words = (word.strip(".,;:!?()[]`\"'%") for word in text.split())
        return any(number(word) == number(wanted) for word in words)
    if not wanted or wanted in text:
        return True
    if wanted in ("true", "false", "none") or wanted.startswith("-"):
        plain = " ".join(part for part in (name, wanted.lstrip("-")) if part not in ("true", "false", "none"))
        return any(part.replace("_", " ").replace("-", " ") in text.replace("_", " ").replace("-", " ")
                   for part in plain.lower().split())  # fmt: skip
    return False


def report(rows: list[Examined], found: list[Found], folders: Folders) -> Iterator[str]:
    """How many rows each finding holds for."""
    counts = Counter(
        finding for finding, _ in {(item.finding, (item.where, item.github_id, item.id)) for item in found}
    )
    ill = {(item.where, item.github_id, item.id) for item in found}
    yield f"{len(rows)} rows, {len(rows) - len(ill)} without a finding"
    for finding, meaning in MEANINGS.items():
        yield f"{counts[finding]:6}  {finding:18} {meaning}"
    if folders.unknown:
        yield f"path not looked at, as no checkout is at hand: {', '.join(sorted(folders.unknown))}"


if __name__ == "__main__":
    run_script(DoctorConfig, main)
