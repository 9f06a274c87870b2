"""Sampling with transformers: each prompt is read once for all of its candidates."""

from typing import Any

import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM

from infer.adapter import Adapter
from infer.engines.interface import Completion, Request, Sampling
from mlbench_data.bad_input import BadInput
from mlbench_data.models import Model, load_tokenizer

TOP_CANDIDATES = 256  # tokens looked at before sorting the whole vocabulary for top-p


class TransformersEngine:
    """A model in this process, on the GPU if there is one."""

    name = "transformers"

    def __init__(self, model: Model, adapter: Adapter | None, batch_tokens: int, trust_remote_code: bool) -> None:
        """Loads the weights, in float32 on a CPU. Raises BadInput if they cannot be loaded."""
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.tokenizer = load_tokenizer(model)
        self.model = _load(model, adapter, self.device, trust_remote_code)
        self.batch_tokens = batch_tokens
        self.end_ids = _end_ids(self.model, self.tokenizer)

    def batches(self, requests: list[Request], sampling: Sampling) -> list[list[int]]:
        """Requests of similar length together, at most `batch_tokens` tokens of cache in a batch."""
        order = sorted(range(len(requests)), key=lambda index: (len(requests[index].token_ids), index))
        batches: list[list[int]] = []
        for index in reversed(order):  # the longest first, so that a lack of memory shows at once
            longest = len(requests[batches[-1][0]].token_ids) if batches else 0
            room = self.batch_tokens // (sampling.n * (longest + sampling.max_new_tokens)) if batches else 0
            if not batches or len(batches[-1]) >= max(1, room):
                batches.append([])
            batches[-1].append(index)
        return batches

    @torch.inference_mode()
    def sample(self, batch: list[Request], sampling: Sampling) -> list[list[Completion]]:
        """One pass over each prompt; its cache is then shared by the row's n candidates."""
        state = _Decoding(self.model, batch, sampling, self.end_ids, self.device)
        while state.running():
            state.step()
        texts = [self._completion(tokens, sampling) for tokens in state.tokens]
        return [texts[start : start + sampling.n] for start in range(0, len(texts), sampling.n)]

    def _completion(self, tokens: list[int], sampling: Sampling) -> Completion:
        ended = bool(tokens) and tokens[-1] in self.end_ids
        text = self.tokenizer.decode(tokens[:-1] if ended else tokens, skip_special_tokens=False)
        return Completion(text, "stop" if ended else "length", len(tokens))


class _Decoding:
    """A batch on its way: `alive` lists the candidates whose cache is still held."""

    def __init__(
        self, model: Any, batch: list[Request], sampling: Sampling, end_ids: set[int], device: torch.device
    ) -> None:
        self.model, self.sampling, self.end_ids = model, sampling, end_ids
        self.tokens: list[list[int]] = [[] for _ in range(len(batch) * sampling.n)]
        self.generators = [
            torch.Generator(device).manual_seed(request.seed + candidate)
            for request in batch
            for candidate in range(sampling.n)
        ]
        self.alive = list(range(len(self.tokens)))
        self._read_prompts(batch, device)

    def _read_prompts(self, batch: list[Request], device: torch.device) -> None:
        length = max(len(request.token_ids) for request in batch)
        ids = torch.zeros((len(batch), length), dtype=torch.long)
        mask = torch.zeros((len(batch), length), dtype=torch.long)
        for row, request in enumerate(batch):
            ids[row, length - len(request.token_ids) :] = torch.tensor(request.token_ids)
            mask[row, length - len(request.token_ids) :] = 1
        positions = (mask.cumsum(1) - 1).clamp(min=0)
        read = self.model(
            input_ids=ids.to(device),
            attention_mask=mask.to(device),
            position_ids=positions.to(device),
            use_cache=True,
            logits_to_keep=1,
        )
        self.cache = read.past_key_values
        self.cache.batch_repeat_interleave(self.sampling.n)
        self.mask = mask.to(device).repeat_interleave(self.sampling.n, 0)
        self.next_position = positions[:, -1:].to(device).repeat_interleave(self.sampling.n, 0) + 1
        self._take(read.logits[:, -1].repeat_interleave(self.sampling.n, 0))

    def running(self) -> bool:
        """Whether any candidate is unfinished."""
        return bool(self.alive)

    def step(self) -> None:
        """One token for every candidate that is alive."""
        last = torch.tensor([[self.tokens[index][-1]] for index in self.alive], device=self.mask.device)
        self.mask = torch.cat([self.mask, self.mask.new_ones((len(self.alive), 1))], 1)
        out = self.model(
            input_ids=last,
            attention_mask=self.mask,
            position_ids=self.next_position,
            past_key_values=self.cache,
            use_cache=True,
        )
        self.next_position = self.next_position + 1
        self._take(out.logits[:, -1])

    def _take(self, logits: torch.Tensor) -> None:
        """Draws a token for each candidate, and lets go of the cache of those that have ended."""
        drawn = draw(logits.float(), self.sampling, [self.generators[index] for index in self.alive])
        kept = []
        for place, index in enumerate(self.alive):
            self.tokens[index].append(drawn[place])
            ended = drawn[place] in self.end_ids or len(self.tokens[index]) == self.sampling.max_new_tokens
            if not ended:
                kept.append(place)
        if kept and len(kept) < len(self.alive):
            places = torch.tensor(kept, device=self.mask.device)
            self.cache.batch_select_indices(places)
            self.mask, self.next_position = self.mask[places], self.next_position[places]
        self.alive = [self.alive[place] for place in kept]


def draw(logits: torch.Tensor, sampling: Sampling, generators: list[torch.Generator]) -> list[int]:
    """One token a row of `logits` (rows, vocabulary), by temperature and top-p (Holtzman et al. 2020).

    Each row has a generator of its own, so that a candidate does not depend on its neighbours. Only if the
    likeliest `TOP_CANDIDATES` tokens do not reach top_p is the whole vocabulary sorted.
    """
    if sampling.temperature == 0:
        return logits.argmax(-1).tolist()
    probabilities = torch.softmax(logits / sampling.temperature, -1)
    count = min(TOP_CANDIDATES, probabilities.shape[-1])
    top, tokens = probabilities.topk(count, -1)
    if bool((top.sum(-1) < sampling.top_p).any()):
        top, tokens = probabilities.sort(-1, descending=True)
    before = top.cumsum(-1) - top
    top = top.masked_fill(before >= sampling.top_p, 0.0)
    points = torch.stack([torch.rand((), generator=item, device=item.device) for item in generators])
    cumulative = top.cumsum(-1)
    places = (cumulative <= (points.to(top.device) * cumulative[:, -1])[:, None]).sum(-1, keepdim=True)
    return tokens.gather(1, places.clamp(max=top.shape[-1] - 1)).squeeze(1).tolist()


def _load(model: Model, adapter: Adapter | None, device: torch.device, trust_remote_code: bool) -> Any:
    try:
        network = AutoModelForCausalLM.from_pretrained(
            model.location,
            revision=model.revision,
            dtype=torch.bfloat16 if device.type == "cuda" else torch.float32,
            use_safetensors=True,
            trust_remote_code=trust_remote_code,
        )
    except (OSError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise BadInput(f"{model.location}: no weights could be loaded ({reason})") from error
    if adapter is not None:
        try:
            network = PeftModel.from_pretrained(network, adapter.folder).merge_and_unload()
        except (RuntimeError, ValueError) as error:
            reason = " ".join(str(error).split())[:200]
            raise BadInput(f"{adapter.folder}: does not fit {model.name} ({reason})") from error
    return network.to(device).eval()


def _end_ids(model: Any, tokenizer: Any) -> set[int]:
    """Every token that ends an answer: the tokenizer's, and those of the model's generation settings."""
    configured = model.generation_config.eos_token_id
    listed = configured if isinstance(configured, list) else [configured]
    return {item for item in [tokenizer.eos_token_id, *listed] if item is not None}
