"""Parts of a split for jobs that run side by side."""

from mlbench_data.bad_input import BadInput
from mlbench_data.rows import Row


def shard_of(shard: str) -> tuple[int, int]:
    """I and N of `I/N`. Raises BadInput."""
    index, _, count = shard.partition("/")
    if not (index.isdecimal() and count.isdecimal() and len(shard) < 20 and int(index) < int(count)):
        raise BadInput(f"shard is {shard[:40]!r}; expected I/N with I from 0 to N - 1, such as 0/4")
    return int(index), int(count)


def rows_of_shard(rows: list[Row], shard: str) -> list[Row]:
    """The I-th of N runs of neighbouring rows: neighbours share READMEs. Raises BadInput."""
    index, count = shard_of(shard)
    start, end = (len(rows) * part // count for part in (index, index + 1))
    if start == end:
        raise BadInput(f"shard {shard} of {len(rows)} rows is empty; use fewer shards")
    return rows[start:end]
