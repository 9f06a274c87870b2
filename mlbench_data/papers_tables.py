"""The paper's own figures (arXiv 2311.09835), to print beside ours."""

from pathlib import Path
from typing import Any

from mlbench_data.files import read_json

_FILE = Path(__file__).resolve().parent / "papers_tables.json"


def papers_table(name: str) -> dict[str, Any]:
    """`table7`, `table8` or `table11`, numbers as printed."""
    return read_json(_FILE, "the paper's tables")[name]


def relative_error(ours: float, papers: float | None) -> float | None:
    """Ours over the paper's, less one; None where the paper has no figure, or 0."""
    return ours / papers - 1 if papers else None
