"""Drawing tokens from logits by temperature and top-p, each candidate with random numbers of its own."""

import torch

from infer.engines.interface import Sampling

TOP_CANDIDATES = 256  # tokens looked at before sorting the whole vocabulary for top-p
DRAWN_TOGETHER = 16  # rows of logits whose probabilities stay in a processor's cache


def draw(logits: torch.Tensor, sampling: Sampling, generators: list[torch.Generator]) -> list[int]:
    """One token a row of `logits` (rows, vocabulary), by temperature and top-p (Holtzman et al. 2020).

    Each row has a generator of its own, so that a candidate does not depend on its neighbours. The whole
    vocabulary is sorted only for rows whose likeliest `TOP_CANDIDATES` tokens do not reach top_p.
    """
    if sampling.temperature == 0:
        return logits.argmax(-1).tolist()
    points = torch.stack([torch.rand((), generator=item, device=item.device) for item in generators])
    together = DRAWN_TOGETHER if logits.device.type == "cpu" else len(logits)
    parts = zip(logits.split(together), points.split(together), strict=True)
    return [token for part, point in parts for token in _draw_together(part.float(), sampling, point)]


def _draw_together(logits: torch.Tensor, sampling: Sampling, points: torch.Tensor) -> list[int]:
    probabilities = torch.softmax(logits / sampling.temperature, -1)
    top, tokens = probabilities.topk(min(TOP_CANDIDATES, probabilities.shape[-1]), -1)
    drawn = _draw_from(top, tokens, sampling.top_p, points)
    wide = top.sum(-1) < sampling.top_p
    if bool(wide.any()):
        drawn[wide] = _draw_from(*probabilities[wide].sort(-1, descending=True), sampling.top_p, points[wide])
    return drawn.tolist()


def _draw_from(
    probabilities: torch.Tensor, tokens: torch.Tensor, top_p: float, points: torch.Tensor
) -> torch.Tensor:
    """A token a row from the fewest likeliest that reach top_p; `points` are uniform in [0, 1)."""
    before = probabilities.cumsum(-1) - probabilities
    cumulative = probabilities.masked_fill(before >= top_p, 0.0).cumsum(-1)
    places = (cumulative <= (points * cumulative[:, -1])[:, None]).sum(-1, keepdim=True)
    return tokens.gather(1, places.clamp(max=tokens.shape[-1] - 1)).squeeze(1)
