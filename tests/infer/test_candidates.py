"""The candidates file: finished rows survive, other runs' rows never slip in."""

import json
from pathlib import Path
from typing import Any

import pytest

from infer.candidates import CandidatesFile
from infer.engines.interface import Answer, Completion, Usage
from infer.extract import ExtractConfig
from infer.extract import main as extract
from mlbench_data.bad_input import BadInput
from mlbench_data.rows import RowKey
from tests.helpers import read_lines

IDENTITY: dict[str, Any] = {"model": "tiny", "benchmark_sha256": "b", "seed": 0, "n": 1}
FIRST, SECOND = RowKey(1, 1), RowKey(1, 2)


def answer(text: str) -> Answer:
    return Answer(0, [Completion(f"```bash\n{text}\n```", "stop", 5)], Usage(10, 4, 5))


FAILED = Answer(0, [], Usage(), "APITimeoutError: Request timed out.")


def test_output_is_code_and_raw_is_the_completion(tmp_path: Path) -> None:
    file = CandidatesFile(tmp_path / "c.jsonl", IDENTITY)
    file.append([(FIRST, answer("python a.py"))])
    assert read_lines(tmp_path / "c.jsonl") == [
        {
            "github_id": 1,
            "id": 1,
            "output": ["python a.py"],
            "raw": ["```bash\npython a.py\n```"],
            "finish": ["stop"],
            "tokens": {"prompt_tokens": 10, "computed_tokens": 4, "generated_tokens": 5},
        }
    ]


def test_rows_end_in_the_order_of_the_input(tmp_path: Path) -> None:
    file = CandidatesFile(tmp_path / "c.jsonl", IDENTITY)
    file.append([(SECOND, answer("b"))])
    file.append([(FIRST, answer("a"))])
    file.finish([FIRST, SECOND], {})
    assert [line["id"] for line in read_lines(tmp_path / "c.jsonl")] == [1, 2]
    manifest = json.loads((tmp_path / "c.manifest.json").read_text())
    assert manifest["finished"] is True
    assert manifest["benchmark_sha256"] == "b"
    cost = {name: value for name, value in manifest["cost"].items() if name != "seconds"}
    assert cost == {
        "prompt_tokens": 20,
        "cached_prompt_tokens": 12,
        "computed_prompt_tokens": 8,
        "generated_tokens": 10,
    }


def test_tokens_are_counted_once_however_often_the_run_was_stopped(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    CandidatesFile(path, IDENTITY).append([(FIRST, answer("a"))])
    for _ in range(3):
        file = CandidatesFile(path, IDENTITY)
    file.append([(SECOND, answer("b"))])
    assert file.usage == Usage(20, 8, 10)


def test_a_torn_last_line_is_dropped_and_the_rest_kept(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    CandidatesFile(path, IDENTITY).append([(FIRST, answer("a"))])
    with path.open("a") as file:
        file.write('{"github_id": 1, "id": 2, "outp')
    again = CandidatesFile(path, IDENTITY)
    assert set(again.done) == {FIRST}
    again.append([(SECOND, answer("b"))])
    assert [line["id"] for line in read_lines(path)] == [1, 2]


@pytest.mark.parametrize(
    "changes",
    [
        {"github_id": []},
        {"id": "1"},
        {"id": True},
        {"output": [], "raw": [], "finish": []},
        {"output": ["a", "b"], "raw": ["a", "b"], "finish": ["stop", "stop"]},
        {"raw": [5]},
        {"finish": []},
        {"tokens": {"prompt_tokens": "a"}},
        {"tokens": []},
        {"error": 5},
    ],
)
def test_a_line_with_values_of_another_kind_is_named(tmp_path: Path, changes: dict[str, Any]) -> None:
    path = tmp_path / "c.jsonl"
    CandidatesFile(path, IDENTITY).append([(FIRST, answer("a"))])
    path.write_text(json.dumps(read_lines(path)[0] | changes) + "\n")
    with pytest.raises(BadInput, match=r"c\.jsonl:1: "):
        CandidatesFile(path, IDENTITY)


def test_a_row_that_nobody_asked_for_is_refused(tmp_path: Path) -> None:
    file = CandidatesFile(tmp_path / "c.jsonl", IDENTITY)
    file.append([(FIRST, answer("a"))])
    file.check_rows({FIRST, SECOND})
    with pytest.raises(BadInput, match="holds row 1/1"):
        file.check_rows({SECOND})


@pytest.mark.parametrize("cost", [{}, {"seconds": "x"}, {"seconds": 1, "prompt_tokens": None}, []])
def test_a_damaged_manifest_is_named(tmp_path: Path, cost: Any) -> None:
    path = tmp_path / "c.jsonl"
    CandidatesFile(path, IDENTITY).append([(FIRST, answer("a"))])
    manifest = json.loads((tmp_path / "c.manifest.json").read_text())
    (tmp_path / "c.manifest.json").write_text(json.dumps(manifest | {"cost": cost}))
    with pytest.raises(BadInput, match="not the manifest of a candidates file"):
        CandidatesFile(path, IDENTITY)


def test_extracting_again_never_replaces_a_manifest(tmp_path: Path) -> None:
    CandidatesFile(tmp_path / "c.jsonl", IDENTITY).append([(FIRST, answer("a"))])
    before = (tmp_path / "c.manifest.json").read_bytes()
    with pytest.raises(BadInput, match=r"c\.manifest\.json: is there already"):
        extract(ExtractConfig([str(tmp_path / "c.jsonl")], str(tmp_path / "c.txt")))
    assert (tmp_path / "c.manifest.json").read_bytes() == before


def test_a_row_that_is_there_is_not_written_again(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    file = CandidatesFile(path, IDENTITY)
    file.append([(FIRST, answer("a"))])
    file.append([(FIRST, answer("other")), (SECOND, answer("b"))])
    assert [line["output"] for line in read_lines(path)] == [["a"], ["b"]]


def test_a_row_that_failed_is_recorded_and_sampled_again(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    file = CandidatesFile(path, IDENTITY)
    file.append([(FIRST, FAILED), (SECOND, answer("b"))])
    file.finish([FIRST, SECOND], {})
    assert [line.get("error") for line in read_lines(path)] == [FAILED.error, None]
    manifest = json.loads((tmp_path / "c.manifest.json").read_text())
    assert (manifest["finished"], manifest["failed_rows"]) == (False, 1)

    again = CandidatesFile(path, IDENTITY)
    assert (set(again.done), again.failed) == ({SECOND}, {FIRST: FAILED.error})
    again.append([(FIRST, answer("a"))])
    again.finish([FIRST, SECOND], {})
    assert [line["output"] for line in read_lines(path)] == [["a"], ["b"]]
    assert json.loads((tmp_path / "c.manifest.json").read_text())["finished"] is True


def test_candidates_of_another_run_are_refused_by_what_differs(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    CandidatesFile(path, IDENTITY).append([(FIRST, answer("a"))])
    with pytest.raises(BadInput, match="made with other model, seed; give another --out"):
        CandidatesFile(path, {**IDENTITY, "model": "large", "seed": 1})


def test_candidates_without_a_manifest_are_refused(tmp_path: Path) -> None:
    (tmp_path / "c.jsonl").write_text("")
    with pytest.raises(BadInput, match=r"c\.manifest\.json: No such file"):
        CandidatesFile(tmp_path / "c.jsonl", IDENTITY)


def test_a_line_separator_inside_a_completion_does_not_break_the_file(tmp_path: Path) -> None:
    """U+2028 ends a line for str.splitlines, not for JSON lines; half a surrogate pair is no UTF-8."""
    path = tmp_path / "c.jsonl"
    CandidatesFile(path, IDENTITY).append([(FIRST, answer("a\u2028b\u0085c\ud800d"))])
    assert set(CandidatesFile(path, IDENTITY).done) == {FIRST}
    assert path.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "line",
    [
        "garbage",
        "[]",
        '{"github_id": 1, "id": 2}',
        '{"github_id": 1, "id": 2, "output": ["a"], "raw": ["a"], "finish": ["stop"]}',
        '{"github_id": 1, "id": 2, "output": ["a"], "raw": [], "tokens": {}}',
    ],
)
def test_a_damaged_line_is_named(line: str, tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    CandidatesFile(path, IDENTITY).append([(FIRST, answer("a"))])
    path.write_text(f"{path.read_text()}{line}\n")
    with pytest.raises(BadInput, match=r"c\.jsonl:2: damaged line"):
        CandidatesFile(path, IDENTITY)


def test_extracting_from_a_file_that_lost_a_row_is_refused(tmp_path: Path) -> None:
    path, out = tmp_path / "c.jsonl", tmp_path / "new.jsonl"
    file = CandidatesFile(path, IDENTITY)
    file.append([(FIRST, answer("a")), (SECOND, answer("b"))])
    file.finish([FIRST, SECOND], {"rows": 2})
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(BadInput, match="holds 1 rows, its manifest says 2"):
        extract(ExtractConfig([str(path)], str(out)))
    assert not out.exists()
    assert not (tmp_path / "new.manifest.json").exists()


def test_an_extraction_that_was_stopped_is_done_again(tmp_path: Path) -> None:
    """The manifest is there first, without `finished`."""
    path, out = tmp_path / "c.jsonl", tmp_path / "new.jsonl"
    file = CandidatesFile(path, IDENTITY)
    file.append([(FIRST, answer("a"))])
    file.finish([FIRST], {"rows": 1})
    config = ExtractConfig([str(path)], str(out))
    assert extract(config) == 0
    out.unlink()
    manifest = json.loads((tmp_path / "new.manifest.json").read_text())
    (tmp_path / "new.manifest.json").write_text(json.dumps({**manifest, "finished": False}))
    assert extract(config) == 0
    assert json.loads((tmp_path / "new.manifest.json").read_text())["finished"] is True
    assert len(read_lines(out)) == 1


def test_half_a_surrogate_pair_is_a_damaged_line(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    CandidatesFile(path, IDENTITY).append([(FIRST, answer("a"))])
    path.write_text(json.dumps(read_lines(path)[0] | {"raw": ["\ud800"]}) + "\n")
    with pytest.raises(BadInput, match=r"c\.jsonl:1: damaged line"):
        CandidatesFile(path, IDENTITY)
