"""Both engines read the same text and the same end in the same tokens."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.hub_cache import NAMES, folder_of
from infer.engines.reading import Reading, end_ids
from mlbench_data.models import load_tokenizer, resolve_model
from mlbench_data.prompts import answer_text
from mlbench_data.rows import read_rows
from mlbench_data.sources import benchmark_named


class Counting:
    """A tokenizer that notes how many tokens it was given to decode."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer, self.decoded = tokenizer, 0

    def decode(self, tokens: list[int]) -> str:
        self.decoded += len(tokens)
        return self.tokenizer.decode(tokens)


@pytest.fixture(scope="module")
def answers(shared_data: Path) -> list[str]:
    """104 published ones and all of MiniBench's, as a model writes them."""
    mini = benchmark_named("mini")
    rows = read_rows(shared_data / "mlbench" / "rows.jsonl")
    assert len(rows) == 104
    return [answer_text(row) for row in [*rows, *mini.rows("full"), *mini.rows("id_train")]]


def written(tokenizer: Any, text: str) -> list[int]:
    return tokenizer(text, add_special_tokens=False).input_ids


def drawn(reading: Reading, tokens: list[int]) -> list[int]:
    """The tokens up to the one at which an engine stops."""
    for count in range(1, len(tokens) + 1):
        if reading.has_ended(tokens[:count]):
            return tokens[:count]
    return tokens


@pytest.fixture(scope="module", params=NAMES)
def tokenizer(request: pytest.FixtureRequest, hub_files: Path) -> Any:
    """That of each model of the paper."""
    return load_tokenizer(resolve_model(str(folder_of(hub_files, NAMES[request.param]))))


def test_every_answer_is_read_whole_and_ends_where_its_block_is_closed(
    tokenizer: Any, answers: list[str]
) -> None:
    reading = Reading(tokenizer, {tokenizer.eos_token_id}, ())
    for answer in answers:
        tokens = written(tokenizer, answer)
        ended = reading.completion([*tokens, tokenizer.eos_token_id])
        assert (ended.text, ended.finish) == (answer, "stop")
        if answer.count("```") == 2:  # one published answer has fences of its own
            found = reading.completion(drawn(reading, [*tokens, *written(tokenizer, "\nMore")]))
            assert (found.text, found.finish) == (answer, "stop")


@pytest.mark.parametrize("stop", ["\n\n", "END", "🎉", "é."])
def test_a_stop_text_is_found_wherever_tokens_cut_it(tokenizer: Any, stop: str) -> None:
    text = f"x = 'é 你好'  # a 🎈{stop}"
    reading = Reading(tokenizer, set(), (stop, "never written"))
    tokens = written(tokenizer, text)
    found = drawn(reading, [*tokens, *written(tokenizer, "more and more")])
    assert found == tokens
    assert (reading.completion(found).text, reading.completion(found).finish) == (
        text.removesuffix(stop),
        "stop",
    )


def test_half_a_character_waits_for_its_other_half(tokenizer: Any) -> None:
    """Whatever is cut by the limit is shown as such, and nothing that is whole."""
    reading = Reading(tokenizer, set(), ())
    tokens = written(tokenizer, "a🎈")
    assert reading.completion(tokens).text == "a🎈"
    assert reading.completion(tokens[:-1]).text.startswith("a")
    assert "\ufffd" in reading.completion(tokens[:-1]).text


def test_what_is_decoded_does_not_grow_with_the_candidate(tokenizer: Any) -> None:
    """With the square of its length it would be 31 times as much for 8 times the tokens."""
    costs = []
    for lines in (20, 160):
        counting = Counting(tokenizer)
        reading = Reading(counting, set(), ("\n\n", "END OF ANSWER"))
        tokens = written(tokenizer, "print('some more of it')\n" * lines)
        assert drawn(reading, tokens) == tokens
        costs.append(counting.decoded / len(tokens))
    assert costs[1] < costs[0] * 1.2


@pytest.mark.parametrize(("configured", "ends"), [([7, 8], {7, 8, 9}), (7, {7, 9}), (None, {9})])
def test_an_answer_ends_with_every_end_token_there_is(configured: Any, ends: set[int]) -> None:
    assert end_ids(SimpleNamespace(eos_token_id=9), SimpleNamespace(eos_token_id=configured)) == ends
