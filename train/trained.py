"""What training leaves on disk, an adapter or a whole model, and the proof that it is what was trained."""

import os
import tempfile
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel, get_peft_model_state_dict
from safetensors.torch import load_file
from torch.distributed.tensor import DTensor

from mlbench_data.bad_input import JobFailed

ADAPTER_FILES = ("adapter_config.json", "adapter_model.safetensors")


class NotSaved(JobFailed):
    """What is on disk is not what was trained."""


def trained_tensors(network: Any, keep: bool = True) -> dict[str, torch.Tensor]:
    """Every trained parameter as a whole tensor on the CPU, by its name in the state dict.

    Every process must call it: FSDP and ZeRO-3 keep a part of each tensor on each of them. Without `keep` it
    only gives its parts, and returns nothing: a machine's memory may not hold the model once a process.
    """
    found = {}
    for name, parameter in network.named_parameters():
        if parameter.requires_grad:
            with _gathered(parameter):
                whole = parameter.full_tensor() if isinstance(parameter, DTensor) else parameter
                if keep:
                    found[name] = whole.detach().cpu().clone()
    return found


def save_trained(network: Any, tensors: dict[str, torch.Tensor], folder: Path) -> int:
    """Saves what was trained into `folder`, reads it back, and returns its number of tensors.

    Raises NotSaved if there is nothing to save, if a tensor is missing or differs or is not finite, or if
    training left every LoRA B matrix at zero.
    """
    adapter = isinstance(network, PeftModel)
    wanted = get_peft_model_state_dict(network, state_dict=tensors) if adapter else tensors
    _check_learned(wanted, adapter, folder)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".saving-") as temporary:
        network.save_pretrained(temporary, state_dict=tensors)
        prove_saved(wanted, Path(temporary))
        names = ADAPTER_FILES if adapter else tuple(os.listdir(temporary))
        for name in names:
            os.replace(Path(temporary, name), folder / name)
    return len(wanted)


def prove_saved(wanted: dict[str, torch.Tensor], folder: Path) -> None:
    """Compares the tensors in a folder's safetensors with those in memory. Raises NotSaved."""
    saved: dict[str, torch.Tensor] = {}
    for path in sorted(folder.glob("*.safetensors")):
        saved |= load_file(path)
    missing = wanted.keys() - saved.keys()
    if missing or not saved:
        raise NotSaved(f"{folder}: {len(saved)} tensors saved, {len(wanted)} trained")
    differing = [name for name, value in wanted.items() if not torch.equal(value, saved[name])]
    if differing:
        raise NotSaved(f"{folder}: {len(differing)} tensors differ from the trained ones: {differing[0]}")


def _check_learned(wanted: dict[str, torch.Tensor], adapter: bool, folder: Path) -> None:
    if not wanted:
        raise NotSaved(f"{folder}: 0 tensors were trained; nothing to save")
    broken = [name for name, value in wanted.items() if not value.isfinite().all()]
    if broken:
        raise NotSaved(f"{folder}: {len(broken)} trained tensors are not finite: {broken[0]}")
    if adapter and not any(value.any() for name, value in wanted.items() if "lora_B" in name):
        raise NotSaved(f"{folder}: every lora_B tensor is zero: nothing was trained")


def _gathered(parameter: Any) -> Any:
    """ZeRO-3 keeps only a part of a parameter outside of this context."""
    if not hasattr(parameter, "ds_id"):
        return nullcontext()
    import deepspeed  # only there if it is in use

    return deepspeed.zero.GatheredParameters(parameter)
