"""Real vLLM, on the CPU where there is no GPU."""

import importlib.util
import json
from pathlib import Path

import pytest

from mlbench_data.models import Model
from tests.helpers import RunScript, read_lines, skip_or_fail

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def adapter(tokenizer_model: Model, run_script: RunScript, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An adapter that changes the tiny model's answers."""
    if importlib.util.find_spec("vllm") is None:
        skip_or_fail("vllm is not installed")
    out = tmp_path_factory.mktemp("vllm") / "adapter"
    recipe = ["--config", "configs/train/smollm2-135m-id-task3.yaml", "--model", tokenizer_model.location]
    more = ["--max_rows", 48, "--learning_rate", 0.02]
    run_script("train/sft.py", *recipe, *more, "--output_dir", out, check=True)
    return out


def sample(
    run_script: RunScript, model: Model, engine: str, out: Path, *more: object
) -> list[dict[str, object]]:
    asked = ["--task", 3, "--split", "quarter", "--model", model.location, "--engine", engine]
    length = ["--max_new_tokens", 12, "--n", 2, "--out", out]
    run_script("infer/generate.py", *asked, *length, *more, check=True, timeout=600)
    return read_lines(out)


def test_greedy_answers_with_an_adapter_are_those_of_the_transformers_engine(
    adapter: Path, tokenizer_model: Model, run_script: RunScript, tmp_path: Path
) -> None:
    """Two implementations that share no code agree on prompts, adapter and decoding."""
    greedy = ["--temperature", 0, "--adapter", adapter]
    with_vllm = sample(run_script, tokenizer_model, "vllm", tmp_path / "vllm.jsonl", *greedy)
    expected = sample(run_script, tokenizer_model, "transformers", tmp_path / "hf.jsonl", *greedy)
    assert [line["raw"] for line in with_vllm] == [line["raw"] for line in expected]
    manifest = json.loads((tmp_path / "vllm.manifest.json").read_text())
    assert manifest["identity"]["engine"] == "vllm"


def test_seeded_candidates_differ_and_a_second_run_repeats_them(
    adapter: Path, tokenizer_model: Model, run_script: RunScript, tmp_path: Path
) -> None:
    """A seed in a request kills vLLM's CPU engine if its prompt is read in chunks: it must not be."""
    first = sample(run_script, tokenizer_model, "vllm", tmp_path / "a.jsonl", "--temperature", 1)
    again = sample(run_script, tokenizer_model, "vllm", tmp_path / "b.jsonl", "--temperature", 1)
    assert first == again
    assert all(line["raw"][0] != line["raw"][1] for line in first)  # type: ignore[index]
