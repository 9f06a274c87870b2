"""One job on a real Slurm: the signals it hears, when it goes back into the queue, the reason it leaves."""

import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mlbench_data.files import PROJECT_ROOT
from slurm.fingerprint import fingerprint
from slurm.toy_cluster import Cluster
from tests.helpers import skip_or_fail
from tests.slurm.conftest import is_root
from tests.slurm.test_sweeps import release, wait_for

WAITS = """
import os, signal, sys, time
heard = []
signal.signal(signal.SIGUSR1, lambda number, frame: heard.append(number))
if os.environ.get("SLURM_RESTART_COUNT"):
    print("continued", flush=True)
    sys.exit(0)
print("begun", flush=True)
while not heard:
    time.sleep(0.05)
"""


class Trial:
    """A job of the stage generate whose command is a python program."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster = cluster
        self.folder = folder
        self.log = folder / "log"

    def submit(self, code: str, *options: str, **settings: str) -> str:
        values = {
            "PROJECT": str(PROJECT_ROOT),
            "CODE": fingerprint(),
            "ACTIVATE": f"export PATH={Path(sys.executable).parent}:$PATH",
            "WRAP": "",
            "MOST_REQUEUES": "5",
            "STAGE": "generate",
            "FAILED": str(self.folder / "failed"),
            "LOGS": str(self.folder / "logs"),
            **settings,
        }
        lines = [
            "SHARD=${SLURM_ARRAY_TASK_ID:-0}",
            *(f"{name}={shlex.quote(text)}" for name, text in values.items()),
        ]
        (self.folder / "job.sh").write_text(
            "\n".join([*lines, f'command=(-c {shlex.quote(code)} "$SHARD")', ""])
        )
        script = str(PROJECT_ROOT / "slurm" / "generate.sbatch")
        fixed = ["--parsable", "--requeue", "--open-mode=append", f"--output={self.log}", "--mem=500"]
        return self.cluster.say("sbatch", *fixed, *options, script, str(self.folder / "job.sh")).strip()

    def state(self, number: str) -> str:
        return self.cluster.say(
            "squeue", "--noheader", "--states=all", f"--job={number}", "--format=%T"
        ).strip()

    def ended(self, number: str) -> str:
        """The state in which it ends."""
        return wait_for(
            "end", lambda: (state := self.state(number)) not in ("PENDING", "RUNNING", "COMPLETING") and state
        )

    def printed(self, text: str) -> bool:
        return self.log.exists() and text in self.log.read_text()

    def notes(self) -> dict[str, str]:
        folder = self.folder / "failed"
        return {path.name: path.read_text().strip() for path in folder.iterdir()} if folder.exists() else {}


@pytest.fixture
def trial(cluster: Cluster, tmp_path: Path) -> Trial:
    return Trial(cluster, tmp_path)


def test_the_elements_own_number_is_the_shard_also_of_a_subset_with_a_step(trial: Trial) -> None:
    number = trial.submit("import sys; print('shard', sys.argv[1], flush=True)", "--array=1-5:2")
    wait_for("end", lambda: set(trial.state(number).split()) == {"COMPLETED"})
    assert sorted(trial.log.read_text().split("\n")) == ["", "shard 1", "shard 3", "shard 5"]
    assert trial.notes() == {}


def test_the_gpus_that_a_stage_asks_for_are_given(trial: Trial) -> None:
    """Training starts as many processes as SLURM_GPUS_ON_NODE says."""
    code = "import os; print(os.environ['SLURM_GPUS_ON_NODE'], os.environ['CUDA_VISIBLE_DEVICES'])"
    assert trial.ended(trial.submit(code, "--gres=gpu:2")) == "COMPLETED"
    number, devices = trial.log.read_text().split()
    assert number == "2"
    assert len(devices.split(",")) == 2


def test_the_reason_of_a_failure_is_its_error_line_and_the_place_of_its_log(trial: Trial) -> None:
    code = "import sys; print('error: no such model', 'Traceback', sep=chr(10), file=sys.stderr); sys.exit(2)"
    number = trial.submit(code, "--array=3")
    assert trial.ended(number) == "FAILED"
    assert trial.notes() == {
        "generate-3": f"no such model (log: {trial.folder}/logs/generate-{number}_3.log)"
    }


def test_a_killed_worker_is_named_as_killed(trial: Trial) -> None:
    assert trial.ended(trial.submit("import os; os.kill(os.getpid(), 9)")) == "FAILED"
    assert trial.notes()["generate"].startswith(
        "ended by signal 9; if that was for memory, give the stage more"
    )


def test_a_job_that_is_asked_to_stop_goes_back_and_continues(trial: Trial) -> None:
    number = trial.submit(WAITS + "sys.exit(138)")
    wait_for("begin", lambda: trial.printed("begun"))
    trial.cluster.say("scancel", "--signal=USR1", "--batch", number)
    wait_for(
        "place in the queue", lambda: "BeginTime" in trial.cluster.say("squeue", "--noheader", "--format=%r")
    )
    release(trial.cluster)
    assert trial.ended(number) == "COMPLETED"
    assert trial.printed("continued")
    assert trial.notes() == {}


def test_a_job_that_ends_in_time_after_it_was_asked_to_stop_is_done(trial: Trial) -> None:
    number = trial.submit(WAITS + "time.sleep(1)")
    wait_for("begin", lambda: trial.printed("begun"))
    trial.cluster.say("scancel", "--signal=USR1", "--batch", number)
    assert trial.ended(number) == "COMPLETED"
    assert not trial.printed("continued")


def test_a_cancelled_job_is_not_put_back(trial: Trial) -> None:
    number = trial.submit(WAITS)
    wait_for("begin", lambda: trial.printed("begun"))
    trial.cluster.say("scancel", number)
    assert trial.ended(number) == "CANCELLED"
    time.sleep(2)
    assert trial.state(number) == "CANCELLED"
    assert not trial.printed("continued")
    assert trial.notes() == {}, "to be cancelled is no failure of its own"


def test_a_job_that_never_comes_further_gives_up(trial: Trial) -> None:
    number = trial.submit(WAITS + "sys.exit(138)", MOST_REQUEUES="0")
    wait_for("begin", lambda: trial.printed("begun"))
    trial.cluster.say("scancel", "--signal=USR1", "--batch", number)
    assert trial.ended(number) == "FAILED"
    assert "has been put back 0 times" in trial.notes()["generate"]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"CODE": "0123456789abcdef"}, "has changed since this job was submitted"),
        ({"ACTIVATE": "module() { return 1; }; module load nothing"}, "could not begin: "),
        ({"ACTIVATE": "cd /nowhere"}, "/nowhere: No such file or directory"),
        ({"WRAP": "nowhere exec"}, "nowhere"),
    ],
)
def test_what_cannot_begin_says_why(trial: Trial, settings: dict[str, str], said: str) -> None:
    number = trial.submit("print('ran')", **settings)
    assert trial.ended(number) == "FAILED"
    assert said in trial.notes()["generate"]
    assert not trial.printed("ran")


def test_a_disk_that_is_full_from_the_start_is_said_by_slurm_itself(trial: Trial) -> None:
    number = trial.submit("print('ran')", FAILED="/proc/nowhere/failed")
    assert trial.ended(number) == "FAILED"
    comment = trial.cluster.say(
        "squeue", "--noheader", "--states=all", f"--job={number}", "--format=%k"
    ).strip()
    assert comment == "nothing can be written to /proc/nowhere/failed"


def test_the_reason_is_whole_every_time(trial: Trial) -> None:
    """The log is written by another process, which may be later than the command."""
    code = "import sys; sys.stderr.write('x' * 20000 + chr(10)); sys.exit('error: at the very end')"
    number = trial.submit(code, "--array=0-19")
    wait_for("end", lambda: set(trial.state(number).split()) == {"FAILED"})
    assert len(trial.notes()) == 20
    assert all(note.startswith("at the very end (log: ") for note in trial.notes().values())


def test_a_full_disk_leaves_the_reason_in_the_room_that_was_kept(trial: Trial, tmp_path: Path) -> None:
    if not is_root():
        skip_or_fail("only root can make a small disk")
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", small], check=True)
    try:
        fill = f"""
import sys
try:
    with open({str(small / "rest")!r}, "wb") as file:
        while True:
            file.write(bytes(4096)); file.flush()
except OSError as error:
    sys.exit(f"error: {{error.strerror}}; make room")
"""
        assert trial.ended(trial.submit(fill, FAILED=str(small / "failed"))) == "FAILED"
        with pytest.raises(OSError, match="No space left"):
            (small / "another").write_text("x" * 5000)
        assert "No space left on device; make room" in (small / "failed" / "generate").read_text()
    finally:
        subprocess.run(["umount", small], check=True)
