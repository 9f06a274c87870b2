"""Counts and lists what training rows have in common with test rows, and drops it if asked.

python mlbench_data/leaks.py --benchmark runs/mlbench --out runs/leaks
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from rapidfuzz import fuzz, process

from mlbench_data.bad_input import BadInput
from mlbench_data.benchmark import TEST_SPLITS, Benchmark, Readmes, write_benchmark
from mlbench_data.cli import run_script
from mlbench_data.files import make_folder, write_json
from mlbench_data.rows import Row, RowKey
from mlbench_data.sources import benchmark_named
from mlbench_data.splits import asked

Kind = Literal["arguments", "answer", "instruction"]
KINDS: tuple[Kind, ...] = ("arguments", "answer", "instruction")
TRAINING_SPLITS = ("id_train", "ood_train")
CHUNK = 512  # training rows compared with all test rows at a time, to bound memory


@dataclass(frozen=True)
class LeaksConfig:
    """What to look at, what counts as a leak, and what to do about it."""

    benchmark: str = "mini"
    """mini (embedded) or a folder made by mlbench_data/build.py."""
    similarity: float = 0.95
    """Instructions at least this alike are near duplicates: 1 less the share of characters to change."""
    kinds: list[Kind] | None = None
    """Which leaks to look for, of arguments, answer and instruction; all if not given."""
    drop_leaks: bool = False
    """Write the benchmark without the training rows that leak, to OUT/benchmark."""
    out: str | None = None
    """Folder for leaks.json, which lists every leak."""


@dataclass(frozen=True)
class Leak:
    """A training row and the test row that it gives away. `similarity` is of their instructions."""

    kind: Kind
    split: str
    train: RowKey
    test: RowKey
    repository: str
    similarity: float


def main(config: LeaksConfig) -> int:
    """Counts and lists what training rows have in common with test rows, and drops it if asked."""
    if not 0 < config.similarity <= 1:
        raise BadInput(f"similarity is {config.similarity}; expected more than 0, and 1 at most")
    if config.drop_leaks and config.out is None:
        raise BadInput("drop_leaks writes another benchmark; say where to with --out")
    kinds = tuple(config.kinds or KINDS)
    benchmark = benchmark_named(config.benchmark)
    test, training = rows_by_side(benchmark)
    leaks = [
        leak for split, rows in training.items() for leak in find(split, rows, test, kinds, config.similarity)
    ]
    for line in summary(leaks, training, kinds):
        print(line)
    if config.out is not None:
        folder = make_folder(config.out)
        write_json(folder / "leaks.json", record_of(config, benchmark, leaks, training, kinds))
        print(f"every leak is in {folder / 'leaks.json'}")
        if config.drop_leaks:
            write_without(benchmark, leaks, folder / "benchmark")
            print(f"the benchmark without them is in {folder / 'benchmark'}")
    return 0


def rows_by_side(benchmark: Benchmark) -> tuple[list[Row], dict[str, list[Row]]]:
    """All test rows, each once, and the training rows by split. Raises BadInput if either is missing."""
    splits = benchmark.manifest["splits"]
    test = {row.key: row for name in TEST_SPLITS if name in splits for row in benchmark.rows(name)}
    training = {name: benchmark.rows(name) for name in TRAINING_SPLITS if name in splits}
    if not test or not training:
        raise BadInput(f"{benchmark.folder}: has {', '.join(splits)}; leaks need a test and a training split")
    return list(test.values()), training


def find(
    split: str, train: list[Row], test: list[Row], kinds: Iterable[Kind], similarity: float
) -> Iterator[Leak]:
    """Every leak from `train` to `test`, kind by kind, in the order of the rows."""
    for kind in kinds:
        pairs = _similar(train, test, similarity) if kind == "instruction" else _equal(kind, train, test)
        for one, other in pairs:
            alike = round(fuzz.ratio(one.instruction, other.instruction) / 100, 4)
            yield Leak(kind, split, one.key, other.key, other.repository, alike)


def normalised_answer(row: Row) -> str:
    """An answer without what changes nothing: continued lines, empty lines, and how wide the spaces are."""
    joined = re.sub(r"\\\r?\n", " ", row.output)
    lines = (" ".join(line.split()) for line in joined.splitlines())
    return "\n".join(line for line in lines if line)


def _equal(kind: Kind, train: list[Row], test: list[Row]) -> Iterator[tuple[Row, Row]]:
    key = asked if kind == "arguments" else normalised_answer
    known: dict[Any, list[Row]] = defaultdict(list)
    for row in test:
        known[key(row)].append(row)
    for row in train:
        for other in known.get(key(row), ()):
            yield row, other


def _similar(train: list[Row], test: list[Row], similarity: float) -> Iterator[tuple[Row, Row]]:
    asked_for = [row.instruction for row in test]
    for start in range(0, len(train), CHUNK):
        part = train[start : start + CHUNK]
        scores = process.cdist(
            [row.instruction for row in part],
            asked_for,
            scorer=fuzz.ratio,
            score_cutoff=100 * similarity,
            workers=-1,
        )
        for one, other in zip(*scores.nonzero(), strict=True):
            yield part[one], test[other]


def summary(leaks: list[Leak], training: dict[str, list[Row]], kinds: Iterable[Kind]) -> Iterator[str]:
    """A line for each training split and kind: training rows that leak, and test rows they give away."""
    yield f"{'split':10} {'rows':>6}  {'leak':12} {'training rows':>13} {'share':>7} {'test rows':>10}"
    for split, rows in training.items():
        for kind in kinds:
            found = [leak for leak in leaks if leak.split == split and leak.kind == kind]
            count, given_away = len({leak.train for leak in found}), len({leak.test for leak in found})
            share = f"{100 * count / len(rows):.1f}%"
            yield f"{split:10} {len(rows):6}  {kind:12} {count:13} {share:>7} {given_away:10}"


def record_of(
    config: LeaksConfig,
    benchmark: Benchmark,
    leaks: list[Leak],
    training: dict[str, list[Row]],
    kinds: Iterable[Kind],
) -> dict[str, Any]:
    """leaks.json: the counts, and every leak."""
    counts = {
        split: {
            kind: len({leak.train for leak in leaks if (leak.split, leak.kind) == (split, kind)})
            for kind in kinds
        }
        for split in training
    }
    return {
        "benchmark_sha256": benchmark.sha256,
        "similarity": config.similarity,
        "training_rows": {split: len(rows) for split, rows in training.items()},
        "leaking_training_rows": counts,
        "leaks": [asdict(leak) for leak in leaks],
    }


def write_without(benchmark: Benchmark, leaks: list[Leak], out: Path) -> Benchmark:
    """The benchmark without the training rows that leak; a split that is left empty is left out."""
    leaking = {(leak.split, leak.train) for leak in leaks}
    splits = {
        name: [row for row in benchmark.rows(name) if (name, row.key) not in leaking]
        for name in benchmark.manifest["splits"]
    }
    described = {
        key: value
        for key, value in benchmark.manifest.items()
        if key not in ("tool", "splits", "readmes", "test_readmes", "without_readme")
    }
    described["without_leaks_of"] = benchmark.sha256
    readmes = Readmes(benchmark.texts("readmes"), benchmark.texts("test_readmes"))
    return write_benchmark(out, {name: rows for name, rows in splits.items() if rows}, readmes, described)


if __name__ == "__main__":
    run_script(LeaksConfig, main)
