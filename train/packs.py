"""Rows that share a README, trained together: their common prefix is read once.

A pack is one prefix and a branch for each row. The prefix's keys and values are computed once and repeated
for the branches, with gradients, so that loss and gradients equal those of separate sequences. With
MiniBench's oracle segments that saves half of the tokens; with whole READMEs it saves nearly all of them.
"""

from dataclasses import dataclass
from typing import Any

import torch
from transformers import Trainer

from train.examples import Example

IGNORED = -100  # the label that the loss skips


@dataclass(frozen=True)
class Pack:
    """Examples whose prompts begin with the same `prefix` tokens; 0 where nothing is shared."""

    prefix: int
    examples: list[Example]

    @property
    def tokens(self) -> int:
        """Tokens that a forward pass computes, padding aside."""
        return self.prefix + sum(len(example.token_ids) - self.prefix for example in self.examples)


def make_packs(examples: list[Example], rows: int, share: bool) -> list[Pack]:
    """Packs of at most `rows` examples; with `share`, of examples with the same README tokens.

    The order is that of the packs' first examples.
    """
    if not share:
        return [Pack(0, examples[start : start + rows]) for start in range(0, len(examples), rows)]
    open_packs: dict[tuple[int, ...], Pack] = {}
    packs = []
    for example in examples:
        prefix = tuple(example.token_ids[: example.prompt.readme_end])
        pack = open_packs.get(prefix)
        if pack is None or len(pack.examples) == rows:
            pack = open_packs[prefix] = Pack(len(prefix), [])
            packs.append(pack)
        pack.examples.append(example)
    return packs


@dataclass(frozen=True)
class PackCollator:
    """A pack as tensors. Branches are padded on the left, so that answers end together and the head runs on
    the last positions only.

    With answers of at most A tokens, `logits_to_keep` is A + 1: the prompt's last token predicts the first
    answer token. At 8,192 tokens this saves the logits of thousands of prompt positions.
    """

    pad_token_id: int

    def __call__(self, packs: list[Pack]) -> dict[str, Any]:
        """input_ids and position_ids (rows, L), attention_mask (rows, prefix + L), labels (rows, A + 1)."""
        [pack] = packs
        branches = [example.token_ids[pack.prefix :] for example in pack.examples]
        length = max(map(len, branches))
        kept = max(len(example.answer_ids) for example in pack.examples) + 1
        input_ids = torch.full((len(branches), length), self.pad_token_id)
        mask = torch.zeros((len(branches), length), dtype=torch.long)
        labels = torch.full((len(branches), kept), IGNORED)
        for row, (branch, example) in enumerate(zip(branches, pack.examples, strict=True)):
            input_ids[row, length - len(branch) :] = torch.tensor(branch)
            mask[row, length - len(branch) :] = 1
            labels[row, kept - len(example.answer_ids) :] = torch.tensor(example.answer_ids)
        batch: dict[str, Any] = {
            "input_ids": input_ids,
            "position_ids": pack.prefix + (mask.cumsum(1) - 1).clamp(min=0),
            "attention_mask": torch.cat([mask.new_ones((len(branches), pack.prefix)), mask], 1),
            "labels": labels,
            "logits_to_keep": kept,
        }
        if pack.prefix:
            batch["prefix_ids"] = torch.tensor([pack.examples[0].token_ids[: pack.prefix]])
        return batch


class PackTrainer(Trainer):
    """transformers' Trainer for packs: reads the prefix, then all branches over its cache."""

    def compute_loss(self, model: Any, inputs: dict[str, Any], *rest: Any, **more: Any) -> Any:
        """The loss of a pack's branches; gradients reach the prefix through its keys and values."""
        prefix_ids = inputs.pop("prefix_ids", None)
        if prefix_ids is not None:
            read = model(input_ids=prefix_ids, use_cache=True, logits_to_keep=1)
            read.past_key_values.batch_repeat_interleave(len(inputs["input_ids"]))
            inputs = {**inputs, "past_key_values": read.past_key_values}
        return super().compute_loss(model, inputs, *rest, **more)
