"""What would end a training run late, or make it useless: told before anything is read, a line each."""

import os
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from mlbench_data.bad_input import BadInput
from mlbench_data.hardware import Hardware, hardware
from mlbench_data.models import Model
from mlbench_data.preflight import (
    compiler_problems,
    cpu_warnings,
    idle_gpu_problems,
    package_problems,
    refuse,
    room_problems,
    warn,
    weights_of,
)
from train.config import TrainConfig
from train.launch import is_main, processes, wants_deepspeed, wants_fsdp
from train.memory import GIB, architecture_of, estimate, in_gib
from train.network import Lora, add_lora, check_attention, check_lora, without_weights
from train.plan import Plan, largest_case, sharding

CHECKPOINTS = 3
"""As many are on the disk at a time: two are kept, and the next is written before the oldest goes."""
BYTES = {"nf4": 0.6, "int8": 1.1}
"""Of a quantized weight, with its scales."""


def preflight(config: TrainConfig, model: Model, lora: Lora | None) -> None:
    """Raises BadInput with everything on this machine that keeps the configuration from being trained."""
    found = hardware()
    weights, problems = weights_of(model)
    problems += package_problems(packages_of(config))
    problems += idle_gpu_problems(found, weights)
    problems += driver_problems(found, torch.cuda.is_available())
    problems += compiler_problems(found, "attention on a GPU")
    problems += card_problems(found)
    problems += sharing_problems(config, found, int(os.environ.get("LOCAL_WORLD_SIZE", "1")))
    if weights or Path(model.location).is_dir():  # else its config.json is not there either
        problems += network_problems(config, model, lora)
    refuse(problems)
    if is_main():
        warn(cpu_warnings(model, found, weights))


def packages_of(config: TrainConfig) -> dict[str, str]:
    """The packages that a configuration needs beyond the toolkit's own, and what for."""
    needed = {"bitsandbytes": f"quantization {config.quantization}"} if config.quantization != "none" else {}
    return needed | ({"deepspeed": "accelerate's configuration"} if wants_deepspeed() else {})


def driver_problems(found: Hardware, works: bool) -> Iterator[str]:
    """GPUs that torch cannot use though it is built for them."""
    if found.gpus and found.torch_cuda and not works:
        yield (
            f"torch cannot use the {found.gpus[0]}; its driver may be older than CUDA {found.torch_cuda}: "
            'see what python -c "import torch; torch.cuda.init()" says'
        )


def card_problems(found: Hardware) -> Iterator[str]:
    """GPUs from before 2020: they do not compute in bfloat16, and FlexAttention's blocks do not fit them."""
    for gpu in found.gpus[:1]:
        if gpu.capability is not None and gpu.capability < (8, 0):
            yield (
                f"{gpu} does not compute in bfloat16 and has too little shared memory for the attention's "
                "kernels; take a GPU of sm_80 or newer (A10, L4, 3090)"
            )


def sharing_problems(config: TrainConfig, found: Hardware, processes_here: int) -> Iterator[str]:
    """More processes than GPUs, and weights that cannot be divided among them."""
    if found.gpus and processes_here > len(found.gpus):
        yield (
            f"accelerate started {processes_here} processes on this machine and {len(found.gpus)} GPUs are "
            f"visible; give it --num_processes {len(found.gpus)}, or make more visible"
        )
    if wants_fsdp() and config.quantization == "int8":
        yield (
            "FSDP cannot divide the int8 weights of bitsandbytes; give --quantization nf4, or take "
            "configs/accelerate/ddp.yaml or zero3.yaml"
        )


def network_problems(config: TrainConfig, model: Model, lora: Lora | None) -> Iterator[str]:
    """A model that cannot be trained so, and a disk without room for its checkpoints."""
    try:
        architecture = architecture_of(model, config.trust_remote_code)
        check_attention(architecture)
        network = without_weights(architecture, config.trust_remote_code)
        if lora is not None:
            check_lora(network, lora)
        elif config.dtype == "bfloat16" and not torch.cuda.is_available() and not config.dry_run:
            yield "full fine-tuning keeps float32 weights, and a CPU computes in them; leave dtype out"
    except BadInput as error:
        yield from map(str, error.args)
    else:
        there = sum(path.stat().st_size for path in Path(config.output_dir).glob("checkpoint-*/**/*.*"))
        each = checkpoint_bytes(config, network, lora)
        too_small = list(room_problems(config.output_dir, each - there, "a checkpoint"))
        yield from too_small
        if not too_small and is_main():  # a short run writes fewer of them
            warn(
                room_problems(
                    config.output_dir, CHECKPOINTS * each - there, f"keeping {CHECKPOINTS} checkpoints"
                )
            )


def checkpoint_bytes(config: TrainConfig, network: Any, lora: Lora | None) -> int:
    """Of one checkpoint: what is trained, its optimizer's two states, and under FSDP all frozen weights."""
    weights = sum(parameter.numel() for parameter in network.parameters())
    if lora is None:
        return 3 * 4 * weights
    with torch.device("meta"):
        adapted = add_lora(network, lora)
    trained = sum(parameter.numel() for parameter in adapted.parameters() if parameter.requires_grad)
    each = BYTES.get(config.quantization, 4 if config.dtype == "float32" else 2)
    return 3 * 4 * trained + (int(each * weights) if wants_fsdp() else 0)


def warn_of_memory(config: TrainConfig, model: Model, plan: Plan) -> None:
    """Says if a GPU has less memory free than the estimate of the run's largest pack."""
    free = min((gpu.free for gpu in hardware().gpus if gpu.free is not None), default=None)
    if free is None or not is_main():
        return
    needed = estimate(largest_case(config, model, plan)).total
    warn(memory_warnings(needed, free, sys.argv[1:]))


def memory_warnings(needed: int, free: int, arguments: list[str]) -> Iterator[str]:
    """A line with the command that tells what would need less."""
    if needed > free:
        shared = {"none": "ddp"}.get(sharding(), sharding())
        command = [
            "python",
            "train/estimate.py",
            *arguments,
            "--gpus",
            str(processes()),
            "--sharding",
            shared,
        ]
        yield (
            f"about {in_gib(needed)} are needed on each GPU and {in_gib(free)} are free; for less: "
            f"{shlex.join([*command, '--gpu_memory', f'{free // GIB}GiB'])}"
        )
