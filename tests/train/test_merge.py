"""A merged model says what base and adapter say, and nothing less than that is left behind."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from mlbench_data.models import Model, resolve_model
from tests.helpers import RunScript, error_line, tiny_llama

SCRIPT = "train/merge.py"


@pytest.fixture(scope="module")
def adapter(tokenizer_model: Model, run_script: RunScript, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("merge") / "adapter"
    run_script("train/sft.py", "--model", tokenizer_model.location, "--max_rows", 24, "--eval_rows", 0,
               "--max_steps", 3, "--learning_rate", 0.02, "--output_dir", out, check=True)  # fmt: skip
    return out


@pytest.fixture(scope="module")
def merged(adapter: Path, run_script: RunScript) -> Path:
    out = adapter.parent / "merged"
    done = run_script(SCRIPT, "--adapter", adapter, "--output_dir", out, check=True)
    assert "read back" in done.stdout
    return out


def test_the_merged_model_has_the_logits_of_base_and_adapter(
    adapter: Path, merged: Path, tokenizer_model: Model
) -> None:
    base = AutoModelForCausalLM.from_pretrained(tokenizer_model.location, dtype=torch.float32)
    ids = torch.arange(200, 260)[None]
    with torch.inference_mode():
        plain = base(input_ids=ids).logits
        expected = PeftModel.from_pretrained(base, adapter)(input_ids=ids).logits
        found = AutoModelForCausalLM.from_pretrained(merged)(input_ids=ids).logits
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    assert not torch.allclose(found, plain, atol=1e-3)


def test_it_is_a_model_of_its_own_with_tokenizer_and_record(merged: Path, tokenizer_model: Model) -> None:
    assert resolve_model(str(merged)).format == "chat"
    assert len(AutoTokenizer.from_pretrained(merged)) == len(
        AutoTokenizer.from_pretrained(tokenizer_model.location)
    )
    saved, base = (
        load_file(folder / "model.safetensors") for folder in (merged, Path(tokenizer_model.location))
    )
    assert saved.keys() == base.keys()
    assert not any("lora" in name for name in saved)
    record = json.loads((merged / "merge.json").read_text())
    assert record["base"]["sha256"] == tokenizer_model.identity()["sha256"]
    assert record["logit_error"] < 1e-4


def test_an_adapter_that_changes_nothing_is_not_merged(
    adapter: Path, tmp_path: Path, run_script: RunScript
) -> None:
    shutil.copytree(adapter, tmp_path / "empty")
    file = tmp_path / "empty" / "adapter_model.safetensors"
    save_file({name: torch.zeros_like(value) for name, value in load_file(file).items()}, file)
    done = run_script(SCRIPT, "--adapter", tmp_path / "empty", "--output_dir", tmp_path / "out")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("error: ")
    assert "the adapter changes no logit" in done.stderr.splitlines()[-1]
    assert not (tmp_path / "out").exists()


def test_bad_input_is_one_line_and_leaves_nothing(
    adapter: Path, tmp_path: Path, run_script: RunScript
) -> None:
    other = tiny_llama(tmp_path / "other", seed=1)
    (tmp_path / "notes.txt").write_text("mine")
    for given, error in (
        (["--adapter", tmp_path / "none"], "no training.json that names the base model"),
        (["--adapter", adapter, "--model", other], "an adapter of another model"),
        (["--adapter", adapter, "--output_dir", tmp_path], "not empty and not a merged model"),
    ):
        out = [] if "--output_dir" in given else ["--output_dir", tmp_path / "out"]
        assert error in error_line(run_script(SCRIPT, *given, *out))
        assert not (tmp_path / "out").exists()
