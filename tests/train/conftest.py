"""Prompts for the tiny model, and runs that repeat themselves to the last bit."""

from collections.abc import Iterator

import pytest

from mlbench_data.models import Model, load_tokenizer
from mlbench_data.prompts import PromptBuilder
from mlbench_data.template import read_template


@pytest.fixture(scope="session")
def builder(tokenizer_model: Model) -> PromptBuilder:
    return PromptBuilder(load_tokenizer(tokenizer_model), tokenizer_model, read_template(None), 3, 96)


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """A launcher chooses its own number of threads, and sums are rounded by how they are split."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        yield
