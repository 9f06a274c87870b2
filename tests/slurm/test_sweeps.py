"""Whole sweeps on a real Slurm: the results are those without it, whatever happens on the way."""

import json
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest

from slurm.toy_cluster import Cluster
from tests.helpers import RunScript, read_lines
from tests.slurm.conftest import SITE, Submit, write_sweep

RECIPE = "configs/train/smollm2-135m-id-task3.yaml"
TRAIN = {"max_rows": 32, "eval_rows": 4, "max_steps": 3}
GENERATE = {"n": 2, "max_new_tokens": 24}
EVAL = {"timeout": 30, "preload": []}
SHARDED = ("generate", "eval")
PATIENCE = 600.0


def wait_for(what: str, condition: Callable[[], Any], seconds: float = PATIENCE) -> Any:
    """What the condition says, once it is something."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := condition():
            return found
        time.sleep(0.05)
    raise AssertionError(f"no {what} within {seconds:.0f} s")


def drain(cluster: Cluster) -> None:
    """Waits until no job is left."""

    def is_empty() -> bool:
        release(cluster)
        time.sleep(0.5)
        return not cluster.say("squeue", "--noheader")

    wait_for("empty queue", is_empty)


def release(cluster: Cluster) -> None:
    """What was put back begins soon, not in two minutes; nor in the same second, which Slurm refuses."""
    lines = cluster.say("squeue", "--noheader", "--format=%A %r").splitlines()
    if waiting := [line.split()[0] for line in lines if line.endswith("BeginTime")]:
        time.sleep(3)
        for number in waiting:
            cluster.say("scontrol", "update", f"jobid={number}", "StartTime=now")


def candidates_in(path: Path) -> list[Any]:
    """What was sampled, without what it cost: that depends on which rows share a README in a shard."""
    return [
        {name: line[name] for name in ("github_id", "id", "output", "raw", "finish")}
        for line in read_lines(path)
    ]


def scores_in(folder: Path) -> dict[str, Any]:
    """A summary without times and paths."""
    summary = json.loads((folder / "summary.json").read_text())
    kept = ("status", "checks", "pass_at_k", "parameter_hit_precision", "ceiling", "error_classes", "rows")
    return {name: summary[name] for name in kept}


def without_slurm(
    run_script: RunScript, folder: Path, cell: tuple[str, str, int], options: dict[str, dict], shards: int
) -> Path:
    """The commands that one would type for a cell; the folder with candidates.jsonl and results."""

    def words(name: str) -> list[str]:
        pairs = options[name].items()
        return [
            text
            for key, value in pairs
            for text in (f"--{key}", value if isinstance(value, str) else json.dumps(value))
        ]

    run: dict[str, Any] = {"check": True, "env": {"OMP_NUM_THREADS": "1"}}
    model, trained_on, task = cell
    asked: list[Any] = ["--model", model, "--task", task]
    adapter = folder / "adapter"
    split = ["--split", f"{trained_on}_train", "--output_dir", adapter]
    run_script("train/sft.py", "--config", RECIPE, *words("train"), *asked, *split, **run)
    data = ["--split", "quarter"]
    file = folder / "candidates.jsonl"
    parts = [folder / f"{part}.jsonl" for part in range(shards)]
    for part, out in enumerate(
        parts
    ):  # as in the sweep: which rows are computed together decides last digits
        more = [*data, "--adapter", adapter, "--shard", f"{part}/{shards}", "--out", out]
        run_script("infer/generate.py", *words("generate"), *asked, *more, **run)
    run_script("infer/join.py", *parts, "--out", file, **run)
    run_script("eval/run.py", *words("eval"), "--candidates", file, *data, "--out", folder / "results", **run)
    return folder


def assert_same(cell: Path, plain: Path) -> None:
    """A cell of a sweep against the same commands without Slurm."""
    assert candidates_in(cell / "candidates.jsonl") == candidates_in(plain / "candidates.jsonl")
    assert scores_in(cell / "results" / "all") == scores_in(plain / "results")


@pytest.mark.slow
def test_a_whole_sweep_fills_the_table_as_the_same_commands_would_without_slurm(
    cluster: Cluster, submit: Submit, models: list[str], run_script: RunScript, tmp_path: Path
) -> None:
    """2 models × 2 training sets × 2 tasks: training, sampling and the sandbox are real."""
    options: dict[str, dict] = {"train": TRAIN, "generate": GENERATE, "eval": EVAL}
    config = write_sweep(
        tmp_path,
        models=models,
        trained_on=["id", "ood"],
        tasks=[1, 3],
        shards=2,
        train_config=RECIPE,
        **options,
    )
    assert "41 jobs submitted" in submit(config), "8 × (train, generate, join, eval, collect) and the report"
    assert "0 of 8 cells done" in submit(config, "--status")
    drain(cluster)
    status = submit(config, "--status")
    assert "8 of 8 cells done; report done" in status, status
    assert "nothing to submit" in submit(config)
    table = json.loads((tmp_path / "out" / "table.json").read_text())
    assert len(table["results"]) == 8
    cells = [(model, name, task) for model in models for name in ("id", "ood") for task in (1, 3)]

    def check(cell: tuple[str, str, int]) -> None:
        name = f"{Path(cell[0]).name}-{cell[1]}-task{cell[2]}"
        assert_same(tmp_path / "out" / name, without_slurm(run_script, tmp_path / name, cell, options, 2))

    with ThreadPoolExecutor(2) as both_cores:
        list(both_cores.map(check, cells))


@pytest.mark.slow
def test_a_disturbed_sweep_ends_with_the_results_of_an_undisturbed_one_and_does_no_shard_twice(
    cluster: Cluster, submit: Submit, models: list[str], run_script: RunScript, tmp_path: Path
) -> None:
    """Put back in training, a node down and a worker killed in sampling, a shard of evaluation cancelled."""
    options: dict[str, dict] = {
        "train": {**TRAIN, "max_rows": 64, "max_steps": 30, "epochs": 8, "save_steps": 2, "eval_steps": 100},
        "generate": {"n": 3, "max_new_tokens": 120, "batch_tokens": 2000},
        "eval": EVAL,
    }
    config = write_sweep(
        tmp_path, models=models[:1], trained_on=["id"], shards=3, train_config=RECIPE, **options
    )
    name = f"{Path(models[0]).name}-id-task3"
    cell, adapter = tmp_path / "out" / name, tmp_path / "out" / "adapters" / name
    submit(config)

    wait_for("checkpoint", lambda: (adapter / "checkpoint-2" / "trainer_state.json").exists())
    cluster.say(
        "scancel", "--signal=USR1", "--batch", number_of(cluster, "train")
    )  # as before its time is over
    wait_for(
        "job that was put back", lambda: "BeginTime" in cluster.say("squeue", "--noheader", "--format=%r")
    )
    assert not list((adapter / "failed").iterdir()), "to have been asked to stop is no failure"
    release(cluster)

    parts = cell / "candidates"
    wait_for("rows of shard 1", lambda: rows_in(parts / "1.jsonl"))
    node = cluster.say(
        "squeue", "--noheader", "--format=%N", f"--job={number_of(cluster, 'generate')}_1"
    ).strip()
    cluster.say("scontrol", "update", f"nodename={node}", "state=down", "reason=test")
    killed = worker(f"{parts}/2.jsonl")
    killed.send_signal(signal.SIGKILL)
    wait_for("reason", lambda: (cell / "failed" / "generate-2").exists())
    again = f"{number_of(cluster, 'generate')}_1"
    printed = submit(config)  # while the rest of the array runs, or waits
    assert ".generate, 1 of 3 shards" in printed, printed
    assert ".train" not in printed, printed

    def evaluated() -> psutil.Process | None:
        release(cluster)
        return find_worker(f"{cell}/results/1")

    wait_for("evaluation of shard 1", evaluated)
    assert "Restarts=1" in cluster.say("scontrol", "show", "job", again), "put back when its node was down"
    cluster.say("scancel", f"{number_of(cluster, 'eval')}_1")
    drain(cluster)
    assert "cancelled 2/3 not submitted" in " ".join(submit(config, "--status").split())
    printed = submit(config)
    assert ".eval, 1 of 3 shards" in printed, printed
    assert ".join" not in printed, printed
    drain(cluster)

    assert "1 of 1 cells done; report done" in submit(config, "--status")
    logs = [
        [len(list((cell / "logs").glob(f"{stage}-*_{part}.log"))) for part in range(3)] for stage in SHARDED
    ]
    assert logs == [[1, 1, 2], [1, 2, 1]], "the killed shard and the cancelled one again, no other"
    assert json.loads((adapter / "training.json").read_text())["resumed_from"] is not None
    plain = without_slurm(run_script, tmp_path / "plain", (models[0], "id", 3), options, 3)
    assert_same(cell, plain)


def number_of(cluster: Cluster, stage: str) -> str:
    """The number of the newest job of a stage."""
    lines = cluster.say("squeue", "--noheader", "--states=all", "--format=%F %j").splitlines()
    return max((line.split()[0] for line in lines if line.endswith(f".{stage}")), key=int)


def rows_in(path: Path) -> int:
    """How many rows a candidates file has."""
    return path.read_bytes().count(b"\n") if path.exists() else 0


def find_worker(words: str) -> psutil.Process | None:
    """The python process of a job whose command line holds these words."""
    for process in psutil.process_iter(["cmdline"]):
        line = process.info["cmdline"] or []
        if line and "python" in Path(line[0]).name and words in line:
            return process
    return None


def worker(words: str) -> psutil.Process:
    """The same, as soon as there is one."""
    return wait_for("worker", lambda: find_worker(words))


@pytest.mark.slow
def test_training_on_two_nodes_has_the_losses_of_one_process(
    cluster: Cluster, submit: Submit, models: list[str], run_script: RunScript, tmp_path: Path
) -> None:
    train = {**TRAIN, "max_steps": 4, "learning_rate": 0.01, "logging_steps": 1, "batch_size": 4}
    site = {
        "activate": f"{SITE['activate']}export ACCELERATE_USE_CPU=true\n",
        "stages": {"train": {"nodes": "2", "cpus-per-task": "1"}},
        "wrap": "nice -n 1",  # as a container's command would stand before each
    }
    config = write_sweep(
        tmp_path, site, models=models[:1], trained_on=["id"], shards=1, train_config=RECIPE, train=train
    )
    submit(config, "--generate", json.dumps(GENERATE), "--eval", json.dumps({**EVAL, "execute": False}))
    name = f"{Path(models[0]).name}-id-task3"
    adapter = tmp_path / "out" / "adapters" / name
    drain(cluster)
    status = run_script("slurm/submit.py", "--config", config, "--status", env=cluster.environment)
    assert (adapter / "training.json").exists(), status.stdout + status.stderr
    record = json.loads((adapter / "training.json").read_text())
    assert record["identity"]["processes"] == 2
    options = [
        *(text for key, value in train.items() for text in (f"--{key}", str(value))),
        "--model",
        models[0],
    ]
    one = tmp_path / "one"
    more = ["--gradient_accumulation", "2", "--output_dir", one]
    run_script("train/sft.py", "--config", RECIPE, *options, *more, check=True, env={"OMP_NUM_THREADS": "1"})
    two, alone = (
        [line["loss"] for line in read_lines(folder / "log.jsonl") if "loss" in line]
        for folder in (adapter, one)
    )
    assert len(two) == 4
    assert two == pytest.approx(alone, abs=1e-5)
