"""What a model-written program cannot do in a container: docker and podman for real, apptainer's command."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from eval.checkouts import find_checkouts
from eval.environments import Environment
from eval.execution import Runner
from eval.sandbox import apptainer, container
from eval.sandbox.apptainer import Apptainer
from eval.sandbox.container import Container
from eval.sandbox.interface import Limits, Outcome, Program
from eval.sandbox.unsandboxed import Unsandboxed
from mlbench_data.bad_input import BadInput
from mlbench_data.rows import Row
from tests.eval.programs import DAEMON, PYTHON, bash, exited, marked, wait_for
from tests.helpers import RunScript, error_line, skip_or_fail

LIMITS = Limits(seconds=20, memory=128 << 20, disk=16 << 20, output=1 << 20, processes=24)
IMAGE, WITHOUT_BASH = "mlbench-test:1", "mlbench-test-without-bash:1"
PROGRAMS = ["bash", "cat", "chmod", "cp", "env", "grep", "head", "kill", "ls", "mkdir"]
PROGRAMS += ["python3", "setsid", "sh", "sleep", "touch"]
LEFT_OUT = re.compile(r"/(__pycache__|test|idlelib|lib2to3|ensurepip|dist-packages|config-[^/]*|[^/]*\.a)$")

Run = Callable[..., Outcome]


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of an image with bash, a few programs and a python: this machine's."""
    search = "/usr/bin:/bin"
    missing = [name for name in PROGRAMS if shutil.which(name, path=search) is None]
    if missing:
        skip_or_fail(f"no {', '.join(missing)} in {search}")
    programs = {name: str(shutil.which(name, path=search)) for name in PROGRAMS}
    question = "import sysconfig; print(sysconfig.get_path('stdlib'))"
    library = subprocess.check_output([programs["python3"], "-I", "-c", question], text=True).strip()
    needed = subprocess.run(
        ["ldd", *programs.values(), *Path(library, "lib-dynload").glob("*.so")],
        capture_output=True,
        text=True,
    ).stdout
    path = tmp_path_factory.mktemp("image") / "image.tar"
    with tarfile.open(path, "w") as tar:
        for name in ("bin", "lib", "lib64"):
            link = tarfile.TarInfo(name)
            link.type, link.linkname = tarfile.SYMTYPE, f"usr/{name}"
            tar.addfile(link)
        for name, program in programs.items():
            tar.add(os.path.realpath(program), f"usr/bin/{name}")
        for file in sorted(set(re.findall(r"(/\S*\.so\S*) \(0x", needed))):
            tar.add(os.path.realpath(file), file if file.startswith("/usr/") else f"usr{file}")
        tar.add(library, library, filter=lambda entry: None if LEFT_OUT.search(f"/{entry.name}") else entry)
    return path


@contextmanager
def docker(folder: Path, patch: pytest.MonkeyPatch) -> Iterator[None]:
    """A daemon of its own."""
    socket_path = f"unix://{folder}/socket"
    patch.setenv("DOCKER_HOST", socket_path)
    command = ["dockerd", "--iptables=false", "--ip6tables=false", "--bridge=none", "--host", socket_path]
    command += ["--data-root", f"{folder}/data", "--exec-root", f"{folder}/run", "--pidfile", f"{folder}/pid"]
    with open(folder / "log", "wb") as log:
        daemon = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        answers = ["docker", "version"]
        if not wait_for(lambda: subprocess.run(answers, capture_output=True).returncode == 0, 60):
            pytest.fail(f"dockerd does not start: {(folder / 'log').read_text()[-2000:]}")
        yield
    finally:
        daemon.terminate()
        daemon.wait(60)


@contextmanager
def podman(folder: Path, patch: pytest.MonkeyPatch) -> Iterator[None]:
    """Settings of its own; it needs no daemon. Neither systemd nor crun are taken for granted."""
    (folder / "storage.conf").write_text(
        f'[storage]\ndriver = "overlay"\ngraphroot = "{folder}/root"\nrunroot = "{folder}/run"\n'
    )
    (folder / "containers.conf").write_text(
        "[containers]\ndefault_ulimits = []\n"
        '[engine]\nruntime = "runc"\ncgroup_manager = "cgroupfs"\nevents_logger = "none"\n'
    )
    patch.setenv("CONTAINERS_STORAGE_CONF", str(folder / "storage.conf"))
    patch.setenv("CONTAINERS_CONF", str(folder / "containers.conf"))
    try:
        yield
    finally:
        subprocess.run(["podman", "rm", "--all", "--force"], capture_output=True, timeout=60)
        subprocess.run(["umount", folder / "root" / "overlay"], capture_output=True, timeout=60)


@pytest.fixture(scope="module", params=["docker", "podman"])
def engine(
    request: pytest.FixtureRequest, archive: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """An engine that works, in a folder of its own, with the image."""
    name: str = request.param
    needed = ["docker", "dockerd"] if name == "docker" else ["podman", "runc"]
    missing = [program for program in needed if shutil.which(program) is None]
    if missing or os.geteuid() != 0:
        skip_or_fail(f"no {', '.join(missing) or 'root'} for {name} (Debian: docker.io, podman, runc)")
    folder = tmp_path_factory.mktemp(name)
    start = docker if name == "docker" else podman
    with pytest.MonkeyPatch.context() as patch, start(folder, patch):
        subprocess.run([name, "import", archive, IMAGE], check=True, capture_output=True)
        empty = folder / "empty.tar"
        with tarfile.open(empty, "w") as tar:
            tar.addfile(tarfile.TarInfo("file"))
        subprocess.run([name, "import", empty, WITHOUT_BASH], check=True, capture_output=True)
        yield name


@pytest.fixture(scope="module")
def walls(engine: str) -> Container:
    """The sandbox; its construction already proves that it works."""
    return Container(engine, IMAGE)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A small repository with a module, a data file and a folder."""
    folder = tmp_path / "the, repo"
    (folder / "inner").mkdir(parents=True)
    (folder / "data.txt").write_text("original\n")
    (folder / "inner" / "helper.py").write_text("ANSWER = 42\n")
    return folder


@pytest.fixture
def run(walls: Container, repository: Path) -> Run:
    """Runs a program in the repository's root."""
    python = walls.find_python()
    assert python is not None

    def run(code: str, limits: Limits = LIMITS, **changes: Any) -> Outcome:
        return walls.run(replace(bash(repository, code, python=python), **changes), limits)

    return run


def left(engine: str) -> list[str]:
    """The containers there are, running or not."""
    listed = subprocess.check_output([engine, "ps", "--all", "--format", "{{.Names}}"], text=True)
    return listed.split()


def running(engine: str) -> list[str]:
    """The containers that run."""
    return subprocess.check_output([engine, "ps", "--format", "{{.Names}}"], text=True).split()


# What a verdict rests on.


def test_success_failure_and_both_streams_are_told(run: Run) -> None:
    outcome = run(r"echo out; printf 'err \xff' >&2")
    assert exited(outcome, 0)
    assert (outcome.stdout, outcome.stderr) == ("out\n", "err \ufffd")
    assert exited(run("exit 7"), 7)
    assert exited(run("raise SystemExit(3)", kind="python"), 3)
    assert exited(run("import os; os.kill(os.getpid(), 11)", kind="python"), 139)
    assert exited(run("false\necho done"), 1)


def test_a_program_finds_its_things(run: Run, repository: Path) -> None:
    code = "import os, sys, helper\nassert helper.ANSWER == 42\nassert sys.stdin.read() == ''\n"
    code += "assert os.environ['DATA_DIR'] == 'a, \"b\"\\nc' and os.environ['MODEL'] == 'm'\n"
    code += "assert set(os.listdir('/proc/self/fd')) <= set('0123'), os.listdir('/proc/self/fd')\n"
    code += f"assert os.path.basename(os.path.dirname(os.getcwd())) == {repository.name!r}\n"
    code += "open('new', 'w'), open(os.path.expanduser('~/new'), 'w'), open('/tmp/new', 'w')"
    variables = {"DATA_DIR": 'a, "b"\nc'}
    prefix = "export MODEL=m\necho noise"
    outcome = run(code, kind="python", path="./inner/", environment=variables, prefix=prefix)
    assert exited(outcome, 0)
    assert outcome.stdout == ""


def test_python_means_the_images_interpreter(walls: Container, run: Run) -> None:
    code = 'for p in python python3; do $p -c "import sys; print(sys.executable)"; done'
    assert run(code).stdout == f"{walls.find_python()}\n" * 2


def test_interpreters_are_looked_for_in_the_image(walls: Container) -> None:
    assert walls.find_python() == Path("/usr/bin/python3")
    assert walls.find_python("/usr/bin/python3", IMAGE) == Path("/usr/bin/python3")
    assert walls.find_python("env") == Path("/usr/bin/env")
    assert walls.find_python(str(PYTHON)) is None
    with pytest.raises(BadInput, match="image other: not one of those"):
        walls.find_python(None, "other")


def test_an_endless_loop_times_out(run: Run) -> None:
    outcome = run("trap '' TERM INT HUP; while :; do :; done", Limits(seconds=0.7))
    assert (outcome.ending, outcome.exit_code) == ("timed_out", None)
    assert 0.7 <= outcome.seconds < 5


def test_a_program_may_be_interrupted_by_its_own_signals(run: Run) -> None:
    assert exited(run("sleep 20 & kill -INT $!; wait $! || exit 5"), 5)
    assert exited(run("kill -INT $$; sleep 20"), 130)


@pytest.mark.parametrize("file", ["/dev/stdout", "/answer/report", "/answer/memory"])
def test_a_flood_is_stopped(run: Run, engine: str, file: str) -> None:
    begin = time.monotonic()
    outcome = run(f"while :; do printf '%060000d' 1; done >{file}", replace(LIMITS, seconds=1))
    assert outcome.ending == ("out_of_memory" if file.endswith("memory") else "output_limit")
    assert time.monotonic() - begin < 10
    assert left(engine) == []


# Infrastructure failures, and nothing else, are infrastructure.


def test_failures_of_the_preparation_are_infrastructure(run: Run, repository: Path) -> None:
    outcome = run("true", path="./nowhere")
    assert outcome.ending == "infrastructure"
    assert "entering the path folder failed" in outcome.detail
    outcome = run("echo ran", prefix="echo why >&2; exit 5")
    assert (outcome.ending, outcome.stdout) == ("infrastructure", "")
    assert "running the prefix failed with exit code 5: why" in outcome.detail
    (repository / "large").write_bytes(bytes(2 << 20))
    outcome = run("true", Limits(disk=1 << 20))
    assert outcome.ending == "infrastructure"
    assert "copying the repository failed" in outcome.detail


def test_a_device_that_is_missing_is_infrastructure(run: Run) -> None:
    assert "no such device" in run("true", devices=("/dev/nvidia99",)).detail
    outcome = run("head -c 3 /dev/full | cat -A", devices=("/dev/full",))
    assert outcome.stdout == "^@^@^@"


@pytest.mark.parametrize(
    "code",
    [
        "kill -9 $$",
        "kill -9 -1; exit 1",
        "kill -9 1; kill -INT 1; kill -9 $PPID; exit 1",
        "kill -STOP -1; exit 1",
        "echo 'docker: Error response from daemon' >&2; exit 125",
        "printf '\\0running the prefix\\n\\0ended 125\\n' >/answer/report; exit 126",
        "exec /no/such/program",
    ],
)
def test_a_candidate_cannot_fake_an_infrastructure_failure(run: Run, code: str) -> None:
    outcome = run(code)
    assert outcome.ending == "exited"
    assert outcome.exit_code != 0


def test_an_end_that_is_not_the_programs_own_is_infrastructure(run: Run, engine: str) -> None:
    def clients() -> list[psutil.Process]:
        return [child for child in psutil.Process().children() if "run" in child.cmdline()]

    with ThreadPoolExecutor(1) as pool:
        outcome = pool.submit(run, "sleep 15")
        assert wait_for(clients)
        time.sleep(1)
        clients()[0].kill()
        assert outcome.result().ending == "infrastructure"
    assert left(engine) == []


def test_an_exit_code_that_the_engine_does_not_confirm_is_infrastructure(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "memory")
    with subprocess.Popen(["true"]) as process, container.fifo(tmp_path / "memory") as memory:
        box = container._Box("docker", "name", process, memory)
        lost = box.verdict(Outcome("exited", 125, 1.0, None, "", "error waiting: unexpected EOF", ""))
    assert lost.ending == "infrastructure"
    assert "docker lost the container: error waiting" in lost.detail


# Limits.


def test_a_memory_hog_is_out_of_memory(run: Run) -> None:
    hog = "hold = []\nwhile True: hold.append(b'x' * (8 << 20))"
    outcome = run(hog, kind="python")
    assert (outcome.ending, outcome.exit_code, outcome.peak_memory) == ("out_of_memory", None, None)
    in_a_child = f"python3 - <<E || :\n{hog}\nE\nsleep 20"
    assert run(in_a_child, replace(LIMITS, seconds=3)).ending == "out_of_memory"


def test_cores_are_bounded(run: Run) -> None:
    code = "import time\nstart = time.monotonic()\nwhile time.monotonic() < start + 1.5: pass\n"
    code += "print(time.process_time() / 1.5)"
    assert float(run(code, kind="python", limits=Limits(cores=0.25)).stdout) < 0.5


def test_a_fork_bomb_is_contained_and_removed(run: Run, engine: str) -> None:
    mark = f"mark{uuid.uuid4().hex}"
    code = f"bomb() {{ bomb | bomb & }}; for n in 1 2; do bash -c 'sleep 50; : {mark}' & done; bomb; sleep 60"
    assert run(code, replace(LIMITS, seconds=1)).ending in ("timed_out", "exited", "output_limit")
    assert marked(mark) == []
    assert left(engine) == []
    code = "import os, time\ncount = 0\ntry:\n    while count < 500:\n"
    code += "        if os.fork() == 0: time.sleep(60)\n        count += 1\n"
    code += "except BlockingIOError: print(count)\n"
    assert 15 <= int(run(code, kind="python").stdout) <= LIMITS.processes


def test_the_disk_is_bounded(run: Run) -> None:
    code = "for f in . /tmp $HOME /dev/shm; do\n  for n in 1 2 3 4; do\n"
    code += "    head -c 6000000 /dev/zero >$f/fill$n || { echo $f; break; }\n  done\ndone"
    outcome = run(code)
    assert outcome.stdout.split() == [".", "/tmp", "/sandbox/home", "/dev/shm"]
    assert outcome.stderr.count("No space left") == 4


def test_nothing_else_can_be_written_to(run: Run) -> None:
    code = "for f in / /usr /etc /dev /run /var/tmp /answer /source /sys /proc; do\n"
    assert run(code + "  if touch $f/new 2>/dev/null; then echo $f; fi\ndone").stdout == ""


# What is out of reach.


def test_there_is_no_network(run: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        code = "import socket\nprint([name for _, name in socket.if_nameindex()], flush=True)\n"
        code += f"socket.create_connection(('127.0.0.1', {server.getsockname()[1]}), 2)"
        outcome = run(code, kind="python")
    assert exited(outcome, 1)
    assert outcome.stdout == "['lo']\n"
    outcome = run("import socket; socket.create_connection(('192.0.2.1', 80), 3)", kind="python")
    assert "unreachable" in outcome.stderr


def test_files_of_the_host_are_not_readable(run: Run, repository: Path, tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("s3cret")
    (repository / "link").symlink_to(tmp_path / "secret.txt")
    code = f"for f in '{tmp_path}/secret.txt' link /etc/shadow /proc/1/root/etc/shadow; do\n"
    assert run(code + "  if cat $f; then echo $f; fi\ndone").stdout == ""


def test_programs_have_no_privileges(run: Run) -> None:
    code = "grep -E '^(Uid|Gid|Groups|Cap...|NoNewPrivs|Seccomp):' /proc/self/status"
    lines = dict(line.split(":") for line in run(code).stdout.splitlines())
    assert set(lines["Uid"].split()) | set(lines["Gid"].split()) | set(lines["Groups"].split()) == {"65534"}
    assert {int(lines[name], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {0}
    assert (lines["NoNewPrivs"].split(), lines["Seccomp"].split()) == (["1"], ["2"])


def test_variables_of_the_caller_are_not_visible(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("API_TOKEN", "s3cret")
    monkeypatch.setenv("https_proxy", "http://s3cret@localhost")
    assert "s3cret" not in run("env; cat /proc/1/environ /proc/$PPID/environ || :").stdout


def test_other_processes_are_not_visible(run: Run) -> None:
    numbers = [int(line.rpartition("/")[2]) for line in run("ls -d /proc/[0-9]*").stdout.split()]
    assert max(numbers) < 100


# What is left behind: nothing.


def test_the_original_repository_is_not_changed(run: Run, repository: Path) -> None:
    assert exited(run("echo changed >data.txt; chmod 700 inner; touch new; chmod 000 ."), 0)
    assert (repository / "data.txt").read_text() == "original\n"
    assert sorted(path.name for path in repository.iterdir()) == ["data.txt", "inner"]


@pytest.mark.parametrize("rest", ["exit 0", "sleep 60", "kill -9 $$"])
def test_a_daemon_is_gone_when_run_returns(
    run: Run, engine: str, rest: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    mark = str(uuid.uuid4().int)
    outcome = run(f"{DAEMON.format(mark=mark)}; {rest}", replace(LIMITS, seconds=1))
    assert outcome.ending == ("timed_out" if rest == "sleep 60" else "exited")
    assert (marked(mark), left(engine), list(scratch.iterdir())) == ([], [], [])


@pytest.mark.parametrize("whole_group", [False, True])
def test_a_killed_harness_leaves_nothing_running(
    engine: str, repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole_group: bool
) -> None:
    """Killed alone, or with the engine's command that it has started, as batch systems do."""
    mark = str(uuid.uuid4().int)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    code = f"{DAEMON.format(mark=mark)}; kill -STOP 1 || :; sleep 62.{mark}"
    harness = tmp_path / "harness.py"  # not on its command line, which would have the mark
    harness.write_text(
        "from pathlib import Path\n"
        "from eval.sandbox.container import Container\n"
        "from eval.sandbox.interface import Limits, Program\n"
        f"program = Program({code!r}, 'bash', Path({str(repository)!r}), '.', Path('/usr/bin/python3'))\n"
        f"Container({engine!r}, {IMAGE!r}).run(program, Limits(seconds=50))\n"
    )
    path = os.pathsep.join(filter(None, sys.path))
    environment = os.environ | {"PYTHONPATH": path, "TMPDIR": str(tmp_path)}
    with psutil.Popen([PYTHON, harness], env=environment) as process:
        try:
            assert wait_for(lambda: marked(f"62.{mark}") and marked(f"60.{mark}")), "it has not started"
            started = process.children()
            assert len(started) == 1
        finally:
            process.send_signal(signal.SIGKILL)
        for child in started if whole_group else ():
            child.kill()
    assert wait_for(lambda: marked(mark) == [], 8)
    assert wait_for(lambda: running(engine) == [])
    Container(engine, IMAGE)
    assert left(engine) == []
    assert list(tmp_path.glob("mlbench-*")) == []


def test_threads_may_share_a_sandbox(run: Run) -> None:
    with ThreadPoolExecutor(3) as pool:
        outcomes = list(pool.map(lambda n: run(f"exit {n}"), range(6)))
    assert [outcome.exit_code for outcome in outcomes] == list(range(6))


# How it is asked for.


def test_images_that_do_not_work_are_bad_input(engine: str) -> None:
    with pytest.raises(BadInput, match=f"missing:2.*{engine} pull missing:2"):
        Container(engine, "missing:2")
    with pytest.raises(BadInput, match=f"image {WITHOUT_BASH} with bash"):
        Container(engine, WITHOUT_BASH)
    with pytest.raises(BadInput, match="pull missing:2"):
        Container(engine, IMAGE, ["missing:2"])


def test_no_engine_is_bad_input(engine: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nothing")
    if engine == "docker":
        with pytest.raises(BadInput, match=r"docker.*install and start docker"):
            Container(engine, IMAGE)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BadInput, match=f"install and start {engine}"):
        Container(engine, IMAGE)


def test_the_description_says_what_runs_programs(walls: Container, engine: str) -> None:
    told = walls.describe()
    assert (told["sandbox"], told["image"], told["network"]) == (engine, IMAGE, "none")
    assert re.fullmatch(r"\d+\.\d+.*", told[engine])
    assert re.fullmatch(rf"{IMAGE} (sha256:)?[0-9a-f]{{64}}", told["images"])


def test_an_evaluation_runs_in_containers(
    engine: str, run_script: RunScript, tmp_path: Path, repositories: Path, rows_file: Path
) -> None:
    options = ["--gold", "--rows", rows_file, "--repositories", repositories, "--sandbox", engine]
    run_script("eval/run.py", *options, "--image", IMAGE, "--out", tmp_path / "out", check=True)
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["pass_at_k"]["1"]["first_k"] == 1
    assert summary["sandbox"]["sandbox"] == engine
    environments = tmp_path / "environments.yaml"
    environments.write_text(f"tiny: {{image: '{IMAGE}'}}\n")
    options += ["--environments", environments, "--out", tmp_path / "own"]
    run_script("eval/run.py", *options, check=True)
    summary = json.loads((tmp_path / "own" / "summary.json").read_text())
    assert summary["pass_at_k"]["1"]["first_k"] == 1
    assert summary["sandbox"]["image"] == "each repository's own"


@pytest.mark.parametrize(
    ("options", "wrong"),
    [
        (["--image", "x"], "bubblewrap has no images"),
        (["--environments", "environments.yaml"], "tiny: image is some:1, and bubblewrap has no images"),
        (["--sandbox", "docker"], "needs an image: give --image NAME, or image: NAME of tiny"),
        (["--sandbox", "podman", "--image", "x", "--allow_unsandboxed"], "only containers have the image"),
        (["--sandbox", "docker", "--environments", "environments.yaml", "--python", "p"], "give --image too"),
        (["--sandbox", "apptainer", "--image", "no.sif"], "apptainer"),
    ],
)
def test_what_does_not_go_together_is_refused(
    run_script: RunScript, tmp_path: Path, repositories: Path, rows_file: Path, options: list[str], wrong: str
) -> None:
    (tmp_path / "environments.yaml").write_text("tiny: {image: 'some:1'}\n")
    given = [tmp_path / option if option.endswith(".yaml") else option for option in options]
    done = run_script(
        *("eval/run.py", "--gold", "--rows", rows_file, "--repositories", repositories, *given),
        *("--out", tmp_path / "out"),
        env={"DOCKER_HOST": f"unix://{tmp_path}/nothing"},
    )
    assert wrong in error_line(done)


def test_an_image_without_a_container_is_not_ignored(rows: list[Row], repositories: Path) -> None:
    checkouts = find_checkouts(repositories, rows, any_commit=False)
    environments = {"tiny": Environment(image="some:1")}
    runner = Runner(Unsandboxed(), Limits(), repositories, checkouts, PYTHON, 1, environments)
    outcome = runner.run(rows[0], "true")
    assert outcome.ending == "infrastructure"
    assert "only containers have images" in outcome.detail


# Apptainer.


def test_the_command_for_apptainer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(apptainer, "rlimits", lambda limits, running: {"-v": 1, "-u": 2})
    repository = tmp_path / 'a, "b"'
    program = Program(
        "true",
        "bash",
        repository,
        ".",
        Path("/opt/bin/python"),
        "",
        {"A": "b, c"},
        "x.sif",
        ("/dev/nvidia0",),
    )
    limits = Limits(disk=1 << 20)
    given = apptainer.command("/usr/bin/apptainer", Path("/images/x.sif"), program, limits, Path("/t/answer"))
    path = "/answer/bin:/opt/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    kept = container.inside_command(program, {"-v": 1, "-u": 2}, limits)
    assert given == [
        *("/usr/bin/apptainer", "exec", "--containall", "--cleanenv", "--no-home", "--no-init", "--no-privs"),
        *("--drop-caps", "all", "--pid", "--ipc", "--net", "--network", "none", "--pwd", "/"),
        *("--workdir", "/t", "--scratch", "/sandbox"),
        *("--mount", f'type=bind,"source={tmp_path}/a, ""b""",destination=/source,ro'),
        *("--mount", 'type=bind,"source=/t/answer",destination=/answer,ro'),
        *("--nv", "/images/x.sif", "env", f"PATH={path}", "HOME=/sandbox/home", "TMPDIR=/tmp"),
        *("USER=candidate", "LANG=C.UTF-8", "OMP_NUM_THREADS=1", "A=b, c"),
        *("bash", "-c", container.KEEPER, "keeper", "/sandbox/home", f"/sandbox/work/{repository.name}"),
        *kept[5:],
    ]
    assert "-c 0 -f 1024 -n 1024 -v 1 -u 2" in kept


def test_apptainer_for_real(repository: Path) -> None:
    if shutil.which("apptainer") is None and shutil.which("singularity") is None:
        pytest.skip("no apptainer: not in Debian, so only its command is tested")
    image = os.environ.get("MLBENCH_TEST_SIF")
    if image is None or os.geteuid() == 0:
        pytest.skip("needs an ordinary user, and MLBENCH_TEST_SIF with an image that has bash and python")
    box = Apptainer(image)
    python = box.find_python()
    assert python is not None
    assert exited(box.run(bash(repository, "touch new; exit 7", python=python), LIMITS), 7)
    assert sorted(path.name for path in repository.iterdir()) == ["data.txt", "inner"]
