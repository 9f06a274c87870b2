"""Fitting a prompt into a model's context: README text is cut from its end, nothing else ever is."""

from dataclasses import dataclass
from typing import Literal

Policy = Literal["readme", "paper"]
"""readme: cut README tokens from the README's end. paper: keep the prompt's first tokens, whatever they are;
the instruction, which comes last, goes first."""


class DoesNotFit(Exception):
    """What must not be cut is longer than the context by itself."""


@dataclass(frozen=True)
class Cut:
    """What a budget left, in tokens: of the README, and under the paper's policy of the prompt's rest.

    `kept == readme` and `lost == 0` mean that nothing was cut.
    """

    readme: int
    kept: int
    lost: int = 0


def fit(readme: int, rest: int, answer: int, context: int) -> Cut:
    """How many of `readme` tokens stay, beside `rest` tokens of prompt and `answer` tokens of answer.

    The paper gives open models 8,192 tokens for prompt and answer together. Raises DoesNotFit if
    there is no room even without the README.
    """
    room = context - rest - answer
    if room < 0:
        raise DoesNotFit(
            f"instruction and template take {rest} tokens and the answer {answer}, the context has {context}"
        )
    return Cut(readme, min(readme, room))


def fit_as_the_paper(before: int, readme: int, after: int, answer: int, context: int) -> Cut:
    """What stays of a prompt's first `context - answer` tokens. Raises DoesNotFit if that is none."""
    room = context - answer
    if room < 1:
        raise DoesNotFit(f"the answer takes {answer} tokens, the context has {context}")
    return Cut(readme, max(0, min(readme, room - before)), min(after, max(0, before + readme + after - room)))
