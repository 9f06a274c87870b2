"""Training examples: the answer, whole, is what is learned."""

from dataclasses import replace

import pytest
import torch
from transformers import AutoModelForCausalLM

from mlbench_data.bad_input import BadInput
from mlbench_data.models import Model, load_tokenizer
from mlbench_data.prompts import PromptBuilder, answer_text
from mlbench_data.sources import default_benchmark
from mlbench_data.template import read_template
from train.examples import IGNORED, AnswerCollator, make_examples


@pytest.fixture(scope="module")
def builder(tokenizer_model: Model) -> PromptBuilder:
    return PromptBuilder(load_tokenizer(tokenizer_model), tokenizer_model, read_template(None), 3, 96)


def test_labels_are_the_answer_and_nothing_of_the_prompt(builder: PromptBuilder) -> None:
    benchmark = default_benchmark()
    rows = benchmark.rows("id_train")[:5]
    examples = make_examples(rows, benchmark, builder)
    batch = AnswerCollator(2)([example.features() for example in examples])
    for row, example, labels in zip(rows, examples, batch["labels"], strict=True):
        learned = labels[labels != IGNORED].tolist()
        assert learned == example.answer_ids
        assert learned[-1] == builder.tokenizer.eos_token_id
        assert builder.tokenizer.decode(learned[:-1]) == answer_text(row)


def test_head_on_the_last_positions_gives_the_loss_of_all_positions(
    builder: PromptBuilder, tokenizer_model: Model
) -> None:
    """`logits_to_keep` saves memory and must not change the loss, whatever the padding."""
    model = AutoModelForCausalLM.from_pretrained(tokenizer_model.location, dtype=torch.float32)
    benchmark = default_benchmark()
    examples = make_examples(benchmark.rows("id_train")[:4], benchmark, builder)
    assert len({len(example.prompt.token_ids) for example in examples}) > 1
    batched = model(**AnswerCollator(2)([example.features() for example in examples])).loss
    total, count = 0.0, 0
    for example in examples:
        ids = torch.tensor([example.prompt.token_ids + example.answer_ids])
        labels = torch.full_like(ids, IGNORED)
        labels[0, len(example.prompt.token_ids) :] = torch.tensor(example.answer_ids)
        total += model(input_ids=ids, labels=labels).loss.item() * len(example.answer_ids)
        count += len(example.answer_ids)
    assert batched.item() == pytest.approx(total / count, rel=1e-5)


def test_an_answer_that_would_be_cut_is_an_error_that_names_the_row(builder: PromptBuilder) -> None:
    benchmark = default_benchmark()
    row = replace(benchmark.rows("id_train")[0], output="python train.py " + "--flag " * 200)
    with pytest.raises(BadInput, match=rf"row {row.repository} {row.id}: its answer has \d+ tokens"):
        make_examples([row], benchmark, builder)


def test_training_and_sampling_read_the_same_tokens(builder: PromptBuilder) -> None:
    benchmark = default_benchmark()
    rows = benchmark.rows("full")[:6]
    trained_on = [example.prompt.token_ids for example in make_examples(rows, benchmark, builder)]
    assert trained_on == [prompt.token_ids for prompt in builder.prompts(rows, benchmark)]
