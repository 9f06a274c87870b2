"""Packs: sharing a prefix saves tokens and changes neither loss nor gradients."""

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, TrainingArguments

from mlbench_data.models import Model, load_tokenizer
from mlbench_data.prompts import PromptBuilder
from mlbench_data.sources import default_benchmark
from mlbench_data.template import read_template
from tests.helpers import need_compiler
from train import prefix_attention
from train.examples import Example, make_examples
from train.groups import Group, make_groups, single_groups
from train.network import Lora, add_lora
from train.packs import IGNORED, Pack, PackSettings, collate, epoch_packs, padded
from train.trainer import PackTrainer

MOST = 100_000  # tokens: no limit here


def examples_of(model: Model, task: Any, rows: int, context: int | None = None) -> list[Example]:
    """The first training rows, with READMEs cut to fit `context` if given."""
    narrow = Model(model.name, model.location, model.format, context or model.context)
    builder = PromptBuilder(load_tokenizer(narrow), narrow, read_template(None), task, 96)
    benchmark = default_benchmark()
    return make_examples(benchmark.rows("id_train")[:rows], benchmark, "id_train", builder)


@pytest.fixture(scope="module")
def examples(tokenizer_model: Model) -> list[Example]:
    return examples_of(tokenizer_model, 3, 60)


@pytest.fixture(scope="module")
def network(tokenizer_model: Model) -> PeftModel:
    """A LoRA model whose B matrices are not zero, so that every gradient counts."""
    torch.manual_seed(0)
    base = AutoModelForCausalLM.from_pretrained(
        tokenizer_model.location, dtype=torch.float32, attn_implementation=prefix_attention.NAME
    )
    model = add_lora(base, Lora(4, 8))
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.1)
    return model


def trainer_of(network: PeftModel, packs: list[Pack], folder: Path, neftune: float = 0.0) -> PackTrainer:
    arguments = TrainingArguments(output_dir=str(folder), use_cpu=True, report_to=[], disable_tqdm=True)
    return PackTrainer(network, arguments, packs, packs, neftune)


def loss_and_gradients(
    network: PeftModel, packs: list[Pack], folder: Path
) -> tuple[float, dict[str, torch.Tensor]]:
    """The mean loss of all answer tokens over the packs, as one optimizer step sees it."""
    trainer = trainer_of(network, packs, folder)
    answers = sum(len(row.answer_ids) for pack in packs for row in pack.examples)
    network.train()
    network.zero_grad()
    total = 0.0
    for pack in packs:
        batch = collate([pack])
        loss = trainer.compute_loss(
            network, batch | {"shift_labels": batch["labels"]}, num_items_in_batch=answers
        )
        loss.backward()
        total += loss.item()
    found = [(name, parameter.grad) for name, parameter in network.named_parameters()]
    return total, {name: gradient.clone() for name, gradient in found if gradient is not None}


def stock_loss_and_gradients(
    network: PeftModel, rows: list[Example]
) -> tuple[float, dict[str, torch.Tensor]]:
    """The same by stock attention, one row at a time and its own labels."""
    network.config._attn_implementation = "sdpa"
    network.zero_grad()
    answers = sum(len(row.answer_ids) for row in rows)
    total = 0.0
    for row in rows:
        ids = torch.tensor([row.token_ids])
        labels = ids.clone()
        labels[0, : len(row.prompt)] = IGNORED
        loss = network(input_ids=ids, labels=labels).loss * len(row.answer_ids) / answers
        loss.backward()
        total += loss.item()
    network.config._attn_implementation = prefix_attention.NAME
    found = [(name, parameter.grad) for name, parameter in network.named_parameters()]
    return total, {name: gradient.clone() for name, gradient in found if gradient is not None}


def assert_close(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    assert found.keys() == expected.keys()
    assert expected
    for name, gradient in expected.items():
        assert (found[name] - gradient).norm() <= 1e-5 * gradient.norm(), name


@pytest.mark.parametrize(
    ("task", "context"), [(3, None), (1, None), (1, 700), (2, None)], ids=["3", "1", "1-cut", "2"]
)
def test_loss_and_gradients_equal_those_of_separate_sequences(
    task: int, context: int | None, tokenizer_model: Model, network: PeftModel, tmp_path: Path
) -> None:
    """Against the stock model and its own attention, with branches of unequal length, in packs of several
    groups, and with READMEs that the budget has cut at different places.
    """
    rows = examples_of(tokenizer_model, task, 6 if task == 1 else 16, context)
    if context:
        assert len({row.prompt.cut.kept for row in rows if row.prompt.cut.kept < row.prompt.cut.readme}) > 1
    groups = make_groups(rows, 4, MOST, random.Random(0))
    assert any(len(group.examples) > 1 and len(set(group.branches)) > 1 for group in groups)
    half = len(groups) // 2
    shared_loss, shared = loss_and_gradients(network, [Pack(groups[:half]), Pack(groups[half:])], tmp_path)
    expected_loss, expected = stock_loss_and_gradients(network, rows)
    assert shared_loss == pytest.approx(expected_loss, rel=1e-5)
    assert_close(shared, expected)


def test_plain_packing_has_the_same_loss_and_gradients(
    network: PeftModel, examples: list[Example], tmp_path: Path
) -> None:
    shared = epoch_packs(examples[:12], PackSettings(6, 3, MOST))
    plain = epoch_packs(examples[:12], PackSettings(6, 3, MOST, prefix_sharing=False))
    assert all(group.prefix == 0 for pack in plain for group in pack.groups)
    shared_loss, gradients = loss_and_gradients(network, shared, tmp_path)
    plain_loss, expected = loss_and_gradients(network, plain, tmp_path)
    assert shared_loss == pytest.approx(plain_loss, rel=1e-5)
    assert_close(gradients, expected)


def test_a_pack_that_does_not_count_adds_nothing(
    network: PeftModel, examples: list[Example], tmp_path: Path
) -> None:
    """It only keeps a process busy that would have none in the last round, with less than a row."""
    [*packs, last] = padded([Pack(single_groups(examples[:3], random.Random(0)))], 2)
    assert not last.counted
    assert last.tokens < min(map(len, examples[:3]))
    once = loss_and_gradients(network, packs, tmp_path)
    _, gradients = loss_and_gradients(network, [last], tmp_path)
    assert all(not gradient.any() for gradient in gradients.values())
    assert trainer_of(network, packs, tmp_path).evaluate()["eval_loss"] == pytest.approx(once[0], rel=1e-6)


def test_the_evaluation_loss_does_not_depend_on_packing(
    network: PeftModel, examples: list[Example], tmp_path: Path
) -> None:
    """Packs of unequal size must not weigh alike: the mean is over tokens."""
    losses = [
        trainer_of(network, epoch_packs(examples[:9], PackSettings(rows, rows, MOST)), tmp_path).evaluate()
        for rows in (1, 4, 9)
    ]
    assert losses[1]["eval_loss"] == pytest.approx(losses[0]["eval_loss"], rel=1e-6)
    assert losses[2]["eval_loss"] == pytest.approx(losses[0]["eval_loss"], rel=1e-6)


def test_every_row_is_in_one_group_and_groups_share_what_they_say(examples: list[Example]) -> None:
    groups = make_groups(examples, 4, MOST, random.Random(0))
    assert Counter(id(row) for group in groups for row in group.examples) == Counter(map(id, examples))
    for group in groups:
        assert 1 <= len(group.examples) <= 4
        assert len({tuple(row.token_ids[: group.prefix]) for row in group.examples}) == 1
        assert all(group.prefix < len(row.prompt) for row in group.examples)
    shared = [group for group in groups if group.prefix]
    assert all(group.prefix >= group.examples[0].prompt.readme_end > 100 for group in shared)
    assert sum(group.tokens for group in groups) < 0.75 * sum(map(len, examples))


def test_rows_of_a_readme_meet_by_chance_also_where_it_is_cut(tokenizer_model: Model) -> None:
    """A cut README ends where the row's instruction leaves off. Ordered by that, a group had instructions of
    one length, and was the same whatever the seed.
    """
    rows = examples_of(tokenizer_model, 1, 48, 700)
    ordered = [row for group in make_groups(rows, 4, MOST, random.Random(0)) for row in group.examples]
    drawn = random.Random(0).sample(rows, len(rows))
    for name in {row.prompt.row.repository for row in rows}:
        met, chance = (
            [row for row in some if row.prompt.row.repository == name] for some in (ordered, drawn)
        )
        assert [id(row) for row in met] == [id(row) for row in chance]


def test_groups_save_as_much_as_any_division_of_their_order(examples: list[Example]) -> None:
    """Against every division of eleven neighbours into runs of at most three."""
    rows = examples[:11]
    groups = make_groups(rows, 3, MOST, random.Random(3))
    ordered = [row for group in groups for row in group.examples]

    def cheapest(start: int) -> int:
        if start == len(ordered):
            return 0
        found = []
        for end in range(start + 1, min(start + 3, len(ordered)) + 1):
            run = ordered[start:end]
            columns = enumerate(zip(*(row.token_ids for row in run), strict=False))
            prefix = next((place for place, ids in columns if len(set(ids)) > 1), 0)
            if prefix >= 32 or len(run) == 1:
                found.append(sum(map(len, run)) - prefix * (len(run) - 1) + cheapest(end))
        return min(found)

    assert sum(group.tokens for group in groups) == cheapest(0)


def test_groups_and_packs_keep_to_their_tokens(examples: list[Example]) -> None:
    longest = max(map(len, examples))
    for most in (longest + 150, 1200):
        packs = epoch_packs(examples, PackSettings(16, 8, most))
        assert max(pack.tokens for pack in packs) <= most
    tight = epoch_packs(examples, PackSettings(16, 8, 10))
    assert [len(pack.examples) for pack in tight] == [1] * len(examples)  # too long rows go alone


def test_packs_hold_no_more_rows_than_asked(examples: list[Example]) -> None:
    packs = epoch_packs(examples, PackSettings(8, 4, MOST))
    assert max(len(pack.examples) for pack in packs) <= 8
    assert sum(len(pack.examples) for pack in packs) == len(examples)


def test_labels_are_the_answers_and_nothing_of_the_prompts(examples: list[Example]) -> None:
    """Each label stands one after the position that predicts it, within its own branch."""
    for pack in epoch_packs(examples, PackSettings(8, 4, MOST)):
        batch = collate([pack])
        assert batch["labels"].tolist() == [token for row in pack.examples for token in row.answer_ids]
        predicted = batch["input_ids"][0, batch["logits_to_keep"] + 1]
        assert torch.equal(predicted, batch["labels"])
        assert batch["input_ids"].shape[1] == pack.tokens


def test_rows_without_a_common_prefix_cost_nothing_more(
    examples: list[Example], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of different repositories have the template's first words in common, which is not enough."""
    monkeypatch.setattr("train.groups.SHORTEST_PREFIX", 100)
    rows = list({row.prompt.row.repository: row for row in examples}.values())
    groups = make_groups(rows, 8, MOST, random.Random(0))
    assert groups == [Group(0, group.examples) for group in groups]
    assert sum(group.tokens for group in groups) == sum(map(len, rows))


@pytest.mark.slow
def test_the_attention_of_gpus_gives_the_same_loss(tokenizer_model: Model, examples: list[Example]) -> None:
    """FlexAttention by the stock model, with the mask that the trainer makes on a GPU. Forward only: it
    has no backward pass on a CPU.
    """
    need_compiler()
    [pack] = epoch_packs(examples[:6], PackSettings(8, 4, MOST))
    losses = []
    for attention in (prefix_attention.NAME, prefix_attention.GPU_NAME):
        model = AutoModelForCausalLM.from_pretrained(
            tokenizer_model.location, dtype=torch.float32, attn_implementation=attention
        ).eval()
        inputs = collate([pack])
        labels = inputs.pop("labels")
        if attention == prefix_attention.GPU_NAME:
            inputs["attention_mask"] = prefix_attention.block_mask(inputs.pop("layout"), labels.device)
        with torch.no_grad():
            logits = model(**inputs, use_cache=False).logits[0]
        losses.append(torch.nn.functional.cross_entropy(logits, labels).item())
    assert losses[1] == pytest.approx(losses[0], rel=1e-6)
