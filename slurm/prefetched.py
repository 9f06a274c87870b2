"""What slurm/prefetch.py has brought: its record in the sweep's folder, and whether it is still there."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from mlbench_data.bad_input import BadInput
from mlbench_data.files import read_json, sha256_of_file, write_json
from mlbench_data.models import Model, resolve_model
from slurm.sweep import Sweep, folder_of

AGAIN = "run slurm/prefetch.py with the same --config where the hub can be reached"


@dataclass(frozen=True)
class FetchedModel:
    """A model of the hub on disk: its commit, its folder in the hub's cache, and the hash of each file."""

    location: str
    revision: str | None
    commit: str
    folder: str
    files: dict[str, str]


@dataclass(frozen=True)
class Prefetched:
    """Everything that was fetched. `cache` is where the hub's library looks for it."""

    cache: str
    models: list[FetchedModel]


def record_of(sweep: Sweep) -> Path:
    """Where the record lies."""
    return folder_of(sweep) / "prefetched.json"


def write_record(sweep: Sweep, fetched: Prefetched) -> None:
    """Written last, when everything is there."""
    write_json(record_of(sweep), asdict(fetched))


def read_record(sweep: Sweep) -> Prefetched:
    """Raises BadInput if nothing was fetched."""
    path = record_of(sweep)
    if not path.exists():
        raise BadInput(f"{path}: nothing was fetched for this sweep; {AGAIN}")
    values = read_json(path, "the record of slurm/prefetch.py")
    try:
        models = [FetchedModel(**model) for model in values["models"]]
        return Prefetched(cache=values["cache"], models=models)
    except (KeyError, TypeError) as error:
        raise BadInput(f"{path}: not the record of slurm/prefetch.py; {AGAIN}") from error


def hub_models(sweep: Sweep) -> list[Model]:
    """The sweep's models that come from the hub."""
    models = [resolve_model(name) for name in sweep.models]
    return [model for model in models if not Path(model.location).is_dir()]


def check_prefetched(sweep: Sweep) -> None:
    """Raises BadInput unless all models of the sweep were fetched, and their files are still there."""
    if not hub_models(sweep):
        return
    fetched = {(model.location, model.revision): model for model in read_record(sweep).models}
    for model in hub_models(sweep):
        found = fetched.get((model.location, model.revision))
        if found is None:
            raise BadInput(f"{model.name} was not fetched, and the site is offline; {AGAIN}")
        if gone := [name for name in found.files if not Path(found.folder, name).is_file()]:
            raise BadInput(f"{Path(found.folder, gone[0])} is gone, and the site is offline; {AGAIN}")


def changed_files(model: FetchedModel) -> Iterator[str]:
    """The files of a fetched model that are not there, or not what was fetched."""
    for name, sha256 in model.files.items():
        path = Path(model.folder, name)
        if not path.is_file() or sha256_of_file(path) != sha256:
            yield name
