"""Two evaluations of the same rows, row by row: how much better is one, and could that be chance?"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from eval.metrics import KS, bootstrap_interval, unbiased


@dataclass(frozen=True)
class Difference:
    """Pass@k of the second minus that of the first, over all of their candidates (the unbiased estimate), and
    the middle 95% of it over repositories drawn anew.
    """

    k: int
    difference: float
    interval: tuple[float, float]


@dataclass(frozen=True)
class Comparison:
    """Differences for every k that both have candidates for, and McNemar's test of their first candidates:
    rows where only one of them passes, and the chance of as uneven a split if neither was better.
    """

    rows: int
    differences: list[Difference]
    only_first: int
    only_second: int
    p_value: float


def compare(
    first: Sequence[Sequence[bool]], second: Sequence[Sequence[bool]], repositories: Sequence[str]
) -> Comparison:
    """Compares what passed, given for the same rows in one order. Raises ValueError for other lengths."""
    pairs = list(zip(first, second, strict=True))
    fewest = min((len(row) for pair in pairs for row in pair), default=0)
    differences = []
    for k in KS:
        if k <= fewest:
            each = [unbiased(other, k) - unbiased(one, k) for one, other in pairs]
            interval = bootstrap_interval(each, repositories)
            differences.append(Difference(k, sum(each) / len(each), interval))
    only_first = sum(one[0] and not other[0] for one, other in pairs) if fewest else 0
    only_second = sum(other[0] and not one[0] for one, other in pairs) if fewest else 0
    return Comparison(len(pairs), differences, only_first, only_second, mcnemar(only_first, only_second))


def mcnemar(only_first: int, only_second: int) -> float:
    """The exact two-sided test (McNemar 1947): how likely fair coins are to fall as unevenly as that."""
    total = only_first + only_second
    tail = sum(math.comb(total, count) for count in range(min(only_first, only_second) + 1))
    return min(1.0, 2 * tail / 2**total)
