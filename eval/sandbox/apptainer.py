"""Containers of apptainer (or singularity) as a sandbox, for clusters that have neither docker nor podman.

Programs run in an image file with namespaces of their own for files, processes, IPC and network, as the
caller's user without privileges. There is no control group: memory is looked at, and RLIMIT_AS, RLIMIT_NPROC
and RLIMIT_FSIZE bound what one process may use.

What it does NOT protect from, beside what eval/sandbox/__init__.py says: defects of apptainer; the image,
which is trusted with all that is in it; a full disk, as what programs write lies in the temporary folder of
the host until they end, with a limit for each file only; and system calls, none of which are refused.

NOT RUN by the tests where there is no apptainer: there they only check the command that it is given.
"""

import os
import shutil
import signal
import subprocess
import threading
import uuid
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path

from eval.sandbox.container import (
    ANSWER,
    BINARIES,
    FIND,
    HOME,
    INSIDE,
    PATIENCE,
    SOURCE,
    answer_folder,
    fifo,
    inside_command,
    machine_prefix,
    mounted,
)
from eval.sandbox.interface import Limits, Outcome, Program
from eval.sandbox.process import Running, environment, infrastructure, refusal, supervise
from eval.sandbox.process_tree import ProcessTree, rlimits, tasks_of_this_user
from mlbench_data.bad_input import BadInput

_PROGRAMS = ("apptainer", "singularity")
_WALLS = (
    *("--containall", "--cleanenv", "--no-home", "--no-init", "--no-privs", "--drop-caps", "all"),
    *("--pid", "--ipc", "--net", "--network", "none", "--pwd", "/"),
)


class Apptainer:
    """A Sandbox of one apptainer container for each program.

    `image` is the file that programs run in that name none, `more` are image files that programs will name.
    Raises BadInput if apptainer or an image is missing or does not start, or if the caller is root.
    """

    name = "apptainer"

    def __init__(self, image: str | None, more: Sequence[str] = ()) -> None:
        self._executable = _find_apptainer()
        if os.geteuid() == 0:
            raise BadInput(
                "apptainer: programs would be root; expected an ordinary user, or another --sandbox"
            )
        self._version = self._say(["--version"])
        self._image = image
        self._images = {name: _find_image(name) for name in dict.fromkeys([*filter(None, [image]), *more])}
        self._pythons: dict[tuple[Path, str | None], Path | None] = {}
        self._lock = threading.Lock()

    def run(self, program: Program, limits: Limits) -> Outcome:
        """Runs one program to its end. Raises BadInput if its image is not one of the sandbox's."""
        image = self._named(program.image)
        refused = refusal(program)
        if refused:
            return refused
        try:
            with ExitStack() as stack:
                name = f"{machine_prefix()}{os.getpid()}-{uuid.uuid4().hex}"
                answer = stack.enter_context(answer_folder(name, program))
                report = stack.enter_context(fifo(answer / "report"))
                process = subprocess.Popen(
                    command(self._executable, image, program, limits, answer),
                    stdin=subprocess.PIPE,  # the line to the harness, closed by the kernel if it is killed
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    cwd="/",
                    start_new_session=True,
                )
                meter = ProcessTree(process.pid, limits.memory)
                return supervise(Running(process, report, meter, partial(_end, process), False), limits)
        except OSError as error:
            return infrastructure(f"{self.name}: {error}")

    def find_python(self, name: str | None = None, image: str | None = None) -> Path | None:
        """The path of a program in an image, by default of its python; None if it has none.

        Raises BadInput if there is no such image, or no bash in it.
        """
        found = self._named(image)
        with self._lock:
            if (found, name) not in self._pythons:
                wanted = ["python", "python3"] if name is None else [name]
                said = self._say(["exec", *_WALLS, str(found), "bash", "-c", FIND, "bash", *wanted])
                self._pythons[found, name] = Path(said) if said.startswith("/") else None
            return self._pythons[found, name]

    def describe(self) -> dict[str, str]:
        """Which version, which images and which limits are in force."""
        stamps = {image: image.stat() for image in self._images.values()}
        return {
            "sandbox": self.name,
            self.name: self._version,
            "image": self._image or "each repository's own",
            "images": ", ".join(f"{path} {at.st_size} {at.st_mtime_ns}" for path, at in stamps.items()),
            "user": "the caller, without privileges",
            "network": "none",
            "files": "private copy of the repository; image read-only",
            "memory": "RLIMIT_AS and resident memory looked at",
            "processes": "RLIMIT_NPROC",
            "cores": "not limited",
            "disk": "RLIMIT_FSIZE for each file",
        }

    def _named(self, image: str | None) -> Path:
        name = image or self._image
        if name is None or name not in self._images:
            known = ", ".join(self._images) or "none"
            raise BadInput(f"image {name}: not one of those that the sandbox was made with ({known})")
        return self._images[name]

    def _say(self, arguments: list[str]) -> str:
        try:
            done = subprocess.run(
                [self._executable, *arguments],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                cwd="/",
                timeout=120,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise BadInput(f"{self._executable}: does not run ({error}); install apptainer") from error
        if done.returncode != 0:
            reason = " ".join(done.stderr.split())[-300:]
            raise BadInput(f"{self._executable}: {reason}; expected an image with bash, and namespaces")
        return done.stdout.strip()


def command(executable: str, image: Path, program: Program, limits: Limits, answer: Path) -> list[str]:
    """The whole command for one program, whose answer's folder is `answer`; beside it is what is written."""
    variables = environment(HOME, Path("/tmp"), program.python, BINARIES, program.environment)
    folders = [(program.repository.resolve(), SOURCE), (answer, ANSWER)]
    return [
        *(executable, "exec", *_WALLS),
        *("--workdir", str(answer.parent), "--scratch", str(INSIDE)),
        *[
            option
            for source, target in folders
            for option in ("--mount", f"{mounted(source)},destination={target},ro")
        ],
        *(["--nv"] if program.devices else []),
        str(image),
        # options for variables split them at commas
        *("env", *[f"{name}={value}" for name, value in variables.items()]),
        *("bash", *inside_command(program, rlimits(limits, tasks_of_this_user()), limits)),
    ]


def _find_apptainer() -> str:
    found = next(filter(None, map(shutil.which, _PROGRAMS)), None)
    if found is None:
        raise BadInput(
            "apptainer: neither apptainer nor singularity found; install one, or another --sandbox"
        )
    return found


def _find_image(name: str) -> Path:
    path = Path(name).expanduser().absolute()
    if not path.exists():
        raise BadInput(
            f"apptainer: {name}: no such image file; make it first: apptainer pull {name} docker://…"
        )
    return path


def _end(process: "subprocess.Popen[bytes]") -> None:
    """Cuts the line to process 1, which ends its namespace; if that does not help, kills apptainer."""
    assert process.stdin is not None
    process.stdin.close()
    with suppress(subprocess.TimeoutExpired):
        process.wait(PATIENCE)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
