"""Where a benchmark comes from: MiniBench, a file of rows, or a folder of splits."""

import difflib
import os
import shutil
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

from mlbench_data.bad_input import BadInput
from mlbench_data.benchmark import SPLITS, Benchmark, open_benchmark, read_parquet, write_parquet
from mlbench_data.files import (
    PROJECT_ROOT,
    cache_folder,
    one_at_a_time,
    read_text,
    sha256_of,
    sha256_of_file,
    write_json,
)
from mlbench_data.mini.generate import generate_rows
from mlbench_data.mini.specification import MINI, REPOSITORIES, Repository, read_specification
from mlbench_data.readmes import readme_text
from mlbench_data.rows import Row, read_rows
from mlbench_data.splits import check_disjoint, quarter_of

README_NAMES = ("README.md", "readme.md", "Readme.md", "README.rst", "README.txt", "README")


@dataclass
class Source:
    """What was read: rows by split, README texts by github_id, and the hash of everything read."""

    name: str
    splits: dict[str, list[Row]]
    readmes: dict[int, str]
    read: dict[str, str] = field(default_factory=dict)


def read_source(source: str, readmes: str | None, seed: int) -> Source:
    """Reads `mini`, FILE.jsonl, FILE.parquet or a folder of SPLIT.parquet or SPLIT.jsonl. Raises BadInput."""
    found = _mini(seed) if source == "mini" else _files(Path(source))
    if "full" in found.splits and "quarter" not in found.splits:
        found.splits["quarter"] = quarter_of(found.splits["full"], seed)
    tested = [row for split in ("full", "quarter") for row in found.splits.get(split, [])]
    for split in ("id_train", "ood_train"):
        check_disjoint(found.splits.get(split, []), tested, f"{source}: {split}")
    if readmes is not None:
        found.readmes = _readmes_below(Path(readmes), found.splits)
    return found


def write_benchmark(source: Source, splits: list[str], seed: int, out: Path) -> Benchmark:
    """Writes a prepared benchmark: a new folder beside `out`, then renamed, so that it is whole or absent.

    Raises BadInput if `out` is there and is something else, if a split's name is none, or if the source
    has none of the asked splits.
    """
    for name in splits:
        if name not in SPLITS:
            nearest = difflib.get_close_matches(name, SPLITS, n=1)
            hint = f"did you mean {nearest[0]}?" if nearest else f"there are {', '.join(SPLITS)}"
            raise BadInput(f"no split {name!r}; {hint}")
    chosen = {name: source.splits[name] for name in SPLITS if name in splits and name in source.splits}
    if not chosen:
        raise BadInput(f"{source.name}: has none of the splits {', '.join(splits)}")
    out = out.resolve()
    temporary = out.with_name(f".{out.name}.{os.getpid()}")
    earlier = out.with_name(f".{out.name}.{os.getpid()}.earlier")
    try:
        _check_replaceable(out)
        (temporary / "readmes").mkdir(parents=True)
        _fill_folder(temporary, source, chosen, seed)
        if out.exists():
            out.rename(earlier)  # deleting it under its own name could be stopped halfway
        temporary.rename(out)
    except OSError as error:
        raise BadInput(f"{out}: cannot write there ({error.strerror}); give a writable --out") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        shutil.rmtree(earlier, ignore_errors=True)
    return open_benchmark(out)


def _check_replaceable(out: Path) -> None:
    if not out.exists():
        return
    if not out.is_dir():
        raise BadInput(f"{out}: not a folder; give another --out")
    if not any(out.iterdir()):
        return
    try:
        open_benchmark(out)
    except BadInput:
        raise BadInput(f"{out}: not empty and not a prepared benchmark; give another --out") from None


def default_benchmark() -> Benchmark:
    """MiniBench, built once into the cache for each state of its specification."""
    source = read_source("mini", None, seed=0)
    state = sha256_of([source.read, [row.as_dict() for rows in source.splits.values() for row in rows]])
    folder = cache_folder() / "minibench" / state[:16]
    if not folder.exists():
        with one_at_a_time(folder):
            if not folder.exists():
                write_benchmark(source, list(SPLITS), 0, folder)
    return open_benchmark(folder)


def benchmark_named(name: str) -> Benchmark:
    """`mini` for the embedded benchmark, else a folder made by build.py. Raises BadInput."""
    return default_benchmark() if name == "mini" else open_benchmark(name)


def _fill_folder(folder: Path, source: Source, splits: dict[str, list[Row]], seed: int) -> None:
    rows = {row.github_id: row for part in splits.values() for row in part}
    readmes = {}
    for github_id in sorted(rows.keys() & source.readmes.keys()):
        file = f"readmes/{github_id}-{rows[github_id].repository}.txt"
        (folder / file).write_text(source.readmes[github_id], encoding="utf-8")
        readmes[str(github_id)] = {"file": file, "sha256": sha256_of_file(folder / file)}
    described = {}
    for name, part in splits.items():
        write_parquet(folder / f"{name}.parquet", part)
        counts: dict[str, int] = {}
        for row in part:
            counts[row.repository] = counts.get(row.repository, 0) + 1
        described[name] = {
            "rows": len(part),
            "sha256": sha256_of([row.as_dict() for row in part]),
            "repositories": counts,
        }
    without = sorted({row.repository for row in rows.values() if row.github_id not in source.readmes})
    manifest = {
        "tool": f"mlbench-toolkit {version('mlbench-toolkit')}",
        "source": source.name,
        "seed": seed,
        "read": source.read,
        "splits": described,
        "readmes": readmes,
        "without_readme": without,
    }
    write_json(folder / "manifest.json", manifest)


def _mini(seed: int) -> Source:
    repositories = read_specification()
    if not repositories:
        raise BadInput(f"{MINI}: no specification; the checkout is incomplete")
    pages = {item.github_id: readme_text(read_text(_mini_page(item), "a README")) for item in repositories}
    files = sorted(MINI.glob("specification/*.yaml")) + [_mini_page(item) for item in repositories]
    read = {str(path.relative_to(PROJECT_ROOT)): sha256_of_file(path) for path in files}
    return Source("mini", generate_rows(repositories, seed), pages, read)


def _mini_page(repository: Repository) -> Path:
    return REPOSITORIES / repository.name / repository.readme


def _files(path: Path) -> Source:
    if path.is_dir():
        parts = {name: file for name in SPLITS for file in _split_files(path, name)}
        if not parts:
            raise BadInput(f"{path}: no split there; expected {' or '.join(SPLITS)} as .parquet or .jsonl")
    elif path.suffix in (".jsonl", ".parquet") and path.is_file():
        parts = {"full": path}
    else:
        raise BadInput(
            f"{path}: no such source; expected mini, FILE.jsonl, FILE.parquet or a folder of splits"
        )
    splits = {
        name: read_parquet(file) if file.suffix == ".parquet" else read_rows(file)
        for name, file in parts.items()
    }
    return Source(str(path), splits, {}, {file.name: sha256_of_file(file) for file in parts.values()})


def _split_files(folder: Path, name: str) -> list[Path]:
    return [file for ending in ("jsonl", "parquet") if (file := folder / f"{name}.{ending}").is_file()]


def _readmes_below(folder: Path, splits: dict[str, list[Row]]) -> dict[int, str]:
    if not folder.is_dir():
        raise BadInput(f"{folder}: no such folder; --readmes takes a folder laid out as REPOSITORY/README.md")
    names = {row.github_id: row.repository for rows in splits.values() for row in rows}
    pages = {}
    for github_id, name in names.items():
        found = next((page for item in README_NAMES if (page := folder / name / item).is_file()), None)
        if found is not None:
            pages[github_id] = readme_text(read_text(found, "a README"))
    if not pages:
        raise BadInput(
            f"{folder}: holds none of {', '.join(sorted(set(names.values())))} as REPOSITORY/README.md"
        )
    return pages
