"""Puts a finished adapter or merged model on the hub: what it takes to use it and to know how it was made.

python train/push.py --folder runs/sft/smollm2-135m-id-task3 --to OWNER/NAME --private --dry_run
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from mlbench_data.bad_input import BadInput, JobFailed
from mlbench_data.cli import run_script
from mlbench_data.files import read_json, read_text
from mlbench_data.preflight import refuse
from train.model_card import CARD

SENT = (
    *("README.md", "training.json", "merge.json", "log.jsonl", "loss.png"),
    *("adapter_config.json", "adapter_model.safetensors"),
    *("config.json", "generation_config.json", "model*.safetensors", "model.safetensors.index.json"),
    *("tokenizer*", "special_tokens_map.json", "added_tokens.json", "vocab.json", "merges.txt", "*.jinja"),
)
"""What is sent; checkpoints, optimizer states and TensorBoard's files stay."""
TOLD = ("training.json", "merge.json", "adapter_config.json", "README.md", "log.jsonl")
"""Files in which a run tells of itself, and perhaps of the machine it ran on."""
SECRET = re.compile(r"\b(hf_|sk-|ghp_|glpat-|AKIA)[A-Za-z0-9_-]{16,}")
PLACE = re.compile(r'(?:^|[\s"`(=])((?:/[\w.@ -]+){2,}|~/[\w./-]+)', re.MULTILINE)


@dataclass(frozen=True)
class PushConfig:
    """What to put on the hub, and where."""

    folder: str = "runs/sft/smollm2-135m-id-task3"
    """A finished adapter or model of train/sft.py, or a merged one of train/merge.py."""
    to: str = ""
    """OWNER/NAME on the hub; made if there is none. HF_ENDPOINT is the hub, HF_TOKEN or hf auth login who."""
    private: bool = False
    """Make it for its owner only; what is there already stays as it is."""
    allow_paths: bool = False
    """Send it although its records name folders of this machine."""
    dry_run: bool = False
    """List what would be sent, and send nothing."""


def main(config: PushConfig) -> int:
    """Puts a finished adapter or merged model on the hub: lists what goes, and refuses what should not."""
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", config.to):
        raise BadInput(f"to is {config.to!r}; expected OWNER/NAME")
    folder = Path(config.folder)
    if not folder.is_dir():
        raise BadInput(f"{folder}: no such folder; expected a finished adapter or a merged model")
    sent, left = divided(folder)
    refuse([*unfinished(folder, sent), *unfit_to_be_told(folder, sent, config.allow_paths)])
    for path in sent:
        print(f"{path.stat().st_size / 1e6:12.2f} MB  {path.name}")
    print(f"{sum(path.stat().st_size for path in sent) / 1e6:12.2f} MB  in {len(sent)} files to {config.to}")
    if left:
        print(f"not sent: {', '.join(left)}")
    if config.dry_run:
        print("nothing was sent")
        return 0
    print(f"sent: {send(config, sent)}")
    return 0


def divided(folder: Path) -> tuple[list[Path], list[str]]:
    """The files to send, and the names of what stays."""
    everything = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    sent = [path for path in everything if path.is_file() and any(fnmatch(path.name, name) for name in SENT)]
    return sent, [path.name for path in everything if path not in sent]


def unfinished(folder: Path, sent: list[Path]) -> Iterator[str]:
    """What is lacking from a whole adapter or model with its card."""
    names = {path.name for path in sent}
    if not any(name.endswith(".safetensors") for name in names):
        yield f"{folder}: no adapter_model.safetensors or model.safetensors there; train or merge first"
    if not names & {"config.json", "adapter_config.json"}:
        yield f"{folder}: neither config.json nor adapter_config.json there, so nobody could load it"
    if CARD not in names:
        yield f"{folder}: no card {CARD} there; train/model_card.py writes an adapter's"
    record = read_json(folder / "training.json", "a run's record") if "training.json" in names else None
    if isinstance(record, dict) and not record.get("finished"):
        yield f"{folder}: its training is not finished; run the same train/sft.py command again"
    if "training.json" not in names and "merge.json" not in names:
        yield f"{folder}: neither training.json nor merge.json there, which say how it was made"


def unfit_to_be_told(folder: Path, sent: list[Path], allow_paths: bool) -> Iterator[str]:
    """Tokens and folders of this machine in the files that tell of the run."""
    for path in (path for path in sent if path.name in TOLD):
        text = read_text(path, "text")
        if SECRET.search(text):
            yield f"{path}: holds what looks like a token; remove it, and revoke it if it was ever shown"
        places = list(texts_in(json.loads(text), "")) if path.suffix == ".json" else [("a line", text)]
        found = next(((where, match[1]) for where, value in places if (match := PLACE.search(value))), None)
        if found and not allow_paths:
            yield (
                f"{path}: {found[0]} names {found[1].strip()}, a folder of this machine; remove that, or "
                "give --allow_paths"
            )


def texts_in(value: Any, where: str) -> Iterator[tuple[str, str]]:
    """Every text of a JSON value, with the keys that lead to it."""
    if isinstance(value, dict):
        for name, item in value.items():
            yield from texts_in(item, f"{where}.{name}".lstrip("."))
    elif isinstance(value, list):
        for item in value:
            yield from texts_in(item, where)
    elif isinstance(value, str):
        yield where, value


def send(config: PushConfig, sent: list[Path]) -> str:
    """Uploads the files in one commit, which is there whole or not at all; returns its address.

    Raises JobFailed if the hub does not take them.
    """
    from httpx2 import HTTPError  # what the hub's library lets through without a network
    from huggingface_hub import CommitOperationAdd, HfApi

    api = HfApi()
    try:
        api.create_repo(config.to, private=config.private, exist_ok=True)
        files = [CommitOperationAdd(path.name, path) for path in sent]
        done = api.create_commit(config.to, files, commit_message="A fine-tuned model, with its card")
    except (OSError, ValueError, HTTPError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise JobFailed(
            f"{config.to}: the hub did not take it ({reason}); may HF_TOKEN write there?"
        ) from error
    return str(done.commit_url)


if __name__ == "__main__":
    run_script(PushConfig, main)
