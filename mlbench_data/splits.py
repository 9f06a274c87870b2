"""Making splits from pools of rows: chosen by hash, so that the order of the input decides nothing."""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Collection

from mlbench_data.bad_input import BadInput
from mlbench_data.rows import Row, RowKey

QUARTER_SHARE = 68 / 260  # the published quarter's share of full (ML-Bench, section 2.3)

Asked = tuple[str, tuple[tuple[str, str], ...]]


def split_pool(pool: list[Row], ood: Collection[str], test_share: float, seed: int) -> dict[str, list[Row]]:
    """`full`, `quarter`, `id_train` and `ood_train` from any rows; those that came out empty are left out.

    All rows of the repositories `ood` (names in lower case) are ood_train. Of every other repository and
    type, about `test_share` of the rows is full, at least one; the rest is id_train. Rows of a repository
    that have the same arguments stay on one side. Test rows come in the order of their keys, training rows
    mixed.
    """
    groups: dict[str, dict[Asked, list[Row]]] = defaultdict(lambda: defaultdict(list))
    of_ood: list[Row] = []
    for row in sorted(pool, key=lambda row: row.key):
        if row.repository.lower() in ood:
            of_ood.append(row)
        else:
            groups[row.repository][asked(row)].append(row)
    full: list[Row] = []
    id_train: list[Row] = []
    for parts in groups.values():
        tested = _tested(parts, test_share, seed)
        for key, rows in parts.items():
            (full if key in tested else id_train).extend(rows)
    full.sort(key=lambda row: row.key)
    splits = {
        "full": full,
        "quarter": quarter_of(full, seed),
        "id_train": sorted(id_train, key=lambda row: _rank(seed, "order", row.key)),
        "ood_train": sorted(of_ood, key=lambda row: _rank(seed, "order", row.key)),
    }
    return {name: rows for name, rows in splits.items() if rows}


def _tested(parts: dict[Asked, list[Row]], test_share: float, seed: int) -> set[Asked]:
    """Which groups of one repository are for testing: in hash order while a type wants more rows.

    A group that has twice as many rows of a type as are wanted is left to training, unless there is no other.
    """
    counts = {key: Counter(row.type for row in rows) for key, rows in parts.items()}
    total = sum(counts.values(), Counter[str]())
    wanted = {kind: max(1, round(test_share * number)) for kind, number in total.items()}
    taken: Counter[str] = Counter()
    chosen: set[Asked] = set()
    ranked = sorted(parts, key=lambda key: _rank(seed, "full", key))
    for key in ranked:
        wants = any(taken[kind] < wanted[kind] for kind in counts[key])
        if wants and all(taken[kind] + number <= 2 * wanted[kind] for kind, number in counts[key].items()):
            chosen.add(key)
            taken += counts[key]
    for kind in sorted(wanted):
        if not taken[kind]:
            smallest = min((key for key in ranked if counts[key][kind]), key=lambda key: len(parts[key]))
            chosen.add(smallest)
            taken += counts[smallest]
    return chosen


def quarter_of(full: list[Row], seed: int) -> list[Row]:
    """A quarter of the test rows, stratified by repository and type, in `full`'s order.

    Every repository keeps at least one row of each of its types.
    """
    groups: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in full:
        groups[(row.repository, row.type)].append(row)
    chosen: set[RowKey] = set()
    for rows in groups.values():
        ranked = sorted(rows, key=lambda row: _rank(seed, "quarter", row.key))
        chosen.update(row.key for row in ranked[: max(1, round(len(rows) * QUARTER_SHARE))])
    return [row for row in full if row.key in chosen]


def check_disjoint(train: list[Row], test: list[Row], where: str) -> None:
    """Raises BadInput if a training row asks for the same parameters of the same task as a test row."""
    test_keys = {row.key for row in test}
    tested = {(row.repo_id, row.path, asked(row)) for row in test}
    for row in train:
        if row.key in test_keys or (row.repo_id, row.path, asked(row)) in tested:
            raise BadInput(f"{where}: training row {row.repository} {row.id} has the arguments of a test row")


def asked(row: Row) -> Asked:
    """What a row asks for: its repository and arguments, whatever their order."""
    return row.repository, tuple(sorted(row.parameters().items()))


def _rank(seed: int, purpose: str, key: tuple[object, ...]) -> bytes:
    return hashlib.sha256(f"{seed}/{purpose}/{key!r}".encode()).digest()
