"""Builds a prepared benchmark: splits as parquet, each README text once, and a manifest.

python mlbench_data/build.py --source mini --out runs/minibench
"""

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mlbench_data.benchmark import SPLITS, Benchmark
from mlbench_data.cli import run_script
from mlbench_data.models import load_tokenizer, resolve_model
from mlbench_data.sources import read_source, write_benchmark


@dataclass(frozen=True)
class BuildConfig:
    """What to build, from what, and where to."""

    source: str = "mini"
    """mini (embedded), FILE.jsonl, FILE.parquet, or a folder with SPLIT.parquet or SPLIT.jsonl."""
    out: str = "runs/minibench"
    """The folder to write; an earlier benchmark there is replaced."""
    readmes: str | None = None
    """Folder of README pages as REPOSITORY/README.md, for sources that bring none."""
    tokenizer: str | None = None
    """A model name or folder: prints each README's length in its tokens."""
    splits: list[str] = field(default_factory=lambda: list(SPLITS))
    """Which splits to write, of full, quarter, id_train and ood_train."""
    seed: int = 0
    """Chooses MiniBench's values and the quarter; the same seed gives the same bytes."""


def main(config: BuildConfig) -> int:
    """Builds a prepared benchmark: splits as parquet, each README text once, and a manifest."""
    tokenizer = load_tokenizer(resolve_model(config.tokenizer)) if config.tokenizer is not None else None
    source = read_source(config.source, config.readmes, config.seed)
    benchmark = write_benchmark(source, config.splits, config.seed, Path(config.out))
    for name, split in benchmark.manifest["splits"].items():
        print(f"{name:10} {split['rows']:6} rows from {len(split['repositories'])} repositories")
    if missing := [name for name in config.splits if name not in benchmark.manifest["splits"]]:
        print(f"not in the source: {', '.join(missing)}", file=sys.stderr)
    if without := benchmark.manifest["without_readme"]:
        print(f"no README (tasks 1 and 2 need --readmes DIR): {', '.join(without)}", file=sys.stderr)
    if tokenizer is not None:
        print_readme_lengths(benchmark, tokenizer)
    print(f"written to {config.out}")
    return 0


def print_readme_lengths(benchmark: Benchmark, tokenizer: Any) -> None:
    """One line a README: its length in tokens, without special tokens."""
    for entry in benchmark.manifest["readmes"].values():
        text = (benchmark.folder / entry["file"]).read_text(encoding="utf-8")
        print(f"{len(tokenizer.encode(text, add_special_tokens=False)):7} tokens  {entry['file']}")


if __name__ == "__main__":
    run_script(BuildConfig, main)
