"""What every sandbox takes and gives: a program, its limits, and what became of it."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

Ending = Literal["exited", "timed_out", "out_of_memory", "output_limit", "infrastructure"]


@dataclass(frozen=True)
class Limits:
    """What one candidate may use. Seconds are wall clock; sizes are bytes; `files` counts files and folders
    that exist at one time, the repository's copy included.
    """

    seconds: float = 60.0
    memory: int = 2 << 30
    disk: int = 512 << 20
    output: int = 1 << 20
    processes: int = 64
    files: int = 200_000
    cores: float = 1.0


@dataclass(frozen=True)
class Program:
    """One candidate, ready to run.

    `repository` is copied, never changed; `path` is the folder inside it that the code runs in.
    `kind` is `bash` or `python`; `prefix` is bash code that prepares the folder first.
    `python` is the interpreter that `python` and `python3` mean inside. `devices` are device files that it
    may use; `image` is what a container is made from, None for the sandbox's own.
    """

    code: str
    kind: Literal["bash", "python"]
    repository: Path
    path: str
    python: Path
    prefix: str = ""
    environment: dict[str, str] = field(default_factory=dict)
    image: str | None = None
    devices: tuple[str, ...] = ()


@dataclass(frozen=True)
class Outcome:
    """What became of a program. `exit_code` is None unless it exited; memory is the peak in bytes.

    `infrastructure` means that the sandbox itself failed (`detail` says how): never the model's fault.
    """

    ending: Ending
    exit_code: int | None
    seconds: float
    peak_memory: int | None
    stdout: str
    stderr: str
    detail: str = ""


class Sandbox(Protocol):
    """Runs programs that may do anything, several at a time from several threads."""

    name: str

    def run(self, program: Program, limits: Limits) -> Outcome:
        """Runs one program to its end and leaves nothing of it behind."""
        ...

    def find_python(self, name: str | None = None, image: str | None = None) -> Path | None:
        """The interpreter that programs have under this name or path, or by default; None if there is none.

        Raises BadInput if there are no such images.
        """
        ...

    def describe(self) -> dict[str, str]:
        """Which isolation and which limits are in force, for the manifest."""
        ...
