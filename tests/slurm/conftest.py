"""A cluster for the session, a site that describes it, and two tiny models."""

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from slurm.toy_cluster import PROGRAMS, Cluster, program
from tests.helpers import RunScript, skip_or_fail, tiny_llama

Submit = Callable[..., str]

SITE = {
    "activate": f"export PATH={Path(sys.executable).parent}:$PATH OMP_NUM_THREADS=1\n",
    "sbatch": {"mem": "1900", "cpus-per-task": "2", "time": "30:00"},
    "seconds_to_save": "60",
}


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """Three nodes, for this session."""
    if lacking := [name for name in PROGRAMS if program(name) is None]:
        skip_or_fail(f"no {lacking[0]} (Debian: slurm-wlm, munge)")
    folder = Path(tempfile.mkdtemp(prefix="slurm-"))  # not below pytest's: a socket's path has to be short
    found = Cluster(folder)
    try:
        found.start()
        yield found
    finally:
        found.stop()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Two tiny random Llamas."""
    folder = tmp_path_factory.mktemp("sweep-models")
    return [str(tiny_llama(folder / f"tiny-{name}", seed)) for seed, name in enumerate("ab")]


@pytest.fixture(scope="session")
def submit(cluster: Cluster, run_script: RunScript) -> Submit:
    """Runs slurm/submit.py on the cluster, as `submit(CONFIG, "--status")`: what it printed."""

    def run(config: Path, *options: str) -> str:
        done = run_script("slurm/submit.py", "--config", config, *options, env=cluster.environment)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


def write_sweep(folder: Path, site: dict[str, Any] | None = None, **values: Any) -> Path:
    """A sweep's file and its site's, in a folder; the sweep's own folder is OUT in it."""
    (folder / "site.yaml").write_text(yaml.safe_dump({**SITE, **(site or {})}))
    sweep = {"out": str(folder / "out"), "site": str(folder / "site.yaml"), "split": "quarter", **values}
    (folder / "sweep.yaml").write_text(yaml.safe_dump(sweep))
    return folder / "sweep.yaml"


def is_root() -> bool:
    """Whether other users can be tried."""
    return os.geteuid() == 0
