"""Weights that cannot be had are told before they fill the memory."""

import json
from pathlib import Path

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

from infer.engines.room import check_fits, parameters_of
from infer.engines.weights import load_weights
from mlbench_data.adapter import Adapter
from mlbench_data.bad_input import BadInput
from mlbench_data.models import Model

CPU = torch.device("cpu")


def test_parameters_are_counted_without_loading_them(tokenizer_model: Model) -> None:
    network = AutoModelForCausalLM.from_pretrained(tokenizer_model.location)
    assert parameters_of(Path(tokenizer_model.location)) == sum(item.numel() for item in network.parameters())


def test_a_model_that_does_not_fit_is_refused(tokenizer_model: Model) -> None:
    needed = parameters_of(Path(tokenizer_model.location)) * 4
    check_fits(tokenizer_model, 4, needed)
    with pytest.raises(BadInput, match=r"its weights need 0\.0 GB and 0\.0 GB are free; take a smaller"):
        check_fits(tokenizer_model, 4, needed - 1)


def test_a_torn_weight_file_is_named(tokenizer_model: Model, tmp_path: Path) -> None:
    source = Path(tokenizer_model.location)
    for path in source.iterdir():
        content = path.read_bytes()
        (tmp_path / path.name).write_bytes(content[:100] if path.suffix == ".safetensors" else content)
    model = Model("torn", str(tmp_path), "chat")
    with pytest.raises(BadInput, match=r"model\.safetensors: not a safetensors file"):
        load_weights(model, CPU, "none", False, None)


def test_sliding_windows_are_refused(tokenizer_model: Model, tmp_path: Path) -> None:
    for path in Path(tokenizer_model.location).iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    config = json.loads((tmp_path / "config.json").read_text())
    changed = {
        **config,
        "architectures": ["MistralForCausalLM"],
        "model_type": "mistral",
        "sliding_window": 8,
    }
    (tmp_path / "config.json").write_text(json.dumps(changed))
    with pytest.raises(BadInput, match="need --engine vllm"):
        load_weights(Model("windowed", str(tmp_path), "chat"), CPU, "none", False, None)


def test_an_adapter_of_which_a_part_would_be_left_out_is_refused(
    tokenizer_model: Model, tmp_path: Path
) -> None:
    """The library puts on what the settings name, and drops the other tensors without a word."""
    network = AutoModelForCausalLM.from_pretrained(tokenizer_model.location)
    whole = get_peft_model(network, LoraConfig(r=4, target_modules=["q_proj", "k_proj"]))
    whole.save_pretrained(str(tmp_path))
    adapter = Adapter(tmp_path, "", 4, None)
    load_weights(tokenizer_model, CPU, "none", False, adapter)
    settings = json.loads((tmp_path / "adapter_config.json").read_text())
    (tmp_path / "adapter_config.json").write_text(json.dumps({**settings, "target_modules": ["q_proj"]}))
    with pytest.raises(BadInput, match=r"4 tensors were not put on, .*k_proj"):
        load_weights(tokenizer_model, CPU, "none", False, adapter)
