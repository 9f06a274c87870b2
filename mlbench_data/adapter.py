"""An adapter to sample with: whole, and made for the model that it is put on."""

import json
from dataclasses import dataclass
from pathlib import Path

from mlbench_data.bad_input import BadInput
from mlbench_data.files import cached_sha256_of_file, read_json, sha256_of
from mlbench_data.models import Model


@dataclass(frozen=True)
class Adapter:
    """A folder as `train/sft.py` leaves it. `template` and `task` are those it was trained with, if known."""

    folder: Path
    sha256: str
    rank: int
    template: str | None
    dora: bool = False
    task: int | None = None


def adapter_sha256(folder: Path) -> str:
    """Tells whether two runs used the same adapter. Raises OSError or ValueError if there is none."""
    settings = json.loads((folder / "adapter_config.json").read_text(encoding="utf-8"))
    return sha256_of([cached_sha256_of_file(folder / "adapter_model.safetensors"), settings])


def open_adapter(folder: str, model: Model) -> Adapter:
    """Checks that `folder` holds a finished adapter of this model. Raises BadInput."""
    path = Path(folder)
    weights = path / "adapter_model.safetensors"
    settings = read_json(path / "adapter_config.json", "an adapter's settings (train one with train/sft.py)")
    if not weights.is_file():
        raise BadInput(f"{weights}: no such file; the adapter is not complete")
    if not isinstance(settings, dict) or not isinstance(settings.get("r"), int):
        raise BadInput(f"{path / 'adapter_config.json'}: no rank r; expected the settings of a LoRA adapter")
    if settings.get("peft_type") != "LORA":
        raise BadInput(f"{path / 'adapter_config.json'}: peft_type is not LORA; expected a LoRA adapter")
    record = path / "training.json"
    template = task = None
    if record.is_file():
        training = read_json(record, "the record of a training run")
        if not isinstance(training, dict) or not {"finished", "identity"} <= training.keys():
            raise BadInput(
                f"{record}: not the record of a training run; remove it if the adapter is another's"
            )
        if not training["finished"]:
            raise BadInput(f"{path}: its training is not finished; run the same train/sft.py command again")
        identity = training["identity"]
        if not isinstance(identity, dict) or not {"template", "weights", "model"} <= identity.keys():
            raise BadInput(f"{record}: does not say what was trained; expected the record of train/sft.py")
        template, task = identity["template"], identity.get("task")
        if identity["weights"] != model.identity():
            trained_on = identity["model"]
            raise BadInput(f"{path}: an adapter of another model ({trained_on}); give --model {trained_on}")
    return Adapter(
        path,
        adapter_sha256(path),
        settings["r"],
        template,
        bool(settings.get("use_dora")),
        task,
    )
