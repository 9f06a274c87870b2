"""No sandbox at all, for programs that are trusted: the same contract, but nothing is isolated."""

import os
import signal
import subprocess
import tempfile
import time
import uuid
from contextlib import suppress
from functools import partial
from pathlib import Path

import psutil

from eval.sandbox.interface import Limits, Outcome, Program
from eval.sandbox.interpreter import examine, find_on_host
from eval.sandbox.process import (
    Place,
    Running,
    environment,
    infrastructure,
    refusal,
    start_command,
    supervise,
    wrapper,
)
from eval.sandbox.process_tree import ProcessTree, rlimits, tasks_of_this_user

_MARK = "MLBENCH_PROGRAM"
"""A variable with a value of its own for each program, by which those that left its session are found."""


class Unsandboxed:
    """A Sandbox that isolates nothing: programs read and change whatever the caller can."""

    name = "unsandboxed"

    def run(self, program: Program, limits: Limits) -> Outcome:
        """Runs one program to its end and kills what it started, unless that has changed its environment.

        Raises BadInput if its interpreter does not work.
        """
        python = examine(program.python).executable
        refused = refusal(program)
        if refused:
            return refused
        try:
            with tempfile.TemporaryDirectory(prefix="mlbench-", ignore_cleanup_errors=True) as scratch:
                return supervise(_start(program, python, limits, Path(scratch)), limits)
        except OSError as error:
            return infrastructure(f"the program could not be started: {error}")

    def find_python(self, name: str | None = None, image: str | None = None) -> Path | None:
        """The interpreter on the host. Raises BadInput if an image is asked for."""
        return find_on_host(name, image)

    def describe(self) -> dict[str, str]:
        """Which limits are in force; there is no isolation."""
        return {
            "sandbox": self.name,
            "user": "the caller: NOTHING IS ISOLATED",
            "network": "the caller's",
            "files": "works in a private copy of the repository, can reach everything else",
            "memory": "RLIMIT_AS and resident memory looked at",
            "processes": "not limited for root" if os.geteuid() == 0 else "RLIMIT_NPROC",
            "disk": "RLIMIT_FSIZE for each file",
        }


def _start(program: Program, python: Path, limits: Limits, scratch: Path) -> Running:
    place = Place(
        source=program.repository.resolve(),
        copy=scratch / "work" / program.repository.resolve().name,
        code=scratch / "code",
        prefix=scratch / "prefix",
        python=python,
    )
    home, temporary, binaries = (scratch / name for name in ("home", "tmp", "bin"))
    for folder in (place.copy, home, temporary, binaries):
        folder.mkdir(parents=True)
    place.code.write_text(program.code, encoding="utf-8", errors="surrogatepass")
    place.prefix.write_text(program.prefix, encoding="utf-8", errors="surrogatepass")
    for name in ("python", "python3"):
        (binaries / name).write_text(wrapper(python))
        (binaries / name).chmod(0o755)
    mark = uuid.uuid4().hex
    report, report_end = os.pipe()
    process = subprocess.Popen(
        start_command(program, place, report_end, [], rlimits(limits, tasks_of_this_user()), limits),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(home, temporary, python, binaries, program.environment | {_MARK: mark}),
        cwd="/",
        pass_fds=[report_end],
        start_new_session=True,
    )
    os.close(report_end)
    meter = ProcessTree(process.pid, limits.memory)
    return Running(
        process, open(report, "rb", buffering=0), meter, partial(_end, process, mark), is_program=True
    )


def _end(process: "subprocess.Popen[bytes]", mark: str) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    while marked := [other for other in psutil.process_iter() if _has_mark(other, mark)]:
        for other in marked:
            with suppress(psutil.NoSuchProcess):
                other.kill()
        time.sleep(0.01)


def _has_mark(process: psutil.Process, mark: str) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE and process.environ().get(_MARK) == mark
    except (psutil.Error, OSError):
        return False
