"""What an answer has in place of the row's own, word by word, for readers."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Literal, get_args

_WORDS = re.compile(r"\s+|[\w./-]+|.", re.DOTALL)
_LONGEST = 4000
"""Characters; longer answers are not worth comparing, and take long."""
_ALIKE = 0.3
"""The least share of common words: below it the differences hide the answer."""

Kind = Literal["same", "added", "left_out"]
_KINDS: tuple[Kind, ...] = get_args(Kind)


@dataclass(frozen=True)
class Piece:
    """A stretch of text that both have, that only the answer has (`added`), or only the key (`left_out`)."""

    kind: Kind
    text: str


def differences(key: str, answer: str) -> list[Piece]:
    """The answer in pieces, with what it leaves out of the key; one piece if they have little in common."""
    key, answer = key.strip(), answer.strip()
    if key == answer or max(len(key), len(answer)) > _LONGEST:
        return [Piece("same", answer)]
    words = _WORDS.findall(key), _WORDS.findall(answer)
    pieces = list(_pieces(SequenceMatcher(None, *words, autojunk=False), *words))
    size = {kind: sum(len(piece.text.split()) for piece in pieces if piece.kind == kind) for kind in _KINDS}
    alike = size["same"] > _ALIKE * (size["same"] + max(size["added"], size["left_out"]))
    return pieces if alike else [Piece("same", answer)]


def _pieces(matcher: "SequenceMatcher[str]", key: list[str], answer: list[str]) -> Iterator[Piece]:
    for kind, key_start, key_end, start, end in matcher.get_opcodes():
        left_out, own = "".join(key[key_start:key_end]), "".join(answer[start:end])
        if kind == "equal":
            yield Piece("same", own)
            continue
        if left_out:
            yield Piece("left_out", left_out)
        if own:
            yield Piece("added", own)
