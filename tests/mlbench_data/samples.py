"""Rows and files that the tests of this folder share."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from mlbench_data.rows import BASH, Row


def make_row(number: int = 1, **changes: Any) -> Row:
    """A valid row whose id and learning rate are `number`."""
    values: dict[str, Any] = {
        "github_id": 7,
        "github": "https://example.org/somebody/tiny",
        "repo_id": 1,
        "id": number,
        "path": "./scripts",
        "arguments": repr({"lr": str(number)}),
        "instruction": f"Train with a learning rate of {number}.",
        "oracle": "Run `python train.py --lr RATE`.",
        "type": BASH,
        "prefix_code": "",
        "output": f"python train.py --lr {number}",
    }
    return Row(**{**values, **changes})


def write_rows(path: Path, rows: Iterable[Row]) -> Path:
    """Writes rows as a jsonl file."""
    path.write_text("".join(json.dumps(row.as_dict()) + "\n" for row in rows), encoding="utf-8")
    return path


def bytes_below(folder: Path) -> dict[str, bytes]:
    """Every file of a folder with its content."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
