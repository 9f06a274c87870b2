"""What would end a run late, and why: found before any weight is loaded, told all at once, a line each."""

import importlib.util
import os
import shutil
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from mlbench_data.bad_input import BadInput, JobFailed
from mlbench_data.hardware import Hardware
from mlbench_data.models import Model
from mlbench_data.weight_files import fetch_command, weight_files

LARGE = 3 * 10**9
"""Bytes of weights from which a CPU is a mistake: a 7B model in 4 bits has more, and takes minutes a row."""

INSTALL = {
    "bitsandbytes": "pip install bitsandbytes",
    "deepspeed": "pip install deepspeed",
    "vllm": "pip install vllm, or give --engine transformers",
}


def refuse(problems: Iterable[str]) -> None:
    """Raises BadInput with all problems, if there are any."""
    if found := list(problems):
        raise BadInput(*found)


def warn(warnings: Iterable[str]) -> None:
    """What may be meant, and will cost time."""
    for warning in warnings:
        print(f"warning: {warning}", file=sys.stderr)


def weights_of(model: Model) -> tuple[int, list[str]]:
    """The bytes of a model's weights, and what is wrong with them."""
    try:
        return sum(weight_files(model).values()), []
    except BadInput as error:
        return 0, list(error.args)
    except JobFailed as error:
        return 0, [
            f"{error}, and it is not in the hub's cache; where it can be reached: {fetch_command(model)}"
        ]


def package_problems(needed: dict[str, str]) -> Iterator[str]:
    """Packages that are not there, with what needs them: {"bitsandbytes": "quantization nf4"}."""
    for package, wanted_for in needed.items():
        if importlib.util.find_spec(package) is None:
            yield f"{wanted_for} needs the package {package}, which is not installed; {INSTALL[package]}"


def unused_gpus(hardware: Hardware) -> str | None:
    """Why a run would leave this machine's GPUs idle, though nobody said that it should."""
    there = len(hardware.installed)
    if hardware.installed and not means_cpu():
        otherwise = "or, if the CPU is meant, set ACCELERATE_USE_CPU=true"
        what = f"this machine has {there} GPU{'s'[: there > 1]} ({hardware.installed[0]})"
        if hardware.torch_cuda is None:
            return f"{what} and its torch is built without CUDA; install a torch with CUDA, {otherwise}"
        if not hardware.gpus:
            given = os.environ.get("CUDA_VISIBLE_DEVICES")
            return f"{what} and CUDA_VISIBLE_DEVICES={given!r} hides all; unset it, {otherwise}"
    return None


def means_cpu() -> bool:
    """Whether the user has said that GPUs are not to be used."""
    told = os.environ.get("ACCELERATE_USE_CPU", "").lower() in ("true", "1", "yes")
    return told or os.environ.get("DS_ACCELERATOR") == "cpu"


def idle_gpu_problems(hardware: Hardware, weights: int) -> Iterator[str]:
    """A large model that would run on the CPU beside idle GPUs."""
    if weights >= LARGE and (reason := unused_gpus(hardware)):
        yield reason


def cpu_warnings(model: Model, hardware: Hardware, weights: int) -> Iterator[str]:
    """A small model beside idle GPUs, and a large one where there is none."""
    reason = unused_gpus(hardware)
    if reason and weights < LARGE:
        yield reason
    elif not reason and not hardware.gpus and weights >= LARGE:
        yield f"{model.name} has {weights / 1e9:.1f} GB of weights and no GPU to run on: a CPU takes days"


def compiler_problems(hardware: Hardware, user: str) -> Iterator[str]:
    """Triton compiles what starts its kernels when they are first used, which is late."""
    if hardware.gpus and hardware.torch_cuda and not hardware.has_compiler:
        yield (
            f"{user} compiles kernels with Triton, and there is no C compiler with Python.h; "
            "install gcc and python3-dev (conda: gxx and python), or name a compiler in CC"
        )


def room_problems(place: str | Path, needed: int, what: str) -> Iterator[str]:
    """A disk that is too small for what will be written below `place`, which need not exist yet."""
    folder = Path(place).absolute()
    while not folder.exists():
        folder = folder.parent
    disk = shutil.disk_usage(folder)
    if needed > disk.free and disk.total > 0:  # what is no disk, as /proc, has none
        yield (
            f"{place}: {what} needs {needed / 1e9:.1f} GB and {disk.free / 1e9:.1f} GB are free there; make "
            "room, or give another place"
        )
