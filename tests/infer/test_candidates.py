"""The candidates file: finished rows survive, other runs' rows never slip in."""

import json
from pathlib import Path
from typing import Any

import pytest

from infer.candidates import CandidatesFile
from infer.engines.interface import Completion
from mlbench_data.bad_input import BadInput
from mlbench_data.rows import RowKey
from tests.helpers import read_lines

IDENTITY: dict[str, Any] = {"model": "tiny", "benchmark_sha256": "b", "seed": 0}
COST = {"seconds": 1.0, "prompt_tokens": 10, "generated_tokens": 5}
FIRST, SECOND = RowKey(1, 1), RowKey(1, 2)


def completions(text: str) -> list[Completion]:
    return [Completion(f"```bash\n{text}\n```", "stop", 5)]


def test_output_is_code_and_raw_is_the_completion(tmp_path: Path) -> None:
    file = CandidatesFile(tmp_path / "c.jsonl", IDENTITY)
    file.append({FIRST: completions("python a.py")}, COST)
    assert read_lines(tmp_path / "c.jsonl") == [
        {
            "github_id": 1,
            "id": 1,
            "output": ["python a.py"],
            "raw": ["```bash\npython a.py\n```"],
            "finish": ["stop"],
        }
    ]


def test_rows_end_in_the_order_of_the_input(tmp_path: Path) -> None:
    file = CandidatesFile(tmp_path / "c.jsonl", IDENTITY)
    file.append({SECOND: completions("b")}, COST)
    file.append({FIRST: completions("a")}, COST)
    file.finish([FIRST, SECOND], {})
    assert [line["id"] for line in read_lines(tmp_path / "c.jsonl")] == [1, 2]
    manifest = json.loads((tmp_path / "c.manifest.json").read_text())
    assert manifest["finished"] is True
    assert manifest["benchmark_sha256"] == "b"
    assert manifest["cost"]["generated_tokens"] == 10


def test_a_torn_last_line_is_dropped_and_the_rest_kept(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    CandidatesFile(path, IDENTITY).append({FIRST: completions("a")}, COST)
    with path.open("a") as file:
        file.write('{"github_id": 1, "id": 2, "outp')
    again = CandidatesFile(path, IDENTITY)
    assert set(again.done) == {FIRST}
    again.append({SECOND: completions("b")}, COST)
    assert [line["id"] for line in read_lines(path)] == [1, 2]


def test_a_row_that_is_there_is_not_written_again(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    file = CandidatesFile(path, IDENTITY)
    file.append({FIRST: completions("a")}, COST)
    file.append({FIRST: completions("other"), SECOND: completions("b")}, COST)
    assert [line["output"] for line in read_lines(path)] == [["a"], ["b"]]


def test_candidates_of_another_run_are_refused_by_what_differs(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    CandidatesFile(path, IDENTITY)
    with pytest.raises(BadInput, match="made with other model, seed; give another --out"):
        CandidatesFile(path, {**IDENTITY, "model": "large", "seed": 1})


def test_candidates_without_a_manifest_are_refused(tmp_path: Path) -> None:
    (tmp_path / "c.jsonl").write_text("")
    with pytest.raises(BadInput, match=r"c\.manifest\.json: No such file"):
        CandidatesFile(tmp_path / "c.jsonl", IDENTITY)


def test_a_line_separator_inside_a_completion_does_not_break_the_file(tmp_path: Path) -> None:
    """U+2028 ends a line for str.splitlines, not for JSON lines."""
    path = tmp_path / "c.jsonl"
    CandidatesFile(path, IDENTITY).append({FIRST: completions("a\u2028b\u0085c")}, COST)
    assert set(CandidatesFile(path, IDENTITY).done) == {FIRST}


def test_a_damaged_line_is_named(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    CandidatesFile(path, IDENTITY).append({FIRST: completions("a")}, COST)
    path.write_text(path.read_text() + "garbage\n")
    with pytest.raises(BadInput, match=r"c\.jsonl:2: damaged line"):
        CandidatesFile(path, IDENTITY)
