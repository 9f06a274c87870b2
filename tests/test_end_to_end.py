"""The main job at toy size through the real scripts: build, train, sample, evaluate, report."""

import json
from pathlib import Path

import pytest

from mlbench_data.models import Model
from tests.helpers import RunScript, error_line, read_lines


@pytest.fixture(scope="module")
def folder(tokenizer_model: Model, run_script: RunScript, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Everything that the scripts make, one after the other, each reading what the one before wrote."""
    folder = tmp_path_factory.mktemp("whole")
    benchmark, adapter = folder / "benchmark", folder / "adapter"
    shared = ["--benchmark", benchmark, "--model", tokenizer_model.location, "--task", 2]
    run_script("mlbench_data/build.py", "--source", "mini", "--out", benchmark, check=True)
    recipe = ["--config", "configs/train/smollm2-135m-id-task3.yaml", "--max_rows", 24]
    run_script("train/sft.py", *recipe, *shared, "--output_dir", adapter, check=True)
    sampling = ["--adapter", adapter, "--max_new_tokens", 24, "--split", "quarter"]
    candidates = folder / "candidates.jsonl"
    run_script("infer/generate.py", *shared, *sampling, "--out", candidates, check=True)
    evaluated = ["--candidates", candidates, "--benchmark", benchmark, "--split", "quarter"]
    run_script("eval/run.py", *evaluated, "--out", folder / "results", check=True)
    return folder


def test_the_answer_key_passes_in_the_sandbox(folder: Path) -> None:
    summary = json.loads((folder / "results" / "summary.json").read_text())
    assert summary["executed"] is True
    assert summary["ceiling"] == 1.0
    assert summary["ceiling_detail"]["status"]["passed"] == summary["rows"] == 17


def test_every_candidate_asked_for_has_a_verdict(folder: Path) -> None:
    results = read_lines(folder / "results" / "results.jsonl")
    summary = json.loads((folder / "results" / "summary.json").read_text())
    assert len(results) == summary["candidates"] == 17 * 5
    assert sum(summary["status"].values()) == 17 * 5
    assert summary["pass_at_k"]["5"]["first_k"] is not None


def test_results_are_graded_again_without_running_anything(folder: Path, run_script: RunScript) -> None:
    run_script("eval/report.py", folder / "results", "--out", folder / "report.html", check=True)
    assert "<html" in (folder / "report.html").read_text()


def test_candidates_of_another_benchmark_are_refused(
    folder: Path, run_script: RunScript, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    run_script("mlbench_data/build.py", "--source", "mini", "--seed", 1, "--out", other, check=True)
    asked = ["--candidates", folder / "candidates.jsonl", "--benchmark", other, "--split", "quarter"]
    done = run_script("eval/run.py", *asked, "--out", tmp_path / "results")
    assert "another benchmark" in error_line(done)
    assert not (tmp_path / "results").exists()
