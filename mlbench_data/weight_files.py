"""A model's weight files, wherever they are: in its folder, in the hub's cache, or on the hub.

Weights are read as safetensors only: other formats can run code while they are read.
"""

import json
from pathlib import Path
from typing import Any

from mlbench_data.bad_input import BadInput, JobFailed
from mlbench_data.models import Model

OTHERS = (".bin", ".pt", ".pth", ".h5", ".msgpack")
"""Endings of weights that are not read."""


def weight_files(model: Model) -> dict[str, int]:
    """The bytes of each weight file that the model will be loaded from, also if the hub still has to give it.

    Raises BadInput if it cannot be loaded, and JobFailed if the hub cannot be asked.
    """
    from huggingface_hub import constants

    folder = local_folder(model)
    if folder is not None and not (lacking := missing_weights(folder, set(_sizes(folder)))):
        return chosen_weights(model, _sizes(folder))
    if Path(model.location).is_dir():
        found = _sizes(Path(model.location))
        chosen_weights(model, found)
        raise BadInput(f"{model.location}: lacks {', '.join(lacking[:3])}; copy or fetch the model again")
    if constants.HF_HUB_OFFLINE:
        raise BadInput(
            f"{model.location}: not in the hub's cache {constants.HF_HUB_CACHE}, and HF_HUB_OFFLINE is set; "
            f"where the hub can be reached, run: {fetch_command(model)}"
        )
    return chosen_weights(model, listed_by_the_hub(model))


def local_folder(model: Model) -> Path | None:
    """Where the model's files are on this machine; None if the hub has not given any yet."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    if Path(model.location).is_dir():
        return Path(model.location)
    try:
        return Path(snapshot_download(model.location, revision=model.revision, local_files_only=True))
    except LocalEntryNotFoundError:
        return None
    except HFValidationError as error:
        raise BadInput(f"{model.location}: neither a folder nor a model of the hub ({error})") from error


def chosen_weights(model: Model, sizes: dict[str, int]) -> dict[str, int]:
    """The safetensors among a model's files. Raises BadInput if there are other weights only, or none."""
    chosen = {name: size for name, size in sizes.items() if name.endswith(".safetensors")}
    if chosen:
        return chosen
    others = sorted(name for name in sizes if name.endswith(OTHERS) and name != "training_args.bin")
    if not others:
        raise BadInput(f"{model.location}: no weights there; expected model.safetensors")
    raise BadInput(
        f"{model.location}: has {others[0]} and no safetensors, which alone are read; convert it once with "
        f"{convert_command(model)} and give --model {model.name}-safetensors"
    )


def listed_by_the_hub(model: Model) -> dict[str, int]:
    """The bytes of each file of a model on the hub, which would give it. Raises BadInput if it would not, and
    JobFailed if it cannot be asked.
    """
    from httpx2 import HTTPError  # what the hub's library lets through without a network
    from huggingface_hub import HfApi
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError, RevisionNotFoundError

    api, revision = HfApi(), model.revision
    try:
        info: Any = api.model_info(model.location, revision=revision, files_metadata=True, timeout=30)
        if info.gated:
            api.auth_check(model.location)
    except GatedRepoError as error:
        raise BadInput(
            f"{model.location}: given only to those who have accepted its terms; accept them on its page "
            f"{api.endpoint}/{model.location}, then run: hf auth login (or set HF_TOKEN)"
        ) from error
    except RevisionNotFoundError as error:
        raise BadInput(f"{model.location}: the hub has no revision {revision} of it") from error
    except RepositoryNotFoundError as error:
        raise BadInput(
            f"{model.location}: the hub knows no such model, or it is private; for a private one run: "
            "hf auth login (or set HF_TOKEN)"
        ) from error
    except (OSError, ValueError, HTTPError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise JobFailed(f"{model.location}: the hub did not give it ({reason})") from error
    return {item.rfilename: item.size or 0 for item in info.siblings}


def missing_weights(folder: Path, names: set[str]) -> list[str]:
    """The weight files that a model's index names and `names` lacks; model.safetensors if it has no index."""
    named: set[str] = set()
    for index in (name for name in names if name.endswith(".safetensors.index.json")):
        found: Any = json.loads((folder / index).read_text(encoding="utf-8"))
        named |= set(found["weight_map"].values())
    if not named and not any(name.endswith(".safetensors") for name in names):
        return ["model.safetensors"]
    return sorted(named - names)


def fetch_command(model: Model) -> str:
    """What brings a model of the hub into its cache."""
    revision = f" --revision {model.revision}" if model.revision else ""
    return f"hf download {model.location}{revision}"


def convert_command(model: Model) -> str:
    """What makes a folder with safetensors from a model that has none."""
    revision = f", revision={model.revision!r}" if model.revision else ""
    source, out = f"{model.location!r}{revision}", f"{model.name}-safetensors"
    return (
        'python -c "import transformers as t; '
        f"t.AutoModelForCausalLM.from_pretrained({source}, dtype='auto', use_safetensors=False)"
        f".save_pretrained('{out}'); t.AutoTokenizer.from_pretrained({source}).save_pretrained('{out}')\""
    )


def _sizes(folder: Path) -> dict[str, int]:
    """The bytes of each file of a folder."""
    return {path.name: path.stat().st_size for path in folder.iterdir() if path.is_file()}
