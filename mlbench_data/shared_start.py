"""Tokenizing many texts that share a long start: the start once, and each end with a little of it.

A tokenizer looks a little behind and ahead, so the tokens of two texts one after the other are not always
those of the whole. Here a text's end is tokenized together with the last characters of its start; where
both tokenizations agree for a while, they are joined, and the tokens are those of the whole text.

How long a while: tokenizers that first split a text into words (GPT-2's, DeepSeek-Coder's) tokenize each word
by itself, so a few tokens over two borders of words suffice. Llama's merges run through the whole text.
"""

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass

OVERLAP = 96  # characters of the start that are tokenized again with every end
AGREEING = 8  # tokens in a row that must be equal and lie at the same place,
AGREEING_OVER_WORDS = 3  # or so many, if they are of three words


@dataclass(frozen=True)
class Tokens:
    """Token ids; where in the text each one begins and ends, in characters; and the number of its word."""

    ids: array
    starts: array
    ends: array
    words: array

    def __len__(self) -> int:
        return len(self.ids)


Encode = Callable[[str], Tokens]


class SharedStart:
    """A text that others begin with, tokenized once."""

    def __init__(self, text: str, encode: Encode, seam: int = OVERLAP) -> None:
        """`seam` is how much of the start's end may suffice to be tokenized again: where starts end alike,
        as prompts do, `encode` can then remember.
        """
        self.text = text
        self.tokens = encode(text)
        self._encode = encode
        self._seam = seam

    def followed_by(self, end: str) -> tuple[Tokens, int]:
        """The tokens of the start and `end` together, and how many of them are the start's own first ones."""
        for overlap in self._overlaps():
            offset = len(self.text) - overlap
            rest = self._encode(self.text[offset:] + end)
            if meeting := self._meeting(rest, offset):
                return self._joined(rest, *meeting, offset), meeting[0]
        return self._encode(self.text + end), 0

    def _overlaps(self) -> Iterator[int]:
        if 0 < self._seam < min(OVERLAP, len(self.text)) and len(set(self.tokens.words[-64:])) > 1:
            yield self._seam
        overlap = OVERLAP
        while overlap < len(self.text):
            yield overlap
            overlap *= 4

    def _joined(self, rest: Tokens, here: int, there: int, offset: int) -> Tokens:
        """The start's tokens before `here`, and then the rest's from `there` on, `offset` further right."""
        mine = self.tokens
        starts = array("i", [start + offset for start in rest.starts[there:]])
        ends = array("i", [end + offset for end in rest.ends[there:]])
        return Tokens(
            mine.ids[:here] + rest.ids[there:],
            mine.starts[:here] + starts,
            mine.ends[:here] + ends,
            mine.words[:here] + rest.words[there:],
        )

    def _meeting(self, rest: Tokens, offset: int) -> tuple[int, int] | None:
        """Where the first long agreement of the start's tokens and the rest's ends, in both."""
        first = bisect_left(self.tokens.starts, offset)
        at = {self.tokens.starts[place]: place for place in range(len(self.tokens) - 1, first - 1, -1)}
        there = 0
        while there < len(rest):
            here = at.get(rest.starts[there] + offset)
            if here is None:
                there += 1
                continue
            length = self._agreement(here, rest, there, offset)
            if length >= AGREEING or self._are_words(here, rest, there, length):
                return here + length, there + length
            there += max(length, 1)
        return None

    def _are_words(self, here: int, rest: Tokens, there: int, length: int) -> bool:
        """Whether an agreement goes over two borders of words in both tokenizations."""
        return length >= AGREEING_OVER_WORDS and all(
            len(set(tokens.words[first : first + length])) > 2
            for tokens, first in ((self.tokens, here), (rest, there))
        )

    def _agreement(self, here: int, rest: Tokens, there: int, offset: int) -> int:
        """How many tokens from `here` on are the rest's from `there` on."""
        mine, length = self.tokens, 0
        most = min(len(mine) - here, len(rest) - there)
        while (
            length < most
            and mine.ids[here + length] == rest.ids[there + length]
            and mine.ends[here + length] == rest.ends[there + length] + offset
            and mine.starts[here + length] == rest.starts[there + length] + offset
        ):
            length += 1
        return length
