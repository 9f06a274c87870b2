"""Packs: what goes through the model in one forward pass, and their order over a whole run.

A pack is one sequence of groups: each group's prefix, then its branches, one after another, without padding.
train/prefix_attention.py lets every branch see its own prefix and itself only.
"""

import math
import random
from dataclasses import dataclass
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


def training_packs(
    examples: list[Example], settings: PackSettings, epochs: float, most: int | None = None
) -> list[Pack]:
    """The packs of a whole run in their order: of `epochs`, or the first `most`, whatever the epochs.

    Every epoch groups and mixes anew, by seed and epoch; the last one may be a part of one.
    """
    packs: list[Pack] = []
    epoch = 0
    while len(packs) < most if most is not None else epoch < epochs:
        made = epoch_packs(examples, settings, epoch)
        share = 1.0 if most is not None else min(1.0, epochs - epoch)
        packs += made[: math.ceil(round(len(made) * share, 6))]
        epoch += 1
    return packs[:most]


def epoch_packs(examples: list[Example], settings: PackSettings, epoch: int = 0) -> list[Pack]:
    """Every example once."""
    chance = random.Random(f"{settings.seed} {epoch}")
    if settings.prefix_sharing:
        rows = min(settings.group_size, settings.batch_size)
        groups = make_groups(examples, rows, settings.pack_tokens, chance)
    else:
        groups = single_groups(examples, chance)
    mixed = spread(groups, chance) if settings.mixing == "spread" else chance.sample(groups, len(groups))
    return _filled(mixed, settings.batch_size, settings.pack_tokens)


def spread(groups: list[Group], chance: random.Random) -> list[Group]:
    """The groups with those of one repository evenly over the epoch, at places that `chance` shifts."""
    by_repository: dict[str, list[Group]] = {}
    for group in chance.sample(groups, len(groups)):
        by_repository.setdefault(group.examples[0].prompt.row.repository, []).append(group)
    placed = [
        ((place + chance.random()) / len(alike), group)
        for alike in by_repository.values()
        for place, group in enumerate(alike)
    ]
    return [group for _, group in sorted(placed, key=lambda pair: pair[0])]


def padded(packs: list[Pack], processes: int) -> list[Pack]:
    """As many packs for every process: the last round is filled with packs that do not count."""
    missing = -len(packs) % processes
    return packs + [Pack(packs[0].groups[:1], counted=False)] * missing


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
