"""A prepared benchmark gives back what was put in, and says what it does not have."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from mlbench_data.bad_input import BadInput
from mlbench_data.benchmark import (
    Benchmark,
    Readmes,
    open_benchmark,
    read_parquet,
    write_benchmark,
    write_parquet,
)
from mlbench_data.files import write_json
from tests.mlbench_data.samples import make_row

OTHER = "https://example.org/somebody/other"


@pytest.fixture
def benchmark(tmp_path: Path) -> Benchmark:
    rows = [make_row(2), make_row(1), make_row(1, github_id=8, github=OTHER)]
    readmes = Readmes({7: "A README – ä\n\n  x\t"}, {7: "For tests."})
    splits = {"full": rows, "id_train": [make_row(3)]}
    return write_benchmark(tmp_path / "benchmark", splits, readmes, {"source": "rows.jsonl"})


def test_rows_come_back_in_their_order(benchmark: Benchmark) -> None:
    assert [row.key for row in benchmark.rows("full")] == [(7, 2), (7, 1), (8, 1)]
    assert benchmark.rows("id_train") == [make_row(3)]


def test_a_readme_comes_back_with_every_space(benchmark: Benchmark) -> None:
    assert benchmark.readme(make_row(), "id_train") == "A README – ä\n\n  x\t"


def test_test_rows_read_their_own_page_where_there_is_one(benchmark: Benchmark) -> None:
    """External-Attention-pytorch's do (ML-Bench, Table 8)."""
    assert benchmark.readme(make_row(), "full") == benchmark.readme(make_row(), "quarter") == "For tests."


def test_a_readme_is_stored_once_for_all_rows(benchmark: Benchmark) -> None:
    assert sorted((path.name for path in (benchmark.folder / "readmes").iterdir()), key=len) == [
        "7-tiny.txt",
        "7-tiny-test.txt",
    ]


def test_a_row_without_a_readme_names_its_repository(benchmark: Benchmark) -> None:
    with pytest.raises(BadInput, match=r"no README for other; rebuild with --readmes"):
        benchmark.readme(make_row(github_id=8, github=OTHER), "full")


def test_a_split_that_it_does_not_have_is_named_with_those_it_has(benchmark: Benchmark) -> None:
    with pytest.raises(BadInput, match=r"no split 'quarter'; it has full, id_train"):
        benchmark.rows("quarter")


def test_the_manifest_counts_rows_by_repository(benchmark: Benchmark) -> None:
    described = benchmark.manifest["splits"]["full"]
    assert described["rows"] == 3
    assert described["repositories"] == {"tiny": 2, "other": 1}
    assert benchmark.manifest["without_readme"] == ["other"]


def test_its_hash_follows_rows_and_readmes(benchmark: Benchmark, tmp_path: Path) -> None:
    def hash_of(rate: int, readme: str) -> str:
        splits = {"full": [make_row(rate)]}
        return write_benchmark(tmp_path / "again", splits, Readmes({7: readme}), {"source": "rows"}).sha256

    assert hash_of(1, "text") == hash_of(1, "text")
    assert len({hash_of(1, "text"), hash_of(2, "text"), hash_of(1, "other"), benchmark.sha256}) == 4


def test_a_folder_that_is_no_benchmark_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"manifest.json: No such file.*mlbench_data/build.py"):
        open_benchmark(tmp_path)
    write_json(tmp_path / "manifest.json", {"name": "a web page"})
    with pytest.raises(BadInput, match=r"manifest.json: not the manifest of a prepared benchmark"):
        open_benchmark(tmp_path)


def test_files_that_are_not_those_of_the_manifest_are_refused(benchmark: Benchmark) -> None:
    """A benchmark that was changed by hand would be another one under the same name."""
    page = benchmark.folder / "readmes" / "7-tiny.txt"
    page.write_text("Another page.")
    with pytest.raises(BadInput, match=r"7-tiny\.txt: not what the benchmark's manifest\.json says it is"):
        benchmark.readme(make_row(), "id_train")
    write_parquet(benchmark.folder / "id_train.parquet", [make_row(4)])
    with pytest.raises(BadInput, match=r"id_train\.parquet: not what the benchmark's manifest"):
        benchmark.rows("id_train")
    (benchmark.folder / "full.parquet").unlink()
    with pytest.raises(BadInput, match=r"names full\.parquet, which is not there; build the benchmark again"):
        open_benchmark(benchmark.folder)


@pytest.mark.parametrize(
    "change",
    [
        {"splits": []},
        {"splits": {"full": None}},
        {"splits": {"full": {"rows": "3", "sha256": "x"}}},
        {"readmes": None},
        {"readmes": {"7": {"file": 3, "sha256": "x"}}},
        {"readmes": {"abc": {"file": "a", "sha256": "x"}}},
        {"test_readmes": []},
    ],
)
def test_an_edited_manifest_is_refused(benchmark: Benchmark, change: dict[str, object]) -> None:
    write_json(benchmark.folder / "manifest.json", benchmark.manifest | change)
    with pytest.raises(BadInput, match="not the manifest of a prepared benchmark"):
        open_benchmark(benchmark.folder)


def test_a_manifest_with_another_number_of_rows_is_refused(benchmark: Benchmark) -> None:
    manifest = json.loads((benchmark.folder / "manifest.json").read_text())
    manifest["splits"]["full"]["rows"] = 2
    write_json(benchmark.folder / "manifest.json", manifest)
    with pytest.raises(BadInput, match=r"full\.parquet: not what the benchmark's manifest"):
        open_benchmark(benchmark.folder).rows("full")


def test_parquet_has_the_hub_columns_and_whole_numbers(tmp_path: Path) -> None:
    write_parquet(tmp_path / "full.parquet", [make_row()])
    schema = pq.read_schema(tmp_path / "full.parquet")
    assert schema.names == list(make_row().as_dict())
    assert {str(schema.field(name).type) for name in ("github_id", "repo_id", "id")} == {"int64"}


def test_a_file_that_is_no_parquet_is_bad_input(tmp_path: Path) -> None:
    (tmp_path / "full.parquet").write_text("id,path\n")
    with pytest.raises(BadInput, match=r"full\.parquet: not a readable parquet file"):
        read_parquet(tmp_path / "full.parquet")


@pytest.mark.parametrize("kept", [4, 200, 0.5, 0.97])
def test_a_torn_parquet_is_bad_input(tmp_path: Path, kept: float) -> None:
    path = tmp_path / "full.parquet"
    write_parquet(path, [make_row(number) for number in range(50)])
    content = path.read_bytes()
    path.write_bytes(content[: int(kept if kept > 1 else kept * len(content))])
    with pytest.raises(BadInput, match=r"full\.parquet: not a readable parquet file"):
        read_parquet(path)


def test_rows_with_the_same_key_are_refused(tmp_path: Path) -> None:
    write_parquet(tmp_path / "full.parquet", [make_row(), make_row()])
    with pytest.raises(BadInput, match=r"full\.parquet: two rows have github_id 7, id 1"):
        read_parquet(tmp_path / "full.parquet")
