"""A small sweep, as root and as an ordinary user; and what Slurm itself refuses."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from mlbench_data.files import PROJECT_ROOT
from mlbench_data.sources import default_benchmark
from slurm.toy_cluster import Cluster
from tests.helpers import RunScript, skip_or_fail
from tests.slurm.conftest import Submit, is_root, write_sweep
from tests.slurm.test_sweeps import EVAL, GENERATE, RECIPE, drain, wait_for

NOBODY = 65534
REACHABLE = """
set -e
project=$1 interpreter=$2 place=$3; shift 3
mount --bind "$project" "$place/project"
if [[ $interpreter == /root/* ]]; then
  mount --bind "$interpreter" "$place/interpreter"
  mount -t tmpfs -o mode=755 tmpfs /root
  mkdir -p "$interpreter"
  mount --bind "$place/interpreter" "$interpreter"
fi
cd "$place/project"
exec "$@"
"""
"""Checkout and interpreter where everybody can go, seen by the command's own processes only."""


@pytest.mark.slow
def test_a_small_sweep_runs(cluster: Cluster, submit: Submit, models: list[str], tmp_path: Path) -> None:
    """Its jobs are the user's own, and see the GPUs that Slurm gives them."""
    site = {"stages": {"generate": {"gres": "gpu:1"}}}
    options = {"generate": GENERATE, "eval": EVAL}
    config = write_sweep(
        tmp_path, site, models=models[:1], trained_on=["raw"], shards=2, train_config=RECIPE, **options
    )
    submit(config)
    drain(cluster)
    assert "1 of 1 cells done; report done" in submit(config, "--status")


def test_a_small_sweep_runs_as_an_ordinary_user(models: list[str]) -> None:
    """The same test by another user, whose cluster it is; the checkout may lie where only root can go."""
    if not is_root():
        skip_or_fail("only root can become another user")
    default_benchmark()  # the other user cannot write into the cache
    place = Path(tempfile.mkdtemp(prefix="ordinary-"))
    project, own = place / "project", place / "own"
    for folder in (project, own, place / "interpreter"):
        folder.mkdir()
    shutil.copytree(models[0], own / "tiny-a")
    for path in [place, own, *own.rglob("*")]:
        os.chown(path, NOBODY, NOBODY)
    python = Path(sys.executable)
    if python.is_relative_to(PROJECT_ROOT):
        python = project / python.relative_to(PROJECT_ROOT)
    user = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")
    settings = (f"HOME={own}", f"TMPDIR={own}", f"PYTHONPATH={project}", "PYTHONDONTWRITEBYTECODE=1")
    tests = ("-m", "pytest", "-q", "-p", "no:cacheprovider", f"--basetemp={own / 'pytest'}")
    command: list[str | Path] = [
        "unshare",
        "--mount",
        "bash",
        "-c",
        REACHABLE,
        "bash",
        PROJECT_ROOT,
        sys.base_prefix,
        place,
    ]
    command += [*user, "env", *settings, python, *tests, "tests/slurm/test_users.py::test_a_small_sweep_runs"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, stdin=subprocess.DEVNULL)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
        assert "1 passed" in done.stdout
    finally:
        shutil.rmtree(place, ignore_errors=True)


def test_what_is_in_the_queue_is_seen_whatever_the_environment_says(
    cluster: Cluster, models: list[str], tmp_path: Path, run_script: RunScript
) -> None:
    """A second submission of the same would compute everything twice, side by side."""
    site = {"sbatch": {"mem": "900", "cpus-per-task": "1", "begin": "now+1hour"}}
    config = write_sweep(
        tmp_path, site, models=models[:1], trained_on=["raw"], shards=16, train_config=RECIPE
    )
    strange = {"SQUEUE_PARTITION": "other", "SLURM_ARRAY_TASK_ID": "7", "SLURM_BITSTR_LEN": "8"}
    environment = {**cluster.environment, **strange}
    first = run_script("slurm/submit.py", "--config", config, env=environment, check=True)
    assert "5 jobs submitted" in first.stdout
    again = run_script("slurm/submit.py", "--config", config, env=environment, check=True)
    assert "nothing to submit" in again.stdout
    status = run_script("slurm/submit.py", "--config", config, "--status", env=environment, check=True)
    assert "waiting 0/16" in status.stdout
    printed = run_script(
        "slurm/submit.py", "--config", config, "--cancel", env=environment, check=True
    ).stdout
    assert printed == "5 jobs cancelled\n"
    wait_for("empty queue", lambda: not cluster.say("squeue", "--noheader"))


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ({"partition": "nowhere"}, "invalid partition specified"),
        ({"mem": "900G"}, "Memory specification can not be satisfied"),
        ({"no-such-option": "1"}, "unrecognized option"),
    ],
)
def test_what_slurm_refuses_is_shown_in_its_own_words(
    option: dict[str, str],
    said: str,
    cluster: Cluster,
    models: list[str],
    tmp_path: Path,
    run_script: RunScript,
) -> None:
    site = {"sbatch": {"mem": "900", "cpus-per-task": "1", **option}}
    config = write_sweep(tmp_path, site, models=models[:1], trained_on=["raw"], shards=2, train_config=RECIPE)
    done = run_script("slurm/submit.py", "--config", config, env=cluster.environment)
    assert done.returncode == 1
    [line] = done.stderr.splitlines()
    assert said in line
    assert "sbatch --parsable" in line, "and what was asked of it"


def test_without_a_cluster_one_line_says_so(models: list[str], tmp_path: Path, run_script: RunScript) -> None:
    config = write_sweep(tmp_path, models=models[:1], trained_on=["raw"], shards=2, train_config=RECIPE)
    done = run_script("slurm/submit.py", "--config", config, "--cancel", env={"PATH": str(tmp_path)})
    assert done.returncode == 1
    assert done.stderr == "error: there is no squeue here; run this on a machine of the cluster\n"
