"""BM25 over windows of sentences (task 2): each README is indexed once, however many rows ask.

Windows, formula and choice are those of the published harness, which builds `rank_bm25.BM25Okapi` anew for
every row: a window begins at every `stride`-th sentence and holds the next `sentences` (fewer at the end),
words are split at white space, and a negative idf is floored at `EPSILON` times the mean idf.
"""

import itertools
import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from punkt import PunktSentenceTokenizer, load_model

from mlbench_data.bad_input import BadInput

K1, B, EPSILON = 1.5, 0.75, 0.25


@dataclass(frozen=True)
class Windows:
    """How a README is cut into windows, in sentences. The defaults are the paper's."""

    sentences: int = 10
    stride: int = 1
    most_sentences: int = 1000

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value < 1:
                raise BadInput(f"{name} is {value}; expected 1 or more")


PAPERS_WINDOWS = Windows()


def windows_of(numbers: list[int]) -> Windows:
    """Windows from the three numbers of a command line. Raises BadInput."""
    if len(numbers) != 3:
        raise BadInput(f"windows is {numbers}; expected sentences, stride and most sentences, as 10 1 1000")
    return Windows(*numbers)


class WindowIndex:
    """An inverted BM25Okapi index over all windows of one README."""

    def __init__(self, text: str, windows: Windows = PAPERS_WINDOWS) -> None:
        self._text = text
        spans = sentence_spans(text)[: windows.most_sentences]
        starts = range(0, len(spans), windows.stride)
        ends = [min(start + windows.sentences, len(spans)) for start in starts]
        self.spans = [(spans[start][0], spans[end - 1][1]) for start, end in zip(starts, ends, strict=True)]
        sentences = [text[start:end].split() for start, end in spans]
        self._postings = _postings(sentences, list(zip(starts, ends, strict=True)))

    def best(self, query: str) -> str:
        """The window that answers the query best, with its spacing; empty for an empty README."""
        if not self.spans:
            return ""
        start, end = self.spans[winner(self.scores(query))]
        return self._text[start:end]

    def scores(self, query: str) -> np.ndarray:
        """BM25 of every window, shape (windows,): the numbers of `BM25Okapi.get_scores`, bit by bit."""
        found = [self._postings[token] for token in query.split() if token in self._postings]
        if not found:
            return np.zeros(len(self.spans))
        windows = np.concatenate([posting[0] for posting in found])
        weights = np.concatenate([posting[1] for posting in found])
        return np.bincount(windows, weights, len(self.spans))  # adds in order, as the reference does


def winner(scores: np.ndarray) -> int:
    """The index that `BM25Okapi.get_top_n(…, n=1)` picks. Among equal scores that is what this sort leaves
    at the end, not the first or the last, so the very same sort is asked."""
    return int(np.argsort(scores)[-1])


@lru_cache(maxsize=64)
def index_of(text: str, windows: Windows = PAPERS_WINDOWS) -> WindowIndex:
    """The index of a README, made once for each text."""
    return WindowIndex(text, windows)


def sentence_spans(text: str) -> list[tuple[int, int]]:
    """(start, end) of each sentence, by NLTK's English punkt model."""
    return list(_sentences().span_tokenize(text))


@lru_cache(maxsize=1)
def _sentences() -> PunktSentenceTokenizer:
    return PunktSentenceTokenizer(load_model("english"))


Postings = dict[str, tuple[np.ndarray, np.ndarray]]
"""For each token the windows that have it, in order, and what it adds to their scores."""


def _postings(sentences: list[list[str]], bounds: list[tuple[int, int]]) -> Postings:
    """The index over windows, each a run of sentences from one of the `bounds` to before the other.

    Tokens come in the order in which they first occur, the order in which the mean idf is summed up.
    """
    tokens = {token: place for place, token in enumerate(dict.fromkeys(itertools.chain(*sentences)))}
    if not tokens:
        return {}
    counts = _counts_by_window(sentences, bounds, tokens)
    lengths = counts.sum(1)
    norms = K1 * (1 - B + B * lengths / (lengths.sum() / len(bounds)))
    containing = np.count_nonzero(counts, 0).tolist()
    token_of, window_of = counts.T.nonzero()
    times = counts[window_of, token_of]
    weights = _idf(containing, len(bounds))[token_of] * (times * (K1 + 1) / (times + norms[window_of]))
    ends = np.cumsum(containing).tolist()
    return {
        token: (window_of[end - number : end], weights[end - number : end])
        for token, number, end in zip(tokens, containing, ends, strict=True)
        if number
    }


def _counts_by_window(
    sentences: list[list[str]], bounds: list[tuple[int, int]], tokens: dict[str, int]
) -> np.ndarray:
    """How often each token stands in each window, (windows, tokens): differences of running sums."""
    running = np.zeros((len(sentences) + 1, len(tokens)), dtype=np.int32)
    for place, sentence in enumerate(sentences):
        running[place + 1] = np.bincount([tokens[token] for token in sentence], minlength=len(tokens))
    np.cumsum(running, axis=0, out=running)
    starts, ends = (list(part) for part in zip(*bounds, strict=True))
    return running[ends] - running[starts]


def _idf(containing: list[int], total: int) -> np.ndarray:
    """Each token's idf; a negative one becomes EPSILON times the mean. Tokens in no window have none."""
    of_number = {
        number: math.log(total - number + 0.5) - math.log(number + 0.5)
        for number in set(containing)
        if number
    }
    found = [of_number[number] for number in containing if number]
    floor = EPSILON * (sum(found) / len(found))
    return np.array([0.0 if not number else floor if of_number[number] < 0 else of_number[number]
                     for number in containing])  # fmt: skip
