"""BM25 over windows of sentences (task 2): each README is indexed once, however many rows ask."""

import math
from collections import Counter, defaultdict
from functools import lru_cache

from punkt import PunktSentenceTokenizer, load_model

WINDOW = 10  # sentences, at stride 1 (ML-Bench, task 2)
MOST_SENTENCES = 1000
K1, B, EPSILON = 1.5, 0.75, 0.25


class WindowIndex:
    """An inverted BM25Okapi index over all windows of one README.

    The formula is the reference's: whitespace tokens, and a negative idf floored at
    `EPSILON` times the mean idf.
    """

    def __init__(self, text: str) -> None:
        spans = sentence_spans(text)[:MOST_SENTENCES]
        last_start = max(1, len(spans) - WINDOW + 1) if spans else 0
        self.windows = [_between(text, spans[start : start + WINDOW]) for start in range(last_start)]
        counts = [Counter(window.split()) for window in self.windows]
        lengths = [sum(count.values()) for count in counts]
        self._mean_length = sum(lengths) / len(lengths) if lengths else 0.0
        self._postings: dict[str, list[tuple[int, float]]] = defaultdict(list)
        for window, count in enumerate(counts):
            norm = K1 * (1 - B + B * lengths[window] / (self._mean_length or 1.0))
            for token, times in count.items():
                self._postings[token].append((window, times * (K1 + 1) / (times + norm)))
        self._idf = self._inverse_frequencies()

    def _inverse_frequencies(self) -> dict[str, float]:
        total = len(self.windows)
        idf = {
            token: math.log(total - len(found) + 0.5) - math.log(len(found) + 0.5)
            for token, found in self._postings.items()
        }
        mean = sum(idf.values()) / len(idf) if idf else 0.0
        return {token: value if value >= 0 else EPSILON * mean for token, value in idf.items()}

    def best(self, query: str) -> str:
        """The window that answers the query best, the first of equals; empty for an empty README."""
        if not self.windows:
            return ""
        scores = [0.0] * len(self.windows)
        for token in query.split():
            for window, weight in self._postings.get(token, ()):
                scores[window] += self._idf[token] * weight
        return self.windows[max(range(len(scores)), key=scores.__getitem__)]


@lru_cache(maxsize=64)
def index_of(text: str) -> WindowIndex:
    """The index of a README, made once for each text."""
    return WindowIndex(text)


def sentence_spans(text: str) -> list[tuple[int, int]]:
    """(start, end) of each sentence, by NLTK's English punkt model."""
    return list(_sentences().span_tokenize(text))


@lru_cache(maxsize=1)
def _sentences() -> PunktSentenceTokenizer:
    return PunktSentenceTokenizer(load_model("english"))


def _between(text: str, spans: list[tuple[int, int]]) -> str:
    return text[spans[0][0] : spans[-1][1]]
