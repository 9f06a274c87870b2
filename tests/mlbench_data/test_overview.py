"""The paper's statistics, on small benchmarks whose numbers can be counted by hand, and on MiniBench."""

import json
from pathlib import Path

import pytest

from mlbench_data.benchmark import Readmes, write_benchmark
from mlbench_data.overview import (
    bleu1,
    composition,
    distance_of,
    domains_of,
    length_of,
    pairs_of_instructions,
)
from mlbench_data.rows import PYTHON
from tests.helpers import RunScript, error_line
from tests.mlbench_data.samples import make_row

SCRIPT = "mlbench_data/overview.py"


def words(text: str) -> int:
    return len(text.split())


def test_a_length_is_average_and_maximum_over_rows() -> None:
    found = length_of(["a b c", "a", "a b"], words)
    assert (found.rows, found.average, found.maximum) == (3, 2.0, 3)


def test_rows_are_counted_by_domain_repository_and_type() -> None:
    rows = [
        make_row(1, github="https://github.com/dmlc/dgl", github_id=1),
        make_row(2, github="https://github.com/dmlc/dgl", github_id=1, type=PYTHON),
        make_row(3),
    ]
    found = composition(rows, domains_of(None))
    assert found["rows"] == 3
    assert found["bash"] == 2
    assert found["domains"]["graph neural networks"] == {"dgl": {"Bash Script": 1, "Python Code": 1}}
    assert found["domains"]["not described"] == {"tiny": {"Bash Script": 1}}


def test_pairs_lie_within_a_task_or_across_two() -> None:
    rows = [
        make_row(number, oracle=f"Segment {number // 2}.", instruction=f"task {number // 2} row {number}")
        for number in range(6)
    ]
    within, across = pairs_of_instructions(rows)
    assert len(within) == 3
    assert all(one.split()[1] == other.split()[1] for one, other in within)
    assert len(across) == 12
    assert all(one.split()[1] != other.split()[1] for one, other in across)
    assert pairs_of_instructions(rows[::-1]) == (within, across)


def test_edit_distance_is_levenshteins() -> None:
    found = distance_of([("kitten", "sitting"), ("same", "same")])
    assert (found.pairs, found.average, found.share) == (2, 1.5, pytest.approx(3 / 7 / 2, abs=1e-4))
    assert distance_of([]).average is None


def test_bleu1_is_the_share_of_the_windows_words_with_the_brevity_penalty() -> None:
    assert bleu1({"bm25": ["a b c d"], "oracle": ["a b c d"]}) == pytest.approx(1.0, abs=1e-4)
    assert bleu1({"bm25": ["a b x y"], "oracle": ["a b c d"]}) == pytest.approx(0.5, abs=1e-4)
    assert bleu1({"bm25": ["a b"], "oracle": ["a b c d"]}) == pytest.approx(0.3679, abs=1e-3)
    assert bleu1({"oracle": ["a"]}) is None


def test_minibenchs_overview_is_printed_written_and_drawn(tmp_path: Path, run_script: RunScript) -> None:
    done = run_script(SCRIPT, "--out", tmp_path / "out", check=True)
    for title in ("Table 7", "Table 8", "Table 9", "Table 11"):
        assert title in done.stdout
    found = json.loads((tmp_path / "out" / "overview.json").read_text())
    assert sorted(found["table9"]) == ["full", "id_train", "ood_train"]
    within = found["table9"]["id_train"]["edit_distance_within_tasks"]["average"]
    assert within < found["table9"]["id_train"]["edit_distance_across_tasks"]["average"]
    assert (tmp_path / "out" / "overview.png").read_bytes().startswith(b"\x89PNG")


def test_rows_without_readmes_are_described_by_what_they_have(tmp_path: Path, run_script: RunScript) -> None:
    write_benchmark(tmp_path / "b", {"full": [make_row()]}, Readmes(), {"source": "x"})
    done = run_script(SCRIPT, "--benchmark", tmp_path / "b", "--out", tmp_path / "out", check=True)
    assert "no READMEs" in done.stdout
    found = json.loads((tmp_path / "out" / "overview.json").read_text())
    assert list(found["table7"]["full"]) == ["oracle"]
    assert found["table11"] == {"full": None}
    assert found["table9"]["full"]["edit_distance_within_tasks"]["average"] is None


def test_bad_input_is_one_line(run_script: RunScript) -> None:
    assert "expected a prepared benchmark" in error_line(run_script(SCRIPT, "--benchmark", "missing"))
