"""Weights in 4 or 8 bits by bitsandbytes, for training (QLoRA, Dettmers et al. 2023) and sampling."""

from typing import Any, Literal

Quantization = Literal["none", "nf4", "int8"]


def bits_and_bytes(quantization: Quantization, dtype: Any) -> Any:
    """What transformers' `quantization_config` takes for a model that computes in the torch type `dtype`."""
    from transformers import BitsAndBytesConfig  # needs torch, which most users of this package do not

    if quantization == "none":
        return None
    if quantization == "int8":
        return BitsAndBytesConfig(load_in_8bit=True)
    return BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=dtype,
        bnb_4bit_quant_storage=dtype,  # FSDP shards only what has the model's own type
    )
