"""Where a benchmark comes from, and that writing it is all or nothing."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import datasets
import httpx2
import huggingface_hub
import pytest
from datasets import Dataset, DatasetDict

from mlbench_data.bad_input import BadInput
from mlbench_data.benchmark import (
    Benchmark,
    Readmes,
    open_benchmark,
    write_benchmark,
    write_parquet,
)
from mlbench_data.files import write_json
from mlbench_data.rows import Row
from mlbench_data.sources import benchmark_named, read_source
from tests.mlbench_data.samples import bytes_below, make_row, write_rows

ROWS = [make_row(number) for number in range(1, 9)]
OTHER = [make_row(number, github_id=8, github="https://example.org/somebody/other") for number in (1, 2)]


def write(out: Path, rows: list[Row], readme: str = "A page.") -> Benchmark:
    return write_benchmark(out, {"full": rows}, Readmes({7: readme}), {"source": "rows.jsonl"})


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


@pytest.mark.parametrize("name", ["missing.jsonl", "rows.csv", "owner/name/more"])
def test_a_source_that_is_none_says_what_there_is(tmp_path: Path, name: str) -> None:
    (tmp_path / "rows.csv").touch()
    with pytest.raises(
        BadInput, match=r"no such source; expected mini, FILE.jsonl, FILE.parquet, a folder of splits"
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


# --- data sets of the library `datasets`


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """The rows as a data set with splits, saved by the library."""
    parts = {"full": ROWS[:4], "id_train": ROWS[4:]}
    splits = {name: Dataset.from_list([row.as_dict() for row in rows]) for name, rows in parts.items()}
    DatasetDict(splits).save_to_disk(tmp_path / "saved")
    return tmp_path / "saved"


def test_a_saved_data_set_keeps_its_splits(saved: Path) -> None:
    found = read_source(str(saved), None, seed=0)
    assert found.splits == {"full": ROWS[:4], "id_train": ROWS[4:]}
    assert len(found.read) == 2
    assert all(name.endswith(".arrow") for name in found.read)


def test_a_saved_data_set_without_splits_is_full(tmp_path: Path) -> None:
    Dataset.from_list([row.as_dict() for row in ROWS]).save_to_disk(tmp_path / "saved")
    assert read_source(str(tmp_path / "saved"), None, seed=0).splits == {"full": ROWS}


def test_a_damaged_saved_data_set_is_bad_input(saved: Path) -> None:
    for file in saved.rglob("*.arrow"):
        file.write_bytes(b"no arrow")
    with pytest.raises(BadInput, match=r"saved: not a data set saved by datasets"):
        read_source(str(saved), None, seed=0)


def test_the_hub_is_asked_for_one_commit_which_the_source_names(
    monkeypatch: pytest.MonkeyPatch, saved: Path
) -> None:
    """The hub itself cannot be reached here: what is asked of its library is looked at."""
    asked = []

    def load_dataset(name: str, revision: str) -> DatasetDict:
        asked.append((name, revision))
        return datasets.load_from_disk(str(saved))

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    monkeypatch.setattr(
        huggingface_hub.HfApi, "dataset_info", lambda *_, revision: SimpleNamespace(sha=revision or "1" * 40)
    )
    found = read_source("super-dainiu/ml-bench", None, seed=0)
    assert found.splits["full"] == ROWS[:4]
    assert found.revision == found.described(0)["revision"] == "1" * 40
    assert read_source("super-dainiu/ml-bench", "2" * 40, seed=0).revision == "2" * 40
    assert asked == [("super-dainiu/ml-bench", "1" * 40), ("super-dainiu/ml-bench", "2" * 40)]


@pytest.mark.parametrize(
    "error",
    [ConnectionError("cannot reach the hub\nat all"), httpx2.ConnectError("Name or service not known")],
)
def test_a_hub_that_does_not_answer_is_one_line(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")

    def offline(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", offline)
    with pytest.raises(
        BadInput, match=r"^owner/name: no file or folder here, and the hub gave no such data set"
    ):
        read_source("owner/name", None, seed=0)


def test_only_the_hub_has_revisions(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "rows.jsonl", ROWS)
    with pytest.raises(BadInput, match="only a data set of the hub has a revision"):
        read_source(str(path), "main", seed=0)


# --- writing


def test_an_earlier_benchmark_is_replaced(tmp_path: Path) -> None:
    out = tmp_path / "out"
    write(out, ROWS)
    write(out, ROWS[:2], "Another page.")
    assert open_benchmark(out).rows("full") == ROWS[:2]
    assert open_benchmark(out).readme(ROWS[0], "full") == "Another page."
    assert os.listdir(tmp_path) == ["out"]


def test_a_benchmark_with_something_else_in_it_is_left_alone(tmp_path: Path) -> None:
    write(tmp_path / "out", ROWS)
    (tmp_path / "out" / "readmes" / "notes.txt").write_text("mine")
    before = bytes_below(tmp_path)
    with pytest.raises(BadInput, match=r"out: not empty and not a prepared benchmark"):
        write(tmp_path / "out", ROWS)
    assert bytes_below(tmp_path) == before


def test_an_empty_folder_is_filled(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    assert write(tmp_path / "out", ROWS).rows("full") == ROWS


@pytest.mark.parametrize("file", ["notes.txt", "manifest.json"])
def test_a_folder_that_is_something_else_is_left_alone(tmp_path: Path, file: str) -> None:
    out = tmp_path / "out"
    out.mkdir()
    write_json(out / file, {"name": "a web page"})
    before = bytes_below(tmp_path)
    with pytest.raises(BadInput, match=r"out: not empty and not a prepared benchmark; give another --out"):
        write(out, ROWS)
    assert bytes_below(tmp_path) == before


def test_a_file_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("mine")
    with pytest.raises(BadInput, match=r"out: not a folder; give another --out"):
        write(tmp_path / "out", ROWS)
    assert bytes_below(tmp_path) == {"out": b"mine"}


def test_an_output_that_cannot_be_written_is_bad_input(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BadInput, match=r"cannot write there \(Not a directory\); give a writable --out"):
        write(tmp_path / "file" / "out", ROWS)


def test_the_folder_one_stands_in_can_be_the_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "out").mkdir()
    monkeypatch.chdir(tmp_path / "out")
    write(Path("."), ROWS)
    assert open_benchmark(tmp_path / "out").rows("full") == ROWS


def test_a_kill_at_any_moment_leaves_no_half_folder(tmp_path: Path) -> None:
    """A second benchmark is written over a first one and killed before each change of the file system.

    Whatever stands under the name is one of the two, whole, or nothing, and the same command then works.
    """
    old, new = tmp_path / "old.jsonl", tmp_path / "new.jsonl"
    write_rows(old, ROWS)
    write_rows(new, ROWS[:3])
    (tmp_path / "pages" / "tiny").mkdir(parents=True)
    (tmp_path / "pages" / "tiny" / "README.md").write_text("A page.")
    done = subprocess.run(
        [sys.executable, "-c", KILLED_BEFORE_EACH_CHANGE, old, new, tmp_path / "out", tmp_path / "pages"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.splitlines()[-1]) >= 8, "so few changes are not the whole of writing a benchmark"


KILLED_BEFORE_EACH_CHANGE = """
import os, shutil, signal, sys
from pathlib import Path
from mlbench_data.build import BuildConfig, main

old, new, out, pages = map(Path, sys.argv[1:])
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
        main(BuildConfig(source=str(source), out=str(out), readmes=str(pages)))
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
