"""Runs FlexAttention's kernels as they are generated for the pretended card, in Triton's interpreter, forward
and backward, beside `shared_prefix_attention` in float64, and tells the largest differences:
`TRITON_INTERPRET=1 … interpret_kernels.py HEADS KEY_HEADS HEAD_SIZE DTYPE LAYOUT …`, layouts as JSON.
"""

import json
import sys
from typing import Any

import torch
import triton.language as tl
from torch._inductor.runtime import triton_heuristics
from torch._subclasses.fake_tensor import FakeTensorMode, unset_fake_temporarily
from torch.nn.attention.flex_attention import BlockMask
from triton.runtime.interpreter import InterpreterBuilder

from tests.gpu.generated import Kernel, catch_kernels
from train.prefix_attention import Layout, block_mask, flex_prefix_attention, shared_prefix_attention

ROWS = 64
"""That inductor's sums over the last dimension take at a time; a card would be asked which number is best."""


class Twins(FakeTensorMode):
    """Fake tensors on the card, and their data. The compiled code sees the former, its kernels compute on the
    latter. What torch itself would copy on the card has no data: NaN in the results would tell.
    """

    def __init__(self) -> None:
        super().__init__(allow_non_fake_inputs=True)
        self.data: dict[int, torch.Tensor] = {}
        self.alive: list[torch.Tensor] = []  # so that an address means one tensor

    def on_card(self, real: torch.Tensor) -> torch.Tensor:
        """A fake tensor on the card with the data of a real one."""
        with self:
            fake = torch.empty_strided(real.shape, real.stride(), dtype=real.dtype, device="cuda")
        with unset_fake_temporarily():
            self.real(fake).copy_(real.detach())
        return fake.requires_grad_(real.requires_grad)

    def real(self, fake: torch.Tensor) -> torch.Tensor:
        """The data of a fake tensor, New memory holds NaN, or a number far from any index."""
        storage = fake.untyped_storage()
        with unset_fake_temporarily():
            if storage._cdata not in self.data:
                junk = float("nan") if fake.dtype.is_floating_point else 2**30
                size = storage.nbytes() // fake.itemsize
                self.data[storage._cdata] = torch.full((size,), junk, dtype=fake.dtype)
                self.alive.append(fake)
            flat = self.data[storage._cdata]
            return flat.as_strided(fake.shape, fake.stride(), fake.storage_offset())

    def launch(self, kernel: Kernel, *arguments: Any) -> None:
        """Runs a kernel on the data, as a card would with its grid."""
        given = [self.real(each) if isinstance(each, torch.Tensor) else each for each in arguments]
        function = kernel.load()
        with unset_fake_temporarily():
            if "_tem_" in kernel.name:
                function[tuple(given[-3:])](*given[:-3])
            else:
                rows, columns = given[-2:]
                blocks = {"XBLOCK": ROWS, "R0_BLOCK": columns}
                named = {name: blocks[name] for name in function.arg_names if name in blocks}
                function[(-(-rows // ROWS),)](*given, **named)


def compare(
    layout: Layout, heads: int, key_heads: int, head_size: int, dtype: torch.dtype, twins: Twins
) -> dict[str, Any]:
    tokens = sum(prefix + sum(branches) for prefix, branches in layout.groups)
    torch.manual_seed(0)
    given = [
        torch.randn(1, tokens, count, head_size).to(dtype).transpose(1, 2).requires_grad_()
        for count in (heads, key_heads, key_heads)
    ]
    direction = torch.randn(1, heads, tokens, head_size).to(dtype).transpose(1, 2)
    scaling = head_size**-0.5

    exact = [tensor.detach().double().requires_grad_() for tensor in given]
    out_and_weights: Any = shared_prefix_attention
    wanted, _ = out_and_weights(None, *exact, None, scaling=scaling, layout=layout)
    wanted_gradients = torch.autograd.grad(wanted, exact, direction.double())

    tables: Any
    tables, rest = block_mask(layout, torch.device("cpu"))._flatten()
    mask = BlockMask._unflatten(tuple(map(twins.on_card, tables)), rest)
    query, key, value = (twins.on_card(tensor) for tensor in given)
    with twins:
        out, _ = flex_prefix_attention(None, query, key, value, mask, scaling=scaling)
        gradients = torch.autograd.grad(out, (query, key, value), twins.on_card(direction))
        with torch.no_grad():
            evaluated, _ = flex_prefix_attention(None, query, key, value, mask, scaling=scaling)

    pairs = zip((out, evaluated, *gradients), (wanted, wanted, *wanted_gradients), strict=True)
    names = ("out", "out without gradients", "query", "key", "value")
    return {
        name: ((twins.real(found.detach()) - right).abs().max() / right.abs().max()).item()
        for name, (found, right) in zip(names, pairs, strict=True)
    }


def interpret_bfloat16() -> None:
    """Triton's interpreter keeps bfloat16 as 16-bit integers, which its matrix product takes for numbers."""
    product = InterpreterBuilder.create_dot

    def exact(builder: Any, left: Any, right: Any, *rest: Any) -> Any:
        floats = [
            builder.cast_impl(each, tl.block_type(tl.float32, list(each.data.shape)))
            if each.dtype.scalar == tl.bfloat16
            else each
            for each in (left, right)
        ]
        return product(builder, *floats, *rest)

    InterpreterBuilder.create_dot = exact


def main() -> None:
    interpret_bfloat16()
    heads, key_heads, head_size = map(int, sys.argv[1:4])
    dtype = getattr(torch, sys.argv[4])
    for name in ("template", "reduction", "persistent_reduction"):
        setattr(triton_heuristics, name, lambda *unused, **more: lambda function: function)
    twins = Twins()
    caught = catch_kernels(twins.launch)
    found = []
    for text in sys.argv[5:]:
        layout = Layout(tuple((prefix, tuple(branches)) for prefix, branches in json.loads(text)))
        found.append(compare(layout, heads, key_heads, head_size, dtype, twins))
    print(json.dumps({"errors": found, "kernels": [kernel.name for kernel in caught]}))


main()
