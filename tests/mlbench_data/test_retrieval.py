"""Task 2's window is the one that BM25Okapi picks, computed here anew for every query."""

import math
import random
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlbench_data.readmes import readme_text
from mlbench_data.retrieval import WindowIndex, index_of, sentence_spans
from mlbench_data.rows import read_rows

K1, B, FLOOR = 1.5, 0.75, 0.25


class Okapi:
    """BM25Okapi from its description: no index, every window is scored for every query."""

    def __init__(self, windows: list[str]) -> None:
        self.windows = windows
        self.documents = [window.split() for window in windows]
        self.mean_length = sum(map(len, self.documents)) / len(self.documents)
        distinct = [set(document) for document in self.documents]
        raw = {}
        for token in dict.fromkeys(token for document in self.documents for token in document):
            containing = sum(token in tokens for tokens in distinct)
            raw[token] = math.log(len(windows) - containing + 0.5) - math.log(containing + 0.5)
        floor = FLOOR * sum(raw.values()) / len(raw) if raw else 0.0
        self.idf = {token: floor if value < 0 else value for token, value in raw.items()}

    def score(self, document: list[str], query: str) -> float:
        times = Counter(document)
        norm = K1 * (1 - B + B * len(document) / self.mean_length)
        return sum(
            self.idf[token] * (times[token] * (K1 + 1) / (times[token] + norm))
            for token in query.split()
            if token in times
        )

    def winner(self, query: str) -> str:
        scores = [self.score(document, query) for document in self.documents]
        return self.windows[scores.index(max(scores))]


def windows_of(text: str) -> list[str]:
    """Every run of ten sentences, cut out of the text as it stands."""
    spans = sentence_spans(text)[:1000]
    starts = range(max(1, len(spans) - 9))
    return [text[spans[start][0] : spans[min(start + 9, len(spans) - 1)][1]] for start in starts]


def sentences(*words: str) -> str:
    return " ".join(f"Here {word} stands." for word in words)


WORDS = st.sampled_from(["train", "--lr", "model", "the", "e.g.", "python", "0.1", "a\n\nb", "graph", "(see"])
SENTENCES = st.lists(WORDS, min_size=1, max_size=6).map(lambda words: f"Here {' '.join(words)} ends.")
TEXTS = st.lists(SENTENCES | WORDS, max_size=40).map(" ".join)
QUERIES = st.lists(WORDS, max_size=12).map(" ".join)


@settings(max_examples=100, deadline=None, derandomize=True, database=None)
@given(TEXTS, QUERIES)
def test_the_winner_is_that_of_brute_force_on_random_texts(text: str, query: str) -> None:
    index = WindowIndex(text)
    if not sentence_spans(text):
        assert index.best(query) == ""
        return
    assert index.windows == windows_of(text)
    assert index.best(query) == Okapi(windows_of(text)).winner(query)


def test_the_winner_is_that_of_brute_force_on_a_long_text_with_frequent_and_rare_words() -> None:
    """Close races, many of them: other constants than the reference's lose some."""
    randomness = random.Random(0)
    words = [f"w{rank}" for rank in range(40)]
    frequencies = [1 / (rank + 1) for rank in range(40)]

    def some(most: int) -> str:
        return " ".join(randomness.choices(words, frequencies, k=randomness.randint(1, most)))

    text = " ".join(f"Here {some(25)} ends." for _ in range(150))
    index, reference = WindowIndex(text), Okapi(windows_of(text))
    assert len(index.windows) == 141
    for _ in range(300):
        query = some(8)
        assert index.best(query) == reference.winner(query), query


def test_the_winner_is_that_of_brute_force_on_real_readmes(shared_data: Path) -> None:
    """Every real instruction on its own repository's page."""
    rows = read_rows(shared_data / "mlbench" / "rows.jsonl")
    pages = {
        name: readme_text((shared_data / "readmes" / name / "README.md").read_text(encoding="utf-8"))
        for name in {row.repository for row in rows}
    }
    reference = {name: Okapi(windows_of(page)) for name, page in pages.items()}
    assert sum(len(okapi.windows) for okapi in reference.values()) > 500
    for row in rows:
        winner = index_of(pages[row.repository]).best(row.instruction)
        assert winner == reference[row.repository].winner(row.instruction), row.key


def test_the_window_with_the_asked_word_wins() -> None:
    words = [f"word{number}" for number in range(60)]
    best = WindowIndex(sentences(*words)).best("what is word47 ?")
    assert "word47" in best
    assert len(sentence_spans(best)) == 10


def test_the_first_of_equal_windows_wins() -> None:
    text = sentences(*(f"word{number}" for number in range(30)))
    index = WindowIndex(text)
    assert index.best("unheard of") == index.windows[0]
    assert index.best("") == index.windows[0]


def test_a_word_of_most_windows_still_counts_by_the_floor() -> None:
    """Its idf is negative and floored at a quarter of the mean: more of it is better, not worse."""
    text = sentences(*["plain"] * 15, *["common common common"] * 25, *(f"w{n}" for n in range(12)))
    index = WindowIndex(text)
    raw_idf_is_negative = sum("common" in window for window in index.windows) > len(index.windows) / 2
    assert raw_idf_is_negative
    assert index.best("common").count("common") == 30


def test_a_window_is_cut_out_with_its_spacing() -> None:
    text = "One  two.\n\n\tThree   four.\n```\npython a.py   --x 1\n```\nEnd."
    assert WindowIndex(text).best("python") == text


def test_a_short_readme_is_one_window() -> None:
    assert WindowIndex(sentences("one", "two")).windows == [sentences("one", "two")]


@pytest.mark.parametrize("text", ["", " \n\t "])
def test_an_empty_readme_gives_an_empty_window(text: str) -> None:
    assert WindowIndex(text).best("anything") == ""


def test_sentences_after_the_thousandth_are_not_read() -> None:
    text = sentences(*(f"w{number}" for number in range(1050)))
    index = WindowIndex(text)
    assert len(index.windows) == 991
    assert "w990 " in index.windows[-1]
    assert index.windows[-1].endswith("w999 stands.")


def test_a_readme_is_indexed_once() -> None:
    text = sentences("a", "b", "c")
    assert index_of(text) is index_of(text[:3] + text[3:])
