"""Putting what was trained on a hub, here one on this machine."""

import json
import shutil
from pathlib import Path

import pytest

from mlbench_data.models import Model
from tests.helpers import RunScript, error_line
from tests.slurm.hub import hub_of
from tests.train.launched import sft

HUB = {"HF_TOKEN": "not a real one", "HF_HUB_DISABLE_XET": "1"}


@pytest.fixture(scope="module")
def trained(tokenizer_model: Model, run_script: RunScript, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("push") / "adapter"
    run_script(*sft(tokenizer_model, out, "--max_steps", 2, "--lora_rank", 4), check=True)
    return out


@pytest.fixture
def finished(trained: Path, tmp_path: Path) -> Path:
    """An adapter whose records tell nothing of this machine."""
    folder = tmp_path / "adapter"
    shutil.copytree(trained, folder)
    for name in ("training.json", "adapter_config.json"):
        values = json.loads((folder / name).read_text())
        for part in (values, values.get("config", {}), values.get("identity", {})):
            part |= {key: Path(value).name for key, value in part.items() if str(value).startswith("/")}
        (folder / name).write_text(json.dumps(values))
    return folder


def test_an_adapter_arrives_whole_and_without_checkpoints(
    finished: Path, run_script: RunScript, tmp_path: Path
) -> None:
    received: dict[str, bytes] = {}
    with hub_of(tmp_path, received=received) as (address, asked):
        command = ("train/push.py", "--folder", finished, "--to", "owner/name", "--private")
        done = run_script(*command, env={**HUB, "HF_ENDPOINT": address})
    assert done.returncode == 0, done.stdout + done.stderr
    names = {"README.md", "adapter_config.json", "adapter_model.safetensors", "log.jsonl", "loss.png"}
    assert received.keys() == names | {"training.json"}
    for name, content in received.items():
        assert content == (finished / name).read_bytes(), name
    assert "not sent: checkpoint-2, tensorboard" in done.stdout
    assert sum("/commit/" in path for path in asked) == 1


def test_a_dry_run_lists_sizes_and_asks_no_hub(finished: Path, run_script: RunScript, tmp_path: Path) -> None:
    with hub_of(tmp_path) as (address, asked):
        command = ("train/push.py", "--folder", finished, "--to", "owner/name", "--dry_run")
        done = run_script(*command, env={"HF_ENDPOINT": address})
    assert done.returncode == 0, done.stderr
    assert "MB  adapter_model.safetensors" in done.stdout
    assert done.stdout.endswith("nothing was sent\n")
    assert asked == []


def test_what_should_not_be_told_is_refused(trained: Path, run_script: RunScript, tmp_path: Path) -> None:
    folder = tmp_path / "adapter"
    shutil.copytree(trained, folder)
    (folder / "README.md").write_text("made with hf_" + 30 * "x")
    done = run_script("train/push.py", "--folder", folder, "--to", "owner/name", "--dry_run")
    assert done.returncode == 2
    assert f"error: {folder / 'README.md'}: holds what looks like a token" in done.stderr
    assert "training.json: identity.model names /" in done.stderr
    assert "give --allow_paths" in done.stderr


@pytest.mark.parametrize(
    ("missing", "message"),
    [
        ("adapter_model.safetensors", "no adapter_model.safetensors or model.safetensors there"),
        ("README.md", "no card README.md there"),
        ("training.json", "neither training.json nor merge.json there"),
    ],
)
def test_what_is_not_whole_is_refused(
    missing: str, message: str, finished: Path, run_script: RunScript
) -> None:
    (finished / missing).unlink()
    done = run_script("train/push.py", "--folder", finished, "--to", "owner/name", "--dry_run")
    assert message in error_line(done)


def test_an_unfinished_run_is_refused(finished: Path, run_script: RunScript) -> None:
    (finished / "training.json").write_text('{"finished": false}')
    done = run_script("train/push.py", "--folder", finished, "--to", "owner/name", "--dry_run")
    assert "its training is not finished" in error_line(done)


def test_a_hub_that_does_not_take_it_is_one_line(finished: Path, run_script: RunScript) -> None:
    command = ("train/push.py", "--folder", finished, "--to", "owner/name")
    done = run_script(*command, env={**HUB, "HF_ENDPOINT": "http://127.0.0.1:9"})
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("error: owner/name: the hub did not take it")
