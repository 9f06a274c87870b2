"""Every way of training leaves weights that, loaded anew and read by stock attention, are those trained."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from peft import PeftModel
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from mlbench_data.bad_input import BadInput
from mlbench_data.models import Model, resolve_model
from train.config import TrainConfig, check_config
from train.network import Lora, SurprisingNetwork, add_lora, load_network
from train.sft import load_examples, main, split_examples

SHORT: dict[str, Any] = {
    "max_rows": 24, "eval_rows": 8, "max_steps": 2, "answer_tokens": 96, "learning_rate": 1e-2,
    "lora_rank": 4,
}  # fmt: skip

METHODS: dict[str, dict[str, Any]] = {
    "lora": {},
    "rslora": {"rslora": True},
    "dora": {"dora": True},
    "nf4": {"quantization": "nf4"},
    "int8": {"quantization": "int8"},
    "attention only": {"lora_targets": ["q_proj", "v_proj"]},
    "checkpointing": {"activation_checkpointing": True},
    "full": {"method": "full"},
}
TENSORS = {"dora": 2 * 7 * 3, "attention only": 2 * 2 * 2, "full": 20}


def stock_loss(config: TrainConfig, folder: Path) -> float:
    """The mean loss of the rows kept out, by the model as anybody would load it, one row at a time."""
    model = resolve_model(config.model)
    if config.method == "full":
        network: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    else:
        base = load_network(model, torch.float32, config.quantization, lora=None)
        base.config._attn_implementation = "sdpa"
        network = PeftModel.from_pretrained(base, folder)
    _, kept_out = split_examples(load_examples(config, model), config.eval_rows)
    network.eval()
    summed = 0.0
    for row in kept_out:
        with torch.no_grad():
            logits = network(input_ids=torch.tensor([row.token_ids])).logits[0]
        answer = torch.tensor(row.answer_ids)
        summed += F.cross_entropy(logits[-len(answer) - 1 : -1], answer, reduction="sum").item()
    return summed / sum(len(row.answer_ids) for row in kept_out)


@pytest.mark.parametrize("name", METHODS)
def test_what_is_saved_has_the_loss_of_what_was_trained(
    name: str, tokenizer_model: Model, tmp_path: Path
) -> None:
    config = TrainConfig(
        model=tokenizer_model.location, output_dir=str(tmp_path / "out"), **SHORT, **METHODS[name]
    )
    assert main(config) == 0
    record = json.loads((tmp_path / "out" / "training.json").read_text())
    saved = "model" if name == "full" else "adapter_model"
    assert record["tensors"] == TENSORS.get(name, 2 * 7 * 2)
    assert len(load_file(tmp_path / "out" / f"{saved}.safetensors")) == record["tensors"]
    tolerance = 2e-3 if name == "int8" else 1e-4  # int8 rounds activations, by row or by pack
    assert stock_loss(config, tmp_path / "out") == pytest.approx(record["eval_loss"], rel=tolerance)


def test_dora_and_rslora_are_in_the_adapters_settings(tokenizer_model: Model, tmp_path: Path) -> None:
    network = load_network(tokenizer_model, torch.float32, lora=Lora(4, 8, rslora=True, dora=True))
    settings = network.peft_config["default"]
    assert (settings.use_rslora, settings.use_dora, settings.r) == (True, True, 4)
    assert any("magnitude" in name for name, value in network.named_parameters() if value.requires_grad)


def test_quantized_layers_are_smaller(tokenizer_model: Model) -> None:
    sizes = {
        name: load_network(tokenizer_model, torch.float32, name, lora=None).model.layers.state_dict()
        for name in ("none", "nf4", "int8")
    }  # fmt: skip
    held = {
        name: sum(tensor.nbytes for tensor in state.values() if hasattr(tensor, "nbytes"))
        for name, state in sizes.items()
    }
    assert held["nf4"] < held["int8"] < held["none"] / 3


@pytest.mark.parametrize(
    ("lora", "message"),
    [
        (Lora(4, 8, targets=("q_proj", "w_pack")), r"no layer is named w_pack; the model has q_proj, k_proj"),
        (Lora(65, 8), r"lora_rank is 65; q_proj is 64 wide, so at most 64"),
        (Lora(64, 8, targets=("k_proj", "gate_proj")), None),
    ],
)
def test_targets_and_ranks_that_the_model_has_not(
    lora: Lora, message: str | None, tokenizer_model: Model
) -> None:
    network = AutoModelForCausalLM.from_pretrained(tokenizer_model.location)
    if message is None:
        add_lora(network, lora)
        return
    with pytest.raises(BadInput, match=message):
        add_lora(network, lora)


def test_a_model_of_another_precision_than_asked_for_is_noticed(
    tokenizer_model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = AutoModelForCausalLM.from_pretrained

    def half(*arguments: Any, **settings: Any) -> Any:
        return load(*arguments, **settings).half()

    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", half)
    with pytest.raises(SurprisingNetwork, match=r"was loaded as torch\.float16; torch\.float32 was asked"):
        load_network(tokenizer_model, torch.float32)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"method": "full", "quantization": "nf4"}, "quantized weights are not trained"),
        ({"method": "full", "dora": True}, "go with method lora"),
        ({"dora": True, "quantization": "int8"}, "dora needs the weights' norms"),
        ({"group_size": 0}, "group_size is 0"),
        ({"pack_tokens": -1}, "pack_tokens is -1"),
        ({"learning_rate": float("nan")}, "learning_rate is nan"),
        ({"warmup": 1.5}, "warmup a share from 0 to 1"),
        ({"neftune": -1.0}, "neftune is -1.0"),
    ],
)
def test_settings_that_cannot_be_meant(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        check_config(TrainConfig(**settings))
