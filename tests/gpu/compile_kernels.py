"""Compiles FlexAttention's kernels, forward and backward, as the pretended card would need them in training,
and tells the shared memory that each takes: `compile_kernels.py HEAD_SIZE:DTYPE …`.
"""

import json
import sys
from dataclasses import asdict, dataclass

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from tests.gpu.generated import Kernel, catch_kernels
from train.prefix_attention import Layout, block_mask, flex_prefix_attention, shared_memory

LAYOUT = Layout(((1000, (60, 70, 33)), (500, (40, 41))))
HEADS, KEY_HEADS = 8, 8


@dataclass(frozen=True)
class Compiled:
    """A kernel in the card's machine code. Sizes in bytes."""

    head_size: int
    dtype: str
    direction: str
    warps: int
    stages: int
    shared_memory: int
    limit: int
    machine_code: int


def train_once(head_size: int, dtype: torch.dtype) -> None:
    """Attention and its gradients on fake tensors, laid out as a model's projections leave them."""
    mask = block_mask(LAYOUT, torch.device("cuda"))
    tokens = mask.shape[-1]
    query, key, value = (
        torch.empty(1, tokens, heads, head_size, dtype=dtype, device="cuda").transpose(1, 2).requires_grad_()
        for heads in (HEADS, KEY_HEADS, KEY_HEADS)
    )
    out, _ = flex_prefix_attention(None, query, key, value, mask, scaling=head_size**-0.5)
    out.sum().backward()


def compiled(kernel: Kernel, head_size: int, dtype: str) -> Compiled:
    heuristics = kernel.load()
    [choice] = heuristics.configs
    binary = heuristics._precompile_config(choice).kernel
    return Compiled(
        head_size,
        dtype,
        "backward" if "backward" in kernel.name else "forward",
        choice.num_warps,
        choice.num_stages,
        binary.metadata.shared,
        shared_memory(torch.device("cuda", 0)),
        len(binary.asm["cubin"]),
    )


def main() -> None:
    caught = catch_kernels(launch=lambda *unused: None)
    found = []
    for case in sys.argv[1:]:
        head_size, dtype = case.split(":")
        caught.clear()
        with FakeTensorMode(allow_non_fake_inputs=True):
            train_once(int(head_size), getattr(torch, dtype))
        found += [compiled(kernel, int(head_size), dtype) for kernel in caught if "_tem_" in kernel.name]
    print(json.dumps({"kernels": [asdict(kernel) for kernel in found]}))


main()
