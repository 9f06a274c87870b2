"""The evaluation as a whole: what counts, what is run again and what is not, and what its user is told."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from eval import runner
from eval.candidates import read_candidates
from eval.checks import Mode
from eval.config import EvalConfig
from eval.run import default_out, main
from eval.runner import parse_memory
from eval.sandbox.interface import Ending, Limits, Outcome, Program
from mlbench_data.bad_input import BadInput
from mlbench_data.cli import parse
from mlbench_data.files import PROJECT_ROOT
from mlbench_data.rows import Row

REAL = PROJECT_ROOT.parent / "shared" / "data" / "mlbench"


class ScriptedSandbox:
    """Ends programs as told and counts them; what is tested here is what the evaluation makes of it."""

    name = "scripted"

    def __init__(self, endings: Callable[[Program], Ending] = lambda program: "exited") -> None:
        self.endings = endings
        self.ran: list[str] = []

    def run(self, program: Program, limits: Limits) -> Outcome:
        self.ran.append(program.code)
        ending = self.endings(program)
        return Outcome(ending, 0 if ending == "exited" else None, 0.1, 1 << 20, "out", "", "")

    def find_python(self, name: str | None = None, image: str | None = None) -> Path | None:
        return Path(name or sys.executable)

    def describe(self) -> dict[str, str]:
        return {"sandbox": self.name}


@pytest.fixture
def sandbox(monkeypatch: pytest.MonkeyPatch) -> ScriptedSandbox:
    scripted = ScriptedSandbox()
    monkeypatch.setattr(runner, "sandbox_of", lambda config, used: scripted)
    return scripted


@pytest.fixture
def config(rows_file: Path, gold_file: Path, repositories: Path, tmp_path: Path) -> EvalConfig:
    return EvalConfig(
        candidates=str(gold_file),
        rows=str(rows_file),
        repositories=str(repositories),
        out=str(tmp_path / "out"),
        timeout=20,
        memory="512MiB",
        workers=2,
    )


def summary_of(config: EvalConfig) -> dict[str, Any]:
    return json.loads((Path(config.out or "") / "summary.json").read_text())


def results_of(config: EvalConfig) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (Path(config.out or "") / "results.jsonl").read_text().splitlines()]


def write_candidates(path: str, lines: list[dict[str, Any]]) -> None:
    Path(path).write_text("".join(json.dumps(line) + "\n" for line in lines))


def candidate(row_id: int, *output: str, **more: object) -> dict[str, Any]:
    return {"github_id": 7, "id": row_id, "output": list(output), **more}


# what counts


def test_the_answer_key_passes_in_the_real_sandbox(config: EvalConfig) -> None:
    assert main(replace(config, gold=True)) == 0
    summary = summary_of(config)
    assert summary["executed"] is True
    assert summary["status"]["passed"] == 3
    assert summary["ceiling"] == summary["pass_at_k"]["1"]["first_k"] == 1.0
    assert summary["sandbox"]["sandbox"] == "bubblewrap"
    assert [result["stdout"] for result in results_of(config)][:1] == ["trained with 0.1\n"]


def test_every_status_and_the_stage_that_decided_it(config: EvalConfig) -> None:
    outputs = {
        1: ["python train.py --lr 0.1", "python nothing.py --lr 0.1", "echo train.py --lr 0.1", ""],
        2: ["import tiny\ntiny.train(lr=0.15)", "import tiny\nlr=0.1\nwhile True: pass"],
    }
    write_candidates(config.candidates, [candidate(key, *output) for key, output in outputs.items()])
    assert main(replace(config, timeout=2)) == 0
    found = [(result["id"], result["status"], result["stage"]) for result in results_of(config)]
    assert found == [
        (1, "passed", "execute"),
        (1, "failed", "execute"),
        (1, "wrong_type", "check"),
        (1, "no_code", "check"),
        (2, "missing_parameters", "check"),
        (2, "timed_out", "execute"),
        (2, "no_code", "missing"),
        (2, "no_code", "missing"),
        *[(3, "no_code", "missing")] * 4,
    ]
    assert results_of(config)[1]["error_class"] == "E1"


def test_rows_without_candidates_stay_in_the_denominator(
    config: EvalConfig, sandbox: ScriptedSandbox, capsys: pytest.CaptureFixture[str]
) -> None:
    """Defect 10 of the reference: rows with fewer than five outputs are dropped."""
    write_candidates(
        config.candidates,
        [candidate(1, "python train.py --lr 0.1", "python train.py --lr=0.1"), candidate(3)],
    )
    main(config)
    summary = summary_of(config)
    assert (summary["rows"], summary["candidates"], summary["missing_candidates"]) == (3, 6, 4)
    assert summary["pass_at_k"]["1"]["first_k"] == pytest.approx(1 / 3)
    assert summary["pass_at_k"]["5"] == {"first_k": None, "unbiased": None, "interval": None}
    assert "4 of 6 candidates are missing (2 of 3 rows have none)" in capsys.readouterr().err


def test_why_a_row_could_not_be_sampled_is_kept(config: EvalConfig, sandbox: ScriptedSandbox) -> None:
    write_candidates(
        config.candidates, [candidate(1, "python train.py --lr 0.1"), candidate(2, error="prompt too long")]
    )
    main(config)
    assert results_of(config)[1]["detail"] == "prompt too long"


@pytest.mark.parametrize(("mode", "passed", "by_timeout"), [("strict", 0, 0), ("paper", 6, 6)])
def test_a_timeout_passes_in_mode_paper_only_and_is_counted(
    config: EvalConfig, sandbox: ScriptedSandbox, mode: Mode, passed: int, by_timeout: int
) -> None:
    """Defect 1 of the reference, and the paper's own rule."""
    sandbox.endings = lambda program: "timed_out"
    main(replace(config, mode=mode))
    summary = summary_of(config)
    assert summary["status"]["passed"] == passed
    assert summary["passed_by_timeout"] == by_timeout


def test_repositories_are_reported_by_name(
    config: EvalConfig, rows: list[Row], sandbox: ScriptedSandbox, tmp_path: Path, repositories: Path
) -> None:
    """Defect 11 of the reference: results are printed by position under wrong names."""
    other = replace(rows[2], github_id=3, github="https://example.org/somebody/other")
    Path(config.rows or "").write_text(
        "".join(json.dumps(row.as_dict()) + "\n" for row in [other, *rows[:2]])
    )
    shutil.copytree(repositories / "tiny", repositories / "other")
    sandbox.endings = lambda program: "exited" if "0.5" in program.code else "out_of_memory"
    main(replace(config, gold=True))
    per_repository = summary_of(config)["per_repository"]
    assert per_repository["other"]["pass_at_k"]["1"]["first_k"] == 1.0
    assert per_repository["other"]["github_id"] == 3
    assert per_repository["tiny"]["pass_at_k"]["1"]["first_k"] == 0.0
    assert per_repository["tiny"]["status"]["out_of_memory"] == 2


def test_what_fails_a_check_is_never_run(config: EvalConfig, sandbox: ScriptedSandbox) -> None:
    write_candidates(config.candidates, [candidate(1, "python train.py --lr 0.7", "rm -rf / --lr 0.1")])
    main(config)
    assert not any("0.7" in code or "rm" in code for code in sandbox.ran)


def test_without_execution_no_sandbox_is_touched(config: EvalConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "sandbox_of", lambda config, used: pytest.fail("a sandbox was made"))
    assert main(replace(config, execute=False, repositories=None)) == 0
    summary = summary_of(config)
    assert summary["executed"] is False
    assert summary["sandbox"] is None
    assert summary["pass_at_k"]["2"]["unbiased"] == 1.0


# failures of the infrastructure


def test_a_failure_of_the_infrastructure_is_tried_again_and_never_the_models(
    config: EvalConfig, sandbox: ScriptedSandbox, capsys: pytest.CaptureFixture[str]
) -> None:
    sandbox.endings = lambda program: "infrastructure" if "0.5" in program.code else "exited"
    assert main(config) == 1
    summary = summary_of(config)
    assert summary["status"]["infrastructure"] == 2
    assert summary["status"]["failed"] == 0
    assert summary["lower_bound"] is True
    assert summary["pass_at_k"]["1"]["first_k"] == pytest.approx(2 / 3)
    assert "INFRASTRUCTURE: 2 candidates could not be run" in capsys.readouterr().err
    sandbox.endings = lambda program: "exited"
    sandbox.ran.clear()
    assert main(config) == 0
    assert sandbox.ran == ["python train.py --lr 0.5"] * 2  # the candidate and the answer key, nothing else
    assert summary_of(config)["lower_bound"] is False


def test_a_failure_that_passes_is_forgotten(config: EvalConfig, sandbox: ScriptedSandbox) -> None:
    first_time: Iterator[Ending] = iter(["infrastructure"])
    sandbox.endings = lambda program: next(first_time, "exited")
    assert main(config) == 0
    assert summary_of(config)["status"]["passed"] == 6


def test_a_missing_checkout_is_infrastructure(config: EvalConfig, repositories: Path) -> None:
    shutil.rmtree(repositories / "tiny")
    assert main(config) == 1
    assert {result["status"] for result in results_of(config)} == {"infrastructure"}
    assert "no checkout of tiny" in results_of(config)[0]["detail"]


# what is run again


def test_nothing_is_run_twice(config: EvalConfig, sandbox: ScriptedSandbox) -> None:
    main(config)
    assert len(sandbox.ran) == 6  # three distinct answers, and the answer key
    main(config)
    assert len(sandbox.ran) == 6


def test_a_changed_answer_checkout_or_limit_is_run_again(
    config: EvalConfig, sandbox: ScriptedSandbox, repositories: Path
) -> None:
    main(config)
    lines = [json.loads(line) for line in Path(config.candidates).read_text().splitlines()]
    lines[0]["output"][1] += " "
    write_candidates(config.candidates, lines)
    sandbox.ran.clear()
    main(config)
    assert sandbox.ran == ["python train.py --lr 0.1 "]
    (repositories / "tiny" / "new.txt").write_text("changed")
    sandbox.ran.clear()
    main(config)
    assert len(sandbox.ran) == 7
    sandbox.ran.clear()
    main(replace(config, timeout=21))
    assert len(sandbox.ran) == 7


def test_order_is_the_inputs_whatever_the_parallelism(config: EvalConfig, sandbox: ScriptedSandbox) -> None:
    def slow_first(program: Program) -> Ending:
        time.sleep(0.2 if "--lr 0.1" in program.code else 0)
        return "exited"

    sandbox.endings = slow_first
    main(replace(config, workers=3))
    assert [(result["id"], result["candidate"]) for result in results_of(config)] == [
        (1, 0),
        (1, 1),
        (2, 0),
        (2, 1),
        (3, 0),
        (3, 1),
    ]


def test_after_kill_9_the_same_command_gives_what_an_uninterrupted_run_gives(config: EvalConfig) -> None:
    answers = [f"sleep 0.4; python train.py --lr 0.1 # {number}" for number in range(5)]
    write_candidates(config.candidates, [candidate(1, *answers)])
    command = [
        *(sys.executable, "eval/run.py", "--rows", str(config.rows), "--candidates", config.candidates),
        *("--repositories", str(config.repositories), "--workers", "1", "--out"),
    ]
    killed, whole = Path(f"{config.out}-killed"), Path(f"{config.out}-whole")
    running = subprocess.Popen([*command, str(killed)], cwd=PROJECT_ROOT, start_new_session=True)
    results = killed / "results.jsonl"
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not (results.exists() and '"exited"' in results.read_text()):
        time.sleep(0.05)
    os.killpg(running.pid, signal.SIGKILL)
    running.wait()
    before = {item["identity"]: item["seconds"] for item in _finished(results)}
    assert 0 < len(before) < 5
    assert not (killed / "summary.json").exists()
    with open(results, "a") as file:
        file.write('{"github_id": 7, "cut sh')

    for out in (killed, whole):
        subprocess.run([*command, str(out)], cwd=PROJECT_ROOT, check=True, capture_output=True)
    after = {item["identity"]: item["seconds"] for item in _finished(results)}
    assert before.items() <= after.items()  # the same seconds: not run again
    assert _without_timings(results) == _without_timings(whole / "results.jsonl")


def _finished(path: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")]
    return [line for line in lines if line["ending"] is not None]


def _without_timings(path: Path) -> list[dict[str, Any]]:
    return [
        {**json.loads(line), "seconds": None, "peak_memory": None} for line in path.read_text().splitlines()
    ]


# bad input


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([{"github_id": 7, "id": 99, "output": ["x"]}], r":1: no row with github_id 7, id 99"),
        (
            [candidate(1, "x"), candidate(1, "y")],
            r":2: second line for github_id 7, id 1 \(first on line 1\)",
        ),
        ([{"github_id": 7, "id": "1", "output": ["x"]}], r":1: id is str; expected an integer"),
        ([{"github_id": 7, "id": 1, "output": "x"}], r":1: output is str; expected a list of strings"),
        ([{"github_id": 7, "id": 1}], r":1: output is missing"),
        ([{"github_id": 7, "id": 1, "output": ["x", None]}], r":1: output\[1\] is NoneType"),
        ([], r"no answer in the whole file"),
    ],
)
def test_a_wrong_candidates_file_names_file_and_line(
    config: EvalConfig, lines: list[dict[str, Any]], message: str
) -> None:
    write_candidates(config.candidates, lines)
    with pytest.raises(BadInput, match=message):
        main(replace(config, execute=False))
    assert not Path(config.out or "").exists()


def test_candidates_for_another_benchmark_are_refused_by_their_manifest(
    config: EvalConfig, rows: list[Row], tmp_path: Path
) -> None:
    Path(config.candidates).with_suffix(".manifest.json").write_text('{"benchmark_sha256": "aaaa"}')
    assert read_candidates(config.candidates, rows, "aaaa").n == 2
    with pytest.raises(BadInput, match="made for another benchmark"):
        read_candidates(config.candidates, rows, "bbbb")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"repositories": None}, "give --repositories DIR"),
        ({"repositories": "/nowhere"}, "/nowhere: no such folder"),
        ({"python": "/nowhere/python"}, "/nowhere/python: no such program"),
        ({"memory": "much"}, "--memory much: not a size"),
        ({"timeout": 0.0}, "must be more than 0 seconds"),
        ({"timeout": float("nan")}, "must be more than 0 seconds"),
        ({"timeout": float("inf")}, "must be more than 0 seconds"),
        ({"cores": float("nan")}, "--cores nan: must be between"),
        ({"cores": 1e300}, "must be between"),
        ({"memory": "1"}, "no program starts in that"),
        ({"candidates": ""}, "no such file"),
        ({"candidates": "/"}, "no such file"),
        ({"workers": 0}, "must be at least 1"),
        ({"benchmark": "folder"}, "give one of them"),
        ({"out": "/proc/nowhere"}, "cannot write there"),
    ],
)
def test_a_wrong_option_is_one_clear_line(config: EvalConfig, change: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        main(replace(config, **change))


def test_memory_sizes() -> None:
    assert parse_memory("2GiB") == 2 << 30
    assert parse_memory("512 MiB") == 512 << 20
    assert parse_memory("1.5GB") == 1_500_000_000
    assert parse_memory("67108864") == 64 << 20


def test_half_a_surrogate_pair_in_an_answer_is_survived(config: EvalConfig) -> None:
    write_candidates(config.candidates, [candidate(1, "python train.py --lr 0.1 \ud83d")])
    assert main(replace(config, execute=False)) == 0


# shipped files and real data


@pytest.mark.parametrize(
    "path", sorted((PROJECT_ROOT / "configs" / "eval").glob("*.yaml")), ids=lambda p: p.name
)
def test_every_shipped_configuration_is_valid_and_named_after_its_mode(path: Path) -> None:
    assert parse(EvalConfig, "", ["--config", str(path), "--gold"]).mode == path.stem


@pytest.mark.parametrize(
    ("candidates", "mode", "passed", "ceiling"),
    [
        ("gold", "paper", 95, 95),
        ("gold", "strict", 87, 87),
        ("candidates_gpt41.jsonl", "paper", 66, 95),
        ("candidates_gpt41.jsonl", "strict", 52, 87),
        ("candidates_mlagent_gpt4.jsonl", "paper", 42, 95),
        ("candidates_mlagent_gpt4.jsonl", "strict", 36, 87),
    ],
)
@pytest.mark.skipif(not REAL.exists() and "CI" not in os.environ, reason="the real rows are not here")
def test_real_rows_and_candidates_are_checked(
    tmp_path: Path, candidates: str, mode: Mode, passed: int, ceiling: int
) -> None:
    """Pins what the rules say about published data, so that a change of a rule shows what it does."""
    config = EvalConfig(
        candidates=str(REAL / candidates),
        gold=candidates == "gold",
        rows=str(REAL / "rows.jsonl"),
        execute=False,
        mode=mode,
        out=str(tmp_path),
    )
    assert main(config) == 0
    assert summary_of(config)["status"]["passed"] == passed
    assert summary_of(config)["ceiling"] == pytest.approx(ceiling / 104)


def test_a_manifest_that_asks_for_millions_of_candidates_is_refused(
    config: EvalConfig, sandbox: ScriptedSandbox
) -> None:
    manifest = Path(config.candidates).with_suffix(".manifest.json")
    manifest.write_text(json.dumps({"identity": {"n": 3_000_000}}))
    with pytest.raises(BadInput, match="3000000 candidates a row"):
        main(config)


def test_candidates_that_were_asked_for_and_are_missing_count(
    config: EvalConfig, sandbox: ScriptedSandbox
) -> None:
    """Every row lacks the same ones, so only the manifest knows."""
    manifest = Path(config.candidates).with_suffix(".manifest.json")
    manifest.write_text(json.dumps({"identity": {"n": 5}}))
    main(config)
    summary = summary_of(config)
    assert (summary["n"], summary["missing_candidates"]) == (5, 9)


def test_what_is_missing_is_said_before_anything_runs(
    config: EvalConfig, sandbox: ScriptedSandbox, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "environments.yaml").write_text("tinny: {python: python3}\n")
    (tmp_path / "empty").mkdir()
    main(
        replace(
            config, environments=str(tmp_path / "environments.yaml"), repositories=str(tmp_path / "empty")
        )
    )
    said = capsys.readouterr().err
    assert "WARNING: environments: no row is about tinny" in said
    assert "tiny: no such checkout" in said.partition("evaluating")[0]


# in shards


def sharded(config: EvalConfig) -> list[EvalConfig]:
    return [replace(config, shard=f"{part}/3", out=f"{config.out}-{part}") for part in range(3)]


def test_shards_together_are_the_evaluation_without_shards_and_nothing_runs_twice(
    config: EvalConfig, sandbox: ScriptedSandbox, tmp_path: Path
) -> None:
    """Defect 12 of the reference: array jobs each repeat all the work."""
    for shard in sharded(config):
        assert main(shard) == 0
        assert summary_of(shard)["rows"] == 1
    once = len(sandbox.ran)
    together = replace(config, reuse=[str(shard.out) for shard in sharded(config)])
    assert main(together) == 0
    assert len(sandbox.ran) == once
    apart = replace(config, out=str(tmp_path / "apart"))
    assert main(apart) == 0
    assert len(sandbox.ran) == 2 * once
    assert results_of(together) == results_of(apart)


def test_a_checkout_that_changed_between_shards_is_refused(
    config: EvalConfig, sandbox: ScriptedSandbox, repositories: Path
) -> None:
    for shard in sharded(config):
        main(shard)
    checkout = next(path for path in repositories.iterdir() if path.is_dir())
    (checkout / "new_file.py").write_text("changed = True\n")
    together = replace(config, reuse=[str(shard.out) for shard in sharded(config)])
    with pytest.raises(BadInput, match="was run in another state of the checkout"):
        main(together)
    assert not Path(config.out or "").exists(), "nothing is written"


def test_a_shard_does_not_replace_another_ones_results(config: EvalConfig, sandbox: ScriptedSandbox) -> None:
    main(replace(config, shard="0/3"))
    before = summary_of(config)
    with pytest.raises(BadInput, match="holds the results of shard 0/3"):
        main(replace(config, shard="1/3"))
    assert summary_of(config) == before
    assert default_out(replace(config, shard="1/3", out=None)) != default_out(replace(config, out=None))


@pytest.mark.parametrize("shard", ["3/3", "1", "-1/2", "0/4"])
def test_a_shard_that_there_is_not_is_refused(config: EvalConfig, shard: str) -> None:
    with pytest.raises(BadInput, match="shard"):
        main(replace(config, shard=shard))
