"""Model names: `smollm2-135m` → weights, format, context and LoRA targets (configs/models/*.yaml)."""

import difflib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

from mlbench_data.bad_input import BadInput
from mlbench_data.embedded import embedded_model_folder
from mlbench_data.files import (
    PROJECT_ROOT,
    cached_sha256_of_file,
    read_json,
    read_yaml,
    sha256_of,
    write_json,
)
from mlbench_data.round_trip import prove_round_trip

MODELS = PROJECT_ROOT / "configs" / "models"


@dataclass(frozen=True)
class Shape:
    """The sizes of a Llama, in the words of its config.json: enough to estimate memory without the hub."""

    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    vocab_size: int


@dataclass(frozen=True)
class Model:
    """Where a model's weights are and how it is spoken to.

    `location` is a local folder or a hub id. `format` is chat (its chat template) or plain.
    `context` is the most tokens of prompt and answer together. `shape` is known for some models of the hub.
    """

    name: str
    location: str
    format: Literal["chat", "plain"]
    context: int = 8192
    revision: str | None = None
    lora_targets: tuple[str, ...] | Literal["all-linear"] = "all-linear"
    shape: Shape | None = None

    def identity(self) -> dict[str, str | None]:
        """What tells whether two runs used the same weights: a folder's hash, or id and revision."""
        folder = Path(self.location)
        if not folder.is_dir():
            return {"hub_id": self.location, "revision": self.revision}
        files = sorted(
            path for path in folder.iterdir() if path.suffix in (".safetensors", ".json", ".model")
        )
        return {"sha256": sha256_of({path.name: cached_sha256_of_file(path) for path in files})}


def resolve_model(name: str) -> Model:
    """A name of configs/models, a folder with weights, or a hub id (`owner/name`). Raises BadInput."""
    card = MODELS / f"{name}.yaml"
    if "/" not in name and card.is_file():
        return _from_card(card)
    if Path(name).is_dir():
        return _from_folder(Path(name))
    if name.count("/") == 1 and not name.startswith((".", "/")):
        return Model(name=name.rsplit("/", 1)[-1], location=name, format="chat")
    known = sorted(path.stem for path in MODELS.glob("*.yaml"))
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(known)}; or a folder, or a hub id"
    raise BadInput(f"unknown model {name!r}: {hint}")


def _from_card(card: Path) -> Model:
    values = _mapping(card)
    allowed = {item.name for item in fields(Model)} - {"name", "location"} | {"embedded", "hub_id"}
    if unknown := sorted(set(values) - allowed):
        raise BadInput(f"{card}: unknown keys {', '.join(unknown)}; expected {', '.join(sorted(allowed))}")
    if values.get("format") not in ("chat", "plain"):
        raise BadInput(f"{card}: format is {values.get('format')!r}; expected chat or plain")
    embedded, hub_id = values.pop("embedded", None), values.pop("hub_id", None)
    if not embedded and not hub_id:
        raise BadInput(f"{card}: neither hub_id nor embedded; expected one, to know where the weights are")
    location = str(embedded_model_folder(embedded)) if embedded else hub_id
    targets = values.pop("lora_targets", "all-linear")
    if isinstance(targets, list):
        targets = tuple(targets)
    elif targets != "all-linear":
        raise BadInput(f"{card}: lora_targets is {targets!r}; expected all-linear or a list of module names")
    shape = _shape(card, values.pop("shape")) if "shape" in values else None
    return Model(name=card.stem, location=location, lora_targets=targets, shape=shape, **values)


def _shape(card: Path, values: Any) -> Shape:
    """A description's `shape`. Raises BadInput unless it has every size, and nothing else."""
    names = [item.name for item in fields(Shape)]
    if not isinstance(values, dict) or sorted(map(str, values)) != sorted(names):
        found = ", ".join(map(str, values)) if isinstance(values, dict) else repr(values)
        raise BadInput(f"{card}: shape has {found}; expected {', '.join(names)}")
    for name, value in values.items():
        if type(value) is not int or value < 1:
            raise BadInput(f"{card}: shape's {name} is {value!r}; expected a whole number above 0")
    shape = Shape(**values)
    if shape.hidden_size % shape.num_attention_heads or shape.num_attention_heads % shape.num_key_value_heads:
        raise BadInput(f"{card}: shape's heads do not divide hidden_size, or its key heads the heads")
    return shape


def _mapping(card: Path) -> dict[str, Any]:
    values = read_yaml(card, "a model description")
    if not isinstance(values, dict):
        raise BadInput(f"{card}: not a YAML mapping; expected keys such as hub_id and format")
    return values


def _from_folder(folder: Path) -> Model:
    if not (folder / "config.json").is_file():
        hint = (
            "it is an adapter: give it with --adapter" if (folder / "adapter_config.json").is_file() else ""
        )
        raise BadInput(f"{folder}: no config.json there, so no model; {hint or 'give a folder with weights'}")
    config = read_json(folder / "config.json", "a model's config.json")
    positions = config.get("max_position_embeddings", 8192) if isinstance(config, dict) else None
    if not isinstance(positions, int) or positions < 1:
        raise BadInput(
            f"{folder / 'config.json'}: not a model's configuration; max_position_embeddings is no number"
        )
    context = min(8192, positions)
    tokenizer = folder / "tokenizer_config.json"
    has_chat = (folder / "chat_template.jinja").exists() or (
        tokenizer.is_file() and "chat_template" in read_json(tokenizer, "a tokenizer's configuration")
    )
    return Model(folder.resolve().name, str(folder), "chat" if has_chat else "plain", context)


def has_other_attention(architecture: Any) -> bool:
    """Whether a transformers configuration says that positions do not see all before them, or that scores are
    changed: what attention over shared prefixes does not compute.
    """
    windowed = getattr(architecture, "sliding_window", None) and getattr(
        architecture, "use_sliding_window", True
    )
    return bool(windowed or getattr(architecture, "attn_logit_softcapping", None))


def load_tokenizer(model: Model) -> Any:
    """The model's transformers tokenizer, which needs no torch and is proven to give back what it reads.

    Where there is a tokenizer.json, that is the tokenizer. The class that tokenizer_config.json names is not
    asked: DeepSeek-Coder's would lose every space, and Llama's one of those that a text begins with.
    Raises BadInput if it cannot be loaded, or loses text.
    """
    from transformers import AutoTokenizer, PreTrainedTokenizerFast  # slow to import, and seldom needed
    from transformers.utils import cached_file

    try:
        file = cached_file(
            model.location,
            "tokenizer.json",
            revision=model.revision,
            _raise_exceptions_for_missing_entries=False,
        )
        kind: Any = PreTrainedTokenizerFast if file else AutoTokenizer
        tokenizer = kind.from_pretrained(
            model.location, revision=model.revision, clean_up_tokenization_spaces=False
        )
    except (OSError, ValueError, KeyError) as error:
        raise BadInput(f"{model.location}: no tokenizer could be loaded ({_first_line(error)})") from error
    prove_round_trip(tokenizer, file, model.location)
    return tokenizer


def save_tokenizer(model: Model, folder: Path) -> None:
    """Writes the model's tokenizer beside weights that were made from it. Raises BadInput."""
    load_tokenizer(model).save_pretrained(folder)
    path = folder / "tokenizer_config.json"
    config = read_json(path, "a tokenizer's configuration")
    if config["tokenizer_class"] == "TokenizersBackend":  # which transformers before 5 do not know
        write_json(path, {**config, "tokenizer_class": "PreTrainedTokenizerFast"})
    load_tokenizer(Model(model.name, str(folder), model.format))


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n")[0][:200]
