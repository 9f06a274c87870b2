"""Attention for decoding in which candidates share one copy of what they have read.

A decoding step with stock attention reads, and with grouped heads also copies, the whole prompt once for
each candidate. Here a README's keys and values are kept once for all candidates of all its rows, the rest of
a prompt once for the candidates of its row. All who share a part attend to it in one product, to their own
tokens in another, and the parts are merged by log-sum-exp, which gives the softmax over all of them exactly.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from transformers import AttentionInterface

NAME = "shared_prompt"


class SharedPart:
    """A part of the prompts, read by several candidates each: READMEs, or what follows them.

    Keys and values are (owners, key heads, tokens, head size) a layer; `padding` marks padding, (owners,
    tokens). `owners` says for each candidate which of them it reads, `slots` which place it takes there.
    """

    def __init__(
        self,
        keys: list[torch.Tensor],
        values: list[torch.Tensor],
        padding: torch.Tensor,
        owners: torch.Tensor,
    ) -> None:
        self.keys, self.values, self.padding, self.owners = keys, values, padding, owners
        self.slots = _places(owners)

    def attend(self, grouped: torch.Tensor, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
        """The candidates of an owner are so many more queries to the same keys."""
        _candidates, key_heads, group, size = grouped.shape
        owners, width = len(self.padding), int(self.slots.max()) + 1
        grid = grouped.new_zeros((owners, width, key_heads, group, size))
        grid[self.owners, self.slots] = grouped
        queries = grid.transpose(1, 2).reshape(owners, key_heads, width * group, size)
        out, weight = _part(queries, self.keys[layer], self.values[layer], self.padding)
        out = out.view(owners, key_heads, width, group, size).transpose(1, 2)
        weight = weight.view(owners, key_heads, width, group).transpose(1, 2)
        return out[self.owners, self.slots], weight[self.owners, self.slots]

    def keep(self, places: torch.Tensor) -> None:
        """Keeps these candidates only, and lets go of owners that none of them needs any more."""
        needed, self.owners = torch.unique(self.owners[places], return_inverse=True)
        self.slots = _places(self.owners)
        if len(needed) < len(self.padding):
            self.keys = [keys[needed] for keys in self.keys]
            self.values = [values[needed] for values in self.values]
            self.padding = self.padding[needed]


class SharedPromptCache:
    """Keys and values of a batch while it is decoded: the parts that are shared, and each candidate's own
    tokens, in buffers (candidates, key heads, longest answer, head size) made once, so that a step copies
    nothing.
    """

    def __init__(self, parts: list[SharedPart], longest: int) -> None:
        self.parts = parts
        keys = parts[0].keys
        shape = (len(parts[0].owners), keys[0].shape[1], longest, keys[0].shape[3])
        self.own_keys = [layer.new_empty(shape) for layer in keys]
        self.own_values = [layer.new_empty(shape) for layer in keys]
        self.length = 0  # tokens that each candidate holds of its own

    def add(self, layer: int, key: torch.Tensor, value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Stores the step's keys and values, (candidates, key heads, 1, head size); returns all own ones."""
        self.own_keys[layer][:, :, self.length] = key[:, :, 0]
        self.own_values[layer][:, :, self.length] = value[:, :, 0]
        end = self.length + 1
        return self.own_keys[layer][:, :, :end], self.own_values[layer][:, :, :end]

    def keep(self, places: torch.Tensor) -> None:
        """Keeps these candidates only."""
        self.own_keys = [keys[places] for keys in self.own_keys]
        self.own_values = [values[places] for values in self.own_values]
        for part in self.parts:
            part.keep(places)


def attend(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float,
    shared_prompt: SharedPromptCache,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """One decoding step of one layer: `query` is (candidates, heads, 1, head size)."""
    candidates, heads, _one, size = query.shape
    key_heads = key.shape[1]
    grouped = query.view(candidates, key_heads, heads // key_heads, size) * scaling
    merged, weight = _part(grouped, *shared_prompt.add(module.layer_idx, key, value), None)
    for part in shared_prompt.parts:
        over, over_weight = part.attend(grouped, module.layer_idx)
        share = torch.sigmoid(weight - over_weight).unsqueeze(-1)
        merged = merged * share + over * (1 - share)
        weight = torch.logaddexp(weight, over_weight)
    return merged.view(candidates, 1, heads, size).to(query.dtype), None


def _places(owners: torch.Tensor) -> torch.Tensor:
    """For each candidate how many before it have the same owner."""
    order = torch.argsort(owners, stable=True)
    counts = torch.bincount(owners)
    firsts = (counts.cumsum(0) - counts)[owners[order]]
    places = torch.empty_like(owners)
    places[order] = torch.arange(len(owners), device=owners.device) - firsts
    return places


def _part(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, padding: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention over some of the keys, and the log-sum-exp of its scores, in float32."""
    unseen = None
    if padding is not None and bool(padding.any()):
        unseen = query.new_zeros(padding.shape).masked_fill_(padding, -torch.inf)[:, None, None, :]
    if query.device.type == "cpu":  # torch's kernel writes no scores out: five times as fast on long READMEs
        wide = None if unseen is None else unseen.expand(-1, 1, query.shape[2], -1)
        out, weight = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
            query, key, value, attn_mask=wide, scale=1.0
        )
        return out.float(), weight
    scores = (query @ key.transpose(2, 3)).float()
    if unseen is not None:
        scores = scores + unseen
    weight = scores.logsumexp(-1)
    shares = torch.exp(scores - weight.unsqueeze(-1)).to(value.dtype)
    return (shares @ value).float(), weight


@contextmanager
def shared_prompt_attention(model: Any) -> Iterator[None]:
    """The model uses `attend` within the block; its calls must then pass `shared_prompt`."""
    AttentionInterface.register(NAME, attend)
    before = model.config._attn_implementation
    model.set_attn_implementation(NAME)
    try:
        yield
    finally:
        model.set_attn_implementation(before)
