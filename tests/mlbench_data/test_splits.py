"""Splits: stratified, seeded, and the same whatever the order of the rows."""

import random

import pytest

from mlbench_data.bad_input import BadInput
from mlbench_data.rows import PYTHON, Row
from mlbench_data.splits import asked, check_disjoint, quarter_of, split_pool
from tests.mlbench_data.samples import make_row


def pool(repositories: int = 4, rows: int = 300) -> list[Row]:
    """Rows of several repositories, a third of them python, every fifth with another's arguments."""
    return [
        make_row(
            number,
            github_id=number % repositories,
            github=f"https://example.org/r{number % repositories}",
            type=PYTHON if number % 3 == 0 else make_row().type,
            arguments=repr({"lr": str(number - number % 5)}),
        )
        for number in range(rows)
    ]


def test_every_row_is_on_one_side_and_out_of_distribution_rows_only_train() -> None:
    splits = split_pool(pool(), {"r3"}, 0.1, seed=0)
    keys = [row.key for name in ("full", "id_train", "ood_train") for row in splits[name]]
    assert sorted(keys) == sorted(row.key for row in pool())
    assert {row.repository for row in splits["ood_train"]} == {"r3"}
    assert {row.repository for row in splits["full"]} == {"r0", "r1", "r2"}


def test_the_share_holds_for_every_repository() -> None:
    full = split_pool(pool(), set(), 0.2, seed=0)["full"]
    for name in ("r0", "r1", "r2", "r3"):
        assert sum(row.repository == name for row in full) == pytest.approx(15, abs=3)


def test_rows_with_the_same_arguments_stay_on_one_side() -> None:
    splits = split_pool(pool(), set(), 0.3, seed=0)
    assert not {asked(row) for row in splits["full"]} & {asked(row) for row in splits["id_train"]}


@pytest.mark.parametrize("seed", range(20))
def test_many_rows_with_the_same_arguments_do_not_swamp_the_test_rows(seed: int) -> None:
    """A hundred rows without arguments are one group; both types are tested all the same."""
    same = [
        make_row(number, arguments="{}", type=PYTHON if number % 2 else make_row().type)
        for number in range(100)
    ]
    full = split_pool([*same, *(make_row(number) for number in range(100, 200))], set(), 0.04, seed)["full"]
    assert {row.type for row in full} >= {make_row().type}
    alone = split_pool([*(make_row(number) for number in range(100)), *(
        make_row(number, type=PYTHON) for number in range(100, 200))], set(), 0.04, seed)["full"]  # fmt: skip
    assert len(alone) == 8
    assert {row.type for row in alone} == {PYTHON, make_row().type}


def test_the_order_of_the_pool_decides_nothing_and_the_seed_does() -> None:
    shuffled = pool()
    random.Random(0).shuffle(shuffled)
    assert split_pool(shuffled, {"r3"}, 0.2, seed=0) == split_pool(pool(), {"r3"}, 0.2, seed=0)
    assert split_pool(pool(), {"r3"}, 0.2, seed=1) != split_pool(pool(), {"r3"}, 0.2, seed=0)


def test_a_split_that_comes_out_empty_is_left_out() -> None:
    assert sorted(split_pool([make_row()], set(), 0.5, seed=0)) == ["full", "quarter"]
    assert sorted(split_pool([make_row()], {"tiny"}, 0.5, seed=0)) == ["ood_train"]


def test_the_quarter_has_every_repository_and_keeps_the_order() -> None:
    rows = pool(repositories=3)
    quarter = quarter_of(rows, seed=0)
    assert len(quarter) == pytest.approx(300 * 68 / 260, abs=3)
    assert {row.github_id for row in quarter} == {0, 1, 2}
    assert quarter == [row for row in rows if row in quarter]
    assert quarter_of(rows, seed=0) == quarter
    assert quarter_of(rows, seed=1) != quarter
    assert {row.key for row in quarter_of(rows[::-1], seed=0)} == {row.key for row in quarter}


def test_the_same_arguments_of_another_task_are_no_leak_of_minibench() -> None:
    test = make_row(1, arguments="{'a': '1', 'b': '2'}")
    check_disjoint([make_row(2, arguments=test.arguments, repo_id=2)], [test], "train")
    check_disjoint([make_row(2, arguments=test.arguments, path="./other")], [test], "train")
    with pytest.raises(BadInput, match="training row tiny 2"):
        check_disjoint([make_row(2, arguments="{'b': 2, 'a': 1}")], [test], "train")
