"""Limits where no control group can be made: rlimits, and looking at a process and all its descendants."""

import os
import resource
from dataclasses import dataclass, field

import psutil

from eval.sandbox.interface import Limits

_ADDRESS_SPACE_FACTOR = 4
"""Address space for each byte of memory: threads and allocators reserve far more than they ever touch."""


@dataclass
class ProcessTree:
    """Measures the resident memory of a process and its descendants."""

    pid: int
    memory: int
    interval: float = 0.05
    """Seconds between two looks."""
    _others: list[int] = field(default_factory=list, init=False)
    _peak: int | None = field(default=None, init=False)

    def exceeded(self) -> bool:
        """Looks once; whether the tree holds more than its memory, pages that it shares counted once."""
        tree = self._processes()
        used = sum(filter(None, (_resident(process) for process in tree)))
        if used > self.memory:
            used = sum(filter(None, (_proportional(process) for process in tree)))
        self._peak = max(used, self._peak or 0) or None
        return used > self.memory

    def peak(self) -> int | None:
        """The most that was seen at one look, in bytes."""
        return self._peak

    def follow(self, pid: int) -> None:
        """Measures another process with its descendants too."""
        self._others.append(pid)

    def _processes(self) -> list[psutil.Process]:
        return [process for pid in (self.pid, *self._others) for process in _tree(pid)]


def _tree(pid: int) -> list[psutil.Process]:
    try:
        root = psutil.Process(pid)
        return [root, *root.children(recursive=True)]
    except psutil.Error:
        return []


def rlimits(limits: Limits, already_running: int) -> dict[str, int]:
    """Values for bash's `ulimit`: address space (-v, KiB) and tasks of the user (-u).

    `already_running` tasks of the same user count against RLIMIT_NPROC without being the program's.
    """
    address_space = _at_most(resource.RLIMIT_AS, limits.memory * _ADDRESS_SPACE_FACTOR)
    tasks = _at_most(resource.RLIMIT_NPROC, limits.processes + already_running)
    return {"-v": address_space >> 10, "-u": tasks}


def tasks_of_this_user() -> int:
    """Processes and threads of the calling user, which RLIMIT_NPROC counts."""
    count = 0
    for process in psutil.process_iter():
        try:
            if process.uids().real == os.getuid():
                count += process.num_threads()
        except psutil.Error:
            continue
    return count


def _at_most(limit: int, wanted: int) -> int:
    hard = resource.getrlimit(limit)[1]
    return wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)


def _resident(process: psutil.Process) -> int | None:
    try:
        return int(process.memory_info().rss)
    except psutil.Error:
        return None


def _proportional(process: psutil.Process) -> int | None:
    try:
        return int(process.memory_full_info().pss)
    except psutil.AccessDenied:
        return _resident(process)
    except psutil.Error:
        return None
