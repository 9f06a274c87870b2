"""A pretended GPU: what a card would be told is made, compiled and followed; nothing is launched."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.cpp_extension import include_paths

from mlbench_data.files import PROJECT_ROOT
from tests.helpers import need_compiler

OnPretendedGpu = Callable[..., dict[str, Any]]


@pytest.fixture(scope="session")
def pretended_device(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`device.cpp` as a library to preload."""
    need_compiler()
    library = tmp_path_factory.mktemp("device") / "device.so"
    torch_libraries = Path(torch.__file__).parent / "lib"
    options = ["-shared", "-fPIC", "-std=c++20", *(f"-I{folder}" for folder in include_paths())]
    linked = [f"-L{torch_libraries}", "-lc10", "-ltorch_cpu", f"-Wl,-rpath,{torch_libraries}"]
    source = Path(__file__).with_name("device.cpp")
    subprocess.run(["g++", *options, str(source), "-o", str(library), *linked], check=True)
    return library


@pytest.fixture(scope="session")
def on_pretended_gpu(pretended_device: Path, tmp_path_factory: pytest.TempPathFactory) -> OnPretendedGpu:
    """Runs a script of the project with a pretended GPU of a compute capability: `on_pretended_gpu(
    "tests/gpu/step.py", "--layers", 2, capability="8.6")` gives the object in the last line that it prints.
    """
    caches = tmp_path_factory.mktemp("compiled")

    def run(script: str, *arguments: Any, capability: str = "8.6") -> dict[str, Any]:
        command = [sys.executable, "-m", "tests.gpu.pretended", capability, script, *map(str, arguments)]
        done = subprocess.run(
            command,
            cwd=PROJECT_ROOT,
            env={
                **os.environ,
                "PYTHONPATH": str(PROJECT_ROOT),
                "LD_PRELOAD": str(pretended_device),
                "TORCHINDUCTOR_CACHE_DIR": str(caches / "inductor"),
                "TRITON_CACHE_DIR": str(caches / "triton"),
                "OMP_NUM_THREADS": "1",
            },
            capture_output=True,
            text=True,
            timeout=800,
            stdin=subprocess.DEVNULL,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return found

    return run
