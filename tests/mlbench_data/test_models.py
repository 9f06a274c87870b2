"""A model is a name of configs/models, a folder with weights, or a hub id; other names say what is near."""

import ast
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

import mlbench_data
from mlbench_data import models
from mlbench_data.bad_input import BadInput
from mlbench_data.models import MODELS, Model, Shape, load_tokenizer, resolve_model

NAMES = sorted(path.stem for path in MODELS.glob("*.yaml"))
CARD = {"hub_id": "somebody/some-model", "revision": "main", "format": "plain", "lora_targets": ["q_proj"]}
SHAPE = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 1000,
}


@pytest.fixture
def card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model description that a test may change, known as `mine`."""
    monkeypatch.setattr(models, "MODELS", tmp_path)
    return tmp_path / "mine.yaml"


@pytest.mark.parametrize("name", NAMES)
def test_every_shipped_description_parses(name: str) -> None:
    model = resolve_model(name)
    assert model.name == name
    assert model.format in ("chat", "plain")
    assert model.context == (4096 if name == "llama-2-7b" else 8192)  # Llama-2 has no more positions
    assert model.lora_targets


def test_the_models_of_the_paper_and_the_embedded_one_are_there() -> None:
    assert {"codellama-7b-instruct", "deepseek-coder-6.7b-base", "llama-2-7b", "smollm2-135m"} <= set(NAMES)


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("codellama-7b-instruct", 6_738_546_688),
        ("deepseek-coder-6.7b-base", 6_740_512_768),
        ("llama-2-7b", 6_738_415_616),
    ],
)
def test_the_papers_models_have_their_published_number_of_parameters(name: str, parameters: int) -> None:
    shape = resolve_model(name).shape
    assert shape is not None
    hidden, heads = shape.hidden_size, shape.num_attention_heads
    attention = 2 * hidden * hidden * (1 + shape.num_key_value_heads // heads)
    layer = attention + 3 * hidden * shape.intermediate_size + 2 * hidden
    assert 2 * shape.vocab_size * hidden + shape.num_hidden_layers * layer + hidden == parameters


def test_a_description_becomes_a_model(card: Path) -> None:
    card.write_text(yaml.safe_dump(CARD))
    assert resolve_model("mine") == Model(
        "mine", "somebody/some-model", "plain", revision="main", lora_targets=("q_proj",)
    )


def test_a_description_may_have_the_models_shape(card: Path) -> None:
    card.write_text(yaml.safe_dump({**CARD, "shape": SHAPE}))
    assert resolve_model("mine").shape == Shape(64, 128, 2, 4, 2, 1000)


@pytest.mark.parametrize(
    ("shape", "error"),
    [
        ({**SHAPE, "layers": 2}, "shape has .*, layers, .*; expected hidden_size, "),
        ({"hidden_size": 64}, "shape has hidden_size; expected hidden_size, intermediate_size"),
        (None, "shape has None; expected hidden_size"),
        ([1], r"shape has \[1\]; expected hidden_size"),
        ({**SHAPE, "vocab_size": "many"}, "shape's vocab_size is 'many'; expected a whole number above 0"),
        ({**SHAPE, "hidden_size": 0}, "shape's hidden_size is 0; expected a whole number above 0"),
        ({**SHAPE, "num_attention_heads": 3}, "shape's heads do not divide hidden_size"),
    ],
)
def test_a_wrong_shape_names_file_and_size(card: Path, shape: Any, error: str) -> None:
    card.write_text(yaml.safe_dump({**CARD, "shape": shape}))
    with pytest.raises(BadInput, match=rf"^{card}: {error}"):
        resolve_model("mine")


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"contxt": 100}, "unknown keys contxt; expected"),
        ({"name": "other"}, "unknown keys name; expected"),
        ({"format": "caht"}, "format is 'caht'; expected chat or plain"),
        ({"format": None}, "format is None; expected chat or plain"),
        ({"lora_targets": "q_proj"}, "lora_targets is 'q_proj'; expected all-linear or a list"),
        ({"hub_id": None}, "neither hub_id nor embedded"),
    ],
)
def test_a_wrong_description_names_file_and_key(card: Path, change: dict[str, Any], error: str) -> None:
    values = {name: value for name, value in {**CARD, **change}.items() if value is not None}
    card.write_text(yaml.safe_dump(values))
    with pytest.raises(BadInput) as refused:
        resolve_model("mine")
    assert str(refused.value).startswith(f"{card}: {error}")


@pytest.mark.parametrize(
    ("text", "error"),
    [("", ": not a YAML mapping"), ("just text", ": not a YAML mapping"), ("hub_id: [a", ":1: not YAML")],
)
def test_a_description_that_is_no_mapping_names_the_file(card: Path, text: str, error: str) -> None:
    card.write_text(text)
    with pytest.raises(BadInput) as refused:
        resolve_model("mine")
    assert str(refused.value).startswith(f"{card}{error}")


def test_an_unknown_name_says_the_nearest() -> None:
    with pytest.raises(BadInput, match=r"^unknown model 'smollm-135m': did you mean smollm2-135m\?$"):
        resolve_model("smollm-135m")
    with pytest.raises(
        BadInput, match=r"^unknown model 'xyz': known: .*smollm2-135m; or a folder, or a hub id$"
    ):
        resolve_model("xyz")


def test_a_hub_id_is_taken_as_it_is() -> None:
    assert resolve_model("owner/some-model") == Model("some-model", "owner/some-model", "chat")


@pytest.mark.parametrize("name", ["/no/such/folder", "./missing", "a/b/c"])
def test_a_path_that_is_not_there_is_no_hub_id(name: str) -> None:
    with pytest.raises(BadInput, match="unknown model"):
        resolve_model(name)


def test_a_folder_is_chat_if_its_tokenizer_is(tokenizer_model: Model, tmp_path: Path) -> None:
    assert (tokenizer_model.name, tokenizer_model.format, tokenizer_model.context) == (
        "tiny-llama",
        "chat",
        8192,
    )
    (tmp_path / "config.json").write_text(json.dumps({"max_position_embeddings": 2048}))
    (tmp_path / "tokenizer_config.json").write_text("{}")
    plain = resolve_model(str(tmp_path))
    assert (plain.format, plain.context) == ("plain", 2048)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": "{{ messages }}"}))
    assert resolve_model(str(tmp_path)).format == "chat"


def test_a_longer_context_is_the_papers(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"max_position_embeddings": 131072}))
    assert resolve_model(str(tmp_path)).context == 8192


def test_a_folder_without_a_model_says_so(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"no config\.json there, so no model; give a folder with weights$"):
        resolve_model(str(tmp_path))


def test_an_adapter_given_as_a_model_says_how_to_give_it(tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_text("{}")
    with pytest.raises(BadInput, match=r"so no model; it is an adapter: give it with --adapter$"):
        resolve_model(str(tmp_path))


@pytest.mark.parametrize("file", ["config.json", "tokenizer_config.json"])
def test_a_broken_file_of_a_model_is_named(tmp_path: Path, file: str) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / file).write_text('{"a":')
    with pytest.raises(BadInput, match=rf"{file}:1: not JSON"):
        resolve_model(str(tmp_path))


def test_a_folder_without_a_tokenizer_is_bad_input(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    with pytest.raises(BadInput, match=rf"^{tmp_path}: no tokenizer could be loaded \(.*\)$"):
        load_tokenizer(resolve_model(str(tmp_path)))


def test_the_identity_of_a_folder_follows_its_weights_not_its_name(tmp_path: Path) -> None:
    def folder(name: str, weights: bytes) -> Model:
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text("{}")
        (tmp_path / name / "model.safetensors").write_bytes(weights)
        (tmp_path / name / "README.md").write_text(name)
        return resolve_model(str(tmp_path / name))

    one, same, other = folder("one", b"1"), folder("same", b"1"), folder("other", b"2")
    assert one.identity() == same.identity() != other.identity()
    (tmp_path / "one" / "model.safetensors").write_bytes(b"33")
    assert one.identity() != same.identity()
    assert resolve_model("owner/some-model").identity() == {"hub_id": "owner/some-model", "revision": None}


def test_no_module_of_the_data_package_imports_torch() -> None:
    folder = Path(mlbench_data.__file__).parent
    files = [path for path in folder.rglob("*.py") if "repositories" not in path.parts]
    assert len(files) > 15
    for path in files:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not {name.split(".")[0] for name in names} & {"torch", "train", "infer", "eval"}, path
