"""Programs that are forked from a warm interpreter end as those of a fresh one do."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from eval.checkouts import find_checkouts
from eval.execution import Runner
from eval.runner import MINI_REPOSITORIES
from eval.sandbox.bubblewrap import Bubblewrap
from eval.sandbox.fork_server import SOURCE
from eval.sandbox.interface import Limits, Outcome, Program
from mlbench_data.rows import PYTHON
from mlbench_data.sources import default_benchmark

_ADDRESS = re.compile(r"0x[0-9a-f]+")
_SOURCE = SOURCE.rpartition("main()")[0]
CAN_IMPORT = f"{_SOURCE}\nprint(can_import('strange_module'))"
LIMITS = Limits(seconds=30, memory=512 << 20, disk=32 << 20, output=1 << 20, processes=32)


@pytest.fixture(scope="module")
def fresh() -> Bubblewrap:
    return Bubblewrap()


@pytest.fixture(scope="module", params=["control groups", "rlimits"])
def forked(request: pytest.FixtureRequest) -> Iterator[Bubblewrap]:
    """With control groups, if this user may make them, and without."""
    made = Bubblewrap(preload=["numpy", "no_such_module"])
    if request.param == "rlimits":
        made._control_groups = None
    yield made
    made.close()


def run(sandbox: Bubblewrap, folder: Path, code: str) -> Outcome:
    return sandbox.run(Program(code, "python", folder, "./", Path(sys.executable)), LIMITS)


def servers() -> list[psutil.Process]:
    """The fork servers of this process."""
    return [child for child in psutil.Process().children() if "no_such_module" in " ".join(child.cmdline())]


@pytest.mark.parametrize(
    "code",
    [
        "print('said'); import sys; print('wrong', file=sys.stderr)",
        "numpy.zeros(3)",
        "import sys; sys.exit()",
        "import sys; sys.exit(3)",
        "import sys; sys.exit(-1)",
        "import sys; sys.exit('reason')",
        "exit(4)",
        "raise KeyError('x')",
        "def f():\n    return 1 / 0\nf()",
        "if True print(1)",
        "import os; print('lost'); os._exit(5)",
        "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)",
        "import os; os.abort()",
        "import atexit; atexit.register(print, 'at the end'); print('first')",
        "import threading; threading.Timer(0.2, lambda: print('later')).start(); print('now')",
        "class A:\n    def __del__(self): print('gone')\na = A()",
        "import sys; print(__name__, __file__, sys.argv, sys.path[0], sys.executable)",
        "print(sorted(name for name in globals() if name != '__builtins__'))",
        "import os; print(os.getcwd(), os.listdir('.'), sorted(os.environ.items()))",
        "import os; print(os.getresuid()[0] == 0, os.getgroups(), os.umask(0))",
        "from resource import *; print(getrlimit(RLIMIT_FSIZE), getrlimit(RLIMIT_CORE))",
        "print([line for line in open('/proc/self/status') if line[:3] in ('Cap', 'NoN')])",
        "import os; print(sorted(os.listdir('/proc/self/fd')))",
        "input()",
        "import sys; sys.stdout.close()",
        "import helper; print(helper.ANSWER)",
        "import numpy, sys; print(numpy.zeros(3).sum(), 'torch' in sys.modules)",
        "import tempfile; print(tempfile.gettempdir())",
        "import multiprocessing as m\np = m.Process(target=print, args=('child',)); p.start(); p.join()",
        "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import helper; print(helper)'])",
        "import torch.no_such_part",
        "import warnings; warnings.warn('careful')",
        "f = open('out.txt', 'w'); f.write('x'); import atexit, os; print(os.path.getsize('out.txt'))",
        "import atexit; atexit.register(lambda: 1 / 0)",
        "import threading; threading.Thread(target=lambda: 1 / 0).start()",
        "import helper\nclass A:\n    def __del__(self): print('gone')\nhelper.a = A()",
        "import sys; sys.exit((1, 2))",
        "raise KeyboardInterrupt",
        "import logging; logging.error('logged'); print(__doc__, __spec__, __package__)",
    ],
)
def test_it_ends_and_says_what_a_fresh_interpreter_does(
    fresh: Bubblewrap, forked: Bubblewrap, tmp_path: Path, code: str
) -> None:
    folder = tmp_path / "repo"
    folder.mkdir()
    (folder / "helper.py").write_text("ANSWER = 42\n")
    expected, found = run(fresh, folder, code), run(forked, folder, code)
    assert (found.ending, found.exit_code) == (expected.ending, expected.exit_code), found
    assert found.stdout == expected.stdout
    assert _ADDRESS.sub("", found.stderr) == _ADDRESS.sub("", expected.stderr)


def test_minibenchs_answers_end_as_with_a_fresh_interpreter(fresh: Bubblewrap, forked: Bubblewrap) -> None:
    rows = [row for row in default_benchmark().rows("full") if row.type == PYTHON]
    assert rows
    hashes = find_checkouts(MINI_REPOSITORIES, rows, any_commit=False)
    for row in rows:
        ends = []
        for sandbox in (fresh, forked):
            runner = Runner(sandbox, Limits(), MINI_REPOSITORIES, hashes, Path(sys.executable), 1)
            outcome = runner.run(row, row.output)
            ends.append((outcome.ending, outcome.exit_code, outcome.stdout))
        assert ends[0] == ends[1]
        assert ends[0][:2] == ("exited", 0)


def test_output_that_cannot_be_written_fails(forked: Bubblewrap, tmp_path: Path) -> None:
    code = "import sys; sys.stdout = open('/dev/full', 'w'); print('x')"
    assert run(forked, tmp_path, code).exit_code == 120


@pytest.mark.parametrize("module", ["numpy", "random", "typing", "json", "socket"])
def test_files_of_the_repository_come_before_what_was_imported(
    forked: Bubblewrap, tmp_path: Path, module: str
) -> None:
    """Libraries, and what the fork server itself has imported."""
    (tmp_path / f"{module}.py").write_text("answer = 'of the repository'\n")
    code = f"import {module}; print({module}.answer)"
    assert run(forked, tmp_path, code).stdout == "of the repository\n"


def test_random_numbers_are_not_the_same_in_all_programs(forked: Bubblewrap, tmp_path: Path) -> None:
    code = "import random, numpy; print(random.random(), numpy.random.rand())"
    one, other = (run(forked, tmp_path, code).stdout.split() for _ in range(2))
    assert one[0] != other[0]
    assert one[1] != other[1]


def test_memory_is_bounded(forked: Bubblewrap, tmp_path: Path) -> None:
    """By the kernel, or by looks at the fork, which is no descendant of its sandbox's."""
    code = "import numpy, time; a = numpy.ones(100_000_000); time.sleep(5)"
    assert run(forked, tmp_path, code).ending == "out_of_memory"


def test_a_program_cannot_reach_the_server(forked: Bubblewrap, tmp_path: Path) -> None:
    """No descriptor of it, not its process, and not what it forks from: the next program is as before."""
    code = "import os, numpy; numpy.zeros = None; print(os.getppid()); os.kill(os.getppid(), 9)"
    run(forked, tmp_path, code)
    assert run(forked, tmp_path, "import numpy; print(numpy.zeros(2).sum())").stdout == "0.0\n"


def test_a_server_that_was_killed_is_started_again(forked: Bubblewrap, tmp_path: Path) -> None:
    assert run(forked, tmp_path, "print(1)").exit_code == 0
    for server in servers():
        server.kill()
        server.wait()
    assert run(forked, tmp_path, "print(1)").exit_code == 0


def test_a_server_that_stands_still_is_no_failure_of_the_program(
    forked: Bubblewrap, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eval.sandbox.process.PREPARATION_SECONDS", 1.0)
    run(forked, tmp_path, "print(1)")
    [server] = servers()
    os.kill(server.pid, signal.SIGSTOP)
    try:
        assert run(forked, tmp_path, "print(1)").ending == "infrastructure"
    finally:
        os.kill(server.pid, signal.SIGCONT)


def test_a_program_that_kills_what_keeps_its_sandbox_has_failed(forked: Bubblewrap, tmp_path: Path) -> None:
    """At its very start, when its end has not been told yet: never a failure of the infrastructure."""
    code = "import os\nfor pid in map(int, filter(str.isdigit, os.listdir('/proc'))):\n"
    code += (
        "    if pid not in (1, os.getpid()):\n        try: os.kill(pid, 9)\n        except OSError: pass\n"
    )
    for _ in range(20):
        assert run(forked, tmp_path, code + "os._exit(0)").ending == "exited"


@pytest.mark.parametrize("text", ["raise SystemExit(0)", "1 + 'a'", "import sys; sys.exit('no')"])
def test_a_module_that_cannot_be_imported_is_left_to_the_programs(tmp_path: Path, text: str) -> None:
    (tmp_path / "strange_module.py").write_text(text)
    done = subprocess.run(
        [sys.executable, "-c", CAN_IMPORT], env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True
    )
    assert done.stdout == "False\n", done.stderr
