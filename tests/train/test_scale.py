"""Two processes learn what one does, however they share the work and whether or not they were killed."""

import json
import re
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from mlbench_data.models import Model
from tests.helpers import RunScript, need_compiler, read_lines
from tests.train.launched import FSDP_ON_CPU, Run, launched, sft
from train.checkpoints import SAVED_BY_ALL, last_checkpoint

pytestmark = pytest.mark.usefixtures("one_thread")

WAYS = ("ddp", "fsdp2", "zero2", "zero3")
FULL = ("--method", "full", "--learning_rate", 2e-4)
NF4 = ("--quantization", "nf4")

OneProcess = Callable[..., Path]


@pytest.fixture(scope="module")
def one_process(
    tokenizer_model: Model, run_script: RunScript, tmp_path_factory: pytest.TempPathFactory
) -> OneProcess:
    """An undisturbed run of one process, whose steps have as many packs as those of `two_processes`."""
    found: dict[tuple[object, ...], Path] = {}

    def run(*more: object) -> Path:
        if more not in found:
            found[more] = tmp_path_factory.mktemp("one") / "out"
            run_script(*sft(tokenizer_model, found[more], "--gradient_accumulation", 4, *more), check=True)
        return found[more]

    return run


def two_processes(way: str, model: Model, out: Path, *more: object) -> list[str]:
    if way.startswith("zero"):
        need_compiler()
    script = FSDP_ON_CPU if way == "fsdp2" else "train/sft.py"
    return launched(way, sft(model, out, "--gradient_accumulation", 2, *more, script=script))


def finish(command: list[str], log: Path) -> str:
    run = Run(command, log)
    assert run.end() == 0, run.output()
    return run.output()


def saved_at(out: Path, step: int) -> Callable[[], bool]:
    return (out / f"checkpoint-{step}" / SAVED_BY_ALL).exists


def assert_same_run(one: Path, two: Path) -> None:
    """Every logged loss, the record and every saved tensor."""
    expected, found = (read_lines(folder / "log.jsonl") for folder in (one, two))
    assert [line["step"] for line in found] == [line["step"] for line in expected] == [1, 2, 3, 3, 4, 5, 5]
    for name in ("loss", "eval_loss", "grad_norm"):
        losses = [[line[name] for line in log if name in line] for log in (found, expected)]
        assert losses[0] == pytest.approx(losses[1], rel=2e-4 if name == "grad_norm" else 1e-5), name
    records = [json.loads((folder / "training.json").read_text()) for folder in (one, two)]
    assert records[1]["finished"] is True
    for name in ("train_loss", "eval_loss"):
        assert records[1][name] == pytest.approx(records[0][name], rel=1e-5)
    assert_same_tensors(one, two)


def assert_same_tensors(one: Path, two: Path) -> None:
    [expected], [found] = ([load_file(path) for path in f.glob("*.safetensors")] for f in (one, two))
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name], tensor, rtol=0, atol=1e-5, msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_two_processes_killed_in_the_middle_learn_what_one_does(
    way: str, one_process: OneProcess, tokenizer_model: Model, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    command = two_processes(way, tokenizer_model, out)
    first = Run(command, tmp_path / "first.log")
    first.wait_until(saved_at(out, 2))
    first.kill()
    assert not (out / "adapter_model.safetensors").exists()
    printed = finish(command, tmp_path / "second.log")
    assert printed.count("continuing from") == 1
    assert re.findall(r"^step 5/5  loss", printed, re.MULTILINE) == ["step 5/5  loss"]
    assert printed.count("adapter with 28 tensors saved") == 1
    assert_same_run(one_process(), out)


@pytest.mark.slow
@pytest.mark.parametrize("more", [NF4, FULL], ids=["qlora", "full"])
def test_sharded_qlora_and_full_fine_tuning_learn_what_one_process_does(
    more: tuple[object, ...], one_process: OneProcess, tokenizer_model: Model, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    finish(two_processes("fsdp2", tokenizer_model, out, *more), tmp_path / "log")
    assert_same_run(one_process(*more), out)


@pytest.mark.slow
def test_a_signal_to_one_process_saves_all_and_the_same_command_continues(
    one_process: OneProcess, tokenizer_model: Model, tmp_path: Path
) -> None:
    """A node that is taken away tells its own processes only."""
    out = tmp_path / "out"
    command = two_processes("ddp", tokenizer_model, out)
    first = Run(command, tmp_path / "first.log")
    first.wait_until(saved_at(out, 2))
    first.process(1).send_signal(signal.SIGTERM)
    assert first.end() != 0
    [step] = re.findall(r"stopped by SIGTERM after step (\d) of 5; the same command", first.output())
    assert saved_at(out, int(step))()
    assert not (out / "adapter_model.safetensors").exists()
    printed = finish(command, tmp_path / "second.log")
    assert f"continuing from {out}/checkpoint-{step}" in printed
    assert_same_run(one_process(), out)


def test_a_checkpoint_counts_once_every_process_has_written_its_part(tmp_path: Path) -> None:
    """The main process may be done while another is still writing."""
    for step in (2, 4):
        (tmp_path / f"checkpoint-{step}").mkdir()
        torch.save({}, tmp_path / f"checkpoint-{step}" / "optimizer.pt")
        (tmp_path / f"checkpoint-{step}" / "trainer_state.json").write_text('{"global_step": 2}')
    (tmp_path / "checkpoint-2" / SAVED_BY_ALL).touch()
    assert last_checkpoint(tmp_path, processes=2) == tmp_path / "checkpoint-2"
