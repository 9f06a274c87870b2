"""Reading a candidates file against the rows it is for."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mlbench_data.bad_input import BadInput
from mlbench_data.files import read_json, read_jsonl
from mlbench_data.rows import Row, RowKey

MOST_CANDIDATES = 10_000


@dataclass(frozen=True)
class Candidates:
    """The answers to evaluate: for each row exactly `n`, None where the file has none.

    `n` is how many were asked for, or the most outputs that any row has, whichever is more. `reasons` says
    why a row could not be sampled, and `sampled` how the others were, if that is known.
    """

    n: int
    by_row: dict[RowKey, list[str | None]]
    reasons: dict[RowKey, str]
    sampled: dict[str, Any] = field(default_factory=dict)


def gold_candidates(rows: list[Row]) -> Candidates:
    """The rows' own answers as their only candidates."""
    return Candidates(1, {row.key: [row.output] for row in rows}, {})


def read_candidates(path: str | Path, rows: list[Row], benchmark_sha256: str | None) -> Candidates:
    """Candidates for the rows. Rows that the file leaves out have None for every answer.

    Raises BadInput naming file and line: for a row that is not among `rows`, a second line for one row, a
    field of a wrong kind, or a manifest beside the file that names another benchmark.
    """
    if not Path(path).is_file():
        raise BadInput(f"{str(path)!r}: no such file; expected the candidates that infer/generate.py wrote")
    what = 'one candidate a line: {"github_id": 1, "id": 2, "output": ["...", ...]}'
    known = {row.key for row in rows}
    lines: dict[RowKey, int] = {}
    outputs: dict[RowKey, list[str]] = {}
    reasons: dict[RowKey, str] = {}
    sampled = _read_manifest(Path(path), benchmark_sha256)
    for number, values in read_jsonl(path, what):
        where = f"{path}:{number}"
        key = _key(values, where, what)
        if key not in known:
            raise BadInput(
                f"{where}: no row with github_id {key.github_id}, id {key.id} in the rows evaluated; "
                "give the benchmark and split that the candidates were sampled for"
            )
        if key in lines:
            raise BadInput(
                f"{where}: second line for github_id {key.github_id}, id {key.id} "
                f"(first on line {lines[key]}); put all answers to a row into one output list"
            )
        lines[key] = number
        outputs[key] = _outputs(values, where, what)
        if values.get("error"):
            reasons[key] = _writable(str(values["error"]))
    n = max(map(len, outputs.values()), default=0)
    if n == 0:
        raise BadInput(f"{path}: no answer in the whole file; expected {what}")
    asked = sampled.get("n")
    if type(asked) is int and asked > MOST_CANDIDATES:
        raise BadInput(f"{path}: its manifest says {asked} candidates a row; at most {MOST_CANDIDATES}")
    n = max(n, asked) if type(asked) is int else n
    by_row: dict[RowKey, list[str | None]] = {}
    for row in rows:
        given = outputs.get(row.key, [])
        by_row[row.key] = [*given, *[None] * (n - len(given))]
    return Candidates(n, by_row, reasons, sampled)


def _key(values: dict[str, Any], where: str, what: str) -> RowKey:
    for name in ("github_id", "id"):
        if type(values.get(name)) is not int:
            raise BadInput(f"{where}: {name} is {_found(values, name)}; expected an integer, as in {what}")
    return RowKey(values["github_id"], values["id"])


def _outputs(values: dict[str, Any], where: str, what: str) -> list[str]:
    given = values.get("output")
    if not isinstance(given, list):
        raise BadInput(
            f"{where}: output is {_found(values, 'output')}; expected a list of strings, as in {what}"
        )
    for position, answer in enumerate(given):
        if not isinstance(answer, str):
            raise BadInput(f"{where}: output[{position}] is {type(answer).__name__}; expected a string")
    return [_writable(answer) for answer in given]


def _writable(text: str) -> str:
    """The text without halves of surrogate pairs, which are legal in JSON but cannot be written to a file."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _found(values: dict[str, Any], name: str) -> str:
    return type(values[name]).__name__ if name in values else "missing"


def _read_manifest(path: Path, benchmark_sha256: str | None) -> dict[str, Any]:
    """How the candidates were sampled, as the manifest beside them says; empty if there is none."""
    beside = path.with_suffix(".manifest.json")
    if not beside.exists():
        return {}
    manifest = read_json(beside, "the manifest of a candidates file")
    values = manifest if isinstance(manifest, dict) else {}
    made_for = values.get("benchmark_sha256")
    if benchmark_sha256 is not None and made_for not in (None, benchmark_sha256):
        raise BadInput(
            f"{path}: made for another benchmark (its manifest says {str(made_for)[:12]}, this one is "
            f"{benchmark_sha256[:12]}); give --benchmark the one it was sampled from"
        )
    sampled = values.get("identity")
    beside_it = {name: values.get(name) for name in ("adapter", "context")}
    return {**sampled, **beside_it} if isinstance(sampled, dict) else {}
