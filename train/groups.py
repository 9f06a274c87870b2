"""Rows whose prompts begin with the same tokens, so that these are computed once for all of them.

What is shared is found on token ids, after the budget has cut: a README, an oracle segment, or whatever else
the prompts begin with. A group is one prefix and a branch for each row.
"""

import random
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from train.examples import Example

SHORTEST_PREFIX = 32
"""Tokens below which sharing is not worth a group: a template's first words, for example."""


@dataclass(frozen=True)
class Group:
    """Examples whose prompts begin with the same `prefix` tokens; 0 where nothing is shared."""

    prefix: int
    examples: list[Example]

    @property
    def branches(self) -> tuple[int, ...]:
        """Tokens of each example after the prefix, at least one of them of the prompt."""
        return tuple(len(example) - self.prefix for example in self.examples)

    @property
    def tokens(self) -> int:
        """Tokens that a forward pass computes."""
        return self.prefix + sum(self.branches)


def make_groups(examples: list[Example], rows: int, tokens: int, chance: random.Random) -> list[Group]:
    """Groups of at most `rows` examples and `tokens` tokens (an example that is longer stays alone).

    Examples with one README meet in an order that `chance` decides. No other division of that order computes
    fewer tokens.
    """
    ordered = _neighbours(chance.sample(examples, len(examples)))
    common = [0, *map(_common, ordered, ordered[1:])]
    lengths = [0, *accumulate(map(len, ordered))]
    saved = [0]  # by the best division of the first i examples
    begins = [0]  # where the last group of that division begins
    for end in range(1, len(ordered) + 1):
        best, begin = saved[end - 1], end - 1
        prefix = len(ordered[end - 1].prompt) - 1
        for start in range(end - 2, max(end - rows, 0) - 1, -1):
            prefix = min(prefix, common[start + 1])
            others = end - start - 1
            if prefix < SHORTEST_PREFIX:
                break
            computed = lengths[end] - lengths[start] - others * prefix
            if computed <= tokens and saved[start] + others * prefix > best:
                best, begin = saved[start] + others * prefix, start
        saved.append(best)
        begins.append(begin)
    return _divided(ordered, common, begins)


def single_groups(examples: list[Example], chance: random.Random) -> list[Group]:
    """Each example by itself, in an order that `chance` decides."""
    return [Group(0, [example]) for example in chance.sample(examples, len(examples))]


def _neighbours(examples: list[Example]) -> list[Example]:
    """Examples of one README side by side, and READMEs that begin alike; otherwise as given. A README that is
    cut ends where its row's instruction leaves off: an order by that would save a few tokens, and fill groups
    with instructions of one length, often of one phrasing.
    """
    starts = {id(item.prompt.start): item.prompt.start for item in examples}  # one README, one entry
    written = {key: start.tobytes() for key, start in starts.items()}
    return sorted(examples, key=lambda item: written[id(item.prompt.start)])


def _divided(ordered: list[Example], common: list[int], begins: list[int]) -> list[Group]:
    groups = []
    end = len(ordered)
    while end:
        start = begins[end]
        shared = [*common[start + 1 : end], *(len(item.prompt) - 1 for item in ordered[start:end])]
        groups.append(Group(min(shared) if end - start > 1 else 0, ordered[start:end]))
        end = start
    return groups[::-1]


def _common(one: Example, other: Example) -> int:
    """Tokens that both prompts begin with; never a whole prompt, whose last token predicts the answer."""
    longest = min(len(one.prompt), len(other.prompt)) - 1
    differing = np.flatnonzero(one.prompt.ids[:longest] != other.prompt.ids[:longest])
    return int(differing[0]) if len(differing) else longest
