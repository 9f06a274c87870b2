"""Counting a text's tokens by the vocabularies of the paper's Table 8."""

import os
from collections.abc import Callable
from functools import cache
from pathlib import Path

from mlbench_data.bad_input import BadInput

Counter = Callable[[str], int]

LLAMA_FILE = "llama.model"
"""CodeLlama's and Llama-2's SentencePiece model, in a folder of tokenizers."""


def counters(folder: str | None) -> dict[str, Counter]:
    """`gpt35` (tiktoken's cl100k_base) and `codellama`, from a folder of tokenizer files or, without one,
    from where the libraries fetch them. No beginning-of-text token is counted. Raises BadInput.
    """
    if folder is not None and not Path(folder).is_dir():
        raise BadInput(f"{folder}: no such folder; expected {LLAMA_FILE} and tiktoken's cache of cl100k_base")
    return {"gpt35": cache(_tiktoken(folder)), "codellama": cache(_codellama(folder))}


def _tiktoken(folder: str | None) -> Counter:
    import tiktoken  # only tables of lengths need it

    if folder is not None:
        os.environ["TIKTOKEN_CACHE_DIR"] = folder  # the only way to tell it
    try:
        encoding = tiktoken.get_encoding("cl100k_base")
    except OSError as error:  # what requests raises is one
        where = folder or "tiktoken's cache"
        raise BadInput(f"{where}: no cl100k_base there, and it could not be fetched; "
                       "give its folder with --tokenizers") from error  # fmt: skip
    return lambda text: len(encoding.encode_ordinary(text))


def _codellama(folder: str | None) -> Counter:
    if folder is None:
        from mlbench_data.models import load_tokenizer, resolve_model

        tokenizer = load_tokenizer(resolve_model("codellama-7b-instruct"))
        return lambda text: len(
            tokenizer(text, add_special_tokens=False, split_special_tokens=True).input_ids
        )
    from sentencepiece import SentencePieceProcessor

    path = Path(folder) / LLAMA_FILE
    if not path.is_file():
        raise BadInput(f"{path}: no such file; expected Llama-2's SentencePiece model")
    try:
        pieces = SentencePieceProcessor(model_file=str(path))
    except (OSError, RuntimeError) as error:
        raise BadInput(f"{path}: not a SentencePiece model") from error
    return lambda text: len(pieces.encode(text))
