"""train/sft.py as a user runs it, on a tiny random Llama."""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from mlbench_data.files import PROJECT_ROOT
from mlbench_data.models import Model
from tests.helpers import RunScript, error_line, kill_when
from train.checkpoints import is_whole
from train.network import Lora, add_lora
from train.trained import NotSaved, save_trained, trained_tensors

pytestmark = pytest.mark.usefixtures("one_thread")


def arguments(model: Model, out: Path, *more: object) -> list[str]:
    settings = ["--config", "configs/train/smollm2-135m-id-task3.yaml", "--model", model.location]
    return ["train/sft.py", *settings, "--output_dir", str(out), *map(str, more)]


SHORT = ("--max_rows", 40, "--save_steps", 2, "--max_steps", 8)


@pytest.fixture(scope="module")
def trained(tokenizer_model: Model, run_script: RunScript, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole run that nothing disturbed."""
    out = tmp_path_factory.mktemp("sft") / "whole"
    run_script(*arguments(tokenizer_model, out, *SHORT), check=True)
    return out


def test_a_run_leaves_an_adapter_a_record_and_a_tensorboard_log(trained: Path) -> None:
    record = json.loads((trained / "training.json").read_text())
    assert record["finished"] is True
    assert record["steps"] == 8
    assert record["tensors"] == len(load_file(trained / "adapter_model.safetensors")) == 2 * 7 * 2
    assert record["eval_loss"] > 0
    assert record["mixture"]["rows"] <= 8
    assert 0.25 <= record["mixture"]["largest_share"] < 1
    assert record["mixture"]["tokens_saved"] > 1
    assert record["config"]["learning_rate"] == 2e-3
    assert "torch" in record["versions"]
    assert list((trained / "tensorboard").glob("events*"))


def test_training_lowers_the_loss_and_the_adapter_carries_it(trained: Path, tokenizer_model: Model) -> None:
    """What was learned is in the adapter: the base model with it differs, and the first loss was higher."""
    state = json.loads((trained / "checkpoint-8" / "trainer_state.json").read_text())
    losses = [log["loss"] for log in state["log_history"] if "loss" in log]
    assert float(losses[-1]) < float(losses[0])
    base = AutoModelForCausalLM.from_pretrained(tokenizer_model.location, dtype=torch.float32)
    ids = torch.arange(10, 30)[None]
    before = base(input_ids=ids).logits
    after = PeftModel.from_pretrained(base, trained)(input_ids=ids).logits
    assert not torch.allclose(before, after, atol=1e-4)


def test_kill_9_and_the_same_command_give_the_adapter_of_an_undisturbed_run(
    trained: Path, tokenizer_model: Model, run_script: RunScript, tmp_path: Path
) -> None:
    out = tmp_path / "killed"
    command = [sys.executable, *arguments(tokenizer_model, out, *SHORT)]
    kill_when(command, lambda: is_whole(out / "checkpoint-2", processes=1), PROJECT_ROOT)
    assert not (out / "adapter_model.safetensors").exists()
    done = run_script(*arguments(tokenizer_model, out, *SHORT), check=True)
    assert "continuing from" in done.stdout
    whole = load_file(trained / "adapter_model.safetensors")
    resumed = load_file(out / "adapter_model.safetensors")
    assert whole.keys() == resumed.keys()
    for name, tensor in whole.items():
        assert torch.equal(tensor, resumed[name]), name


def test_a_torn_checkpoint_is_passed_over(
    trained: Path, tokenizer_model: Model, run_script: RunScript, tmp_path: Path
) -> None:
    """Killed while a checkpoint was being saved: the one before it counts."""
    out = tmp_path / "torn"
    shutil.copytree(trained, out)
    record = json.loads((out / "training.json").read_text())
    record["finished"] = False
    record["identity"] = json.loads((trained / "training.json").read_text())["identity"]
    (out / "training.json").write_text(json.dumps(record))
    (out / "checkpoint-8" / "trainer_state.json").write_text('{"epoch": ')
    done = run_script(*arguments(tokenizer_model, out, *SHORT), check=True)
    assert "checkpoint-6" in done.stdout


def test_a_finished_run_is_not_run_again(
    trained: Path, tokenizer_model: Model, run_script: RunScript
) -> None:
    before = (trained / "adapter_model.safetensors").stat().st_mtime_ns
    done = run_script(*arguments(tokenizer_model, trained, *SHORT), check=True)
    assert "nothing to do" in done.stdout
    assert (trained / "adapter_model.safetensors").stat().st_mtime_ns == before


def test_another_run_never_continues_in_the_same_folder(
    trained: Path, tokenizer_model: Model, run_script: RunScript
) -> None:
    done = run_script(*arguments(tokenizer_model, trained, *SHORT, "--learning_rate", 0.5))
    assert "holds a run with other learning_rate" in error_line(done)


def test_accelerate_launch_gives_the_same_adapter(
    trained: Path, tokenizer_model: Model, run_script: RunScript, tmp_path: Path
) -> None:
    out = tmp_path / "launched"
    launcher = ["-m", "accelerate.commands.accelerate_cli", "launch"]
    run_script(*launcher, *arguments(tokenizer_model, out, *SHORT), check=True)
    whole, launched = (load_file(folder / "adapter_model.safetensors") for folder in (trained, out))
    assert all(torch.allclose(whole[name], launched[name], atol=1e-6) for name in whole)


def test_a_run_of_one_step_learns_in_it(
    tokenizer_model: Model, run_script: RunScript, tmp_path: Path
) -> None:
    """Warm-up must not take the only step: the adapter would be refused as untrained."""
    out = tmp_path / "one"
    done = run_script(*arguments(tokenizer_model, out, "--max_rows", 12, "--max_steps", 1), check=True)
    assert "adapter with 28 tensors saved" in done.stdout


def test_dry_run_plans_and_writes_nothing(
    tokenizer_model: Model, run_script: RunScript, tmp_path: Path
) -> None:
    out = tmp_path / "planned"
    done = run_script(*arguments(tokenizer_model, out, "--dry_run"), check=True)
    assert "248 for training, 8 for evaluation loss" in done.stdout
    assert "32 of 1 packs" in done.stdout
    assert not out.exists()


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--model", "smolm2-135m"], "did you mean smollm2-135m?"),
        (["--benchmark", "nowhere"], "nowhere/manifest.json: No such file"),
        (["--learning_rte", "1"], "did you mean learning_rate?"),
        (["--answer_tokens", "20"], "would be cut; answer_tokens is 20"),
        (["--eval_rows", "256"], "only 256 rows were read"),
        (["--answer_tokens", "8190"], "row "),
        (["--lora_rank", "100"], "lora_rank is 100; q_proj is 64 wide"),
        (["--lora_targets", "q_proj", "c_attn"], "no layer is named c_attn; the model has q_proj"),
        (["--wandb"], "the package wandb is not installed"),
        (["--batch_size", "0"], "batch_size is 0"),
        (["--output_dir", "/proc/nowhere"], "cannot write there"),
        (["--prompt_template", "README.md"], "README.md:3: not YAML"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    more: list[str], message: str, tokenizer_model: Model, run_script: RunScript, tmp_path: Path
) -> None:
    done = run_script(*arguments(tokenizer_model, tmp_path / "out"), *more)
    assert message in error_line(done)
    assert not (tmp_path / "out").exists()


def test_an_adapter_that_was_not_trained_is_not_saved_quietly(tokenizer_model: Model, tmp_path: Path) -> None:
    """Zero B matrices mean that no gradient arrived: FSDP with the wrong checkpointing does that silently."""
    base = AutoModelForCausalLM.from_pretrained(tokenizer_model.location, dtype=torch.float32)
    model = add_lora(base, Lora(4, 8))
    with pytest.raises(NotSaved, match="every lora_B tensor is zero"):
        save_trained(model, trained_tensors(model), tmp_path)
    assert not (tmp_path / "adapter_model.safetensors").exists()


def test_an_adapter_that_was_saved_without_tensors_is_noticed(
    tokenizer_model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = AutoModelForCausalLM.from_pretrained(tokenizer_model.location, dtype=torch.float32)
    model = add_lora(base, Lora(4, 8))
    save = model.save_pretrained

    def save_nothing(folder: str, **more: Any) -> None:
        save(folder, **more)
        save_file({}, Path(folder) / "adapter_model.safetensors")

    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter)
    monkeypatch.setattr(model, "save_pretrained", save_nothing)
    with pytest.raises(NotSaved, match="0 tensors saved"):
        save_trained(model, trained_tensors(model), tmp_path)
