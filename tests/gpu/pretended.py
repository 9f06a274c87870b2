"""Runs a script as if there were a GPU: `python -m tests.gpu.pretended CAPABILITY SCRIPT [ARGUMENT …]`.

Python's side of the device that `device.cpp` registers: what torch.cuda and Triton's driver tell about the
card. Compilers believe it, fake tensors live on it, nothing is computed. See the fixture `on_pretended_gpu`.
"""

import contextlib
import os
import runpy
import sys
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget

GIB = 2**30


@dataclass(frozen=True)
class Card:
    """A GPU as torch and Triton describe it."""

    name: str
    memory: int
    """Bytes."""
    shared_memory: int
    """Bytes that one block of threads may ask for (CUDA C++ Programming Guide, technical specifications for
    each compute capability, less the 1 KiB that the driver keeps from 8.0 on)."""
    processors: int


CARDS = {
    "7.0": Card("V100", 32 * GIB, 98_304, 80),
    "7.5": Card("T4", 16 * GIB, 65_536, 40),
    "8.0": Card("A100", 80 * GIB, 166_912, 108),
    "8.6": Card("RTX 3090", 24 * GIB, 101_376, 82),
    "8.9": Card("RTX 4090", 24 * GIB, 101_376, 128),
    "9.0": Card("H100", 80 * GIB, 232_448, 132),
    "10.0": Card("B200", 180 * GIB, 232_448, 148),
    "12.0": Card("RTX 5090", 32 * GIB, 101_376, 170),
}
"""By compute capability."""


def pretend(capability: str) -> Card:
    """Makes this process believe in one GPU of a compute capability. Autograd on its tensors needs
    `device.cpp` preloaded.
    """
    os.environ.pop("LD_PRELOAD", None)  # programs started from here, as ptxas, need no torch
    card = CARDS[capability]
    major, minor = map(int, capability.split("."))
    _pretend_to_torch(card, major, minor)
    triton.runtime.driver.set_active(_Driver(card, 10 * major + minor))
    return card


def _pretend_to_torch(card: Card, major: int, minor: int) -> None:
    properties = SimpleNamespace(
        name=card.name,
        major=major,
        minor=minor,
        total_memory=card.memory,
        shared_memory_per_block=49_152,
        shared_memory_per_block_optin=card.shared_memory,
        shared_memory_per_multiprocessor=card.shared_memory + 1024,
        multi_processor_count=card.processors,
        max_threads_per_block=1024,
        max_threads_per_multi_processor=2048 if (major, minor) in {(8, 0), (9, 0), (10, 0)} else 1536,
        regs_per_multiprocessor=65_536,
        warp_size=32,
        L2_cache_size=40 * 2**20,
        clock_rate=1_410_000,
        is_integrated=False,
        gcnArchName="",
        uuid="pretended",
    )
    told = {
        "_is_compiled": True,
        "_lazy_init": None,
        "is_available": True,
        "is_initialized": True,
        "is_bf16_supported": major >= 8,
        "device_count": 1,
        "current_device": 0,
        "set_device": None,
        "_exchange_device": 0,
        "_maybe_exchange_device": 0,
        "synchronize": None,
        "get_device_capability": (major, minor),
        "get_device_name": card.name,
        "get_device_properties": properties,
        "mem_get_info": (card.memory, card.memory),
        "manual_seed_all": None,
        "get_rng_state": torch.zeros(16, dtype=torch.uint8),
        "set_rng_state": None,
    }
    for name, answer in told.items():
        setattr(torch.cuda, name, _always(answer))
    for name in ("get_rng_state", "set_rng_state"):
        setattr(torch.cuda.random, name, getattr(torch.cuda, name))
    inside = {
        "_cuda_getCurrentRawStream": 0,
        "_cuda_getDevice": 0,
        "_cuda_setDevice": None,
        "_cuda_exchangeDevice": 0,
        "_cuda_maybeExchangeDevice": 0,
        "_cuda_getDeviceCount": 1,
    }
    for name, answer in inside.items():
        setattr(torch._C, name, _always(answer))
    torch.version.cuda = "12.8"


def pretend_streams() -> None:
    """Makes streams and events that FSDP may wait for. The compiler asks for the device's own instead."""
    torch.cuda.Stream = torch.cuda.Event = _Queue  # type: ignore[misc,assignment]
    torch.cuda.current_stream = torch.accelerator.current_stream = _always(_Queue())
    torch.cuda.stream = contextlib.nullcontext  # type: ignore[assignment]


def _always(answer: Any) -> Any:
    return lambda *arguments, **named: answer


class _Queue:
    """A stream, or an event of one: nothing is queued, so nothing is waited for."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        self.is_capturing = _always(False)
        self.wait_stream = self.wait_event = self.wait = self.synchronize = _always(None)

    def record(self, *streams: Any) -> "_Queue":
        return self

    record_event = record


class _Driver:
    """What Triton asks of a driver before it would launch."""

    binary_ext = "cubin"

    def __init__(self, card: Card, architecture: int) -> None:
        self.architecture = architecture
        limits = {"max_shared_mem": card.shared_memory, "multiprocessor_count": card.processors}
        limits |= {"warpSize": 32, "max_num_regs": 65_536}
        self.utils = SimpleNamespace(get_device_properties=_always(limits))

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", self.architecture, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_active_torch_device(self) -> torch.device:
        return torch.device("cuda", 0)

    def get_device_interface(self) -> Any:
        return torch.cuda

    @staticmethod
    def is_active() -> bool:
        return True


if __name__ == "__main__":
    pretend(sys.argv[1])
    sys.argv = sys.argv[2:]
    runpy.run_path(sys.argv[0], run_name="__main__")
