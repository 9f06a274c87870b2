"""Learning a vocabulary from text, and cutting text into its pieces."""

import itertools
import re
from collections import Counter
from dataclasses import dataclass

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
ALGORITHMS = ("WordPiece", "BPE", "WordLevel")


@dataclass(frozen=True)
class Vocabulary:
    """Pieces in order of their number. Pieces inside of a word begin with `##`."""

    pieces: tuple[str, ...]
    lower_case: bool

    def encode(self, text: str, length: int | None = None) -> list[int]:
        """Numbers of `[CLS] text [SEP]`; cut or padded to `length` if given."""
        known = {piece: number for number, piece in enumerate(self.pieces)}
        numbers = [known["[CLS]"]]
        for word in words_of(text, self.lower_case):
            numbers += self._pieces_of(word, known)
        numbers.append(known["[SEP]"])
        if length is None:
            return numbers
        return (numbers + [known["[PAD]"]] * length)[:length]

    @staticmethod
    def _pieces_of(word: str, known: dict[str, int]) -> list[int]:
        found, start = [], 0
        while start < len(word):
            for end in range(len(word), start, -1):
                piece = word[start:end] if start == 0 else "##" + word[start:end]
                if piece in known:
                    found.append(known[piece])
                    start = end
                    break
            else:
                return [known["[UNK]"]]
        return found


def words_of(text: str, lower_case: bool) -> list[str]:
    return re.findall(r"\w+|[^\w\s]", text.lower() if lower_case else text)


def build_vocabulary(text: str, size: int, algorithm: str, lower_case: bool) -> Vocabulary:
    """A vocabulary of at most `size` pieces, special ones included.

    `WordLevel` takes the most frequent words. `BPE` merges the most frequent pair of pieces again and again;
    `WordPiece` merges the pair that is frequent compared with its parts. Raises ValueError.
    """
    if algorithm not in ALGORITHMS:
        raise ValueError(f"algorithm must be one of {', '.join(ALGORITHMS)}, got {algorithm!r}")
    counts = Counter(words_of(text, lower_case))
    if algorithm == "WordLevel":
        return Vocabulary(SPECIAL + tuple(word for word, _ in counts.most_common(size - 5)), lower_case)
    words = {word: [word[0], *("##" + letter for letter in word[1:])] for word in counts}
    alphabet = sorted({piece for pieces in words.values() for piece in pieces})
    if size < len(alphabet) + len(SPECIAL):
        raise ValueError(
            f"the size must be at least {len(alphabet) + len(SPECIAL)} for this text, got {size}"
        )
    pieces = [*SPECIAL, *alphabet]
    while len(pieces) < size:
        pair = best_pair(words, counts, algorithm)
        if pair is None:
            break
        merged = pair[0] + pair[1].removeprefix("##")
        if merged not in pieces:
            pieces.append(merged)
        words = {word: merge(parts, pair, merged) for word, parts in words.items()}
    return Vocabulary(tuple(pieces), lower_case)


def best_pair(words: dict[str, list[str]], counts: Counter, algorithm: str) -> tuple[str, str] | None:
    """The pair of neighbouring pieces to be merged next, None if all words are whole."""
    pairs: Counter = Counter()
    singles: Counter = Counter()
    for word, parts in words.items():
        for part in parts:
            singles[part] += counts[word]
        for pair in itertools.pairwise(parts):
            pairs[pair] += counts[word]
    if not pairs:
        return None
    if algorithm == "BPE":
        return max(pairs, key=lambda pair: (pairs[pair], pair))
    return max(pairs, key=lambda pair: (pairs[pair] / (singles[pair[0]] * singles[pair[1]]), pair))


def merge(parts: list[str], pair: tuple[str, str], merged: str) -> list[str]:
    """`parts` with each occurrence of the pair replaced."""
    result: list[str] = []
    for part in parts:
        if result and (result[-1], part) == pair:
            result[-1] = merged
        else:
            result.append(part)
    return result
