"""Attention for packs: branches see their group's prefix and themselves, and nothing is computed twice.

A pack is one sequence of T tokens. A masked attention over all of it would compute T x T scores, most of them
to throw away, outside the fast kernels. Here, on a CPU, every part that is dense or causal goes through
torch's flash kernel by itself: each prefix, each branch, and all branches of a group over their prefix in
one call that copies no key. The two halves of a branch's attention are merged by their log-sum-exp, and the
backward pass gives each kernel the merged result, which makes its gradients exact (as ring attention does,
Liu et al. 2023). On a GPU, FlexAttention computes the same from `may_see`.

Importing this module registers the attention with transformers under NAME; models stay as they are.
"""

from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch
from transformers import AttentionInterface
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

NAME = "shared_prefix"
GPU_NAME = "shared_prefix_flex"


@dataclass(frozen=True)
class Layout:
    """For each group of a pack the tokens of its prefix, and those of its branches."""

    groups: tuple[tuple[int, tuple[int, ...]], ...]

    def segments(self) -> list[slice]:
        """Every prefix and every branch: each is causal in itself."""
        lengths = [length for prefix, branches in self.groups for length in (prefix, *branches)]
        ends = list(accumulate(lengths))
        return [slice(end - length, end) for end, length in zip(ends, lengths, strict=True) if length]

    def bridges(self) -> list[tuple[slice, slice]]:
        """For each group with a prefix its branches, all together, and the prefix that they see."""
        found = []
        start = 0
        for prefix, branches in self.groups:
            middle, end = start + prefix, start + prefix + sum(branches)
            if prefix:
                found.append((slice(middle, end), slice(start, middle)))
            start = end
        return found


def may_see(layout: Layout, device: torch.device) -> Any:
    """FlexAttention's mask function of a layout: whether a query position may see a key position."""
    group, branch = [], []  # of every position; a prefix is branch 0
    for number, (prefix, branches) in enumerate(layout.groups):
        for place, length in enumerate((prefix, *branches)):
            group += [number] * length
            branch += [place] * length
    groups = torch.tensor(group, device=device)
    places = torch.tensor(branch, device=device)

    def mask(batch: Any, head: Any, query: Any, key: Any) -> Any:
        same_branch = (places[query] == places[key]) | (places[key] == 0)
        return (query >= key) & (groups[query] == groups[key]) & same_branch

    return mask


def shared_prefix_attention(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: None,
    scaling: float,
    dropout: float = 0.0,
    layout: Layout | None = None,
    sliding_window: int | None = None,
    **rest: Any,
) -> tuple[torch.Tensor, None]:
    """transformers' attention function: query (1, heads, T, D), key and value (1, key heads, T, D), already
    rotated, give (1, T, heads, D). Raises ValueError for what it does not compute.
    """
    if layout is None:
        raise ValueError("shared_prefix attention needs the pack's layout; the model does not pass it on")
    if dropout or sliding_window:
        raise ValueError("shared_prefix attention has neither dropout nor sliding windows")
    return _SplitAttention.apply(query, key, value, layout, scaling).transpose(1, 2), None


class _SplitAttention(torch.autograd.Function):
    """(1, heads, T, D) in and out. The key heads take the batch's place in the kernels, so that heads which
    share a key need no copy of it.
    """

    @staticmethod
    def forward(
        ctx: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, layout: Layout, scaling: float
    ) -> torch.Tensor:
        queries, keys, values = _by_key_head(query, key, value)
        out = torch.empty_like(queries)
        lse = queries.new_empty(queries.shape[:3], dtype=torch.promote_types(queries.dtype, torch.float32))
        for own in layout.segments():
            out[:, :, own], lse[:, :, own] = _attend(queries, keys, values, own, own, True, scaling)
        for branches, prefix in layout.bridges():
            over, over_lse = _attend(queries, keys, values, branches, prefix, False, scaling)
            mine, mine_lse = out[:, :, branches], lse[:, :, branches]
            merged = torch.logaddexp(mine_lse, over_lse)
            mine.mul_((mine_lse - merged).exp_()[..., None])
            mine.addcmul_(over, (over_lse - merged).exp_()[..., None].to(over.dtype))
            mine_lse.copy_(merged)
        ctx.save_for_backward(query, key, value, out, lse)
        ctx.layout, ctx.scaling = layout, scaling
        return out.reshape(query.shape)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[Any, ...]:
        query, key, value, out, lse = ctx.saved_tensors
        queries, keys, values = _by_key_head(query, key, value)
        gradient = gradients[0].reshape(out.shape)
        for_query = torch.zeros_like(out)
        for_key, for_value = (torch.zeros_like(key[0]) for _ in range(2))
        parts = [(own, own, True) for own in ctx.layout.segments()]
        parts += [(branches, prefix, False) for branches, prefix in ctx.layout.bridges()]
        for asking, asked, causal in parts:
            found = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(
                gradient[:, :, asking],
                queries[:, :, asking],
                keys[:, :, asked],
                values[:, :, asked],
                out[:, :, asking],
                lse[:, :, asking],
                0.0,
                causal,
                scale=ctx.scaling,
            )
            for_query[:, :, asking] += found[0]
            for_key[:, asked] += found[1].sum(1)
            for_value[:, asked] += found[2].sum(1)
        return for_query.reshape(query.shape), for_key[None], for_value[None], None, None


def _attend(
    queries: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    asking: slice,
    asked: slice,
    causal: bool,
    scaling: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Output (key heads, heads per key, L, D) and log-sum-exp (key heads, heads per key, L)."""
    parts = queries[:, :, asking], keys[:, :, asked], values[:, :, asked]
    return torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(*parts, 0.0, causal, scale=scaling)


def _by_key_head(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> list[torch.Tensor]:
    """Views (key heads, heads per key, T, D): a key head is a batch item, seen by its query heads."""
    heads, key_heads = query.shape[1], key.shape[1]
    split = query[0].unflatten(0, (key_heads, heads // key_heads))
    return [split, *(tensor[0][:, None].expand(*split.shape) for tensor in (key, value))]


def flex_prefix_attention(
    module: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attention_mask: Any, **rest: Any
) -> tuple[torch.Tensor, Any]:
    """transformers' FlexAttention with the block mask of a pack. Under autocast rotated queries and keys stay
    in float32, which the kernel does not take beside values in bfloat16.
    """
    rotated = query.to(value.dtype), key.to(value.dtype)
    return ALL_ATTENTION_FUNCTIONS["flex_attention"](module, *rotated, value, attention_mask, **rest)


AttentionInterface.register(NAME, shared_prefix_attention)
AttentionInterface.register(GPU_NAME, flex_prefix_attention)
