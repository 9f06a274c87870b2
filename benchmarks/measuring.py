"""Timing two ways of one thing in turn, and telling the result: a table, and one line of JSON at the end."""

import json
import statistics
import time
from collections.abc import Callable, Iterable
from typing import Any


def seconds_of(work: Callable[[], Any]) -> tuple[float, Any]:
    """How long some work took, and what it gave."""
    started = time.perf_counter()
    result = work()
    return time.perf_counter() - started, result


def print_table(heads: Iterable[str], rows: Iterable[Iterable[Any]]) -> None:
    """A table with right-aligned columns, the first one left-aligned."""
    texts = [
        list(heads),
        *[[f"{cell:.4g}" if isinstance(cell, float) else str(cell) for cell in row] for row in rows],
    ]
    widths = [max(len(row[place]) for row in texts) for place in range(len(texts[0]))]
    for row in texts:
        first, *others = zip(row, widths, strict=True)
        print(first[0].ljust(first[1]) + "".join("  " + cell.rjust(width) for cell, width in others))


def print_result(name: str, ratios: list[float], *, same_answer: bool, **more: Any) -> None:
    """The last line: median, least and greatest ratio, whether both gave the same, and what else there is."""
    result = {
        "benchmark": name,
        "ratio": round(statistics.median(ratios), 2),
        "min": round(min(ratios), 2),
        "max": round(max(ratios), 2),
        "same_answer": same_answer,
    }
    print(json.dumps(result | more))
