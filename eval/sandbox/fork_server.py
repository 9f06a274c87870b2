"""The fork server: python programs start from an interpreter that has imported what is slow to import.

The server (warm_python.py) runs outside of every sandbox and does nothing but import what it is told to and
fork. A program's sandbox is built by bubblewrap as always; a fork enters its namespaces, its control groups
and its limits, gives up every privilege, and only then runs a line that a model wrote. What the server has
imported is there as if nobody had imported it: names must still be imported, and a repository that has
files of the same names gets a fresh interpreter.

Memory that programs share with the server (the libraries) does not count towards their limit.
"""

import json
import socket
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO

SOURCE = Path(__file__).with_name("warm_python.py").read_text(encoding="utf-8")
MOST_BYTES = 1 << 20
START_SECONDS = 300.0


@dataclass(frozen=True)
class Request:
    """A program to fork. `user` is the uid and gid to become, None inside a user namespace. `environment` is
    all that it gets; `limits` are rlimits by their names in `resource`; `system_calls` is a seccomp filter
    in hexadecimal digits, empty for none.
    """

    namespaces: int
    user: int | None
    folder: str
    code: str
    python: str
    start: str
    environment: dict[str, str]
    limits: dict[str, int]
    system_calls: str


class ForkServer:
    """A running server. Raises OSError if it does not start."""

    def __init__(self, python: Path, environment: dict[str, str], preload: Sequence[str]) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._home = tempfile.TemporaryDirectory(prefix="mlbench-")  # libraries may write at import
        settings = json.dumps({"socket": theirs.fileno(), "preload": list(preload)})
        with theirs:
            self._process = subprocess.Popen(
                [str(python), "-c", SOURCE, settings],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=environment | {"HOME": self._home.name, "TMPDIR": self._home.name},
                cwd="/",
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        self._socket = ours
        self._lock = threading.Lock()
        ours.settimeout(START_SECONDS)
        said = ours.recv(MOST_BYTES)
        if not said:
            raise OSError(f"the fork server of {python} ended with {self._process.wait()}")

    @property
    def is_alive(self) -> bool:
        """Whether programs can be forked."""
        return self._process.poll() is None

    def fork(self, request: Request, files: Sequence[int]) -> None:
        """Asks for a program. `files` are: the reading end of a pipe on which a byte says that the sandbox is
        ready, the writing ends of the report, of stdout and of stderr, a pidfd of a process in the sandbox,
        and the files of its control groups that take process numbers. Raises OSError if the server is gone.
        """
        with self._lock:
            socket.send_fds(self._socket, [json.dumps(vars(request)).encode()], list(files))

    def close(self) -> None:
        """Ends the server; programs that it has forked go on."""
        self._socket.close()
        self._process.wait()
        self._home.cleanup()


@dataclass(frozen=True)
class Fork:
    """A program on its way into a sandbox: a byte on `ready` says that the sandbox is there, and `report` is
    told when the program starts and ends.
    """

    server: ForkServer
    request: Request
    ready: IO[bytes]
    report: IO[bytes]

    def into(self, first: int, groups: Sequence[Path], stdout: IO[bytes], stderr: IO[bytes]) -> None:
        """Has it forked into the sandbox of process 1, given as a pidfd, and into the control groups by their
        files that take processes. Raises OSError if the server is gone.
        """
        with ExitStack() as stack:
            tasks = [stack.enter_context(open(path, "wb", buffering=0)) for path in groups]
            files = [end.fileno() for end in (self.ready, self.report, stdout, stderr)]
            self.server.fork(self.request, [*files, first, *(task.fileno() for task in tasks)])
