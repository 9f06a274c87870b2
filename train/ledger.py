"""Counting the bytes that torch holds while it computes, on tensors that have shapes and may have no data."""

import weakref
from collections import Counter
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Ledger(TorchDispatchMode):
    """Counts the bytes of all tensors that are made and not yet freed, by kind; `most` when they were most.

    `moments` has one such count for each amount of gradients, with and without logits: which of them is the
    worst depends on what else is there then. What is `there` already, of which views are made, is not
    counted.
    """

    def __init__(self, vocabulary: int, there: list[Any]) -> None:
        super().__init__()
        self.vocabulary = vocabulary
        self.there = {id(tensor.untyped_storage()): tensor for tensor in there}
        self.held: Counter[str] = Counter()
        self.moments: dict[tuple[int, bool], Counter[str]] = {}
        self.storages: dict[int, Storage] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(made):
            if isinstance(tensor, torch.Tensor):
                self._note(tensor)
        moment = self.held["gradients"], self.held["logits"] > 0
        if moment not in self.moments or self.held.total() > self.moments[moment].total():
            self.moments[moment] = self.held.copy()
        return made

    @property
    def most(self) -> Counter[str]:
        """Bytes by kind when they were most."""
        return max(self.moments.values(), key=Counter.total, default=Counter())

    def is_gradient(self, parameter: Any) -> None:
        """Files what was counted as an activation under gradients: a hook of each trained parameter."""
        storage = self.storages.get(id(parameter.grad.untyped_storage()))
        if storage is not None:
            self.held[storage.kind] -= storage.size
            storage.kind = "gradients"
            self.held[storage.kind] += storage.size

    def _note(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        key = id(storage)
        if key in self.storages or key in self.there:
            return
        is_logits = tensor.dim() > 1 and tensor.shape[-1] == self.vocabulary
        known = Storage(storage.nbytes(), "logits" if is_logits else "activations")
        known.reference = weakref.ref(storage, lambda _: self._forget(key))
        self.storages[key] = known
        self.held[known.kind] += known.size

    def _forget(self, key: int) -> None:
        gone = self.storages.pop(key)
        self.held[gone.kind] -= gone.size


@dataclass
class Storage:
    """What a tensor's data would take: bytes, and what they are for."""

    size: int
    kind: str
    reference: Any = None
    """Tells the ledger when the data is freed."""
