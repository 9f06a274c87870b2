"""One benchmark row, and reading rows from a file."""

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

from mlbench_data.bad_input import BadInput
from mlbench_data.files import read_jsonl

BASH = "Bash Script"
PYTHON = "Python Code"

_HALF_PAIR = re.compile("[\ud800-\udfff]")


class RowKey(NamedTuple):
    """What identifies a row; `id` alone is not unique in the published data."""

    github_id: int
    id: int


@dataclass(frozen=True)
class Row:
    """One row with exactly the columns of the hub data set `super-dainiu/ml-bench`."""

    github_id: int
    github: str
    repo_id: int
    id: int
    path: str
    arguments: str
    instruction: str
    oracle: str
    type: str
    prefix_code: str
    output: str

    @property
    def key(self) -> RowKey:
        """(github_id, id), unique within a benchmark."""
        return RowKey(self.github_id, self.id)

    @property
    def repository(self) -> str:
        """The repository's own name, `dgl` of `https://github.com/dmlc/dgl`."""
        return self.github.rstrip("/").rsplit("/", 1)[-1]

    def parameters(self) -> dict[str, str]:
        """The required parameters as text. Raises ValueError if `arguments` is no dict literal."""
        try:
            value = ast.literal_eval(self.arguments)
        except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError) as error:
            raise ValueError(f"arguments is not a Python literal: {self.arguments[:80]!r}") from error
        if not isinstance(value, dict):
            raise ValueError(f"arguments is not a dict: {self.arguments[:80]!r}")
        return {str(name): str(item) for name, item in value.items()}

    def as_dict(self) -> dict[str, Any]:
        """The row as a JSON object, columns in the hub data set's order."""
        return dict(vars(self))


COLUMNS = {field.name: int if field.type in (int, "int") else str for field in fields(Row)}


def parse_row(values: dict[str, Any], where: str) -> Row:
    """A checked Row from a mapping; further columns are ignored. Raises BadInput that starts with `where`."""
    missing = [name for name in COLUMNS if name not in values]
    if missing:
        raise BadInput(f"{where}: row without {', '.join(missing)}; a row has {', '.join(COLUMNS)}")
    for name, kind in COLUMNS.items():
        if not isinstance(values[name], kind) or isinstance(values[name], bool):
            found = type(values[name]).__name__
            raise BadInput(f"{where}: {name} is {found}; expected {kind.__name__}")
        if kind is int and not -(2**63) <= values[name] < 2**63:
            raise BadInput(f"{where}: {name} has more than 64 bits")
        if kind is str and _HALF_PAIR.search(values[name]):
            raise BadInput(f"{where}: {name} holds half of a surrogate pair, which is no text")
    row = Row(**{name: values[name] for name in COLUMNS})
    if row.repository in ("", ".", ".."):
        raise BadInput(f"{where}: github is {row.github!r}; expected the address of a repository")
    if row.type not in (BASH, PYTHON):
        raise BadInput(f"{where}: type is {row.type!r}; expected {BASH!r} or {PYTHON!r}")
    try:
        parameters = row.parameters()
    except ValueError as error:
        raise BadInput(f"{where}: {error}; expected a dict literal such as {{'lr': '0.1'}}") from error
    if any(_HALF_PAIR.search(text) for pair in parameters.items() for text in pair):
        raise BadInput(f"{where}: arguments hold half of a surrogate pair, which is no text")
    return row


def read_rows(path: str | Path) -> list[Row]:
    """Rows of a jsonl file, in its order. Raises BadInput naming file and line."""
    what = "one benchmark row a line, as JSON"
    rows = (parse_row(values, f"{path}:{number}") for number, values in read_jsonl(path, what))
    return list(unique_rows(rows, str(path)))


def unique_rows(rows: Iterable[Row], where: str) -> Iterator[Row]:
    """Passes rows on. Raises BadInput if there is none, or once two share a key."""
    seen: set[RowKey] = set()
    for row in rows:
        if row.key in seen:
            raise BadInput(
                f"{where}: two rows have github_id {row.github_id}, id {row.id}; keys must be unique"
            )
        seen.add(row.key)
        yield row
    if not seen:
        raise BadInput(f"{where}: no rows; expected at least one")
