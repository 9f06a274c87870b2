"""Real vLLM, on the CPU where there is no GPU."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest

from infer.engines.vllm_engine import bound_threads, by_readme, rank_for
from mlbench_data.bad_input import BadInput
from mlbench_data.files import PROJECT_ROOT
from mlbench_data.models import Model
from tests.helpers import RunScript, error_line, kill_when, read_lines, skip_or_fail
from tests.infer.asked import request


@pytest.fixture(scope="module")
def vllm() -> None:
    """Needs vLLM."""
    if importlib.util.find_spec("vllm") is None:
        skip_or_fail("vllm is not installed")


@pytest.fixture(scope="module")
def adapters(
    vllm: None, tokenizer_model: Model, run_script: RunScript, tmp_path_factory: pytest.TempPathFactory
) -> list[Path]:
    """Two adapters that change the tiny model's answers."""
    folder = tmp_path_factory.mktemp("vllm")
    recipe = ["--config", "configs/train/smollm2-135m-id-task3.yaml", "--model", tokenizer_model.location]
    for name, seed in (("one", 1), ("two", 2)):
        more = ["--max_rows", 48, "--learning_rate", 0.02, "--seed", seed]
        run_script("train/sft.py", *recipe, *more, "--output_dir", folder / name, check=True)
    return [folder / "one", folder / "two"]


def sample(
    run_script: RunScript, model: Model, engine: str, out: Path, *more: object
) -> list[dict[str, object]]:
    asked = ["--task", 3, "--split", "quarter", "--model", model.location, "--engine", engine]
    length = ["--max_new_tokens", 12, "--n", 2, "--out", out]
    run_script("infer/generate.py", *asked, *length, *more, check=True, timeout=600)
    return read_lines(out) if out.exists() else []


def raw(lines: list[dict[str, object]]) -> list[object]:
    return [line["raw"] for line in lines]


@pytest.mark.slow
def test_greedy_answers_with_several_adapters_are_those_of_the_transformers_engine(
    adapters: list[Path], tokenizer_model: Model, run_script: RunScript, tmp_path: Path
) -> None:
    """Two implementations that share no code agree on prompts, adapters and decoding; vLLM has all adapters
    on one base in one run.
    """
    greedy = ["--temperature", 0, "--adapter", *adapters, "none"]
    found = {}
    for engine in ("vllm", "transformers"):
        sample(run_script, tokenizer_model, engine, tmp_path / f"{engine}-{{adapter}}.jsonl", *greedy)
        found[engine] = [
            raw(read_lines(tmp_path / f"{engine}-{name}.jsonl")) for name in ("one", "two", "none")
        ]
    assert found["vllm"] == found["transformers"]
    assert found["vllm"][0] != found["vllm"][1] != found["vllm"][2]
    manifest = json.loads((tmp_path / "vllm-one.manifest.json").read_text())
    assert manifest["identity"]["engine"] == "vllm"
    cost = manifest["cost"]
    assert 0 < cost["cached_prompt_tokens"] < cost["prompt_tokens"]


@pytest.mark.slow
def test_seeded_candidates_differ_and_a_second_run_repeats_them(
    adapters: list[Path], tokenizer_model: Model, run_script: RunScript, tmp_path: Path
) -> None:
    """A seed in a request kills vLLM's CPU engine if its prompt is read in chunks: it must not be."""
    first = sample(run_script, tokenizer_model, "vllm", tmp_path / "a.jsonl", "--temperature", 1)
    again = sample(run_script, tokenizer_model, "vllm", tmp_path / "b.jsonl", "--temperature", 1)
    assert raw(first) == raw(again)
    assert all(line["raw"][0] != line["raw"][1] for line in first)  # type: ignore[index]


@pytest.mark.slow
def test_a_model_spread_over_two_processes_answers_alike(
    adapters: list[Path], tokenizer_model: Model, run_script: RunScript, tmp_path: Path
) -> None:
    greedy = ["--temperature", 0]
    spread = sample(
        run_script, tokenizer_model, "vllm", tmp_path / "a.jsonl", *greedy, "--tensor_parallel", 2
    )
    whole = sample(run_script, tokenizer_model, "transformers", tmp_path / "b.jsonl", *greedy)
    assert raw(spread) == raw(whole)


@pytest.mark.slow
def test_the_engine_ends_with_the_run_that_is_killed(
    vllm: None, tokenizer_model: Model, tmp_path: Path
) -> None:
    """vLLM's engine is a process of its own, which would keep its GPU."""
    out = tmp_path / "a.jsonl"
    asked = ["--engine", "vllm", "--model", tokenizer_model.location, "--out", str(out)]
    command = [sys.executable, "infer/generate.py", *asked, "--max_new_tokens", "48"]
    kill_when(command, lambda: out.exists() and b"\n" in out.read_bytes(), PROJECT_ROOT)


def test_too_many_devices_are_refused(tokenizer_model: Model, run_script: RunScript, tmp_path: Path) -> None:
    asked = ["--engine", "vllm", "--tensor_parallel", 512, "--model", tokenizer_model.location]
    done = run_script("infer/generate.py", *asked, "--out", tmp_path / "c.jsonl")
    assert "tensor_parallel × pipeline_parallel is 512 and" in error_line(done)


def test_what_vllm_refuses_is_said_with_its_reason(vllm: None, run_script: RunScript, tmp_path: Path) -> None:
    """SmolLM2 has nine heads, which two processes cannot share out."""
    asked = ["--engine", "vllm", "--tensor_parallel", 2, "--limit", 1, "--out", tmp_path / "c.jsonl"]
    done = run_script("infer/generate.py", *asked)
    assert done.returncode == 2
    assert "attention heads (9)" in done.stderr.splitlines()[-1]


def test_rows_of_one_readme_follow_each_other() -> None:
    short, long = [1] * 8, [2] * 20
    asked = [
        request([*readme, number], number, len(readme)) for number, readme in enumerate([short, long] * 3)
    ]
    assert by_readme(asked, ()) == [1, 3, 5, 0, 2, 4]
    assert by_readme(asked, {3, 4}) == [1, 5, 0, 2]


def test_every_core_is_used_once() -> None:
    both = bound_threads(1).split(",")
    assert bound_threads(min(2, len(both))).replace("|", ",").split(",") == both


def test_the_rank_that_vllm_prepares_for() -> None:
    assert [rank_for(rank) for rank in (0, 8, 9, 16, 100, 512)] == [8, 8, 16, 16, 128, 512]
    with pytest.raises(BadInput, match="rank 513"):
        rank_for(513)
