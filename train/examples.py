"""Rows as training examples: prompt and answer as tokens, loss on the answer only."""

from dataclasses import dataclass

from mlbench_data.bad_input import BadInput
from mlbench_data.benchmark import Benchmark
from mlbench_data.prompts import Prompt, PromptBuilder, answer_text, readme_for
from mlbench_data.rows import Row


@dataclass(frozen=True)
class Example:
    """One row: its prompt, and the answer with the end-of-sequence token."""

    prompt: Prompt
    answer_ids: list[int]

    @property
    def token_ids(self) -> list[int]:
        """Prompt and answer."""
        return self.prompt.token_ids + self.answer_ids

    def __len__(self) -> int:
        return len(self.prompt) + len(self.answer_ids)


def make_examples(rows: list[Row], benchmark: Benchmark, split: str, builder: PromptBuilder) -> list[Example]:
    """An example for each row of a split, in order. Raises BadInput naming a row with too long an answer."""
    return [
        make_example(row, readme_for(builder.task, row, benchmark, split, builder.windows), builder)
        for row in rows
    ]


def make_example(row: Row, readme: str, builder: PromptBuilder) -> Example:
    """One row with the README text that it reads. Raises BadInput if its answer is too long."""
    answer = builder.tokenizer(
        answer_text(row), add_special_tokens=False, split_special_tokens=True
    ).input_ids
    answer_ids = [*answer, builder.tokenizer.eos_token_id]
    if len(answer_ids) > builder.answer_tokens:
        raise BadInput(
            f"row {row.repository} {row.id}: its answer has {len(answer_ids)} tokens and would be cut; "
            f"answer_tokens is {builder.answer_tokens}, raise it"
        )
    return Example(builder.prompt(row, readme), answer_ids)
