"""The numbers of one evaluation, from its results."""

from collections.abc import Callable, Iterable
from dataclasses import asdict
from typing import Any

from eval.checks import Mode
from eval.grading import STATUSES
from eval.metrics import KS, hit_precision, pass_at_k
from eval.results import Result
from mlbench_data.rows import Row, RowKey

INTERVAL = (
    "95%, around the unbiased estimate: repositories drawn anew, or Wilson's for rows where that is wider"
)


def summarise(rows: list[Row], results: list[Result], mode: Mode, *, executed: bool) -> dict[str, Any]:
    """Counts, Pass@k and hit precisions: overall, per repository by its name, per type of answer, and per
    task of a repository as REPOSITORY/REPO_ID.

    `results` has as many candidates for one row as for another, those not given included.
    """
    github_ids = {row.repository: row.github_id for row in rows}
    per_repository = _grouped(rows, results, mode, lambda row: row.repository)
    return {
        "mode": mode,
        "executed": executed,
        **_numbers(rows, results, mode),
        "n": len(results) // len(rows),
        "interval": INTERVAL,
        "passed_by_timeout": sum(result.passed and result.ending == "timed_out" for result in results),
        "missing_candidates": sum(result.stage == "missing" for result in results),
        "lower_bound": any(result.status == "infrastructure" for result in results),
        "repositories": sorted({row.repository for row in rows}),
        "per_repository": {
            name: {"github_id": github_ids[name], **numbers} for name, numbers in per_repository.items()
        },
        "per_type": _grouped(rows, results, mode, lambda row: row.type),
        "per_task": _grouped(rows, results, mode, lambda row: f"{row.repository}/{row.repo_id}"),
    }


def passes_of(rows: list[Row], results: list[Result]) -> dict[RowKey, list[bool]]:
    """Which of a row's candidates passed, in their order."""
    passes: dict[RowKey, list[bool]] = {row.key: [] for row in rows}
    for result in results:
        passes[result.key].append(result.passed)
    return passes


def _grouped(
    rows: list[Row], results: list[Result], mode: Mode, name_of: Callable[[Row], str]
) -> dict[str, Any]:
    """The numbers of each group of rows, in the order in which the groups come up."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(name_of(row), []).append(row)
    numbers = {}
    for name, members in groups.items():
        keys = {row.key for row in members}
        numbers[name] = _numbers(members, [result for result in results if result.key in keys], mode)
    return numbers


def _numbers(rows: list[Row], results: list[Result], mode: Mode) -> dict[str, Any]:
    required = {row.key: len(row.parameters()) for row in rows}
    repositories = [row.repository for row in rows]
    passes = passes_of(rows, results)
    return {
        "rows": len(rows),
        "candidates": len(results),
        "status": _counts((result.status for result in results), STATUSES),
        "error_classes": _counts((result.error_class for result in results), ("E1", "E2", "E3", "E4")),
        "checks": {
            "type_ok": sum(result.type_ok for result in results),
            "parameters_ok": sum(result.parameters_ok for result in results),
            "both_ok": sum(result.type_ok and result.parameters_ok for result in results),
        },
        "pass_at_k": {str(k): asdict(pass_at_k(list(passes.values()), repositories, k)) for k in KS},
        "parameter_hit_precision": hit_precision(
            [required[result.key] for result in results],
            [len(result.checks[mode].missing) for result in results],
            [result.parameters_ok for result in results],
        ),
    }


def _counts(found: Iterable[str | None], names: tuple[str, ...]) -> dict[str, int]:
    """How often each name came up, every name listed."""
    values = list(found)
    return {name: values.count(name) for name in names}
