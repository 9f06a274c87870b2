"""Brings what a sweep needs to a cluster whose compute nodes reach no hub, and proves that it is whole.

    python slurm/prefetch.py --config configs/paper.yaml

Run it where the hub can be reached, such as a login node, with the variables of the site (HF_HOME).
"""

import hashlib
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlbench_data.bad_input import BadInput, JobFailed
from mlbench_data.cli import run_script
from mlbench_data.files import PROJECT_ROOT, make_folder, sha256_of_file
from mlbench_data.models import Model, load_tokenizer, resolve_model
from mlbench_data.preflight import refuse, room_problems
from mlbench_data.sources import benchmark_named
from mlbench_data.weight_files import chosen_weights, listed_by_the_hub, local_folder, missing_weights
from slurm.prefetched import (
    FetchedModel,
    Prefetched,
    changed_files,
    check_prefetched,
    hub_models,
    read_record,
    write_record,
)
from slurm.sweep import Sweep, folder_of, sweep_in

USED = ("*.safetensors", "*.json", "*.txt", "*.model", "*.jinja", "*.py")
"""What a model needs: other files hold its weights in formats that are not read, or pictures."""


@dataclass(frozen=True)
class PrefetchConfig(Sweep):
    """Which sweep to fetch for."""

    verify: bool = False
    """Read everything that was fetched before, and prove that it has not changed."""


def main(config: PrefetchConfig) -> int:
    """Fetches models, tokenizers, checkouts, data and images for a sweep, and proves that they are whole."""
    os.chdir(PROJECT_ROOT)  # as jobs do
    sweep = sweep_in(config)
    for name in sweep.models:
        resolve_model(name)
    if not config.verify:
        check_fetchable(sweep)
    fetch_checkouts(sweep)  # proves those that are there
    fetch_image(sweep)
    if config.verify:
        check_prefetched(sweep)
        verify_models(sweep)
    else:
        fetch_benchmark(sweep)
        fetch_models(sweep)
    verify_benchmark(sweep)
    print("everything is there; set `offline: true` in the site's file")
    return 0


def check_fetchable(sweep: Sweep) -> None:
    """Raises BadInput with what keeps the sweep's models from being fetched and read, before anything is."""
    from huggingface_hub import constants

    if not (models := hub_models(sweep)):
        return
    if constants.HF_HUB_OFFLINE:
        raise BadInput("HF_HUB_OFFLINE is set, and models are to be fetched; unset it")
    problems: list[str] = []
    needed = 0
    for model in models:
        try:
            weights = chosen_weights(model, listed_by_the_hub(model))
            there = local_folder(model)
            needed += sum(size for name, size in weights.items() if not (there and (there / name).exists()))
        except BadInput as error:
            problems += error.args
    refuse([*problems, *room_problems(constants.HF_HUB_CACHE, needed, "the models")])


def fetch_models(sweep: Sweep) -> None:
    """Models of the hub go into its cache; those in folders are there already."""
    from huggingface_hub import constants

    fetched = [fetch_model(model) for model in hub_models(sweep)]
    make_folder(folder_of(sweep))
    write_record(sweep, Prefetched(cache=str(constants.HF_HUB_CACHE), models=fetched))


def fetch_model(model: Model) -> FetchedModel:
    """A model's weights and tokenizer at one commit; each file is compared with the hub's own hash of it.

    Raises JobFailed if the hub does not give them, or gives something else.
    """
    from httpx2 import HTTPError  # what the hub's library lets through without a network
    from huggingface_hub import HfApi, snapshot_download

    try:
        api = HfApi()
        commit = str(api.model_info(model.location, revision=model.revision).sha)
        listed = {
            item.path: item for item in api.list_repo_tree(model.location, recursive=True, revision=commit)
            if hasattr(item, "blob_id")
        }  # fmt: skip
        folder = Path(snapshot_download(model.location, revision=model.revision, allow_patterns=[*USED]))
    except (OSError, ValueError, HTTPError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise JobFailed(f"{model.location}: the hub did not give it ({reason})") from error
    files = {str(path.relative_to(folder)): path for path in sorted(folder.rglob("*")) if path.is_file()}
    for name, path in files.items():
        if name in listed and not is_what_the_hub_says(path, listed[name]):
            raise JobFailed(f"{path}: is not the file of the hub; remove it and fetch again")
    if lacking := missing_weights(folder, set(files)):
        raise JobFailed(f"{model.location}: lacks {', '.join(lacking[:3])}; it cannot be loaded")
    for found in (model, Model(model.name, str(folder), model.format)):  # libraries know some by their name
        load_tokenizer(found)
    size = sum(path.stat().st_size for path in files.values())
    print(f"{model.name}: {len(files)} files, {size / 1e9:.2f} GB, commit {commit[:12]}; its tokenizer loads")
    hashes = {name: sha256_of_file(path) for name, path in files.items()}
    return FetchedModel(model.location, model.revision, commit, str(folder), hashes)


def is_what_the_hub_says(path: Path, listed: Any) -> bool:
    """Whether a file has the hash that the hub gives: SHA-256 of large files, git's own of the others."""
    if listed.lfs is not None:
        return sha256_of_file(path) == listed.lfs.sha256
    content = path.read_bytes()
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest() == listed.blob_id


def verify_models(sweep: Sweep) -> None:
    """Raises JobFailed if a file has changed since it was fetched."""
    for model in read_record(sweep).models if hub_models(sweep) else ():
        if changed := list(changed_files(model)):
            raise JobFailed(f"{Path(model.folder, changed[0])}: not what was fetched; fetch again")
        print(f"{model.location}: {len(model.files)} files as they were fetched")


def fetch_checkouts(sweep: Sweep) -> None:
    """The repositories that candidates run in, if the sweep names a folder for them."""
    if sweep.source is not None and "repositories" in sweep.eval:
        run("mlbench_data/checkout.py", "--out", str(sweep.eval["repositories"]))


def fetch_benchmark(sweep: Sweep) -> None:
    """Builds the benchmark, if it is not there and the sweep says from what."""
    if sweep.benchmark == "mini" or Path(sweep.benchmark).is_dir():
        return
    if sweep.source is None:
        raise BadInput(f"{sweep.benchmark}: no such benchmark, and the sweep has no source to build it from")
    readmes = ["--readmes", str(sweep.eval["repositories"])] if "repositories" in sweep.eval else []
    run("mlbench_data/build.py", "--source", sweep.source, *readmes, "--out", sweep.benchmark)


def verify_benchmark(sweep: Sweep) -> None:
    """Reads every row and README, whose hashes the benchmark's manifest holds. Raises BadInput."""
    benchmark = benchmark_named(sweep.benchmark)
    counts = {split: len(benchmark.rows(split)) for split in benchmark.manifest["splits"]}
    readmes = len(benchmark.texts("readmes")) + len(benchmark.texts("test_readmes"))
    rows = ", ".join(f"{split} {count}" for split, count in counts.items())
    print(f"{sweep.benchmark}: {rows} rows and {readmes} READMEs as in its manifest")


def fetch_image(sweep: Sweep) -> None:
    """The image that candidates run in: docker's and podman's are pulled, apptainer's file is made once."""
    sandbox, image = sweep.eval.get("sandbox", "bubblewrap"), sweep.eval.get("image")
    if sandbox == "bubblewrap" or image is None:
        return
    if sandbox != "apptainer":
        call([sandbox, "pull", image])
    elif not Path(image).is_file():
        if sweep.image_source is None:
            raise BadInput(f"{image}: no such image, and the sweep has no image_source such as docker://NAME")
        call(["apptainer", "pull", image, sweep.image_source])
    print(f"{image}: there for {sandbox}")


def run(script: str, *arguments: str) -> None:
    """Runs one of the toolkit's scripts. Raises JobFailed if it fails; it has said why."""
    call([sys.executable, str(PROJECT_ROOT / script), *arguments])


def call(command: list[str]) -> None:
    """Raises JobFailed if a command fails, or is not there."""
    print(f"$ {' '.join(command)}", flush=True)
    try:
        code = subprocess.run(command, stdin=subprocess.DEVNULL).returncode
    except FileNotFoundError as error:
        raise JobFailed(f"there is no {command[0]} here; install it, or run this where it is") from error
    if code != 0:
        raise JobFailed(f"{Path(command[0]).name} ended with {code}; see its lines above")


if __name__ == "__main__":
    run_script(PrefetchConfig, main)
