"""Starting a program in a private copy of its repository, and watching it to its end."""

import os
import re
import select
import selectors
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol

from eval.sandbox.interface import Ending, Limits, Outcome, Program

PREPARATION_SECONDS = 300.0
"""For copying the repository and for the row's prefix; the candidate's own time starts after that."""

SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

_SECONDS_FOR_A_REPORT = 5.0

_KEPT = 32 << 10
"""Bytes kept of the head of a stream, and as many of its tail."""

# Stages are reported on a pipe of its own as NUL, name, newline, among all that the preparation prints. It is
# closed once "started" is on it: what candidates may write there where it has a name comes after that, counts
# as output and changes nothing, as every failure after it is the candidate's.
_COPY = r"""
report=$1 source=$2 copy=$3 owner=$4; shift 4
{
  printf '\0copying the repository\n'
  cp -a -- "$source/." "$copy" && chmod -R u+rwX -- "$copy" || exit
  [ -z "$owner" ] || chown -hR -- "$owner" "$copy" || exit
} >&"$report" 2>&1
exec "$@"
"""

# The prefix is sourced: what it exports and the folder it ends in are meant for the answer.
_RUN = r"""
readonly mlbench_report=$1 mlbench_prefix=$2 mlbench_folder=$3 mlbench_limits=$4; shift 4
readonly -a mlbench_command=("$@"); shift $#
set -eo pipefail
{
  printf '\0setting limits\n'
  ulimit $mlbench_limits
  printf '\0entering the path folder\n'
  cd -- "$mlbench_folder"
  printf '\0running the prefix\n'
} >&"$mlbench_report" 2>&1
. "$mlbench_prefix" >&"$mlbench_report" 2>&1
printf '\0started\n' >&"$mlbench_report"
exec {mlbench_report}>&-
exec "${mlbench_command[@]}"
"""

# Keeps a sandbox for a program that is forked into it (fork_server.py), until the sandbox is ended.
_KEEP = r"""
report=$1 ready=$2
printf '\0starting the program\n' >&"$report"
printf . >&"$ready"
exec {report}>&- {ready}>&-
exec sleep infinity
"""

# No `-u`: answers use variables such as $PYTHONPATH that may be unset.
_BASH = ["bash", "-e", "-o", "pipefail"]

# The code file lies outside of the repository, yet imports must look into the working directory first. No
# name is left for the code to find: one that forgets `import os` must fail.
PYTHON_START = """
import os, sys
sys.path[0] = os.getcwd()
del sys.argv[0]
__file__ = sys.argv[0]
del os, sys
with open(__file__, "rb") as code:
    code = compile(code.read(), __file__, "exec")
exec(globals().pop("code"))
"""


_FORKED_START = re.compile(rb"\0starting process (\d+)\n")
_FORKED_END = re.compile(rb"\0ended (\d+)\n")


@dataclass(frozen=True)
class Place:
    """Where a program finds its things, in paths as the program sees them.

    `source` is copied into the existing empty folder `copy`; the copy is given to `owner` (UID:GID) if named.
    """

    source: Path
    copy: Path
    code: Path
    prefix: Path
    python: Path
    owner: str = ""

    def folder(self, program: Program) -> Path:
        """Where the program runs."""
        return self.copy / os.path.normpath(program.path or ".")


class Meter(Protocol):
    """Measures a running program's memory."""

    @property
    def interval(self) -> float:
        """Seconds between two looks."""
        ...

    def exceeded(self) -> bool:
        """Whether the program has used more than its limit."""
        ...

    def peak(self) -> int | None:
        """The most memory it had, in bytes, if known."""
        ...

    def follow(self, pid: int) -> None:
        """Counts a process that belongs to the program without being its descendant."""
        ...


@dataclass
class Running:
    """A started program.

    `report` is the reading end of its report. `end` kills all of it and returns when it is dead.
    `is_program`: `process` turns into the program, else it only keeps it and passes its exit code on.
    `is_forked`: it passes nothing on, and the program's end is on the report.
    """

    process: "subprocess.Popen[bytes]"
    report: IO[bytes]
    meter: Meter
    end: Callable[[], None]
    is_program: bool
    is_forked: bool = False


def refusal(program: Program) -> Outcome | None:
    """The outcome of a program that cannot be run: no repository, no folder of it, or a missing device."""
    path = os.path.normpath(program.path or ".")
    if "\0" in path or os.path.isabs(path) or path.split(os.sep)[0] == os.pardir:
        return infrastructure(
            f"path {program.path!r} leads out of the repository; expected a folder inside it"
        )
    if not program.repository.is_dir():
        return infrastructure(f"{program.repository}: no such repository folder")
    folder = (program.repository / path).resolve()
    if not folder.is_relative_to(program.repository.resolve()):
        return infrastructure(f"path {program.path!r} leads out of the repository by a link, to {folder}")
    for device in program.devices:
        if not Path(device).exists():
            return infrastructure(f"{device}: no such device file on this machine")
    return None


def infrastructure(detail: str) -> Outcome:
    """The outcome of a program that was never started."""
    return Outcome("infrastructure", None, 0.0, None, "", "", detail)


def start_command(
    program: Program, place: Place, report: int, become: list[str], rlimits: dict[str, int], limits: Limits
) -> list[str]:
    """The command that copies the repository, takes on `become`, runs the prefix and turns into the program.

    `rlimits` are options of bash's `ulimit` in its units, on top of those for core files and file sizes.
    """
    every_limit = {"-c": 0, "-f": limits.disk >> 10} | rlimits
    options = " ".join(f"{option} {value}" for option, value in every_limit.items())
    code = [*_BASH, str(place.code)]
    if program.kind == "python":
        code = [str(place.python), "-c", PYTHON_START, str(place.code)]
    folder = place.folder(program)
    run = ["bash", "-c", _RUN, "run", str(report), str(place.prefix), str(folder), options]
    return [*_copying(place, report), *become, *run, *code]


def keep_command(place: Place, report: int, become: list[str], ready: int) -> list[str]:
    """The command that copies the repository, says on `ready` that it has, and keeps the sandbox open."""
    return [*_copying(place, report), *become, "bash", "-c", _KEEP, "keep", str(report), str(ready)]


def _copying(place: Place, report: int) -> list[str]:
    return ["bash", "-c", _COPY, "copy", str(report), str(place.source), str(place.copy), place.owner]


def environment(
    home: Path,
    temporary: Path,
    python: Path,
    wrappers: Path,
    more: dict[str, str],
    path: str = SYSTEM_PATH,
) -> dict[str, str]:
    """All variables that a program gets; nothing of the caller's. `path` are folders of programs."""
    return {
        "PATH": f"{wrappers}:{python.parent}:{path}",
        "HOME": str(home),
        "TMPDIR": str(temporary),
        "USER": "candidate",
        "LANG": "C.UTF-8",
        "OMP_NUM_THREADS": "1",  # a thread for each core of a big machine is no use under a process limit
    } | more


def wrapper(python: Path) -> str:
    """A script that is `python` on the program's PATH; a symbolic link would lose the virtual environment."""
    quoted = str(python).replace("'", "'\\''")
    return f"#!/bin/sh\nexec '{quoted}' \"$@\"\n"


def supervise(running: Running, limits: Limits) -> Outcome:
    """Watches a program to its end, and sees to it that nothing of it is left when this returns."""
    watch = _Watch(running, limits)
    try:
        watch.until_the_end()
    finally:
        running.end()
    watch.read_rest()
    return watch.outcome()


@dataclass
class _Stream:
    """What came through one pipe: how much, its head and its tail."""

    pipe: IO[bytes]
    size: int = 0
    head: bytes = b""
    tail: bytes = b""

    def read(self) -> bool:
        """Takes what is there without waiting. False if nothing is."""
        try:
            chunk = os.read(self.pipe.fileno(), _KEPT // 2)
        except BlockingIOError:
            return False
        self.size += len(chunk)
        room = _KEPT - len(self.head)
        self.head += chunk[:room]
        self.tail = (self.tail + chunk[room:])[-_KEPT:]
        return bool(chunk)

    def text(self) -> str:
        """The stream's text; what is missing between head and tail is said."""
        left_out = self.size - len(self.head) - len(self.tail)
        if not left_out:
            return (self.head + self.tail).decode(errors="replace")
        gap = f"\n[… {left_out} bytes left out …]\n"
        return self.head.decode(errors="replace") + gap + self.tail.decode(errors="replace")


class _Watch:
    """One program under observation."""

    def __init__(self, running: Running, limits: Limits) -> None:
        process = running.process
        assert process.stdout is not None
        assert process.stderr is not None
        self.running, self.limits = running, limits
        self.stdout, self.stderr, self.report = map(_Stream, (process.stdout, process.stderr, running.report))
        self.begin = self.finish = time.monotonic()
        self.started: float | None = None
        self.reported = 0
        self.killed: Ending | None = None

    def until_the_end(self) -> None:
        """Returns when the program has exited by itself, or went over a limit and must be killed."""
        exited = os.pidfd_open(self.running.process.pid)
        try:
            with selectors.DefaultSelector() as selector:
                for stream in (self.stdout, self.stderr, self.report):
                    os.set_blocking(stream.pipe.fileno(), False)
                    selector.register(stream.pipe, selectors.EVENT_READ, stream)
                selector.register(exited, selectors.EVENT_READ)
                self._watch(selector)
        finally:
            os.close(exited)
            self.finish = time.monotonic()

    def _watch(self, selector: selectors.BaseSelector) -> None:
        meter, next_look, exited = self.running.meter, self.begin, False
        while self.killed is None and not exited:
            for key, _ in selector.select(max(0.0, min(next_look, self._deadline()) - time.monotonic())):
                if key.data is None:
                    exited = True
                elif not key.data.read():
                    selector.unregister(key.fileobj)
            self._notice_start()
            exited = exited or self._ended() is not None
            now = time.monotonic()
            if exited or now >= next_look:
                next_look = now + meter.interval
                if meter.exceeded():
                    self.killed = "out_of_memory"
            if self.killed is None and not exited:
                self._check_output_and_time(now)

    def _check_output_and_time(self, now: float) -> None:
        if self._too_much_output():
            self.killed = "output_limit"
        elif now >= self._deadline():
            self.killed = "timed_out"

    def _too_much_output(self) -> bool:
        """Counts what comes on the report after the start too: no candidate keeps the harness reading."""
        more = self.report.size - self.reported if self.started is not None else 0
        return self.stdout.size + self.stderr.size + more > self.limits.output

    def _deadline(self) -> float:
        if self.started is None:
            return self.begin + PREPARATION_SECONDS
        return self.started + self.limits.seconds

    def _notice_start(self) -> None:
        said = self.report.head + self.report.tail
        if self.started is None and b"\0started\n" in said:
            self.started = time.monotonic()
            self.reported = self.report.size
            if forked := _FORKED_START.search(said):
                self.running.meter.follow(int(forked[1]))

    def _ended(self) -> int | None:
        """The exit code of a forked program, once its report says so."""
        found = _FORKED_END.search(self.report.tail or self.report.head) if self.running.is_forked else None
        return int(found[1]) if found else None

    def read_rest(self) -> None:
        """Takes what is left in the pipes, whose writers are dead; a fork's end is told from outside, and may
        come a moment after its keeper's.
        """
        patience = time.monotonic() + _SECONDS_FOR_A_REPORT
        while self._owes_its_end() and time.monotonic() < patience:
            select.select([self.report.pipe], [], [], 0.01)
            self.report.read()
            self._notice_start()
        for stream in (self.report, self.stdout, self.stderr):
            while stream.read():
                self._notice_start()
            stream.pipe.close()
        if self.killed is None and self._too_much_output():
            self.killed = "output_limit"

    def _owes_its_end(self) -> bool:
        return self.running.is_forked and self.started is not None and self._ended() is None

    def outcome(self) -> Outcome:
        """What became of it; only what happens before it starts, or to its keeper, is infrastructure."""
        code, texts = self.running.process.returncode, (self.stdout.text(), self.stderr.text())
        if self.running.is_forked and self.started is not None:
            ended = self._ended()
            code = 128 + signal.SIGKILL if ended is None else ended  # programs can kill their keeper
        peak = self.running.meter.peak()
        if self.started is None:
            return Outcome("infrastructure", None, 0.0, peak, *texts, self._failed_preparation(code))
        seconds = max(0.0, self.finish - self.started)
        if self.killed is not None:
            return Outcome(self.killed, None, seconds, peak, *texts)
        if code < 0 and not self.running.is_program:
            detail = f"the sandbox was killed from outside by signal {-code}"
            return Outcome("infrastructure", None, seconds, peak, *texts, detail)
        return Outcome("exited", code if code >= 0 else 128 - code, seconds, peak, *texts)

    def _failed_preparation(self, code: int) -> str:
        how = {
            None: f"failed with exit code {code}",
            "timed_out": f"took more than {PREPARATION_SECONDS:.0f} s",
            "out_of_memory": "took more memory than the limit",
            "output_limit": "printed more than the limit",
        }[self.killed]
        text = self.report.text().partition("\0ended ")[0]
        stage, _, said = text.rpartition("\0")[2].partition("\n")
        words = " ".join(f"{said} {self.stderr.text()}".split())[-500:]
        return f"{stage or 'starting the sandbox'} {how}{f': {words}' if words else ', without a word'}"
