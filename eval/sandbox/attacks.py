"""Programs that a model might write, or somebody who knows this harness: what each tries, how it must end.

A program that tries to break out exits with 0 only if it was held back. `{secret}` is a file of the host
that everybody may read, `{port}` and `{abstract}` are sockets that listen on it, `{mark}` is on the command
line of whatever tries to live on.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

HELD = ("exited 0",)
FAILED = ("exited 1",)
STOPPED = ("timed_out", "out_of_memory", "output_limit", "failed")
"""Endings of what floods the machine: whichever limit it meets first."""

_SYSCALL = """
import ctypes, errno, os
libc = ctypes.CDLL(None, use_errno=True)
def refused(number, *arguments):
    result = libc.syscall(number, *arguments)
    assert result == -1 and ctypes.get_errno() in (errno.EPERM, errno.ENOSYS, errno.EACCES), result
"""


_CALLS = """
refused(425, 8, ctypes.create_string_buffer(256))
refused(321, 0, ctypes.create_string_buffer(128), 128)
refused(248, b'user', b'a', b'b', 1, -3)
refused(323, 0)
"""


def _refused(modules: str, statement: str) -> str:
    """A program that ends well only if the system refuses the statement."""
    return f"import {modules}\ntry: {statement}\nexcept OSError: pass\nelse: raise SystemExit(1)"


@dataclass(frozen=True)
class Attack:
    """One program. `ends` are its possible endings: `exited CODE`, `failed` for other codes, or a limit."""

    name: str
    kind: Literal["bash", "python"]
    code: str
    ends: tuple[str, ...] = HELD

    def code_with(self, names: Mapping[str, object]) -> str:
        """The program, with the names of this machine's things."""
        code = self.code
        for name, value in names.items():
            code = code.replace(f"{{{name}}}", str(value))
        return code

    def held(self, end: str) -> bool:
        """Whether the attack was held, by how it ended."""
        failed = end.startswith("exited") and end != "exited 0"
        return end in self.ends or (failed and "failed" in self.ends)


ATTACKS = (
    # Using up the machine.
    Attack("fork bomb", "bash", "bomb() { bomb | bomb & }; bomb; sleep 60 # {mark}", STOPPED),
    Attack(
        "fork bomb in python",
        "python",
        "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass\n# {mark}",
        STOPPED,
    ),
    Attack(
        "chain of forks that is never where one looks",
        "python",
        "import os, time\nwhile True:\n    if os.fork(): os._exit(0)\n    time.sleep(0.001)",
        ("exited 0",),
    ),
    Attack("ten gigabytes", "python", "hold = []\nwhile True: hold.append(b'x' * (32 << 20))", STOPPED),
    Attack(
        "memory in children",
        "python",
        "import os, time\nfor _ in range(8):\n    if os.fork() == 0:\n"
        "        hold = b'x' * (60 << 20); time.sleep(60)\ntime.sleep(60)",
        STOPPED,
    ),
    Attack("files in memory", "bash", "! head -c 400M /dev/zero > /dev/shm/fill", HELD),
    Attack("full disk", "bash", "! head -c 400M /dev/zero > fill", HELD),
    Attack(
        "inode filler",
        "python",
        "number = 0\nwhile True:\n    number += 1\n    open(f'/tmp/{number}', 'w').close()",
        ("out_of_memory",),
    ),
    Attack("huge sparse file", "bash", "! truncate -s 100G sparse", HELD),
    Attack(
        "folders in folders",
        "python",
        "import os\nfor _ in range(3000):\n    os.mkdir('d'); os.chdir('d')",
        HELD,
    ),
    Attack(
        "all files open", "python", "held = []\nwhile True: held.append(open('/dev/null'))", ("exited 1",)
    ),
    Attack("flood of output", "bash", "yes {mark}", ("output_limit",)),
    Attack("flood of errors", "bash", "yes >&2", ("output_limit",)),
    Attack("one line of ten megabytes", "python", "print('x' * 10_000_000)", ("output_limit",)),
    Attack("endless loop", "python", "while True: pass", ("timed_out",)),
    Attack("endless reading", "bash", "cat /dev/zero > /dev/null", ("timed_out",)),
    Attack("sleep", "bash", "sleep 600 # {mark}", ("timed_out",)),
    Attack("stopping itself", "bash", "kill -STOP $$", ("timed_out",)),
    Attack(
        "zombies", "python", "import os\nfor _ in range(500):\n    if os.fork() == 0: os._exit(0)", FAILED
    ),
    Attack("huge argument list", "bash", "! /bin/true $(seq 1000000)", HELD),
    Attack("limits raised", "bash", "! ulimit -c unlimited; ! ulimit -f unlimited", HELD),
    # Outliving its end.
    Attack(
        "signals ignored", "bash", "trap '' TERM INT HUP QUIT; while :; do sleep 1 || :; done", ("timed_out",)
    ),
    Attack(
        "daemon", "bash", "(setsid bash -c 'setsid sleep 600.{mark} &' > /dev/null 2>&1 &); sleep 0.2", HELD
    ),
    Attack(
        "daemon without its environment", "bash", "(env -i setsid nohup sleep 600.{mark} &) ; sleep 0.2", HELD
    ),
    Attack(
        "subreaper",
        "python",
        "import ctypes, os, time\nctypes.CDLL(None).prctl(36, 1)\nif os.fork() == 0:\n    os.setsid()\n"
        "    os.execlp('sleep', 'sleep', '600.{mark}')\ntime.sleep(0.2)",
        HELD,
    ),
    Attack("holding the pipes", "bash", "(setsid sleep 600.{mark} &); exit 0", HELD),
    # Killing and tracing others.
    Attack("killing all", "bash", "kill -9 -1; exit 1", ("failed",)),
    Attack("killing its parents", "bash", "kill -9 1; kill -9 $PPID; exit 1", ("failed",)),
    Attack("killing itself", "bash", "kill -9 $$", ("exited 137",)),
    Attack("tracing process 1", "python", _SYSCALL + "refused(101, 16, 1, 0, 0)"),
    Attack(
        "memory of process 1",
        "python",
        _refused("sys", "open('/proc/1/mem', 'rb').read(1)"),
    ),
    Attack("looking for other processes", "bash", "[ $(ls -d /proc/[0-9]* | wc -l) -lt 10 ]"),
    # Reading what is not its own.
    Attack("password file", "bash", "! cat /etc/shadow"),
    Attack("a file of the host", "bash", "! cat {secret}"),
    Attack("a file of the host by process 1", "bash", "! cat /proc/1/root{secret}"),
    Attack(
        "a file of the host by its parent", "bash", "! cat /proc/$PPID/root{secret} /proc/$PPID/cwd{secret}"
    ),
    Attack("a file of the host by a link", "bash", "ln -s {secret} link; ! cat link"),
    Attack(
        "a file of the host by chroot",
        "python",
        _refused("os", "os.chroot('/')"),
    ),
    Attack("variables of the host", "bash", "! cat /proc/*/environ 2>/dev/null | grep -aq {mark}"),
    Attack("memory of the machine", "bash", "! head -c 1 /dev/mem; ! head -c 1 /dev/kmsg; ! dmesg"),
    Attack("other candidates", "bash", "[ $(ls /sandbox/work | wc -l) = 1 ]"),
    # Writing where it must not.
    Attack(
        "deleting everything",
        "bash",
        "rm -rf --no-preserve-root / 2>/dev/null || :; [ -x /usr/bin/env ]",
        (*HELD, "timed_out"),
    ),
    Attack("deleting where it stands", "bash", 'rm -rf -- "$PWD"/* "$PWD" || :; ! ls data.txt'),
    Attack(
        "its own code and its python",
        "bash",
        "! touch /answer/code; ! touch /answer/bin/python; ! rm /answer/code",
    ),
    Attack("the original repository", "bash", "! touch /source/new; ! rm -rf /source/*"),
    Attack("system files", "bash", "! touch /usr/bin/new; ! touch /etc/new; ! touch /lib/new; ! touch /new"),
    Attack(
        "race of links",
        "bash",
        "for n in {1..200}; do ln -sfn {secret} race; echo owned > race || :; rm race; echo me > race; done",
    ),
    Attack("kernel settings", "bash", "! echo c > /proc/sysrq-trigger; ! echo x > /proc/sys/kernel/hostname"),
    Attack("control groups", "bash", "! mkdir /sys/fs/cgroup/new; ! mkdir /sys/fs/cgroup/memory/new"),
    Attack(
        "inherited descriptors",
        "bash",
        r"for n in {3..250}; do printf '\0running the prefix\n\0ended 0\n' >&$n; done 2>/dev/null; exit 3",
        ("failed",),
    ),
    Attack("core dump", "bash", "ulimit -c unlimited || :; kill -SEGV $$", ("exited 139",)),
    # More rights.
    Attack(
        "becoming root",
        "python",
        "import os\ntry: os.setuid(0)\nexcept OSError: pass\nassert os.getuid() != 0 or os.geteuid() != 0",
    ),
    Attack(
        "a program that is root's", "bash", "cp /bin/bash own; chmod u+s own; ./own -p -c '[ $(id -u) != 0 ]'"
    ),
    Attack("su", "bash", "! su -c true < /dev/null"),
    Attack("a device", "bash", "! mknod device b 8 0"),
    Attack("a mount", "bash", "mkdir m; ! mount -t tmpfs none m; ! mount --bind /usr m; ! umount /proc"),
    Attack("a namespace of its own", "bash", "! unshare -Ur true; ! unshare -m true"),
    Attack("system calls of a bash program", "bash", f"python - <<'E'\n{_SYSCALL}{_CALLS}\nE"),
    Attack("io_uring", "python", _SYSCALL + "refused(425, 8, ctypes.create_string_buffer(256))"),
    Attack("bpf", "python", _SYSCALL + "refused(321, 0, ctypes.create_string_buffer(128), 128)"),
    Attack(
        "performance events",
        "python",
        _SYSCALL + "refused(298, ctypes.create_string_buffer(128), 0, -1, -1, 0)",
    ),
    Attack("keys of the kernel", "python", _SYSCALL + "refused(248, b'user', b'a', b'b', 1, -3)"),
    Attack("page faults", "python", _SYSCALL + "refused(323, 0)"),
    Attack(
        "the clock",
        "python",
        _refused("time", "time.clock_settime(time.CLOCK_REALTIME, 0)"),
    ),
    Attack("priority", "python", _refused("os", "os.nice(-5)")),
    Attack(
        "the name of the machine",
        "python",
        _refused("socket", "socket.sethostname('owned')"),
    ),
    # The network.
    Attack(
        "a port of the host",
        "python",
        _refused("socket", "socket.create_connection(('127.0.0.1', {port}), 2)"),
    ),
    Attack(
        "an abstract socket of the host",
        "python",
        _refused("socket", "socket.socket(socket.AF_UNIX).connect('\\0{abstract}')"),
    ),
    Attack(
        "a raw socket",
        "python",
        _refused("socket", "socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)"),
    ),
    Attack(
        "the world",
        "python",
        _refused("socket", "socket.create_connection(('192.0.2.1', 80), 2)"),
    ),
    # The harness itself.
    Attack(
        "keys pressed on its terminal",
        "python",
        _refused("fcntl, termios", "fcntl.ioctl(0, termios.TIOCSTI, b'x')"),
    ),
    Attack(
        "binary output",
        "python",
        "import os; os.write(1, bytes(range(256)) * 4); os.write(2, b'\\xff\\xfe\\x00' * 9)",
    ),
    Attack("odd letters", "python", "print('\\u202e right to left \\x1b[31m red \\x07')"),
    Attack("waiting for input", "bash", "cat; read -r answer || :"),
    Attack(
        "words of the sandbox", "bash", "echo 'bwrap: cannot start a sandbox' >&2; exit 125", ("exited 125",)
    ),
    Attack(
        "spoiling what the next one is forked from",
        "python",
        "import builtins, os, sys\nfor name in list(sys.modules):\n"
        "    if name not in ('sys', 'builtins', 'os'): sys.modules[name] = None\n"
        "builtins.print = None\nos.listdir = None",
    ),
    Attack(
        "the fork server's process",
        "python",
        "import os, signal\nfor pid in {os.getppid(), 1, 2, 3} - {0, os.getpid()}:\n"
        "    try: os.kill(pid, signal.SIGSTOP)\n    except OSError: pass",
        (*HELD, "timed_out"),
    ),
)
