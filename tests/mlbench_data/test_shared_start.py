"""Texts that share a start have the tokens that they would have alone, for every kind of tokenizer."""

import shutil
from array import array
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer
from transformers import LlamaTokenizer

from mlbench_data.models import Model, load_tokenizer
from mlbench_data.readmes import readme_text
from mlbench_data.rows import read_rows
from mlbench_data.shared_start import OVERLAP, Encode, SharedStart, Tokens


def encode_of(tokenizer: Tokenizer) -> Encode:
    def encode(text: str) -> Tokens:
        found = tokenizer.encode(text, add_special_tokens=False)
        starts, ends = zip(*found.offsets, strict=True) if found.ids else ((), ())
        words = array("i", [-1 if word is None else word for word in found.word_ids])
        return Tokens(array("i", found.ids), array("i", starts), array("i", ends), words)

    return encode


@pytest.fixture(scope="module")
def smollm(tokenizer_model: Model) -> Encode:
    return encode_of(load_tokenizer(tokenizer_model).backend_tokenizer)


@pytest.fixture(scope="module", params=["smollm", "deepseek-coder", "llama"])
def encode(
    request: pytest.FixtureRequest, smollm: Encode, tmp_path_factory: pytest.TempPathFactory
) -> Encode:
    """Byte-level BPE, DeepSeek-Coder's with its digits and scripts apart, and Llama's over whole texts."""
    if request.param == "smollm":
        return smollm
    tokenizers: Path = request.getfixturevalue("shared_data") / "tokenizers"
    if request.param == "deepseek-coder":
        return encode_of(Tokenizer.from_file(str(tokenizers / "deepseek-coder.json")))
    return encode_of(llama_tokenizer(tokenizers / "llama.model", tmp_path_factory.mktemp("llama")))


def llama_tokenizer(model: Path, folder: Path) -> Tokenizer:
    """Llama-2's SentencePiece model as transformers converts it."""
    shutil.copy(model, folder / "tokenizer.model")
    return LlamaTokenizer.from_pretrained(str(folder)).backend_tokenizer


WORDS = st.sampled_from(
    [
        "train",
        " --lr",
        "\n\n",
        "  ",
        " ",
        "\t",
        "0.15",
        "é",
        "你好",
        "\U0001f600",
        "e.g.",
        "python",
        "a" * 30,
        "\r\n",
        "'",
        "_x",
        "#",
    ]
)
TEXTS = st.lists(WORDS, max_size=150).map("".join)


@settings(max_examples=300, deadline=None, derandomize=True, database=None)
@given(TEXTS, TEXTS, st.sampled_from([0, 5, 16, 40, OVERLAP]))
def test_the_tokens_are_those_of_the_whole_text(encode: Encode, start: str, end: str, seam: int) -> None:
    """Whatever the start ends with, and however little of it is tried first."""
    found, shared = SharedStart(start, encode, seam).followed_by(end)
    whole = encode(start + end)
    assert (found.ids, found.starts, found.ends) == (whole.ids, whole.starts, whole.ends)
    assert found.ids[:shared] == encode(start).ids[:shared]


@pytest.mark.parametrize("seam", [16, OVERLAP])
def test_real_pages_followed_by_real_instructions_share_nearly_all(
    encode: Encode, shared_data: Path, seam: int
) -> None:
    rows = read_rows(shared_data / "mlbench" / "rows.jsonl")
    for name in sorted({row.repository for row in rows}):
        page = readme_text((shared_data / "readmes" / name / "README.md").read_text(encoding="utf-8"))
        start = SharedStart(f"README:\n{page}\n\nInstruction:\n", encode, seam)
        for row in [row for row in rows if row.repository == name][:4]:
            found, shared = start.followed_by(row.instruction)
            assert found.ids == encode(start.text + row.instruction).ids
            assert shared >= len(start.tokens) - 3, "only what touches the seam is the row's own"


def test_only_the_end_is_tokenized_again(smollm: Encode) -> None:
    lengths = []

    def counting(text: str) -> Tokens:
        lengths.append(len(text))
        return smollm(text)

    start = SharedStart("A sentence of a README. " * 500, counting)
    for number in range(20):
        start.followed_by(f"Instruction {number}.")
    assert lengths[0] == 12_000
    assert max(lengths[1:]) < OVERLAP + 20


def test_ends_alike_are_tokenized_once_for_all_starts(smollm: Encode) -> None:
    """Over two borders of words the few characters between README and instruction suffice."""
    seen = []

    def remembering(text: str) -> Tokens:
        seen.append(text)
        return smollm(text)

    between = "\n\nInstruction:\n"
    for readme in ("One page. " * 40, "Another page, in other words. " * 40):
        SharedStart(readme + between, remembering, len(between)).followed_by("Train it.")
    assert seen[1] == seen[3] == between + "Train it."


def test_a_start_without_a_meeting_is_tokenized_as_a_whole() -> None:
    """A tokenizer that reads everything backwards never agrees with itself on a part."""

    def encode(text: str) -> Tokens:
        places = array("i", range(len(text)))
        backwards = array("i", [len(text) - place for place in places])
        return Tokens(backwards, places, array("i", [*places[1:], len(text)]), places)

    found, shared = SharedStart("x" * 1000, encode).followed_by("yz")
    assert found == encode("x" * 1000 + "yz")
    assert shared == 0
