"""A model's weights for sampling with transformers: whole or quantized, with an adapter on them."""

from typing import Any

import torch
from peft import PeftModel, get_peft_model_state_dict
from safetensors import SafetensorError, safe_open
from transformers import AutoModelForCausalLM

from infer.engines.room import check_fits, free_memory
from mlbench_data.adapter import Adapter
from mlbench_data.bad_input import BadInput
from mlbench_data.models import Model, has_other_attention
from mlbench_data.quantization import Quantization, bits_and_bytes

BYTES = {"nf4": 0.6, "int8": 1.1}  # a weight, with its scales


def load_weights(
    model: Model,
    device: torch.device,
    quantization: Quantization,
    trust_remote_code: bool,
    adapter: Adapter | None,
) -> Any:
    """The model on `device`, ready to sample. An adapter is merged into whole weights, and stays beside
    quantized ones, which would round it away. Raises BadInput if they do not fit or cannot be loaded.
    """
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    free = torch.cuda.mem_get_info()[0] if device.type == "cuda" else free_memory()
    check_fits(model, BYTES.get(quantization, dtype.itemsize), free)
    try:
        network: Any = AutoModelForCausalLM.from_pretrained(
            model.location,
            revision=model.revision,
            dtype=dtype,
            use_safetensors=True,
            quantization_config=bits_and_bytes(quantization, dtype),
            device_map=device if quantization != "none" else None,
            trust_remote_code=trust_remote_code,
        )
    except (OSError, ValueError, SafetensorError, ImportError) as error:
        reason = str(error).strip().splitlines()[0]
        raise BadInput(f"{model.location}: no weights could be loaded ({reason})") from error
    if has_other_attention(network.config):
        raise BadInput(f"{model.name}: sliding windows or capped scores, which need --engine vllm")
    if adapter is not None:
        network = _with_adapter(network, adapter, model, merged=quantization == "none")
    return network.to(device).eval() if quantization == "none" else network.eval()


def _with_adapter(network: Any, adapter: Adapter, model: Model, merged: bool) -> Any:
    try:
        with_adapter = PeftModel.from_pretrained(network, adapter.folder)
        _check_all_put_on(with_adapter, adapter)
        return with_adapter.merge_and_unload() if merged else with_adapter
    except (RuntimeError, ValueError, SafetensorError) as error:
        reason = " ".join(str(error).split())[:200]
        raise BadInput(f"{adapter.folder}: does not fit {model.name} ({reason})") from error


def _check_all_put_on(network: Any, adapter: Adapter) -> None:
    """Raises BadInput if tensors were left out, which the library does without a word where the settings do
    not name their layers.
    """
    with safe_open(adapter.folder / "adapter_model.safetensors", "pt") as tensors:
        left_out = sorted(set(tensors.keys()) - get_peft_model_state_dict(network).keys())
    if left_out:
        raise BadInput(
            f"{adapter.folder}: {len(left_out)} tensors were not put on, {left_out[0]} for one; name all of "
            "their layers in target_modules of adapter_config.json"
        )
