"""A prepared benchmark: a folder of splits (parquet), README texts and a manifest."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from mlbench_data.bad_input import BadInput
from mlbench_data.files import read_json, read_text, sha256_of
from mlbench_data.rows import COLUMNS, Row, check_unique, parse_row

SPLITS = ("full", "quarter", "id_train", "ood_train")


@dataclass(frozen=True)
class Benchmark:
    """A prepared benchmark on disk, as `mlbench_data/build.py` writes it."""

    folder: Path
    manifest: dict[str, Any]

    @property
    def sha256(self) -> str:
        """Identifies the content: the manifest holds the hash of every split and README."""
        return sha256_of(self.manifest)

    def rows(self, split: str) -> list[Row]:
        """The rows of a split in their stored order. Raises BadInput for a split it does not have."""
        if split not in self.manifest["splits"]:
            available = ", ".join(self.manifest["splits"])
            raise BadInput(f"{self.folder}: no split {split!r}; it has {available}")
        return read_parquet(self.folder / f"{split}.parquet")

    def readme(self, row: Row) -> str:
        """The README text that the row's repository was given. Raises BadInput if it has none."""
        entry = self.manifest["readmes"].get(str(row.github_id))
        if entry is None:
            raise BadInput(f"{self.folder}: no README for {row.repository}; rebuild with --readmes DIR")
        return read_text(self.folder / entry["file"], "a README text")


def open_benchmark(folder: str | Path) -> Benchmark:
    """Opens a prepared benchmark. Raises BadInput."""
    path = Path(folder) / "manifest.json"
    manifest = read_json(path, "a prepared benchmark (make one with python mlbench_data/build.py)")
    if not isinstance(manifest, dict) or not {"splits", "readmes", "source"} <= manifest.keys():
        raise BadInput(
            f"{path}: not the manifest of a prepared benchmark; build one with mlbench_data/build.py"
        )
    return Benchmark(Path(folder), manifest)


def write_parquet(path: Path, rows: list[Row]) -> None:
    """Writes rows with the hub data set's columns and types."""
    schema = pa.schema([(name, pa.int64() if kind is int else pa.string()) for name, kind in COLUMNS.items()])
    pq.write_table(pa.Table.from_pylist([row.as_dict() for row in rows], schema=schema), path)


def read_parquet(path: Path) -> list[Row]:
    """Rows of a parquet file in its order. Raises BadInput."""
    try:
        records = pq.read_table(path).to_pylist()
    except (OSError, pa.ArrowInvalid) as error:
        raise BadInput(f"{path}: not a readable parquet file ({error})") from error
    rows = [parse_row(values, f"{path}: row {number}") for number, values in enumerate(records)]
    check_unique(rows, str(path))
    return rows
