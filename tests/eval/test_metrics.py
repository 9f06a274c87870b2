"""Pass@k and hit precision: known values, and None where undefined."""

from itertools import combinations

import pytest

from eval.metrics import bootstrap_interval, hit_precision, pass_at_k, wilson_interval


def test_first_k_looks_at_the_order_and_unbiased_does_not() -> None:
    rows = [[False, False, True], [True, False, False]]
    scores = pass_at_k(rows, ["a", "b"], 1)
    assert scores.first_k == 0.5
    assert scores.unbiased == pytest.approx(1 / 3)


def test_unbiased_is_the_mean_over_all_choices_of_k_candidates() -> None:
    row = [True, False, False, True, False]
    choices = list(combinations(row, 2))
    expected = sum(any(choice) for choice in choices) / len(choices)
    assert pass_at_k([row], ["a"], 2).unbiased == pytest.approx(expected)


@pytest.mark.parametrize("rows", [[], [[True, True, True]], [[True] * 5, [True]]])
def test_pass_at_k_of_fewer_than_k_candidates_is_undefined(rows: list[list[bool]]) -> None:
    scores = pass_at_k(rows, ["a"] * len(rows), 5)
    assert (scores.first_k, scores.unbiased, scores.interval) == (None, None, None)


def test_the_interval_is_wilsons_and_does_not_collapse_at_the_ends() -> None:
    assert wilson_interval(0.5, 10) == pytest.approx((0.2366, 0.7634), abs=1e-4)
    assert wilson_interval(0.0, 10) == pytest.approx((0.0, 0.2775), abs=1e-4)
    assert wilson_interval(1.0, 10) == pytest.approx((0.7225, 1.0), abs=1e-4)


def test_an_interval_knows_that_rows_of_one_repository_stand_and_fall_together() -> None:
    """Four repositories of which two pass wholly: as much is known as from four rows, not from forty."""
    passes = [[number < 20] for number in range(40)]
    alike = [str(number // 10) for number in range(40)]
    low, high = pass_at_k(passes, alike, 1).interval or (1, 0)
    assert (low, high) == (0, 1)
    mixed = [str(number % 4) for number in range(40)]
    assert pass_at_k(passes, mixed, 1).interval == pytest.approx(wilson_interval(0.5, 40))


def test_a_bootstrap_over_repositories_has_the_spread_of_their_means() -> None:
    """Against the normal approximation: 200 repositories of one row each."""
    values = [float(number % 2) for number in range(200)]
    low, high = bootstrap_interval(values, [str(number) for number in range(200)])
    assert high - low == pytest.approx(2 * 1.96 * 0.5 / 200**0.5, rel=0.05)


def test_hit_precision_over_parameters_and_over_generations() -> None:
    assert hit_precision([4, 4], [0, 3], [True, False]) == {"parameter": 0.625, "generation": 0.5}


def test_hit_precision_of_nothing_is_undefined() -> None:
    assert hit_precision([], [], []) == {"parameter": None, "generation": None}
    assert hit_precision([0], [0], [True]) == {"parameter": None, "generation": 1.0}
