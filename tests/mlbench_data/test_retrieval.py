"""Task 2's window is the one that `rank_bm25` picks, which the published harness asks anew for every row."""

import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rank_bm25 import BM25Okapi

from mlbench_data.bad_input import BadInput
from mlbench_data.readmes import readme_text
from mlbench_data.retrieval import PAPERS_WINDOWS, WindowIndex, Windows, index_of, sentence_spans
from mlbench_data.rows import read_rows


def windows_of(text: str, windows: Windows = PAPERS_WINDOWS) -> list[list[str]]:
    """Every window as its sentences."""
    found = [text[start:end] for start, end in sentence_spans(text)[: windows.most_sentences]]
    return [found[start : start + windows.sentences] for start in range(0, len(found), windows.stride)]


def documents_of(windows: list[list[str]]) -> list[list[str]]:
    """The windows' words as the published harness takes them: a space between any two sentences."""
    return [" ".join(window).split() for window in windows]


def assert_same(index: WindowIndex, okapi: BM25Okapi, windows: list[list[str]], query: str) -> None:
    """The same scores, bit by bit, and so the same winner, ties included."""
    assert np.array_equal(index.scores(query), okapi.get_scores(query.split())), query
    places = list(range(len(windows)))
    [winner] = okapi.get_top_n(query.split(), places, n=1)
    best = index.best(query)
    assert best.startswith(windows[winner][0]), query
    assert best.endswith(windows[winner][-1]), query
    assert all(sentence in best for sentence in windows[winner]), query


def sentences(*words: str) -> str:
    return " ".join(f"Here {word} stands." for word in words)


WORDS = st.sampled_from(["train", "--lr", "model", "the", "e.g.", "python", "0.1", "a\n\nb", "graph", "(see"])
SENTENCES = st.lists(WORDS, min_size=1, max_size=6).map(lambda words: f"Here {' '.join(words)} ends.")
TEXTS = st.lists(SENTENCES | WORDS, max_size=40).map(" ".join)
QUERIES = st.lists(WORDS, max_size=12).map(" ".join)
WINDOWS = st.builds(Windows, st.integers(1, 12), st.integers(1, 14), st.integers(1, 50))


@settings(max_examples=200, deadline=None, derandomize=True, database=None)
@given(TEXTS, QUERIES, WINDOWS | st.just(PAPERS_WINDOWS))
def test_scores_and_winner_are_the_references_on_random_texts(
    text: str, query: str, windows: Windows
) -> None:
    """Also for windows of other lengths and strides, overlapping or with gaps."""
    index = WindowIndex(text, windows)
    expected = windows_of(text, windows)
    assert [documents_of([[text[start:end]]]) for start, end in index.spans] == [
        documents_of([window]) for window in expected
    ]
    if not expected:
        assert index.best(query) == ""
        return
    assert_same(index, BM25Okapi(documents_of(expected)), expected, query)


def test_close_races_have_the_references_winner() -> None:
    """A long text of frequent and rare words: other constants than the reference's lose some."""
    randomness = random.Random(0)
    words = [f"w{rank}" for rank in range(40)]
    frequencies = [1 / (rank + 1) for rank in range(40)]

    def some(most: int) -> str:
        return " ".join(randomness.choices(words, frequencies, k=randomness.randint(1, most)))

    text = " ".join(f"Here {some(25)} ends." for _ in range(150))
    index, windows = WindowIndex(text), windows_of(text)
    okapi = BM25Okapi(documents_of(windows))
    assert len(windows) == 150, "short windows at the end are windows too"
    for _ in range(300):
        assert_same(index, okapi, windows, some(8))


def test_real_instructions_on_real_readmes_have_the_references_winner(shared_data: Path) -> None:
    """Every real instruction on its own repository's page."""
    rows = read_rows(shared_data / "mlbench" / "rows.jsonl")
    for name in sorted({row.repository for row in rows}):
        page = readme_text((shared_data / "readmes" / name / "README.md").read_text(encoding="utf-8"))
        windows = windows_of(page)
        okapi = BM25Okapi(documents_of(windows))
        for row in rows:
            if row.repository == name:
                assert_same(index_of(page), okapi, windows, row.instruction)


def test_the_window_with_the_asked_word_wins() -> None:
    words = [f"word{number}" for number in range(60)]
    best = WindowIndex(sentences(*words)).best("what is word47 ?")
    assert "word47" in best


def test_among_equal_windows_the_references_wins() -> None:
    """Neither the first nor the last of them: numpy's argsort decides, and is asked for the same."""
    text = sentences(*(f"word{number}" for number in range(30)))
    index, windows = WindowIndex(text), windows_of(text)
    for query in ("unheard of", "", "Here stands."):
        assert_same(index, BM25Okapi(documents_of(windows)), windows, query)


def test_a_word_of_most_windows_still_counts_by_the_floor() -> None:
    """Its idf is negative and floored at a quarter of the mean: more of it is better, not worse."""
    text = sentences(*["plain"] * 15, *["common common common"] * 25, *(f"w{n}" for n in range(12)))
    windows = documents_of(windows_of(text))
    assert sum("common" in window for window in windows) > len(windows) / 2
    assert WindowIndex(text).best("common").count("common") == 30


def test_sentences_without_a_space_between_them_do_not_share_a_word() -> None:
    """The page of open_clip has some: the published harness joins sentences by spaces."""
    text = "Use the code snippet.\u201cTwo\u201d stands here! (See?)It is so. " * 5
    index, windows = WindowIndex(text), windows_of(text)
    assert_same(index, BM25Okapi(documents_of(windows)), windows, "code snippet. It")


def test_a_window_is_cut_out_with_its_spacing() -> None:
    text = "One  two.\n\n\tThree   four.\n```\npython a.py   --x 1\n```\nEnd."
    assert WindowIndex(text).best("two.") == text


@pytest.mark.parametrize("text", ["", " \n\t "])
def test_an_empty_readme_gives_an_empty_window(text: str) -> None:
    assert WindowIndex(text).best("anything") == ""


def test_sentences_after_the_thousandth_are_not_read() -> None:
    text = sentences(*(f"w{number}" for number in range(1050)))
    index = WindowIndex(text)
    assert len(index.spans) == 1000
    assert text[slice(*index.spans[990])].endswith("w999 stands.")
    assert "w1000 " not in "".join(text[start:end] for start, end in index.spans)


@pytest.mark.parametrize("name", ["sentences", "stride", "most_sentences"])
def test_windows_of_nothing_are_refused(name: str) -> None:
    with pytest.raises(BadInput, match=rf"{name} is 0; expected 1 or more"):
        Windows(**{name: 0})


def test_a_readme_is_indexed_once() -> None:
    text = sentences("a", "b", "c")
    assert index_of(text) is index_of(text[:3] + text[3:])
    assert index_of(text, Windows(2)) is not index_of(text)
