"""Pass@k and Parameter Hit Precision. What is undefined is None, never 0 or 1."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

KS = (1, 2, 5)
_Z95 = 1.959963984540054
_RESAMPLES = 10_000


@dataclass(frozen=True)
class PassAtK:
    """Shares of rows from 0 to 1, None where undefined; the interval is around the unbiased estimate."""

    first_k: float | None
    unbiased: float | None
    interval: tuple[float, float] | None


def pass_at_k(passes: Sequence[Sequence[bool]], repositories: Sequence[str], k: int) -> PassAtK:
    """Pass@k from each row's candidates in their order, and the repository that each row is about.

    `first_k` is the paper's: does any of a row's first k candidates pass (arXiv 2311.09835). `unbiased`
    uses all n: 1 - C(n-c, k) / C(n, k), averaged over rows (Chen et al. 2021, arXiv 2107.03374). The
    interval is that of repositories drawn anew or that of single rows, whichever reaches further.
    All are None without rows, or if a row has fewer than k candidates.
    """
    if not passes or any(len(row) < k for row in passes):
        return PassAtK(None, None, None)
    first = mean([any(row[:k]) for row in passes])
    each = [unbiased(row, k) for row in passes]
    share = sum(each) / len(each)
    ends = *bootstrap_interval(each, repositories), *wilson_interval(share, len(each))
    return PassAtK(first, share, (min(ends), max(ends)))


def unbiased(row: Sequence[bool], k: int) -> float:
    """The share of all choices of k among a row's candidates in which one passes."""
    return 1 - math.comb(len(row) - sum(row), k) / math.comb(len(row), k)


def bootstrap_interval(values: Sequence[float], repositories: Sequence[str]) -> tuple[float, float]:
    """The middle 95% of the means over repositories drawn anew, with replacement and with all of their rows:
    rows of one repository succeed and fail together. With one repository it is a point.
    """
    number = {name: position for position, name in enumerate(dict.fromkeys(repositories))}
    cluster = np.array([number[name] for name in repositories])
    sums, rows = np.bincount(cluster, values), np.bincount(cluster)
    drawn = np.random.default_rng(0).integers(len(rows), size=(_RESAMPLES, len(rows)))
    low, high = np.percentile(sums[drawn].sum(axis=1) / rows[drawn].sum(axis=1), [2.5, 97.5])
    return float(low), float(high)


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
