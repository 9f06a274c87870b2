"""The GPUs of this machine, and whether programs for them can be compiled, found out without waking CUDA:
a process that has woken it can no longer fork vLLM's workers.
"""

import importlib.util
import os
import runpy
import shutil
import subprocess
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

QUERY = ("nvidia-smi", "--query-gpu=uuid,name,compute_cap,memory.free", "--format=csv,noheader,nounits")
DRIVER = Path("/proc/driver/nvidia/gpus")
"""Where the driver of Linux lists its GPUs, also in a container without nvidia-smi."""


@dataclass(frozen=True)
class Gpu:
    """A GPU; None is what could not be found out."""

    name: str = "GPU"
    capability: tuple[int, int] | None = None
    """Compute capability: (8, 6) for sm_86."""
    free: int | None = None
    """Bytes of its memory that nobody uses."""

    def __str__(self) -> str:
        return self.name if self.capability is None else "{} (sm_{}{})".format(self.name, *self.capability)


@dataclass(frozen=True)
class Hardware:
    """What programs of this process find. `gpus` are those that they may use, `installed` all there are."""

    gpus: tuple[Gpu, ...] = ()
    installed: tuple[Gpu, ...] = ()
    torch_cuda: str | None = None
    """The CUDA that torch was built with; None for a build without, and where there is no GPU to use it."""
    has_compiler: bool = True
    """Whether Triton can compile what starts its kernels: a C compiler, and python's own headers."""


@lru_cache(maxsize=1)
def hardware() -> Hardware:
    """This machine, looked at once."""
    installed = tuple(_installed().values())
    return Hardware(
        gpus=_visible(_installed(), os.environ.get("CUDA_VISIBLE_DEVICES")),
        installed=installed,
        torch_cuda=_cuda_of_torch() if installed else None,
        has_compiler=_has_compiler(os.environ),
    )


def _installed() -> dict[str, Gpu]:
    """All GPUs, by the names that CUDA_VISIBLE_DEVICES may use for them."""
    try:
        asked = subprocess.run(QUERY, capture_output=True, text=True, timeout=60)
    except (FileNotFoundError, subprocess.TimeoutExpired):
        asked = None
    if asked is None or asked.returncode != 0:
        return {str(path): Gpu() for path in sorted(DRIVER.iterdir())} if DRIVER.is_dir() else {}
    return dict(_parsed(line) for line in asked.stdout.splitlines() if line.strip())


def _parsed(line: str) -> tuple[str, Gpu]:
    """A GPU of nvidia-smi's answer; what it does not know, it calls [N/A]."""
    uuid, name, capability, free = (word.strip() for word in line.split(","))
    major, _, minor = capability.partition(".")
    known = (int(major), int(minor)) if major.isdigit() and minor.isdigit() else None
    return uuid, Gpu(name, known, int(free) * 2**20 if free.isdigit() else None)


def _visible(installed: dict[str, Gpu], chosen: str | None) -> tuple[Gpu, ...]:
    """The GPUs that CUDA_VISIBLE_DEVICES leaves: those before the first that there is not. A part of a GPU
    (MIG) is like the whole one, with an unknown share of its memory.
    """
    gpus = list(installed.values())
    if chosen is None or not gpus:
        return tuple(gpus)
    found: list[Gpu] = []
    for word in (word.strip() for word in chosen.split(",")):
        named = [gpu for uuid, gpu in installed.items() if len(word) > 4 and uuid.startswith(word)]
        if word.isdigit() and int(word) < len(gpus):
            found.append(gpus[int(word)])
        elif named:
            found.append(named[0])
        elif word.startswith("MIG-"):
            found.append(replace(gpus[0], free=None))
        else:
            break
    return tuple(found)


def _cuda_of_torch() -> str | None:
    """The CUDA that the installed torch was built with, from the file that says so: importing torch takes
    seconds.
    """
    found = importlib.util.find_spec("torch")
    if found is None or found.origin is None:
        return None
    return runpy.run_path(str(Path(found.origin).with_name("version.py")))["cuda"]


def _has_compiler(environment: Mapping[str, str]) -> bool:
    """Whether Triton's own search would find a compiler: CC, gcc, clang."""
    named = environment.get("CC")
    found = shutil.which(named.split()[0]) if named else shutil.which("gcc") or shutil.which("clang")
    return found is not None and Path(sysconfig.get_path("include"), "Python.h").is_file()
