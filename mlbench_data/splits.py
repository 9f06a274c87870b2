"""Making splits from pools of rows, and proving that training has seen no test row."""

import random
from collections import defaultdict

from mlbench_data.bad_input import BadInput
from mlbench_data.rows import Row, RowKey

QUARTER_SHARE = 68 / 260  # the published quarter's share of full (ML-Bench, section 2.3)


def quarter_of(full: list[Row], seed: int) -> list[Row]:
    """A quarter of the test rows, stratified by repository and type, in `full`'s order.

    Every repository keeps at least one row.
    """
    groups: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in full:
        groups[(row.repository, row.type)].append(row)
    chosen: set[RowKey] = set()
    for name, rows in groups.items():
        count = max(1, round(len(rows) * QUARTER_SHARE))
        chosen.update(row.key for row in random.Random(f"{seed}/quarter/{name}").sample(rows, count))
    return [row for row in full if row.key in chosen]


def check_disjoint(train: list[Row], test: list[Row], where: str) -> None:
    """Raises BadInput if a training row asks for the same parameters of the same task as a test row."""
    test_keys = {row.key for row in test}
    tested = {_asked(row) for row in test}
    for row in train:
        if row.key in test_keys or _asked(row) in tested:
            raise BadInput(f"{where}: training row {row.repository} {row.id} has the arguments of a test row")


def _asked(row: Row) -> tuple[str, int, str, str]:
    return row.repository, row.repo_id, row.path, repr(sorted(row.parameters().items()))
