"""What tests share beside fixtures."""

import json
import os
import shutil
import subprocess
import sysconfig
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from mlbench_data.models import resolve_model

UNDER_CI = os.environ.get("CI") == "true"

RunScript = Callable[..., "subprocess.CompletedProcess[str]"]


def skip_or_fail(reason: str) -> None:
    """An optional test is skipped where something is missing, but never under CI."""
    if UNDER_CI:
        pytest.fail(f"{reason}: must be there under CI")
    pytest.skip(reason)


def need_compiler() -> None:
    """For what DeepSpeed and torch.compile build on first use."""
    if shutil.which("g++") is None or not Path(sysconfig.get_path("include"), "Python.h").is_file():
        skip_or_fail("no g++ with Python.h (Debian: g++, python3-dev)")


def tiny_llama(folder: Path, seed: int) -> Path:
    """Writes a tiny random Llama with grouped key heads, as the real models have."""
    import torch
    from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

    tokenizer = AutoTokenizer.from_pretrained(resolve_model("smollm2-135m").location)
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,  # the smallest that the CPU build of vLLM takes
        max_position_embeddings=8192,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        tie_word_embeddings=True,
        initializer_range=0.1,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The objects of a jsonl file."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def error_line(done: "subprocess.CompletedProcess[str]") -> str:
    """The one line that a script printed about bad input; fails unless it was one line and exit code 2."""
    assert done.returncode == 2, (done.returncode, done.stdout, done.stderr)
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("error: "), done.stderr
    return lines[0]


def kill_when(command: list[str], ready: Callable[[], bool], cwd: Path, seconds: float = 200) -> None:
    """Starts a command and kills it with SIGKILL as soon as `ready` says so. Fails if it ends before, or if
    something that it has started outlives it.
    """
    process = psutil.Popen(
        command,
        cwd=cwd,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
    )
    end = time.monotonic() + seconds
    while not ready():
        if process.poll() is not None:
            assert process.stderr is not None
            pytest.fail(f"ended with {process.returncode} before it could be killed: {process.stderr.read()}")
        if time.monotonic() > end:
            process.kill()
            pytest.fail("was never ready to be killed")
        time.sleep(0.01)
    started = process.children(recursive=True)
    process.kill()
    process.communicate()
    _, left = psutil.wait_procs(started, timeout=20)
    for child in left:
        child.kill()
    assert not left
