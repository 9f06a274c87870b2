"""Training examples: the answer, whole, is what is learned."""

from dataclasses import replace

import pytest

from mlbench_data.bad_input import BadInput
from mlbench_data.prompts import PromptBuilder, answer_text
from mlbench_data.sources import default_benchmark
from train.examples import make_examples


def test_the_answer_is_the_fenced_code_and_the_end(builder: PromptBuilder) -> None:
    benchmark = default_benchmark()
    rows = benchmark.rows("id_train")[:5]
    for row, example in zip(rows, make_examples(rows, benchmark, "id_train", builder), strict=True):
        assert example.answer_ids[-1] == builder.tokenizer.eos_token_id
        assert builder.tokenizer.decode(example.answer_ids[:-1]) == answer_text(row)


def test_an_answer_that_would_be_cut_is_an_error_that_names_the_row(builder: PromptBuilder) -> None:
    benchmark = default_benchmark()
    row = replace(benchmark.rows("id_train")[0], output="python train.py " + "--flag " * 200)
    with pytest.raises(BadInput, match=rf"row {row.repository} {row.id}: its answer has \d+ tokens"):
        make_examples([row], benchmark, "id_train", builder)


def test_training_and_sampling_read_the_same_tokens(builder: PromptBuilder) -> None:
    benchmark = default_benchmark()
    rows = benchmark.rows("full")[:6]
    trained_on = [example.prompt.token_ids for example in make_examples(rows, benchmark, "full", builder)]
    assert trained_on == [prompt.token_ids for prompt in builder.prompts(rows, benchmark, "full")]
