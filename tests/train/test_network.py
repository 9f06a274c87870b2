"""LoRA's inputs under autocast: as the layer got them, since a copy in float32 would change nothing."""

import copy
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from train.ledger import Ledger
from train.network import Lora, add_lora, keep_input_dtypes

SIZES: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "vocab_size": 64,
}


def adapted(**options: Any) -> Any:
    """A small network in bfloat16 whose LoRA matrices do something."""
    torch.manual_seed(0)
    network: Any = LlamaForCausalLM(LlamaConfig(**SIZES, num_attention_heads=4)).bfloat16()
    network = add_lora(network, Lora(8, 16, targets=("q_proj", "v_proj", "up_proj", "down_proj"), **options))
    for name, parameter in network.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.1)
    return network.train()


def trained_once(network: Any, vocabulary: int = 64) -> tuple[Ledger, dict[str, torch.Tensor]]:
    """What a pass held, and the gradients that it left."""
    ids = torch.arange(512)[None] % 64
    there = [*network.parameters(), *network.buffers()]
    torch.manual_seed(1)
    with Ledger(vocabulary, there) as ledger:
        with torch.autocast("cpu", torch.bfloat16):
            logits = network(input_ids=ids, use_cache=False).logits
        logits.float().pow(2).mean().backward()
    return ledger, {name: item.grad for name, item in network.named_parameters() if item.requires_grad}


@pytest.mark.parametrize("dropout", [0.0, 0.05])
def test_inputs_that_stay_in_bfloat16_train_as_copies_in_float32_do(
    dropout: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.nn.functional, "dropout", as_on_a_gpu)
    casting = adapted(dropout=dropout)
    keeping = keep_input_dtypes(copy.deepcopy(casting))
    _, expected = trained_once(casting)
    _, found = trained_once(keeping)
    for name, gradient in found.items():
        assert gradient.dtype == torch.float32, name
        difference = (gradient - expected[name]).norm() / expected[name].norm()
        assert difference < 2**-8, name  # bfloat16 has eight bits


def as_on_a_gpu(given: torch.Tensor, share: float, training: bool, inplace: bool = False) -> torch.Tensor:
    """Dropout that rounds once, as CUDA's kernel; a CPU's rounds 1 / (1 - share) to the input's type too."""
    kept = torch.empty_like(given, dtype=torch.bool).bernoulli_(1 - share)
    return given * kept * (1 / (1 - share))


def test_they_take_less_memory_and_adapters_stay_in_float32() -> None:
    casting = adapted()
    keeping = keep_input_dtypes(copy.deepcopy(casting))
    copies, _ = trained_once(casting)
    kept, _ = trained_once(keeping)
    tokens, layers, copied = 512, 2, 2 * 64 + 64 + 128  # of q and v, up, and down
    assert copies.most["activations"] - kept.most["activations"] > tokens * layers * copied
    assert {item.dtype for item in keeping.parameters() if item.requires_grad} == {torch.float32}


def test_norms_of_dora_are_computed_in_float32_as_before() -> None:
    network = keep_input_dtypes(adapted(dora=True))
    assert all(getattr(module, "cast_input_dtype_enabled", True) for module in network.modules())
