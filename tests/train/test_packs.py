"""Packs: sharing a README saves tokens and changes neither loss nor gradients."""

from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, TrainingArguments

from mlbench_data.models import Model
from mlbench_data.prompts import PromptBuilder
from mlbench_data.sources import default_benchmark
from train.adapters import add_lora
from train.examples import Example, make_examples
from train.packs import IGNORED, Pack, PackCollator, PackTrainer, make_packs


@pytest.fixture(scope="module")
def examples(builder: PromptBuilder) -> list[Example]:
    benchmark = default_benchmark()
    return make_examples(benchmark.rows("id_train")[:60], benchmark, "id_train", builder)


@pytest.fixture
def network(tokenizer_model: Model) -> PeftModel:
    """A LoRA model whose B matrices are not zero, so that every gradient counts."""
    torch.manual_seed(0)
    base = AutoModelForCausalLM.from_pretrained(tokenizer_model.location, dtype=torch.float32)
    model = add_lora(base, 4, 8, 0.0, "all-linear")
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.1)
    return model


def loss_and_gradients(
    network: PeftModel, packs: list[Pack], answers: int, folder: Path
) -> tuple[float, dict[str, torch.Tensor]]:
    """The mean loss of all answer tokens over the packs, as one optimizer step sees it."""
    arguments = TrainingArguments(output_dir=str(folder), use_cpu=True, report_to=[])
    trainer = PackTrainer(model=network, args=arguments)
    network.train()
    network.zero_grad()
    total = 0.0
    for pack in packs:
        batch: dict[str, Any] = PackCollator(2)([pack])
        loss = trainer.compute_loss(network, batch, num_items_in_batch=torch.tensor(answers))
        loss.backward()
        total += loss.item()
    gradients = {
        name: parameter.grad.clone()
        for name, parameter in network.named_parameters()
        if parameter.grad is not None
    }
    return total, gradients


def test_loss_and_gradients_equal_those_of_separate_sequences(
    network: PeftModel, examples: list[Example], tmp_path: Path
) -> None:
    """Unequal branch lengths, several prefixes; separate means one row a forward pass, nothing shared."""
    packs = [pack for pack in make_packs(examples, 4, share=True) if len(pack.examples) > 1][:4]
    rows = [example for pack in packs for example in pack.examples]
    answers = sum(len(example.answer_ids) for example in rows)
    assert len({len(example.token_ids) for example in rows}) > 1
    shared_loss, shared = loss_and_gradients(network, packs, answers, tmp_path)
    separate = [Pack(0, [example]) for example in rows]
    separate_loss, expected = loss_and_gradients(network, separate, answers, tmp_path)
    assert shared_loss == pytest.approx(separate_loss, rel=1e-5)
    assert shared.keys() == expected.keys()
    for name, gradient in expected.items():
        assert (shared[name] - gradient).norm() <= 1e-5 * gradient.norm(), name


def test_padding_without_sharing_changes_nothing_either(
    network: PeftModel, examples: list[Example], tmp_path: Path
) -> None:
    answers = sum(len(example.answer_ids) for example in examples[:6])
    padded_loss, padded = loss_and_gradients(network, make_packs(examples[:6], 3, False), answers, tmp_path)
    separate = [Pack(0, [example]) for example in examples[:6]]
    separate_loss, expected = loss_and_gradients(network, separate, answers, tmp_path)
    assert padded_loss == pytest.approx(separate_loss, rel=1e-5)
    for name, gradient in expected.items():
        assert (padded[name] - gradient).norm() <= 1e-5 * gradient.norm(), name


def test_the_loss_is_that_of_the_stock_model_on_the_answer_alone(
    tokenizer_model: Model, examples: list[Example]
) -> None:
    model = AutoModelForCausalLM.from_pretrained(tokenizer_model.location, dtype=torch.float32)
    example = examples[0]
    ids = torch.tensor([example.token_ids])
    labels = ids.clone()
    labels[0, : len(example.prompt.token_ids)] = IGNORED
    expected = model(input_ids=ids, labels=labels).loss
    assert model(**PackCollator(2)([Pack(0, [example])])).loss.item() == pytest.approx(
        expected.item(), rel=1e-6
    )


def test_every_row_is_in_one_pack_and_packs_share_whole_readmes(examples: list[Example]) -> None:
    packs = make_packs(examples, 4, share=True)
    assert sorted(id(item) for pack in packs for item in pack.examples) == sorted(map(id, examples))
    for pack in packs:
        assert 1 <= len(pack.examples) <= 4
        prefixes = {tuple(example.token_ids[: pack.prefix]) for example in pack.examples}
        assert len(prefixes) == 1
        assert pack.prefix == pack.examples[0].prompt.readme_end > 100
    assert sum(pack.tokens for pack in packs) < 0.75 * sum(len(example.token_ids) for example in examples)


def test_labels_are_the_answers_and_nothing_of_the_prompts(examples: list[Example]) -> None:
    for pack in make_packs(examples, 4, share=True):
        batch = PackCollator(2)([pack])
        for example, labels in zip(pack.examples, batch["labels"], strict=True):
            assert labels[labels != IGNORED].tolist() == example.answer_ids
