"""Merges a LoRA adapter into its base model, for programs that know no adapters, and proves the result.

python train/merge.py --adapter runs/sft/smollm2-135m-id-task3 --output_dir runs/merged
"""

import gc
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors import SafetensorError
from transformers import AutoModelForCausalLM

from mlbench_data.adapter import Adapter, open_adapter
from mlbench_data.bad_input import BadInput, JobFailed
from mlbench_data.cli import run_script, versions
from mlbench_data.files import read_json, replacing_folder, write_json
from mlbench_data.models import Model, resolve_model, save_tokenizer
from train.network import with_adapter

RECORD = "merge.json"
PROBE_TOKENS = 64
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
TOLERANCES = {"float32": 1e-4, "bfloat16": 0.1, "float16": 0.02}
"""How far merged logits may be from those of base and adapter, as a share of the largest logit."""


@dataclass(frozen=True)
class MergeConfig:
    """Which adapter to merge, into what, and where to."""

    adapter: str
    """An adapter of train/sft.py."""
    output_dir: str
    """The folder for the merged model: weights as safetensors, tokenizer, and merge.json."""
    model: str | None = None
    """The base model; the one that the adapter was trained on if not given."""
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    """In which the weights are merged and saved."""
    trust_remote_code: bool = False
    """Allow the model's own python code to run."""


class NotMerged(JobFailed):
    """The merged model does not say what base and adapter say."""


def main(config: MergeConfig) -> int:
    """Merges a LoRA adapter into its base model, for programs that know none, and proves the result."""
    model = resolve_model(config.model or trained_on(Path(config.adapter)))
    adapter = open_adapter(config.adapter, model)
    with replacing_folder(config.output_dir, "a merged model", _is_merged) as folder:
        network = load(model, config)
        probe = probe_of(network)
        base = logits_of(network, probe)
        network = with_adapter(network, adapter, model)
        expected = logits_of(network, probe)
        merged = network.merge_and_unload()
        merged.save_pretrained(folder)
        save_tokenizer(model, folder)
        del network, merged
        gc.collect()  # before the model is in memory a second time
        error = prove(folder, config, probe, expected, base)
        write_json(folder / RECORD, record_of(config, model, adapter, error))
    print(f"merged model written to {config.output_dir} and read back")
    print(f"its logits differ by {error:.1e} of the largest")
    return 0


def trained_on(folder: Path) -> str:
    """The name of the model in an adapter's record. Raises BadInput if there is none."""
    path = folder / "training.json"
    if not path.is_file():
        raise BadInput(f"{folder}: no training.json that names the base model; give it with --model")
    record = read_json(path, "the record of a training run")
    try:
        return str(record["identity"]["model"])
    except (KeyError, TypeError):
        raise BadInput(f"{path}: not the record of a training run; give the base with --model") from None


def load(model: Model, config: MergeConfig) -> Any:
    """The base model. Raises BadInput if it cannot be loaded."""
    try:
        return AutoModelForCausalLM.from_pretrained(
            model.location,
            revision=model.revision,
            dtype=DTYPES[config.dtype],
            use_safetensors=True,
            trust_remote_code=config.trust_remote_code,
        ).eval()
    except (OSError, ValueError, SafetensorError) as error:
        reason = str(error).strip().splitlines()[0]
        raise BadInput(f"{model.location}: no weights could be loaded ({reason})") from error


def probe_of(network: Any) -> torch.Tensor:
    """Token ids from all over the vocabulary, (1, PROBE_TOKENS), the same every time."""
    return (torch.arange(PROBE_TOKENS) * 7919 % network.config.vocab_size)[None]


@torch.inference_mode()
def logits_of(network: Any, ids: torch.Tensor) -> torch.Tensor:
    """The logits of every position, in float32."""
    return network(input_ids=ids).logits.float()


def prove(
    folder: Path, config: MergeConfig, probe: torch.Tensor, expected: torch.Tensor, base: torch.Tensor
) -> float:
    """Reads the merged model back and compares its logits. Returns the largest difference, as a share of the
    largest logit. Raises NotMerged if it is too large, or if the adapter changed nothing.
    """
    merged = AutoModelForCausalLM.from_pretrained(
        folder, dtype=DTYPES[config.dtype], trust_remote_code=config.trust_remote_code
    )
    found = logits_of(merged.eval(), probe)
    scale = expected.abs().max()
    error = float((found - expected).abs().max() / scale)
    if not error <= TOLERANCES[config.dtype]:
        raise NotMerged(f"{folder}: merged logits differ by {error:.1e} of the largest from base and adapter")
    if torch.equal(expected, base):
        raise NotMerged(f"{config.adapter}: the adapter changes no logit; it is empty or of another model")
    return error


def record_of(config: MergeConfig, model: Model, adapter: Adapter, error: float) -> dict[str, Any]:
    """What was merged from what."""
    return {
        "base": {"name": model.name, **model.identity()},
        "adapter": {"folder": str(adapter.folder), "sha256": adapter.sha256, "rank": adapter.rank},
        "dtype": config.dtype,
        "logit_error": error,
        "versions": versions(),
    }


def _is_merged(folder: Path) -> bool:
    return (folder / RECORD).is_file()


if __name__ == "__main__":
    run_script(MergeConfig, main)
