"""Which rows of a split are sampled: all, or a few for a quick look."""

from mlbench_data.bad_input import BadInput
from mlbench_data.rows import Row


def selected(rows: list[Row], names: list[str] | None, limit: int | None) -> list[Row]:
    """The rows named `GITHUB_ID/ID` or `ID`, in the split's order, and at most `limit` of them.

    Raises BadInput for a name that no row has, or that several have.
    """
    if names is not None:
        places = {_place(name, rows) for name in names}
        rows = [row for place, row in enumerate(rows) if place in places]
    return rows[:limit]


def _place(name: str, rows: list[Row]) -> int:
    found = [
        place
        for place, row in enumerate(rows)
        if name in (f"{row.key.github_id}/{row.key.id}", str(row.key.id))
    ]
    if len(found) == 1:
        return found[0]
    if not found:
        first = rows[0].key
        raise BadInput(f"no row {name!r} in this split; its first is {first.github_id}/{first.id}")
    several = ", ".join(f"{rows[place].key.github_id}/{rows[place].key.id}" for place in found[:4])
    raise BadInput(f"{len(found)} rows have the id {name}: say which, as {several}")
