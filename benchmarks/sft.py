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
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, LlamaConfig, LlamaForCausalLM

from benchmarks.bm25 import readme_pages
from benchmarks.measuring import print_result, print_table
from benchmarks.prepare import numbered
from benchmarks.reference.sft import Learned, Measured, Side, learn, measure
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
LEARNED_ROWS = 120
KEPT_OUT = 16
SIDES: dict[str, tuple[Side, int]] = {
    "ours": ("ours", 2),
    "ours in groups of 4": ("ours", 4),
    "TRL": ("TRL", 2),
}
"""Whose losses are compared, and how many rows of a step of eight may share a segment; TRL takes as many
steps as the first.
"""


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
    if config.quick:
        config = replace(config, repeats=1, seeds=0)
    peak = matrix_peak()
    with tempfile.TemporaryDirectory() as folder:
        cases = make_cases(config, Path(folder))
        results = {case.name: times_of(case, config.repeats) for case in cases}
        lines = [line_of(case, results[case.name], peak) for case in cases]
    learned = [learned_by(cases[-1].model, seed) for seed in range(config.seeds)]
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
        eval_losses={name: [round(run[name].loss, 4) for run in learned] for name in SIDES if learned},
    )
    return 0 if same else 1


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


def learned_by(model: Model, seed: int) -> dict[str, Learned]:
    """What each side reaches on rows kept out in one epoch of task 3, in a process of its own."""
    mini = default_benchmark()
    rows = mini.rows("id_train")[: LEARNED_ROWS + KEPT_OUT]
    examples = make_examples(rows, mini, "id_train", builder_of(model, 3))
    training, kept_out = examples[:LEARNED_ROWS], examples[LEARNED_ROWS:]
    found = {}
    for name, (side, group_size) in SIDES.items():
        found[name] = apart(learn, side, model, training, kept_out, seed, group_size)
        reached = f"loss {found[name].loss:.4f} on rows kept out after {found[name].seconds:.0f} s"
        print(f"seed {seed}, {name}: {reached}", file=sys.stderr, flush=True)
    return found


def print_learned(learned: list[dict[str, Learned]]) -> None:
    """Loss and time of each side, over the seeds."""
    for name in SIDES if learned else ():
        losses = [run[name].loss for run in learned]
        seconds = statistics.median(run[name].seconds for run in learned)
        each = ", ".join(f"{loss:.4f}" for loss in losses)
        print(f"loss on rows kept out, {name}: {statistics.mean(losses):.4f} ({each}) after {seconds:.0f} s")


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
