"""Counting tokens by the vocabularies of the paper's Table 8."""

from pathlib import Path

import pytest

from mlbench_data.bad_input import BadInput
from mlbench_data.tokens import LLAMA_FILE, counters


def test_tokens_are_counted_without_a_begin_token(shared_data: Path) -> None:
    count = counters(str(shared_data / "tokenizers"))
    assert sorted(count) == ["codellama", "gpt35"]
    assert count["gpt35"]("hello world") == 2
    assert count["codellama"]("hello world") == 2
    assert count["codellama"]("") == count["gpt35"]("") == 0


def test_what_looks_like_a_special_token_is_text(shared_data: Path) -> None:
    assert counters(str(shared_data / "tokenizers"))["gpt35"]("<|endoftext|>") > 1


def test_a_folder_without_a_model_is_bad_input(tmp_path: Path, shared_data: Path) -> None:
    for file in (shared_data / "tokenizers").iterdir():
        if file.name != LLAMA_FILE:
            (tmp_path / file.name).symlink_to(file)
    with pytest.raises(BadInput, match=r"llama\.model: no such file"):
        counters(str(tmp_path))
    (tmp_path / LLAMA_FILE).write_text("no model")
    with pytest.raises(BadInput, match=r"llama\.model: not a SentencePiece model"):
        counters(str(tmp_path))
