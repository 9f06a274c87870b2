"""infer/generate.py as a user runs it, on a tiny random Llama."""

import json
import shutil
import sys
from pathlib import Path

import pytest

from infer.generate import rows_of_shard
from mlbench_data.files import PROJECT_ROOT
from mlbench_data.models import Model
from mlbench_data.sources import default_benchmark
from tests.helpers import RunScript, error_line, kill_when, read_lines, tiny_llama


def arguments(model: Model, out: Path, *more: object) -> list[str]:
    short = ["--max_new_tokens", "24", "--batch_tokens", "2000"]
    asked = ["--task", "3", "--model", model.location, *short, "--out", str(out)]
    return ["infer/generate.py", *asked, *map(str, more)]


@pytest.fixture(scope="module")
def sampled(tokenizer_model: Model, run_script: RunScript, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole run that nothing disturbed."""
    out = tmp_path_factory.mktemp("candidates") / "whole.jsonl"
    run_script(*arguments(tokenizer_model, out), check=True)
    return out


def test_every_row_has_five_candidates_in_the_order_of_the_rows(sampled: Path) -> None:
    lines = read_lines(sampled)
    rows = default_benchmark().rows("full")
    assert [(line["github_id"], line["id"]) for line in lines] == [tuple(row.key) for row in rows]
    for line in lines:
        assert len(line["output"]) == len(line["raw"]) == len(line["finish"]) == 5


def test_the_manifest_says_how_the_candidates_were_made(sampled: Path, tokenizer_model: Model) -> None:
    manifest = json.loads((sampled.parent / "whole.manifest.json").read_text())
    assert manifest["benchmark_sha256"] == default_benchmark().sha256
    assert manifest["identity"]["weights"] == tokenizer_model.identity()
    assert manifest["identity"]["engine"] == "transformers"
    assert manifest["config"]["temperature"] == 0.8
    assert manifest["cost"]["generated_tokens"] > 0


def test_kill_9_and_the_same_command_give_the_file_of_an_undisturbed_run(
    sampled: Path, tokenizer_model: Model, run_script: RunScript, tmp_path: Path
) -> None:
    out = tmp_path / "killed.jsonl"
    command = [sys.executable, *arguments(tokenizer_model, out)]
    kill_when(command, lambda: out.exists() and out.stat().st_size > 0, PROJECT_ROOT)
    done_before = out.read_bytes().count(b"\n")
    rows = len(default_benchmark().rows("full"))
    assert 0 < done_before < rows
    done = run_script(*arguments(tokenizer_model, out), check=True)
    assert f"sampled {rows - done_before} rows" in done.stdout
    assert out.read_bytes() == sampled.read_bytes()


def test_a_finished_file_is_left_as_it_is(
    sampled: Path, tokenizer_model: Model, run_script: RunScript
) -> None:
    before = sampled.read_bytes()
    done = run_script(*arguments(tokenizer_model, sampled), check=True)
    assert "sampled" not in done.stdout
    assert sampled.read_bytes() == before


def test_other_sampling_never_continues_the_file(
    sampled: Path, tokenizer_model: Model, run_script: RunScript
) -> None:
    before = sampled.read_bytes()
    done = run_script(*arguments(tokenizer_model, sampled, "--temperature", 0.2))
    assert "made with other temperature; give another --out" in error_line(done)
    assert sampled.read_bytes() == before


def test_another_template_never_continues_the_file(
    sampled: Path, tokenizer_model: Model, run_script: RunScript, tmp_path: Path
) -> None:
    template = tmp_path / "template.yaml"
    template.write_text("system: Answer.\nuser: '{readme} {instruction}'\n")
    done = run_script(*arguments(tokenizer_model, sampled, "--prompt_template", template))
    assert "made with other prompt_template, prompts_sha256" in error_line(done)


def test_shards_are_the_rows_once_each() -> None:
    rows = default_benchmark().rows("full")
    for count in (1, 3, 5, len(rows)):
        shards = [rows_of_shard(rows, f"{index}/{count}") for index in range(count)]
        assert [row for shard in shards for row in shard] == rows


def test_an_adapter_changes_the_candidates_and_one_of_another_model_is_refused(
    sampled: Path, tokenizer_model: Model, run_script: RunScript, tmp_path: Path
) -> None:
    recipe = ["--config", "configs/train/smollm2-135m-id-task3.yaml", "--model", tokenizer_model.location]
    adapter = tmp_path / "adapter"
    run_script("train/sft.py", *recipe, "--max_rows", 16, "--output_dir", adapter, check=True)

    out = tmp_path / "tuned.jsonl"
    run_script(*arguments(tokenizer_model, out, "--adapter", adapter, "--split", "quarter"), check=True)
    whole = {(line["github_id"], line["id"]): line["raw"] for line in read_lines(sampled)}
    assert all(whole[line["github_id"], line["id"]] != line["raw"] for line in read_lines(out))

    other = tiny_llama(tmp_path / "other-llama", seed=1)
    settings = ["--task", "3", "--model", str(other), "--adapter", str(adapter)]
    done = run_script("infer/generate.py", *settings, "--out", tmp_path / "other.jsonl")
    assert "an adapter of another model" in error_line(done)
    assert not (tmp_path / "other.jsonl").exists()

    record = json.loads((adapter / "training.json").read_text())
    (adapter / "training.json").write_text(json.dumps({**record, "finished": False}))
    done = run_script(*arguments(tokenizer_model, tmp_path / "early.jsonl", "--adapter", adapter))
    assert "its training is not finished" in error_line(done)
    (adapter / "training.json").write_text(json.dumps(record))

    shutil.move(adapter / "adapter_model.safetensors", tmp_path / "elsewhere")
    done = run_script(*arguments(tokenizer_model, tmp_path / "none.jsonl", "--adapter", adapter))
    assert "adapter_model.safetensors: no such file; the adapter is not complete" in error_line(done)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--model", "codelama-7b-instruct"], "did you mean codellama-7b-instruct?"),
        (["--adapter", "nowhere"], "nowhere/adapter_config.json: No such file"),
        (["--split", "halves"], "split"),
        (["--shard", "4/4"], "expected I/N"),
        (["--n", "0"], "n is 0"),
        (["--top_p", "1.5"], "top_p is 1.5"),
        (["--tempratur", "1"], "did you mean temperature?"),
        (["--max_new_tokens", "9000"], "the context has 8192"),
        (["--benchmark", "LICENSE"], "LICENSE/manifest.json: Not a directory"),
        (["--out", "/proc/nowhere/c.jsonl"], "cannot write there"),
        (["--out", "infer"], "is a folder"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    more: list[str], message: str, tokenizer_model: Model, run_script: RunScript, tmp_path: Path
) -> None:
    done = run_script(*arguments(tokenizer_model, tmp_path / "c.jsonl"), *more)
    assert message in error_line(done)
    assert not list(tmp_path.iterdir())
