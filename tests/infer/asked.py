"""Requests made of token ids."""

from array import array

from infer.engines.interface import Request
from mlbench_data.budget import Cut
from mlbench_data.prompts import Prompt
from mlbench_data.rows import Row


def row(number: int) -> Row:
    """A row of which only the key matters."""
    return Row(1, "", 1, number, "", "{}", "", "", "Bash Script", "", "")


def request(token_ids: list[int], seed: int, readme_end: int = 0) -> Request:
    """A request whose README ends after `readme_end` tokens."""
    start, rest = array("i", token_ids), array("i", token_ids[readme_end:])
    return Request(Prompt(row(seed), start, readme_end, rest, Cut(readme_end, readme_end)), seed, readme_end)


def requests(count: int) -> list[Request]:
    """Prompts of unequal length, so that padding is there to go wrong."""
    return [
        request([100 + (7 * number + place) % 900 for place in range(20 + 9 * number)], number)
        for number in range(count)
    ]
