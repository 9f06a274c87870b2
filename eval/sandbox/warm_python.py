"""The fork server's inside: it has imported what is slow to import, and forks for each program.

It is run as `python -c SOURCE JSON` by whatever interpreter the candidates have (3.8 or newer), so it imports
nothing of this project. eval/sandbox/fork_server.py is the other end and says how the two talk.

A request's child waits until bubblewrap has built the program's sandbox, enters it, and forks once more: only
then is a process in the sandbox's own process namespace. That grandchild gives up every privilege and becomes
the program. The child stays outside, where no program can reach it, and reports how the program ended.
"""

from __future__ import annotations

import sys

AT_START = set(sys.modules)  # what every interpreter has imported

import array
import atexit
import ctypes
import gc
import importlib
import json
import os
import random
import resource
import signal
import socket
import threading
import types
from typing import Any, NoReturn

MOST_BYTES = 1 << 20
MOST_FILES = 16

# <linux/prctl.h>, <linux/seccomp.h>, <linux/capability.h>
PR_SET_DUMPABLE, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 4, 24, 38
PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL = 47, 4
PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 22, 2
CAPABILITY_VERSION_3 = 0x20080522
SYS_CAPSET = {"x86_64": 126, "aarch64": 91}[os.uname().machine]
NUMBER_OF_CAPABILITIES = 64

LIBC = ctypes.CDLL(None, use_errno=True)


def main() -> None:
    """Imports what it is told to, says so, and forks for every request until the harness is gone."""
    settings = json.loads(sys.argv[1])
    server = socket.socket(fileno=settings["socket"])
    imported = [name for name in settings["preload"] if can_import(name)]
    imported_names = {name.partition(".")[0] for name in set(sys.modules) - AT_START}
    gc.freeze()  # what is there now is never looked at again, which would copy its pages
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # children end by themselves and are not waited for
    server.send(json.dumps(imported).encode())
    while True:
        text, files = receive(server)
        if not text:
            os._exit(0)
        if os.fork() == 0:
            server.close()
            os._exit(serve(json.loads(text), files, imported_names))
        for file in files:
            os.close(file)


def can_import(name: str) -> bool:
    try:
        importlib.import_module(name)
    except (Exception, SystemExit):  # noqa: BLE001 - programs will see for themselves
        return False
    return True


def receive(server: socket.socket) -> tuple[bytes, list[int]]:
    """One request: its text and its files."""
    files = array.array("i")
    space = socket.CMSG_LEN(MOST_FILES * files.itemsize)
    text, extra, _, _ = server.recvmsg(MOST_BYTES, space)
    for level, kind, data in extra:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            files.frombytes(data[: len(data) - len(data) % files.itemsize])
    return text, list(files)


def serve(request: dict[str, Any], files: list[int], imported_names: set[str]) -> int:
    """The child's part: enters the sandbox, starts the program, and reports its end."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    ready, report, stdout, stderr, sandbox, *groups = files
    if not os.read(ready, 1):
        return 1  # the sandbox has failed, and has said why
    try:
        call("setns", sandbox, request["namespaces"])
        held, release = os.pipe()
        program = os.fork()
        if program == 0:
            os.close(release)
            os.read(held, 1)  # until it is in its control groups
            become(request, report, stdout, stderr)
            run(request, imported_names)
        for group in groups:
            os.write(group, str(program).encode())
        os.write(report, b"\0starting process %d\n" % program)
        os.close(release)
        _, status = os.waitpid(program, 0)
        code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)
        os.write(report, b"\0ended %d\n" % code)
    except OSError as error:
        os.write(report, f"\0entering the sandbox\n{error}\0ended 125\n".encode())
        return 1
    return 0


def become(request: dict[str, Any], report: int, stdout: int, stderr: int) -> None:
    """The program's process without any privilege, with its folder, its limits and its output."""
    os.setsid()
    for capability in range(NUMBER_OF_CAPABILITIES):
        LIBC.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)
    if request["user"] is not None:
        os.setgroups([])
        os.setresgid(request["user"], request["user"], request["user"])
        os.setresuid(request["user"], request["user"], request["user"])
    LIBC.prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    header, nothing = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION_3, 0), (ctypes.c_uint32 * 6)()
    call("syscall", SYS_CAPSET, header, nothing)
    call("prctl", PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    call("prctl", PR_SET_DUMPABLE, 1, 0, 0, 0)
    for name, value in request["limits"].items():
        resource.setrlimit(getattr(resource, name), (value, value))
    os.chdir(request["folder"])
    os.umask(0o022)
    nothing_to_read = os.open("/dev/null", os.O_RDONLY)
    for file, place in ((nothing_to_read, 0), (stdout, 1), (stderr, 2)):
        os.dup2(file, place)
    os.environ.clear()
    os.environ.update(request["environment"])
    if request["system_calls"]:
        refuse(bytes.fromhex(request["system_calls"]))
    os.write(report, b"\0started\n")
    os.closerange(3, resource.getrlimit(resource.RLIMIT_NOFILE)[0])


class Filter(ctypes.Structure):
    """struct sock_fprog of <linux/filter.h>"""

    _fields_ = [("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p)]


def refuse(instructions: bytes) -> None:
    """Puts a filter on the system calls of this process, for good."""
    call(
        "prctl",
        PR_SET_SECCOMP,
        SECCOMP_MODE_FILTER,
        ctypes.byref(Filter(len(instructions) // 8, instructions)),
    )


def run(request: dict[str, Any], imported_names: set[str]) -> NoReturn:
    """Runs the code as `python` would, and ends the process."""
    here = {name.partition(".")[0] for name in os.listdir(".")}
    if here & imported_names:  # files of the repository come before installed modules of the same name
        os.execv(request["python"], [request["python"], "-c", request["start"], request["code"]])
    random.seed()
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()
    if "tempfile" in sys.modules:
        vars(sys.modules["tempfile"])["tempdir"] = None
    sys.argv[:] = ["-c", request["code"]]
    program = types.ModuleType("__main__")
    vars(program)["__builtins__"] = __builtins__
    if sys.version_info < (3, 14):
        program.__annotations__ = {}
    sys.modules["__main__"] = program
    earlier = set(sys.modules)
    code = 0
    try:
        exec(request["start"], vars(program))
    except SystemExit as error:
        code = exit_code(error)
    except BaseException as error:  # noqa: BLE001 - as the interpreter does at its top
        here_and_on = error.__traceback__
        error = error.with_traceback(here_and_on.tb_next if here_and_on else None)
        sys.excepthook(type(error), error, error.__traceback__)
        code = 130 if isinstance(error, KeyboardInterrupt) else 1
    end(code, program, set(sys.modules) - earlier)


def exit_code(error: SystemExit) -> int:
    """What `python` makes of the argument of sys.exit."""
    if error.code is None or isinstance(error.code, int):
        return (error.code or 0) & 0xFF
    print(error.code, file=sys.stderr)
    return 1


def end(code: int, program: types.ModuleType, imported: set[str]) -> NoReturn:
    """What the interpreter does at its end, for what the program has made: threads are waited for, exit
    functions called, objects finalized, output written. It spares what the server has imported, which takes
    longer to take down than most programs to run.
    """
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    code = flush(code)
    for name in list(vars(program)):
        if name != "__builtins__":
            vars(program)[name] = None
    for name in imported:
        sys.modules.pop(name, None)
    gc.collect()
    os._exit(flush(code))


def flush(code: int) -> int:
    """Writes out what was printed; the exit code is 120 if that fails, as `python` has it."""
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None and not stream.closed:
                stream.flush()
        except (OSError, ValueError, AttributeError):
            code = 120
    return code


def call(name: str, *arguments: Any) -> None:
    """A function of the C library. Raises OSError."""
    if getattr(LIBC, name)(*arguments) < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


main()
