"""Pass@k and Parameter Hit Precision. What is undefined is None, never 0 or 1."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

KS = (1, 2, 5)
_Z95 = 1.959963984540054


@dataclass(frozen=True)
class PassAtK:
    """Shares of rows from 0 to 1, None where undefined; the interval is around the unbiased estimate."""

    first_k: float | None
    unbiased: float | None
    interval: tuple[float, float] | None


def pass_at_k(passes: Sequence[Sequence[bool]], k: int) -> PassAtK:
    """Pass@k from each row's candidates in their order.

    `first_k` is the paper's: does any of a row's first k candidates pass (arXiv 2311.09835). `unbiased`
    uses all n: 1 - C(n-c, k) / C(n, k), averaged over rows (Chen et al. 2021, arXiv 2107.03374).
    All are None without rows, or if a row has fewer than k candidates.
    """
    if not passes or any(len(row) < k for row in passes):
        return PassAtK(None, None, None)
    first = mean([any(row[:k]) for row in passes])
    unbiased = mean([_unbiased(len(row), sum(row), k) for row in passes])
    return PassAtK(first, unbiased, None if unbiased is None else wilson_interval(unbiased, len(passes)))


def _unbiased(n: int, correct: int, k: int) -> float:
    return 1 - math.comb(n - correct, k) / math.comb(n, k)


def wilson_interval(share: float, trials: int) -> tuple[float, float]:
    """The 95% score interval of a share (Wilson 1927), with rows as trials.

    A row's estimate lies between 0 and 1, so its variance is at most that of a trial with the same mean:
    for n > k the interval is on the wide side. It does not collapse at 0 or 1, as a bootstrap does.
    """
    centre = share + _Z95**2 / (2 * trials)
    spread = _Z95 * math.sqrt(share * (1 - share) / trials + _Z95**2 / (4 * trials**2))
    scale = 1 + _Z95**2 / trials
    low, high = (centre - spread) / scale, (centre + spread) / scale
    return (max(0.0, min(low, share)), min(1.0, max(high, share)))


def hit_precision(
    required: Sequence[int], missing: Sequence[int], complete: Sequence[bool]
) -> dict[str, float | None]:
    """Parameter Hit Precision from each candidate's number of required and of missing parameters.

    `parameter` is the share of all required parameters that are there, `generation` the share of
    candidates that have all of theirs (`complete`).
    """
    total = sum(required)
    return {"parameter": 1 - sum(missing) / total if total else None, "generation": mean(complete)}


def mean(values: Sequence[float]) -> float | None:
    """The arithmetic mean; None of nothing."""
    return sum(values) / len(values) if values else None
