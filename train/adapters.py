"""LoRA adapters: putting one on a model, and proving that what was saved is what was trained."""

import os
import tempfile
from pathlib import Path
from typing import Any, Literal

import torch
from peft import LoraConfig, PeftModel, get_peft_model, get_peft_model_state_dict
from safetensors.torch import load_file

from mlbench_data.bad_input import JobFailed

ADAPTER_FILES = ("adapter_config.json", "adapter_model.safetensors")


class AdapterNotSaved(JobFailed):
    """The adapter on disk is not the adapter in memory."""


def add_lora(
    model: Any, rank: int, alpha: int, dropout: float, targets: tuple[str, ...] | Literal["all-linear"]
) -> PeftModel:
    """The model with fresh LoRA matrices (Hu et al. 2021) on `targets`; all other weights are frozen."""
    config = LoraConfig(
        task_type="CAUSAL_LM",
        r=rank,
        lora_alpha=alpha,
        lora_dropout=dropout,
        target_modules=targets if isinstance(targets, str) else list(targets),
    )
    return get_peft_model(model, config)


def save_adapter(model: PeftModel, folder: Path) -> int:
    """Saves the adapter into `folder`, reads it back, and returns its number of tensors.

    Raises AdapterNotSaved if a tensor is missing or differs, or if training left every B matrix at zero.
    """
    with tempfile.TemporaryDirectory(dir=folder, prefix=".adapter-") as temporary:
        model.save_pretrained(temporary)
        count = prove_saved(model, Path(temporary))
        for name in ADAPTER_FILES:
            os.replace(Path(temporary, name), folder / name)
    return count


def prove_saved(model: PeftModel, folder: Path) -> int:
    """Compares the adapter on disk with the one in memory, tensor by tensor. Raises AdapterNotSaved."""
    wanted = get_peft_model_state_dict(model)
    saved = load_file(folder / ADAPTER_FILES[1])
    if not saved or saved.keys() != wanted.keys():
        raise AdapterNotSaved(f"{folder}: {len(saved)} tensors saved, {len(wanted)} trained")
    differing = [name for name, value in wanted.items() if not torch.equal(value.cpu(), saved[name])]
    if differing:
        raise AdapterNotSaved(
            f"{folder}: {len(differing)} tensors differ from the trained ones: {differing[0]}"
        )
    if not any(saved[name].any() for name in saved if "lora_B" in name):
        raise AdapterNotSaved(f"{folder}: every lora_B tensor is zero: nothing was trained")
    return len(saved)
