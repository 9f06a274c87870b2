"""The best of a run's evaluations: what is saved, when training ends, and what a kill does not change."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from mlbench_data.bad_input import BadInput
from mlbench_data.benchmark import Benchmark
from mlbench_data.files import PROJECT_ROOT
from mlbench_data.models import Model
from mlbench_data.sources import benchmark_named
from tests.helpers import RunScript, kill_when, read_lines
from tests.train.launched import Run, launched, sft
from train.best import Best
from train.checkpoints import is_whole
from train.config import TrainConfig, check_config
from train.sampled_score import NotScored, SampledScore, _run, _score_in

pytestmark = pytest.mark.usefixtures("one_thread")

DIVERGING = ("--learning_rate", 3, "--scheduler", "constant_with_warmup", "--warmup", 0, "--lora_rank", 4)
SAMPLING = ("--eval_generate_steps", 2, "--eval_generate_rows", 1, "--keep_best", "pass@1", "--lora_rank", 4)
STOPPING = ("--keep_best", "eval_loss", "--patience", 1, "--eval_steps", 1, "--save_steps", 1)


def run_of(model: Model, out: Path, *more: object) -> list[str]:
    return sft(model, out, *DIVERGING, "--max_steps", 12, *STOPPING, *more)


@pytest.fixture(scope="module")
def stopped(tokenizer_model: Model, run_script: RunScript, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose evaluation loss rises soon."""
    out = tmp_path_factory.mktemp("best") / "out"
    done = run_script(*run_of(tokenizer_model, out), check=True)
    assert "no better eval_loss in 1 evaluations: training ends" in done.stdout
    return out


def test_the_best_adapter_is_saved_and_training_ends_when_it_gets_no_better(stopped: Path) -> None:
    record = json.loads((stopped / "training.json").read_text())
    losses = {
        line["step"]: line["eval_loss"] for line in read_lines(stopped / "log.jsonl") if "eval_loss" in line
    }
    step = min(losses, key=lambda step: losses[step])
    assert record["steps"] == step + 1 < 12
    assert record["best"] == {"metric": "eval_loss", "step": step, "value": losses[step]}
    assert record["eval_loss"] == losses[step]
    assert f"Kept is step {step}, with the best eval_loss" in (stopped / "README.md").read_text()
    assert not (stopped / "best").exists(), "it is the adapter now"
    saved = load_file(stopped / "adapter_model.safetensors")
    then = load_file(stopped / f"checkpoint-{step}" / "adapter_model.safetensors")
    assert saved.keys() == then.keys()
    assert all(torch.equal(saved[name], then[name]) for name in saved)


def test_a_kill_changes_neither_the_best_nor_when_training_ends(
    stopped: Path, tokenizer_model: Model, tmp_path: Path, run_script: RunScript
) -> None:
    out = tmp_path / "out"
    command = [sys.executable, *run_of(tokenizer_model, out)]
    kill_when(command, lambda: is_whole(out / "checkpoint-1", processes=1), PROJECT_ROOT)
    done = run_script(*run_of(tokenizer_model, out), check=True)
    assert "continuing from" in done.stdout
    records = [json.loads((folder / "training.json").read_text()) for folder in (stopped, out)]
    assert records[1]["best"] == records[0]["best"]
    assert records[1]["steps"] == records[0]["steps"]
    expected, found = (load_file(folder / "adapter_model.safetensors") for folder in (stopped, out))
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())


def test_higher_or_lower_is_better() -> None:
    assert Best("pass@1", 3, 0.5).is_beaten_by(0.6)
    assert not Best("pass@1", 3, 0.5).is_beaten_by(0.5)
    assert Best("eval_loss", 3, 0.5).is_beaten_by(0.4)
    assert not Best("eval_loss", 3, 0.5).is_beaten_by(float("nan"))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"keep_best": "pass@1"}, "keep_best is pass@1, which nothing measures"),
        ({"keep_best": "eval_loss", "eval_rows": 0}, "keep_best is eval_loss, and eval_rows is 0"),
        ({"patience": 3}, "patience waits for a better keep_best"),
        ({"eval_generate_steps": 5, "method": "full"}, "eval_generate_steps goes with method lora"),
        ({"eval_generate_steps": 5, "eval_rows": 0}, "eval_generate_steps samples rows kept out"),
        ({"eval_generate_steps": 0}, "eval_generate_steps is 0; expected a number above 0"),
    ],
)
def test_evaluations_that_show_nothing_are_refused(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        check_config(replace(TrainConfig(), **changed))


@pytest.fixture(scope="module")
def mini() -> Benchmark:
    return benchmark_named("mini")


@pytest.fixture
def score(mini: Benchmark, tokenizer_model: Model, tmp_path: Path) -> SampledScore:
    config = TrainConfig(model=tokenizer_model.location, output_dir=str(tmp_path), answer_tokens=16)
    return SampledScore(config, mini.rows("id_train")[-2:])


def test_rows_of_the_training_split_are_run_and_scored(score: SampledScore, tmp_path: Path) -> None:
    """The answer key passes, an empty answer does not: half."""
    rows = score.rows
    lines = [{"github_id": row.key.github_id, "id": row.key.id, "output": [row.output]} for row in rows]
    lines[1]["output"] = [""]
    (tmp_path / "candidates.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row.as_dict()) + "\n" for row in rows))
    _run("eval/run.py", *score._evaluating(tmp_path))
    summary = json.loads((tmp_path / "results" / "summary.json").read_text())
    assert summary["executed"] is True
    assert _score_in(tmp_path / "results" / "summary.json") == 0.5


def test_without_repositories_answers_are_checked_only(score: SampledScore, tmp_path: Path) -> None:
    other = replace(score, config=replace(score.config, benchmark="runs/mlbench"))
    assert other._evaluating(tmp_path)[4:6] == ["--execute", "false"]
    given = replace(score, config=replace(score.config, benchmark="runs/mlbench", eval_repositories="there"))
    assert given._evaluating(tmp_path)[4:6] == ["--repositories", "there"]


def test_a_program_that_fails_is_told_in_its_last_line() -> None:
    with pytest.raises(NotScored, match=r"eval/run.py ended with 2 \(error: .*nowhere"):
        _run("eval/run.py", "--candidates", "nowhere.jsonl")


@pytest.mark.slow
def test_pass_at_1_is_logged_by_two_processes_and_the_best_of_it_is_kept(
    tokenizer_model: Model, tmp_path: Path
) -> None:
    """One samples while the other waits; a random model passes nothing, so the first 0 stays the best."""
    out = tmp_path / "out"
    sampling = ("--eval_generate_steps", 2, "--eval_generate_rows", 1, "--keep_best", "pass@1")
    command = sft(
        tokenizer_model, out, "--max_steps", 3, "--lora_rank", 4, "--gradient_accumulation", 2, *sampling
    )
    run = Run(launched("ddp", command), tmp_path / "log")
    assert run.end() == 0, run.output()
    record = json.loads((out / "training.json").read_text())
    assert record["pass@1"] == {"2": 0.0, "3": 0.0}
    assert record["best"] == {"metric": "pass@1", "step": 2, "value": 0.0}
    log = read_lines(out / "log.jsonl")
    assert [line["step"] for line in log if "pass@1" in line] == [2, 3]
    assert [line["step"] for line in log if "loss" in line] == [1, 2, 3], "the step's own line is there too"
    assert list(out.glob(".scoring-*")) == []
    assert "step 2/3  pass@1 0" in run.output()


@pytest.mark.slow
def test_a_failed_evaluation_is_said_and_is_no_score(
    tokenizer_model: Model, tmp_path: Path, run_script: RunScript
) -> None:
    out = tmp_path / "out"
    sampling = ("--eval_generate_steps", 2, "--eval_generate_rows", 1, "--keep_best", "pass@1")
    nowhere = ("--eval_repositories", tmp_path / "nowhere")
    done = run_script(
        *sft(tokenizer_model, out, "--max_steps", 2, "--lora_rank", 4, *sampling, *nowhere), check=True
    )
    [line] = [line for line in done.stderr.splitlines() if "pass@1" in line]
    assert line.startswith("warning: step 2: no pass@1: eval/run.py ended with 2 (error: --repositories")
    record = json.loads((out / "training.json").read_text())
    assert (record["pass@1"], record["best"], record["finished"]) == ({}, None, True)
