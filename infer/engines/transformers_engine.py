"""Sampling with transformers: each prompt is read once for all of its candidates."""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch
from peft import PeftModel
from safetensors import SafetensorError
from transformers import AutoModelForCausalLM, DynamicCache

from infer.answers import is_answered
from infer.engines.interface import Completion, Request, Sampling
from infer.engines.shared_prompt import SharedPart, SharedPromptCache, shared_prompt_attention
from mlbench_data.adapter import Adapter
from mlbench_data.bad_input import BadInput
from mlbench_data.models import Model, has_other_attention, load_tokenizer

TOP_CANDIDATES = 256  # tokens looked at before sorting the whole vocabulary for top-p
DRAWN_TOGETHER = 16  # rows of logits whose probabilities stay in a processor's cache
REPEATED_TOKENS = 16384  # of READMEs that are copied to read prompts' rests over them
PREFILL_TOKENS = 1024  # read in one pass: enough to fill the processor, and activations stay small
ENDED_SHARE = 1 / 8  # of a batch's candidates, before the cache of those that have ended is let go


class TransformersEngine:
    """A model in this process, on the GPU if there is one."""

    name = "transformers"

    def __init__(
        self, model: Model, adapter: Adapter | None, batch_tokens: int, trust_remote_code: bool
    ) -> None:
        """Loads the weights, in float32 on a CPU. Raises BadInput if they cannot be loaded."""
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.tokenizer = load_tokenizer(model)
        self.model = _load(model, adapter, self.device, trust_remote_code)
        self.batch_tokens = batch_tokens
        self.end_ids = _end_ids(self.model, self.tokenizer)
        self.fence_ids = {index for token, index in self.tokenizer.get_vocab().items() if "`" in token}

    def batches(self, requests: list[Request], sampling: Sampling) -> list[list[int]]:
        """Requests of one README together, beside those of similar length; at most `batch_tokens` tokens of
        cache in a batch, in which each README counts once.
        """
        order = sorted(range(len(requests)), key=lambda index: (*_by_readme(requests[index]), index))
        batches: list[list[int]] = []
        size = _Size(0, 0, 0, 0)
        last: list[int] | None = None
        for index in reversed(order):  # the longest first, so that a lack of memory shows at once
            request = requests[index]
            head = request.token_ids[: _head(request)]
            new = len(request.token_ids) - len(head) + sampling.n * sampling.max_new_tokens
            grown = size.with_row(len(head), new, head != last)
            if grown.tokens > self.batch_tokens or not batches:
                batches.append([])
                grown = _Size(0, 0, 0, 0).with_row(len(head), new, True)
            batches[-1].append(index)
            size, last = grown, head
        return batches

    @torch.inference_mode()
    def sample(self, batch: list[Request], sampling: Sampling) -> list[list[Completion]]:
        """One pass over each prompt; its cache is then shared by the row's n candidates.

        A candidate also ends (`stop`) once its code block is closed: what would follow is never read.
        """
        state = _Decoding(self.model, batch, sampling, self._ends, self.device)
        with shared_prompt_attention(self.model):
            while state.held:
                state.step()
        texts = [self._completion(tokens) for tokens in state.tokens]
        return [texts[start : start + sampling.n] for start in range(0, len(texts), sampling.n)]

    def _ends(self, tokens: list[int]) -> bool:
        """Whether a candidate is done by itself: its model ended it, or its code block is closed."""
        if tokens[-1] in self.end_ids:
            return True
        return tokens[-1] in self.fence_ids and is_answered(self.tokenizer.decode(tokens))

    def _completion(self, tokens: list[int]) -> Completion:
        text = self.tokenizer.decode(tokens[:-1] if tokens[-1] in self.end_ids else tokens)
        return Completion(text, "stop" if self._ends(tokens) else "length", len(tokens))


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
    the rest.
    """

    def __init__(
        self,
        model: Any,
        batch: list[Request],
        sampling: Sampling,
        ends: Callable[[list[int]], bool],
        device: torch.device,
    ) -> None:
        self.model, self.sampling, self.ends, self.device = model, sampling, ends, device
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
        ids, mask = self._padded(list(numbers))
        cache: Any = DynamicCache()
        self.model(
            input_ids=ids,
            attention_mask=None if bool(mask.all()) else mask,  # without one, no scores are written out
            position_ids=(mask.cumsum(1) - 1).clamp(min=0),
            past_key_values=cache,
            logits_to_keep=1,
        )
        layers = cache.layers
        heads = _Tokens(deque((layer.keys, layer.values) for layer in layers), mask)
        owners = torch.tensor([numbers[prefix] for prefix in prefixes], device=self.device)
        ids, mask = self._padded([request.token_ids[_head(request) :] for request in run])
        together = max(1, REPEATED_TOKENS // heads.mask.shape[1])
        parts = zip(ids.split(together), mask.split(together), owners.split(together), strict=True)
        found = [self._read_rests(*part, heads) for part in parts]
        rests = _joined([rest for rest, _ in found])
        return _Read(heads, owners, rests, torch.cat([logits for _, logits in found]))

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
    return min(request.readme_end or len(request.token_ids), len(request.token_ids) - 1)


def prefill_runs(batch: list[Request]) -> list[list[Request]]:
    """Neighbouring requests to read in one pass: about PREFILL_TOKENS tokens, and never half of those that
    share a README.
    """
    runs: list[list[Request]] = []
    tokens = 0
    for request in batch:
        shares = bool(runs) and request.readme_end > 0 and _readme(request) == _readme(runs[-1][-1])
        new = len(request.token_ids) - (request.readme_end if shares else 0)
        if not runs or (not shares and tokens + new > PREFILL_TOKENS):
            runs.append([])
            tokens = 0
        runs[-1].append(request)
        tokens += new
    return runs


def _by_readme(request: Request) -> tuple[int, list[int], int]:
    return request.readme_end, _readme(request), len(request.token_ids)


def _readme(request: Request) -> list[int]:
    return request.token_ids[: request.readme_end]


def _left_padded(tensor: torch.Tensor, length: int, dimension: int) -> torch.Tensor:
    """`tensor` with zeros before its tokens, which lie along `dimension`, up to `length`."""
    sides = [0, 0] * (tensor.dim() - 1 - dimension)
    return torch.nn.functional.pad(tensor, [*sides, length - tensor.shape[dimension], 0])


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


def _load(model: Model, adapter: Adapter | None, device: torch.device, trust_remote_code: bool) -> Any:
    try:
        network: Any = AutoModelForCausalLM.from_pretrained(
            model.location,
            revision=model.revision,
            dtype=torch.bfloat16 if device.type == "cuda" else torch.float32,
            use_safetensors=True,
            trust_remote_code=trust_remote_code,
        )
    except (OSError, ValueError, SafetensorError) as error:
        reason = str(error).strip().splitlines()[0]
        raise BadInput(f"{model.location}: no weights could be loaded ({reason})") from error
    if has_other_attention(network.config):
        raise BadInput(f"{model.name}: sliding windows or capped scores, which need --engine vllm")
    if adapter is not None:
        try:
            network = PeftModel.from_pretrained(network, adapter.folder).merge_and_unload()
        except (RuntimeError, ValueError, SafetensorError) as error:
            reason = " ".join(str(error).split())[:200]
            raise BadInput(f"{adapter.folder}: does not fit {model.name} ({reason})") from error
    return network.to(device).eval()


def _end_ids(model: Any, tokenizer: Any) -> set[int]:
    """Every token that ends an answer: the tokenizer's, and those of the model's generation settings."""
    configured = model.generation_config.eos_token_id
    listed = configured if isinstance(configured, list) else [configured]
    return {item for item in [tokenizer.eos_token_id, *listed] if item is not None}
