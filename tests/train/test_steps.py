"""Optimizer steps: each mixes many READMEs, every row is learned from once, sharing saves what it should."""

import math
import random
from array import array
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from mlbench_data.bad_input import BadInput
from mlbench_data.budget import Cut
from mlbench_data.prompts import Prompt
from mlbench_data.rows import BASH, Row
from train.config import TrainConfig, check_config, step_size
from train.examples import Example
from train.packs import PackSettings
from train.plan import make_plan, step_lines, why_not_mixed
from train.steps import Step, epoch_steps, readme_of, training_steps

MOST = 100_000  # tokens: no limit here


def rows_of(readmes: dict[str, int], tokens: int = 60, branch: int = 20) -> list[Example]:
    """So many rows for each README of `tokens` tokens, in an order by chance; a row's own are `branch`."""
    chance = random.Random(0)
    made = []
    for number, (name, count) in enumerate(readmes.items(), 1):
        start = array("i", [number] * tokens)
        for place in range(count):
            row = Row(number, f"hub/{name}", number, place, "", "{}", "", "", BASH, "", "ls")
            rest = array("i", [1000 + place] * (branch - 2))
            made.append(Example(Prompt(row, start, tokens, rest, Cut(tokens, tokens)), [7, 8]))
    return chance.sample(made, len(made))


def even(count: int, rows: int) -> dict[str, int]:
    return {f"r{number}": rows for number in range(count)}


def shares(steps: list[Step]) -> list[float]:
    """The largest share that one README has of each step."""
    counts = [
        Counter(readme_of(row) for pack in step for row in pack.examples if pack.counted) for step in steps
    ]
    return [max(count.values()) / count.total() for count in counts]


def learned(steps: list[Step]) -> Counter[int]:
    return Counter(id(row) for step in steps for pack in step if pack.counted for row in pack.examples)


@pytest.mark.parametrize("packs", [1, 2, 8])
def test_no_readme_has_more_of_a_step_than_its_share(packs: int) -> None:
    """Eight groups of four rows a step, in however many packs."""
    examples = rows_of(even(10, 32))
    settings = PackSettings(32 // packs, 4, MOST)
    steps = epoch_steps(examples, settings, packs)
    assert len(steps) == 10
    assert max(shares(steps)) == 1 / 8
    assert learned(steps) == Counter(map(id, examples))


def test_a_readme_with_most_of_the_rows_is_in_every_step_alike() -> None:
    """It has 96 of 192 rows, so half of each step and no more."""
    steps = epoch_steps(rows_of({"large": 96, **even(6, 16)}), PackSettings(4, 4, MOST), 8)
    assert len(steps) == 6
    assert set(shares(steps)) == {0.5}


def test_groups_of_all_sizes_are_learned_from_once_and_within_bounds() -> None:
    chance = random.Random(1)
    examples = rows_of({f"r{number}": chance.randint(1, 40) for number in range(30)})
    settings = PackSettings(8, 4, 400)
    steps = epoch_steps(examples, settings, 4)
    assert learned(steps) == Counter(map(id, examples))
    for pack in (pack for step in steps for pack in step):
        assert len(pack.examples) <= 8
        assert pack.tokens <= 400
    rows = [sum(len(pack.examples) for pack in step) for step in steps]
    assert len(steps) <= 1.1 * len(examples) / 32 + 1
    assert min(rows) >= 16
    held = [Counter(readme_of(group.examples[0]) for pack in step for group in pack.groups) for step in steps]
    groups = sum(held, Counter[bytes]())
    assert all(count <= math.ceil(groups[name] / len(steps)) for step in held for name, count in step.items())


def test_a_row_that_is_too_long_for_a_pack_goes_alone_and_costs_no_other_step() -> None:
    examples = rows_of({"long": 1, **even(8, 16)})
    long = [
        replace(row, answer_ids=[7] * 500) if row.prompt.row.repository == "long" else row for row in examples
    ]
    steps = epoch_steps(long, PackSettings(4, 4, 200), 8)
    assert len(steps) == 5
    [alone] = [pack for step in steps for pack in step if pack.tokens > 200]
    assert len(alone.examples) == 1


@pytest.mark.parametrize("batch", [1, 4])
def test_spread_puts_each_repository_evenly_over_the_epoch(batch: int) -> None:
    examples = rows_of({"a": 80, "b": 40, "c": 24, "d": 16})
    steps = epoch_steps(examples, PackSettings(batch, 1, MOST, prefix_sharing=False), 1)
    order = [row.prompt.row.repository for step in steps for pack in step for row in pack.examples]
    for name, count in Counter(order).items():
        quarters = [order[start : start + 40].count(name) for start in range(0, 160, 40)]
        assert max(quarters) - min(quarters) <= 2, (name, count, quarters)


def test_shuffled_is_by_chance_alone() -> None:
    examples = rows_of(even(8, 32))
    settings = PackSettings(4, 4, MOST, mixing="shuffled")
    steps = epoch_steps(examples, settings, 8)
    assert learned(steps) == Counter(map(id, examples))
    assert max(shares(steps)) > 1 / 8


def test_the_order_is_decided_by_seed_and_epoch() -> None:
    examples = rows_of(even(9, 12))

    def order(seed: int, epoch: int) -> list[list[int]]:
        steps = epoch_steps(examples, PackSettings(4, 4, MOST, seed=seed), 4, epoch)
        return [[id(row) for pack in step for row in pack.examples] for step in steps]

    assert order(0, 0) == order(0, 0)
    assert order(0, 0) != order(1, 0)
    assert order(0, 0) != order(0, 1)


@pytest.mark.parametrize(
    ("epochs", "most", "expected"), [(2.0, None, 18), (0.5, None, 5), (1.0, 4, 4), (1.0, 11, 11)]
)
def test_a_run_has_its_epochs_or_its_steps(epochs: float, most: int | None, expected: int) -> None:
    examples = rows_of(even(9, 16))
    steps = training_steps(examples, PackSettings(4, 4, MOST), 4, epochs, most)
    assert len(steps) == expected
    if epochs == 2.0:
        assert set(learned(steps).values()) == {2}


def test_every_step_has_as_many_packs_and_those_that_only_pad_are_short() -> None:
    """All processes compute as many packs in each step. A README of 7,000 tokens is none to pad with."""
    examples = rows_of(even(5, 4), tokens=7000)
    steps = training_steps(examples, PackSettings(4, 4, MOST), 8, 1.0)
    assert {len(step) for step in steps} == {8}
    assert learned(steps) == Counter(map(id, examples))
    idle = [pack for step in steps for pack in step if not pack.counted]
    assert idle
    assert max(pack.tokens for pack in idle) == 20


@pytest.mark.parametrize(("prefixes", "rows", "formula"), [(4, 32, 15.47), (8, 16, 10.55), (16, 8, 6.44)])
def test_tokens_saved_are_what_arithmetic_says(prefixes: int, rows: int, formula: float) -> None:
    """READMEs of 7,000 tokens and branches of 250, of which 128 rows make a step."""
    examples = rows_of(even(16, 64), tokens=7000, branch=250)
    config = TrainConfig(task=1, batch_size=rows, prefixes_per_step=prefixes, answer_tokens=512)
    mixture = make_plan(config, examples, 1).mixture()
    assert rows * 7250 / (7000 + rows * 250) == pytest.approx(formula, abs=0.01)
    assert mixture.tokens_saved == pytest.approx(formula, rel=0.05)
    assert mixture.rows == 128
    assert mixture.readmes == prefixes
    assert mixture.largest_share == 1 / prefixes
    assert mixture.idle_packs == 0


@pytest.mark.parametrize(("gpus", "rows"), [(1, 128), (2, 128), (4, 128), (8, 128), (16, 256)])
def test_a_recipes_step_is_the_same_on_any_number_of_gpus(gpus: int, rows: int) -> None:
    """But one of a pass on each GPU, if there are more GPUs than READMEs in a step; the plan says so."""
    config = TrainConfig(task=1, batch_size=16, prefixes_per_step=8)
    plan = make_plan(config, rows_of(even(16, 64)), gpus)
    assert plan.mixture().rows == rows
    assert plan.packs_per_step == max(8, gpus)


def test_one_process_learns_from_the_same_rows_a_step_as_several() -> None:
    examples = rows_of(even(9, 20))
    config = TrainConfig(task=1)
    one, four = (make_plan(config, examples, processes) for processes in (1, 4))
    assert [set(map(id, step)) for step in one.rows_of_steps()] == [
        set(map(id, step)) for step in four.rows_of_steps()
    ]


@pytest.mark.parametrize(
    ("given", "processes", "expected"),
    [
        ({}, 1, (4, 8)),
        ({"batch_size": 16}, 4, (16, 2)),
        ({"batch_size": 16, "group_size": 8, "prefixes_per_step": 16}, 4, (8, 2)),
        ({"batch_size": 8, "gradient_accumulation": 1, "prefixes_per_step": 4}, 1, (2, 1)),
        ({"batch_size": 4, "gradient_accumulation": 4}, 1, (2, 4)),
        ({"batch_size": 4, "gradient_accumulation": 2}, 2, (2, 2)),
        ({"batch_size": 4, "gradient_accumulation": 1}, 1, (1, 1)),
        ({"batch_size": 8, "group_size": 2, "gradient_accumulation": 3}, 1, (2, 3)),
        ({"batch_size": 4, "group_size": 32}, 1, (4, 8)),
    ],
)
def test_what_is_not_given_follows_from_prefixes_per_step(
    given: dict[str, Any], processes: int, expected: tuple[int, int]
) -> None:
    """The group size, and the forward passes of each device."""
    size = step_size(TrainConfig(**given), processes)
    assert (size.group_size, size.accumulation) == expected


def test_a_step_must_mix_at_least_one() -> None:
    with pytest.raises(BadInput, match="prefixes_per_step is 0"):
        check_config(TrainConfig(prefixes_per_step=0))


@pytest.mark.parametrize(
    ("readmes", "said"),
    [
        (even(16, 64), None),
        (even(4, 64), "only 4 different READMEs"),
        ({"large": 256, **even(8, 32)}, "50.0% of all rows read the same README"),
        (even(9, 13), "groups differ in rows"),
    ],
)
def test_a_plan_says_why_a_readme_has_more_than_asked_for(readmes: dict[str, int], said: str | None) -> None:
    examples = rows_of(readmes)
    config = TrainConfig(task=1)
    plan = make_plan(config, examples, 1)
    found = why_not_mixed(config, examples, plan.mixture())
    assert found is None if said is None else said in (found or "")
    lines = "\n".join(step_lines(config, examples, plan, plan.mixture()))
    assert f"no README has more than {plan.mixture().largest_share:.1%} of a step's rows" in lines
    assert (found or "asks for") in lines or found is None
