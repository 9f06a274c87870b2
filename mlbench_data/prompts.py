"""Prompts for tasks 1, 2 and 3, as token ids: the same code serves training and sampling."""

import hashlib
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Literal

import numpy as np

from mlbench_data.bad_input import BadInput
from mlbench_data.benchmark import Benchmark
from mlbench_data.budget import Cut, DoesNotFit, Policy, fit, fit_as_the_paper
from mlbench_data.models import Model
from mlbench_data.retrieval import PAPERS_WINDOWS, Windows, index_of
from mlbench_data.rows import BASH, Row
from mlbench_data.shared_start import SharedStart, Tokens
from mlbench_data.template import Rendered, Template, render_template

TaskNumber = Literal[1, 2, 3]
TASKS = {1: "Raw README", 2: "BM25 retrieval", 3: "Oracle segment"}
MOST_READMES = 1024  # READMEs, windows or segments whose tokens are kept


@dataclass(frozen=True)
class Prompt:
    """One row's prompt as a model reads it, and what the budget cut from its README.

    The first `readme_end` tokens are the template's start and the README: the same for rows with one README,
    which also share `start` in memory. `rest` are the tokens after them.
    """

    row: Row
    start: array
    readme_end: int
    rest: array
    cut: Cut

    @property
    def token_ids(self) -> list[int]:
        """The whole prompt."""
        return (self.start[: self.readme_end] + self.rest).tolist()

    @property
    def ids(self) -> Any:
        """The whole prompt as a numpy array of int32, to be compared with others."""
        return np.frombuffer(self.start[: self.readme_end] + self.rest, np.int32)

    def __len__(self) -> int:
        return self.readme_end + len(self.rest)


@dataclass(frozen=True)
class PromptBuilder:
    """Builds prompts for one model, template and task.

    Their tokens are those of the rendered prompt as a whole, but each README is tokenized once, however many
    rows read it. `answer_tokens` are kept free for the answer, so that training and sampling cut a README
    alike.
    """

    tokenizer: Any
    model: Model
    template: Template
    task: TaskNumber
    answer_tokens: int
    policy: Policy = "readme"
    windows: Windows = PAPERS_WINDOWS

    def prompts(self, rows: Iterable[Row], benchmark: Benchmark, split: str) -> list[Prompt]:
        """A prompt for each row of a split, in order. Raises BadInput naming a row that cannot fit."""
        return [self.prompt(row, readme_for(self.task, row, benchmark, split, self.windows)) for row in rows]

    def prompt(self, row: Row, readme: str) -> Prompt:
        """One row's prompt around the README text of its task. Raises BadInput if it cannot fit."""
        whole = self._tokenized(readme, row.instruction)
        length, after = whole.ends - whole.begins, len(whole.ids) - whole.ends
        try:
            if self.policy == "paper":
                cut = fit_as_the_paper(whole.begins, length, after, self.answer_tokens, self.model.context)
            else:
                cut = fit(length, whole.begins + after, self.answer_tokens, self.model.context)
        except DoesNotFit as error:
            raise BadInput(f"row {row.repository} {row.id}: {error}") from error
        kept = min(whole.begins + cut.kept, self.model.context - self.answer_tokens)
        readme_end = min(kept, whole.shared)
        rest = whole.ids[readme_end:kept] + whole.ids[whole.ends : len(whole.ids) - cut.lost]
        return Prompt(row, whole.start, readme_end, rest, cut)

    def messages(self, prompt: Prompt, readme: str) -> list[dict[str, str]]:
        """The same prompt as chat messages, with the README cut where the token ids cut it."""
        if prompt.cut.kept < prompt.cut.readme:
            whole = self._tokenized(readme, prompt.row.instruction)
            kept = self.tokenizer.decode(whole.ids[whole.begins : whole.begins + prompt.cut.kept])
            first, last = whole.outside
            readme = readme[:first] + kept + readme[last:]
        return self.template.messages(readme, prompt.row.instruction)

    def _tokenized(self, readme: str, instruction: str) -> "_Tokenized":
        words = self._words
        if self._readme_needs_pieces(readme) or self._needs_pieces(instruction):
            start, begins = self._pieced_start(readme)
            end = self._ids(words.between) + self._ids(instruction, plain=True) + self._ids(words.after)
            return _Tokenized(start, start + end, len(start), begins, len(start), (0, len(readme)))
        shared_start, start = self._shared_start(readme)
        whole, shared = shared_start.followed_by(instruction + words.after)
        first = len(words.start)
        begins = bisect_left(whole.starts, len(words.before))
        ends = max(begins, bisect_right(whole.ends, len(words.before) + len(readme)))
        ids = array("i", words.start) + whole.ids
        before = len(words.before)
        outside = (whole.starts[begins] - before, whole.ends[ends - 1] - before) if ends > begins else (0, 0)
        return _Tokenized(start, ids, first + shared, first + begins, first + ends, outside)

    @cached_property
    def _words(self) -> Rendered:
        return render_template(self.template, self.tokenizer, self.model.format)

    @cached_property
    def _shared_start(self) -> Callable[[str], tuple[SharedStart, array]]:
        """A README with the words around it, and the ids of that, for each README once."""

        @lru_cache(maxsize=MOST_READMES)
        def made(readme: str) -> tuple[SharedStart, array]:
            words = self._words
            text = words.before + readme + words.between
            start = SharedStart(text, self._encode, len(words.between))
            return start, array("i", words.start) + start.tokens.ids

        return made

    @cached_property
    def _pieced_start(self) -> Callable[[str], tuple[array, int]]:
        """The ids before and of a README that is tokenized by itself, and where the README begins."""

        @lru_cache(maxsize=MOST_READMES)
        def made(readme: str) -> tuple[array, int]:
            before = array("i", self._words.start) + self._ids(self._words.before)
            return before + self._ids(readme, plain=True), len(before)

        return made

    @cached_property
    def _readme_needs_pieces(self) -> Callable[[str], bool]:
        return lru_cache(maxsize=MOST_READMES)(self._needs_pieces)

    def _needs_pieces(self, text: str) -> bool:
        """Whether a text must be tokenized by itself: what looks like a special token in somebody's text is
        read as plain characters, while the template's own are special. Tokenizers in plain python do not say
        where their tokens lie.
        """
        return not self.tokenizer.is_fast or any(token in text for token in self._special_tokens)

    @cached_property
    def _special_tokens(self) -> list[str]:
        added = self.tokenizer.added_tokens_decoder.values()
        return sorted(
            {token.content for token in added if token.special} | set(self.tokenizer.all_special_tokens)
        )

    @cached_property
    def _encode(self) -> Callable[[str], Tokens]:
        """The tokens of a text. An instruction is asked for again with other READMEs, and remembered."""
        return lru_cache(maxsize=MOST_READMES)(self._encoded)

    def _encoded(self, text: str) -> Tokens:
        tokenizer = self.tokenizer.backend_tokenizer  # transformers' own call takes as long again
        tokenizer.encode_special_tokens = False
        tokenizer.no_truncation()
        found = tokenizer.encode(text, add_special_tokens=False)
        starts, ends = zip(*found.offsets, strict=True) if found.ids else ((), ())
        words = array("i", [-1 if word is None else word for word in found.word_ids])
        return Tokens(array("i", found.ids), array("i", starts), array("i", ends), words)

    def _ids(self, text: str, plain: bool = False) -> array:
        """Tokens of a text; `plain` reads what looks like a special token as characters."""
        return array(
            "i", self.tokenizer(text, add_special_tokens=False, split_special_tokens=plain).input_ids
        )


@dataclass(frozen=True)
class _Tokenized:
    """A whole prompt: `ids`, of which the first `shared` are those of `start`, and the README's place in it.

    A token can hold the README's last line break and the first one after it. It is never cut, and `outside`
    says how many characters of the README lie before, and from where on after, its own tokens.
    """

    start: array
    ids: array
    shared: int
    begins: int
    ends: int
    outside: tuple[int, int]


def readme_for(
    task: TaskNumber, row: Row, benchmark: Benchmark, split: str, windows: Windows = PAPERS_WINDOWS
) -> str:
    """What the model reads besides the instruction (ML-Bench, section 2.2). Raises BadInput."""
    if task == 3:
        return row.oracle
    readme = benchmark.readme(row, split)
    return readme if task == 1 else index_of(readme, windows).best(row.instruction)


def answer_text(row: Row) -> str:
    """The row's answer as a model should write it: one fenced block with its language."""
    return f"```{'bash' if row.type == BASH else 'python'}\n{row.output.strip()}\n```"


def sha256_of_prompts(prompts: Iterable[Prompt]) -> str:
    """Identifies the rows asked and the very tokens that were read: the sum of the rows' hashes, so that
    shards have together what the whole has.
    """
    return joined_sha256(_sha256_of_prompt(prompt) for prompt in prompts)


def joined_sha256(hashes: Iterable[str]) -> str:
    """What `sha256_of_prompts` gives for all the prompts of which parts have these hashes."""
    return f"{sum(int(digest, 16) for digest in hashes) % 2**256:064x}"


def _sha256_of_prompt(prompt: Prompt) -> str:
    key = f"{prompt.row.key.github_id}/{prompt.row.key.id}/".encode()
    return hashlib.sha256(key + prompt.ids.tobytes()).hexdigest()
