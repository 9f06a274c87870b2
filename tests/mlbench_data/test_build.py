"""mlbench_data/build.py as a user runs it: exit codes, one-line errors, the same bytes for the same seed."""

import json
from pathlib import Path

import pytest

from mlbench_data.benchmark import open_benchmark
from mlbench_data.build import BuildConfig, main
from mlbench_data.models import Model
from tests.helpers import RunScript, error_line
from tests.mlbench_data.samples import bytes_below, make_row, write_rows

BUILD = "mlbench_data/build.py"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, run_script: RunScript) -> Path:
    out = tmp_path_factory.mktemp("built") / "minibench"
    done = run_script(BUILD, "--source", "mini", "--out", out, check=True)
    assert f"written to {out}" in done.stdout
    return out


def test_minibench_has_every_split_and_says_so(built: Path) -> None:
    benchmark = open_benchmark(built)
    assert list(benchmark.manifest["splits"]) == ["full", "quarter", "id_train", "ood_train"]
    assert benchmark.manifest["source"] == "mini"
    assert benchmark.manifest["without_readme"] == []
    assert len(benchmark.rows("full")) == benchmark.manifest["splits"]["full"]["rows"]


def test_the_manifest_hashes_everything_read_and_names_the_tool(built: Path) -> None:
    manifest = json.loads((built / "manifest.json").read_text())
    pages = [name for name in manifest["read"] if name.endswith(".md")]
    specifications = [name for name in manifest["read"] if name.endswith(".yaml")]
    assert len(pages) == len(specifications) == len(manifest["readmes"])
    assert all(len(value) == 64 for value in manifest["read"].values())
    assert manifest["tool"].startswith("mlbench-toolkit ")


def test_the_same_seed_gives_the_same_bytes(built: Path, tmp_path: Path, run_script: RunScript) -> None:
    run_script(BUILD, "--out", tmp_path / "again", "--seed", 0, env={"PYTHONHASHSEED": "7"}, check=True)
    assert bytes_below(tmp_path / "again") == bytes_below(built)


def test_another_seed_gives_other_rows(built: Path, tmp_path: Path, run_script: RunScript) -> None:
    run_script(BUILD, "--out", tmp_path / "other", "--seed", 1, check=True)
    first, other = open_benchmark(built), open_benchmark(tmp_path / "other")
    assert other.rows("full") != first.rows("full")
    assert other.sha256 != first.sha256
    assert len(other.rows("full")) == len(first.rows("full"))


def test_a_file_of_rows_becomes_a_benchmark_and_missing_splits_are_reported(
    tmp_path: Path, run_script: RunScript
) -> None:
    rows = [make_row(number) for number in (1, 2, 3)]
    source = write_rows(tmp_path / "rows.jsonl", rows)
    (tmp_path / "pages" / "tiny").mkdir(parents=True)
    (tmp_path / "pages" / "tiny" / "README.md").write_text("# Tiny\n")
    done = run_script(
        BUILD, "--source", source, "--readmes", tmp_path / "pages", "--out", tmp_path / "out", check=True
    )
    assert "not in the source: id_train, ood_train" in done.stderr
    benchmark = open_benchmark(tmp_path / "out")
    assert benchmark.rows("full") == rows
    assert benchmark.readme(rows[0]) == "Tiny\n"


def test_rows_without_readmes_are_reported(tmp_path: Path, run_script: RunScript) -> None:
    source = write_rows(tmp_path / "rows.jsonl", [make_row()])
    done = run_script(BUILD, "--source", source, "--splits", "full", "--out", tmp_path / "out", check=True)
    assert done.stderr == "no README (tasks 1 and 2 need --readmes DIR): tiny\n"


def test_readme_lengths_are_printed_for_a_tokenizer(
    tmp_path: Path, tokenizer_model: Model, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "out")
    assert main(BuildConfig(splits=["quarter"], tokenizer=tokenizer_model.location, out=out)) == 0
    lengths = [line for line in capsys.readouterr().out.splitlines() if " tokens  readmes/" in line]
    assert len(lengths) == len(open_benchmark(out).manifest["readmes"])
    assert all(int(line.split()[0]) > 100 for line in lengths)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["--source", "missing.jsonl"], "missing.jsonl: no such source; expected mini"),
        (["--source", "{rows}", "--readmes", "missing"], "missing: no such folder"),
        (["--source", "{broken}"], "broken.jsonl:2: broken JSON"),
        (["--source", "{lacking}"], "lacking.jsonl:1: row without output"),
        (["--source", "{leaked}"], "id_train: training row tiny 2 has the arguments of a test row"),
        (["--splits", "full", "quater"], "no split 'quater'; did you mean quarter?"),
        (["--tokenizer", "smollm2-135n"], "unknown model 'smollm2-135n': did you mean smollm2-135m?"),
        (["--sorce", "mini"], "unknown option 'sorce'; did you mean source?"),
        (["--seed", "first"], "seed"),
    ],
)
def test_bad_input_is_one_line_and_writes_nothing(
    tmp_path: Path, run_script: RunScript, arguments: list[str], error: str
) -> None:
    row = make_row()
    files = {"rows": write_rows(tmp_path / "rows.jsonl", [row])}
    files["broken"] = write_rows(tmp_path / "broken.jsonl", [row])
    files["broken"].write_text(files["broken"].read_text() + '{"id": 2,\n')
    files["lacking"] = tmp_path / "lacking.jsonl"
    files["lacking"].write_text(
        json.dumps({name: value for name, value in row.as_dict().items() if name != "output"})
    )
    files["leaked"] = tmp_path / "leaked"
    files["leaked"].mkdir()
    write_rows(files["leaked"] / "full.jsonl", [row])
    write_rows(files["leaked"] / "id_train.jsonl", [make_row(2, arguments=row.arguments)])
    given = [argument.format(**files) for argument in arguments]
    assert error in error_line(run_script(BUILD, "--out", tmp_path / "out", *given))
    assert not (tmp_path / "out").exists()
    assert not list(tmp_path.glob(".out*"))


def test_an_output_that_is_something_else_is_one_line(tmp_path: Path, run_script: RunScript) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    line = error_line(run_script(BUILD, "--out", tmp_path))
    assert "not empty and not a prepared benchmark" in line
    assert (tmp_path / "notes.txt").read_text() == "mine"
