"""Where rows come from: MiniBench, a file, a folder of splits, a saved data set, or the hub."""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mlbench_data.bad_input import BadInput
from mlbench_data.benchmark import SPLITS, Benchmark, Readmes, open_benchmark, read_parquet, write_benchmark
from mlbench_data.files import PROJECT_ROOT, cache_folder, one_at_a_time, read_text, sha256_of, sha256_of_file
from mlbench_data.mini.generate import generate_rows
from mlbench_data.mini.specification import MINI, REPOSITORIES, Repository, read_specification
from mlbench_data.readmes import readme_text
from mlbench_data.rows import Row, parse_row, read_rows, unique_rows
from mlbench_data.splits import check_disjoint, quarter_of

_COMMIT = re.compile(r"[0-9a-f]{40}")
_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")


@dataclass
class Source:
    """What was read: rows by the source's own split names, and what identifies it in a manifest.

    `read` holds the hash of every file; `revision` is the hub's commit. Only MiniBench brings READMEs.
    """

    name: str
    splits: dict[str, list[Row]]
    read: dict[str, str] = field(default_factory=dict)
    revision: str | None = None
    readmes: Readmes = field(default_factory=Readmes)

    def described(self, seed: int) -> dict[str, Any]:
        """What the manifest says of where the rows come from."""
        found: dict[str, Any] = {"source": self.name, "seed": seed, "read": self.read}
        return found | ({"revision": self.revision} if self.revision else {})


def read_source(source: str, revision: str | None, seed: int) -> Source:
    """Reads `mini`, FILE.jsonl, FILE.parquet, a folder of SPLIT.parquet or SPLIT.jsonl, a folder that
    `datasets` has saved, or a hub id (`owner/name`). Raises BadInput.
    """
    path = Path(source)
    if revision is not None and (source == "mini" or path.exists()):
        raise BadInput(f"{source}: only a data set of the hub has a revision; leave --revision away")
    if source == "mini":
        return _mini(seed)
    if path.is_dir():
        is_saved = (path / "dataset_dict.json").is_file() or (path / "state.json").is_file()
        return _saved(path) if is_saved else _folder(path)
    if path.is_file() and path.suffix in (".jsonl", ".parquet"):
        return Source(source, {"full": _read(path)}, {path.name: sha256_of_file(path)})
    if not path.exists() and _HUB_ID.fullmatch(source) and path.suffix not in (".jsonl", ".parquet"):
        return _hub(source, revision)
    raise BadInput(
        f"{source}: no such source; expected mini, FILE.jsonl, FILE.parquet, a folder of splits, a folder "
        "saved by datasets, or a hub id such as super-dainiu/ml-bench"
    )


def default_benchmark() -> Benchmark:
    """MiniBench, built once into the cache for each state of its specification."""
    source = read_source("mini", None, seed=0)
    state = sha256_of([source.read, [row.as_dict() for rows in source.splits.values() for row in rows]])
    folder = cache_folder() / "minibench" / state[:16]
    if not folder.exists():
        with one_at_a_time(folder):
            if not folder.exists():
                write_benchmark(folder, source.splits, source.readmes, source.described(0))
    return open_benchmark(folder)


def benchmark_named(name: str) -> Benchmark:
    """`mini` for the embedded benchmark, else a folder made by build.py. Raises BadInput."""
    return default_benchmark() if name == "mini" else open_benchmark(name)


def _mini(seed: int) -> Source:
    repositories = read_specification()
    if not repositories:
        raise BadInput(f"{MINI}: no specification; the checkout is incomplete")
    pages = {item.github_id: readme_text(read_text(_mini_page(item), "a README")) for item in repositories}
    files = sorted(MINI.glob("specification/*.yaml")) + [_mini_page(item) for item in repositories]
    read = {str(path.relative_to(PROJECT_ROOT)): sha256_of_file(path) for path in files}
    splits = generate_rows(repositories, seed)
    splits["quarter"] = quarter_of(splits["full"], seed)
    for name in ("id_train", "ood_train"):
        check_disjoint(splits[name], splits["full"], f"mini: {name}")
    splits = {name: splits[name] for name in SPLITS}
    return Source("mini", splits, read, readmes=Readmes(pages))


def _mini_page(repository: Repository) -> Path:
    return REPOSITORIES / repository.name / repository.readme


def _folder(folder: Path) -> Source:
    endings = (".jsonl", ".parquet")
    parts = {
        name: file for name in SPLITS for ending in endings if (file := folder / f"{name}{ending}").is_file()
    }
    if not parts:
        raise BadInput(f"{folder}: no split there; expected {' or '.join(SPLITS)} as .parquet or .jsonl")
    read = {file.name: sha256_of_file(file) for file in parts.values()}
    return Source(str(folder), {name: _read(file) for name, file in parts.items()}, read)


def _read(file: Path) -> list[Row]:
    return read_parquet(file) if file.suffix == ".parquet" else read_rows(file)


def _saved(folder: Path) -> Source:
    from datasets import load_from_disk  # takes a second to import, and most sources do not need it

    try:
        found = load_from_disk(str(folder))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadInput(f"{folder}: not a data set saved by datasets ({_first_line(error)})") from error
    read = {str(file.relative_to(folder)): sha256_of_file(file) for file in sorted(folder.rglob("*.arrow"))}
    return Source(str(folder), _rows_of(found, str(folder)), read)


def _hub(name: str, revision: str | None) -> Source:
    """A data set of the hub at one commit, which the manifest then names: the one given, or the newest."""
    from datasets import load_dataset
    from httpx2 import HTTPError  # what the hub's library lets through without a network
    from huggingface_hub import HfApi

    try:
        commit = revision
        if revision is None or not _COMMIT.fullmatch(revision):
            commit = HfApi().dataset_info(name, revision=revision).sha
        found = load_dataset(name, revision=commit)
    except (OSError, ValueError, HTTPError) as error:
        raise BadInput(
            f"{name}: no file or folder here, and the hub gave no such data set ({_first_line(error)})"
        ) from error
    return Source(name, _rows_of(found, name), revision=commit)


def _rows_of(found: Any, where: str) -> dict[str, list[Row]]:
    """The rows of every split of a data set; one without splits is `full`. Raises BadInput."""
    splits = found if isinstance(found, dict) else {"full": found}
    rows = {}
    for name, part in splits.items():
        parsed = (parse_row(item, f"{where}: {name} row {number}") for number, item in enumerate(part))
        rows[name] = list(unique_rows(parsed, f"{where}: {name}"))
    return rows


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
