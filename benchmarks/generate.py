"""Sampling rows that share READMEs against the reference's way: same engine, model, rows and candidates.

python benchmarks/generate.py
"""

import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import torch

from benchmarks.bm25 import readme_pages
from benchmarks.measuring import print_result, print_table
from benchmarks.prepare import PrepareBenchmarkConfig, make_benchmark
from benchmarks.reference.generate import (
    generated_one_by_one,
    greedy_texts,
    instruction_first,
    shuffled,
)
from benchmarks.sft import apart, small_llama
from infer.engines.interface import Request, Sampling, Usage, requests_of
from mlbench_data.bad_input import BadInput, JobFailed
from mlbench_data.cli import run_script
from mlbench_data.files import PROJECT_ROOT
from mlbench_data.models import load_tokenizer, resolve_model
from mlbench_data.prompts import PromptBuilder
from mlbench_data.rows import Row, read_rows
from mlbench_data.sources import default_benchmark
from mlbench_data.template import read_template

CANDIDATES = 5


@dataclass(frozen=True)
class GenerateBenchmarkConfig:
    """What is sampled, and how often."""

    model: str = "smollm2-135m"
    """Which model samples in all cases."""
    readmes: str = "../shared/data/readmes"
    """Folder of README pages as REPOSITORY/README.md."""
    rows: str = "../shared/data/mlbench/rows.jsonl"
    """Rows whose instructions are asked."""
    repositories: int = 2
    """READMEs of task 1: those of the repositories with most rows."""
    each: int = 12
    """Rows of each of them."""
    tokens: int = 24
    """Tokens of each candidate of task 1."""
    repeats: int = 1
    """How often each side is timed, in turn."""
    adapter: str = "runs/demo/adapters/id"
    """The adapter that both engines are compared with; make demo leaves it."""
    many: int = 10_000
    """Rows of the run whose memory is watched; 0 leaves it out."""
    quick: bool = False
    """The transformers engine only, in task 3."""


@dataclass(frozen=True)
class Sampled:
    """One side's run: rows and generated tokens a second, prompt tokens computed, share of the machine."""

    rows_per_second: float
    tokens_per_second: float
    computed_tokens: int
    machine_share: float


def main(config: GenerateBenchmarkConfig) -> int:
    """Sampling rows that share READMEs against the reference's way."""
    cases: dict[str, list[tuple[Sampled, Sampled]]] = {}
    whole, unique = ([], 0) if config.quick else readme_requests(config)
    segments = segment_requests(config, 24)
    for _ in range(config.repeats):
        if whole:
            note(cases, "vllm, task 1", vllm_pair(config, whole))
            note(cases, "transformers, task 1", transformers_pair(config, whole, 2, config.tokens))
        note(cases, "transformers, task 3", transformers_pair(config, segments, 3, 64))
    same = greedy_agree(config, segments[:6])
    print_table(
        ("case", "rows/s ours", "reference", "ratio", "tokens/s, ratio", "computed ours", "reference ",
         "machine ours", "reference  "),
        [line_of(name, pairs) for name, pairs in cases.items()],
    )  # fmt: skip
    print(f"the transformers engine's greedy texts are those of the library's own generate: {same}")
    more: dict[str, Any] = {}
    if whole:
        computed = cases["vllm, task 1"][0][0].computed_tokens
        more["computed_to_unique"] = round(computed / unique, 3)
        print(f"vllm, task 1: {computed:,} prompt tokens computed, {unique:,} are unique")
        more |= engines_agree(config)
    if config.many and not config.quick:
        more["growth_mib"] = memory_growth(config)
    main_case = cases["transformers, task 3" if config.quick else "vllm, task 1"]
    ratios = {name: round(statistics.median(map(ratio, pairs)), 2) for name, pairs in cases.items()}
    print_result("generate", [ratio(pair) for pair in main_case], same_answer=same, cases=ratios, **more)
    return 0 if same else 1


def note(cases: dict[str, list[tuple[Sampled, Sampled]]], name: str, pair: tuple[Sampled, Sampled]) -> None:
    """Keeps a pair of runs, and tells it as it comes."""
    cases.setdefault(name, []).append(pair)
    print(f"{name}: ours {pair[0]}, reference {pair[1]}", file=sys.stderr, flush=True)


def ratio(pair: tuple[Sampled, Sampled]) -> float:
    """How many times as many rows a second."""
    return pair[0].rows_per_second / pair[1].rows_per_second


def line_of(name: str, pairs: list[tuple[Sampled, Sampled]]) -> list[Any]:
    """One line of the table: medians over the repeats."""
    ours, reference = ([pair[side] for pair in pairs] for side in (0, 1))

    def middle(runs: list[Sampled], field: str) -> float:
        return statistics.median(getattr(run, field) for run in runs)

    tokens = middle(ours, "tokens_per_second") / middle(reference, "tokens_per_second")
    return [
        name,
        middle(ours, "rows_per_second"),
        middle(reference, "rows_per_second"),
        statistics.median(map(ratio, pairs)),
        tokens,
        ours[0].computed_tokens,
        reference[0].computed_tokens,
        f"{middle(ours, 'machine_share'):.0%}",
        f"{middle(reference, 'machine_share'):.0%}",
    ]


def readme_requests(config: GenerateBenchmarkConfig) -> tuple[list[Request], int]:
    """Task 1's rows, and the tokens of all prompts if each README counts once."""
    pages = readme_pages(Path(config.readmes))
    rows = [row for row in read_rows(config.rows) if row.repository in pages]
    by_repository: dict[str, list[Row]] = {}
    for row in rows:
        by_repository.setdefault(row.repository, []).append(row)
    largest = sorted(by_repository, key=lambda name: -len(by_repository[name]))[: config.repositories]
    drawn = [row for name in largest for row in by_repository[name][: config.each]]
    if not drawn:
        raise BadInput(f"{config.rows}: no row of {', '.join(sorted(pages))}")
    builder = builder_of(config, 1, config.tokens)
    requests = requests_of([builder.prompt(row, pages[row.repository]) for row in drawn], 0)
    once = {request.readme: request.shared for request in requests}
    return requests, sum(once.values()) + sum(len(one.prompt) - one.shared for one in requests)


def segment_requests(config: GenerateBenchmarkConfig, count: int) -> list[Request]:
    """Task 3's rows of MiniBench."""
    mini = default_benchmark()
    builder = builder_of(config, 3, 64)
    return requests_of(builder.prompts(mini.rows("full")[:count], mini, "full"), 0)


def builder_of(config: GenerateBenchmarkConfig, task: Any, tokens: int) -> PromptBuilder:
    """Prompts in the project's own template."""
    model = resolve_model(config.model)
    return PromptBuilder(load_tokenizer(model), model, read_template(None), task, tokens)


def vllm_pair(config: GenerateBenchmarkConfig, ours: list[Request]) -> tuple[Sampled, Sampled]:
    """Ours, and the same engine with the instruction first and the rows in no order."""
    builder = builder_of(config, 1, config.tokens)
    pages = readme_pages(Path(config.readmes))
    theirs = [
        instruction_first(
            request, cut_readme(builder, request, pages[request.prompt.row.repository]), builder
        )
        for request in ours
    ]
    sampling = Sampling(CANDIDATES, 0.8, 0.95, config.tokens, 0)
    return (
        apart(with_vllm, config.model, ours, sampling),
        apart(with_vllm, config.model, shuffled(theirs, 0), sampling),
    )


def cut_readme(builder: PromptBuilder, request: Request, readme: str) -> str:
    """The README as far as our prompt holds it, so that both read the same."""
    cut = request.prompt.cut
    if cut.kept == cut.readme:
        return readme
    encoded = builder.tokenizer(readme, return_offsets_mapping=True).offset_mapping
    return readme[: encoded[min(cut.kept, len(encoded) - 1)][0]]


def with_vllm(model: str, requests: list[Request], sampling: Sampling) -> Sampled:
    """Samples with the vLLM engine, its loading not counted."""
    from infer.engines.vllm_engine import VllmEngine, VllmSettings

    engine = VllmEngine(resolve_model(model), VllmSettings())
    engine.use(None)
    sampled = timed(lambda: list(engine.sample(requests, (), sampling)), len(requests))
    engine.close()
    return sampled


def transformers_pair(
    config: GenerateBenchmarkConfig, requests: list[Request], reference_rows: int, tokens: int
) -> tuple[Sampled, Sampled]:
    """Ours on all rows, and the reference on some of them: its speed does not depend on their number."""
    some = requests[:: max(1, len(requests) // reference_rows)][:reference_rows]
    sampling = Sampling(CANDIDATES, 0.8, 0.95, tokens, 0)
    return (
        apart(with_transformers, config.model, requests, sampling),
        apart(one_by_one, config.model, some, sampling),
    )


def with_transformers(model: str, requests: list[Request], sampling: Sampling) -> Sampled:
    """Samples with the transformers engine, its loading not counted."""
    from infer.engines.transformers_engine import TransformersEngine

    engine = TransformersEngine(resolve_model(model), 32768, "none", False)
    engine.use(None)
    return timed(lambda: list(engine.sample(requests, (), sampling)), len(requests))


def one_by_one(model: str, requests: list[Request], sampling: Sampling) -> Sampled:
    """Samples as the reference does; loading the weights takes half a second of it."""
    settings = {
        "do_sample": True,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "max_new_tokens": sampling.max_new_tokens,
    }
    prompts = sum(len(request.prompt) for request in requests) * sampling.n
    started, used = time.perf_counter(), cpu_seconds()
    tokens = generated_one_by_one(resolve_model(model), requests, sampling.n, settings)
    seconds = time.perf_counter() - started
    share = (cpu_seconds() - used) / seconds / (os.cpu_count() or 1)
    return Sampled(len(requests) / seconds, tokens / seconds, prompts, share)


def timed(sample: Callable[[], list[Any]], rows: int) -> Sampled:
    """Runs an engine's sampling to its end."""
    started, used = time.perf_counter(), cpu_seconds()
    answers = [answer for some in sample() for answer in some]
    seconds = time.perf_counter() - started
    usage = sum((answer.usage for answer in answers), Usage())
    share = (cpu_seconds() - used) / seconds / (os.cpu_count() or 1)
    return Sampled(rows / seconds, usage.generated_tokens / seconds, usage.computed_tokens, share)


def cpu_seconds() -> float:
    """Processor time of this process and its children so far."""
    here = psutil.Process()
    times = [process.cpu_times() for process in [here, *here.children(recursive=True)]]
    return sum(item.user + item.system for item in times)


def greedy_agree(config: GenerateBenchmarkConfig, requests: list[Request]) -> bool:
    """Whether our engine's greedy texts are those of the library's own generate, as far as ours go: ours end
    with a closed code block.
    """
    from infer.engines.transformers_engine import TransformersEngine

    model = resolve_model(config.model)
    engine = TransformersEngine(model, 32768, "none", False)
    engine.use(None)
    with torch.inference_mode():
        ours = engine.completions(requests, Sampling(1, 0, 1, 32, 0))
    expected = greedy_texts(model, requests, 32)
    return all(text.startswith(one.text) for [one], text in zip(ours, expected, strict=True))


def engines_agree(config: GenerateBenchmarkConfig) -> dict[str, Any]:
    """How many of 64 rows have one greedy text through vLLM and through transformers, with an adapter."""
    if not Path(config.adapter).is_dir():
        print(
            f"{config.adapter}: no adapter there, so vLLM and transformers were not compared; make demo first"
        )
        return {}
    with tempfile.TemporaryDirectory() as folder:
        texts = {name: greedy_with(config, name, Path(folder)) for name in ("vllm", "transformers")}
    pairs = list(zip(texts["vllm"], texts["transformers"], strict=True))
    same = sum(one == other for one, other in pairs)
    print(f"vllm and transformers give one text on {same} of {len(pairs)} rows at temperature 0")
    for one, other in pairs:
        if one != other:
            print(f"  vllm:         {one!r}\n  transformers: {other!r}")
    return {"engines_agree": same, "engines_asked": len(pairs)}


def greedy_with(config: GenerateBenchmarkConfig, engine: str, folder: Path) -> list[str]:
    """Greedy texts of 64 rows by infer/generate.py."""
    out = folder / f"{engine}.jsonl"
    asked = ["--split", "id_train", "--limit", "64", "--task", "3", "--max_new_tokens", "96", "--n", "1"]
    settings = ["--temperature", "0", "--model", config.model, "--adapter", config.adapter]
    command = [sys.executable, "infer/generate.py", *asked, *settings, "--engine", engine, "--out", str(out)]
    subprocess.run(command, cwd=PROJECT_ROOT, check=True, stdout=subprocess.DEVNULL)
    return [json.loads(line)["raw"][0] for line in out.read_text(encoding="utf-8").splitlines()]


def memory_growth(config: GenerateBenchmarkConfig) -> float:
    """MiB that infer/generate.py holds more at the end of many rows than after a fifth of them; a tiny
    random Llama samples, so that what the script itself keeps is what shows.
    """
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        rows = PrepareBenchmarkConfig(count=config.many, readmes=config.readmes, rows=config.rows)
        benchmark = make_benchmark(rows, place / "benchmark")
        tiny = small_llama(resolve_model(config.model), place / "tiny", width=64, layers=2)
        out = place / "candidates.jsonl"
        asked = ["--benchmark", str(benchmark.folder), "--split", "id_train", "--task", "1", "--n", "1"]
        settings = ["--model", tiny.location, "--max_new_tokens", "2", "--engine", "transformers"]
        command = [sys.executable, "infer/generate.py", *asked, *settings, "--out", str(out)]
        process = subprocess.Popen(command, cwd=PROJECT_ROOT, stdout=subprocess.DEVNULL)
        held: list[tuple[float, float]] = []
        while process.poll() is None:
            done = out.read_bytes().count(b"\n") / config.many if out.exists() else 0.0
            with suppress(psutil.Error):
                held.append((done, psutil.Process(process.pid).memory_info().rss / 2**20))
            time.sleep(0.5)
        if process.returncode != 0:
            raise JobFailed(f"{' '.join(command)}: stopped with exit code {process.returncode}")
    early = max((memory for done, memory in held if 0.1 < done <= 0.3), default=math.nan)
    late = max((memory for done, memory in held if done > 0.3), default=math.nan)
    print(f"{config.many:,} rows: {early:.0f} MiB after a tenth to a third of them, at most {late:.0f} later")
    return round(late - early, 1)


if __name__ == "__main__":
    run_script(GenerateBenchmarkConfig, main)
