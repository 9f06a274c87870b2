"""Fine-tuning on rows that share READMEs, against TRL's SFTTrainer: same rows, model, LoRA and precision.

python benchmarks/sft.py
"""

import math
import multiprocessing
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import torch
from transformers import AutoConfig, LlamaConfig, LlamaForCausalLM

from benchmarks.bm25 import readme_pages
from benchmarks.measuring import print_result, print_table
from benchmarks.prepare import numbered
from benchmarks.reference.sft import Learned, Measured, Side, StepsOf, learn, measure
from mlbench_data.bad_input import BadInput
from mlbench_data.cli import run_script
from mlbench_data.models import Model, load_tokenizer, resolve_model
from mlbench_data.processes import end_with_parent
from mlbench_data.prompts import PromptBuilder, TaskNumber
from mlbench_data.rows import Row, read_rows
from mlbench_data.sources import default_benchmark
from mlbench_data.template import read_template
from train.examples import Example, make_example, make_examples
from train.packs import Pack, PackSettings, epoch_packs

ANSWER_TOKENS = 256
TASK1_CONTEXT = 384
"""READMEs are cut to fit, so that TRL's side of the comparison of losses takes minutes a seed here."""


@dataclass(frozen=True)
class Learning:
    """A comparison of losses: each side trains the same rows, and TRL in as many steps as the first side."""

    task: TaskNumber
    rows: int
    kept_out: int
    sides: dict[str, tuple[Side, StepsOf]]


LEARNING = (
    Learning(1, 128, 24, {
        "ours, 8 READMEs a step": ("ours", StepsOf(16, 2, 2)),
        "TRL": ("TRL", StepsOf(16, 2, 2)),
        "ours, 1 README a step": ("ours", StepsOf(16, 16, 16)),
    }),
    Learning(3, 120, 16, {
        "ours": ("ours", StepsOf(8, 8, 2)),
        "ours in groups of 4": ("ours", StepsOf(8, 8, 4)),
        "TRL": ("TRL", StepsOf(8, 8, 2)),
    }),
)  # fmt: skip


@dataclass(frozen=True)
class SftBenchmarkConfig:
    """What is trained on, and how often."""

    model: str = "smollm2-135m"
    """Trained in all cases but that of 8,192 tokens, which a small random Llama with its tokenizer trains."""
    readmes: str = "../shared/data/readmes"
    """Folder of README pages as REPOSITORY/README.md."""
    rows: str = "../shared/data/mlbench/rows.jsonl"
    """Rows whose instructions and answers are drawn."""
    repeats: int = 3
    """How often each side is timed, in turn."""
    seeds: int = 3
    """Runs of each side whose evaluation losses are compared; 0 leaves that out."""
    quick: bool = False
    """One repeat of the case of 2,048 tokens and of task 3, and no comparison of losses."""
    only: Literal["speed", "losses"] | None = None
    """Time without comparing losses, or compare losses alone; both if not given."""
    tasks: list[TaskNumber] = field(default_factory=lambda: [1, 3])
    """Tasks in which losses are compared."""


@dataclass(frozen=True)
class Case:
    """Rows to train on: all of them in one step of ours, the first `peer_rows` in one of TRL's."""

    name: str
    model: Model
    examples: list[Example]
    group_size: int
    batch_size: int
    peer_rows: int

    @property
    def packs(self) -> list[Pack]:
        """One optimizer step of ours."""
        return epoch_packs(self.examples, PackSettings(self.batch_size, self.group_size, 10**6))

    @property
    def token_ratio(self) -> float:
        """How many tokens of separate sequences one of ours stands for."""
        return sum(map(len, self.examples)) / sum(pack.tokens for pack in self.packs)


def main(config: SftBenchmarkConfig) -> int:
    """Fine-tuning on rows that share READMEs, against TRL's SFTTrainer."""
    if config.quick or config.only == "speed":
        config = replace(config, repeats=1 if config.quick else config.repeats, seeds=0)
    if config.only == "losses":
        return compare_losses(config)
    peak = matrix_peak()
    with tempfile.TemporaryDirectory() as folder:
        cases = make_cases(config, Path(folder))
        results = {case.name: times_of(case, config.repeats) for case in cases}
        lines = [line_of(case, results[case.name], peak) for case in cases]
    learned = learned_by(cases[-1].model, config)
    print(f"matrix products on this machine: {peak:.0f} GFLOP/s at best\n")
    print_table(list(lines[0]), [line.values() for line in lines])
    print_learned(learned)
    same = all(first_losses_agree(results[case.name]) for case in cases)
    main_case = results[cases[0].name]
    print_result(
        "sft",
        ratios(main_case),
        same_answer=same,
        cases={case.name: round(statistics.median(ratios(results[case.name])), 2) for case in cases},
        eval_losses=losses_of(learned),
    )
    return 0 if same else 1


def compare_losses(config: SftBenchmarkConfig) -> int:
    """Losses alone. The ratio is that of the tokens which the first task computes; the answers are the same
    if the mean losses of its two sides differ by less than those of the seeds.
    """
    if config.seeds < 1 or not config.tasks:
        raise BadInput(
            f"seeds is {config.seeds}, tasks {config.tasks}; expected a number above 0, and 1 or 3"
        )
    learned = learned_by(resolve_model(config.model), config)
    print_learned(learned)
    ours, *_ = (runs for (task, name), runs in learned.items() if task == config.tasks[0])
    peer = learned[config.tasks[0], "TRL"]
    means = [statistics.mean(run.loss for run in runs) for runs in (ours, peer)]
    noise = max(spread_of([run.loss for run in runs]) for runs in (ours, peer))
    saved = [theirs.tokens / own.tokens for own, theirs in zip(ours, peer, strict=True)]
    same = abs(means[0] - means[1]) <= noise
    print_result("sft", saved, same_answer=same, eval_losses=losses_of(learned))
    return 0


def spread_of(values: list[float]) -> float:
    """From the least to the greatest."""
    return max(values) - min(values)


def make_cases(config: SftBenchmarkConfig, folder: Path) -> list[Case]:
    """Task 1 with READMEs of 2,048 tokens in groups of 16, with 7,680 in groups of 32, and task 3."""
    model = resolve_model(config.model)
    pages = readme_pages(Path(config.readmes))
    rows = [row for row in read_rows(config.rows) if row.repository in pages]
    if not rows:
        raise BadInput(f"{config.rows}: no row of {', '.join(sorted(pages))}")
    mini = default_benchmark()
    oracles = make_examples(mini.rows("id_train")[:56], mini, "id_train", builder_of(model, 3))
    task3 = Case("task 3", model, oracles, 8, 8, 8)
    task1 = Case("task 1, 2,048 tokens", model, one_readme(rows, pages, model, 2048, 16), 16, 16, 2)
    if config.quick:
        return [task1, task3]
    small = small_llama(model, folder)
    long = Case("task 1, 7,680 tokens", small, one_readme(rows, pages, small, 7680, 32), 32, 32, 2)
    return [task1, long, task3]


def builder_of(model: Model, task: TaskNumber) -> PromptBuilder:
    """Prompts in the project's own template."""
    return PromptBuilder(load_tokenizer(model), model, read_template(None), task, ANSWER_TOKENS)


def one_readme(
    rows: list[Row], pages: dict[str, str], model: Model, tokens: int, count: int
) -> list[Example]:
    """`count` rows of the repository with most rows among those with so long a README, cut to `tokens`."""
    builder = builder_of(model, 1)
    encoded = {name: builder.tokenizer(page, return_offsets_mapping=True) for name, page in pages.items()}
    long = [name for name, page in encoded.items() if len(page.input_ids) > tokens]
    name = max(long, key=lambda name: sum(row.repository == name for row in rows))
    readme = pages[name][: encoded[name].offset_mapping[tokens][0]]
    own = [row for row in rows if row.repository == name]
    drawn = [numbered(own[number % len(own)], number) for number in range(count)]
    return [make_example(row, readme, builder) for row in drawn]


def small_llama(model: Model, folder: Path, width: int = 256, layers: int = 8) -> Model:
    """A random Llama that reads the tokens of `model`."""
    vocabulary = AutoConfig.from_pretrained(model.location).vocab_size
    torch.manual_seed(0)
    shape = LlamaConfig(
        hidden_size=width, intermediate_size=3 * width, num_hidden_layers=layers, num_attention_heads=4,
        num_key_value_heads=4, vocab_size=vocabulary, max_position_embeddings=8192, tie_word_embeddings=True,
    )  # fmt: skip
    LlamaForCausalLM(shape).save_pretrained(folder)
    load_tokenizer(model).save_pretrained(folder)
    return Model("small-llama", str(folder), model.format, 8192)


def times_of(case: Case, repeats: int) -> dict[Side, list[Measured]]:
    """Each side's step, in turn, every time in a process of its own; TRL's packing once, to choose."""
    peers = case.examples[: case.peer_rows]
    found: dict[Side, list[Measured]] = {"ours": [], "TRL": [], "TRL packed": []}
    for repeat in range(repeats):
        sides: list[Side] = ["ours", "TRL"] if repeat else ["ours", "TRL", "TRL packed"]
        for side in sides:
            rows = case.examples if side == "ours" else peers
            measured = apart(measure, side, case.model, rows, case.packs, case.peer_rows)
            found[side].append(measured)
            speed = f"{measured.rows_per_second:.4g} rows/s, {measured.memory / 2**20:.0f} MiB"
            print(f"{case.name}, {side}: {speed}, loss {measured.loss:.5f}", file=sys.stderr, flush=True)
    return found


def apart(work: Callable[..., Any], *arguments: Any) -> Any:
    """Runs a function in a fresh process, so that memory and threads are its own."""
    fresh = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=fresh, initializer=end_with_parent) as pool:
        return pool.submit(work, *arguments).result()


Losses = dict[tuple[TaskNumber, str], list[Learned]]


def learned_by(model: Model, config: SftBenchmarkConfig) -> Losses:
    """What each side of each task reaches on rows kept out, seed by seed, in a process of its own."""
    chosen = [learning for learning in LEARNING if learning.task in config.tasks]
    found: Losses = {(learning.task, name): [] for learning in chosen for name in learning.sides}
    for seed in range(config.seeds):
        for learning in chosen:
            training, kept_out = rows_of(learning, model)
            for name, (side, size) in learning.sides.items():
                run = apart(learn, side, model, training, kept_out, seed, size)
                found[learning.task, name].append(run)
                reached = (
                    f"loss {run.loss:.4f} on rows kept out after {run.seconds:.0f} s, {run.tokens} tokens"
                )
                share = "" if run.share is None else f", a README has at most {run.share:.1%} of a step"
                line = f"seed {seed}, task {learning.task}, {name}: {reached}{share}"
                print(line, file=sys.stderr, flush=True)
    return found


def rows_of(learning: Learning, model: Model) -> tuple[list[Example], list[Example]]:
    """Rows to train on and rows kept out: in task 1 as many of each of MiniBench's eight repositories, ID and
    OOD, in task 3 the first ID rows.
    """
    mini = default_benchmark()
    if learning.task == 3:
        rows = mini.rows("id_train")[: learning.rows + learning.kept_out]
        examples = make_examples(rows, mini, "id_train", builder_of(model, 3))
        return examples[: learning.rows], examples[learning.rows :]
    short = replace(model, context=TASK1_CONTEXT)
    builder = replace(builder_of(short, 1), answer_tokens=96)
    training, kept_out = [], []
    for split in ("id_train", "ood_train"):
        rows = mini.rows(split)
        for name in dict.fromkeys(row.repository for row in rows):
            own = [row for row in rows if row.repository == name]
            made = make_examples(own[: (learning.rows + learning.kept_out) // 8], mini, split, builder)
            training += made[: learning.rows // 8]
            kept_out += made[learning.rows // 8 :]
    return training, kept_out


def losses_of(learned: Losses) -> dict[str, list[float]]:
    """The losses of each side, seed by seed."""
    return {
        f"task {task}, {name}": [round(run.loss, 4) for run in runs]
        for (task, name), runs in learned.items()
        if runs
    }


def print_learned(learned: Losses) -> None:
    """Loss, tokens and time of each side, over the seeds."""
    for (task, name), runs in learned.items():
        if runs:
            losses = [run.loss for run in runs]
            seconds = statistics.median(run.seconds for run in runs)
            tokens = statistics.median(run.tokens for run in runs)
            each = ", ".join(f"{loss:.4f}" for loss in losses)
            reached = f"{statistics.mean(losses):.4f} ({each}) after {seconds:.0f} s, {tokens:.0f} tokens"
            print(f"loss on rows kept out, task {task}, {name}: {reached}")


def ratios(found: dict[Side, list[Measured]]) -> list[float]:
    """How many times as many rows a second, repeat by repeat, against the better of TRL's ways."""
    [packed] = found["TRL packed"]
    return [
        ours.rows_per_second / max(peer.rows_per_second, packed.rows_per_second)
        for ours, peer in zip(found["ours"], found["TRL"], strict=True)
    ]


def first_losses_agree(found: dict[Side, list[Measured]]) -> bool:
    """Whether the rows that both sides trained on had the same loss."""
    losses = [item.loss for side in ("ours", "TRL") for item in found[side]]
    return all(math.isclose(loss, losses[0], rel_tol=1e-3) for loss in losses)


def line_of(case: Case, found: dict[Side, list[Measured]], peak: float) -> dict[str, Any]:
    """One line of the table."""
    ours, peer, packed = (
        statistics.median(item.rows_per_second for item in found[side])
        for side in ("ours", "TRL", "TRL packed")
    )
    memory = {side: max(item.memory for item in found[side]) / 2**20 for side in ("ours", "TRL")}
    rows = max(len(pack.examples) for pack in case.packs)
    ratio = statistics.median(ratios(found))
    speed = flops_of(case) / len(case.examples) * ours / 1e9
    return {
        "case": case.name,
        "rows/s ours": ours,
        "TRL": peer,
        "TRL packed": packed,
        "ratio": ratio,
        "tokens saved": case.token_ratio,
        "share": ratio / case.token_ratio,
        "MiB a row ours": memory["ours"] / rows,
        "TRL ": memory["TRL"],
        "GFLOP/s": speed,
        "of peak": speed / peak,
    }


def flops_of(case: Case) -> float:
    """Operations of one step of ours: 4 for each frozen weight and token (no gradient of the weight itself),
    6 for LoRA's, 14 for each pair of positions and width in attention, 4 for each weight of the head and
    answer token.
    """
    shape = AutoConfig.from_pretrained(case.model.location)
    width, inner, layers = shape.hidden_size, shape.intermediate_size, shape.num_hidden_layers
    keys = width * shape.num_key_value_heads // shape.num_attention_heads
    sides = [(width, width), (width, keys), (width, keys), (width, width), *[(width, inner)] * 3]
    frozen = layers * sum(one * other for one, other in sides)
    lora = layers * 16 * sum(one + other for one, other in sides)
    tokens = sum(pack.tokens for pack in case.packs)
    pairs = sum(
        group.prefix**2 / 2 + sum(branch * (group.prefix + branch / 2) for branch in group.branches)
        for pack in case.packs
        for group in pack.groups
    )
    answers = sum(len(example.answer_ids) for example in case.examples)
    head = 4 * width * shape.vocab_size * answers
    return tokens * (4 * frozen + 6 * lora) + 14 * pairs * width * layers + head


def matrix_peak() -> float:
    """The most GFLOP/s of float32 matrix products of 2,048 x 2,048 that this machine shows in two seconds."""
    one, other = torch.randn(2048, 2048), torch.randn(2048, 2048)
    best = math.inf
    until = time.perf_counter() + 2
    while time.perf_counter() < until:
        started = time.perf_counter()
        torch.mm(one, other)
        best = min(best, time.perf_counter() - started)
    return 2 * 2048**3 / best / 1e9


if __name__ == "__main__":
    run_script(SftBenchmarkConfig, main)
