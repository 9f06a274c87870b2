"""Builds every prompt of a split, says what the budget cuts, and writes the tokens if asked.

python mlbench_data/prepare.py --benchmark runs/mlbench --split id_train --model codellama-7b-instruct
"""

import gc
import hashlib
import itertools
import multiprocessing
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from mlbench_data.bad_input import BadInput, JobFailed
from mlbench_data.benchmark import Benchmark, Split
from mlbench_data.budget import Cut, Policy
from mlbench_data.cli import resolved, run_script, versions
from mlbench_data.files import replacing_folder, sha256_of, sha256_of_file, write_json
from mlbench_data.models import load_tokenizer, resolve_model
from mlbench_data.processes import end_with_parent
from mlbench_data.progress import progress
from mlbench_data.prompts import TASKS, PromptBuilder, TaskNumber, readme_for
from mlbench_data.retrieval import windows_of
from mlbench_data.rows import Row, RowKey
from mlbench_data.sources import benchmark_named
from mlbench_data.template import read_template

TOKEN_BYTES = 4
CHUNK = 256  # rows that a worker does at a time


@dataclass(frozen=True)
class PrepareConfig:
    """Which prompts to build, for which model, and where to."""

    benchmark: str = "mini"
    """mini (embedded) or a folder made by mlbench_data/build.py."""
    split: Split = "full"
    """The rows to build prompts for."""
    tasks: list[TaskNumber] = field(default_factory=lambda: [1, 2, 3])
    """1 raw README, 2 BM25 window, 3 oracle segment."""
    model: str = "smollm2-135m"
    """A name of configs/models, a folder with weights, or a hub id: its tokenizer, format and context."""
    prompt_template: str | None = None
    """A prompt template file; the project's own if not given."""
    answer_tokens: int = 256
    """Tokens kept free for the answer."""
    budget: Policy = "readme"
    """What goes if a prompt is too long: readme, from the README's end; paper, whatever comes last."""
    windows: list[int] = field(default_factory=lambda: [10, 1, 1000])
    """Task 2: sentences in a window, sentences from one window's start to the next, most sentences read."""
    workers: int | None = None
    """Processes; one for each core if not given. Their number changes no byte."""
    out: str | None = None
    """Folder for the tokens: one parquet a task, starts.parquet with what prompts share, and a manifest."""


@dataclass(frozen=True)
class Prepared:
    """A prompt between processes: its start by number within a chunk, then its own int32 tokens."""

    key: RowKey
    start: int
    start_tokens: int
    rest: bytes
    cut: Cut


@dataclass(frozen=True)
class Chunk:
    """Prompts of neighbouring rows for one task, and the starts that they share, as int32 tokens."""

    task: TaskNumber
    starts: list[bytes]
    prompts: list[Prepared]

    def __len__(self) -> int:
        return len(self.prompts)


def main(config: PrepareConfig) -> int:
    """Builds every prompt of a split, says what the budget cuts, and writes the tokens if asked."""
    if config.answer_tokens < 1 or (config.workers is not None and config.workers < 1):
        raise BadInput("answer_tokens and workers must be 1 or more")
    if not config.tasks:
        raise BadInput("tasks is empty; expected one or more of 1, 2 and 3")
    benchmark = benchmark_named(config.benchmark)
    rows = benchmark.count(config.split)
    tasks = list(dict.fromkeys(config.tasks))
    builder = builder_of(config)
    chunks = prepare(builder, tasks, benchmark, config.split, config.workers or cores())
    counts = {task: Counts() for task in tasks}
    shown = progress(counted(chunks, counts), rows * len(tasks), "preparing")
    if config.out is None:
        deque(shown, maxlen=0)
    else:
        with replacing_folder(config.out, "a folder of prepared prompts", _is_prepared) as folder:
            write_chunks(folder, tasks, shown)
            write_json(folder / "manifest.json", manifest_of(config, benchmark, builder, counts, folder))
    for line in report(counts):
        print(line)
    if config.out is not None:
        print(f"written to {config.out}")
    return 0


def cores() -> int:
    """How many processor cores this process may use."""
    return len(os.sched_getaffinity(0))


def builder_of(config: PrepareConfig) -> PromptBuilder:
    """A builder for all tasks: their prompts differ in what is read only. Raises BadInput."""
    model = resolve_model(config.model)
    tokenizer, template = load_tokenizer(model), read_template(config.prompt_template)
    settings = (config.answer_tokens, config.budget, windows_of(config.windows))
    return PromptBuilder(tokenizer, model, template, config.tasks[0], *settings)


def prepare(
    builder: PromptBuilder, tasks: list[TaskNumber], benchmark: Benchmark, split: Split, workers: int
) -> Iterator[Chunk]:
    """The prompts in the order of the rows, whatever the number of workers: CHUNK rows for each task in turn.

    Rows are read as they are needed and a few chunks are under way at a time, so that memory does not grow
    with the split. Raises BadInput naming a row that cannot fit.
    """

    def work(rows: list[Row]) -> list[Chunk]:
        return [chunk_of(builder, task, rows, benchmark, split) for task in tasks]

    jobs = in_chunks(benchmark.stream(split))
    done = map(work, jobs) if workers == 1 else in_processes(work, jobs, workers)
    return itertools.chain.from_iterable(done)


def in_chunks(rows: Iterator[Row]) -> Iterator[list[Row]]:
    """Neighbouring rows, CHUNK at a time."""
    while chunk := list(itertools.islice(rows, CHUNK)):
        yield chunk


def chunk_of(
    builder: PromptBuilder, task: TaskNumber, rows: list[Row], benchmark: Benchmark, split: Split
) -> Chunk:
    """The prompts of some rows; those of one README hold its tokens once."""
    starts: dict[bytes, int] = {}
    found = []
    for row in rows:
        prompt = builder.prompt(row, readme_for(task, row, benchmark, split, builder.windows))
        start = starts.setdefault(prompt.start.tobytes(), len(starts))
        found.append(Prepared(prompt.row.key, start, prompt.readme_end, prompt.rest.tobytes(), prompt.cut))
    return Chunk(task, list(starts), found)


Work = Callable[[list[Row]], list[Chunk]]


def in_processes(work: Work, jobs: Iterator[list[Row]], workers: int) -> Iterator[list[Chunk]]:
    """`map` over forked processes, results in order: they have the tokenizer without being sent it."""
    global _work
    _work = work
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # its threads do not survive a fork
    gc.freeze()  # what is there now is never collected in a worker, which would copy its pages
    context = multiprocessing.get_context("fork")
    waiting: deque[Future[list[Chunk]]] = deque()
    try:
        with ProcessPoolExecutor(workers, mp_context=context, initializer=end_with_parent) as pool:
            for job in jobs:
                waiting.append(pool.submit(_do, job))
                if len(waiting) > 2 * workers:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
    except BrokenProcessPool as error:
        raise JobFailed("a worker was killed, perhaps for lack of memory; try fewer --workers") from error
    finally:
        gc.unfreeze()


_work: Work | None = None


def _do(rows: list[Row]) -> list[Chunk]:
    assert _work is not None
    return _work(rows)


@dataclass
class Counts:
    """What the budget did to the prompts of one task, in tokens. `computed` counts what rows share once."""

    rows: int = 0
    cut_rows: int = 0
    cut_tokens: int = 0
    most_cut: int = 0
    tokens: int = 0
    computed: int = 0

    def add(self, prompt: Prepared) -> None:
        """Counts one prompt, and of what is computed its own tokens only."""
        cut = prompt.cut.readme - prompt.cut.kept + prompt.cut.lost
        own = len(prompt.rest) // TOKEN_BYTES
        self.rows += 1
        self.cut_rows += cut > 0
        self.cut_tokens += cut
        self.most_cut = max(self.most_cut, cut)
        self.tokens += prompt.start_tokens + own
        self.computed += own


def counted(chunks: Iterable[Chunk], counts: dict[TaskNumber, Counts]) -> Iterator[Chunk]:
    """Passes the chunks on and counts what is in them."""
    longest: dict[tuple[TaskNumber, bytes], int] = {}
    for chunk in chunks:
        keys = [(chunk.task, hashlib.sha256(start).digest()) for start in chunk.starts]
        for prompt in chunk.prompts:
            counts[chunk.task].add(prompt)
            seen = longest.get(keys[prompt.start], 0)
            counts[chunk.task].computed += max(0, prompt.start_tokens - seen)
            longest[keys[prompt.start]] = max(seen, prompt.start_tokens)
        yield chunk


def report(counts: dict[TaskNumber, Counts]) -> Iterator[str]:
    """A line a task: how many rows are cut and by how much. The paper: 45.3% of test READMEs exceed 8k."""
    heads = f"{'task':18}{'rows':>8}{'cut':>8}{'share':>8}{'tokens cut':>12}{'most':>8}"
    yield f"{heads}{'tokens':>13}{'computed':>13}"
    for task, found in counts.items():
        share = f"{100 * found.cut_rows / found.rows:.1f}%"
        mean = f"{found.cut_tokens / found.cut_rows:.0f}" if found.cut_rows else "–"
        yield (
            f"{task} {TASKS[task]:16}{found.rows:8}{found.cut_rows:8}{share:>8}{mean:>12}{found.most_cut:8}"
            f"{found.tokens:13}{found.computed:13}"
        )


STARTS = pa.schema([("tokens", pa.list_(pa.int32()))])
PROMPTS = pa.schema(
    [
        ("github_id", pa.int64()),
        ("id", pa.int64()),
        ("start", pa.int32()),
        ("start_tokens", pa.int32()),
        ("tokens", pa.list_(pa.int32())),
        ("readme", pa.int32()),
        ("kept", pa.int32()),
        ("lost", pa.int32()),
    ]
)


def write_chunks(folder: Path, tasks: list[TaskNumber], chunks: Iterable[Chunk]) -> None:
    """starts.parquet, and taskN.parquet with a line a row: the prompt is the first `start_tokens` tokens of
    line `start` of starts.parquet, and then `tokens`. Memory does not grow with the rows.
    """
    numbers: dict[bytes, int] = {}
    with ExitStack() as stack:
        starts = stack.enter_context(pq.ParquetWriter(folder / "starts.parquet", STARTS))
        files = {
            task: stack.enter_context(pq.ParquetWriter(folder / f"task{task}.parquet", PROMPTS))
            for task in tasks
        }
        for chunk in chunks:
            digests = [hashlib.sha256(start).digest() for start in chunk.starts]
            new = [
                start for start, digest in zip(chunk.starts, digests, strict=True) if digest not in numbers
            ]
            if new:
                starts.write_batch(pa.record_batch([_tokens(new)], schema=STARTS))
            for digest in digests:
                numbers.setdefault(digest, len(numbers))
            files[chunk.task].write_batch(_batch(chunk, [numbers[digest] for digest in digests]))


def _batch(chunk: Chunk, numbers: list[int]) -> pa.RecordBatch:
    prompts = chunk.prompts
    columns = [
        [prompt.key.github_id for prompt in prompts],
        [prompt.key.id for prompt in prompts],
        [numbers[prompt.start] for prompt in prompts],
        [prompt.start_tokens for prompt in prompts],
        _tokens([prompt.rest for prompt in prompts]),
        [prompt.cut.readme for prompt in prompts],
        [prompt.cut.kept for prompt in prompts],
        [prompt.cut.lost for prompt in prompts],
    ]
    return pa.record_batch(
        [pa.array(column, field.type) for column, field in zip(columns, PROMPTS, strict=True)], schema=PROMPTS
    )


def _tokens(parts: list[bytes]) -> pa.Array:
    """int32 tokens as a column of lists."""
    ends = np.cumsum([0, *(len(part) // TOKEN_BYTES for part in parts)])
    values = np.frombuffer(b"".join(parts), dtype=np.int32)
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), pa.array(values, pa.int32()))


def manifest_of(
    config: PrepareConfig,
    benchmark: Benchmark,
    builder: PromptBuilder,
    counts: dict[TaskNumber, Counts],
    folder: Path,
) -> dict[str, Any]:
    """What was prepared, from what, and the hash of every file."""
    settings = {name: value for name, value in resolved(config).items() if name not in ("out", "workers")}
    return {
        "prompts": settings,
        "benchmark_sha256": benchmark.sha256,
        "tokenizer_sha256": sha256_of(builder.tokenizer.backend_tokenizer.to_str()),
        "template_sha256": builder.template.sha256,
        "counts": {str(task): asdict(found) for task, found in counts.items()},
        "files": {path.name: sha256_of_file(path) for path in sorted(folder.glob("*.parquet"))},
        "versions": versions(),
    }


def _is_prepared(folder: Path) -> bool:
    names = {path.name for path in folder.iterdir()}
    ours = {"manifest.json", "starts.parquet"}
    return ours <= names <= ours | {f"task{task}.parquet" for task in TASKS}


if __name__ == "__main__":
    run_script(PrepareConfig, main)
