"""Rows as training examples: prompt and answer as tokens, loss on the answer only."""

from dataclasses import dataclass
from typing import Any

import torch

from mlbench_data.bad_input import BadInput
from mlbench_data.benchmark import Benchmark
from mlbench_data.prompts import Prompt, PromptBuilder, answer_text, readme_for
from mlbench_data.rows import Row

IGNORED = -100  # the label that the loss skips


@dataclass(frozen=True)
class Example:
    """One row: its prompt, and the answer with the end-of-sequence token."""

    prompt: Prompt
    answer_ids: list[int]

    def features(self) -> dict[str, list[int]]:
        """What the collator takes; `input_ids` also tells the sampler the length."""
        return {"input_ids": self.prompt.token_ids + self.answer_ids, "answer_ids": self.answer_ids}


def make_examples(rows: list[Row], benchmark: Benchmark, builder: PromptBuilder) -> list[Example]:
    """An example for each row, in order. Raises BadInput naming a row whose answer would be cut."""
    return [_example(row, readme_for(builder.task, row, benchmark), builder) for row in rows]


def _example(row: Row, readme: str, builder: PromptBuilder) -> Example:
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


@dataclass(frozen=True)
class AnswerCollator:
    """Pads on the left, so that answers end together and the head runs on the last positions only.

    With answers of at most A tokens, `logits_to_keep` is A + 1: the prompt's last token predicts the
    first answer token. At 8,192 tokens this saves the logits of thousands of prompt positions.
    """

    pad_token_id: int

    def __call__(self, features: list[dict[str, list[int]]]) -> dict[str, Any]:
        """A batch: input_ids and attention_mask (rows, tokens), labels (rows, A + 1)."""
        length = max(len(item["input_ids"]) for item in features)
        kept = max(len(item["answer_ids"]) for item in features) + 1
        input_ids = torch.full((len(features), length), self.pad_token_id)
        attention_mask = torch.zeros((len(features), length), dtype=torch.long)
        labels = torch.full((len(features), kept), IGNORED)
        for number, item in enumerate(features):
            input_ids[number, length - len(item["input_ids"]) :] = torch.tensor(item["input_ids"])
            attention_mask[number, length - len(item["input_ids"]) :] = 1
            labels[number, kept - len(item["answer_ids"]) :] = torch.tensor(item["answer_ids"])
        return {
            "input_ids": input_ids,
            "attention_mask": attention_mask,
            "labels": labels,
            "logits_to_keep": kept,
        }
