"""Fixtures that every part shares: reference data, scripts run as a user runs them, and a tiny model."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.hub_cache import environment, write_hub_cache
from mlbench_data.files import PROJECT_ROOT
from mlbench_data.models import Model, resolve_model
from tests.helpers import RunScript, skip_or_fail, tiny_llama

SHARED_DATA = PROJECT_ROOT.parent / "shared" / "data"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Real rows, READMEs and tokenizers that are not part of the project."""
    if not SHARED_DATA.is_dir():
        skip_or_fail("no reference data beside the checkout")
    return SHARED_DATA


@pytest.fixture(scope="session")
def run_script() -> RunScript:
    """Runs `python ARGUMENTS` in the project's folder, as the README says."""

    def run(
        *arguments: Any, check: bool = False, env: dict[str, str] | None = None, timeout: float = 300
    ) -> "subprocess.CompletedProcess[str]":
        done = subprocess.run(
            [sys.executable, *map(str, arguments)],
            cwd=PROJECT_ROOT,
            env={**os.environ, **(env or {})},
            capture_output=True,
            text=True,
            timeout=timeout,
            stdin=subprocess.DEVNULL,
        )
        if check:
            assert done.returncode == 0, done.stdout + done.stderr
        return done

    return run


@pytest.fixture(scope="session")
def tokenizer_model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    """A random two-layer Llama with the embedded model's tokenizer: where weights do not matter."""
    return resolve_model(str(tiny_llama(tmp_path_factory.mktemp("models") / "tiny-llama", seed=0)))


@pytest.fixture(scope="session")
def hub_files(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The hub's cache with the paper's three models, and tiny random weights."""
    return write_hub_cache(tmp_path_factory.mktemp("hub"), shared_data / "tokenizers")


@pytest.fixture
def hub(hub_files: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """That cache, in which this process and those it starts find the models by their names, offline."""
    for name, value in environment(hub_files).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(hub_files))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    return hub_files
