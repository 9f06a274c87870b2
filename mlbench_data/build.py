"""Builds a prepared benchmark: splits as parquet, each README text once, and a manifest.

python mlbench_data/build.py --source mini --out runs/minibench
python mlbench_data/build.py --source super-dainiu/ml-bench --readmes checkouts --out runs/mlbench
"""

import difflib
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mlbench_data.bad_input import BadInput
from mlbench_data.benchmark import SPLITS, Benchmark, Readmes, write_benchmark
from mlbench_data.cli import run_script
from mlbench_data.models import load_tokenizer, resolve_model
from mlbench_data.readmes import ReadmeKind, readmes_below
from mlbench_data.repositories import Repositories, read_repositories
from mlbench_data.rows import Row, unique_rows
from mlbench_data.sources import Source, read_source
from mlbench_data.splits import quarter_of, split_pool


@dataclass(frozen=True)
class BuildConfig:
    """What to build, from what, and where to."""

    source: str = "mini"
    """mini (embedded), a hub id such as super-dainiu/ml-bench, FILE.jsonl, FILE.parquet, a folder with
    SPLIT.parquet or SPLIT.jsonl, or a folder saved by datasets."""
    revision: str | None = None
    """Commit, tag or branch of a hub data set; the newest if not given. The manifest names the commit."""
    out: str = "runs/minibench"
    """The folder to write; an earlier benchmark there is replaced."""
    readmes: str | None = None
    """Folder of checkouts or README pages as REPOSITORY/README.md (mlbench_data/checkout.py makes one)."""
    readme_kind: ReadmeKind = "rendered"
    """rendered: one page's text, as in the paper; raw: its markdown; all: every README page, rendered."""
    allow_missing_readmes: bool = False
    """Go on without README for repositories that have none below --readmes: they can only do task 3."""
    repositories: str | None = None
    """YAML file that describes repositories of your own, like mlbench_data/repositories.yaml."""
    test_share: float | None = None
    """Split anew: this share of each repository's rows is full, the rest id_train. Published splits are
    kept if not given. The paper's share is 0.04."""
    ood: list[str] = field(default_factory=list)
    """With test_share: repositories whose rows are all ood_train, beside those described so."""
    tokenizer: str | None = None
    """A model name or folder: prints each README's length in its tokens."""
    splits: list[str] = field(default_factory=lambda: list(SPLITS))
    """Which splits to write, of full, quarter, id_train and ood_train."""
    seed: int = 0
    """Chooses MiniBench's values, new splits and the quarter; the same seed gives the same bytes."""


def main(config: BuildConfig) -> int:
    """Builds a prepared benchmark: splits as parquet, each README text once, and a manifest."""
    _check(config)
    tokenizer = load_tokenizer(resolve_model(config.tokenizer)) if config.tokenizer is not None else None
    repositories = read_repositories(config.repositories)
    source = read_source(config.source, config.revision, config.seed)
    splits = splits_of(config, source, repositories)
    rows = [row for part in splits.values() for row in part]
    check_rows(rows, source.name)
    readmes = readmes_of(config, source, rows, repositories)
    described = source.described(config.seed) | {
        "readme_kind": config.readme_kind,
        "commits": {
            name: repositories[name.lower()].commit
            for name in sorted({row.repository for row in rows})
            if name.lower() in repositories
        },
    }
    benchmark = write_benchmark(Path(config.out), splits, readmes, described)
    report(config, source, benchmark)
    if tokenizer is not None:
        print_readme_lengths(benchmark, tokenizer)
    print(f"written to {config.out}")
    return 0


def splits_of(config: BuildConfig, source: Source, repositories: Repositories) -> dict[str, list[Row]]:
    """The asked splits: as published, or with `test_share` made anew from all rows. Raises BadInput."""
    if config.test_share is not None:
        each = dict.fromkeys(
            row for rows in source.splits.values() for row in rows
        )  # quarter's are in full too
        pool = list(unique_rows(each, source.name))
        ood = {name.lower() for name in config.ood}
        if unknown := ood - {row.repository.lower() for row in pool}:
            raise BadInput(
                f"{source.name}: no row is of the repository {', '.join(sorted(unknown))} of --ood"
            )
        ood |= {name for name, repository in repositories.items() if repository.role == "ood"}
        found = split_pool(pool, ood, config.test_share, config.seed)
    else:
        found = dict(source.splits)
        if len(found) == 1 and not found.keys() & set(SPLITS):
            found = {"full": next(iter(found.values()))}
        if "full" in found and "quarter" not in found:
            found["quarter"] = quarter_of(found["full"], config.seed)
    chosen: dict[str, list[Row]] = {
        name: found[name] for name in SPLITS if name in config.splits and name in found
    }
    if not chosen:
        has = ", ".join(found)
        raise BadInput(f"{source.name}: has none of the splits {', '.join(config.splits)}; it has {has}")
    return chosen


def check_rows(rows: list[Row], where: str) -> None:
    """Raises BadInput for a row without oracle segment, and for two repositories with one github_id."""
    names: dict[int, str] = {}
    for row in rows:
        if not row.oracle.strip():
            raise BadInput(f"{where}: row {row.repository} {row.id} has an empty oracle; task 3 reads it")
        if names.setdefault(row.github_id, row.repository) != row.repository:
            raise BadInput(
                f"{where}: github_id {row.github_id} is both {names[row.github_id]} and {row.repository}; "
                "each repository needs its own"
            )


def readmes_of(config: BuildConfig, source: Source, rows: list[Row], repositories: Repositories) -> Readmes:
    """The README texts of the rows' repositories: the source's own, or those below --readmes.

    Raises BadInput for a repository that nothing is known of.
    """
    if config.source == "mini" and config.readmes is None:
        return source.readmes
    if config.readmes is not None:
        return readmes_below(
            Path(config.readmes), rows, repositories, config.readme_kind, config.allow_missing_readmes
        )
    unknown = sorted({row.repository for row in rows if row.repository.lower() not in repositories})
    if unknown:
        raise BadInput(
            f"{source.name}: unknown repository {', '.join(unknown)}; describe it in a file for "
            "--repositories, or give its README with --readmes"
        )
    return Readmes()


def report(config: BuildConfig, source: Source, benchmark: Benchmark) -> None:
    """What was built, and what could not be."""
    for name, split in benchmark.manifest["splits"].items():
        print(f"{name:10} {split['rows']:6} rows from {len(split['repositories'])} repositories")
    if missing := [name for name in config.splits if name not in benchmark.manifest["splits"]]:
        print(f"not in the source: {', '.join(missing)}", file=sys.stderr)
    if config.test_share is None and (unused := source.splits.keys() - benchmark.manifest["splits"].keys()):
        print(f"splits of the source that were not used: {', '.join(sorted(unused))}", file=sys.stderr)
    if without := benchmark.manifest["without_readme"]:
        print(f"no README (tasks 1 and 2 need --readmes DIR): {', '.join(without)}", file=sys.stderr)


def print_readme_lengths(benchmark: Benchmark, tokenizer: Any) -> None:
    """One line a README: its length in tokens, without special tokens."""
    for kind in ("readmes", "test_readmes"):
        for entry in benchmark.manifest[kind].values():
            text = (benchmark.folder / entry["file"]).read_text(encoding="utf-8")
            print(f"{len(tokenizer.encode(text, add_special_tokens=False)):7} tokens  {entry['file']}")


def _check(config: BuildConfig) -> None:
    for name in config.splits:
        if name not in SPLITS:
            nearest = difflib.get_close_matches(name, SPLITS, n=1)
            hint = f"did you mean {nearest[0]}?" if nearest else f"there are {', '.join(SPLITS)}"
            raise BadInput(f"no split {name!r}; {hint}")
    if config.test_share is not None and not 0 < config.test_share < 1:
        raise BadInput(f"test_share is {config.test_share}; expected more than 0 and less than 1")
    if config.source == "mini" and (config.test_share is not None or config.readme_kind != "rendered"):
        raise BadInput("mini has its own splits and README texts; leave test_share and readme_kind away")
    if config.ood and config.test_share is None:
        raise BadInput("ood names repositories of a new split; give test_share too")


if __name__ == "__main__":
    run_script(BuildConfig, main)
