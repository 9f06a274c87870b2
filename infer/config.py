"""What infer/generate.py is told."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from infer.engines.interface import Sampling
from mlbench_data.bad_input import BadInput
from mlbench_data.budget import Policy
from mlbench_data.quantization import Quantization

PLAIN = "none"  # in place of an adapter: the model alone


@dataclass(frozen=True)
class GenerateConfig:
    """What to sample, from which model, and where to."""

    task: Literal[1, 2, 3] = 3
    """What the model reads: 1 raw README, 2 BM25 window, 3 oracle segment."""
    benchmark: str = "mini"
    """mini (embedded) or a folder made by mlbench_data/build.py."""
    split: Literal["full", "quarter", "id_train", "ood_train"] = "full"
    """The rows to answer."""
    limit: int | None = None
    """Only the first so many rows: a quick look."""
    rows: list[str] | None = None
    """Only these rows, as GITHUB_ID/ID, or ID where no other row has it: a quick look."""
    model: str = "smollm2-135m"
    """A name of configs/models, a folder with weights, or a hub id; openai: the server's name for it."""
    adapter: list[str] | None = None
    """Adapters of train/sft.py, sampled one after another; none is the model alone."""
    engine: Literal["auto", "vllm", "transformers", "openai"] = "auto"
    """auto is vllm on a GPU and transformers on a CPU, or openai if base_url is given."""
    n: int = 5
    """Candidates a row; the paper's Pass@5 needs five."""
    temperature: float = 0.8
    """Spread of the candidates; the paper's 0.1 gives five nearly equal ones. 0 is greedy."""
    top_p: float = 0.95
    """Share of the probability that tokens are drawn from."""
    max_new_tokens: int = 256
    """Longest answer, in tokens; kept free in the context."""
    stop: list[str] = field(default_factory=list)
    """Texts that end a candidate and are not part of it. A closed code block always does."""
    budget: Policy = "readme"
    """What goes if a prompt is too long: readme, from the README's end; paper, whatever comes last."""
    windows: list[int] = field(default_factory=lambda: [10, 1, 1000])
    """Task 2: sentences in a window, sentences from one window's start to the next, most sentences read."""
    seed: int = 0
    """Seeds every row's candidates."""
    prompt_template: str | None = None
    """A prompt template file; the project's own if not given."""
    shard: str = "0/1"
    """I/N: the I-th of N parts of the rows, counted from 0; infer/join.py joins them."""
    data_parallel: int = 1
    """Copies of the model on this machine, each with its part of the GPUs (or cores) and of the rows."""
    tensor_parallel: int = 1
    """Engine vllm: GPUs that share every layer of the model."""
    pipeline_parallel: int = 1
    """Engine vllm: GPUs that share the model's layers among them."""
    gpu_memory_utilization: float | None = None
    """Engine vllm: its share of each GPU's memory, from 0 to 1; vLLM's own choice if not given."""
    max_num_seqs: int | None = None
    """Engine vllm: most candidates decoded at a time; vLLM's own choice if not given."""
    kv_cache_dtype: Literal["auto", "fp8"] = "auto"
    """Engine vllm: fp8 halves the cache and rounds it; auto is the model's own dtype."""
    quantization: Quantization | Literal["fp8"] = "none"
    """Weights made 4 or 8 bits as they are loaded: nf4 and int8 by engine transformers, fp8 by vllm, and nf4
    too where it has bitsandbytes. Weights that were saved in few bits need nothing said."""
    batch_tokens: int = 32768
    """Tokens held in the transformers engine's cache at a time: lower it if memory runs out."""
    base_url: str | None = None
    """Engine openai: the server's address, such as http://localhost:8000/v1. The key is OPENAI_API_KEY."""
    api: Literal["chat", "completions"] = "chat"
    """Engine openai: chat sends messages, completions the very tokens of the other engines."""
    tokenizer: str | None = None
    """Engine openai: the model whose tokens the budget counts, if --model is only the server's name."""
    concurrency: int = 8
    """Engine openai: rows asked for at the same time."""
    timeout: float = 120.0
    """Engine openai: seconds until an unanswered call counts as failed."""
    retries: int = 5
    """Engine openai: further tries after 429, 5xx, timeouts, lost connections and broken replies."""
    prices: list[float] | None = None
    """Engine openai: dollars for a million prompt tokens and a million generated ones, for the cost."""
    out: str | None = None
    """The candidates file, with {adapter} where there are several adapters;
    runs/candidates/MODEL[-ADAPTER][-ENGINE]-taskT-SPLIT.jsonl if not given."""
    dry_run: bool = False
    """Show the first prompt, the tokens and what would be cut; load no model, write nothing."""
    trust_remote_code: bool = False
    """Allow the model's own python code to run."""


def check_config(config: GenerateConfig) -> None:
    """Raises BadInput for values that no run could use."""
    checks = {
        "n": config.n >= 1,
        "temperature": config.temperature >= 0,
        "top_p": 0 < config.top_p <= 1,
        "max_new_tokens": config.max_new_tokens >= 1,
        "batch_tokens": config.batch_tokens >= 1,
        "limit": config.limit is None or config.limit >= 1,
        "rows": config.rows is None or len(config.rows) > 0,
        "stop": all(config.stop),
        "data_parallel": config.data_parallel >= 1,
        "tensor_parallel": config.tensor_parallel >= 1,
        "pipeline_parallel": config.pipeline_parallel >= 1,
        "gpu_memory_utilization": config.gpu_memory_utilization is None
        or 0 < config.gpu_memory_utilization <= 1,
        "max_num_seqs": config.max_num_seqs is None or config.max_num_seqs >= 1,
        "concurrency": config.concurrency >= 1,
        "timeout": config.timeout > 0,
        "retries": config.retries >= 0,
        "prices": config.prices is None or (len(config.prices) == 2 and min(config.prices) >= 0),
    }
    for name, right in checks.items():
        if not right:
            raise BadInput(f"{name} is {getattr(config, name)}; see --help for its range")
    several = config.adapter is not None and len(config.adapter) > 1
    if several and config.out is not None and "{adapter}" not in config.out:
        raise BadInput(
            f"out is {config.out!r} for {len(config.adapter or [])} adapters; write {{adapter}} in it"
        )
    files: dict[Path, str] = {}
    for name in config.adapter or []:
        other = files.setdefault(out_path(config, None if name == PLAIN else name), name)
        if other != name:
            raise BadInput(f"adapters {other} and {name} would go to one file; sample them in two runs")
    if config.engine not in ("auto", *engines_for(config)):
        able = " or ".join(engines_for(config))
        raise BadInput(f"quantization is {config.quantization} and engine {config.engine}; use {able}")
    if config.engine not in ("auto", "vllm"):
        for name, value in vllm_limits(config).items():
            raise BadInput(f"{name} is {value} and engine {config.engine}; it is for engine vllm")
    if config.engine == "openai" and config.base_url is None:
        raise BadInput("engine openai needs --base_url, such as http://localhost:8000/v1")
    if config.base_url is not None and config.engine not in ("auto", "openai"):
        raise BadInput(f"base_url is given and engine is {config.engine}; leave one of them out")
    if config.base_url is not None:
        _check_base_url(config.base_url)


def sampling_of(config: GenerateConfig) -> Sampling:
    """How candidates are drawn."""
    return Sampling(
        config.n, config.temperature, config.top_p, config.max_new_tokens, config.seed, tuple(config.stop)
    )


def out_path(config: GenerateConfig, adapter: str | None) -> Path:
    """Where the candidates of one adapter go."""
    name = Path(adapter).resolve().name if adapter else None
    if config.out is not None:
        return Path(config.out.replace("{adapter}", name or PLAIN))
    engine = None if config.engine == "auto" else config.engine
    parts: list[Any] = [Path(config.model).name, name, engine, f"task{config.task}", config.split]
    parts += ["some" if config.rows else None, f"limit{config.limit}" if config.limit else None]
    parts += [None if config.shard == "0/1" else f"shard{config.shard.replace('/', 'of')}"]
    return Path("runs/candidates") / f"{'-'.join(part for part in parts if part)}.jsonl"


def engines_for(config: GenerateConfig) -> tuple[str, ...]:
    """The engines that can make the weights as asked; `auto` takes the first of them if it is not `none`."""
    makers = {
        "none": ("vllm", "transformers", "openai"),
        "nf4": ("transformers", "vllm"),
        "int8": ("transformers",),
        "fp8": ("vllm",),
    }
    return makers[config.quantization]


def vllm_limits(config: GenerateConfig) -> dict[str, Any]:
    """What vLLM is told about memory, in its own words; it decides what is not said."""
    told = {
        "gpu_memory_utilization": config.gpu_memory_utilization,
        "max_num_seqs": config.max_num_seqs,
        "kv_cache_dtype": None if config.kv_cache_dtype == "auto" else config.kv_cache_dtype,
    }
    return {name: value for name, value in told.items() if value is not None}


def _check_base_url(base_url: str) -> None:
    """Raises BadInput for an address that is none, or that holds a secret: it is in the manifest."""
    try:
        parts = urlsplit(base_url)
        whole = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # half an IPv6 address, a port that is none
        whole = False
    if not whole:
        raise BadInput(f"base_url is {base_url!r}; expected an address such as http://localhost:8000/v1")
    if parts.username or parts.password or parts.query:
        raise BadInput("base_url holds a user, a password or a query; set OPENAI_API_KEY instead")
