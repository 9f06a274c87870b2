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
from functools import cache
from itertools import accumulate
from typing import Any

import numpy as np
import torch
from torch._dynamo.exc import FailOnRecompileLimitHit
from torch.nn.attention.flex_attention import BlockMask, flex_attention
from transformers import AttentionInterface

from mlbench_data.bad_input import JobFailed

NAME = "shared_prefix"
GPU_NAME = "shared_prefix_flex"
BLOCK = 128
"""Positions that FlexAttention skips, masks or takes whole at a time; its own choice."""
MOST_SHARED_MEMORY = 160 * 1024
"""Bytes for a block of threads that inductor's choices count on, as on an A100 and its successors. RTX, A10,
L4 and L40S have 99 KiB.
"""
LEAST_SHARED_MEMORY = 99 * 1024


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
    spans = _Spans.of(layout)
    tables = (spans.group_start, spans.prefix_end, spans.start)
    group_start, prefix_end, start = (
        torch.from_numpy(table.repeat(spans.length)).to(device) for table in tables
    )

    # Only the query's place is looked up, in 32 bits: what a kernel looks up for keys, too, it keeps in the
    # shared memory that it is short of.
    def mask(batch: Any, head: Any, query: Any, key: Any) -> Any:
        own_or_prefix = (key >= start[query]) | (key < prefix_end[query])
        return (key <= query) & (key >= group_start[query]) & own_or_prefix

    return mask


def block_mask(layout: Layout, device: torch.device) -> BlockMask:
    """FlexAttention's mask of a layout, the same as `create_block_mask` finds by asking `may_see` about all
    T x T pairs, from the number of pairs that see each other in each pair of blocks.
    """
    spans = _Spans.of(layout)
    tokens = int(spans.length.sum())
    block_start = np.arange(0, tokens, BLOCK)[:, None]

    def overlap(start: Any, end: Any) -> Any:
        inside = np.minimum(end, block_start + BLOCK) - np.maximum(start, block_start)
        return inside.clip(0).astype(np.float32)  # exact: a pair of blocks has 2^14 pairs at most

    own = overlap(spans.start, spans.start + spans.length)
    over_prefix = own @ overlap(spans.group_start, np.minimum(spans.prefix_end, spans.start)).T
    causal = np.tril(own @ own.T, -1) + np.diag((own * (own + 1) / 2).sum(1))
    pairs = over_prefix + causal
    full = pairs == BLOCK * BLOCK
    ordered: Any = [*_ordered(~full & (pairs > 0)), *_ordered(full)]
    masked_count, masked, whole_count, whole = (
        torch.from_numpy(table)[None, None].to(device) for table in ordered
    )
    return BlockMask.from_kv_blocks(
        masked_count,
        masked,
        whole_count,
        whole,
        BLOCK_SIZE=BLOCK,
        mask_mod=may_see(layout, device),
        seq_lengths=(tokens, tokens),
    )


def _ordered(blocks: Any) -> tuple[Any, Any]:
    """Of each row how many blocks are asked for, and all of its columns, those asked for first."""
    columns = np.argsort(~blocks, axis=1, kind="stable")
    return blocks.sum(1, dtype=np.int32), columns.astype(np.int32)


@dataclass(frozen=True)
class _Spans:
    """Every prefix and branch of a layout: its length, its start, and where its group and the group's prefix
    start and end. Arrays of 32-bit integers.
    """

    length: Any
    start: Any
    group_start: Any
    prefix_end: Any

    @classmethod
    def of(cls, layout: Layout) -> "_Spans":
        spans = []
        start = 0
        for prefix, branches in layout.groups:
            group_start = start
            for length in (prefix, *branches):
                spans.append((length, start, group_start, group_start + prefix))
                start += length
        return cls(*np.array(spans, dtype=np.int32).T)


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
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: BlockMask,
    scaling: float,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    **rest: Any,
) -> tuple[torch.Tensor, None]:
    """The same by FlexAttention, from a pack's `block_mask`. Raises JobFailed where it would be computed
    without the fused kernel, which holds all T x T scores.
    """
    if dropout or sliding_window:
        raise ValueError("shared_prefix attention has neither dropout nor sliding windows")
    # Under autocast rotated queries and keys stay in float32, which the kernel does not take beside values in
    # bfloat16.
    rotated = query.to(value.dtype), key.to(value.dtype)
    options = kernel_options(shared_memory(value.device), value.dtype) if value.is_cuda else {}
    try:
        out = _compiled()(*rotated, value, attention_mask, scaling, options)
    except FailOnRecompileLimitHit as error:
        limit = torch._dynamo.config.recompile_limit
        raise JobFailed(
            f"FlexAttention was compiled for {limit} kinds of packs and here is one more; start again, which "
            "goes on from the last checkpoint, and if it happens again tell what TORCH_LOGS=recompiles prints"
        ) from error
    return out.transpose(1, 2).contiguous(), None


def kernel_options(shared_memory: int, dtype: torch.dtype) -> dict[str, Any]:
    """FlexAttention's kernel for a card with `shared_memory` bytes for a block of threads: inductor's choice,
    with blocks that fit; heads of 128 and 64 were compiled for each kind of card (tests/gpu). Raises
    JobFailed for a card that is too small.
    """
    if shared_memory < LEAST_SHARED_MEMORY:
        raise JobFailed(
            f"this GPU gives a block of threads {shared_memory} bytes of shared memory, and FlexAttention "
            f"needs {LEAST_SHARED_MEMORY}; use one of compute capability 8.0 or newer"
        )
    # One kernel for all lengths: packs of less than 128 tokens would get another, made for decoding.
    options: dict[str, Any] = {"FORCE_USE_FLEX_ATTENTION": True}
    if shared_memory < MOST_SHARED_MEMORY:
        options["fwd_num_stages"] = 2
        if dtype == torch.float32:
            options["fwd_BLOCK_M"] = 64
    return options


@cache
def shared_memory(device: torch.device) -> int:
    """Bytes that a block of threads may have on a GPU."""
    properties: Any = torch.cuda.get_device_properties(device)
    return int(properties.shared_memory_per_block_optin)


@cache
def _compiled() -> Any:
    return torch.compile(_fused, dynamic=True, fullgraph=True)


def _fused(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: BlockMask, scaling: float, options: Any
) -> Any:
    if not torch.compiler.is_dynamo_compiling():
        raise JobFailed("FlexAttention is not compiled (TORCH_COMPILE_DISABLE is set?)")
    return flex_attention(
        query, key, value, block_mask=mask, scale=scaling, enable_gqa=True, kernel_options=options
    )


AttentionInterface.register(NAME, shared_prefix_attention)
AttentionInterface.register(GPU_NAME, flex_prefix_attention)
