"""Leaks between training and test rows are counted, listed, and dropped if asked."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from mlbench_data.benchmark import Benchmark, Readmes, open_benchmark, write_benchmark
from mlbench_data.leaks import find, normalised_answer
from mlbench_data.rows import Row
from tests.helpers import RunScript, error_line
from tests.mlbench_data.samples import make_row

SCRIPT = "mlbench_data/leaks.py"

TEST = [
    make_row(1),
    make_row(2, output="python train.py \\\n  --lr 2"),
    make_row(3, instruction="Draw a graph of nine nodes, please."),
]
CLEAN = make_row(50, instruction="Something else altogether is wanted here.")
SAME_ARGUMENTS = make_row(51, arguments="{'lr': 1}", output="bash x.sh", instruction="In other words.")
SAME_ANSWER = make_row(52, output="python  train.py --lr 2\n\n", instruction="Yet another wording.")
NEAR_INSTRUCTION = make_row(53, instruction="Draw a graph of nine nodes please.")
TRAIN = [CLEAN, SAME_ARGUMENTS, SAME_ANSWER, NEAR_INSTRUCTION]


@pytest.fixture
def benchmark(tmp_path: Path) -> Benchmark:
    splits = {"full": TEST, "id_train": TRAIN, "ood_train": [replace(CLEAN, github_id=8)]}
    return write_benchmark(
        tmp_path / "leaky", splits, Readmes({7: "A.", 8: "B."}, {7: "T."}), {"source": "x", "seed": 3}
    )


def kinds_of(train: list[Row]) -> list[tuple[str, tuple[int, int], tuple[int, int]]]:
    found = find("id_train", train, TEST, ("arguments", "answer", "instruction"), 0.95)
    return [(leak.kind, leak.train, leak.test) for leak in found]


def test_each_kind_of_leak_is_found_and_nothing_else() -> None:
    assert kinds_of(TRAIN) == [
        ("arguments", (7, 51), (7, 1)),
        ("answer", (7, 52), (7, 2)),
        ("instruction", (7, 53), (7, 3)),
    ]
    assert kinds_of([CLEAN]) == []


def test_the_same_arguments_of_another_repository_are_no_leak() -> None:
    other = make_row(
        51, github="https://example.org/other", arguments="{'lr': 1}", output="a", instruction="b"
    )
    assert kinds_of([other]) == []


def test_an_answer_is_compared_without_what_changes_nothing() -> None:
    one = make_row(output="cd x\n\npython a.py \\\n    --b  1\n")
    assert normalised_answer(one) == "cd x\npython a.py --b 1"
    assert normalised_answer(make_row(output="python A.py")) != normalised_answer(
        make_row(output="python a.py")
    )


def test_the_threshold_decides_what_is_near() -> None:
    assert [leak.kind for leak in find("x", [NEAR_INSTRUCTION], TEST, ("instruction",), 1.0)] == []
    assert len(list(find("x", [NEAR_INSTRUCTION], TEST, ("instruction",), 0.5))) >= 1


def test_the_command_counts_lists_and_drops(
    tmp_path: Path, benchmark: Benchmark, run_script: RunScript
) -> None:
    out = tmp_path / "out"
    done = run_script(SCRIPT, "--benchmark", benchmark.folder, "--drop_leaks", "--out", out, check=True)
    assert "id_train        4  arguments                1   25.0%          1" in done.stdout
    record = json.loads((out / "leaks.json").read_text())
    assert record["leaking_training_rows"]["id_train"] == {"arguments": 1, "answer": 1, "instruction": 1}
    assert len(record["leaks"]) == 3
    without = open_benchmark(out / "benchmark")
    assert without.rows("id_train") == [CLEAN]
    assert without.rows("full") == TEST
    assert without.readme(TEST[0], "full") == "T."
    assert without.manifest["seed"] == 3
    assert without.manifest["without_leaks_of"] == benchmark.sha256


def test_only_the_asked_kinds_are_dropped(
    tmp_path: Path, benchmark: Benchmark, run_script: RunScript
) -> None:
    run_script(SCRIPT, "--benchmark", benchmark.folder, "--kinds", "arguments", "--drop_leaks",
               "--out", tmp_path / "out", check=True)  # fmt: skip
    assert open_benchmark(tmp_path / "out" / "benchmark").rows("id_train") == [
        CLEAN,
        SAME_ANSWER,
        NEAR_INSTRUCTION,
    ]


def test_minibench_gives_no_arguments_and_no_answers_away(run_script: RunScript) -> None:
    done = run_script(SCRIPT, "--benchmark", "mini", "--kinds", "arguments", "answer", check=True)
    counts = [line.split()[3] for line in done.stdout.splitlines()[1:]]
    assert counts == ["0"] * 4, done.stdout


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["--similarity", "0"], "similarity is 0.0; expected more than 0"),
        (["--drop_leaks"], "drop_leaks writes another benchmark; say where to with --out"),
        (["--benchmark", "missing"], "expected a prepared benchmark"),
        (["--kinds", "words"], "words"),
    ],
)
def test_bad_input_is_one_line(run_script: RunScript, arguments: list[str], error: str) -> None:
    assert error in error_line(run_script(SCRIPT, *arguments))


def test_a_benchmark_without_training_rows_has_nothing_to_leak(tmp_path: Path, run_script: RunScript) -> None:
    write_benchmark(tmp_path / "b", {"full": TEST}, Readmes(), {"source": "x"})
    line = error_line(run_script(SCRIPT, "--benchmark", tmp_path / "b"))
    assert "has full; leaks need a test and a training split" in line
