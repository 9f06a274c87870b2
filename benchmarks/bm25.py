"""BM25 retrieval against rank_bm25, which is rebuilt for every row, on one README after the other.

python benchmarks/bm25.py --readmes checkouts --rows rows.jsonl
"""

import statistics
from dataclasses import dataclass
from pathlib import Path

from punkt import PunktSentenceTokenizer

from benchmarks.measuring import print_result, print_table, seconds_of
from benchmarks.reference.bm25 import best_window, sentence_tokenizer
from mlbench_data.bad_input import BadInput
from mlbench_data.cli import run_script
from mlbench_data.readmes import page_of, read_readme
from mlbench_data.repositories import read_repositories
from mlbench_data.retrieval import WindowIndex
from mlbench_data.rows import Row, read_rows


@dataclass(frozen=True)
class Bm25Config:
    """Which READMEs and instructions, and how many."""

    readmes: str = "../shared/data/readmes"
    """Folder of README pages as REPOSITORY/README.md."""
    rows: str = "../shared/data/mlbench/rows.jsonl"
    """Rows whose instructions are asked."""
    instructions: int = 60
    """Instructions asked of each README: its own rows' first, then others'."""
    quick: bool = False
    """Four READMEs only."""


def main(config: Bm25Config) -> int:
    """BM25 retrieval against rank_bm25, which is rebuilt for every row, on one README after the other."""
    rows = read_rows(config.rows)
    if config.instructions < 2 or len(rows) < config.instructions:
        raise BadInput(
            f"{config.rows}: {len(rows)} rows and {config.instructions} instructions; expected 2 or more"
        )
    pages = readme_pages(Path(config.readmes))
    names = sorted(pages)[:4] if config.quick else sorted(pages)
    WindowIndex("The model that splits sentences is loaded by now.").best("model")
    tokenizer = sentence_tokenizer()
    races = [race(name, pages[name], asked_of(name, rows, config.instructions), tokenizer) for name in names]
    print_table(
        ("README", "windows", "rank_bm25, s", "ours, s", "ratio", "per further instruction"),
        [(item.name, item.windows, item.theirs, item.ours, item.ratio, item.further) for item in races],
    )
    same, total = sum(item.same for item in races), len(names) * config.instructions
    print(f"\n{same} of {total} winners are the same; {config.instructions} instructions a README")
    print_result(
        "bm25",
        [item.ratio for item in races],
        same_answer=same == total,
        winners=f"{same}/{total}",
        further_instruction_ratio=round(statistics.median(item.further for item in races), 1),
        further_instruction_min=round(min(item.further for item in races), 1),
    )
    return 0 if same == total else 1


@dataclass(frozen=True)
class Race:
    """One README: seconds of both for all instructions, of ours for asking alone, and how many agree."""

    name: str
    windows: int
    theirs: float
    ours: float
    asking: float
    same: int

    @property
    def ratio(self) -> float:
        """Theirs over ours, building the index included."""
        return self.theirs / self.ours

    @property
    def further(self) -> float:
        """The same for one more instruction on a README that is indexed."""
        return self.theirs / self.asking


def race(name: str, page: str, asked: list[str], tokenizer: PunktSentenceTokenizer) -> Race:
    """Asks all instructions of one README, both ways."""
    theirs, expected = seconds_of(lambda: [best_window(page, text, tokenizer) for text in asked])
    building, index = seconds_of(lambda: WindowIndex(page))
    asking, found = seconds_of(lambda: [index.best(text) for text in asked])
    same = sum(normal(one) == normal(other) for one, other in zip(found, expected, strict=True))
    return Race(name, len(index.spans), theirs, building + asking, asking, same)


def asked_of(name: str, rows: list[Row], count: int) -> list[str]:
    """Instructions for a README: its own rows' first."""
    return [row.instruction for row in sorted(rows, key=lambda row: row.repository != name)[:count]]


def normal(text: str) -> str:
    """A window's characters without its spacing: ours keeps that of the page."""
    return "".join(text.split())


def readme_pages(folder: Path) -> dict[str, str]:
    """The rendered page of every described repository below a folder. Raises BadInput if there is none."""
    found = {}
    for repository in read_repositories().values():
        page = page_of(repository, folder / repository.name, False)
        if page is not None:
            found[repository.name] = read_readme(folder / repository.name, page, "rendered")
    if not found:
        raise BadInput(f"{folder}: holds no README as REPOSITORY/README.md; give --readmes")
    return found


if __name__ == "__main__":
    run_script(Bm25Config, main)
