"""Noise on the embeddings while training (NEFTune, Jain et al. 2023), as large as each row's own length says.

transformers' option scales it by the length of the sequence that it sees, which is a whole pack here: four
rows in a pack would get half the noise that each gets alone.
"""

import math
from typing import Any

import torch

from train.prefix_attention import Layout


class EmbeddingNoise:
    """Adds uniform noise of at most alpha / sqrt(L d) to the embeddings (1, T, d) of a pack, where L is the
    length of the row that a token belongs to. Tokens that rows share get one noise for all of them, by the
    mean of their lengths.
    """

    def __init__(self, network: Any, alpha: float) -> None:
        self.alpha = alpha
        self.lengths = torch.ones(1)
        network.get_input_embeddings().register_forward_hook(self._add)

    def expect(self, layout: Layout, device: torch.device) -> None:
        """The pack that is computed next."""
        self.lengths = torch.tensor(lengths_of(layout), device=device)

    def _add(self, module: Any, inputs: Any, embedded: torch.Tensor) -> torch.Tensor:
        if not module.training:
            return embedded
        most = self.alpha / torch.sqrt(self.lengths * embedded.shape[-1])
        return embedded + torch.empty_like(embedded).uniform_(-1, 1) * most[:, None].to(embedded.dtype)


def lengths_of(layout: Layout) -> list[float]:
    """For each of a pack's T tokens the length of its row; for those of a prefix the mean of its rows."""
    lengths: list[float] = []
    for prefix, branches in layout.groups:
        lengths += [prefix + math.fsum(branches) / len(branches)] * prefix
        for branch in branches:
            lengths += [float(prefix + branch)] * branch
    return lengths
