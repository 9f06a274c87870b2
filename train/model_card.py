"""The model card beside an adapter: what it was made from, how, and what it scored.

python train/model_card.py --adapter runs/sft/smollm2-135m-id-task3 --results runs/eval/id-task3
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mlbench_data.bad_input import BadInput
from mlbench_data.cli import run_script
from mlbench_data.files import read_json, write_text
from mlbench_data.models import Model, resolve_model
from mlbench_data.prompts import TASKS

CARD = "README.md"

_SHOWN = (
    "split", "task", "epochs", "prefixes_per_step", "batch_size", "group_size", "gradient_accumulation",
    "learning_rate", "scheduler", "warmup", "method", "quantization", "lora_rank", "lora_alpha",
    "lora_dropout", "rslora", "dora", "dtype", "answer_tokens", "seed", "processes",
)  # fmt: skip


@dataclass(frozen=True)
class CardConfig:
    """Which adapter, and what it scored."""

    adapter: str
    """A finished adapter or model of train/sft.py; its README.md is written anew."""
    results: list[str] = field(default_factory=list)
    """Folders of eval/run.py whose scores the card shows."""


def main(config: CardConfig) -> int:
    """Writes the model card beside an adapter, with the scores of its evaluations."""
    folder = Path(config.adapter)
    record = read_json(folder / "training.json", "the record of a training run")
    complete = (
        isinstance(record, dict) and record.get("finished") and isinstance(record.get("identity"), dict)
    )
    if not complete or not {"method", "model", "rows_sha256"} <= record["identity"].keys():
        raise BadInput(f"{folder / 'training.json'}: not the record of a finished training run")
    scores = [_score(Path(results)) for results in config.results]
    write_card(folder, resolve_model(record["identity"]["model"]), record["identity"], record, scores)
    print(f"model card written to {folder / CARD}")
    return 0


def write_card(
    folder: Path,
    model: Model,
    identity: dict[str, Any],
    record: dict[str, Any],
    scores: list[str] | None = None,
) -> None:
    """Writes README.md with the front matter that model hubs read."""
    kind = "model" if identity["method"] == "full" else "LoRA adapter"
    benchmark = Path(record["config"]["benchmark"]).name
    weights = ", ".join(f"{name} {value}" for name, value in identity["weights"].items())
    front = ["base_model: " + model.location] if not Path(model.location).is_dir() else []
    if identity["method"] == "lora":
        front += ["library_name: peft"]
    settings = "\n".join(
        f"| {name} | {identity[name]} |" for name in _SHOWN if identity.get(name) is not None
    )
    versions = ", ".join(f"{name} {value}" for name, value in record["versions"].items())
    loss = record["eval_loss"]
    best = record.get("best")
    chosen = "" if best is None else f" Kept is step {best['step']}, with the best {best['metric']}."
    kept_out = "" if loss is None else f" Loss on rows kept out: {loss:.4f} per answer token."
    results = "\n".join(scores) if scores else "Not evaluated yet."
    head = "\n".join(["---", *front, "tags: [ml-bench, code]", "---"])
    write_text(
        folder / CARD,
        f"""{head}

# {model.name}, fine-tuned on ML-Bench rows

A {kind} that writes the command or program which an instruction asks of a machine-learning repository
(task {identity["task"]}: {TASKS[identity["task"]].lower()}).

- Base model: {model.name} ({weights})
- Data: {record["rows"]} rows of `{identity["split"]}`, benchmark `{benchmark}`;
  sha256 of every row and token learned from: {identity["rows_sha256"]}
- Prompt template: sha256 {identity["template"]}
- {record["steps"]} optimizer steps in {record["seconds"]:.0f} s; {record["tensors"]} tensors, read back after
  saving. Training loss {record["train_loss"]:.4f} on average.{kept_out}{chosen}

![Loss](loss.png)

## Results

{results}

## Settings

| | |
|---|---|
{settings}

Made with {versions}.
""",
    )


def _score(folder: Path) -> str:
    """One line a folder of results. Raises BadInput if it is none."""
    path = folder / "summary.json"
    summary = read_json(path, "the summary of an evaluation")
    try:
        shares = {k: value["first_k"] for k, value in summary["pass_at_k"].items()}
        scored = ", ".join(f"Pass@{k} {100 * share:.1f}%" for k, share in shares.items() if share is not None)
        return (
            f"- `{folder.name}`: {scored or 'no Pass@k'} on {summary['rows']} rows ({summary['mode']} checks)"
        )
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise BadInput(f"{path}: not the summary of an evaluation ({error})") from error


if __name__ == "__main__":
    run_script(CardConfig, main)
