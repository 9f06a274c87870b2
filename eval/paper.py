"""The paper's own scores, to stand beside measured ones."""

from dataclasses import dataclass
from pathlib import Path

from mlbench_data.files import read_yaml

CONTEXT = 8192
"""Tokens of prompt and answer that the paper's script gave every model."""


@dataclass(frozen=True)
class PaperScores:
    """One line of Table 1 (arXiv 2311.09835): Pass@1, Pass@2 and Pass@5 in per cent by task, as printed.

    `trained_on` is raw, ID or OOD. None is a cell that the paper left empty.
    """

    model: str
    trained_on: str
    split: str
    task1: tuple[float, ...] | None
    task2: tuple[float, ...] | None
    task3: tuple[float, ...] | None

    @property
    def tasks(self) -> tuple[tuple[float, ...] | None, ...]:
        """The scores of tasks 1, 2 and 3."""
        return self.task1, self.task2, self.task3


def paper_scores() -> list[PaperScores]:
    """Table 1 in the paper's order."""
    lines = read_yaml(Path(__file__).with_name("paper_table1.yaml"), "the paper's Table 1")
    return [PaperScores(**line) for line in lines]
