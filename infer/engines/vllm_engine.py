"""Sampling with vLLM, on GPUs or on a CPU: adapters by request, rows that share a README share its cache."""

import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from infer.engines.interface import Answer, Completion, Request, Sampling, answered
from infer.engines.reading import Reading, end_ids
from infer.engines.room import check_fits, free_memory
from infer.gpus import gpus
from mlbench_data.adapter import Adapter
from mlbench_data.bad_input import BadInput, JobFailed
from mlbench_data.models import Model, load_tokenizer
from mlbench_data.processes import end_with_parent

WAITING = 4  # times as many candidates are queued as vLLM decodes at a time: its scheduler stays full
CPU_BLOCK = 32  # tokens, the least of its kernels; candidates share whole blocks of a prompt only
METHODS: dict[str, Any] = {"fp8": "fp8_per_tensor", "nf4": "bitsandbytes"}
"""vLLM's names for weights that it quantizes as it loads them. Its int8 is for mixtures of experts only."""


@dataclass(frozen=True)
class VllmSettings:
    """How the engine is spread and what it is prepared for. `most_rank` is 0 without adapters; `limits` are
    further arguments of vLLM's own.
    """

    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    seed: int = 0
    adapters: int = 0
    most_rank: int = 0
    trust_remote_code: bool = False
    quantization: str = "none"
    limits: dict[str, Any] = field(default_factory=dict)


@dataclass
class _Row:
    """A row on its way: the tokens of its candidates, these as they end, and what its prompt took."""

    index: int
    prompt_tokens: int
    tokens: dict[int, list[int]] = field(default_factory=dict)
    completions: dict[int, Completion] = field(default_factory=dict)
    computed_tokens: int = 0


class VllmEngine:
    """A vLLM engine in this process. Requires the package `vllm`, or `vllm-cpu` where there is no GPU."""

    name = "vllm"

    def __init__(self, model: Model, settings: VllmSettings) -> None:
        """Loads the weights. Raises BadInput if vLLM is not installed or cannot take the model."""
        self.tokenizer = load_tokenizer(model)
        self.end_ids = end_ids(self.tokenizer, _generation(model, settings))
        self.engine = _load(model, settings).llm_engine
        self.ahead = WAITING * self.engine.vllm_config.scheduler_config.max_num_seqs
        self.numbers: dict[str, int] = {}
        self.adapter: Adapter | None = None

    def use(self, adapter: Adapter | None) -> None:
        """The adapter goes with every following request; vLLM holds several on one base."""
        self.adapter = adapter

    def close(self) -> None:
        """Ends vLLM's own processes, for which a process that was spawned by python's would wait."""
        self.engine.engine_core.shutdown()

    def sample(
        self, requests: list[Request], done: Collection[int], sampling: Sampling
    ) -> Iterator[list[Answer]]:
        """Rows of one README follow each other into a queue that never runs dry, and come as they end."""
        waiting = iter(by_readme(requests, done))
        going: dict[str, _Row] = {}
        reading = Reading(self.tokenizer, self.end_ids, sampling.stop)
        drawn = sampling.n if sampling.temperature > 0 else 1  # greedy candidates are one and the same
        while True:
            while len(going) < self.ahead and (index := next(waiting, None)) is not None:
                going |= self._queue(index, requests[index], drawn, sampling, reading)
            if not going:
                return
            rows = []
            for output in self._step():
                if self._take(output, going[output.request_id], reading):
                    row = going.pop(output.request_id)
                    if len(row.completions) == drawn:
                        rows.append(_answer(row, sampling.n // drawn))
            if rows:
                yield rows

    def _step(self) -> list[Any]:
        """What every running candidate has written by now. Raises JobFailed if vLLM's process has died."""
        from vllm.v1.engine.exceptions import EngineDeadError

        try:
            return self.engine.step()
        except EngineDeadError as error:
            raise JobFailed(
                "vLLM has died, and what it printed above says why; finished rows are kept: run the same "
                "command again"
            ) from error

    def _queue(
        self, index: int, request: Request, drawn: int, sampling: Sampling, reading: Reading
    ) -> dict[str, _Row]:
        """Hands a row's candidates to the scheduler, one request each, so that each can be ended by itself;
        all of them read the blocks that the first one computes.
        """
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        token_ids = request.token_ids
        row = _Row(index, len(token_ids))
        found = {}
        for candidate in range(drawn):
            name = f"{index}/{candidate}"
            parameters = SamplingParams(
                temperature=sampling.temperature,
                top_p=sampling.top_p,
                max_tokens=sampling.max_new_tokens,
                seed=request.seed + candidate,
                stop_token_ids=sorted(reading.end_ids),
                detokenize=False,
                output_kind=RequestOutputKind.DELTA,
            )
            prompt = {"prompt_token_ids": token_ids}
            self.engine.add_request(name, prompt, parameters, lora_request=self._lora())
            found[name] = row
        return found

    def _take(self, output: Any, row: _Row, reading: Reading) -> bool:
        """Notes a candidate's new tokens, and whether it has ended; those after its end do not count."""
        [made] = output.outputs
        candidate = int(output.request_id.rpartition("/")[2])
        tokens = row.tokens.setdefault(candidate, [])
        ended = False
        for token in made.token_ids:
            tokens.append(token)
            if ended := reading.has_ended(tokens):
                break
        if not output.finished and not ended:
            return False
        if not output.finished:
            self.engine.abort_request([output.request_id])
        row.completions[candidate] = reading.completion(row.tokens.pop(candidate))
        row.computed_tokens += row.prompt_tokens - (output.num_cached_tokens or 0)
        return True

    def _lora(self) -> Any:
        from vllm.lora.request import LoRARequest

        if self.adapter is None:
            return None
        number = self.numbers.setdefault(self.adapter.sha256, len(self.numbers) + 1)
        return LoRARequest(f"adapter-{number}", number, str(self.adapter.folder))


def by_readme(requests: list[Request], done: Collection[int]) -> list[int]:
    """Which requests to sample: those of one README side by side, the longest README first."""
    left = [index for index in range(len(requests)) if index not in done]
    return sorted(left, key=lambda index: (-requests[index].shared, requests[index].readme, index))


def _answer(row: _Row, copies: int) -> Answer:
    completions = [row.completions[candidate] for candidate in sorted(row.completions)]
    return answered(row.index, completions * copies, row.prompt_tokens, row.computed_tokens)


def _generation(model: Model, settings: VllmSettings) -> Any:
    """The model's generation settings as transformers would load them. Raises BadInput."""
    from transformers import AutoConfig, GenerationConfig

    asked: dict[str, Any] = {"revision": model.revision}
    try:
        return GenerationConfig.from_pretrained(model.location, **asked)
    except OSError:  # it has none of its own
        pass
    try:
        trusted = settings.trust_remote_code
        config = AutoConfig.from_pretrained(model.location, trust_remote_code=trusted, **asked)
    except (OSError, ValueError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise BadInput(f"{model.location}: no configuration could be loaded ({reason})") from error
    return GenerationConfig.from_model_config(config)


def _load(model: Model, settings: VllmSettings) -> Any:
    on_gpu = gpus() > 0
    devices = settings.tensor_parallel * settings.pipeline_parallel
    there = gpus() or len(os.sched_getaffinity(0))
    if devices > there:
        what = "GPUs" if on_gpu else "cores"
        raise BadInput(f"tensor_parallel × pipeline_parallel is {devices} and {there} {what} are there")
    if settings.pipeline_parallel > 1 and not on_gpu:
        raise BadInput("pipeline_parallel is for GPUs: vLLM's CPU build fails with it; use tensor_parallel")
    if not on_gpu:
        check_fits(model, 4, free_memory())
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
    # A forked engine inherits our threads, and CUDA if anything has touched it. On a CPU vLLM always spawns.
    os.environ.setdefault("VLLM_WORKER_MULTIPROC_METHOD", "spawn")
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "4")  # GiB
    os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", bound_threads(devices))
    try:
        from vllm import LLM
    except ImportError as error:
        raise BadInput(
            f"engine vllm: not installed ({error}); pip install vllm, or --engine transformers"
        ) from error
    on_cpu: dict[str, Any] = {
        "dtype": "float32",
        "enforce_eager": True,
        "block_size": CPU_BLOCK,
        # A seeded request kills the CPU engine once its prompt is read in chunks.
        "enable_chunked_prefill": False,
        "max_num_batched_tokens": model.context,
    }
    os.register_at_fork(after_in_child=end_with_parent)  # vLLM's engine would outlive us, and keep its GPU
    try:
        return LLM(
            model=model.location,
            revision=model.revision,
            skip_tokenizer_init=True,  # token ids come and go: vLLM's choice of a tokenizer can be wrong
            max_model_len=model.context,
            tensor_parallel_size=settings.tensor_parallel,
            pipeline_parallel_size=settings.pipeline_parallel,
            enable_prefix_caching=True,
            enable_lora=settings.adapters > 0,
            max_loras=max(1, settings.adapters),
            max_lora_rank=rank_for(settings.most_rank),
            generation_config="vllm",
            seed=settings.seed,
            trust_remote_code=settings.trust_remote_code,
            quantization=METHODS.get(settings.quantization),
            **settings.limits,
            **({"dtype": "bfloat16"} if on_gpu else on_cpu),
        )
    except (OSError, ValueError, RuntimeError) as error:
        reason = " ".join(str(error).split("[type=")[0].split())[:300]
        raise BadInput(
            f"{model.location}: vLLM cannot load it ({reason}); see also what it printed"
        ) from error


def bound_threads(workers: int) -> str:
    """All of this process's cores, shared out to vLLM's workers on a CPU; of itself it leaves some idle."""
    cores = sorted(os.sched_getaffinity(0))
    bounds = [len(cores) * worker // workers for worker in range(workers + 1)]
    parts = [cores[start:end] for start, end in pairwise(bounds)]
    return "|".join(",".join(map(str, part)) for part in parts)


def rank_for(most: int) -> int:
    """The smallest rank that vLLM has kernels for and that holds the adapters."""
    ranks = (8, 16, 32, 64, 128, 256, 320, 512)
    found = next((rank for rank in ranks if rank >= most), None)
    if found is None:
        raise BadInput(f"an adapter has rank {most}; vLLM takes at most {ranks[-1]}")
    return found
