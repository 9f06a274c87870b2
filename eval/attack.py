"""Attacks this machine's sandbox with all that eval/sandbox/attacks.py holds, and says what got through.

python eval/attack.py
"""

import ctypes
import os
import secrets
import socket
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from eval.checkouts import content_hash
from eval.sandbox.attacks import ATTACKS, Attack
from eval.sandbox.bubblewrap import Bubblewrap
from eval.sandbox.interface import Limits, Outcome, Program, Sandbox
from mlbench_data.bad_input import BadInput
from mlbench_data.cli import run_script
from mlbench_data.files import write_json
from mlbench_data.progress import progress

LIMITS = Limits(seconds=3, memory=256 << 20, disk=32 << 20, output=1 << 20, processes=32, files=5_000)
PR_SET_DUMPABLE = 4


@dataclass(frozen=True)
class AttackConfig:
    """How the sandbox is attacked."""

    preload: list[str] = field(default_factory=lambda: ["numpy"])
    """As for eval/run.py: python attacks start from a fork. [] gives each a fresh interpreter."""
    workers: int = 2
    """How many attacks run at a time."""
    user: int | None = None
    """As root: the number of the user to be, such as 1234; it needs no account."""
    out: str | None = None
    """A JSON file for how each attack ended."""


def main(config: AttackConfig) -> int:
    """Attacks this machine's sandbox, and says what got through: exit code 1 if anything did."""
    if config.workers < 1:
        raise BadInput(f"--workers {config.workers}: must be at least 1")
    if config.user is not None and not 0 < config.user < 1 << 31:
        raise BadInput(f"--user {config.user}: not the number of an ordinary user; expected 1 or more")
    if config.user is not None:
        become(config.user)
    with tempfile.TemporaryDirectory() as folder:
        found = attack_all(Path(folder), config)
    if config.out is not None:
        write_json(config.out, found)
    for name, value in found["sandbox"].items():
        print(f"{name:16}{value}")
    for name in found["got_through"]:
        print(f"GOT THROUGH: {name}: {found['ends'][name]}; {found['said'][name]}")
    for what in ("left_running", "changed"):
        for name in found[what]:
            print(f"{what.replace('_', ' ').upper()}: {name}")
    if not found["goes_on"]:
        print("STOPPED: ordinary programs do not run any more")
    held = len(ATTACKS) - len(found["got_through"])
    print(f"{held} of {len(ATTACKS)} attacks held, as user {found['user']}")
    clean = not (found["got_through"] or found["left_running"] or found["changed"]) and found["goes_on"]
    return 0 if clean else 1


def become(user: int) -> None:
    """Gives up root for good. What python would import later may lie where only root can read."""
    if os.geteuid() != 0:
        raise BadInput(f"--user {user}: only root can become somebody else; leave it out")
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
            works(sandbox, Path(folder))
            sandbox.close()


def interpreter() -> Path:
    """An interpreter that this user can start. Raises BadInput if there is none."""
    for path in (Path(sys.executable), Path("/usr/bin/python3")):
        if os.access(path, os.X_OK):
            return path
    raise BadInput(f"{sys.executable}: this user cannot start it, and there is no /usr/bin/python3")


def attack_all(folder: Path, config: AttackConfig) -> dict[str, Any]:
    """Endings by the attacks' names, and what is different on the machine afterwards."""
    secret, repository = folder / "secret.txt", folder / "repository"
    secret.write_text("s3cret")
    repository.mkdir()
    (repository / "data.txt").write_text("original")
    mark = str(secrets.randbits(60))
    os.environ["SECRET_OF_THE_HARNESS"] = mark
    sandbox = Bubblewrap(config.preload)
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(socket.AF_UNIX) as abstract:
        abstract.bind(f"\0attack{mark}")
        abstract.listen()
        names = {"secret": secret, "mark": mark, "port": server.getsockname()[1], "abstract": f"attack{mark}"}
        works(sandbox, repository)  # starts the fork server
        before = state(folder)

        def run(attack: Attack, limits: Limits = LIMITS) -> list[tuple[Attack, Outcome]]:
            program = Program(attack.code_with(names), attack.kind, repository, ".", interpreter())
            return [(attack, sandbox.run(program, limits))]

        with ThreadPoolExecutor(config.workers) as pool:
            batches = progress(pool.map(run, ATTACKS), len(ATTACKS), "attacking")
            ended = [pair for batch in batches for pair in batch]
        for place, (attack, outcome) in enumerate(ended):
            if outcome.ending == "timed_out" and not attack.held("timed_out"):  # on a machine with much to do
                [ended[place]] = run(attack, replace(LIMITS, seconds=10 * LIMITS.seconds))
        after = state(folder)
        goes_on = works(sandbox, repository)
        sandbox.close()
    return {
        "user": os.getuid(),
        "sandbox": sandbox.describe(),
        "ends": {attack.name: ending(outcome) for attack, outcome in ended},
        "said": {attack.name: f"{outcome.detail} {outcome.stderr}"[-300:] for attack, outcome in ended},
        "got_through": [attack.name for attack, outcome in ended if not attack.held(ending(outcome))],
        "left_running": processes_with(mark),
        "changed": sorted(name for name in before if before[name] != after[name]),
        "goes_on": goes_on,
    }


def ending(outcome: Outcome) -> str:
    """An ending in a word or two."""
    return f"exited {outcome.exit_code}" if outcome.ending == "exited" else outcome.ending


def works(sandbox: Sandbox, repository: Path) -> bool:
    """Whether ordinary programs of both kinds end as they should."""
    programs = [
        Program("true", "bash", repository, ".", interpreter()),
        Program("import os; print(len(os.listdir('.')))", "python", repository, ".", interpreter()),
    ]
    return all(ending(sandbox.run(program, LIMITS)) == "exited 0" for program in programs)


def state(folder: Path) -> dict[str, Any]:
    """What no program may change."""
    return {
        "files": content_hash(folder),
        "shared memory": sorted(os.listdir("/dev/shm")),
        "mounts": len(Path("/proc/self/mountinfo").read_text().splitlines()),
        "name of the machine": socket.gethostname(),
        "priority": os.nice(0),
        "control groups": sorted(
            str(path) for path in Path("/sys/fs/cgroup").glob(f"**/mlbench-{os.getpid()}-*")
        ),
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
    run_script(AttackConfig, main)
