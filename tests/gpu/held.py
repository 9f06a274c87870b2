"""What a GPU would hold while a step runs on tensors without data, counted when it is most.

Nothing of train/memory.py or train/ledger.py is used here: these count what the estimate is checked by.
"""

import weakref
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch._subclasses.fake_tensor import DataDependentOutputException
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

BLOCK = 512
"""Bytes that torch's CUDA allocator rounds up to."""


class Held(TorchDispatchMode):
    """Bytes of all storages on the GPU, also of those that FSDP empties and fills again; `most` when they
    were most, by what they hold. What nobody names later was an activation.
    """

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()
        self.sizes: dict[int, int] = {}
        self.kinds: dict[int, str] = {}
        self.total = 0
        self.highest = 0
        self.most: Counter[str] = Counter()
        self.moment = ""
        self.saw: Callable[[str, list[torch.Tensor]], None] | None = None

    def __enter__(self) -> "Held":
        self.resize = torch.UntypedStorage.resize_

        def resize(storage: torch.UntypedStorage, size: int) -> Any:
            done = self.resize(storage, size)
            if id(storage) in self.sizes:
                self._changed(id(storage), storage.nbytes())
            return done

        torch.UntypedStorage.resize_ = resize  # type: ignore[method-assign,assignment]
        super().__enter__()
        return self

    def __exit__(self, *reason: Any) -> None:
        torch.UntypedStorage.resize_ = self.resize  # type: ignore[method-assign]
        super().__exit__(*reason)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        try:
            made = func(*args, **(kwargs or {}))
        except DataDependentOutputException:
            return 1.0  # a number that the CPU asks for, such as the loss
        tensors = [item for item in tree_leaves(made) if isinstance(item, torch.Tensor)]
        for tensor in tensors:
            self._note(tensor)
        if self.saw is not None:
            given = [item for item in tree_leaves((args, kwargs)) if isinstance(item, torch.Tensor)]
            self.saw(str(func), given)
        self._compare(str(func))
        return made

    def name(self, kind: str, tensors: Any) -> None:
        """Says what tensors are for. Those that were made outside are counted from now on."""
        for tensor in tensors:
            local = getattr(tensor, "_local_tensor", tensor)
            self._note(local)
            self.kinds[id(local.untyped_storage())] = kind

    def start(self) -> None:
        """What was most is forgotten."""
        self.highest, self.most = 0, Counter()

    def _note(self, tensor: torch.Tensor) -> None:
        if tensor.device.type != "cuda" or isinstance(tensor, DTensor):
            return  # what a DTensor has on this GPU is a tensor of its own, which is noted by itself
        storage = tensor.untyped_storage()
        key = id(storage)
        if key not in self.sizes:
            self.sizes[key] = 0
            self._changed(key, storage.nbytes())
            weakref.finalize(storage, self._gone, key).atexit = False

    def _changed(self, key: int, size: int) -> None:
        rounded = -(-size // BLOCK) * BLOCK
        self.total += rounded - self.sizes[key]
        self.sizes[key] = rounded

    def _gone(self, key: int) -> None:
        self.total -= self.sizes.pop(key)
        self.kinds.pop(key, None)

    def _compare(self, moment: str) -> None:
        if self.total > self.highest:
            self.highest, self.moment = self.total, moment
            self.most = Counter()
            for key, size in self.sizes.items():
                self.most[self.kinds.get(key, "activations")] += size
