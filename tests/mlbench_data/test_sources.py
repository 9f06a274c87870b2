"""Where a benchmark comes from, and that writing it is all or nothing."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mlbench_data.bad_input import BadInput
from mlbench_data.benchmark import open_benchmark, write_parquet
from mlbench_data.files import write_json
from mlbench_data.rows import Row, read_rows
from mlbench_data.sources import Source, benchmark_named, read_source, write_benchmark
from mlbench_data.splits import check_disjoint, quarter_of
from tests.mlbench_data.samples import bytes_below, make_row, write_rows

ROWS = [make_row(number) for number in range(1, 9)]
OTHER = [make_row(number, github_id=8, github="https://example.org/somebody/other") for number in (1, 2)]


def source_of(rows: list[Row], readme: str = "A page.") -> Source:
    return Source("rows.jsonl", {"full": rows}, {7: readme})


# --- reading


def test_rows_of_a_jsonl_file_are_the_full_split(tmp_path: Path) -> None:
    found = read_source(str(write_rows(tmp_path / "rows.jsonl", ROWS)), None, seed=0)
    assert found.splits["full"] == ROWS
    assert list(found.read) == ["rows.jsonl"]


def test_rows_of_a_parquet_file_are_the_same(tmp_path: Path) -> None:
    write_parquet(tmp_path / "rows.parquet", ROWS)
    assert read_source(str(tmp_path / "rows.parquet"), None, seed=0).splits["full"] == ROWS


def test_a_folder_has_a_file_for_each_split(tmp_path: Path) -> None:
    write_rows(tmp_path / "full.jsonl", ROWS[:4])
    write_parquet(tmp_path / "id_train.parquet", ROWS[4:])
    write_rows(tmp_path / "quarter.jsonl", ROWS[:1])
    found = read_source(str(tmp_path), None, seed=0)
    assert found.splits == {"full": ROWS[:4], "quarter": ROWS[:1], "id_train": ROWS[4:]}
    assert sorted(found.read) == ["full.jsonl", "id_train.parquet", "quarter.jsonl"]


@pytest.mark.parametrize("name", ["missing.jsonl", "rows.csv", "owner/name"])
def test_a_source_that_is_none_says_what_there_is(tmp_path: Path, name: str) -> None:
    (tmp_path / "rows.csv").touch()
    with pytest.raises(
        BadInput, match=r"no such source; expected mini, FILE.jsonl, FILE.parquet or a folder"
    ):
        read_source(str(tmp_path / name), None, seed=0)


def test_a_folder_without_splits_says_what_it_should_hold(tmp_path: Path) -> None:
    with pytest.raises(
        BadInput, match=r"no split there; expected full or quarter or id_train or ood_train as"
    ):
        read_source(str(tmp_path), None, seed=0)


def test_the_recorded_hash_follows_the_bytes_read(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "rows.jsonl", ROWS)
    before = read_source(str(path), None, seed=0).read
    write_rows(path, ROWS[:-1])
    assert read_source(str(path), None, seed=0).read != before


# --- READMEs


@pytest.mark.parametrize("name", ["README.md", "readme.md", "README.rst", "README"])
def test_readmes_lie_in_a_folder_for_each_repository(tmp_path: Path, name: str) -> None:
    (tmp_path / "pages" / "tiny").mkdir(parents=True)
    (tmp_path / "pages" / "tiny" / name).write_text("A *page*.\n")
    path = write_rows(tmp_path / "rows.jsonl", ROWS + OTHER)
    found = read_source(str(path), str(tmp_path / "pages"), seed=0)
    assert found.readmes == {7: "A page.\n"}
    benchmark = write_benchmark(found, ["full"], 0, tmp_path / "out")
    assert benchmark.readme(ROWS[0]) == "A page.\n"
    assert benchmark.manifest["without_readme"] == ["other"]


def test_a_readmes_folder_that_is_none_or_fits_no_row_is_refused(tmp_path: Path) -> None:
    path = str(write_rows(tmp_path / "rows.jsonl", ROWS))
    with pytest.raises(BadInput, match=r"missing: no such folder; --readmes takes a folder laid out as"):
        read_source(path, str(tmp_path / "missing"), seed=0)
    with pytest.raises(BadInput, match=r"holds none of tiny as REPOSITORY/README.md"):
        read_source(path, str(tmp_path), seed=0)


def test_real_readmes_serve_real_rows(shared_data: Path, tmp_path: Path) -> None:
    source = read_source(str(shared_data / "mlbench" / "rows.jsonl"), str(shared_data / "readmes"), seed=0)
    benchmark = write_benchmark(source, ["full"], 0, tmp_path / "real")
    rows = benchmark.rows("full")
    assert rows == read_rows(shared_data / "mlbench" / "rows.jsonl")
    assert benchmark.manifest["without_readme"] == []
    assert all(len(benchmark.readme(row)) > 1000 for row in rows)


# --- splits


def test_the_quarter_is_made_where_there_is_none(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "rows.jsonl", ROWS + OTHER)
    splits = read_source(str(path), None, seed=0).splits
    assert splits["quarter"] == quarter_of(ROWS + OTHER, seed=0)


def test_the_quarter_has_every_repository_and_keeps_the_order() -> None:
    rows = [make_row(number, github_id=number % 3, github=f"https://example.org/r{number % 3}")
            for number in range(300)]  # fmt: skip
    quarter = quarter_of(rows, seed=0)
    assert len(quarter) == pytest.approx(300 * 68 / 260, abs=2)
    assert {row.github_id for row in quarter} == {0, 1, 2}
    assert quarter == [row for row in rows if row in quarter]
    assert quarter_of(rows, seed=0) == quarter
    assert quarter_of(rows, seed=1) != quarter


@pytest.mark.parametrize("test_split", ["full", "quarter"])
@pytest.mark.parametrize("train_split", ["id_train", "ood_train"])
def test_a_training_row_with_a_test_rows_arguments_is_refused(
    tmp_path: Path, test_split: str, train_split: str
) -> None:
    write_rows(tmp_path / f"{test_split}.jsonl", ROWS)
    leaked = make_row(99, arguments=ROWS[2].arguments, instruction="In other words.")
    write_rows(tmp_path / f"{train_split}.jsonl", [make_row(50), leaked])
    with pytest.raises(
        BadInput, match=rf"{train_split}: training row tiny 99 has the arguments of a test row"
    ):
        read_source(str(tmp_path), None, seed=0)


def test_the_same_arguments_of_another_task_are_no_leak() -> None:
    test = make_row(1, arguments="{'a': '1', 'b': '2'}")
    check_disjoint([make_row(2, arguments=test.arguments, repo_id=2)], [test], "train")
    check_disjoint([make_row(2, arguments=test.arguments, path="./other")], [test], "train")
    with pytest.raises(BadInput, match="training row tiny 2"):
        check_disjoint([make_row(2, arguments="{'b': 2, 'a': 1}")], [test], "train")


# --- writing


def test_only_splits_that_are_asked_for_are_written(tmp_path: Path) -> None:
    source = Source("rows", {"full": ROWS, "id_train": OTHER}, {})
    benchmark = write_benchmark(source, ["id_train", "quarter"], 0, tmp_path / "out")
    assert list(benchmark.manifest["splits"]) == ["id_train"]
    assert sorted(path.name for path in benchmark.folder.iterdir()) == [
        "id_train.parquet",
        "manifest.json",
        "readmes",
    ]


def test_splits_that_the_source_has_none_of_are_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"rows.jsonl: has none of the splits id_train, ood_train"):
        write_benchmark(source_of(ROWS), ["id_train", "ood_train"], 0, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_a_misspelt_split_names_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"no split 'quater'; did you mean quarter\?"):
        write_benchmark(source_of(ROWS), ["full", "quater"], 0, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_an_earlier_benchmark_is_replaced(tmp_path: Path) -> None:
    out = tmp_path / "out"
    write_benchmark(source_of(ROWS), ["full"], 0, out)
    write_benchmark(source_of(ROWS[:2], "Another page."), ["full"], 0, out)
    assert open_benchmark(out).rows("full") == ROWS[:2]
    assert open_benchmark(out).readme(ROWS[0]) == "Another page."
    assert os.listdir(tmp_path) == ["out"]


def test_an_empty_folder_is_filled(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    assert write_benchmark(source_of(ROWS), ["full"], 0, tmp_path / "out").rows("full") == ROWS


@pytest.mark.parametrize("file", ["notes.txt", "manifest.json"])
def test_a_folder_that_is_something_else_is_left_alone(tmp_path: Path, file: str) -> None:
    out = tmp_path / "out"
    out.mkdir()
    write_json(out / file, {"name": "a web page"})
    before = bytes_below(tmp_path)
    with pytest.raises(BadInput, match=r"out: not empty and not a prepared benchmark; give another --out"):
        write_benchmark(source_of(ROWS), ["full"], 0, out)
    assert bytes_below(tmp_path) == before


def test_a_file_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("mine")
    with pytest.raises(BadInput, match=r"out: not a folder; give another --out"):
        write_benchmark(source_of(ROWS), ["full"], 0, tmp_path / "out")
    assert bytes_below(tmp_path) == {"out": b"mine"}


def test_an_output_that_cannot_be_written_is_bad_input(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BadInput, match=r"cannot write there \(Not a directory\); give a writable --out"):
        write_benchmark(source_of(ROWS), ["full"], 0, tmp_path / "file" / "out")


def test_the_folder_one_stands_in_can_be_the_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "out").mkdir()
    monkeypatch.chdir(tmp_path / "out")
    write_benchmark(source_of(ROWS), ["full"], 0, Path("."))
    assert open_benchmark(tmp_path / "out").rows("full") == ROWS


def test_a_kill_at_any_moment_leaves_no_half_folder(tmp_path: Path) -> None:
    """A second benchmark is written over a first one and killed before each change of the file system.

    Whatever stands under the name is one of the two, whole, or nothing, and the same command then works.
    """
    old, new = tmp_path / "old.jsonl", tmp_path / "new.jsonl"
    write_rows(old, ROWS)
    write_rows(new, ROWS[:3])
    done = subprocess.run(
        [sys.executable, "-c", KILLED_BEFORE_EACH_CHANGE, str(old), str(new), str(tmp_path / "out")],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= 8, "so few changes are not the whole of writing a benchmark"


KILLED_BEFORE_EACH_CHANGE = """
import os, shutil, signal, sys
from pathlib import Path
from mlbench_data.sources import read_source, write_benchmark

old, new, out = map(Path, sys.argv[1:])
CHANGES = ("os.rename", "os.remove", "os.rmdir", "os.mkdir", "open")

def kill_before(number):
    left = [number]
    def hook(event, arguments):
        writes = event in CHANGES and str(out.parent) in str(arguments) or event in ("os.remove", "os.rmdir")
        if writes and (left.append(left.pop() - 1) or left[0] < 0):
            os.kill(os.getpid(), signal.SIGKILL)
    sys.addaudithook(hook)

def write(source, killed_before=None):
    child = os.fork()
    if child == 0:
        if killed_before is not None:
            kill_before(killed_before)
        write_benchmark(read_source(str(source), None, seed=0), ["full", "quarter"], 0, out)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

def content():
    return {str(path.relative_to(out)): path.read_bytes() for path in out.rglob("*") if path.is_file()}

assert write(old) == 0
whole_old = content()
assert write(new) == 0
whole_new = content()
assert whole_old != whole_new
number = 0
while True:
    assert write(old) == 0
    code = write(new, number)
    if code == 0:
        break
    assert code == -signal.SIGKILL, code
    assert not out.exists() or content() in (whole_old, whole_new), (number, sorted(content()))
    assert write(new) == 0, number
    assert content() == whole_new, number
    number += 1
print(number)
"""


# --- MiniBench in the cache


def test_processes_that_start_together_build_minibench_once(tmp_path: Path) -> None:
    """As the processes of `accelerate launch` do: none replaces the folder that another reads."""
    program = (
        "import os\n"
        "from mlbench_data.sources import default_benchmark\n"
        "benchmark = default_benchmark()\n"
        "print(os.stat(benchmark.folder).st_ino, len(benchmark.rows('full')))\n"
    )
    started = [
        subprocess.Popen(
            [sys.executable, "-c", program],
            env={**os.environ, "MLBENCH_CACHE": str(tmp_path)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]
    printed = [process.communicate()[0] for process in started]
    assert [process.returncode for process in started] == [0, 0, 0]
    assert len(set(printed)) == 1


def test_mini_names_the_benchmark_in_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLBENCH_CACHE", str(tmp_path))
    benchmark = benchmark_named("mini")
    assert tmp_path in benchmark.folder.parents
    assert benchmark_named("mini").folder == benchmark.folder
    assert benchmark_named(str(benchmark.folder)).sha256 == benchmark.sha256
