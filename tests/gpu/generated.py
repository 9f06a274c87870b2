"""What the pretended card would be given to run: inductor's kernels, caught where they would be launched."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch._C._dynamo.guards
from torch._inductor import config
from torch._inductor.async_compile import AsyncCompile
from torch._inductor.codecache import PyCodeCache
from torch._inductor.fx_passes import joint_graph, post_grad
from torch._inductor.runtime import triton_helpers


@dataclass(frozen=True)
class Kernel:
    """A kernel in inductor's wrapper code, which calls `run` to launch it."""

    name: str
    source: str
    launch: Callable[..., None]

    def run(self, *arguments: Any, stream: int) -> None:
        self.launch(self, *arguments)

    def load(self) -> Any:
        """What its source defines: a function of Triton, as inductor's heuristics decorate it."""
        return getattr(PyCodeCache.load(self.source), self.name)


def catch_kernels(launch: Callable[..., None]) -> list[Kernel]:
    """From here on, what inductor generates for the card is listed, and `launch(kernel, *arguments)` is
    called with the fake tensors, numbers and, last, the sizes of the grid with which a card would start it.
    """
    caught: list[Kernel] = []

    def catch(compiler: Any, name: str, source: str, device_str: str = "cuda") -> Kernel:
        caught.append(Kernel(name, source, launch))
        return caught[-1]

    def empty(size: Any, stride: Any, dtype: torch.dtype) -> torch.Tensor:
        return torch.empty_strided(size, stride, dtype=dtype, device="cuda")

    change: Any = setattr  # of names that mypy knows as functions
    change(AsyncCompile, "triton", catch)
    change(torch._C._dynamo.guards, "_empty_strided_cuda", empty)
    change(triton_helpers, "set_driver_to_gpu", lambda: None)
    for passes in (joint_graph, post_grad):
        change(passes, "lazy_init", lambda *unused: None)  # of patterns, which are traced with data
    config.pattern_matcher = False
    config.compile_threads = 1
    config.use_static_cuda_launcher = False
    config.force_disable_caches = True
    return caught
