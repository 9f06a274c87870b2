"""Prompts for tasks 1, 2 and 3, as token ids: the same code serves training and sampling."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from mlbench_data.bad_input import BadInput
from mlbench_data.benchmark import Benchmark
from mlbench_data.budget import Cut, DoesNotFit, fit
from mlbench_data.files import sha256_of
from mlbench_data.models import Model
from mlbench_data.retrieval import index_of
from mlbench_data.rows import BASH, Row
from mlbench_data.template import Template, compile_template

TaskNumber = Literal[1, 2, 3]
TASKS = {1: "Raw README", 2: "BM25 retrieval", 3: "Oracle segment"}


@dataclass(frozen=True)
class Prompt:
    """One row's prompt as a model reads it, and what the budget cut from its README.

    The first `readme_end` tokens are the template's start and the README: the same for rows with one README.
    """

    row: Row
    token_ids: list[int]
    cut: Cut
    readme_end: int


@dataclass(frozen=True)
class PromptBuilder:
    """Builds prompts for one model, template and task.

    `answer_tokens` are kept free for the answer, so that training and sampling cut a README alike.
    """

    tokenizer: Any
    model: Model
    template: Template
    task: TaskNumber
    answer_tokens: int

    def prompts(self, rows: Iterable[Row], benchmark: Benchmark) -> list[Prompt]:
        """A prompt for each row, in order. Raises BadInput naming a row that cannot fit."""
        return [self.prompt(row, readme_for(self.task, row, benchmark)) for row in rows]

    def prompt(self, row: Row, readme: str) -> Prompt:
        """One row's prompt around the README text of its task. Raises BadInput if it cannot fit."""
        readme_ids, instruction_ids = self._ids_of(readme), self._ids(row.instruction)
        pieces = self._pieces
        try:
            rest = len(pieces) + len(instruction_ids)
            cut = fit(len(readme_ids), rest, self.answer_tokens, self.model.context)
        except DoesNotFit as error:
            raise BadInput(f"row {row.repository} {row.id}: {error}") from error
        token_ids = pieces.head + readme_ids[: cut.kept] + pieces.middle + instruction_ids + pieces.tail
        return Prompt(row, token_ids, cut, len(pieces.head) + cut.kept)

    def messages(self, prompt: Prompt, readme: str) -> list[dict[str, str]]:
        """The same prompt as chat messages, with the README cut where the token ids cut it."""
        kept = self._ids_of(readme)[: prompt.cut.kept]
        text = readme if len(kept) == prompt.cut.readme else self.tokenizer.decode(kept)
        return self.template.messages(text, prompt.row.instruction)

    @cached_property
    def _pieces(self) -> Any:
        return compile_template(self.template, self.tokenizer, self.model.format)

    @cached_property
    def _readme_ids(self) -> dict[str, list[int]]:
        return {}

    def _ids_of(self, readme: str) -> list[int]:
        """A README is tokenized once, however many rows read it."""
        if readme not in self._readme_ids:
            self._readme_ids[readme] = self._ids(readme)
        return self._readme_ids[readme]

    def _ids(self, text: str) -> list[int]:
        """Tokens of somebody's text: what looks like a special token in it is read as plain characters."""
        return self.tokenizer(text, add_special_tokens=False, split_special_tokens=True).input_ids


def readme_for(task: TaskNumber, row: Row, benchmark: Benchmark) -> str:
    """What the model reads besides the instruction (ML-Bench, section 2.2). Raises BadInput."""
    if task == 3:
        return row.oracle
    readme = benchmark.readme(row)
    return readme if task == 1 else index_of(readme).best(row.instruction)


def answer_text(row: Row) -> str:
    """The row's answer as a model should write it: one fenced block with its language."""
    return f"```{'bash' if row.type == BASH else 'python'}\n{row.output.strip()}\n```"


def sha256_of_prompts(prompts: list[Prompt]) -> str:
    """Identifies the rows asked and the very tokens that were read."""
    return sha256_of([[*prompt.row.key, prompt.token_ids] for prompt in prompts])
