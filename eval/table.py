"""The numbers of one evaluation as lines for a terminal."""

from collections.abc import Iterator
from typing import Any


def table(summary: dict[str, Any]) -> str:
    """Pass@k, hit precisions, the ceiling, statuses and repositories of a summary."""
    return "\n".join([*_headline(summary), "", *_scores(summary), "", *_repositories(summary)])


def share(value: float | None) -> str:
    """A share from 0 to 1 as a percentage; a dash where it is undefined."""
    return "–" if value is None else f"{100 * value:.1f}%"


def points(value: float) -> str:
    """A difference of shares in percentage points, with its sign."""
    return f"{100 * value:+.1f}"


def _headline(summary: dict[str, Any]) -> Iterator[str]:
    how = "checked and executed" if summary["executed"] else "checked, not executed"
    yield f"{summary['rows']} rows × {summary['n']} candidates, mode {summary['mode']}, {how}"


def _scores(summary: dict[str, Any]) -> Iterator[str]:
    yield f"{'':8}{'first k':>9}{'unbiased':>10}   95% interval"
    for k, numbers in summary["pass_at_k"].items():
        low, high = numbers["interval"] or (None, None)
        interval = "–" if low is None else f"{share(low)} to {share(high)}"
        yield f"Pass@{k:3}{share(numbers['first_k']):>9}{share(numbers['unbiased']):>10}   {interval}"
    yield f"answer key (ceiling) {share(summary['ceiling'])}"
    hits = summary["parameter_hit_precision"]
    yield (
        f"Parameter Hit Precision: over parameters {share(hits['parameter'])}, "
        f"over generations {share(hits['generation'])}"
    )
    counts = [f"{name} {count}" for name, count in summary["status"].items() if count]
    yield f"candidates: {', '.join(counts)}"
    if summary["passed_by_timeout"]:
        yield f"of those passed, {summary['passed_by_timeout']} only because a timeout passes in mode paper"


def _repositories(summary: dict[str, Any]) -> Iterator[str]:
    width = max(map(len, ["repository", *summary["per_repository"]]))
    ks = list(summary["pass_at_k"])
    yield f"{'repository':{width}} {'rows':>5}" + "".join(f"{'Pass@' + k:>9}" for k in ks) + f"{'ceiling':>9}"
    ceilings = summary["ceiling_detail"]["per_repository"]
    for name, numbers in summary["per_repository"].items():
        scores = "".join(f"{share(numbers['pass_at_k'][k]['first_k']):>9}" for k in ks)
        yield f"{name:{width}} {numbers['rows']:>5}{scores}{share(ceilings[name]):>9}"
