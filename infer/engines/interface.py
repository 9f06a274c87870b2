"""What every engine takes and gives: rows' prompts, n completions for each, and what they took."""

import hashlib
from array import array
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Protocol

from mlbench_data.adapter import Adapter
from mlbench_data.prompts import Prompt
from mlbench_data.rows import RowKey


@dataclass(frozen=True)
class Sampling:
    """How candidates are drawn. Temperature 0 takes the likeliest token, whatever top_p.

    A candidate ends before the first of the `stop` texts, which are not part of it.
    """

    n: int
    temperature: float
    top_p: float
    max_new_tokens: int
    seed: int
    stop: tuple[str, ...] = ()


@dataclass(frozen=True)
class Request:
    """One row's prompt, and a seed of its own that does not depend on the rows beside it.

    All requests of one README have their first `shared` tokens in common; 0 promises nothing.
    """

    prompt: Prompt
    seed: int
    shared: int = 0

    @property
    def token_ids(self) -> list[int]:
        """The whole prompt, made when it is needed: ten thousand of them would not fit into memory."""
        return self.prompt.token_ids

    @property
    def readme(self) -> bytes:
        """Identifies the shared tokens; empty if there are none."""
        return _sha256(self.prompt.start[: self.shared]) if self.shared else b""


def requests_of(prompts: list[Prompt], seed: int) -> list[Request]:
    """A request for each prompt, with a seed that depends on `seed` and the row only.

    A README that does not fit is cut at another place for every row: rows share what all of them read.
    """
    readmes = [_sha256(prompt.start) for prompt in prompts]
    shared: dict[bytes, int] = {}
    for readme, prompt in zip(readmes, prompts, strict=True):
        shared[readme] = min(shared.get(readme, prompt.readme_end), prompt.readme_end)
    return [
        Request(prompt, seed_of(prompt.row.key, seed), shared[readme])
        for readme, prompt in zip(readmes, prompts, strict=True)
    ]


def seed_of(key: RowKey, seed: int) -> int:
    """A row's own seed, which does not depend on the other rows."""
    digest = hashlib.sha256(f"{seed}/{key.github_id}/{key.id}".encode()).digest()
    return int.from_bytes(digest[:6], "big")


def _sha256(tokens: array) -> bytes:
    return hashlib.sha256(tokens.tobytes()).digest()


@dataclass(frozen=True)
class Completion:
    """One candidate's text, why it ended (`stop`: the model was done, `length`: the limit, or a server's own
    word), and its length in tokens.
    """

    text: str
    finish: str
    tokens: int


@dataclass(frozen=True)
class Usage:
    """Tokens of a row: its prompt once, those of it that had to be computed, and those generated.

    A prompt token that came from a cache was not computed; one that several candidates each read was
    computed several times.
    """

    prompt_tokens: int = 0
    computed_tokens: int = 0
    generated_tokens: int = 0

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            self.prompt_tokens + other.prompt_tokens,
            self.computed_tokens + other.computed_tokens,
            self.generated_tokens + other.generated_tokens,
        )


@dataclass(frozen=True)
class Answer:
    """What became of the request `index`: its completions, or the `error` for which there are none."""

    index: int
    completions: list[Completion]
    usage: Usage
    error: str | None = None


def answered(index: int, completions: list[Completion], prompt_tokens: int, computed_tokens: int) -> Answer:
    """An answer whose prompt had `prompt_tokens`, of which `computed_tokens` had to be computed."""
    generated = sum(completion.tokens for completion in completions)
    return Answer(index, completions, Usage(prompt_tokens, computed_tokens, generated))


class Engine(Protocol):
    """A model that is ready to sample."""

    name: str

    def use(self, adapter: Adapter | None) -> None:
        """The adapter of the following requests; None is the model alone. Raises BadInput."""
        ...

    def sample(
        self, requests: list[Request], done: Collection[int], sampling: Sampling
    ) -> Iterator[list[Answer]]:
        """Answers to the requests whose index is not in `done`, some at a time, in any order."""
        ...

    def close(self) -> None:
        """Ends what it has started: processes, connections."""
        ...
