"""Attention for decoding in which the n candidates of a row share one copy of their prompt's cache.

A decoding step with stock attention reads, and with grouped heads also copies, the whole prompt once for
each candidate. Here the prompt's keys and values are kept once a row: all candidates of a row attend to
them in one product, to their own tokens in another, and the two parts are merged by log-sum-exp, which
gives the softmax over both exactly.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from transformers import AttentionInterface

NAME = "shared_prompt"


class SharedPromptCache:
    """Keys and values of a batch while it is decoded: each row's prompt once, each candidate's own tokens.

    Prompts are (rows, key heads, tokens, head size) a layer, own tokens (candidates, key heads, longest
    answer, head size) in buffers made once, so that a step copies nothing. `rows` and `slots` say for each
    candidate which row it belongs to and which of the row's n places it takes.
    """

    def __init__(
        self,
        keys: list[torch.Tensor],
        values: list[torch.Tensor],
        padding: torch.Tensor,
        n: int,
        longest: int,
    ) -> None:
        """The prompts' keys and values, one tensor a layer; `padding` marks padding, (rows, tokens)."""
        self.n = n
        self.padding = padding
        self.prompt_keys, self.prompt_values = keys, values
        candidates = torch.arange(len(padding) * n, device=padding.device)
        self.rows, self.slots = candidates // n, candidates % n
        shape = (len(candidates), self.prompt_keys[0].shape[1], longest, self.prompt_keys[0].shape[3])
        self.own_keys = [keys.new_empty(shape) for keys in self.prompt_keys]
        self.own_values = [values.new_empty(shape) for values in self.prompt_values]
        self.length = 0  # tokens that each candidate holds of its own

    def add(self, layer: int, key: torch.Tensor, value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Stores the step's keys and values, (candidates, key heads, 1, head size); returns all own ones."""
        self.own_keys[layer][:, :, self.length] = key[:, :, 0]
        self.own_values[layer][:, :, self.length] = value[:, :, 0]
        end = self.length + 1
        return self.own_keys[layer][:, :, :end], self.own_values[layer][:, :, :end]

    def keep(self, places: torch.Tensor) -> None:
        """Keeps these candidates only, and lets go of prompts that no candidate needs any more."""
        self.slots = self.slots[places]
        needed, self.rows = torch.unique(self.rows[places], return_inverse=True)
        self.own_keys = [keys[places] for keys in self.own_keys]
        self.own_values = [values[places] for values in self.own_values]
        if len(needed) < len(self.padding):
            self.prompt_keys = [keys[needed] for keys in self.prompt_keys]
            self.prompt_values = [values[needed] for values in self.prompt_values]
            self.padding = self.padding[needed]


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
    own, own_weight = _part(grouped, *shared_prompt.add(module.layer_idx, key, value), None)
    prompt, prompt_weight = _over_prompts(grouped, module.layer_idx, shared_prompt)
    share = torch.sigmoid(own_weight - prompt_weight).unsqueeze(-1)
    merged = own * share + prompt * (1 - share)
    return merged.view(candidates, 1, heads, size).to(query.dtype), None


def _over_prompts(
    grouped: torch.Tensor, layer: int, cache: SharedPromptCache
) -> tuple[torch.Tensor, torch.Tensor]:
    """The part over the prompts: the candidates of a row are so many more queries to the same keys."""
    _candidates, key_heads, group, size = grouped.shape
    rows = len(cache.padding)
    grid = grouped.new_zeros((rows, cache.n, key_heads, group, size))
    grid[cache.rows, cache.slots] = grouped
    queries = grid.transpose(1, 2).reshape(rows, key_heads, cache.n * group, size)
    out, weight = _part(queries, cache.prompt_keys[layer], cache.prompt_values[layer], cache.padding)
    out = out.view(rows, key_heads, cache.n, group, size).transpose(1, 2)
    weight = weight.view(rows, key_heads, cache.n, group).transpose(1, 2)
    return out[cache.rows, cache.slots], weight[cache.rows, cache.slots]


def _part(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, padding: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention over some of the keys, and the log-sum-exp of its scores, in float32."""
    scores = (query @ key.transpose(2, 3)).float()
    if padding is not None:
        scores = scores.masked_fill(padding[:, None, None, :], -torch.inf)
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
