"""Prompts for the tiny model."""

import pytest

from mlbench_data.models import Model, load_tokenizer
from mlbench_data.prompts import PromptBuilder
from mlbench_data.template import read_template


@pytest.fixture(scope="session")
def builder(tokenizer_model: Model) -> PromptBuilder:
    return PromptBuilder(load_tokenizer(tokenizer_model), tokenizer_model, read_template(None), 3, 96)
