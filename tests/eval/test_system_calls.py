"""The kernel refuses programs the system calls that open sandboxes, and no others."""

import errno
import os
import sys
from pathlib import Path

import pytest

from eval.sandbox.bubblewrap import Bubblewrap
from eval.sandbox.interface import Limits, Program
from eval.sandbox.system_calls import refused_numbers, system_call_filter

HERE = os.uname().machine
LIMITS = Limits(seconds=20, memory=256 << 20)


@pytest.fixture(scope="module", params=["fresh", "forked"])
def walls(request: pytest.FixtureRequest) -> Bubblewrap:
    return Bubblewrap(preload=[] if request.param == "fresh" else ["json"])


def said(walls: Bubblewrap, folder: Path, code: str) -> str:
    """What a python program prints in the sandbox; fails unless it exits with 0."""
    outcome = walls.run(Program(code, "python", folder, ".", Path(sys.executable)), LIMITS)
    assert outcome.exit_code == 0, outcome
    return outcome.stdout


def test_refused_calls_fail_with_eperm(walls: Bubblewrap, tmp_path: Path) -> None:
    code = f"""
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
for number in {refused_numbers(HERE)}:
    print(libc.syscall(number, 0, 0, 0, 0, 0, 0), ctypes.get_errno())
"""
    assert set(said(walls, tmp_path, code).splitlines()) == {f"-1 {errno.EPERM}"}


def test_no_new_namespace_by_clone(walls: Bubblewrap, tmp_path: Path) -> None:
    code = f"""
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
clone = {56 if HERE == "x86_64" else 220}
print(libc.syscall(clone, 0x10000000 | 17, 0, 0, 0, 0), ctypes.get_errno())
print(libc.syscall(435, 0, 0), ctypes.get_errno())
"""
    assert said(walls, tmp_path, code).splitlines() == [f"-1 {errno.EPERM}", f"-1 {errno.ENOSYS}"]


def test_processes_and_threads_still_start(walls: Bubblewrap, tmp_path: Path) -> None:
    code = """
import multiprocessing, subprocess, threading
thread = threading.Thread(target=print, args=("thread",), kwargs={"flush": True})
thread.start(); thread.join()
process = multiprocessing.Process(target=print, args=("process",))
process.start(); process.join()
subprocess.run(["echo", "program"])
"""
    assert sorted(said(walls, tmp_path, code).split()) == ["process", "program", "thread"]


def test_another_machine_has_no_filter() -> None:
    assert system_call_filter("riscv64") is None
    assert len(system_call_filter("aarch64") or b"") % 8 == 0
