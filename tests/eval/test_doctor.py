"""The row doctor finds what is wrong with a row, and nothing with a sound one."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from eval.checks import check
from eval.doctor import Examined, Folders, examine, is_mentioned
from mlbench_data.rows import PYTHON, read_rows
from tests.helpers import RunScript, error_line, read_lines
from tests.mlbench_data.samples import make_row, write_rows

SCRIPT = "eval/doctor.py"


@pytest.fixture
def folders(tmp_path: Path) -> Folders:
    (tmp_path / "tiny" / "scripts").mkdir(parents=True)
    return Folders(str(tmp_path))


def findings(folders: Folders, **changes: Any) -> list[str]:
    return [item.finding for item in examine(Examined("line 1", make_row(5, **changes)), folders)]


def test_a_sound_row_has_no_finding(folders: Folders) -> None:
    assert findings(folders) == []


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"oracle": " "}, ["empty"]),
        ({"type": PYTHON}, ["paper_type", "strict_type"]),
        ({"output": "python train.py --lr 0.7"}, ["paper_parameters", "strict_parameters"]),
        ({"output": "python train.py --lr 15"}, ["strict_parameters"]),
        ({"path": "./script"}, ["path"]),
        ({"path": "../tiny/scripts"}, ["path"]),
        ({"instruction": "Train at a rate that suits."}, ["instruction"]),
    ],
)
def test_each_defect_is_found(folders: Folders, changes: dict[str, Any], expected: list[str]) -> None:
    assert findings(folders, **changes) == expected


def test_a_repository_that_is_not_at_hand_is_named_and_not_found_wrong(folders: Folders) -> None:
    assert findings(folders, github="https://example.org/other", path="./nowhere") == []
    assert folders.unknown == {"other"}


@pytest.mark.parametrize(
    ("value", "instruction", "mentioned"),
    [
        ("0.001", "a learning rate of 1e-3.", True),
        ("15", "for 150 epochs", False),
        ("GCN", "use a gcn", True),
        ("'data/x'", "from data/x please", True),
        ("--use_amp", "with use amp", True),
        ("True", "shuffle the rows", True),
        ("True", "nothing of it", False),
        ("", "anything", True),
    ],
)
def test_a_value_is_mentioned_as_text_number_or_switch(value: str, instruction: str, mentioned: bool) -> None:
    assert is_mentioned("shuffle", value, instruction) == mentioned


def test_broken_rows_are_found_and_not_refused(tmp_path: Path, run_script: RunScript) -> None:
    path = write_rows(tmp_path / "rows.jsonl", [make_row()])
    broken = make_row(2).as_dict() | {"arguments": "__import__('os')"}
    lacking = {name: value for name, value in make_row(3).as_dict().items() if name != "output"}
    path.write_text(path.read_text() + json.dumps(broken) + "\n" + json.dumps(lacking) + "\n")
    done = run_script(SCRIPT, "--rows", path, "--out", tmp_path / "found.jsonl", check=True)
    assert "3 rows, 1 without a finding" in done.stdout
    found = read_lines(tmp_path / "found.jsonl")
    assert [(item["where"], item["finding"]) for item in found] == [
        ("line 2", "unreadable"),
        ("line 3", "unreadable"),
    ]
    assert "arguments is not a Python literal" in found[0]["detail"]
    assert "row without output" in found[1]["detail"]


def test_minibench_is_sound(run_script: RunScript, tmp_path: Path) -> None:
    run_script("mlbench_data/build.py", "--out", tmp_path / "mini", check=True)
    given = ("--benchmark", tmp_path / "mini", "--repositories", "mlbench_data/mini/repositories")
    done = run_script(SCRIPT, *given, "--out", tmp_path / "found.jsonl", check=True)
    counts = Counter(item["finding"] for item in read_lines(tmp_path / "found.jsonl"))
    assert not {"unreadable", "empty", "strict_type", "strict_parameters", "path"} & set(counts), done.stdout


def test_the_real_rows_that_fail_the_papers_own_check_are_found(
    shared_data: Path, run_script: RunScript, tmp_path: Path
) -> None:
    path = shared_data / "mlbench" / "rows.jsonl"
    run_script(SCRIPT, "--rows", path, "--repositories", shared_data / "readmes",
               "--out", tmp_path / "found.jsonl", check=True)  # fmt: skip
    found = {
        (item["github_id"], item["id"])
        for item in read_lines(tmp_path / "found.jsonl")
        if item["finding"] in ("paper_type", "paper_parameters")
    }
    rows = read_rows(path)
    assert found == {tuple(row.key) for row in rows if not check(row, row.output, "paper").ok}
    assert len(found) == 9


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["--rows", "a", "--benchmark", "b"], "give either --rows"),
        (["--rows", "missing.jsonl"], "missing.jsonl: No such file"),
        (["--rows", "/dev/null"], "/dev/null: no rows"),
        (["--benchmark", "nowhere"], "expected a prepared benchmark"),
        (["--repositories", "nowhere"], "nowhere: no such folder"),
    ],
)
def test_bad_input_is_one_line(run_script: RunScript, arguments: list[str], error: str) -> None:
    assert error in error_line(run_script(SCRIPT, *arguments))
