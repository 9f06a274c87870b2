"""The jobs of a sweep: for each its command, what it waits for, and what its files say of it."""

import json
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, get_args

from mlbench_data.adapter import adapter_sha256
from mlbench_data.cli import resolved
from mlbench_data.files import sha256_of_file, write_text
from mlbench_data.sources import benchmark_named
from slurm.recipe import options_of, train_config, training_words
from slurm.sweep import Cell, Sweep, adapters_in, folder_of
from train.config import NOT_IDENTITY

Stage = Literal["train", "generate", "join", "eval", "collect", "report"]
STAGES: tuple[Stage, ...] = get_args(Stage)
SCRIPTS: dict[Stage, str] = {
    "train": "train/sft.py",
    "generate": "infer/generate.py",
    "join": "infer/join.py",
    "eval": "eval/run.py",
    "collect": "eval/run.py",
    "report": "eval/report.py",
}
SHARD = "\0SHARD\0"
"""Stands for the array's element in a command: no path can hold it."""


@dataclass(frozen=True)
class Job:
    """One line of sbatch, an array if it has `shards`. `owner` is the adapter, cell or sweep that it is for,
    `needs` are the names of the jobs whose files it reads.
    """

    owner: str
    stage: Stage
    folder: Path
    words: list[str]
    needs: tuple[str, ...]
    shards: int | None
    is_done: Callable[[int], bool]

    @property
    def name(self) -> str:
        """Unique in the sweep."""
        return f"{self.owner}.{self.stage}"

    @property
    def parts(self) -> range:
        """The elements of its array; one if it is none."""
        return range(self.shards or 1)

    @property
    def file(self) -> Path:
        """What its sbatch file reads: the command, and where things are."""
        return self.folder / "jobs" / f"{self.stage}.sh"

    def log(self) -> str:
        """Where Slurm writes what it prints, in sbatch's spelling."""
        name = f"{self.stage}-%A_%a.log" if self.shards else f"{self.stage}-%j.log"
        return f"{str(self.folder / 'logs').replace('%', '%%')}/{name}"

    def missing(self) -> list[int]:
        """The parts that are not done."""
        return [part for part in self.parts if not self.is_done(part)]

    def failure(self, part: int) -> str | None:
        """Why one part has failed when it ran last, if it has. One that left the room for its reason empty
        was stopped in the middle, or is under way.
        """
        note = self.folder / "failed" / (f"{self.stage}-{part}" if self.shards else self.stage)
        if note.exists():
            return note.read_text(encoding="utf-8", errors="replace").strip()
        if note.with_name(f"{note.name}.room").exists():
            return f"ended without a word (logs: {self.folder / 'logs'})"
        return None


def jobs_of(sweep: Sweep, cells: list[Cell]) -> list[Job]:
    """Every job of a sweep, each after those that it needs."""
    jobs = [_training(cell) for cell in adapters_in(cells)]
    for cell in cells:
        jobs += [_generation(cell), _joining(cell), _evaluation(cell), _collection(cell)]
    return [*jobs, _report(sweep, cells)]


def _training(cell: Cell) -> Job:
    def is_done(_part: int) -> bool:
        return _is_trained(cell, _read(cell.adapter_folder / "training.json"))

    return Job(str(cell.adapter), "train", cell.adapter_folder, training_words(cell), (), None, is_done)


def _generation(cell: Cell) -> Job:
    sweep = cell.sweep
    words = [
        *options_of(sweep.generate),
        "--engine",
        cell.engine,
        "--model",
        cell.given_model,
        "--task",
        str(cell.task),
    ]
    words += ["--seed", str(cell.seed), "--benchmark", sweep.benchmark, "--split", sweep.split]
    words += ["--adapter", str(cell.adapter_folder)] if cell.adapter else []
    words += ["--shard", f"{SHARD}/{sweep.shards}", "--out", f"{cell.folder}/candidates/{SHARD}.jsonl"]
    needs = (f"{cell.adapter}.train",) if cell.adapter else ()

    def is_done(part: int) -> bool:
        return _are_sampled(cell, cell.folder / "candidates" / f"{part}.manifest.json")

    return Job(cell.name, "generate", cell.folder, words, needs, sweep.shards, is_done)


def _joining(cell: Cell) -> Job:
    parts = [f"{cell.folder}/candidates/{part}.jsonl" for part in range(cell.sweep.shards)]
    words = [*parts, "--out", str(_candidates(cell))]

    def is_done(_part: int) -> bool:
        return _are_sampled(cell, cell.folder / "candidates.manifest.json")

    return Job(cell.name, "join", cell.folder, words, (f"{cell.name}.generate",), None, is_done)


def _evaluation(cell: Cell) -> Job:
    shard = ["--shard", f"{SHARD}/{cell.sweep.shards}", "--out", f"{cell.folder}/results/{SHARD}"]

    def is_done(part: int) -> bool:
        return _are_evaluated(cell, cell.folder / "results" / str(part))

    words, needs = [*_evaluated(cell), *shard], (f"{cell.name}.join",)
    return Job(cell.name, "eval", cell.folder, words, needs, cell.sweep.shards, is_done)


def _collection(cell: Cell) -> Job:
    """The shards' outcomes as one evaluation, as a run without shards would have left it."""
    shards = [f"{cell.folder}/results/{part}" for part in range(cell.sweep.shards)]
    words = [*_evaluated(cell), "--reuse", *shards, "--out", str(cell.folder / "results" / "all")]

    def is_done(_part: int) -> bool:
        return _are_evaluated(cell, cell.folder / "results" / "all")

    return Job(cell.name, "collect", cell.folder, words, (f"{cell.name}.eval",), None, is_done)


def _report(sweep: Sweep, cells: list[Cell]) -> Job:
    folder = folder_of(sweep)
    words = [str(folder), "--out", str(folder / "report.html")]

    def is_done(_part: int) -> bool:
        shown = _read(folder / "table.json").get("results")
        found = {cell.name: _hash(cell.folder / "results" / "all" / "summary.json") for cell in cells}
        return (
            shown == {name: value for name, value in found.items() if value}
            and (folder / "report.html").is_file()
        )

    return Job(
        "sweep", "report", folder, words, tuple(f"{cell.name}.collect" for cell in cells), None, is_done
    )


def _evaluated(cell: Cell) -> list[str]:
    sweep = cell.sweep
    data = ["--candidates", str(_candidates(cell)), "--benchmark", sweep.benchmark, "--split", sweep.split]
    return [*options_of(sweep.eval), *data]


def _candidates(cell: Cell) -> Path:
    return cell.folder / "candidates.jsonl"


def _is_trained(cell: Cell, record: dict[str, Any]) -> bool:
    """Whether an adapter has been trained with the settings that its recipe has now."""
    if record.get("finished") is not True or not isinstance(record.get("config"), dict):
        return False
    asked = resolved(train_config(cell))
    return all(record["config"].get(name) == asked[name] for name in asked.keys() - set(NOT_IDENTITY))


def _are_sampled(cell: Cell, manifest: Path) -> bool:
    """Whether candidates are all there, and from the adapter that there is now."""
    found = _read(manifest)
    identity = found.get("identity")
    if found.get("finished") is not True or not isinstance(identity, dict):
        return False
    if not manifest.with_name(manifest.name.replace(".manifest.json", ".jsonl")).is_file():
        return False
    try:
        adapter = adapter_sha256(cell.adapter_folder) if cell.adapter else None
    except (OSError, ValueError):  # there is none
        return False
    made_of = (identity.get("adapter"), identity.get("benchmark_sha256"))
    return made_of == (adapter, benchmark_sha256(cell.sweep.benchmark))


def _are_evaluated(cell: Cell, results: Path) -> bool:
    """Whether an evaluation of the candidates that there are now has ended, without failures of the
    infrastructure.
    """
    summary = _read(results / "summary.json")
    try:
        clean = (
            summary["status"]["infrastructure"] == summary["ceiling_detail"]["status"]["infrastructure"] == 0
        )
        inputs = summary["inputs"]
        is_ours = inputs["candidates_sha256"] == _hash(_candidates(cell))
        return clean and is_ours and (results / "results.jsonl").is_file()
    except (KeyError, TypeError):
        return False


@lru_cache
def benchmark_sha256(name: str) -> str:
    """What tells whether two runs used the same benchmark."""
    return benchmark_named(name).sha256


def _hash(path: Path) -> str | None:
    """A file's content; None if there is no such file."""
    return sha256_of_file(path) if path.is_file() else None


def _read(path: Path) -> dict[str, Any]:
    """A JSON object; empty if it is not there or not whole."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def write_job(job: Job, settings: dict[str, str]) -> None:
    """Writes a job's file: settings as shell variables, and its command as an array."""
    lines = ["SHARD=${SLURM_ARRAY_TASK_ID:-0}"]  # whichever elements of the array were submitted
    lines += [f"{name}={shlex.quote(value)}" for name, value in settings.items()]
    folders = {"FAILED": job.folder / "failed", "LOGS": job.folder / "logs"}
    lines += [f"STAGE={job.stage}", *(f"{name}={shlex.quote(str(path))}" for name, path in folders.items())]
    lines.append(f"command=({' '.join(map(_quoted, [SCRIPTS[job.stage], *job.words]))})")
    (job.folder / "logs").mkdir(parents=True, exist_ok=True)  # sbatch does not make it
    write_text(job.file, "\n".join(lines) + "\n")


def _quoted(word: str) -> str:
    """A word for the shell, with the array's element in it."""
    return '"$SHARD"'.join(shlex.quote(part) if part else "" for part in word.split(SHARD)) or "''"
