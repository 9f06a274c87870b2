"""Torch's allocator is set up before a GPU is used, and never over what the user has set."""

import os
import subprocess
import sys

import pytest

from mlbench_data.files import PROJECT_ROOT
from mlbench_data.gpu_memory import OLD_SETTINGS, SETTINGS, let_segments_grow

READ = """
import torch
from mlbench_data.bad_input import BadInput
from train import sft
try:
    sft.main(sft.TrainConfig(lora_rank=0))
except BadInput:
    print(torch._C._accelerator_getAllocatorSettings())
"""


def test_training_sets_what_torch_reads() -> None:
    rest = {name: value for name, value in os.environ.items() if name not in (SETTINGS, OLD_SETTINGS)}
    command = [sys.executable, "-c", READ]
    done = subprocess.run(command, cwd=PROJECT_ROOT, env=rest, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1:] == ["expandable_segments:True"], done.stderr


@pytest.mark.parametrize("name", [SETTINGS, OLD_SETTINGS])
def test_what_the_user_has_set_stays(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    other = {SETTINGS: OLD_SETTINGS, OLD_SETTINGS: SETTINGS}[name]
    monkeypatch.delenv(other, raising=False)
    monkeypatch.setenv(name, "max_split_size_mb:64")
    let_segments_grow()
    assert os.environ[name] == "max_split_size_mb:64"
    assert other not in os.environ
