"""Control groups: limits of memory, processes and cores, kept by the kernel where this user may set them."""

import itertools
import os
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_SERIAL = itertools.count()
_NAME = "mlbench-{pid}-{serial}"
_PERIOD = 100_000
"""Microseconds over which the use of cores is counted; the kernel's own default."""


@dataclass(frozen=True)
class ControlGroups:
    """Where groups can be made: the parent folders for memory, processes and cores (one and the same in v2);
    None for cores where those cannot be limited.
    """

    version: int
    memory: Path
    processes: Path
    cpu: Path | None

    def make(self, memory: int, processes: int, cores: float) -> "ControlGroup":
        """A new empty group with these limits (bytes, tasks). Raises OSError."""
        name = _NAME.format(pid=os.getpid(), serial=next(_SERIAL))
        cpu = self.cpu / name if self.cpu else None
        group = ControlGroup(self.version, self.memory / name, self.processes / name, cpu)
        try:
            for folder in group.folders:
                folder.mkdir()
            group.limit(memory, processes, cores)
        except OSError:
            group.remove()
            raise
        return group


@dataclass(frozen=True)
class ControlGroup:
    """One program's group: counts its memory and stops it at its limits."""

    version: int
    memory: Path
    processes: Path
    cpu: Path | None
    interval: float = 0.2
    """Seconds between two looks; the kernel enforces in between."""

    @property
    def folders(self) -> list[Path]:
        """The group's folders, each once."""
        return list(dict.fromkeys(filter(None, (self.memory, self.processes, self.cpu))))

    @property
    def tasks(self) -> list[Path]:
        """The files that take the numbers of processes that join."""
        return [folder / "cgroup.procs" for folder in self.folders]

    def limit(self, memory: int, processes: int, cores: float) -> None:
        """Sets the limits. Raises OSError."""
        if self.version == 2:
            (self.memory / "memory.max").write_text(str(memory))
            swap, no_swap = self.memory / "memory.swap.max", 0
        else:
            (self.memory / "memory.limit_in_bytes").write_text(str(memory))
            swap, no_swap = self.memory / "memory.memsw.limit_in_bytes", memory
        if swap.exists():  # absent where the kernel does not account for swap
            swap.write_text(str(no_swap))
        (self.processes / "pids.max").write_text(str(processes))
        if self.cpu:
            microseconds = round(cores * _PERIOD)
            if self.version == 2:
                (self.cpu / "cpu.max").write_text(f"{microseconds} {_PERIOD}")
            else:
                (self.cpu / "cpu.cfs_period_us").write_text(str(_PERIOD))
                (self.cpu / "cpu.cfs_quota_us").write_text(str(microseconds))

    def enter(self, command: list[str]) -> list[str]:
        """The command that joins the group and then becomes `command`: no process is ever outside."""
        join = "".join(f'echo 0 > "${n}/cgroup.procs" && ' for n in range(1, len(self.folders) + 1))
        script = f'{join}shift {len(self.folders)} && exec "$@"'
        return ["/bin/sh", "-c", script, "sh", *map(str, self.folders), *command]

    def exceeded(self) -> bool:
        """Whether the kernel has killed for want of memory."""
        name = "memory.events" if self.version == 2 else "memory.oom_control"
        counts = dict(line.split() for line in (self.memory / name).read_text().splitlines())
        return int(counts.get("oom_kill", 0)) > 0

    def peak(self) -> int | None:
        """The most memory in use at one time, in bytes; None where the kernel does not keep it."""
        file = self.memory / ("memory.peak" if self.version == 2 else "memory.max_usage_in_bytes")
        return int(file.read_text()) if file.exists() else None

    def follow(self, pid: int) -> None:
        """Nothing: all that joins the group is counted."""

    def remove(self) -> None:
        """Removes the group, whose processes must all be dead."""
        for folder in self.folders:
            _remove(folder)


def find_control_groups() -> ControlGroups | None:
    """Groups below this process's own that it may set memory and process limits in, or None.

    In v2 that takes a delegated group whose controllers are enabled for its children.
    """
    for groups in filter(None, (_version_2(), _version_1())):
        _remove_abandoned(groups)
        try:
            groups.make(memory=1 << 30, processes=16, cores=1).remove()
        except OSError:
            continue
        return groups
    return None


def _version_1() -> ControlGroups | None:
    memory, processes = _own_folder("memory"), _own_folder("pids")
    cpu = _own_folder("cpu")
    return ControlGroups(1, memory, processes, cpu) if memory and processes else None


def _version_2() -> ControlGroups | None:
    folder = _own_folder("")
    if folder is None:
        return None
    enabled = (folder / "cgroup.subtree_control").read_text().split()
    cpu = folder if "cpu" in enabled else None
    return ControlGroups(2, folder, folder, cpu) if {"memory", "pids"} <= set(enabled) else None


def _own_folder(controller: str) -> Path | None:
    """The folder of this process's group under a v1 controller, or under v2 for the empty name."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
        mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    except OSError:
        return None
    own = {
        name: path for _, names, path in (line.split(":", 2) for line in lines) for name in names.split(",")
    }
    for mount in mounts:
        place, kind = mount.split(" - ")
        root, folder = place.split()[3:5]
        kind_name, _, options = kind.split(" ", 2)
        right = (
            kind_name == "cgroup" and controller in options.split(",")
            if controller
            else kind_name == "cgroup2"
        )
        if right and controller in own:
            return _existing(Path(folder) / os.path.relpath(own[controller], root))
    return None


def _existing(folder: Path) -> Path | None:
    return Path(os.path.normpath(folder)) if (folder / "cgroup.procs").exists() else None


def _remove_abandoned(groups: ControlGroups) -> None:
    """Removes the empty groups of harnesses that were killed; one in use may be another container's."""
    for parent in set(filter(None, (groups.memory, groups.processes, groups.cpu))):
        for folder in parent.glob(_NAME.format(pid="*", serial="*")):
            owner = folder.name.split("-")[1]
            if not Path("/proc", owner).exists():
                with suppress(OSError):
                    folder.rmdir()


def _remove(folder: Path) -> None:
    for _ in range(100):  # a group stays busy for a moment after its last process is reaped
        try:
            folder.rmdir()
        except FileNotFoundError:
            return
        except OSError:
            time.sleep(0.01)
        else:
            return
