"""Data parallel sampling on one machine: a process for each shard, with its part of the GPUs or cores."""

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import yaml

from infer.candidates import CandidatesFile, manifest_of
from infer.config import PLAIN, GenerateConfig, out_path
from infer.gpus import gpus
from infer.join import join
from mlbench_data.bad_input import BadInput, JobFailed
from mlbench_data.cli import resolved
from mlbench_data.files import PROJECT_ROOT, write_text
from mlbench_data.processes import end_with_parent
from mlbench_data.shards import shard_of


def check_copies(copies: int, rows: int) -> None:
    """Raises BadInput if a copy would have no row, no GPU or no core."""
    if copies > rows:
        raise BadInput(f"data_parallel is {copies} and there are {rows} rows; use fewer copies")
    devices(copies)


def run_parallel(config: GenerateConfig, files: dict[str | None, CandidatesFile]) -> int:
    """Samples every shard in a process of its own and joins them into the files; 1 if rows have failed.

    Shards that are there already are continued, and are gone once they are joined. Raises BadInput, and
    JobFailed if a process was killed.
    """
    if config.adapter:
        unfinished = [name or PLAIN for name, file in files.items() if not file.finished]
        config = replace(config, adapter=unfinished)
    for file in files.values():
        if file.done and not file.finished:
            raise BadInput(
                f"{file.path}: holds {len(file.done)} rows that one process has sampled; continue without "
                "data_parallel, or give another --out"
            )
    places = devices(config.data_parallel)
    shards = shards_of(config)
    signal.signal(
        signal.SIGTERM, lambda number, _frame: sys.exit(128 + number)
    )  # so that `finally` ends them
    running = [_start(shard, place) for shard, place in zip(shards, places, strict=True)]
    try:
        codes = [process.wait() for process in running]
    finally:
        for process in running:
            process.terminate()
        for shard in shards:
            _settings_of(shard).unlink(missing_ok=True)
    if any(code not in (0, 1) for code in codes):
        worst = next(code for code in codes if code not in (0, 1))
        if worst == 2:
            raise BadInput("a shard could not be sampled; its line above says why")
        raise JobFailed(f"a shard's process ended with {worst}; run the same command again to continue")
    if 1 in codes:
        return 1  # its process has said which rows failed
    for name in config.adapter or [PLAIN]:
        adapter = None if name == PLAIN else name
        out = out_path(config, adapter)
        parts = [out_path(shard, adapter) for shard in shards]
        rows = join(parts, out, config.shard)
        for part in parts:
            part.unlink()
            manifest_of(part).unlink()
        print(f"{rows} rows × {config.n} candidates in {out}")
    return 0


def shards_of(config: GenerateConfig) -> list[GenerateConfig]:
    """The configuration of each process: its shard of the run's own shard, and a file beside the run's."""
    index, count = shard_of(config.shard)
    copies = config.data_parallel
    found = []
    for copy in range(copies):
        shard = f"{index * copies + copy}/{count * copies}"
        out = out_path(replace(config, adapter=None), "{adapter}" if config.adapter else None)
        beside = out.with_name(f"{out.stem}.part{copy}of{copies}.jsonl")
        found.append(replace(config, shard=shard, data_parallel=1, out=str(beside)))
    return found


def devices(copies: int) -> list[dict[str, str] | list[int]]:
    """For each copy its GPUs, as environment variables, or its cores. Raises BadInput if they are too few."""
    if there := gpus():
        given = os.environ.get("CUDA_VISIBLE_DEVICES")
        names = given.split(",") if given else [str(number) for number in range(there)]
        return [{"CUDA_VISIBLE_DEVICES": ",".join(part)} for part in _parts(names, copies, "GPUs")]
    return list(_parts(sorted(os.sched_getaffinity(0)), copies, "cores"))


def _parts(items: list, copies: int, what: str) -> list[list]:
    """Equal runs of the items. Raises BadInput if some copy would have none."""
    if len(items) < copies:
        raise BadInput(f"data_parallel is {copies} and {len(items)} {what} are there")
    each = len(items) // copies
    return [items[copy * each : (copy + 1) * each] for copy in range(copies)]


def _settings_of(shard: GenerateConfig) -> Path:
    """Where a shard's process reads its configuration: always the same place, so that none pile up."""
    return Path(str(shard.out)).with_suffix(".yaml")


def _start(shard: GenerateConfig, place: dict[str, str] | list[int]) -> subprocess.Popen:
    """A process that samples one shard on its GPUs or cores."""
    file = _settings_of(shard)
    write_text(file, yaml.safe_dump(resolved(shard)))
    environment = {**os.environ, **(place if isinstance(place, dict) else {})}
    command = [sys.executable, str(PROJECT_ROOT / "infer" / "generate.py"), "--config", str(file)]
    process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, preexec_fn=end_with_parent)
    if isinstance(place, list):
        os.sched_setaffinity(process.pid, place)
    return process
