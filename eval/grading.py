"""From what was checked and what became of the run to one status."""

from typing import Literal, get_args

from eval.checks import Check, Mode
from eval.sandbox.interface import Ending

Status = Literal[
    "passed",
    "wrong_type",
    "missing_parameters",
    "failed",
    "timed_out",
    "out_of_memory",
    "output_limit",
    "no_code",
    "infrastructure",
]
Stage = Literal["missing", "check", "execute"]

STATUSES: tuple[Status, ...] = get_args(Status)


def grade(
    code: str | None,
    check: Check,
    mode: Mode,
    *,
    execute: bool,
    ending: Ending | None,
    exit_code: int | None,
) -> tuple[Status, Stage]:
    """The status of a candidate and the stage that decided it. `code` is None where no candidate was given.

    Under `paper` a timeout passes: that is the published rule. Without execution, passing the checks is
    all there is to pass. Raises ValueError if a candidate that may pass was not run.
    """
    if code is None:
        return "no_code", "missing"
    if not code.strip():
        return "no_code", "check"
    if not check.type_ok:
        return "wrong_type", "check"
    if not check.parameters_ok:
        return "missing_parameters", "check"
    if not execute:
        return "passed", "check"
    if ending == "exited":
        return ("passed" if exit_code == 0 else "failed"), "execute"
    if ending == "timed_out" and mode == "paper":
        return "passed", "execute"
    if ending is None:
        raise ValueError("may pass, and was not run")
    return ending, "execute"
