"""mlbench_data/build.py as a user runs it: exit codes, one-line errors, the same bytes for the same seed."""

import json
from pathlib import Path

import pytest

from mlbench_data.benchmark import open_benchmark
from mlbench_data.build import BuildConfig, main
from mlbench_data.models import Model
from mlbench_data.rows import read_rows
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
    assert benchmark.readme(rows[0], "full") == "Tiny\n"


def test_rows_without_readmes_are_reported(tmp_path: Path, run_script: RunScript) -> None:
    source = write_rows(tmp_path / "rows.jsonl", [make_row(github="https://github.com/dmlc/dgl")])
    done = run_script(BUILD, "--source", source, "--splits", "full", "--out", tmp_path / "out", check=True)
    assert done.stderr == "no README (tasks 1 and 2 need --readmes DIR): dgl\n"


def test_repositories_without_readme_can_be_allowed(tmp_path: Path, run_script: RunScript) -> None:
    other = make_row(github_id=8, github="https://example.org/somebody/other")
    source = write_rows(tmp_path / "rows.jsonl", [make_row(), other])
    (tmp_path / "pages" / "tiny").mkdir(parents=True)
    (tmp_path / "pages" / "tiny" / "README.md").write_text("# Tiny\n")
    given = ("--source", source, "--readmes", tmp_path / "pages", "--out", tmp_path / "out")
    assert "pages: without other/README.md" in error_line(run_script(BUILD, *given))
    done = run_script(BUILD, *given, "--allow_missing_readmes", check=True)
    assert "no README (tasks 1 and 2 need --readmes DIR): other" in done.stderr


def test_a_pool_is_split_anew_whatever_its_order(tmp_path: Path, run_script: RunScript) -> None:
    """Byte-identical benchmarks from the same rows in another order."""
    rows = [make_row(number, github_id=number % 3, github=f"https://example.org/r{number % 3}")
            for number in range(90)]  # fmt: skip
    for name in ("r0", "r1", "r2"):
        (tmp_path / "pages" / name).mkdir(parents=True)
        (tmp_path / "pages" / name / "README.md").write_text(f"# {name}\n")
    built = []
    for number, order in enumerate((rows, rows[::-1])):
        (tmp_path / str(number)).mkdir()
        source = write_rows(tmp_path / str(number) / "rows.jsonl", order)
        out = tmp_path / str(number) / "out"
        run_script(BUILD, "--source", source, "--readmes", tmp_path / "pages", "--test_share", "0.1",
                   "--ood", "r2", "--out", out, check=True)  # fmt: skip
        built.append({name: content for name, content in bytes_below(out).items() if name != "manifest.json"})
    assert built[0] == built[1]
    benchmark = open_benchmark(tmp_path / "0" / "out")
    assert {name: split["rows"] for name, split in benchmark.manifest["splits"].items()} == {
        "full": 6, "quarter": 2, "id_train": 54, "ood_train": 30}  # fmt: skip


def test_a_benchmark_that_has_a_quarter_can_be_split_anew(tmp_path: Path, run_script: RunScript) -> None:
    """The quarter's rows are in full as well: they count once."""
    (tmp_path / "pages").mkdir()
    rows = [make_row(number) for number in range(40)]
    write_rows(tmp_path / "full.jsonl", rows)
    write_rows(tmp_path / "quarter.jsonl", rows[:10])
    (tmp_path / "pages" / "tiny").mkdir()
    (tmp_path / "pages" / "tiny" / "README.md").write_text("# Tiny")
    run_script(BUILD, "--source", tmp_path, "--readmes", tmp_path / "pages", "--test_share", 0.25,
               "--out", tmp_path / "out", check=True)  # fmt: skip
    manifest = open_benchmark(tmp_path / "out").manifest
    assert [manifest["splits"][name]["rows"] for name in ("full", "id_train")] == [10, 30]


def test_real_rows_with_real_readmes(shared_data: Path, tmp_path: Path, run_script: RunScript) -> None:
    rows = shared_data / "mlbench" / "rows.jsonl"
    run_script(
        BUILD, "--source", rows, "--readmes", shared_data / "readmes", "--out", tmp_path / "real", check=True
    )
    benchmark = open_benchmark(tmp_path / "real")
    assert benchmark.rows("full") == read_rows(rows)
    assert benchmark.manifest["without_readme"] == []
    assert benchmark.manifest["commits"]["dgl"] == "f5c8c0b500db810210d22add9b7d6fc809edc0d2"
    attention = next(row for row in benchmark.rows("full") if row.github_id == 9)
    assert benchmark.readme(attention, "full") != benchmark.readme(attention, "id_train")


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
        (["--source", "{rows}"], "rows.jsonl: unknown repository tiny; describe it in a file for"),
        (
            ["--source", "{rows}", "--readmes", "{pages}"],
            "pages: without tiny/README.md; add them, or say --allow",
        ),
        (["--source", "{rows}", "--readmes", "{latin}"], "README.md: not UTF-8 text (byte 0)"),
        (["--source", "{silent}"], "silent.jsonl: row tiny 1 has an empty oracle"),
        (["--source", "{twice}"], "twice.jsonl: two rows have github_id 7, id 1"),
        (["--source", "{torn}"], "torn.parquet: not a readable parquet file"),
        (
            ["--source", "{rows}", "--test_share", "1"],
            "test_share is 1.0; expected more than 0 and less than 1",
        ),
        (["--source", "{rows}", "--ood", "tiny"], "ood names repositories of a new split; give test_share"),
        (
            ["--source", "{rows}", "--test_share", ".1", "--ood", "huge"],
            "no row is of the repository huge of",
        ),
        (["--test_share", ".1"], "mini has its own splits"),
        (
            ["--source", "{rows}", "--splits", "id_train"],
            "has none of the splits id_train; it has full, quarter",
        ),
        (["--repositories", "{broken}"], "broken.jsonl:2: not YAML ("),
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
    files["silent"] = write_rows(tmp_path / "silent.jsonl", [make_row(oracle=" \n")])
    files["twice"] = write_rows(tmp_path / "twice.jsonl", [row, row])
    files["torn"] = tmp_path / "torn.parquet"
    files["torn"].write_bytes(b"PAR1 and no more")
    for name, page in {"pages": None, "latin": b"\x80\xe9"}.items():
        files[name] = tmp_path / name
        (files[name] / "tiny").mkdir(parents=True)
        if page is not None:
            (files[name] / "tiny" / "README.md").write_bytes(page)
    given = [argument.format(**files) for argument in arguments]
    assert error in error_line(run_script(BUILD, "--out", tmp_path / "out", *given))
    assert not (tmp_path / "out").exists()
    assert not list(tmp_path.glob(".out*"))


def test_an_output_that_is_something_else_is_one_line(tmp_path: Path, run_script: RunScript) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    line = error_line(run_script(BUILD, "--out", tmp_path))
    assert "not empty and not a prepared benchmark" in line
    assert (tmp_path / "notes.txt").read_text() == "mine"
