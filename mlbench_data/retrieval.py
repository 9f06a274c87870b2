"""BM25 over windows of sentences (task 2): each README is indexed once, however many rows ask.

Windows, formula and choice are those of the published harness, which builds `rank_bm25.BM25Okapi` anew for
every row: a window begins at every `stride`-th sentence and holds the next `sentences` (fewer at the end),
words are split at white space, and a negative idf is floored at `EPSILON` times the mean idf.
"""

import math
from collections import Counter
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
        self._postings = _weighed(_counts_by_window(text, spans, list(zip(starts, ends, strict=True))))

    def best(self, query: str) -> str:
        """The window that answers the query best, with its spacing; empty for an empty README."""
        if not self.spans:
            return ""
        start, end = self.spans[winner(self.scores(query))]
        return self._text[start:end]

    def scores(self, query: str) -> np.ndarray:
        """BM25 of every window, shape (windows,): the numbers of `BM25Okapi.get_scores`, bit by bit."""
        scores = np.zeros(len(self.spans))
        for token in query.split():
            if token in self._postings:
                windows, weights = self._postings[token]
                scores[windows] += weights
        return scores


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


@dataclass(frozen=True)
class _Counts:
    """How often each token stands in each window that has it, and each window's number of tokens."""

    windows: dict[str, list[int]]
    times: dict[str, list[int]]
    lengths: list[int]


def _counts_by_window(text: str, spans: list[tuple[int, int]], bounds: list[tuple[int, int]]) -> _Counts:
    """Counts of overlapping windows, from each sentence's own: what leaves is taken off, what enters added.

    Tokens come in the order in which they first occur, the order in which the mean idf is summed up.
    """
    sentences = [text[start:end].split() for start, end in spans]
    first_seen = dict.fromkeys(token for sentence in sentences for token in sentence)
    windows: dict[str, list[int]] = {token: [] for token in first_seen}
    times: dict[str, list[int]] = {token: [] for token in first_seen}
    lengths = []
    current: Counter[str] = Counter()
    before = (0, 0)
    for window, (start, end) in enumerate(bounds):
        for sentence in sentences[before[0] : min(start, before[1])]:
            current.subtract(sentence)
        for sentence in sentences[max(start, before[1]) : end]:
            current.update(sentence)
        before = (start, end)
        current = +current
        lengths.append(current.total())
        for token, count in current.items():
            windows[token].append(window)
            times[token].append(count)
    return _Counts(windows, times, lengths)


def _weighed(counts: _Counts) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """For each token the windows that have it and what it adds to their scores."""
    total = len(counts.lengths)
    found = {token: windows for token, windows in counts.windows.items() if windows}
    idf = {
        token: math.log(total - len(windows) + 0.5) - math.log(len(windows) + 0.5)
        for token, windows in found.items()
    }
    floor = EPSILON * (sum(idf.values()) / len(idf)) if idf else 0.0
    lengths = np.array(counts.lengths)
    mean_length = sum(counts.lengths) / total if total else 0.0
    norms = K1 * (1 - B + B * lengths / (mean_length or 1.0))
    postings = {}
    for token, windows in found.items():
        at, times = np.array(windows), np.array(counts.times[token])
        weight = idf[token] if idf[token] >= 0 else floor
        postings[token] = at, weight * (times * (K1 + 1) / (times + norms[at]))
    return postings
