"""The paper's statistics of a benchmark (Tables 7, 8, 9 and 11), on the terminal, as JSON and as a picture.

python mlbench_data/overview.py --benchmark runs/mlbench --tokenizers tokenizers --out runs/overview
"""

import hashlib
import itertools
import statistics
from collections import Counter as Multiset
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from rapidfuzz.distance import Levenshtein
from sacrebleu.metrics import BLEU

from mlbench_data.bad_input import BadInput
from mlbench_data.benchmark import Benchmark, Split
from mlbench_data.cli import run_script
from mlbench_data.files import make_folder, write_json
from mlbench_data.mini.specification import read_specification
from mlbench_data.models import load_tokenizer, resolve_model
from mlbench_data.overview_picture import draw
from mlbench_data.papers_tables import papers_table
from mlbench_data.prompts import TaskNumber, readme_for
from mlbench_data.repositories import read_repositories
from mlbench_data.rows import BASH, Row
from mlbench_data.sources import benchmark_named
from mlbench_data.tokens import Counter, counters

SETTINGS: dict[str, TaskNumber] = {"readme": 1, "bm25": 2, "oracle": 3}
PAPERS_NAMES: dict[Split, str] = {"full": "test", "id_train": "train", "ood_train": "ood_train"}
MOST_PAIRS = 20_000  # pairs of instructions measured within tasks, and as many across


@dataclass(frozen=True)
class OverviewConfig:
    """What to look at, in whose tokens, and where to."""

    benchmark: str = "mini"
    """mini (embedded) or a folder made by mlbench_data/build.py."""
    tokenizers: str | None = None
    """Folder with llama.model and tiktoken's cache: lengths in CodeLlama's and GPT-3.5's tokens, as in the
    paper."""
    model: str = "smollm2-135m"
    """Without tokenizers: the model in whose tokens lengths are counted."""
    repositories: str | None = None
    """YAML file that describes repositories of your own, for their domains."""
    out: str | None = None
    """Folder for overview.json and overview.png."""


@dataclass(frozen=True)
class Length:
    """Tokens of one text a row, over some rows."""

    rows: int
    average: float
    maximum: int


@dataclass(frozen=True)
class Distance:
    """Edit distance of pairs of instructions, in characters, and as a share of the longer one's."""

    pairs: int
    average: float | None
    share: float | None


def main(config: OverviewConfig) -> int:
    """The paper's statistics of a benchmark: Tables 7, 8, 9 and 11, as text, JSON and a picture."""
    benchmark = benchmark_named(config.benchmark)
    splits = {name: benchmark.rows(name) for name in PAPERS_NAMES if name in benchmark.manifest["splits"]}
    if not splits:
        raise BadInput(f"{benchmark.folder}: has none of {', '.join(PAPERS_NAMES)}")
    texts = {name: texts_of(rows, benchmark, name) for name, rows in splits.items()}
    count = counters_of(config)
    domains = domains_of(config.repositories)
    found = {
        "benchmark_sha256": benchmark.sha256,
        "table7": lengths_by_split(texts, count),
        "table8": lengths_by_repository(splits, texts, count),
        "table9": {name: composition(rows, domains) for name, rows in splits.items()},
        "table11": {name: bleu1(found) for name, found in texts.items()},
    }
    for line in report(found):
        print(line)
    if config.out is not None:
        folder = make_folder(config.out)
        write_json(folder / "overview.json", found)
        draw(found, folder / "overview.png")
        print(f"overview.json and overview.png are in {folder}")
    return 0


def counters_of(config: OverviewConfig) -> dict[str, Counter]:
    """How tokens are counted, by the vocabulary's name. Raises BadInput."""
    if config.tokenizers is not None:
        return counters(config.tokenizers)
    tokenizer = load_tokenizer(resolve_model(config.model))
    lengths: dict[str, int] = {}

    def count(text: str) -> int:
        if text not in lengths:
            lengths[text] = len(
                tokenizer(text, add_special_tokens=False, split_special_tokens=True).input_ids
            )
        return lengths[text]

    return {config.model: count}


Texts = dict[str, list[str]]
"""Setting (readme, bm25, oracle) → what each row reads, in the order of the rows."""


def texts_of(rows: list[Row], benchmark: Benchmark, split: Split) -> Texts:
    """What the rows read in each setting; without READMEs only their oracle segments."""
    has_readmes = all(benchmark.has_readme(row) for row in rows)
    settings = SETTINGS if has_readmes else {"oracle": SETTINGS["oracle"]}
    return {
        name: [readme_for(task, row, benchmark, split) for row in rows] for name, task in settings.items()
    }


def lengths_by_split(texts: dict[Split, Texts], count: dict[str, Counter]) -> dict[str, Any]:
    """Table 7: average and longest README, window and segment, over the rows of each split."""
    return {
        split: {
            setting: {name: asdict(length_of(found, counter)) for name, counter in count.items()}
            for setting, found in settings.items()
        }
        for split, settings in texts.items()
    }


def lengths_by_repository(
    splits: dict[Split, list[Row]], texts: dict[Split, Texts], count: dict[str, Counter]
) -> dict[str, dict[str, float]]:
    """Table 8: the average over each repository's rows, as `gpt35.bm25.train`."""
    found: dict[str, dict[str, float]] = defaultdict(dict)
    for split, rows in splits.items():
        side = "test" if split == "full" else "train"
        for setting, name in itertools.product(texts[split], count):
            parts: dict[str, list[str]] = defaultdict(list)
            for row, text in zip(rows, texts[split][setting], strict=True):
                parts[row.repository].append(text)
            for repository, part in parts.items():
                found[repository][f"{name}.{setting}.{side}"] = length_of(part, count[name]).average
    return dict(found)


def length_of(texts: list[str], count: Counter) -> Length:
    """How long some texts are."""
    lengths = [count(text) for text in texts]
    return Length(len(lengths), round(statistics.fmean(lengths), 2), max(lengths))


def domains_of(path: str | None) -> dict[str, str]:
    """Each known repository's domain by its name in lower case: the paper's, MiniBench's, and one's own."""
    mini = {item.name.lower(): item.domain for item in read_specification()}
    return mini | {name: item.domain for name, item in read_repositories(path).items()}


def composition(rows: list[Row], domain_of: dict[str, str]) -> dict[str, Any]:
    """Table 9: rows by domain, repository and type, and how alike instructions are."""
    domains: dict[str, dict[str, dict[str, int]]] = defaultdict(lambda: defaultdict(dict))
    for (name, kind), number in sorted(Multiset((row.repository, row.type) for row in rows).items()):
        domains[domain_of.get(name.lower(), "not described")][name][kind] = number
    within, across = pairs_of_instructions(rows)
    return {
        "rows": len(rows),
        "bash": sum(row.type == BASH for row in rows),
        "domains": domains,
        "edit_distance_within_tasks": asdict(distance_of(within)),
        "edit_distance_across_tasks": asdict(distance_of(across)),
    }


Pair = tuple[str, str]


def pairs_of_instructions(rows: list[Row]) -> tuple[list[Pair], list[Pair]]:
    """Pairs of instructions of one task and of two, about MOST_PAIRS each, chosen by hash. Across tasks a
    row's partners are its next ones in hash order. Rows of one task read the same segment of one repository.
    """
    tasks: dict[tuple[int, str], list[Row]] = defaultdict(list)
    for row in sorted(rows, key=_rank):
        tasks[row.github_id, row.oracle].append(row)
    room = max(2, MOST_PAIRS // max(1, len(tasks)))
    within = [
        (one.instruction, other.instruction)
        for part in tasks.values()
        for one, other in itertools.islice(itertools.combinations(part, 2), room)
    ]
    ranked = sorted(rows, key=_rank)
    steps = max(1, MOST_PAIRS // max(1, len(rows)))
    across = [
        (one.instruction, other.instruction)
        for step in range(1, min(steps, len(ranked) - 1) + 1)
        for one, other in zip(ranked, ranked[step:], strict=False)
        if (one.github_id, one.oracle) != (other.github_id, other.oracle)
    ]
    return within, across


def _rank(row: Row) -> bytes:
    return hashlib.sha256(repr(tuple(row.key)).encode()).digest()


def distance_of(pairs: list[Pair]) -> Distance:
    """The average Levenshtein distance; None without pairs."""
    if not pairs:
        return Distance(0, None, None)
    distances = [Levenshtein.distance(one, other) for one, other in pairs]
    shares = [Levenshtein.normalized_distance(one, other) for one, other in pairs]
    return Distance(len(pairs), round(statistics.fmean(distances), 2), round(statistics.fmean(shares), 4))


def bleu1(texts: Texts) -> float | None:
    """Table 11: BLEU-1 of each row's BM25 window against its segment, averaged; None without READMEs."""
    if "bm25" not in texts:
        return None
    bleu = BLEU(max_ngram_order=1, effective_order=True)
    scores: dict[Pair, float] = {}
    pairs = list(zip(texts["bm25"], texts["oracle"], strict=True))
    for window, oracle in pairs:
        if (window, oracle) not in scores:
            scores[window, oracle] = bleu.sentence_score(window, [oracle]).score / 100
    return round(statistics.fmean(scores[pair] for pair in pairs), 4)


def report(found: dict[str, Any]) -> Iterator[str]:
    """The four tables as text, with the paper's figures for the same split where it has them."""
    yield "Table 7 · tokens a row: average (maximum)"
    papers = papers_table("table7")
    for split, settings in found["table7"].items():
        for setting, lengths in settings.items():
            ours = "  ".join(
                f"{name} {item['average']:.0f} ({item['maximum']})" for name, item in lengths.items()
            )
            theirs = papers[PAPERS_NAMES[split]][setting]
            yield f"  {split:10} {setting:7} {ours}   paper {theirs['average']:.0f} ({theirs['maximum']})"
    yield "\nTable 8 · average tokens by repository, and the paper's in brackets"
    yield from _by_repository(found["table8"])
    yield "\nTable 9 · rows by domain; edit distance of instructions, in characters (share)"
    for split, item in found["table9"].items():
        yield f"  {split}: {item['rows']} rows, {item['bash']} bash and {item['rows'] - item['bash']} python"
        for domain, parts in item["domains"].items():
            rows = sum(sum(kinds.values()) for kinds in parts.values())
            yield f"    {domain:24}{rows:6}  {', '.join(sorted(parts))}"
        for place in ("within", "across"):
            distance = item[f"edit_distance_{place}_tasks"]
            yield f"    {place} tasks: {_distance(distance)} over {distance['pairs']} pairs"
    yield "\nTable 11 · BLEU-1 of BM25 window against oracle segment"
    papers = papers_table("table11")
    names = {"full": "test"}
    for split, score in found["table11"].items():
        shown = "no READMEs" if score is None else f"{score:.4f}"
        yield f"  {split:10} {shown}   paper {papers[names.get(split, split)]:.4f}"


def _by_repository(table8: dict[str, dict[str, float]]) -> Iterator[str]:
    """A block for each vocabulary: a line a repository, a column for what is read by which side."""
    papers = papers_table("table8")
    vocabularies = dict.fromkeys(
        column.rsplit(".", 2)[0] for lengths in table8.values() for column in lengths
    )
    for vocabulary in vocabularies:
        columns = [f"{setting}.{side}" for setting in SETTINGS for side in ("train", "test")]
        yield f"  {vocabulary:26}" + "".join(f"{column:>16}" for column in columns)
        for name, lengths in table8.items():
            cells = []
            for column in columns:
                ours = lengths.get(f"{vocabulary}.{column}")
                theirs = papers.get(name, {}).get(f"{vocabulary}.{column}")
                shown = "–" if ours is None else f"{ours:.0f}"
                cells.append(f"{shown if theirs is None or ours is None else f'{shown} ({theirs})':>16}")
            yield f"  {name:26}" + "".join(cells)


def _distance(distance: dict[str, Any]) -> str:
    return "–" if distance["average"] is None else f"{distance['average']:.1f} ({distance['share']:.2f})"


if __name__ == "__main__":
    run_script(OverviewConfig, main)
