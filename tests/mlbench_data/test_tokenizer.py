"""A tokenizer is the one of its tokenizer.json, under whatever name, and gives back the text it was given."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from benchmarks.hub_cache import CODELLAMA, DEEPSEEK, LLAMA, NAMES, folder_of
from mlbench_data.bad_input import BadInput
from mlbench_data.models import Model, load_tokenizer, resolve_model, save_tokenizer
from mlbench_data.sources import benchmark_named
from tests.helpers import read_lines

TEXT = "def f(x):\n    if x:\n\t\treturn x  # two  spaces\n\n\nprint('é 你好 🎉')\n"


@pytest.fixture(scope="module")
def answers(shared_data: Path) -> list[str]:
    """Those of 104 rows of the benchmark, and all of MiniBench's."""
    published = [row["output"] for row in read_lines(shared_data / "mlbench" / "rows.jsonl")]
    assert len(published) == 104
    mini = benchmark_named("mini")
    return published + [row.output for split in mini.manifest["splits"] for row in mini.rows(split)]


Located = Callable[[Path, str, Path], Model]


def by_name(hub: Path, name: str, tmp_path: Path) -> Model:
    return resolve_model(name)


def by_folder(hub: Path, name: str, tmp_path: Path) -> Model:
    shutil.copytree(folder_of(hub, NAMES[name]), tmp_path / "weights")
    return resolve_model(str(tmp_path / "weights"))


def ids_of(tokenizer: Any, text: str) -> list[int]:
    return tokenizer(text, add_special_tokens=False).input_ids


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("located", [by_name, by_folder])
def test_a_model_has_one_tokenizer_wherever_it_lies(
    name: str, located: Located, hub: Path, answers: list[str], tmp_path: Path
) -> None:
    """DeepSeek-Coder's configuration names a class that would cut its bytes at spaces, and lose these: only
    its name on the hub tells the library better. All published answers and MiniBench's survive.
    """
    tokenizer = load_tokenizer(located(hub, name, tmp_path))
    raw = Tokenizer.from_file(str(folder_of(hub, NAMES[name]) / "tokenizer.json"))
    for text in (TEXT, "  indented", "\n\n\tx", *answers):
        assert ids_of(tokenizer, text) == raw.encode(text, add_special_tokens=False).ids
        assert tokenizer.decode(ids_of(tokenizer, text)) == text
    config = json.loads((folder_of(hub, NAMES[name]) / "tokenizer_config.json").read_text())
    assert tokenizer.eos_token == config["eos_token"]["content"]
    assert tokenizer.bos_token_id == (32013 if NAMES[name] == DEEPSEEK else 1)
    assert tokenizer.chat_template == config.get("chat_template")


@pytest.mark.parametrize("name", NAMES)
def test_a_saved_tokenizer_is_the_same_here_and_in_other_programs(
    name: str, hub: Path, tmp_path: Path
) -> None:
    """As merging and full fine-tuning leave it. vLLM's server and transformers choose by the class in the
    folder, and transformers before 5 know only this name.
    """
    from transformers import AutoTokenizer

    folder = tmp_path / "saved"
    folder.mkdir()
    shutil.copy(folder_of(hub, NAMES[name]) / "config.json", folder)
    save_tokenizer(resolve_model(name), folder)
    config = json.loads((folder / "tokenizer_config.json").read_text())
    assert config["tokenizer_class"] == "PreTrainedTokenizerFast"
    original = load_tokenizer(resolve_model(name))
    for tokenizer in (load_tokenizer(resolve_model(str(folder))), AutoTokenizer.from_pretrained(folder)):
        assert ids_of(tokenizer, TEXT) == ids_of(original, TEXT)
        assert tokenizer.decode(ids_of(tokenizer, TEXT)) == TEXT
        assert tokenizer.chat_template == original.chat_template
        assert tokenizer.special_tokens_map == original.special_tokens_map


@pytest.mark.parametrize("hub_id", [CODELLAMA, LLAMA])
def test_a_folder_with_only_a_sentencepiece_model_will_do(hub_id: str, hub: Path, tmp_path: Path) -> None:
    folder = tmp_path / "pieces"
    shutil.copytree(folder_of(hub, hub_id), folder)
    (folder / "tokenizer.json").unlink()
    tokenizer = load_tokenizer(resolve_model(str(folder)))
    assert tokenizer.decode(ids_of(tokenizer, TEXT)) == TEXT


def test_a_tokenizer_that_loses_text_is_refused_in_one_line(hub: Path, tmp_path: Path) -> None:
    """Here one whose file cuts at spaces and does not keep them."""
    folder = tmp_path / "broken"
    shutil.copytree(folder_of(hub, DEEPSEEK), folder)
    file = folder / "tokenizer.json"
    settings = json.loads(file.read_text())
    file.unlink()
    settings["pre_tokenizer"] = {"type": "WhitespaceSplit"}
    file.write_text(json.dumps(settings))
    with pytest.raises(BadInput, match=r"broken: its tokenizer does not give back .* read as") as refused:
        load_tokenizer(resolve_model(str(folder)))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("content", ['{"version": "1.0"}', '{"version'])
def test_a_file_that_is_no_tokenizer_is_refused_in_one_line(content: str, hub: Path, tmp_path: Path) -> None:
    folder = tmp_path / "broken"
    shutil.copytree(folder_of(hub, LLAMA), folder)
    (folder / "tokenizer.json").write_text(content)
    with pytest.raises(BadInput, match=r"broken: no tokenizer could be loaded \(.*\)$"):
        load_tokenizer(resolve_model(str(folder)))


def test_spaces_before_punctuation_are_kept(hub: Path, tmp_path: Path) -> None:
    """Some configurations ask for a clean-up, which changes code."""
    folder = tmp_path / "cleaned"
    shutil.copytree(folder_of(hub, DEEPSEEK), folder)
    config = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(
        json.dumps({**config, "clean_up_tokenization_spaces": True})
    )
    tokenizer = load_tokenizer(resolve_model(str(folder)))
    text = "print ( 'a' , b ) ; x . y != n't"
    assert tokenizer.decode(ids_of(tokenizer, text)) == text
