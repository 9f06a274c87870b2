"""What a GPU holds while a step runs on tensors without data, when it is most.

Nothing of train/memory.py or train/ledger.py is used here: this is what they are checked by.
"""

import weakref
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch._subclasses.fake_tensor import DataDependentOutputException
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

BLOCK = 512
"""Bytes that torch's CUDA allocator rounds up to."""
Noted = Callable[[str, list[torch.Tensor]], None]


class Held(TorchDispatchMode):
    """Bytes of all storages on the GPU, also of those that FSDP empties and fills again; `most` when they
    were most, by what they are for. What nobody has named is an activation.
    """

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()
        self.sizes: dict[int, int] = {}
        self.kinds: dict[int, str] = {}
        self.total = 0
        self.highest = 0
        self.most: Counter[str] = Counter()
        self.note: Noted | None = None

    def __enter__(self) -> "Held":
        storage: Any = torch.UntypedStorage
        self.resize = storage.resize_

        def resize(resized: Any, size: int) -> Any:
            done = self.resize(resized, size)
            if id(resized) in self.sizes:
                self._changed(id(resized), resized.nbytes())
            return done

        storage.resize_ = resize
        super().__enter__()
        return self

    def __exit__(self, *reason: Any) -> None:
        storage: Any = torch.UntypedStorage
        storage.resize_ = self.resize
        super().__exit__(*reason)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        try:
            made = func(*args, **(kwargs or {}))
        except DataDependentOutputException:
            return 1.0  # a number that the CPU asks for, such as the loss
        for tensor in tree_leaves(made):
            if isinstance(tensor, torch.Tensor):
                self._found(tensor)
        if self.note is not None:
            given = [item for item in tree_leaves((args, kwargs)) if isinstance(item, torch.Tensor)]
            self.note(str(func), given)
        if self.total > self.highest:
            self.highest = self.total
            self.most = Counter()
            for key, size in self.sizes.items():
                self.most[self.kinds.get(key, "activations")] += size
        return made

    def name(self, kind: str, tensors: Iterable[Any]) -> None:
        """Says what tensors are for. Those that were made outside are counted from now on."""
        for tensor in tensors:
            local = getattr(tensor, "_local_tensor", tensor)
            self._found(local)
            self.kinds[id(local.untyped_storage())] = kind

    def start(self, note: Noted) -> None:
        """From now on each operator is noted; what was most before is forgotten."""
        self.highest, self.most, self.note = 0, Counter(), note

    def _found(self, tensor: torch.Tensor) -> None:
        if tensor.device.type != "cuda" or isinstance(tensor, DTensor):
            return  # a DTensor's part on this GPU is a tensor of its own, which is found by itself
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
