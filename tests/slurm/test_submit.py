"""What is submitted, what is refused before anything waits in a queue, and what hours are foretold."""

import json
import re
import shlex
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from mlbench_data.bad_input import BadInput
from mlbench_data.cli import parse, resolved
from mlbench_data.files import PROJECT_ROOT
from slurm.jobs import STAGES, benchmark_sha256, jobs_of, write_job
from slurm.queue_state import Queued, _parts
from slurm.recipe import train_config
from slurm.site_settings import read_site, seconds_of
from slurm.status import states_of
from slurm.submit import SubmitConfig, main, plan, prefix_of
from slurm.sweep import Sweep, cells_of
from slurm.sweep_file import check_folder, description, submitted_sweep
from tests.slurm.conftest import write_sweep

RECIPE = "configs/train/smollm2-135m-id-task3.yaml"


def run(config: Path, *options: str) -> int:
    return main(parse(SubmitConfig, "", ["--config", str(config), *options]))


@pytest.fixture
def sweep(tmp_path: Path) -> Sweep:
    return Sweep(out=str(tmp_path / "out"), models=["smollm2-135m"], trained_on=["raw", "id"], shards=4)


def state(sweep: Sweep, name: str, queued: dict[str, list[Queued]]) -> tuple[str, str | None]:
    found = states_of(jobs_of(sweep, cells_of(sweep)), queued)[name]
    return found.words, found.reason


# the plan


def test_the_papers_sweep_is_27_cells_and_18_adapters_with_every_job_after_what_it_needs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(PROJECT_ROOT)
    assert run(PROJECT_ROOT / "configs" / "paper.yaml", "--dry_run") == 0
    lines = capsys.readouterr().out.splitlines()
    submitted = [line for line in lines if line.startswith("job")]
    stages = [line.split("--job-name=")[1].split()[0].rpartition(".")[2] for line in submitted]
    assert {stage: stages.count(stage) for stage in stages} == {
        "train": 18, "generate": 27, "join": 27, "eval": 27, "collect": 27, "report": 1,
    }  # fmt: skip
    defined: set[str] = set()
    for line in submitted:
        name, _, command = line.partition("=")
        assert set(re.findall(r"\$(job\d+)", command)) <= defined, "a job waits for earlier ones only"
        defined.add(name)
        assert Path(shlex.split(command.removeprefix("$(").removesuffix(")"))[-2]).is_file()
    hours = [line for line in lines if line.startswith("# all")]
    train, sample, evaluate = map(float, hours[0].split()[2:])
    assert 1 < train < 200
    assert 1 < sample < 200
    assert evaluate > 1
    assert not (PROJECT_ROOT / "runs" / "paper").exists(), "a plan writes nothing"


def test_names_stay_when_the_sweep_grows(sweep: Sweep) -> None:
    grown = Sweep(
        **{**vars(sweep), "seeds": [0, 1], "engines": ["auto", "vllm"], "trained_on": ["raw", "id", "ood"]}
    )
    before, after = ([cell.name for cell in cells_of(one)] for one in (sweep, grown))
    assert set(before) < set(after)
    trained = [job.owner for job in jobs_of(grown, cells_of(grown)) if job.stage == "train"]
    assert len(trained) == len(set(trained)) == 4, "engines share an adapter, seeds do not"


def test_a_second_folder_has_other_job_names(sweep: Sweep, tmp_path: Path) -> None:
    assert prefix_of(sweep) != prefix_of(Sweep(out=str(tmp_path / "other")))
    (tmp_path / "link").symlink_to(tmp_path / "out")
    assert prefix_of(sweep) == prefix_of(Sweep(out=str(tmp_path / "link")))


def test_odd_names_reach_the_shell_as_they_are(sweep: Sweep, tmp_path: Path) -> None:
    odd = Sweep(**{**vars(sweep), "out": str(tmp_path / "a b'c$(touch X)\"%j"), "eval": {"image": "x y"}})
    for job in jobs_of(odd, cells_of(odd)):
        write_job(job, {"PROJECT": "/a b"})
        script = f'source {shlex.quote(str(job.file))}; printf "%s\\0" "${{command[@]}}"'
        printed = subprocess.run(
            ["bash", "-c", script],
            env={"SLURM_ARRAY_TASK_ID": "3"},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split("\0")[1:-1]
        assert printed == [word.replace("\0SHARD\0", "3") for word in job.words]
        assert "%%j" in job.log(), "sbatch would put the job's number there"
    assert not (tmp_path / "X").exists()


# refused before anything is submitted


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"models": ["codelama-7b-instruct"]}, "did you mean codellama-7b-instruct"),
        ({"models": []}, "models is []"),
        ({"tasks": [3, 3]}, "each once"),
        ({"shards": 0}, "shards is 0"),
        ({"shards": 10**9}, "from 1 to 1000"),
        ({"shards": None}, "shards is empty"),
        ({"out": ""}, "out is ''"),
        ({"out": "a\\b"}, "control characters"),
        ({"eval": {"timeout": -1}}, "timeout -1"),
        ({"eval": {"gold": True}}, "which the sweep decides"),
        ({"shards": 400}, "shards is 400 and quarter has"),
        ({"train_config": "configs/train/{modle}.yaml"}, "modle}.yaml"),
        ({"train_config": "configs/train/{model}-none.yaml"}, "the recipe of smollm2-135m-id-task3"),
        ({"accelerate": "configs/accelerate/none.yaml"}, "there is no such file"),
        ({"generate": {"shard": "0/2"}}, "which the sweep decides"),
        ({"train": {"help": True}}, "which the sweep decides"),
        ({"generate": {"n": 0}}, "n is 0"),
        ({"benchmark": "/nowhere"}, "nowhere"),
    ],
)
def test_what_would_fail_in_its_jobs_is_refused(
    values: dict[str, Any], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(PROJECT_ROOT)
    usual = {"train_config": RECIPE, "trained_on": ["raw", "id"], "shards": 2}
    config = write_sweep(tmp_path, **{**usual, **values})
    with pytest.raises(BadInput, match=re.escape(said)):
        run(config)
    assert not (tmp_path / "out").exists(), "nothing is written"


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"generate": {"temprature": 0.1}}, "'temprature'; did you mean temperature"),
        ({"eval": {"timeuot": 3}}, "'timeuot'; did you mean timeout"),
        ({"train": {"epoch": 3}}, "'epoch'; did you mean epochs"),
        ({"shard": 3}, "'shard'; did you mean shards"),
    ],
)
def test_a_misspelt_option_is_refused_with_the_nearest(
    values: dict[str, Any],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(PROJECT_ROOT)
    with pytest.raises(SystemExit) as stop:
        run(write_sweep(tmp_path, train_config=RECIPE, trained_on=["id"], **values))
    assert stop.value.code == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("- a", "NAME: VALUE"),
        ("sbtach: {}", "sbtach"),
        ("stages: {sample: {}}", "sample"),
        ("sbatch: {--time: 3}", "without --"),
        ("sbatch: {array: 0-3}", "submit.py's own"),
        ("sbatch: {time: [1]}", "time"),
        ("seconds_to_save: soon", "seconds_to_save"),
        ("gpu: {tflops: -1}", "tflops"),
    ],
)
def test_a_wrong_site_is_one_line_that_names_the_key(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "site.yaml").write_text(text)
    with pytest.raises(BadInput, match=re.escape(said)):
        read_site(tmp_path / "site.yaml")


def test_a_sites_values_reach_sbatch_as_they_are_written(tmp_path: Path) -> None:
    """YAML itself makes 14400 of 4:00:00, which sbatch takes for minutes."""
    (tmp_path / "site.yaml").write_text(
        "sbatch: {time: 4:00:00, exclusive: true, account: 0123, qos: '', mem: 8G}\nstages: {eval: {mem: 2G}}"
    )
    site = read_site(tmp_path / "site.yaml")
    assert site.options("train") == ["--time=4:00:00", "--exclusive", "--account=0123", "--mem=8G"]
    assert site.options("eval")[-1] == "--mem=2G"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30", 1800),
        ("30:15", 1815),
        ("4:00:00", 14400),
        ("1-12", 129600),
        ("1-12:30", 131400),
        ("soon", None),
        ("", None),
    ],
)
def test_time_limits_are_read_as_sbatch_reads_them(text: str, seconds: float | None) -> None:
    assert seconds_of(text) == seconds


@pytest.mark.parametrize(
    ("site", "said"),
    [
        (
            {"sbatch": {"time": "1"}, "seconds_to_save": "60"},
            "train: its time limit of 60 s is not longer than",
        ),
        (
            {"stages": {"train": {"time": "0:10"}}, "seconds_to_save": "5"},
            "minutes from one checkpoint to the next",
        ),
    ],
)
def test_a_time_limit_that_is_too_short_is_warned_of(
    site: dict[str, Any],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(PROJECT_ROOT)
    slow = {**site, "gpu": {"tflops": "0.1"}}
    assert (
        run(write_sweep(tmp_path, slow, train_config=RECIPE, trained_on=["id"], shards=2), "--dry_run") == 0
    )
    assert said in capsys.readouterr().err


# the state, from files and queue


def test_what_hangs_on_a_failure_is_held_up_and_the_reason_is_shown_once(sweep: Sweep) -> None:
    [train] = [job for job in jobs_of(sweep, cells_of(sweep)) if job.stage == "train"]
    (train.folder / "failed").mkdir(parents=True)
    (train.folder / "failed" / "train").write_text("no room on the disk (log: x)\n")
    assert state(sweep, "smollm2-135m-id-task3.train", {}) == ("failed", "no room on the disk (log: x)")
    assert state(sweep, "smollm2-135m-id-task3.generate", {}) == ("held up", None)
    assert state(sweep, "smollm2-135m-id-task3.collect", {}) == ("held up", None)
    assert state(sweep, "smollm2-135m-raw-task3.generate", {}) == ("not submitted 0/4", None)


@pytest.mark.parametrize(
    ("queued", "words", "reason"),
    [
        ([("PENDING", {0, 1, 2, 3}, "Resources")], "waiting 0/4 (Resources)", None),
        ([("PENDING", {2, 3}, "Dependency")], "waiting 0/4", None),
        ([("RUNNING", {0}, "None"), ("PENDING", {1, 2, 3}, "Priority")], "running 0/4", None),
        (
            [("NODE_FAIL", {1}, "None"), ("COMPLETED", {0}, "None")],
            "failed 0/4",
            "shard 1: node fail by Slurm",
        ),
        (
            [("TIMEOUT", {1}, "TimeLimit")],
            "failed 0/4",
            "shard 1: timeout by Slurm (TimeLimit)",
        ),
        ([("CANCELLED", {0, 1, 2, 3}, "DependencyNeverSatisfied")], "not submitted 0/4", None),
        ([("CANCELLED", {0, 1, 2, 3}, "Priority")], "cancelled 0/4", None),
    ],
)
def test_the_queue_says_what_files_do_not(
    sweep: Sweep, queued: list[tuple[str, set[int], str]], words: str, reason: str | None
) -> None:
    found = [Queued("7", frozenset(parts), name, why) for name, parts, why in queued]
    assert state(sweep, "smollm2-135m-raw-task3.generate", {"smollm2-135m-raw-task3.generate": found}) == (
        words,
        reason,
    )


@pytest.mark.parametrize(
    ("text", "parts"),
    [("N/A", None), ("3", {3}), ("0-3", {0, 1, 2, 3}), ("0,2-3%1", {0, 2, 3}), ("1-7:3", {1, 4, 7})],
)
def test_elements_of_an_array_are_read_as_squeue_writes_them(text: str, parts: set[int] | None) -> None:
    assert _parts(text) == (None if parts is None else frozenset(parts))


def test_only_what_is_not_done_is_planned(sweep: Sweep, tmp_path: Path) -> None:
    sweep = replace(sweep, shards=5)
    cells = cells_of(sweep)
    [raw] = [cell for cell in cells if cell.trained_on == "raw"]
    for part in range(5):
        manifest = raw.folder / "candidates" / f"{part}.manifest.json"
        manifest.parent.mkdir(parents=True, exist_ok=True)
        benchmark = benchmark_sha256("mini") if part != 4 else "another"
        identity = {"adapter": "other" if part == 1 else None, "benchmark_sha256": benchmark}
        manifest.write_text(json.dumps({"finished": True, "identity": identity}))
        if part != 3:
            manifest.with_name(f"{part}.jsonl").touch()
    (tmp_path / "site.yaml").write_text(yaml.safe_dump({}))
    lines = list(plan(jobs_of(sweep, cells), read_site(tmp_path / "site.yaml"), "mlb."))
    [line] = [line for line in lines if f"{raw.name}.generate" in line]
    assert "--array=1,3,4 " in line, "1 is another adapter's, 3 is lost, 4 is of another benchmark"


def test_every_stage_has_its_sbatch_file() -> None:
    assert {path.stem for path in (PROJECT_ROOT / "slurm").glob("*.sbatch")} == set(STAGES)


# what may change in a folder


def submitted(sweep: Sweep) -> Path:
    folder = Path(sweep.out)
    folder.mkdir()
    (folder / "sweep.json").write_text(json.dumps(description(sweep, cells_of(sweep))))
    return folder


def refused(sweep: Sweep) -> str:
    with pytest.raises(BadInput) as refusal:
        check_folder(sweep, cells_of(sweep), False)
    return str(refusal.value)


def test_another_sweep_in_a_folder_is_refused_and_a_grown_one_is_not(sweep: Sweep) -> None:
    submitted(sweep)
    check_folder(sweep, cells_of(sweep), False)
    check_folder(grown := replace(sweep, trained_on=["raw", "id", "ood"]), cells_of(grown), False)
    check_folder(moved := replace(sweep, site="other.yaml"), cells_of(moved), False)
    assert "other shards" in refused(replace(sweep, shards=3))
    assert "other split" in refused(replace(sweep, split="quarter"))
    assert "cells that are not in this sweep" in refused(replace(sweep, trained_on=["raw"]))


def test_a_setting_can_be_changed_until_something_was_made_with_it(sweep: Sweep) -> None:
    folder = submitted(sweep)
    check_folder(changed := replace(sweep, eval={"timeout": 3}), cells_of(changed), False)
    (folder / "smollm2-135m-raw-task3" / "results").mkdir(parents=True)
    assert "other eval" in refused(changed)
    check_folder(changed := replace(sweep, generate={"n": 3}), cells_of(changed), False)


def test_changed_code_is_refused_unless_finished_cells_may_stay(sweep: Sweep) -> None:
    folder = submitted(sweep)
    values = json.loads((folder / "sweep.json").read_text())
    (folder / "sweep.json").write_text(json.dumps(values | {"code": "0123456789abcdef"}))
    assert "submitted with other code" in refused(sweep)
    check_folder(sweep, cells_of(sweep), True)


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", '{"cells": [{}], "settings": 3, "code": "a", "config": {}}']
)
def test_a_damaged_sweep_file_is_one_line(content: str, sweep: Sweep) -> None:
    (submitted(sweep) / "sweep.json").write_text(content)
    assert "sweep.json" in refused(sweep)


def test_the_state_needs_the_folder_only(sweep: Sweep) -> None:
    submitted(sweep)
    assert submitted_sweep(Sweep(out=sweep.out)) == sweep
    with pytest.raises(BadInput, match="no sweep there"):
        submitted_sweep(Sweep(out=f"{sweep.out}-other"))


def test_an_adapter_that_was_trained_by_another_recipe_is_not_done(sweep: Sweep) -> None:
    cells = cells_of(sweep)
    [train] = [job for job in jobs_of(sweep, cells) if job.stage == "train"]
    [cell] = [cell for cell in cells if cell.adapter]
    record: dict[str, Any] = {"finished": True, "config": resolved(train_config(cell))}
    train.folder.mkdir(parents=True)
    (train.folder / "training.json").write_text(json.dumps(record))
    assert train.missing() == []
    record["config"]["learning_rate"] = 0.5
    (train.folder / "training.json").write_text(json.dumps(record))
    assert train.missing() == [0]


def test_a_part_that_was_stopped_in_the_middle_says_so_when_slurm_has_forgotten_it(sweep: Sweep) -> None:
    [job] = [job for job in jobs_of(sweep, cells_of(sweep)) if job.name == "smollm2-135m-raw-task3.generate"]
    (job.folder / "failed").mkdir(parents=True)
    (job.folder / "failed" / "generate-2.room").write_text("")
    words, reason = state(sweep, job.name, {})
    assert words == "failed 0/4"
    assert str(reason).startswith("shard 2: ended without a word")
    alive = {job.name: [Queued("7", frozenset({2}), "RUNNING", "None")]}
    assert state(sweep, job.name, alive) == ("running 0/4", None)


def test_checkouts_that_are_not_there_are_missed_before_anything_is_sampled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(PROJECT_ROOT)
    with pytest.raises(BadInput, match="there is no such path"):
        run(write_sweep(tmp_path, trained_on=["raw"], shards=2, eval={"repositories": "nowhere"}))
