"""Sampling with transformers: each prompt is read once for all of its candidates."""

from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch
from transformers import DynamicCache

from infer.engines.drawing import draw
from infer.engines.interface import Answer, Completion, Request, Sampling, answered
from infer.engines.reading import Reading, end_ids
from infer.engines.shared_prompt import SharedPart, SharedPromptCache, shared_prompt_attention
from infer.engines.weights import load_weights
from mlbench_data.adapter import Adapter
from mlbench_data.bad_input import JobFailed
from mlbench_data.gpu_memory import let_segments_grow
from mlbench_data.models import Model, load_tokenizer
from mlbench_data.quantization import Quantization

REPEATED_TOKENS = 16384  # of READMEs that are copied to read prompts' rests over them
PREFILL_TOKENS = 1024  # read in one pass: enough to fill the processor, and activations stay small
ENDED_SHARE = 1 / 8  # of a batch's candidates, before the cache of those that have ended is let go


class TransformersEngine:
    """A model in this process, on the GPU if there is one."""

    name = "transformers"

    def __init__(
        self, model: Model, batch_tokens: int, quantization: Quantization, trust_remote_code: bool
    ) -> None:
        """Weights are loaded by `use`."""
        let_segments_grow()
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.tokenizer = load_tokenizer(model)
        self.settings = (model, self.device, quantization, trust_remote_code)
        self.batch_tokens = batch_tokens

    def use(self, adapter: Adapter | None) -> None:
        """Loads the weights, in float32 on a CPU, with the adapter merged into them if they are not
        quantized. Raises BadInput if they cannot be loaded.
        """
        self.model: Any = None  # two models at a time may not fit
        self.model = load_weights(*self.settings, adapter)
        self.kept: dict[bytes, _Tokens] = {}
        self.end_ids = end_ids(self.tokenizer, self.model.generation_config)

    def sample(
        self, requests: list[Request], done: Collection[int], sampling: Sampling
    ) -> Iterator[list[Answer]]:
        """Batch by batch. Batches are planned over all requests, also those that are done: a continued run
        computes the same numbers as an undisturbed one.
        """
        for batch in self.batches(requests, sampling):
            if not all(index in done for index in batch):
                asked = [requests[index] for index in batch]
                tokens = computed(asked, self.kept)
                with self._naming_lack_of_memory():
                    completions = self.completions(asked, sampling)
                lengths = [len(request.prompt) for request in asked]
                found = zip(batch, completions, lengths, tokens, strict=True)
                yield [answered(*one) for one in found if one[0] not in done]
        self.kept.clear()

    def close(self) -> None:
        """There is nothing to end."""

    def batches(self, requests: list[Request], sampling: Sampling) -> list[list[int]]:
        """Requests of one README together, beside those of similar length; at most `batch_tokens` tokens of
        cache in a batch, in which each README counts once.
        """
        readmes = [request.readme for request in requests]
        order = sorted(
            range(len(requests)), key=lambda index: _length(requests[index], readmes[index], index)
        )
        batches: list[list[int]] = []
        size = _Size(0, 0, 0, 0)
        last: bytes | None = None
        for index in reversed(order):  # the longest first, so that a lack of memory shows at once
            prompt = requests[index].prompt
            head = _head(requests[index])
            new = len(prompt) - head + sampling.n * sampling.max_new_tokens
            grown = size.with_row(head, new, not readmes[index] or readmes[index] != last)
            if grown.tokens > self.batch_tokens or not batches:
                batches.append([])
                grown = _Size(0, 0, 0, 0).with_row(head, new, True)
            batches[-1].append(index)
            size, last = grown, readmes[index]
        return batches

    @torch.inference_mode()
    def completions(self, batch: list[Request], sampling: Sampling) -> list[list[Completion]]:
        """n completions for each request: one pass over its prompt, whose cache they then share."""
        reading = Reading(self.tokenizer, self.end_ids, sampling.stop)
        state = _Decoding(self.model, batch, sampling, reading.has_ended, self.device, self.kept)
        with shared_prompt_attention(self.model):
            while state.held:
                state.step()
        made = [reading.completion(tokens) for tokens in state.tokens]
        return [made[start : start + sampling.n] for start in range(0, len(made), sampling.n)]

    @contextmanager
    def _naming_lack_of_memory(self) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:
            if not isinstance(error, torch.OutOfMemoryError) and "allocate memory" not in str(error):
                raise
            raise JobFailed(
                f"no memory for a batch of {self.batch_tokens} tokens; finished rows are kept: lower "
                "--batch_tokens and give another --out"
            ) from error


@dataclass(frozen=True)
class _Size:
    """Of a batch's cache: READMEs and the longest of them, rows and the most tokens that one adds."""

    heads: int
    longest: int
    rows: int
    most: int

    def with_row(self, head: int, added: int, is_new: bool) -> "_Size":
        """With one row more, whose README of `head` tokens the row before may have or not."""
        longest, most = max(self.longest, head), max(self.most, added)
        return _Size(self.heads + is_new, longest, self.rows + 1, most)

    @property
    def tokens(self) -> int:
        """Padding included."""
        return self.heads * self.longest + self.rows * self.most


class _Decoding:
    """A batch on its way. `held` lists the candidates whose cache is held, in the cache's order; `going`
    are those that have not ended.

    Candidates that have ended go on being computed until enough of them have: letting go of them copies
    the rest. `kept` holds the README that the batch before ended with, by its hash, and then this one's.
    """

    def __init__(
        self,
        model: Any,
        batch: list[Request],
        sampling: Sampling,
        ends: Callable[[list[int]], bool],
        device: torch.device,
        kept: dict[bytes, "_Tokens"],
    ) -> None:
        self.model, self.sampling, self.ends, self.device = model, sampling, ends, device
        self.kept = kept
        self.tokens: list[list[int]] = [[] for _ in range(len(batch) * sampling.n)]
        self.generators = [
            torch.Generator(device).manual_seed(request.seed + candidate)
            for request in batch
            for candidate in range(sampling.n)
        ]
        self.held = list(range(len(self.tokens)))
        self.going = set(self.held)
        self._read_prompts(batch)

    def _read_prompts(self, batch: list[Request]) -> None:
        """Reads every README once, a few at a time, and what follows it in each prompt over it."""
        for other in self.kept.keys() - {batch[0].readme}:
            del self.kept[other]
        reads = [self._read(run) for run in prefill_runs(batch)]
        starts = accumulate((len(read.heads.mask) for read in reads), initial=0)
        owners = torch.cat([read.owners + start for read, start in zip(reads, starts, strict=False)])
        logits = torch.cat([read.logits for read in reads])
        heads, rests = _joined([read.heads for read in reads]), _joined([read.rests for read in reads])
        n = self.sampling.n
        lengths = heads.mask.sum(1)[owners] + rests.mask.sum(1)
        self.next_position = lengths[:, None].repeat_interleave(n, 0)
        rows = torch.arange(len(batch), device=self.device)
        parts = [heads.shared_by(owners.repeat_interleave(n)), rests.shared_by(rows.repeat_interleave(n))]
        self.cache = SharedPromptCache(parts, self.sampling.max_new_tokens)
        self._take(logits.repeat_interleave(n, 0))

    def _read(self, run: list[Request]) -> "_Read":
        """Each README of the run once, then the rest of every prompt over its README's keys and values."""
        prefixes = [tuple(request.token_ids[: _head(request)]) for request in run]
        numbers = {prefix: number for number, prefix in enumerate(dict.fromkeys(prefixes))}
        heads = self._heads(run[0], list(numbers))
        owners = torch.tensor([numbers[prefix] for prefix in prefixes], device=self.device)
        ids, mask = self._padded([request.token_ids[_head(request) :] for request in run])
        together = max(1, REPEATED_TOKENS // heads.mask.shape[1])
        parts = zip(ids.split(together), mask.split(together), owners.split(together), strict=True)
        found = [self._read_rests(*part, heads) for part in parts]
        rests = _joined([rest for rest, _ in found])
        return _Read(heads, owners, rests, torch.cat([logits for _, logits in found]))

    def _heads(self, first: Request, prefixes: list[tuple[int, ...]]) -> "_Tokens":
        """READMEs' keys and values. One that fills a pass is always read alone, and kept: the next batch may
        begin with more of its rows.
        """
        if first.readme in self.kept:
            return self.kept[first.readme].copy()
        ids, mask = self._padded(prefixes)
        cache: Any = DynamicCache()
        self.model(
            input_ids=ids,
            attention_mask=None if bool(mask.all()) else mask,  # without one, no scores are written out
            position_ids=(mask.cumsum(1) - 1).clamp(min=0),
            past_key_values=cache,
            logits_to_keep=1,
        )
        heads = _Tokens(deque((layer.keys, layer.values) for layer in cache.layers), mask)
        if first.readme and len(prefixes[0]) >= PREFILL_TOKENS:
            self.kept.clear()
            self.kept[first.readme] = heads.copy()
        return heads

    def _read_rests(
        self, ids: torch.Tensor, mask: torch.Tensor, owners: torch.Tensor, heads: "_Tokens"
    ) -> tuple["_Tokens", torch.Tensor]:
        """A few prompts' rests over copies of their READMEs, and the logits (rows, vocabulary) after them."""
        cache: Any = DynamicCache()
        for number, (keys, values) in enumerate(heads.layers):
            cache.update(keys[owners], values[owners], number)
        whole = torch.cat([heads.mask[owners], mask], 1)
        before = heads.mask.shape[1]
        logits = self.model(
            input_ids=ids,
            attention_mask=whole,
            position_ids=(whole.cumsum(1) - 1).clamp(min=0)[:, before:],
            past_key_values=cache,
            logits_to_keep=1,
        ).logits[:, -1]
        own = [
            (layer.keys[:, :, before:].clone(), layer.values[:, :, before:].clone()) for layer in cache.layers
        ]
        return _Tokens(deque(own), mask), logits

    def _padded(self, rows: Sequence[Sequence[int]]) -> tuple[torch.Tensor, torch.Tensor]:
        """Token ids, padded on the left, and their mask, both (rows, tokens)."""
        length = max(map(len, rows))
        ids = torch.zeros((len(rows), length), dtype=torch.long, device=self.device)
        mask = torch.zeros_like(ids)
        for row, tokens in enumerate(rows):
            ids[row, length - len(tokens) :] = torch.tensor(tokens)
            mask[row, length - len(tokens) :] = 1
        return ids, mask

    def step(self) -> None:
        """One token for every candidate that is held."""
        last = torch.tensor([[self.tokens[index][-1]] for index in self.held], device=self.device)
        out = self.model(
            input_ids=last, position_ids=self.next_position, use_cache=False, shared_prompt=self.cache
        )
        self.cache.length += 1
        self.next_position = self.next_position + 1
        self._take(out.logits[:, -1])

    def _take(self, logits: torch.Tensor) -> None:
        """Draws a token for each candidate, and lets go of those that have ended once they are many."""
        drawn = draw(logits, self.sampling, [self.generators[index] for index in self.held])
        for place, index in enumerate(self.held):
            if index in self.going:
                self._append(index, drawn[place])
        going = [place for place, index in enumerate(self.held) if index in self.going]
        if len(self.held) - len(going) > len(self.held) * ENDED_SHARE or not going:
            places = torch.tensor(going, dtype=torch.long, device=self.device)
            self.cache.keep(places)
            self.next_position = self.next_position[places]
            self.held = [self.held[place] for place in going]

    def _append(self, index: int, token: int) -> None:
        tokens = self.tokens[index]
        tokens.append(token)
        if len(tokens) == self.sampling.max_new_tokens or self.ends(tokens):
            self.going.remove(index)


@dataclass
class _Tokens:
    """Keys and values of every layer, (owners, key heads, tokens, head size), and their mask."""

    layers: deque[tuple[torch.Tensor, ...]]
    mask: torch.Tensor

    def copy(self) -> "_Tokens":
        """The same tensors in a list of its own, which can be emptied."""
        return _Tokens(deque(self.layers), self.mask)

    def shared_by(self, owners: torch.Tensor) -> SharedPart:
        """These tokens as the candidates read them."""
        keys, values = ([layer[place] for layer in self.layers] for place in (0, 1))
        return SharedPart(keys, values, self.mask == 0, owners)


@dataclass
class _Read:
    """READMEs, which of them each row begins with, the rows' other tokens, and the logits after these."""

    heads: _Tokens
    owners: torch.Tensor
    rests: _Tokens
    logits: torch.Tensor


def _joined(parts: list[_Tokens]) -> _Tokens:
    """All of them side by side, padded on the left. The parts are emptied, so that memory holds no more than
    one layer twice.
    """
    if len(parts) == 1:
        return parts[0]
    length = max(part.mask.shape[1] for part in parts)
    layers: deque[tuple[torch.Tensor, ...]] = deque()
    while parts[0].layers:
        pairs = [part.layers.popleft() for part in parts]
        keys, values = (
            torch.cat([_left_padded(pair[place], length, 2) for pair in pairs]) for place in (0, 1)
        )
        layers.append((keys, values))
    return _Tokens(layers, torch.cat([_left_padded(part.mask, length, 1) for part in parts]))


def _head(request: Request) -> int:
    """Tokens up to the README's end; without one, all but the last, over which the answer is drawn."""
    whole = len(request.prompt)
    return min(request.shared or whole, whole - 1)


def computed(batch: list[Request], kept: Collection[bytes] = ()) -> list[int]:
    """Tokens that are computed to read each prompt of a batch: a README counts for the first of its rows,
    unless the batch begins with one that is `kept`.
    """
    seen = {batch[0].readme} & set(kept)
    found = []
    for request in batch:
        whole, readme = len(request.prompt), request.readme
        found.append(whole - (_head(request) if readme in seen else 0))
        seen |= {readme} - {b""}
    return found


def prefill_runs(batch: list[Request]) -> list[list[Request]]:
    """Neighbouring requests to read in one pass: about PREFILL_TOKENS tokens, and never half of those that
    share a README.
    """
    runs: list[list[Request]] = []
    tokens = 0
    for request in batch:
        shares = bool(runs) and request.readme != b"" and request.readme == runs[-1][-1].readme
        new = len(request.prompt) - (request.shared if shares else 0)
        if not runs or (not shares and tokens + new > PREFILL_TOKENS):
            runs.append([])
            tokens = 0
        runs[-1].append(request)
        tokens += new
    return runs


def _length(request: Request, readme: bytes, index: int) -> tuple[int, bytes, int, int]:
    """Sorts by the README's length first, and rows of one README side by side."""
    return request.shared, readme, len(request.prompt), index


def _left_padded(tensor: torch.Tensor, length: int, dimension: int) -> torch.Tensor:
    """`tensor` with zeros before its tokens, which lie along `dimension`, up to `length`."""
    sides = [0, 0] * (tensor.dim() - 1 - dimension)
    return torch.nn.functional.pad(tensor, [*sides, length - tensor.shape[dimension], 0])
