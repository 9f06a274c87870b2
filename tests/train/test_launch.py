"""A run that would be another one than asked for stops, and so does one that has lost a process."""

import time
from argparse import Namespace
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from accelerate.commands.launch import launch_command_parser
from accelerate.state import AcceleratorState

from mlbench_data.bad_input import BadInput, Stopped
from mlbench_data.models import Model
from tests.helpers import RunScript
from tests.train.launched import CONFIGS, Run, launched, sft
from tests.train.test_steps import even, rows_of
from train import launch
from train.config import TrainConfig
from train.plan import make_plan
from train.trainer import PackTrainer, training_arguments

SCRIPT = ("train/sft.py", "--config", "x.yaml", "--num_processes", "7")
ONE_LAUNCHED = {"ACCELERATE_USE_CPU": "False", "ACCELERATE_MIXED_PRECISION": "no"}
"""What `accelerate launch --config_file configs/accelerate/one.yaml` sets beside thread counts."""


@pytest.mark.parametrize(
    "launcher",
    [
        "/venv/bin/python /venv/bin/accelerate launch",
        "/venv/bin/accelerate launch",
        "/venv/bin/python3.11 /venv/bin/accelerate-launch",
        "python -m accelerate.commands.launch",
        "python -u -X dev -m accelerate.commands.accelerate_cli launch",
        "/home/launcher/accelerate/bin/python /home/launcher/accelerate/bin/accelerate launch",
    ],
)
@pytest.mark.parametrize("flags", ["--num_processes 2", "--num-processes=2", "--config_file {file}"])
def test_the_processes_that_a_launcher_was_asked_for(launcher: str, flags: str, tmp_path: Path) -> None:
    file = accelerate_config(tmp_path, num_processes=2)
    command = [*launcher.split(), *flags.format(file=file).split(), *SCRIPT]
    assert launch._processes_asked_of(command) == 2


@pytest.mark.parametrize(
    "parent",
    [
        [],
        ["-bash"],
        ["bash", "-c", "accelerate launch --num_processes 2 train/sft.py"],
        ["bash", "run.sh", "accelerate", "launch", "--num_processes", "2"],
        ["make", "launch"],
        ["python", "-m", "pytest", "tests/train/test_launch.py", "--num_processes", "2"],
        ["python", "launch.py", "--num_processes", "2"],
        ["srun", "accelerate", "launch", "--num_processes", "2", "train/sft.py"],
        ["/venv/bin/python", "/venv/bin/accelerate", "config"],
        ["python"],
    ],
)
def test_other_parents_ask_for_nothing(parent: list[str]) -> None:
    assert launch._processes_asked_of(parent) == 0


def test_the_user_s_default_configuration_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from accelerate.commands.config import config_args

    default = accelerate_config(tmp_path, num_processes=3)
    monkeypatch.setattr(config_args, "default_config_file", str(default))
    assert launch._processes_asked_of(["accelerate", "launch", *SCRIPT]) == 3
    assert launch._processes_asked_of(["accelerate", "launch", "--cpu", *SCRIPT]) == 0


@pytest.mark.slow
def test_two_cpu_processes_that_become_one_are_noticed(tokenizer_model: Model, tmp_path: Path) -> None:
    config = accelerate_config(tmp_path, distributed_type="MULTI_CPU", num_processes=2, use_cpu=True)
    run = Run(launched(config, sft(tokenizer_model, tmp_path / "out")), tmp_path / "log")
    assert run.end() != 0
    [line] = errors(run.output())
    assert "asked for 2 processes and started 1" in line
    assert "returned non-zero exit status 2" in run.output()
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_fsdp_that_would_be_ddp_is_noticed(tokenizer_model: Model, tmp_path: Path) -> None:
    run = Run(launched("fsdp2", sft(tokenizer_model, tmp_path / "out")), tmp_path / "log")
    assert run.end() != 0
    [line] = errors(run.output())
    assert "FSDP was asked for and MULTI_CPU would run" in line
    assert "exitcode  : 2" in run.output()
    assert not list((tmp_path / "out").glob("checkpoint-*"))


FSDP = {
    "ACCELERATE_USE_FSDP": "true",
    "FSDP_VERSION": "2",
    "FSDP_STATE_DICT_TYPE": "FULL_STATE_DICT",
    "FSDP_ACTIVATION_CHECKPOINTING": "false",
}


@pytest.mark.parametrize(
    ("told", "message"),
    [
        ({"FSDP_ACTIVATION_CHECKPOINTING": "true"}, "saves adapters without tensors"),
        ({"FSDP_STATE_DICT_TYPE": "SHARDED_STATE_DICT"}, "must be FULL_STATE_DICT"),
        ({"FSDP_VERSION": "1"}, "fsdp_version must be 2"),
    ],
)
def test_fsdp_settings_that_lose_adapters_are_refused(
    told: dict[str, str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in FSDP.items():
        monkeypatch.setenv(name, value)
    launch.check_launched()
    for name, value in told.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(BadInput, match=message):
        launch.check_launched()


def test_a_refused_run_is_one_line_and_exit_code_2(
    tokenizer_model: Model, run_script: RunScript, tmp_path: Path
) -> None:
    told = FSDP | {"FSDP_STATE_DICT_TYPE": "SHARDED_STATE_DICT"}
    done = run_script(*sft(tokenizer_model, tmp_path / "out"), env=told)
    assert done.returncode == 2
    [line] = errors(done.stderr)
    assert "must be FULL_STATE_DICT" in line


def test_accelerate_does_not_decide_the_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "bf16")
    launch.check_precision(bfloat16=True)
    with pytest.raises(BadInput, match="mixed_precision is bf16; set it to no"):
        launch.check_precision(bfloat16=False)


def test_deepspeed_that_does_not_run_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACCELERATE_USE_DEEPSPEED", "true")
    running = Namespace(distributed_type=Namespace(value="MULTI_CPU"), num_processes=1)
    with pytest.raises(BadInput, match="DEEPSPEED was asked for and MULTI_CPU would run"):
        launch.check_running(running)


@pytest.mark.slow
def test_a_run_that_loses_a_process_ends_within_a_minute(tokenizer_model: Model, tmp_path: Path) -> None:
    out = tmp_path / "out"
    run = Run(launched("ddp", sft(tokenizer_model, out, "--max_steps", 100)), tmp_path / "log")
    run.wait_until((out / "log.jsonl").exists)
    lost = run.process(1)
    lost.kill()
    killed = time.monotonic()
    assert run.end(60) != 0
    assert time.monotonic() - killed < 60
    assert f"exitcode  : -9 (pid: {lost.pid})" in run.output()


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_setting_of_a_shipped_configuration_is_one_that_accelerate_knows(path: Path) -> None:
    """Accelerate refuses unknown names at the top, and silently drops those below."""
    settings = yaml.safe_load(path.read_text(encoding="utf-8"))
    known = vars(launch_command_parser().parse_args(["script"])).keys()
    below = [name for value in settings.values() if isinstance(value, dict) for name in value]
    assert set(below) <= known
    command = ["accelerate", "launch", "--config_file", str(path), *SCRIPT]
    assert launch._processes_asked_of(command) == settings["num_processes"]


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.yaml")), ids=lambda path: path.stem)
def test_a_shipped_configuration_begins_with_the_command_that_uses_it(path: Path) -> None:
    head = path.read_text(encoding="utf-8").split("\n\n")[0]
    assert all(line.startswith("#") for line in head.splitlines())
    used = (
        f"accelerate launch --config_file configs/accelerate/{path.name} train/sft.py --config configs/train/"
    )
    assert used in head


def errors(output: str) -> list[str]:
    return [line for line in output.splitlines() if line.startswith("error: ")]


def accelerate_config(folder: Path, **settings: object) -> Path:
    path = folder / "accelerate.yaml"
    base = {"compute_environment": "LOCAL_MACHINE", "distributed_type": "MULTI_GPU", "mixed_precision": "no"}
    path.write_text(yaml.safe_dump({**base, "num_machines": 1, **settings}))
    return path


def connect(folder: Path) -> None:
    """A process group of this process alone."""
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=0, world_size=1)


@pytest.mark.parametrize("stopped", [False, True])
def test_runs_end_disconnected(stopped: bool, tmp_path: Path) -> None:
    """A process that exits with an open connection aborts now and then, after all was saved."""
    connect(tmp_path)
    with suppress(Stopped), launch.main_speaks_first():
        if stopped:
            raise Stopped("by a signal", 143)
    assert not torch.distributed.is_initialized()


def test_a_failed_process_does_not_wait_for_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They may be waiting for it in another place; the launcher ends them."""
    connect(tmp_path)
    monkeypatch.setattr(torch.distributed, "barrier", lambda: pytest.fail("waited"))
    try:
        with pytest.raises(BadInput), launch.main_speaks_first():
            raise BadInput("no")
    finally:
        torch.distributed.destroy_process_group()


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine on which torch sees two GPUs, as far as the trainer's settings and its order of packs go."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device=None: "a GPU")
    monkeypatch.setattr(PackTrainer, "_move_model_to_device", lambda *unused: None)


@pytest.mark.parametrize("environment", [{}, ONE_LAUNCHED], ids=["python", "accelerate launch one.yaml"])
def test_a_process_that_sees_two_gpus_takes_a_pack_at_a_time(
    environment: dict[str, str], two_gpus: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """transformers would split batches of two over them, with threads: a pack is one sequence."""
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    config = TrainConfig(output_dir=str(tmp_path), dtype="float32")
    plan = make_plan(config, rows_of(even(8, 4)), 1)
    trainer = PackTrainer(torch.nn.Linear(2, 2), training_arguments(config, plan, False), plan.packs, [])
    loader: Any = trainer.get_train_dataloader()
    batches = list(loader.base_dataloader)  # without the move to a GPU
    assert [batch["layout"] for batch in batches] == [pack.layout for pack in plan.packs]
    AcceleratorState._reset_state(reset_partial_state=True)


@pytest.mark.parametrize(("processes", "said"), [(1, True), (2, False)])
def test_gpus_that_stay_idle_are_named(
    processes: int,
    said: bool,
    two_gpus: None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("WORLD_SIZE", str(processes))
    launch.check_launched()
    printed = capsys.readouterr().out
    assert printed.startswith("1 of 2 visible GPUs is used; for all: accelerate launch ") is said
    assert ("--num_processes 2 train/sft.py" in printed) is said
