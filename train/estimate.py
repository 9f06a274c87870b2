"""Estimates the memory that a training configuration needs on each GPU, and what would need less.

python train/estimate.py --config configs/train/smollm2-135m-id-task3.yaml --gpus 2 --gpu_memory 80GiB
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Literal

from mlbench_data.bad_input import BadInput
from mlbench_data.cli import run_script
from mlbench_data.models import resolve_model
from train.config import TrainConfig, check_config
from train.memory import GIB, Case, Estimate, architecture_of, divided, estimate, in_gib, table, trace_of

UNITS = {"GiB": GIB, "MiB": 2**20, "GB": 10**9, "MB": 10**6}
MOST_GPUS = 64
"""The most GPUs that are tried where a configuration does not fit."""

Choice = tuple[str, Case, Estimate]


def remedies(case: Case, memory: int) -> list[tuple[str, Estimate]]:
    """What would need less memory, and how much: each change alone and, if none is enough, several together.

    A change that comes in degrees is as small as fits into `memory` bytes, or the largest that is tried.
    """
    alone = [choice for lever in LEVERS if (choice := _tried(lever(case), memory))]
    found = [(words, needed) for words, _, needed in alone]
    if any(needed.total <= memory for _, needed in found):
        return found
    together: list[str] = []
    for lever in LEVERS:
        choice = _tried(lever(case), memory)
        if choice is None:
            continue
        words, case, needed = choice
        together.append(words)
        if needed.total <= memory:
            break
    return [*found, (" and ".join(together), needed)] if len(together) > 1 else found


def _tried(choices: Iterator[Choice], memory: int) -> Choice | None:
    """The first choice that fits, else the last one, else None."""
    choice = None
    for choice in choices:
        if choice[2].total <= memory:
            break
    return choice


def _checkpointing(case: Case) -> Iterator[Choice]:
    if not case.config.activation_checkpointing:
        changed = replace(case, config=replace(case.config, activation_checkpointing=True))
        yield "activation_checkpointing true", changed, estimate(changed)


def _quantization(case: Case) -> Iterator[Choice]:
    if case.config.method == "lora" and case.config.quantization == "none":
        changed = replace(case, config=replace(case.config, quantization="nf4"))
        yield "quantization nf4", changed, estimate(changed)


def _smaller_packs(case: Case) -> Iterator[Choice]:
    tokens = case.tokens // 2
    while tokens >= case.longest_row:
        config = replace(case.config, pack_tokens=tokens)
        changed = replace(case, config=config, tokens=tokens, answers=min(case.answers, tokens))
        yield f"pack_tokens {tokens}", changed, estimate(changed)
        tokens //= 2


def _more_gpus(case: Case) -> Iterator[Choice]:
    sharded = replace(case, sharding="fsdp")
    trace = trace_of(sharded)
    processes = case.processes if case.sharding != "fsdp" and case.processes > 1 else 2 * case.processes
    while processes <= MOST_GPUS:
        changed = replace(sharded, processes=processes)
        yield f"{processes} GPUs with fsdp", changed, divided(changed, trace)
        processes *= 2


LEVERS: tuple[Callable[[Case], Iterator[Choice]], ...] = (
    _checkpointing,
    _quantization,
    _smaller_packs,
    _more_gpus,
)


@dataclass(frozen=True)
class EstimateConfig(TrainConfig):
    """A training configuration, and the GPUs that it is meant for."""

    gpus: int = 1
    """GPUs over all machines."""
    gpu_memory: str = "80GiB"
    """Memory of each that is left to training: a number and GiB, MiB, GB or MB. CUDA itself takes about 1 GiB
    of the card's: give 23GiB for a card of 24."""
    sharding: Literal["ddp", "fsdp", "zero2", "zero3"] = "ddp"
    """What several GPUs share: ddp nothing, zero2 gradients and optimizer, fsdp and zero3 the weights too."""


def main(config: EstimateConfig) -> int:
    """Estimates the memory that a training configuration needs on each GPU."""
    memory = parse_memory(config.gpu_memory)
    case = case_of(config)
    needed = estimate(case)
    print(f"{config.model}, packs of {case.tokens} tokens, at most {case.answers} of them of answers")
    print("\n".join(table(needed)))
    if needed.total <= memory:
        print(f"fits in {_size(memory)}")
        return 0
    print(f"does NOT fit in {_size(memory)}; what would need less:")
    for words, changed in remedies(case, memory):
        verdict = "fits" if changed.total <= memory else "does not fit either"
        print(f"  {words}: {in_gib(changed.total)}, {verdict}")
    return 0


def case_of(config: EstimateConfig) -> Case:
    """The largest pack that a configuration allows, without reading a row. Raises BadInput."""
    training = TrainConfig(**{item.name: getattr(config, item.name) for item in fields(TrainConfig)})
    check_config(training)
    if config.gpus < 1:
        raise BadInput(f"gpus is {config.gpus}; expected a number above 0")
    model = resolve_model(config.model)
    tokens = max(config.pack_tokens, model.context)  # a row that is longer than a pack goes alone
    answers = min(config.batch_size * config.answer_tokens, tokens)
    sharding = "none" if config.sharding == "ddp" and config.gpus == 1 else config.sharding
    architecture = architecture_of(model, config.trust_remote_code)
    sizes = (tokens, answers, model.lora_targets, config.gpus)
    return Case(architecture, training, *sizes, sharding, longest_row=model.context)


def parse_memory(text: str) -> int:
    """Bytes of a size such as 80GiB. Raises BadInput."""
    found = re.fullmatch(rf"(\d+(?:\.\d+)?) ?({'|'.join(UNITS)})", text.strip())
    size = int(float(found[1]) * UNITS[found[2]]) if found else 0
    if size <= 0:
        raise BadInput(f"gpu_memory is {text!r}; expected a size such as 80GiB, 24000MiB or 24GB")
    return size


def _size(memory: int) -> str:
    return f"{memory / GIB:.1f} GiB"


if __name__ == "__main__":
    run_script(EstimateConfig, main)
