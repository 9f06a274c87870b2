"""Packs: what goes through the model in one forward pass, and their order over a whole run.

A pack is one sequence of groups: each group's prefix, then its branches, one after another, without padding.
train/prefix_attention.py lets every branch see its own prefix and itself only.

Loss and gradients are those of separate sequences. With dropout on LoRA's inputs or noise on embeddings, that
holds on average over the masks: each row has masks of its own in its branch, but one with its group in the
prefix, so that a single step varies more than one of separate sequences.
"""

import random
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch

from train.examples import Example
from train.groups import Group, make_groups, single_groups
from train.prefix_attention import Layout

IGNORED = -100  # the label that the loss skips

Mixing = Literal["spread", "shuffled"]


@dataclass(frozen=True)
class PackSettings:
    """How large packs are and how they are mixed; the same words as in TrainConfig."""

    batch_size: int
    group_size: int
    pack_tokens: int
    prefix_sharing: bool = True
    mixing: Mixing = "spread"
    seed: int = 0


@dataclass(frozen=True)
class Pack:
    """Groups that are computed in one forward pass. What is not `counted` has no labels: it only keeps a
    process busy while the others compute theirs.
    """

    groups: list[Group]
    counted: bool = True

    @property
    def examples(self) -> list[Example]:
        """The rows, in the order of their branches."""
        return [example for group in self.groups for example in group.examples]

    @property
    def tokens(self) -> int:
        """Tokens that a forward pass computes."""
        return sum(group.tokens for group in self.groups)

    @property
    def layout(self) -> Layout:
        """Who may see whom."""
        return Layout(tuple((group.prefix, group.branches) for group in self.groups))


def epoch_packs(examples: list[Example], settings: PackSettings) -> list[Pack]:
    """Every example once, in packs as full as they get; train/steps.py makes those that are learned from."""
    groups = groups_of(examples, settings, random.Random(settings.seed))
    return _filled(groups, settings.batch_size, settings.pack_tokens)


def groups_of(examples: list[Example], settings: PackSettings, chance: random.Random) -> list[Group]:
    """The examples as groups, or each by itself without prefix sharing."""
    if not settings.prefix_sharing:
        return single_groups(examples, chance)
    rows = min(settings.group_size, settings.batch_size)
    return make_groups(examples, rows, settings.pack_tokens, chance)


def padded(packs: list[Pack], multiple: int) -> list[Pack]:
    """As many packs for every process: the last round is filled with packs that do not count."""
    missing = -len(packs) % multiple
    return (
        packs + [idle_pack([row for pack in packs for row in pack.examples])] * missing if missing else packs
    )


def idle_pack(examples: list[Example]) -> Pack:
    """The cheapest pack that keeps a process busy: the shortest row, without its README."""
    row = min(examples, key=lambda row: len(row.prompt.rest) + len(row.answer_ids))
    short = replace(row, prompt=replace(row.prompt, readme_end=0))
    return Pack([Group(0, [short])], counted=False)


def _filled(groups: list[Group], rows: int, tokens: int) -> list[Pack]:
    packs: list[Pack] = []
    for group in groups:
        last = packs[-1] if packs else None
        if last and len(last.examples) + len(group.examples) <= rows and last.tokens + group.tokens <= tokens:
            last.groups.append(group)
        else:
            packs.append(Pack([group]))
    return packs


def collate(packs: list[Pack]) -> dict[str, Any]:
    """One pack as tensors: input_ids and position_ids (1, T), and for the A answer tokens their labels (A)
    and the positions (A) that predict them, which are all that the model's head is needed for.
    """
    [pack] = packs
    ids: list[int] = []
    positions: list[int] = []
    predicting: list[int] = []
    labels: list[int] = []
    for group in pack.groups:
        ids += group.examples[0].token_ids[: group.prefix]
        positions += range(group.prefix)
        for example in group.examples:
            ids += example.token_ids[group.prefix :]
            positions += range(group.prefix, len(example))
            answer = len(example.answer_ids)
            predicting += range(len(ids) - answer - 1, len(ids) - 1)
            labels += example.answer_ids if pack.counted else [IGNORED] * answer
    return {
        "input_ids": torch.tensor([ids]),
        "position_ids": torch.tensor([positions]),
        "logits_to_keep": torch.tensor(predicting),
        "labels": torch.tensor(labels),
        "layout": pack.layout,
    }
