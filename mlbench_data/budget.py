"""Fitting a prompt into a model's context: README text is cut from its end, nothing else ever is."""

from dataclasses import dataclass


class DoesNotFit(Exception):
    """What must not be cut is longer than the context by itself."""


@dataclass(frozen=True)
class Cut:
    """What a budget left of a README, in tokens. `kept == readme` means that nothing was cut."""

    readme: int
    kept: int


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
