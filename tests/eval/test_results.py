"""The results file: what is written is read back, a line cut short is dropped, damage is an error."""

from pathlib import Path

import pytest

from eval.checks import Check
from eval.results import Result, append_results, read_results, resume_results, write_results
from mlbench_data.bad_input import BadInput


def result(candidate: int) -> Result:
    check = Check("Bash Script", True, False, ("lr",))
    return Result(
        github_id=1,
        id=2,
        candidate=candidate,
        repository="repository",
        status="missing_parameters",
        stage="check",
        error_class="E2",
        type_ok=True,
        parameters_ok=False,
        checks={"strict": check, "paper": check},
        code="python t.py é \n",
        ending=None,
        exit_code=None,
        seconds=None,
        peak_memory=None,
        stdout="",
        stderr="",
        detail="",
        identity=None,
    )


def test_results_come_back_as_they_were(tmp_path: Path) -> None:
    write_results(tmp_path / "results.jsonl", [result(0)])
    append_results(tmp_path / "results.jsonl", [result(1)])
    assert read_results(tmp_path / "results.jsonl") == [result(0), result(1)]


def test_a_last_line_cut_short_is_dropped_and_can_be_followed_by_new_ones(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    write_results(path, [result(0), result(1)])
    path.write_bytes(path.read_bytes()[:-40])
    assert resume_results(path) == [result(0)]
    append_results(path, [result(2)])
    assert read_results(path) == [result(0), result(2)]


def test_a_file_that_holds_nothing_but_a_torn_line_is_empty(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    path.write_text('{"github_id": 1, "id')
    assert resume_results(path) == []
    assert path.read_text() == ""


def test_a_line_that_is_no_result_names_file_and_line(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    write_results(path, [result(0)])
    with open(path, "a") as file:
        file.write('{"github_id": 1}\n')
    with pytest.raises(BadInput, match=r"results\.jsonl:2: not a result"):
        read_results(path)
