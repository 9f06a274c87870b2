"""The filled Table 1: the paper's figures where they belong, and what is missing shown as missing."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from eval import run
from eval.config import EvalConfig
from eval.report import ReportConfig, main
from eval.sweep_table import as_text, read_table, rows_of
from mlbench_data.bad_input import BadInput


@pytest.fixture
def evaluated(rows_file: Path, gold_file: Path, tmp_path: Path) -> EvalConfig:
    """The answer key as candidates, checked only."""
    return EvalConfig(
        candidates=str(gold_file), rows=str(rows_file), execute=False, out=str(tmp_path / "results")
    )


def sweep_of(folder: Path, models: list[str], benchmark: str = "runs/mlbench") -> Path:
    """A sweep's folder as slurm/submit.py describes it, without results."""
    cells = [
        {"name": f"{model}-{trained_on}-task{task}", "model": model, "trained_on": trained_on, "task": task,
         "split": "full", "seed": 0, "engine": "auto",
         "results": f"{model}-{trained_on}-task{task}/results/all"}
        for model in models for trained_on in ("raw", "id", "ood") for task in (1, 2, 3)
    ]  # fmt: skip
    folder.mkdir()
    (folder / "sweep.json").write_text(
        json.dumps({"settings": {"benchmark": benchmark}, "code": "c0de", "cells": cells})
    )
    return folder


def line_of(folder: Path, title: str) -> dict[str, list[str]]:
    table = read_table(folder)
    [line] = [line for line in table.lines if line.title == title]
    return dict(rows_of(line, table.tasks))


def test_an_empty_sweep_shows_the_papers_table_with_its_own_gaps(tmp_path: Path) -> None:
    folder = sweep_of(tmp_path / "sweep", ["codellama-7b-instruct", "deepseek-coder-6.7b-base", "llama-2-7b"])
    found = line_of(folder, "codellama-7b-instruct, ID")
    assert found["paper"] == ["–", "–", "–", "2.69", "6.15", "9.62", "17.69", "23.46", "30.77"], (
        "task 1 was not trained"
    )
    assert found["ours"] == ["missing"] * 9
    assert line_of(folder, "codellama-7b-instruct, raw")["paper"][:3] == ["1.54", "3.85", "8.85"]
    assert line_of(folder, "llama-2-7b, OOD")["paper"][6:] == ["0.00", "0.00", "0.38"]
    assert len(read_table(folder).lines) == 9


def test_minibench_is_not_compared_with_the_papers_rows(tmp_path: Path) -> None:
    folder = sweep_of(tmp_path / "sweep", ["codellama-7b-instruct"], benchmark="mini")
    assert line_of(folder, "codellama-7b-instruct, raw")["paper"] == ["–"] * 9


def test_a_cell_stands_beside_the_papers_with_difference_interval_and_ceiling(
    evaluated: EvalConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = sweep_of(tmp_path / "sweep", ["codellama-7b-instruct"])
    run.main(replace(evaluated, out=str(folder / "codellama-7b-instruct-id-task3" / "results" / "all")))
    capsys.readouterr()
    assert main(ReportConfig(results=[str(folder)], out=str(folder / "report.html"))) == 0
    found = line_of(folder, "codellama-7b-instruct, ID")
    assert found["ours"][6] == "100.00"
    assert found["difference"][6] == "+82.31"
    assert found["ceiling"][6] == found["strict"][6] == "100.00"
    assert found["interval"][6].endswith("–100.0")
    printed = capsys.readouterr().out
    assert "1 of 9 cells" in printed
    assert "task3: candidates were checked and not run; has 3 rows where the paper has 260" in printed
    page = (folder / "report.html").read_text()
    assert 'href="codellama-7b-instruct-id-task3/results/all/report.html"' in page
    assert page.count("missing") >= 8
    table = json.loads((folder / "table.json").read_text())
    assert list(table["results"]) == ["codellama-7b-instruct-id-task3"]


@pytest.mark.parametrize(("context", "marked"), [(4096, True), (8192, False), (None, False)])
def test_a_cell_of_a_model_that_reads_less_than_the_papers_script_says_so(
    context: int | None,
    marked: bool,
    evaluated: EvalConfig,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = sweep_of(tmp_path / "sweep", ["llama-2-7b"])
    candidates = tmp_path / "candidates.jsonl"
    candidates.write_bytes(Path(evaluated.candidates).read_bytes())
    manifest = {"identity": {"model": "llama-2-7b"}} | ({"context": context} if context else {})
    (tmp_path / "candidates.manifest.json").write_text(json.dumps(manifest))
    out = str(folder / "llama-2-7b-raw-task3" / "results" / "all")
    run.main(replace(evaluated, candidates=str(candidates), out=out))
    assert main(ReportConfig(results=[str(folder)], out=str(folder / "report.html"))) == 0
    note = "† reads 4,096 tokens of prompt and answer; the paper's script used 8,192"
    shown = capsys.readouterr().out, (folder / "report.html").read_text().replace("&#39;", "'")
    found = line_of(folder, "llama-2-7b, raw")["ours"][6]
    table = json.loads((folder / "table.json").read_text())
    [line] = [line for line in table["lines"] if line["title"] == "llama-2-7b, raw"]
    assert found == ("100.00†" if marked else "100.00")
    assert (line["cells"]["3"]["mark"], line["cells"]["3"]["context"]) == ("†" if marked else "", context)
    assert table["footnotes"] == ([note] if marked else [])
    assert all((note in text and "100.00†" in text) == marked for text in shown)


def test_the_table_fits_a_terminal(tmp_path: Path) -> None:
    folder = sweep_of(tmp_path / "sweep", ["codellama-7b-instruct"])
    lines = [line for text in as_text(read_table(folder)) for line in text.splitlines()]
    assert max(map(len, lines)) <= 120


@pytest.mark.parametrize("content", ["{}", "[]", '{"cells": [{}], "settings": {}}', "no JSON"])
def test_a_damaged_sweep_is_one_line(content: Any, tmp_path: Path) -> None:
    (tmp_path / "sweep.json").write_text(content)
    with pytest.raises(BadInput, match=r"sweep\.json"):
        main(ReportConfig(results=[str(tmp_path)], out=str(tmp_path / "report.html")))
    assert not (tmp_path / "report.html").exists()


def test_a_sweep_is_not_mixed_with_other_results(tmp_path: Path) -> None:
    folder = sweep_of(tmp_path / "sweep", ["llama-2-7b"])
    with pytest.raises(BadInput, match="alone"):
        main(ReportConfig(results=[str(folder), str(tmp_path)], out=str(tmp_path / "report.html")))
