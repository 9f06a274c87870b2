"""Programs for sandboxes, and what tests ask about them afterwards."""

import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from eval.sandbox.interface import Outcome, Program

PYTHON = Path(sys.executable)

DAEMON = "(setsid bash -c 'setsid sleep 60.{mark} & setsid sleep 61.{mark}' >/dev/null 2>&1 &) ; sleep 0.3"
"""A bash line that leaves processes behind which have `mark` in their command lines."""


def bash(repository: Path, code: str, **changes: Any) -> Program:
    """A bash program in the repository's root."""
    return replace(Program(code, "bash", repository, "./", PYTHON), **changes)


def python(repository: Path, code: str, **changes: Any) -> Program:
    """A python program in the repository's root."""
    return replace(Program(code, "python", repository, "./", PYTHON), **changes)


def exited(outcome: Outcome, code: int) -> bool:
    """Whether the program ended by itself with this exit code; shows the outcome when an assertion fails."""
    return (outcome.ending, outcome.exit_code) == ("exited", code)


def marked(mark: str) -> list[int]:
    """Processes of the machine, zombies left out, whose command line holds `mark`."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and mark.encode() in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def wait_for(condition: Any, seconds: float = 10) -> bool:
    """Whether `condition()` comes true in time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.02)
    return bool(condition())
