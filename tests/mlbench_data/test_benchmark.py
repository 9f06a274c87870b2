"""A prepared benchmark gives back what was put in, and says what it does not have."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from mlbench_data.bad_input import BadInput
from mlbench_data.benchmark import Benchmark, open_benchmark, read_parquet, write_parquet
from mlbench_data.files import write_json
from mlbench_data.sources import Source, write_benchmark
from tests.mlbench_data.samples import make_row

OTHER = "https://example.org/somebody/other"


@pytest.fixture
def benchmark(tmp_path: Path) -> Benchmark:
    rows = [make_row(2), make_row(1), make_row(1, github_id=8, github=OTHER)]
    source = Source("rows.jsonl", {"full": rows, "id_train": [make_row(3)]}, {7: "A README – ä\n\n  x\t"})
    return write_benchmark(source, ["full", "id_train"], 0, tmp_path / "benchmark")


def test_rows_come_back_in_their_order(benchmark: Benchmark) -> None:
    assert [row.key for row in benchmark.rows("full")] == [(7, 2), (7, 1), (8, 1)]
    assert benchmark.rows("id_train") == [make_row(3)]


def test_a_readme_comes_back_with_every_space(benchmark: Benchmark) -> None:
    assert benchmark.readme(make_row()) == "A README – ä\n\n  x\t"


def test_a_readme_is_stored_once_for_all_rows(benchmark: Benchmark) -> None:
    assert [path.name for path in (benchmark.folder / "readmes").iterdir()] == ["7-tiny.txt"]


def test_a_row_without_a_readme_names_its_repository(benchmark: Benchmark) -> None:
    with pytest.raises(BadInput, match=r"no README for other; rebuild with --readmes"):
        benchmark.readme(make_row(github_id=8, github=OTHER))


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
        source = Source("rows.jsonl", {"full": [make_row(rate)]}, {7: readme})
        return write_benchmark(source, ["full"], 0, tmp_path / "again").sha256

    assert hash_of(1, "text") == hash_of(1, "text")
    assert len({hash_of(1, "text"), hash_of(2, "text"), hash_of(1, "other"), benchmark.sha256}) == 4


def test_a_folder_that_is_no_benchmark_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"manifest.json: No such file.*mlbench_data/build.py"):
        open_benchmark(tmp_path)
    write_json(tmp_path / "manifest.json", {"name": "a web page"})
    with pytest.raises(BadInput, match=r"manifest.json: not the manifest of a prepared benchmark"):
        open_benchmark(tmp_path)


def test_parquet_has_the_hub_columns_and_whole_numbers(tmp_path: Path) -> None:
    write_parquet(tmp_path / "full.parquet", [make_row()])
    schema = pq.read_schema(tmp_path / "full.parquet")
    assert schema.names == list(make_row().as_dict())
    assert {str(schema.field(name).type) for name in ("github_id", "repo_id", "id")} == {"int64"}


def test_a_file_that_is_no_parquet_is_bad_input(tmp_path: Path) -> None:
    (tmp_path / "full.parquet").write_text("id,path\n")
    with pytest.raises(BadInput, match=r"full\.parquet: not a readable parquet file"):
        read_parquet(tmp_path / "full.parquet")


def test_rows_with_the_same_key_are_refused(tmp_path: Path) -> None:
    write_parquet(tmp_path / "full.parquet", [make_row(), make_row()])
    with pytest.raises(BadInput, match=r"full\.parquet: two rows have github_id 7, id 1"):
        read_parquet(tmp_path / "full.parquet")
