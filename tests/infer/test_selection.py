"""Which rows are sampled: shards partition them, names are unambiguous."""

import pytest

from infer.selection import selected
from mlbench_data.bad_input import BadInput
from mlbench_data.shards import rows_of_shard
from mlbench_data.sources import default_benchmark
from tests.infer.asked import row


def test_shards_are_the_rows_once_each() -> None:
    rows = default_benchmark().rows("full")
    for count in (1, 3, 5, len(rows)):
        shards = [rows_of_shard(rows, f"{index}/{count}") for index in range(count)]
        assert [row for shard in shards for row in shard] == rows


def test_a_shard_of_a_shard_is_a_shard() -> None:
    """Copies on one machine share what an array job gave it."""
    rows = [row(number) for number in range(37)]
    for index in range(3):
        parts = [rows_of_shard(rows, f"{index * 4 + copy}/12") for copy in range(4)]
        assert [one for part in parts for one in part] == rows_of_shard(rows, f"{index}/3")


@pytest.mark.parametrize("shard", ["", "1", "4/4", "-1/4", "1/0", "a/b", "0/99"])
def test_what_is_no_shard_is_refused(shard: str) -> None:
    with pytest.raises(BadInput, match="shard"):
        rows_of_shard([row(number) for number in range(5)], shard)


def test_rows_come_in_the_split_s_order() -> None:
    rows = [row(number) for number in range(9)]
    assert selected(rows, ["1/7", "2"], None) == [rows[2], rows[7]]
    assert selected(rows, None, 3) == rows[:3]
    assert selected(rows, ["7", "2", "5"], 2) == [rows[2], rows[5]]
    assert selected(rows, None, None) == rows
