"""Runs the attacks as a user of this machine and says as JSON how each ended and what it left behind.

python -m tests.eval.attack_run [--user UID] [--preload MODULE …]
"""

import argparse
import ctypes
import json
import os
import secrets
import socket
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from eval.execution import content_hash
from eval.sandbox.bubblewrap import Bubblewrap
from eval.sandbox.interface import Limits, Outcome, Program, Sandbox
from tests.eval.attacks import ATTACKS, Attack

LIMITS = Limits(seconds=3, memory=256 << 20, disk=32 << 20, output=1 << 20, processes=32, files=5_000)
PR_SET_DUMPABLE = 4


def main() -> None:
    """Runs all attacks and prints what became of them."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--user", type=int)
    parser.add_argument("--preload", nargs="*", default=[])
    parser.add_argument("--workers", type=int, default=2)
    settings = parser.parse_args()
    if settings.user is not None:
        become(settings.user)
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(run_attacks(Path(folder), settings.preload, settings.workers)))


def become(user: int) -> None:
    """Gives up root for good. What python would import later may lie where only root can read."""
    warm_up()
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
    ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)


def warm_up() -> None:
    """Runs a program each way once, so that all modules are imported."""
    with tempfile.TemporaryDirectory() as folder:
        for preload in ([], ["json"]):
            sandbox = Bubblewrap(preload)
            for kind in ("bash", "python"):
                sandbox.run(Program("exit()", kind, Path(folder), ".", Path(sys.executable)), LIMITS)
            sandbox.close()


def interpreter() -> Path:
    """An interpreter that this user can start."""
    return next(path for path in (Path(sys.executable), Path("/usr/bin/python3")) if os.access(path, os.X_OK))


def run_attacks(folder: Path, preload: Sequence[str], workers: int) -> dict[str, Any]:
    """Endings by the attacks' names, and what is different on the machine afterwards."""
    secret, repository = folder / "secret.txt", folder / "repository"
    secret.write_text("s3cret")
    repository.mkdir()
    (repository / "data.txt").write_text("original")
    mark = str(secrets.randbits(60))
    os.environ["SECRET_OF_THE_HARNESS"] = mark
    sandbox = Bubblewrap(preload)
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(socket.AF_UNIX) as abstract:
        abstract.bind(f"\0attack{mark}")
        abstract.listen()
        names = {"secret": secret, "mark": mark, "port": server.getsockname()[1], "abstract": f"attack{mark}"}
        works(sandbox, repository)  # starts the fork server
        before = state(folder)

        def run(attack: Attack) -> Outcome:
            program = Program(code_of(attack, names), attack.kind, repository, ".", interpreter())
            return sandbox.run(program, LIMITS)

        with ThreadPoolExecutor(workers) as pool:
            outcomes = dict(zip((attack.name for attack in ATTACKS), pool.map(run, ATTACKS), strict=True))
        after = state(folder)
        goes_on = works(sandbox, repository)
        sandbox.close()
    return {
        "user": os.getuid(),
        "sandbox": sandbox.describe(),
        "ends": {name: ending(outcome) for name, outcome in outcomes.items()},
        "said": {name: f"{outcome.detail} {outcome.stderr}"[-300:] for name, outcome in outcomes.items()},
        "left_running": processes_with(mark),
        "changed": sorted(name for name in before if before[name] != after[name]),
        "goes_on": goes_on,
    }


def code_of(attack: Attack, names: dict[str, Any]) -> str:
    """The attack's code with the names of this run."""
    code = attack.code
    for name, value in names.items():
        code = code.replace(f"{{{name}}}", str(value))
    return code


def ending(outcome: Outcome) -> str:
    """An ending in a word or two."""
    return f"exited {outcome.exit_code}" if outcome.ending == "exited" else outcome.ending


def works(sandbox: Sandbox, repository: Path) -> bool:
    """Whether ordinary programs of both kinds end as they should."""
    code = {"bash": "[ $(cat data.txt) = original ]", "python": "import os; print(len(os.listdir('.')))"}
    outcomes = [
        sandbox.run(Program(text, kind, repository, ".", interpreter()), LIMITS)  # type: ignore[arg-type]
        for kind, text in code.items()
    ]
    return all(ending(outcome) == "exited 0" for outcome in outcomes)


def state(folder: Path) -> dict[str, Any]:
    """What no program may change."""
    return {
        "files": content_hash(folder),
        "shared memory": sorted(os.listdir("/dev/shm")),
        "mounts": len(Path("/proc/self/mountinfo").read_text().splitlines()),
        "name": socket.gethostname(),
        "priority": os.nice(0),
        "groups": sum("mlbench-" in name for _, names, _ in os.walk("/sys/fs/cgroup") for name in names),
        "open files": len(os.listdir("/proc/self/fd")),
    }


def processes_with(mark: str) -> list[str]:
    """Command lines of the machine's processes that hold `mark`."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            text = (entry / "cmdline").read_bytes() if entry.name.isdigit() else b""
        except OSError:
            continue
        if mark.encode() in text:
            found.append(text.replace(b"\0", b" ").decode(errors="replace"))
    return found


if __name__ == "__main__":
    main()
