"""What the published harness gets wrong, each thing once, in the order in which it was reproduced."""

import json
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from eval.checkouts import find_checkouts
from eval.config import EvalConfig
from eval.run import main
from infer.candidates import CandidatesFile
from infer.config import GenerateConfig
from infer.engines.interface import Answer, Completion, Usage
from mlbench_data.bad_input import BadInput
from mlbench_data.repositories import Repository
from mlbench_data.rows import Row, parse_row


@pytest.fixture
def config(rows_file: Path, repositories: Path, tmp_path: Path) -> EvalConfig:
    return EvalConfig(
        candidates=str(tmp_path / "answers.jsonl"),
        rows=str(rows_file),
        repositories=str(repositories),
        out=str(tmp_path / "out"),
        timeout=3,
        preload=[],
        workers=2,
    )


def statuses(config: EvalConfig, answers: dict[int, list[str]]) -> dict[int, list[str]]:
    """The status of every candidate under mode strict, by the row's id."""
    lines = [{"github_id": 7, "id": row, "output": codes} for row, codes in answers.items()]
    Path(config.candidates).write_text("".join(json.dumps(line) + "\n" for line in lines))
    main(config)
    found: dict[int, list[str]] = {}
    for line in (Path(config.out or "") / "results.jsonl").read_text().splitlines():
        result = json.loads(line)
        found.setdefault(result["id"], []).append(result["status"])
    return found


def test_1_an_endless_loop_does_not_pass(config: EvalConfig) -> None:
    assert statuses(config, {2: ["import tiny\nlr = 0.1\nwhile True: pass"]})[2] == ["timed_out"]


def test_2_a_program_that_prints_much_and_fails_has_failed(config: EvalConfig) -> None:
    loud = "import tiny\nlr = 0.1\nprint('x' * 200_000)\nraise SystemExit(1)"
    assert statuses(config, {2: [loud]})[2] == ["failed"]


def test_3_nothing_goes_on_after_the_end(config: EvalConfig, tmp_path: Path) -> None:
    mark = str(time.time_ns())
    code = f"python train.py --lr 0.1; (setsid sleep 100.{mark} &); sleep 100.{mark}"
    assert statuses(config, {1: [code]})[1] == ["timed_out"]
    running = subprocess.run(["pgrep", "-f", mark], capture_output=True, text=True, check=False)
    assert running.stdout == ""


def test_4_a_failing_first_line_fails(config: EvalConfig) -> None:
    code = "source /opt/no/such/bin/activate base; python train.py --lr 0.1"
    assert statuses(config, {1: [code, "cd nowhere\npython ../train.py --lr 0.1"]})[1] == ["failed", "failed"]


def test_5_an_empty_answer_does_not_pass_where_nothing_is_required(
    config: EvalConfig, rows: list[Row]
) -> None:
    free = replace(rows[0], arguments="{}")
    Path(config.rows or "").write_text(json.dumps(free.as_dict()) + "\n")
    assert statuses(config, {1: ["", " \n"]})[1] == ["no_code", "no_code"]


def test_6_a_number_is_not_found_inside_another_nor_in_a_comment(config: EvalConfig) -> None:
    codes = ["python train.py --lr 0.15", "python train.py --lr 3 # 0.1"]
    assert statuses(config, {1: codes})[1] == ["missing_parameters"] * 2


def test_7_the_data_sets_texts_are_never_run_as_code(rows: list[Row], tmp_path: Path) -> None:
    trap = f"__import__('pathlib').Path({str(tmp_path / 'ran')!r}).touch() or {{'lr': '0.1'}}"
    values = {**rows[0].as_dict(), "arguments": trap}
    with pytest.raises(BadInput, match="arguments"):
        parse_row(values, "line 1").parameters()
    assert not (tmp_path / "ran").exists()


def test_8_the_kind_of_an_answer_is_what_it_parses_as(config: EvalConfig, repositories: Path) -> None:
    (repositories / "tiny" / "scripts" / "ok.py").write_text("lr = 0.1")
    codes = ["LR=0.1 python ok.py", "echo train.py --lr 0.1"]
    assert statuses(config, {1: codes})[1] == ["passed", "wrong_type"]


def test_9_no_candidate_sees_what_another_has_changed(config: EvalConfig) -> None:
    spoil = "python train.py --lr 0.1; [ ! -e trace ]; touch trace; echo 'raise SystemExit(1)' > train.py"
    assert statuses(config, {1: [f"{spoil} # {number}" for number in range(4)]})[1] == ["passed"] * 4


def test_10_rows_without_candidates_stay_in_the_denominator(config: EvalConfig) -> None:
    found = statuses(config, {1: ["python train.py --lr 0.1"] * 2, 2: ["x"]})
    assert [len(codes) for codes in found.values()] == [2, 2, 2]
    assert summary(config)["pass_at_k"]["1"]["first_k"] == pytest.approx(1 / 3)


def test_11_repositories_are_named_right_however_many_there_are(config: EvalConfig, rows: list[Row]) -> None:
    many = [
        replace(rows[0], github_id=number, github=f"https://example.org/a/r{number:02}")
        for number in range(13)
    ]
    Path(config.rows or "").write_text("".join(json.dumps(row.as_dict()) + "\n" for row in reversed(many)))
    lines = [
        {"github_id": row.github_id, "id": 1, "output": [row.output if row.github_id == 3 else "ls"]}
        for row in many
    ]
    Path(config.candidates).write_text("".join(json.dumps(line) + "\n" for line in lines))
    main(replace(config, execute=False))
    scores = {
        name: part["pass_at_k"]["1"]["first_k"] for name, part in summary(config)["per_repository"].items()
    }
    assert scores == {f"r{number:02}": float(number == 3) for number in range(13)}


def test_12_candidates_run_side_by_side(config: EvalConfig) -> None:
    codes = [f"python train.py --lr 0.1; sleep 1.5 # {number}" for number in range(4)]
    began = time.monotonic()
    assert statuses(replace(config, workers=4), {1: codes})[1] == ["passed"] * 4
    assert time.monotonic() - began < 4 * 1.5


def test_13_a_prefix_is_run_and_a_commit_is_proven(
    config: EvalConfig, rows: list[Row], repositories: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = replace(rows[0], prefix_code="export LR=0.1", output="python train.py --lr $LR # --lr 0.1")
    Path(config.rows or "").write_text(json.dumps(row.as_dict()) + "\n")
    assert statuses(config, {1: ["python train.py --lr $LR; python train.py --lr 0.1"]})[1] == ["passed"]
    described = Repository("tiny", row.github, "0" * 40, "none", "test")
    monkeypatch.setattr("eval.checkouts.read_repositories", lambda: {"tiny": described})
    with pytest.raises(BadInput, match="is no git checkout"):
        find_checkouts(repositories, [row], any_commit=False)


def test_14_five_candidates_are_drawn_to_differ() -> None:
    config = GenerateConfig()
    assert (config.n, config.temperature >= 0.5, config.top_p >= 0.9) == (5, True, True)


def test_15_what_generate_writes_is_what_eval_reads(config: EvalConfig, rows: list[Row]) -> None:
    file = CandidatesFile(config.candidates, {"benchmark_sha256": "b", "n": 1})
    file.append([(row.key, Answer(0, [Completion(row.output, "stop", 3)], Usage())) for row in rows])
    main(config)
    assert summary(config)["status"]["passed"] == len(rows)


def summary(config: EvalConfig) -> dict[str, Any]:
    return json.loads((Path(config.out or "") / "summary.json").read_text())
