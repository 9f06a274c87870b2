"""Stand-ins for bitsandbytes' layers, which need data to be made: the same tensors, as far as memory goes."""

from typing import Any

import torch
import torch.nn.functional as F

_PACKED = "is_packed"
"""The attribute of a parameter that bitsandbytes would pack."""


def stored_bytes(parameter: Any, quantization: str) -> int:
    """Of a frozen parameter. NF4: half a byte a weight, a byte for each 64, and a float32 for each 256 of
    these; int8: a byte a weight, and a float32 for each row.
    """
    if not hasattr(parameter, _PACKED):
        return int(parameter.nbytes)
    if quantization == "int8":
        return int(parameter.numel() + 4 * parameter.shape[0])
    blocks = -(-parameter.numel() // 64)
    return int(-(-parameter.numel() // 2) + blocks + 4 * -(-blocks // 256))


def quantize(network: Any, quantization: str) -> None:
    """Makes every linear layer but the head compute as bitsandbytes does, as far as memory goes."""
    kind = _NF4Linear if quantization == "nf4" else _Int8Linear
    for module in network.modules():
        if isinstance(module, torch.nn.Linear) and module is not network.get_output_embeddings():
            module.__class__ = kind
            setattr(module.weight, _PACKED, True)


class _NF4Linear(torch.nn.Linear):
    """Unpacks its weight for every product; PEFT copies what comes out."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return _NF4Product.apply(input, self.weight).clone()


class _Int8Linear(torch.nn.Linear):
    """Quantizes its input; PEFT copies what comes out."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return _Int8Product.apply(input, self.weight).clone()


class _NF4Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, given: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        ctx.weight = weight
        return F.linear(given, torch.empty_like(weight, dtype=given.dtype))

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[Any, ...]:
        return gradients[0] @ torch.empty_like(ctx.weight, dtype=gradients[0].dtype), None


class _Int8Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, given: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        ctx.weight = weight
        ctx.given = given  # bitsandbytes keeps it, though only gradients of weights would need it
        packed = given.to(torch.float16, copy=True).to(torch.int8)
        product = packed.new_empty((*given.shape[:-1], weight.shape[0]), dtype=torch.int32)
        return product.to(given.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[Any, ...]:
        return gradients[0] @ torch.empty_like(ctx.weight, dtype=gradients[0].dtype), None
