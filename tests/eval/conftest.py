"""A benchmark small enough to be evaluated in a second: one repository with one script, three rows."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from mlbench_data.rows import BASH, PYTHON, Row

SCRIPT = """
import argparse, sys
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, required=True)
print("trained with", parser.parse_args().lr)
"""


@pytest.fixture
def rows() -> list[Row]:
    first = Row(
        github_id=7,
        github="https://example.org/somebody/tiny",
        repo_id=1,
        id=1,
        path="./scripts",
        arguments="{'lr': '0.1'}",
        instruction="Train with a learning rate of 0.1 <b>please</b>.",
        oracle="",
        type=BASH,
        prefix_code="",
        output="python train.py --lr 0.1",
    )
    python = replace(first, id=2, type=PYTHON, path=".", output="import tiny\ntiny.train(lr=0.1)")
    other = replace(first, id=3, arguments="{'lr': '0.5'}", output="python train.py --lr 0.5")
    return [first, python, other]


@pytest.fixture
def repositories(tmp_path: Path) -> Path:
    scripts = tmp_path / "repositories" / "tiny" / "scripts"
    scripts.mkdir(parents=True)
    (scripts / "train.py").write_text(SCRIPT)
    (scripts.parent / "tiny.py").write_text("def train(lr):\n    print('trained with', lr)\n")
    return tmp_path / "repositories"


@pytest.fixture
def rows_file(tmp_path: Path, rows: list[Row]) -> Path:
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row.as_dict()) + "\n" for row in rows))
    return path


@pytest.fixture
def gold_file(tmp_path: Path, rows: list[Row]) -> Path:
    """Each row's own answer twice."""
    path = tmp_path / "candidates.jsonl"
    lines = [{"github_id": row.github_id, "id": row.id, "output": [row.output] * 2} for row in rows]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path
