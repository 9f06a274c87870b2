"""Table 8, reproduced from the pages themselves."""

import json
from pathlib import Path

import pytest

from tests.helpers import RunScript, error_line

SCRIPT = "mlbench_data/lengths.py"


@pytest.fixture(scope="module")
def table8(
    shared_data: Path, run_script: RunScript, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, dict[str, int]]:
    out = tmp_path_factory.mktemp("lengths") / "lengths.json"
    given = ("--readmes", shared_data / "readmes", "--tokenizers", shared_data / "tokenizers")
    done = run_script(SCRIPT, *given, "--out", out, check=True)
    assert "not below" in done.stdout
    return json.loads(out.read_text())


def papers(shared_data: Path) -> dict[str, dict[str, int]]:
    return json.loads((shared_data / "paper" / "tables.json").read_text())["table8_tokens_per_repository"]


def test_every_page_at_hand_is_measured(table8: dict[str, dict[str, int]], shared_data: Path) -> None:
    assert sorted(table8) == sorted(path.name for path in (shared_data / "readmes").iterdir())


@pytest.mark.parametrize(
    ("column", "most"), [("gpt35.readme.train", 0.006), ("codellama.readme.train", 0.01)]
)
def test_the_papers_train_columns_are_met(
    table8: dict[str, dict[str, int]], shared_data: Path, column: str, most: float
) -> None:
    published = {name: papers(shared_data)[name][column] for name in table8}
    known = {name: tokens for name, tokens in published.items() if tokens is not None}
    assert len(known) == 10
    for name, tokens in known.items():
        assert table8[name][column] == pytest.approx(tokens, rel=most), name


def test_most_of_gpt35s_train_column_is_exact(table8: dict[str, dict[str, int]], shared_data: Path) -> None:
    published = papers(shared_data)
    exact = sum(
        lengths["gpt35.readme.train"] == published[name]["gpt35.readme.train"]
        for name, lengths in table8.items()
    )
    assert exact == 7


def test_the_papers_tables_are_those_of_the_product(shared_data: Path) -> None:
    from mlbench_data.papers_tables import papers_table

    for name, lengths in papers(shared_data).items():
        assert papers_table("table8")[name] == {
            key: value for key, value in lengths.items() if value is not None
        }


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["--readmes", "missing"], "missing: no such folder"),
        (["--readmes", "configs"], "configs: holds no README of dgl"),
        (
            ["--readmes", "configs", "--tokenizers", "nowhere"],
            "nowhere: no such folder; expected llama.model",
        ),
        ([], "readmes"),
    ],
)
def test_bad_input_is_one_line(
    run_script: RunScript, shared_data: Path, arguments: list[str], error: str
) -> None:
    given = ["--tokenizers", str(shared_data / "tokenizers")] if "--tokenizers" not in arguments else []
    assert error in error_line(run_script(SCRIPT, *given, *arguments))
