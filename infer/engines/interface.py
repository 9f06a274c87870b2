"""What every engine takes and gives: prompts as token ids, n completions for each."""

from dataclasses import dataclass
from typing import Literal, Protocol

Finish = Literal["stop", "length"]


@dataclass(frozen=True)
class Sampling:
    """How candidates are drawn. Temperature 0 takes the likeliest token, whatever top_p."""

    n: int
    temperature: float
    top_p: float
    max_new_tokens: int
    seed: int


@dataclass(frozen=True)
class Request:
    """One row's prompt, and a seed of its own that does not depend on the rows beside it.

    Requests of one README have their first `readme_end` tokens in common; 0 promises nothing.
    """

    token_ids: list[int]
    seed: int
    readme_end: int = 0


@dataclass(frozen=True)
class Completion:
    """One candidate's text, why it ended (`stop`: the model was done), and its length in tokens."""

    text: str
    finish: Finish
    tokens: int


class Engine(Protocol):
    """A loaded model. The same batches, sampling and version give the same completions."""

    name: str

    def batches(self, requests: list[Request], sampling: Sampling) -> list[list[int]]:
        """Which requests (by index) to sample together: depends on the requests only."""
        ...

    def sample(self, batch: list[Request], sampling: Sampling) -> list[list[Completion]]:
        """n completions for each request of a batch, in its order."""
        ...
