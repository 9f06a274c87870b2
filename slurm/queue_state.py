"""Slurm's queue, as far as it concerns a sweep. Nothing of it needs an accounting database."""

import os
import re
import shlex
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

from mlbench_data.bad_input import JobFailed

FORMAT = "%j|%F|%K|%T|%r|%k"
ENDED = {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "OUT_OF_MEMORY", "DEADLINE",
         "BOOT_FAIL", "REVOKED"}  # fmt: skip
NOT_OURS = ("SQUEUE_", "SLURM_ARRAY_", "SLURM_JOB", "SLURM_STEP", "SLURM_TASK")
"""What would narrow the queue, or make jobs believe that they are elements of the array this runs in."""
WAITING = {"PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT"}


@dataclass(frozen=True)
class Queued:
    """A job, an element of an array, or those that wait together. `parts` is None for what is no array, and
    `comment` what a job could not write down elsewhere.
    """

    number: str
    parts: frozenset[int] | None
    state: str
    reason: str
    comment: str = ""

    def covers(self, part: int) -> bool:
        """Whether it is about this part."""
        return self.parts is None or part in self.parts

    @property
    def names(self) -> list[str]:
        """What Slurm calls it, element by element: other elements of the array are not meant."""
        return (
            [self.number] if self.parts is None else [f"{self.number}_{part}" for part in sorted(self.parts)]
        )

    @property
    def is_alive(self) -> bool:
        """Whether it runs or will run."""
        return self.state not in ENDED

    @property
    def is_waiting(self) -> bool:
        """Whether it has not begun."""
        return self.state in WAITING


def queue(prefix: str) -> dict[str, list[Queued]]:
    """The user's jobs whose names begin so, also those that have just ended, by the rest of their names.

    Raises JobFailed if Slurm does not answer.
    """
    lines = ask("squeue", "--me", "--all", "--noheader", "--states=all", f"--format={FORMAT}").splitlines()
    found: dict[str, list[Queued]] = {}
    for line in lines:
        name, number, parts, state, reason, comment = line.split("|", 5)
        if name.startswith(prefix):
            comment = "" if comment == "(null)" else comment
            job = Queued(number, _parts(parts), state, reason, comment)
            found.setdefault(name.removeprefix(prefix), []).append(job)
    return found


def _parts(text: str) -> frozenset[int] | None:
    """The numbers of `0-3,5%2` or `0-8:4`; None for `N/A`."""
    if text in ("N/A", ""):
        return None
    numbers: set[int] = set()
    for part in re.sub(r"%\d+$", "", text).split(","):
        span, _, step = part.partition(":")
        first, _, last = span.partition("-")
        numbers |= set(range(int(first), int(last or first) + 1, int(step or 1)))
    return frozenset(numbers)


def cancel(numbers: Sequence[str]) -> None:
    """Cancels jobs. Raises JobFailed if Slurm does not answer."""
    for start in range(0, len(numbers), 100):
        ask("scancel", *numbers[start : start + 100])


def ask(*command: str) -> str:
    """What one of Slurm's commands prints. Raises JobFailed with Slurm's own words."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(NOT_OURS)}
    environment["SLURM_BITSTR_LEN"] = "0"  # squeue would cut the elements of an array short
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL, env=environment
        )
    except FileNotFoundError as error:
        raise JobFailed(f"there is no {command[0]} here; run this on a machine of the cluster") from error
    except subprocess.TimeoutExpired as error:
        raise JobFailed(
            f"{command[0]} gave no answer within two minutes; is Slurm's controller up?"
        ) from error
    if done.returncode != 0:
        said = " ".join(done.stderr.split()) or f"exit code {done.returncode}"
        raise JobFailed(f"{said} ({shlex.join(command)})")
    return done.stdout
