"""A prepared benchmark: a folder of splits (parquet), README texts and a manifest."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal, get_args

import pyarrow as pa
import pyarrow.parquet as pq

from mlbench_data.bad_input import BadInput
from mlbench_data.files import read_json, read_text, replacing_folder, sha256_of, sha256_of_file, write_json
from mlbench_data.rows import COLUMNS, Row, parse_row, unique_rows

Split = Literal["full", "quarter", "id_train", "ood_train"]
SPLITS: tuple[Split, ...] = get_args(Split)
TEST_SPLITS = ("full", "quarter")


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
        """The rows of a split in their stored order. Raises BadInput for a split it does not have, and if
        they are not those of the manifest.
        """
        return list(self.stream(split))

    def count(self, split: str) -> int:
        """How many rows a split has. Raises BadInput for a split it does not have."""
        self._check_split(split)
        return self.manifest["splits"][split]["rows"]

    def stream(self, split: str) -> Iterator[Row]:
        """The same, a few at a time: memory does not grow with the split. What is wrong may come up last."""
        self._check_split(split)
        path, found = self.folder / f"{split}.parquet", RowsHash()
        rows = 0
        for row in unique_rows(stream_parquet(path), str(path)):
            found.add(row)
            rows += 1
            yield row
        described = self.manifest["splits"][split]
        _check_hash(path, f"{rows} {found.hexdigest()}", f"{described['rows']} {described['sha256']}")

    def _check_split(self, split: str) -> None:
        if split not in self.manifest["splits"]:
            available = ", ".join(self.manifest["splits"])
            raise BadInput(f"{self.folder}: no split {split!r}; it has {available}")

    def has_readme(self, row: Row) -> bool:
        """Whether there is a README for the row's repository, which tasks 1 and 2 need."""
        return str(row.github_id) in self.manifest["readmes"]

    def readme(self, row: Row, split: str) -> str:
        """The README text that rows of this repository and split read. Raises BadInput if there is none, and
        if it is not that of the manifest.
        """
        entry = self.manifest["readmes"].get(str(row.github_id))
        if split in TEST_SPLITS:
            entry = self.manifest.get("test_readmes", {}).get(str(row.github_id), entry)
        if entry is None:
            raise BadInput(f"{self.folder}: no README for {row.repository}; rebuild with --readmes DIR")
        return _checked_text(self.folder / entry["file"], entry["sha256"])

    def texts(self, kind: Literal["readmes", "test_readmes"]) -> dict[int, str]:
        """Every README text by github_id. Raises BadInput if one is not that of the manifest."""
        entries = self.manifest.get(kind, {})
        return {
            int(github_id): _checked_text(self.folder / entry["file"], entry["sha256"])
            for github_id, entry in entries.items()
        }


@dataclass
class Readmes:
    """README texts by github_id; `test` holds those of repositories whose test rows read another page."""

    texts: dict[int, str] = field(default_factory=dict)
    test: dict[int, str] = field(default_factory=dict)


def open_benchmark(folder: str | Path) -> Benchmark:
    """Opens a prepared benchmark. Raises BadInput."""
    manifest = _read_manifest(Path(folder))
    files = _files_of(manifest)
    if missing := [name for name in files if not (Path(folder) / name).is_file()]:
        raise BadInput(f"{folder}: its manifest.json names {', '.join(missing)}, which is not there; "
                       "build the benchmark again")  # fmt: skip
    return Benchmark(Path(folder), manifest)


def write_benchmark(
    out: Path, splits: dict[str, list[Row]], readmes: Readmes, described: dict[str, Any]
) -> Benchmark:
    """Writes a prepared benchmark: a new folder beside `out`, then renamed, so that it is whole or absent.

    `described` is what the manifest says of the source. Raises BadInput if `out` is something else.
    """
    out = out.resolve()  # the folder one stands in is another one once it has been replaced
    with replacing_folder(out, "a prepared benchmark", _is_benchmark) as folder:
        (folder / "readmes").mkdir()
        _fill_folder(folder, splits, readmes, described)
    return open_benchmark(out)


class RowsHash:
    """Identifies rows and their order: the hash of their list as JSON, without holding the list."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256(b"[")
        self._between = b""

    def add(self, row: Row) -> None:
        """Takes the next row."""
        text = json.dumps(row.as_dict(), sort_keys=True, ensure_ascii=False)
        self._hash.update(self._between + text.encode())
        self._between = b", "

    def hexdigest(self) -> str:
        """The hash of all rows so far."""
        whole = self._hash.copy()
        whole.update(b"]")
        return whole.hexdigest()


ROW_GROUP = 1024  # rows that a reader must hold at a time


def write_parquet(path: Path, rows: list[Row]) -> None:
    """Writes rows with the hub data set's columns and types."""
    schema = pa.schema([(name, pa.int64() if kind is int else pa.string()) for name, kind in COLUMNS.items()])
    table = pa.Table.from_pylist([row.as_dict() for row in rows], schema=schema)
    pq.write_table(table, path, row_group_size=ROW_GROUP)


def read_parquet(path: Path) -> list[Row]:
    """Rows of a parquet file in its order. Raises BadInput."""
    return list(unique_rows(stream_parquet(path), str(path)))


def stream_parquet(path: Path) -> Iterator[Row]:
    """Rows of a parquet file, a few at a time. Raises BadInput."""
    number = 0
    try:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=ROW_GROUP):
                for values in batch.to_pylist():
                    yield parse_row(values, f"{path}: row {number}")
                    number += 1
    except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise BadInput(f"{path}: not a readable parquet file ({reason})") from error


def _is_benchmark(folder: Path) -> bool:
    """Whether a folder is a benchmark and holds nothing else, which would be lost with it."""
    try:
        known = {"manifest.json", *_files_of(_read_manifest(folder))}
    except BadInput:
        return False
    found = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir()}
    return found <= known


def _files_of(manifest: dict[str, Any]) -> list[str]:
    """The files that a manifest names."""
    pages = [manifest.get(kind, {}).values() for kind in ("readmes", "test_readmes")]
    return [f"{split}.parquet" for split in manifest["splits"]] + [
        page["file"] for part in pages for page in part
    ]


def _read_manifest(folder: Path) -> dict[str, Any]:
    path = folder / "manifest.json"
    manifest = read_json(path, "a prepared benchmark (make one with python mlbench_data/build.py)")
    if not _is_manifest(manifest):
        raise BadInput(
            f"{path}: not the manifest of a prepared benchmark; build one with mlbench_data/build.py"
        )
    return manifest


def _is_manifest(manifest: Any) -> bool:
    """Whether a JSON value has what is read of a manifest, in the right types."""
    if not isinstance(manifest, dict) or not {"splits", "readmes", "source"} <= manifest.keys():
        return False
    parts = [manifest["splits"], manifest["readmes"], manifest.get("test_readmes", {})]
    if not all(
        isinstance(part, dict) and all(isinstance(item, dict) for item in part.values()) for part in parts
    ):
        return False
    splits, *pages = parts
    return (
        all(name in SPLITS and type(item.get("rows")) is int for name, item in splits.items())
        and all(isinstance(item.get("file"), str) for part in pages for item in part.values())
        and all(name.isdecimal() for part in pages for name in part)
        and all(isinstance(item.get("sha256"), str) for part in parts for item in part.values())
    )


def _fill_folder(
    folder: Path, splits: dict[str, list[Row]], readmes: Readmes, described: dict[str, Any]
) -> None:
    repositories = {row.github_id: row.repository for part in splits.values() for row in part}
    manifest = {
        "tool": f"mlbench-toolkit {version('mlbench-toolkit')}",
        **described,
        "splits": {name: _write_split(folder / f"{name}.parquet", part) for name, part in splits.items()},
        "readmes": _write_pages(folder, repositories, readmes.texts, ""),
        "test_readmes": _write_pages(folder, repositories, readmes.test, "-test"),
        "without_readme": sorted(
            name for github_id, name in repositories.items() if github_id not in readmes.texts
        ),
    }
    write_json(folder / "manifest.json", manifest)


def _write_split(path: Path, rows: list[Row]) -> dict[str, Any]:
    write_parquet(path, rows)
    found = RowsHash()
    counts: dict[str, int] = {}
    for row in rows:
        found.add(row)
        counts[row.repository] = counts.get(row.repository, 0) + 1
    return {"rows": len(rows), "sha256": found.hexdigest(), "repositories": counts}


def _write_pages(
    folder: Path, repositories: dict[int, str], texts: dict[int, str], ending: str
) -> dict[str, dict[str, str]]:
    pages = {}
    for github_id in sorted(repositories.keys() & texts.keys()):
        file = f"readmes/{github_id}-{repositories[github_id]}{ending}.txt"
        (folder / file).write_text(texts[github_id], encoding="utf-8")
        pages[str(github_id)] = {"file": file, "sha256": sha256_of_file(folder / file)}
    return pages


@lru_cache(maxsize=64)
def _checked_text(path: Path, sha256: str) -> str:
    """A README text, read and proven once."""
    text = read_text(path, "a README text")
    _check_hash(path, sha256_of_file(path), sha256)
    return text


def _check_hash(path: Path, found: str, wanted: str) -> None:
    if found != wanted:
        raise BadInput(
            f"{path}: not what the benchmark's manifest.json says it is; build the benchmark again"
        )
