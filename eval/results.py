"""results.jsonl: one line a candidate, appended while an evaluation runs, in input order once it is done."""

import json
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from eval.checks import Check
from eval.errors import ErrorClass
from eval.grading import Stage, Status
from eval.sandbox.interface import Ending, Outcome
from mlbench_data.bad_input import BadInput
from mlbench_data.files import read_jsonl, replacing
from mlbench_data.rows import RowKey

TAIL = 2000
"""How many characters of stdout and of stderr are kept, from their ends."""

_NONE = type(None)
_KINDS: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("github_id", "id", "candidate"), (int,)),
    **dict.fromkeys(("repository", "status", "stage", "stdout", "stderr", "detail", "evidence"), (str,)),
    **dict.fromkeys(("code", "error_class", "ending", "identity"), (str, _NONE)),
    **dict.fromkeys(("exit_code", "peak_memory"), (int, _NONE)),
    "seconds": (int, float, _NONE),
}


@dataclass(frozen=True)
class Result:
    """What became of one candidate. Seconds are wall clock, memory is the peak in bytes.

    `type_ok` and `parameters_ok` are under the evaluation's mode, `checks` holds both modes. What follows
    `ending` is None or empty for a candidate that was not run. `identity` is the hash of everything that
    decides the outcome of a run; equal identities share one run. `evidence` is what the error class rests on.
    """

    github_id: int
    id: int
    candidate: int
    repository: str
    status: Status
    stage: Stage
    error_class: ErrorClass | None
    type_ok: bool
    parameters_ok: bool
    checks: dict[str, Check]
    code: str | None
    ending: Ending | None
    exit_code: int | None
    seconds: float | None
    peak_memory: int | None
    stdout: str
    stderr: str
    detail: str
    identity: str | None
    evidence: str = ""

    @property
    def key(self) -> RowKey:
        """The row that this is a candidate of."""
        return RowKey(self.github_id, self.id)

    @property
    def passed(self) -> bool:
        """Whether it counts in Pass@k."""
        return self.status == "passed"

    def outcome(self) -> Outcome | None:
        """What the sandbox said; None if the candidate was not run, or the sandbox itself failed."""
        if self.ending is None or self.ending == "infrastructure" or self.seconds is None:
            return None
        return Outcome(
            self.ending, self.exit_code, self.seconds, self.peak_memory, self.stdout, self.stderr, self.detail
        )

    def line(self) -> str:
        """The result as one line of JSON."""
        return json.dumps(asdict(self), ensure_ascii=False) + "\n"


def tailed(outcome: Outcome) -> Outcome:
    """The outcome with no more of its output than results keep."""
    return replace(outcome, stdout=outcome.stdout[-TAIL:], stderr=outcome.stderr[-TAIL:])


def append_results(path: Path, results: Iterable[Result]) -> None:
    """Adds lines and returns once they are on the disk."""
    with open(path, "a", encoding="utf-8") as file:
        file.writelines(result.line() for result in results)
        file.flush()
        os.fsync(file.fileno())


def write_results(path: Path, results: Iterable[Result]) -> None:
    """Writes the whole file or nothing."""
    with replacing(path) as temporary:
        append_results(temporary, results)


def read_results(path: Path) -> list[Result]:
    """The results of a file. Raises BadInput naming file and line."""
    what = "results of eval/run.py"
    return [_parse(values, f"{path}:{number}", what) for number, values in read_jsonl(path, what)]


def resume_results(path: Path) -> list[Result]:
    """The results of an evaluation that may have been stopped; drops a last line cut short from the file."""
    if not path.exists():
        return []
    with open(path, "rb+") as file:
        content = file.read()
        if not content.endswith(b"\n"):
            file.truncate(content.rfind(b"\n") + 1)
    return read_results(path)


def _parse(values: dict[str, Any], where: str, what: str) -> Result:
    try:
        checks = {
            mode: Check(**{**item, "missing": tuple(item["missing"])})
            for mode, item in values["checks"].items()
        }
        for name, kinds in _KINDS.items():
            if type(values.get(name, "")) not in kinds:
                raise TypeError(f"{name} is {values[name]!r}")
        return Result(**{**values, "checks": checks})
    except (TypeError, KeyError, AttributeError) as error:
        raise BadInput(f"{where}: not a result ({error}); expected {what}") from error
