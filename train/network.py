"""What is trained: the base model, quantized or not, with LoRA matrices on it or as it is."""

from dataclasses import dataclass
from typing import Any, Literal

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from peft.tuners.lora import LoraLayer
from safetensors import SafetensorError
from transformers import AutoModelForCausalLM

from mlbench_data.adapter import Adapter
from mlbench_data.bad_input import BadInput, JobFailed
from mlbench_data.models import Model, has_other_attention
from mlbench_data.quantization import Quantization, bits_and_bytes
from train.prefix_attention import GPU_NAME, NAME

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


@dataclass(frozen=True)
class Lora:
    """LoRA (Hu et al. 2021). `rslora` scales by alpha / sqrt(rank) (Kalajdzievski 2023), `dora` learns
    magnitudes as well (Liu et al. 2024).
    """

    rank: int
    alpha: int
    dropout: float = 0.0
    targets: tuple[str, ...] | Literal["all-linear"] = "all-linear"
    rslora: bool = False
    dora: bool = False


class SurprisingNetwork(JobFailed):
    """The loaded model is not of the precision that was asked for."""


def load_network(
    model: Model,
    dtype: torch.dtype,
    quantization: Quantization = "none",
    lora: Lora | None = None,
    activation_checkpointing: bool = False,
    trust_remote_code: bool = False,
) -> Any:
    """The base model from safetensors, ready for packs; with fresh LoRA matrices, or all of it trainable if
    `lora` is None. Raises BadInput if it cannot be loaded or has no such modules.
    """
    try:
        network = AutoModelForCausalLM.from_pretrained(
            model.location,
            revision=model.revision,
            dtype=dtype,
            use_safetensors=True,
            trust_remote_code=trust_remote_code,
            attn_implementation=GPU_NAME if torch.cuda.is_available() else NAME,
            quantization_config=bits_and_bytes(quantization, dtype),
        )
    except (OSError, ValueError, SafetensorError) as error:
        reason = str(error).strip().splitlines()[0]
        raise BadInput(f"{model.location}: no weights could be loaded ({reason})") from error
    _check_precision(network, dtype, quantization)
    if lora is not None:
        network = add_lora(network, lora)  # type: ignore[assignment]
    if activation_checkpointing:
        network.enable_input_require_grads()  # frozen embeddings would leave nothing to differentiate
    return network


def add_lora(network: Any, lora: Lora) -> PeftModel:
    """The model with fresh LoRA matrices; all other weights are frozen. Raises BadInput for targets that it
    does not have and for a rank larger than a layer.
    """
    check_lora(network, lora)
    config = LoraConfig(
        task_type="CAUSAL_LM",
        r=lora.rank,
        lora_alpha=lora.alpha,
        lora_dropout=lora.dropout,
        target_modules=lora.targets if isinstance(lora.targets, str) else list(lora.targets),
        use_rslora=lora.rslora,
        use_dora=lora.dora,
    )
    return get_peft_model(network, config)


def keep_input_dtypes(network: Any) -> Any:
    """Keeps PEFT from copying every input of LoRA to float32 under autocast, which rounds the copy to
    bfloat16 again for the product: the same result, with a copy for the backward pass. DoRA computes norms of
    weights in that type, and keeps it.
    """
    for module in network.modules():
        if isinstance(module, LoraLayer) and not module.lora_variant:
            module.cast_input_dtype_enabled = False
    return network


def with_adapter(network: Any, adapter: Adapter, model: Model) -> PeftModel:
    """The base model under its adapter. Raises BadInput if they do not fit."""
    try:
        return PeftModel.from_pretrained(network, adapter.folder).eval()
    except (RuntimeError, ValueError, SafetensorError) as error:
        reason = " ".join(str(error).split())[:200]
        raise BadInput(f"{adapter.folder}: does not fit {model.name} ({reason})") from error


def check_attention(architecture: Any) -> None:
    """Raises BadInput for a model whose attention is not the plain causal one that packs have."""
    kind = architecture.model_type
    if has_other_attention(architecture):
        raise BadInput(f"model: {kind} with sliding windows or capped scores; its attention is not supported")
    if getattr(architecture, "attention_dropout", 0):
        raise BadInput(
            f"model: attention_dropout is {architecture.attention_dropout}; packs have none, set it to 0"
        )


def check_lora(network: Any, lora: Lora) -> None:
    """Raises BadInput for targets that the model, whose weights may be missing, does not have and for a rank
    larger than a layer.
    """
    linear = _linear_layers(network)
    if not linear:
        raise BadInput(f"model: {type(network).__name__} has no linear layers for LoRA to sit on")
    if not isinstance(lora.targets, str) and (unknown := sorted(set(lora.targets) - linear.keys())):
        raise BadInput(
            f"lora_targets: no layer is named {', '.join(unknown)}; the model has {', '.join(linear)}"
        )
    targeted = linear if isinstance(lora.targets, str) else {name: linear[name] for name in lora.targets}
    name, width = min(targeted.items(), key=lambda item: item[1])
    if lora.rank > width:
        raise BadInput(f"lora_rank is {lora.rank}; {name} is {width} wide, so at most {width}")


def without_weights(architecture: Any, trust_remote_code: bool = False) -> Any:
    """The network of a transformers configuration as shapes only."""
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(architecture, trust_remote_code=trust_remote_code)


def _linear_layers(network: Any) -> dict[str, int]:
    """The names of the layers that LoRA can sit on, and the smaller side of each."""
    head = network.get_output_embeddings()
    found: dict[str, int] = {}
    for path, module in network.named_modules():
        if hasattr(module, "in_features") and module is not head:
            name = path.rsplit(".", 1)[-1]
            width = min(module.in_features, module.out_features)
            found[name] = min(width, found.get(name, width))
    return found


def _check_precision(network: Any, dtype: torch.dtype, quantization: Quantization) -> None:
    """Raises SurprisingNetwork if a weight has another type, or if nothing was quantized though asked for."""
    for name, parameter in network.named_parameters():
        if parameter.is_floating_point() and parameter.dtype != dtype and quantization != "int8":
            raise SurprisingNetwork(f"{name} was loaded as {parameter.dtype}; {dtype} was asked for")
    if quantization != "none" and not getattr(network, "is_quantized", False):
        raise SurprisingNetwork(f"no layer was quantized; {quantization} was asked for")
