"""Optimizer steps: which rows are learned from together, and in what order over a whole run.

A step that reads one README learns less than one that mixes many, and a README is cheap only if many of its
rows are computed at once. So a step takes a group of rows from each of many READMEs: the groups of an epoch
are dealt to its steps like cards, one README after another.
"""

import math
import random
from collections import Counter
from dataclasses import dataclass

from train.examples import Example
from train.groups import Group
from train.packs import Pack, PackSettings, groups_of, idle_pack

Step = list[Pack]

GOLDEN = (math.sqrt(5) - 1) / 2
"""Multiples of the golden section fall evenly on a circle, however many of them there are."""


@dataclass(frozen=True)
class Card:
    """A group to be dealt, and the READMEs in it: one, or several that begin alike. A step gets no more cards
    with a README than its share.
    """

    group: Group
    readmes: frozenset[int]
    rows: int
    tokens: int


def training_steps(
    examples: list[Example], settings: PackSettings, packs: int, epochs: float, most: int | None = None
) -> list[Step]:
    """The steps of a whole run in their order, of exactly `packs` packs each: of `epochs`, or the first
    `most`, whatever the epochs.

    Every epoch groups and mixes anew, by seed and epoch; the last one may be a part of one.
    """
    steps: list[Step] = []
    epoch = 0
    while len(steps) < most if most is not None else epoch < epochs:
        made = epoch_steps(examples, settings, packs, epoch)
        share = 1.0 if most is not None else min(1.0, epochs - epoch)
        steps += made[: math.ceil(round(len(made) * share, 6))]
        epoch += 1
    idle = idle_pack(examples)
    return [step + [idle] * (packs - len(step)) for step in steps[:most]]


def epoch_steps(examples: list[Example], settings: PackSettings, packs: int, epoch: int = 0) -> list[Step]:
    """Every example once, in as few steps of at most `packs` packs as their rows and tokens allow.

    Spread: a README of n groups has at most ceil(n / steps) in each step, and its steps lie evenly over the
    epoch; so do those of a repository. Shuffled: by chance alone.
    """
    chance = random.Random(f"{settings.seed} {epoch}")
    groups = groups_of(examples, settings, chance)
    spread = settings.mixing == "spread"
    cards = _by_readme(groups, chance) if spread else _shuffled(groups, chance)
    dealt = _dealt_to_fewest(cards, settings, packs)
    begin = chance.random()
    order = sorted(range(len(dealt)), key=lambda number: (begin + number * GOLDEN) % 1)
    return [dealt[number] for number in order]


def readme_of(example: Example) -> bytes:
    """Which README, window or segment a row reads: rows of the same one share it."""
    return example.prompt.start.tobytes()


def _by_readme(groups: list[Group], chance: random.Random) -> list[Card]:
    """Repositories in an order by chance, the READMEs of each together, and the groups of each README."""
    order: dict[str, dict[int, list[Card]]] = {}
    numbers: dict[bytes, int] = {}
    for group in chance.sample(groups, len(groups)):
        found = [numbers.setdefault(readme_of(row), len(numbers)) for row in group.examples]
        of_repository = order.setdefault(group.examples[0].prompt.row.repository, {})
        of_repository.setdefault(found[0], []).append(_card(group, found))
    return [card for readmes in order.values() for cards in readmes.values() for card in cards]


def _shuffled(groups: list[Group], chance: random.Random) -> list[Card]:
    """In an order by chance, and any of them in any step."""
    return [_card(group, []) for group in chance.sample(groups, len(groups))]


def _card(group: Group, readmes: list[int]) -> Card:
    return Card(group, frozenset(readmes), len(group.examples), group.tokens)


def _dealt_to_fewest(cards: list[Card], settings: PackSettings, packs: int) -> list[Step]:
    """The cards dealt to the smallest number of steps that holds them."""
    steps = max(1, math.ceil(sum(card.rows for card in cards) / (settings.batch_size * packs)))
    while (dealt := _dealt(cards, steps, settings, packs)) is None:
        steps += 1
    return dealt


def _dealt(cards: list[Card], steps: int, settings: PackSettings, packs: int) -> list[Step] | None:
    """Each card to the next step that has room for it and not yet its share of the README; None if a card
    finds none.
    """
    count = Counter(readme for card in cards for readme in card.readmes)
    share = {readme: math.ceil(number / steps) for readme, number in count.items()}
    hands: list[list[Card]] = [[] for _ in range(steps)]
    held: list[Counter[int]] = [Counter() for _ in range(steps)]
    turn = 0
    for card in cards:
        for place in (*range(turn, steps), *range(turn)):
            fair = all(held[place][readme] < share[readme] for readme in card.readmes)
            if fair and _packed([*hands[place], card], settings, packs):
                break
        else:
            return None
        hands[place].append(card)
        held[place].update(card.readmes)
        turn = (place + 1) % steps
    return [_packed(hand, settings, packs) or [] for hand in hands]


def _packed(cards: list[Card], settings: PackSettings, packs: int) -> Step | None:
    """At most `packs` packs, as even in tokens as they come, the largest first: processes that compute side
    by side wait for each other. None if the cards do not fit. A group too long for a pack goes alone.
    """
    if sum(card.rows for card in cards) > packs * settings.batch_size:
        return None
    piles: list[list[Card]] = [[] for _ in range(packs)]
    rows, tokens = [0] * packs, [0] * packs

    def has_room(place: int, card: Card) -> bool:
        fits = rows[place] + card.rows <= settings.batch_size
        return not piles[place] or (fits and tokens[place] + card.tokens <= settings.pack_tokens)

    for card in sorted(cards, key=lambda card: (-card.rows, -card.tokens)):
        open_places = [place for place in range(packs) if has_room(place, card)]
        if not open_places:
            return None
        place = min(open_places, key=tokens.__getitem__)
        piles[place].append(card)
        rows[place] += card.rows
        tokens[place] += card.tokens
    order = sorted(range(packs), key=lambda place: -tokens[place])
    return [Pack([card.group for card in piles[place]]) for place in order if piles[place]]
