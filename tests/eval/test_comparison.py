"""Two evaluations of the same rows: differences, their intervals, and McNemar's test."""

import pytest

from eval.comparison import compare, mcnemar

YES, NO = [True] * 5, [False] * 5


def test_equal_runs_do_not_differ() -> None:
    found = compare([YES, NO], [YES, NO], ["a", "b"])
    assert [(item.k, item.difference, item.interval) for item in found.differences] == [
        (1, 0, (0, 0)),
        (2, 0, (0, 0)),
        (5, 0, (0, 0)),
    ]
    assert (found.only_first, found.only_second, found.p_value) == (0, 0, 1)


def test_a_difference_is_taken_row_by_row() -> None:
    """Rows differ widely, the runs by one pass in each repository: the interval is a point."""
    first = [YES, NO, YES, NO]
    second = [YES, YES, YES, YES]
    [at_1, *_] = compare(first, second, ["a", "a", "b", "b"]).differences
    assert at_1.difference == 0.5
    assert at_1.interval == (0.5, 0.5)


def test_an_interval_is_wide_where_one_repository_makes_the_difference() -> None:
    [at_1, *_] = compare([NO] * 4, [YES, YES, NO, NO], ["a", "a", "b", "b"]).differences
    assert at_1.interval == (0, 1)


def test_k_beyond_the_candidates_of_either_is_left_out() -> None:
    assert [item.k for item in compare([[True, False]], [YES], ["a"]).differences] == [1, 2]
    assert compare([[]], [YES], ["a"]).differences == []


@pytest.mark.parametrize(
    ("only_first", "only_second", "expected"),
    [(0, 0, 1.0), (5, 5, 1.0), (1, 9, 0.021484375), (9, 1, 0.021484375), (0, 6, 0.03125)],
)
def test_mcnemar_is_the_exact_binomial_test(only_first: int, only_second: int, expected: float) -> None:
    assert mcnemar(only_first, only_second) == pytest.approx(expected)
