"""Containers of docker and podman as a sandbox: programs run in an image, such as the published one.

Each program has a container of its own: no network, a read-only image, the repository and the answer mounted
read-only, tmpfs of bounded size for what is written, an unprivileged user without capabilities, the engine's
own filter on system calls, and memory, processes and cores limited by its control group. Process 1 keeps a
line to the harness open, and with it everything in the container ends when the harness ends, however it ends.
What a harness that was killed leaves, an ended container and small files, goes when the next one starts.

What it does NOT protect from, beside what eval/sandbox/__init__.py says: defects of the engine; the image,
which is trusted with all that is in it; and, with docker, an image that declares volumes, as those can be
written to without a limit. Programs of several containers are one user, told apart by their namespaces only.

The engine must run on this machine, as it mounts this machine's folders, and the repository's files must be
readable for everybody (and, with SELinux, for containers). The image needs bash, sh, cp, chmod and mkdir.
Images are never pulled.
"""

import contextlib
import hashlib
import json
import os
import platform
import shutil
import subprocess
import tempfile
import threading
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any, Literal

from eval.sandbox.interface import Limits, Outcome, Program
from eval.sandbox.process import (
    SYSTEM_PATH,
    Place,
    Running,
    environment,
    infrastructure,
    refusal,
    start_command,
    supervise,
    wrapper,
)
from mlbench_data.bad_input import BadInput

INSIDE, ANSWER, SOURCE = Path("/sandbox"), Path("/answer"), Path("/source")
HOME, BINARIES = INSIDE / "home", ANSWER / "bin"
_TEMPORARY = Path("/tmp")
_REPORT = 9
"""The descriptor that the stages are reported on. Containers inherit none, so it is opened inside."""

_USER = "65534:65534"
_KEEPERS = 1
"""Processes of the sandbox's own that count against the program's limit: process 1."""

PATIENCE = 10.0
"""Seconds that a container has to end by itself once the line to the harness is cut; then it is killed."""

_ENGINE_SECONDS = 120.0
"""For one command to the engine."""

# Process 1. `set -m` gives the program a process group of its own and the signals it expects. Standard input
# is the line to the harness, which ends with the harness; process 1 itself listens, as programs cannot stop
# it, and looks for the program's end in between. Then all others are killed before anything can block. What
# the kernel has killed for lack of memory is told here, as podman does not notice it with cgroup v1.
KEEPER = r"""
set -m
(
  exec 9>/answer/report </dev/null
  printf '\0making the folders\n' >&9
  mkdir -p -- "$1" "$2" 2>&9 || exit
  shift 2
  exec "$@"
) &
program=$!
exec 2>/dev/null
while kill -0 $program; do
  read -r -t 0.03
  [ $? -gt 128 ] || break
done
if [ $$ = 1 ]; then kill -KILL -1; else kill -KILL -$program; fi
wait $program
code=$?
for file in /sys/fs/cgroup/memory.events /sys/fs/cgroup/memory/memory.oom_control; do
  while read -r name count; do
    [ "$name" != oom_kill ] || [ "$count" = 0 ] || echo out of memory 1<>/answer/memory
  done <$file
done
exit $code
"""

FIND = 'for name; do command -v -- "$name" && exit; done; exit 0'

_LIMITS_SEEN = r"""
for name in cp chmod mkdir /bin/sh; do
  command -v $name >/dev/null || { echo "$name not found" >&2; exit 1; }
done
for name in memory.max memory/memory.limit_in_bytes pids.max pids/pids.max; do
  if [ -r /sys/fs/cgroup/$name ]; then echo "$(</sys/fs/cgroup/$name)"; fi
done
"""


@dataclass(frozen=True)
class Engine:
    """What differs between engines of the same command line."""

    name: Literal["docker", "podman"]
    version: str
    """The Go template for `version` that needs an answer from whatever runs the containers."""
    options: tuple[str, ...] = ()
    tmpfs: str = ""


ENGINES = {
    "docker": Engine("docker", "{{.Server.Version}}"),
    "podman": Engine(
        "podman",
        "{{.Client.Version}}",
        # otherwise /run and others can be written to without a limit, and proxies come from the caller
        ("--read-only-tmpfs=false", "--image-volume=ignore", "--http-proxy=false"),
        ",notmpcopyup",
    ),
}


@dataclass(frozen=True)
class _Image:
    """An image on this machine: its name, what the name means now, and its PATH."""

    name: str
    id: str
    path: str


class Container:
    """A Sandbox of one container for each program, made by docker or podman.

    `image` is what programs run in that name none, `more` are images that programs will name. Raises BadInput
    if the engine or an image is missing, or if it does not limit what programs use.
    """

    def __init__(self, engine: str, image: str | None, more: Sequence[str] = ()) -> None:
        self.name = engine
        self._engine = ENGINES[engine]
        self._image = image
        self._version = self._say(
            ["version", "--format", self._engine.version], f"install and start {engine}"
        )
        self._images = {name: self._find(name) for name in dict.fromkeys([*filter(None, [image]), *more])}
        self._pythons: dict[tuple[str, str | None], Path | None] = {}
        self._lock = threading.Lock()
        self._prefix = machine_prefix()
        self._remove_abandoned()
        for found in self._images.values():
            self._check(found)

    def run(self, program: Program, limits: Limits) -> Outcome:
        """Runs one program to its end. Raises BadInput if its image is not one of the sandbox's."""
        image = self._named(program.image)
        refused = refusal(program)
        if refused:
            return refused
        name = f"{self._prefix}{os.getpid()}-{uuid.uuid4().hex}"
        try:
            with ExitStack() as stack:
                answer = stack.enter_context(answer_folder(name, program))
                report, memory = (stack.enter_context(fifo(answer / end)) for end in ("report", "memory"))
                process = self._start(name, image, program, limits, answer)
                box = _Box(self.name, name, process, memory)
                return box.verdict(supervise(Running(process, report, box, box.end, False), limits))
        except OSError as error:
            return infrastructure(f"{self.name}: {error}")

    def find_python(self, name: str | None = None, image: str | None = None) -> Path | None:
        """The path of a program in an image, by default of its python; None if it has none.

        Raises BadInput if there is no such image, or no bash in it.
        """
        found = self._named(image)
        with self._lock:
            if (found.id, name) not in self._pythons:
                wanted = ["python", "python3"] if name is None else [name]
                said = self._ask_inside(found, FIND, *wanted).strip()
                self._pythons[found.id, name] = Path(said) if said.startswith("/") else None
            return self._pythons[found.id, name]

    def describe(self) -> dict[str, str]:
        """Which engine, which images and which limits are in force."""
        return {
            "sandbox": self.name,
            self.name: self._version,
            "image": self._image or "each repository's own",
            "images": ", ".join(f"{image.name} {image.id}" for image in self._images.values()),
            "user": f"{_USER}, no capabilities",
            "network": "none",
            "system calls": "the engine's own filter",
            "files": "private copy of the repository; image read-only",
            "memory": "the engine's control group, no swap; the peak is not known",
            "processes": "the engine's control group",
            "cores": "the engine's control group",
            "disk": "tmpfs of bounded size, and as much again for /tmp and for /dev/shm",
        }

    def _start(
        self, name: str, image: _Image, program: Program, limits: Limits, answer: Path
    ) -> "subprocess.Popen[bytes]":
        variables = environment(HOME, _TEMPORARY, program.python, BINARIES, program.environment, image.path)
        command = [self.name, "run", "--name", name, "--interactive", *self._walls(limits)]
        for source, target in ((program.repository.resolve(), SOURCE), (answer, ANSWER)):
            command += ["--mount", f"{mounted(source)},target={target},readonly"]
        for device in program.devices:
            command += ["--device", device]
        for variable, value in variables.items():
            command += ["--env", f"{variable}={value}"]
        return subprocess.Popen(
            [*command, "--entrypoint", "bash", image.id, *inside_command(program, {}, limits)],
            stdin=subprocess.PIPE,  # the line to the harness, closed by the kernel if it is killed
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd="/",
            start_new_session=True,
        )

    def _walls(self, limits: Limits) -> list[str]:
        """The options that all programs share. Inodes of tmpfs count as memory, so they are bounded too."""
        tmpfs = f"rw,exec,nosuid,nodev,size={limits.disk},mode=1777{self._engine.tmpfs}"
        return [
            *("--pull", "never", "--network", "none", "--cgroupns", "private"),
            *("--hostname", "sandbox", "--workdir", "/"),
            *("--read-only", "--tmpfs", f"{INSIDE}:{tmpfs}", "--tmpfs", f"{_TEMPORARY}:{tmpfs}"),
            *("--shm-size", str(limits.disk), "--user", _USER, "--cap-drop", "ALL"),
            *("--security-opt", "no-new-privileges", "--pids-limit", str(limits.processes + _KEEPERS)),
            *(
                "--memory",
                str(limits.memory),
                "--memory-swap",
                str(limits.memory),
                "--cpus",
                str(limits.cores),
            ),
            *("--log-driver", "none", "--no-healthcheck", "--stop-signal", "KILL", *self._engine.options),
        ]

    def _named(self, image: str | None) -> _Image:
        name = image or self._image
        if name is None or name not in self._images:
            known = ", ".join(self._images) or "none"
            raise BadInput(f"image {name}: not one of those that the sandbox was made with ({known})")
        return self._images[name]

    def _find(self, name: str) -> _Image:
        right = f"expected an image that is there: {self.name} pull {name}"
        lines = "{{.Id}}{{range .Config.Env}}\n{{.}}{{end}}"
        image_id, *variables = self._say(["image", "inspect", "--format", lines, name], right).splitlines()
        paths = [line.removeprefix("PATH=") for line in variables if line.startswith("PATH=")]
        return _Image(name, image_id, paths[-1] if paths else SYSTEM_PATH)

    def _check(self, image: _Image) -> None:
        """Looks from inside whether programs are limited: some engines only warn that they cannot."""
        limits = Limits()
        seen, wanted = (
            self._ask_inside(image, _LIMITS_SEEN).split(),
            [limits.memory, limits.processes + _KEEPERS],
        )
        if seen != [str(limit) for limit in wanted]:
            raise BadInput(
                f"{self.name}: image {image.name} sees {' '.join(seen)} as limits of memory and processes; "
                f"expected {wanted[0]} {wanted[1]}, for which the engine needs control groups"
            )

    def _ask_inside(self, image: _Image, script: str, *arguments: str) -> str:
        """What a bash script prints in an image, under the same walls as programs."""
        command = ["run", "--rm", *self._walls(Limits()), "--entrypoint", "bash", image.id]
        right = f"expected an image {image.name} with bash, sh, cp, chmod and mkdir, and that its limits hold"
        return self._say([*command, "-c", script, "bash", *arguments], right)

    def _say(self, arguments: list[str], right: str) -> str:
        """What the engine answers. Raises BadInput if it does not."""
        try:
            done = _ask(self.name, arguments)
        except OSError as error:
            raise BadInput(f"{self.name}: does not run ({error}); {right}") from error
        if done.returncode != 0:
            raise BadInput(f"{self.name}: {' '.join(done.stderr.split())[-300:]}; {right}")
        return done.stdout.strip()

    def _remove_abandoned(self) -> None:
        """Removes what killed harnesses of this machine have left: ended containers and small files."""
        command = ["ps", "--all", "--filter", f"name={self._prefix}", "--format", "{{.Names}}"]
        listed = self._say(command, "expected a list of containers")
        folders = {folder.name for folder in Path(tempfile.gettempdir()).glob(f"{self._prefix}*")}
        names = {name for name in listed.split() if name.startswith(self._prefix)}
        for name in names | folders:
            if not Path("/proc", name.removeprefix(self._prefix).split("-")[0]).exists():
                _ask(self.name, ["rm", "--force", "--volumes", name])
                shutil.rmtree(Path(tempfile.gettempdir(), name), ignore_errors=True)


@dataclass
class _Box:
    """One container with a program. As a meter it only looks when the program has ended."""

    engine: str
    name: str
    process: "subprocess.Popen[bytes]"
    memory: IO[bytes]
    interval: float = float("inf")
    _state: dict[str, Any] = field(default_factory=dict)
    _out_of_memory: bool = False

    def exceeded(self) -> bool:
        """Whether process 1 has said so."""
        self._out_of_memory = self._out_of_memory or bool(self.memory.read(1))
        return self._out_of_memory

    def peak(self) -> None:
        """Nothing tells how much memory it was at most."""

    def follow(self, pid: int) -> None:
        """Everything in the container counts anyway."""

    def end(self) -> None:
        """Ends the container and removes it. Raises OSError if it cannot be removed."""
        if self.process.poll() is None:  # ends its line to process 1, and lets go of what nobody reads
            self.process.kill()
            with contextlib.suppress(TimeoutError):
                _ask(self.engine, ["wait", self.name], PATIENCE)
        assert self.process.stdin is not None
        self.process.stdin.close()
        inspected = _ask(self.engine, ["inspect", "--format", "{{json .State}}", self.name])
        self._state = json.loads(inspected.stdout) if inspected.returncode == 0 else {}
        removed = _ask(self.engine, ["rm", "--force", "--volumes", self.name])
        self.process.wait()
        if removed.returncode != 0 and "no such container" not in removed.stderr.lower():
            raise OSError(f"container {self.name} could not be removed: {removed.stderr.strip()}")

    def verdict(self, outcome: Outcome) -> Outcome:
        """The outcome with what the engine knows better: an end for lack of memory, or none of its own."""
        if outcome.ending not in ("exited", "timed_out"):
            return outcome
        if self._state.get("OOMKilled") or self.exceeded():
            return replace(outcome, ending="out_of_memory", exit_code=None)
        if outcome.ending == "exited" and self._state.get("ExitCode") != outcome.exit_code:
            said = f"{self.engine} lost the container: {' '.join(outcome.stderr.split())[-300:]}"
            return replace(outcome, ending="infrastructure", exit_code=None, detail=said)
        return outcome


def answer_files(program: Program) -> dict[str, str]:
    """The files of the answer's folder by name."""
    python = wrapper(program.python)
    return {"code": program.code, "prefix": program.prefix, "bin/python": python, "bin/python3": python}


@contextlib.contextmanager
def answer_folder(name: str, program: Program) -> Iterator[Path]:
    """A temporary folder that is mounted at ANSWER: the program, and the pipes that it is reported on.

    Nobody in the container owns it, so it is readable for everybody there; its parent keeps others out.
    """
    scratch = Path(tempfile.gettempdir(), name)
    scratch.mkdir(mode=0o700)
    try:
        answer = scratch / "answer"
        (answer / "bin").mkdir(parents=True)
        for file, text in answer_files(program).items():
            (answer / file).write_text(text, encoding="utf-8", errors="surrogatepass")
        for pipe in ("report", "memory"):
            os.mkfifo(answer / pipe)
        for path in (answer, *answer.rglob("*")):
            path.chmod(0o666 if path.is_fifo() else 0o755)
        (answer / "report").chmod(0o622)  # who reads it would take the stages from the harness
        yield answer
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def mounted(folder: Path) -> str:
    """The beginning of a `--mount` of a folder whose name may have commas and quotes in it: this is CSV."""
    quoted = str(folder).replace('"', '""')
    return f'type=bind,"source={quoted}"'


def fifo(path: Path) -> IO[bytes]:
    """A named pipe's end that is there before any writer is and stays when they go, and never blocks."""
    return open(os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC), "r+b", buffering=0)


def inside_command(program: Program, rlimits: dict[str, int], limits: Limits) -> list[str]:
    """The arguments of bash that keep a container and start the program in it."""
    place = Place(
        source=SOURCE,
        copy=INSIDE / "work" / program.repository.resolve().name,
        code=ANSWER / "code",
        prefix=ANSWER / "prefix",
        python=program.python,
    )
    start = start_command(program, place, _REPORT, [], {"-n": 1024} | rlimits, limits)
    return ["-c", KEEPER, "keeper", str(HOME), str(place.copy), *start]


def _ask(
    engine: str, arguments: list[str], seconds: float = _ENGINE_SECONDS
) -> "subprocess.CompletedProcess[str]":
    """One command to the engine. Raises OSError if there is none, TimeoutError if it does not answer."""
    try:
        return subprocess.run(
            [engine, *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            cwd="/",
            timeout=seconds,
        )
    except subprocess.TimeoutExpired as error:
        raise TimeoutError(f"no answer to {engine} {arguments[0]} within {seconds:.0f} s") from error


def machine_prefix() -> str:
    """How names begin that go on with a process number: it means something on one host, in one namespace."""
    where = f"{platform.node()} {os.readlink('/proc/self/ns/pid')}"
    return f"mlbench-{hashlib.sha256(where.encode()).hexdigest()[:8]}-"
