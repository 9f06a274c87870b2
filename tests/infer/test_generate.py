"""infer/generate.py as a user runs it, on a tiny random Llama."""

import json
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from infer.candidates import manifest_of
from mlbench_data.adapter import open_adapter
from mlbench_data.bad_input import BadInput
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
    assert manifest["context"] == tokenizer_model.context
    assert manifest["cost"]["generated_tokens"] > 0


def test_kill_9_and_the_same_command_give_the_file_of_an_undisturbed_run(
    sampled: Path, tokenizer_model: Model, run_script: RunScript, tmp_path: Path
) -> None:
    out = tmp_path / "killed.jsonl"
    command = [sys.executable, *arguments(tokenizer_model, out)]
    kill_when(command, lambda: out.exists() and b"\n" in out.read_bytes(), PROJECT_ROOT)
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


def test_a_row_is_shown_beside_its_candidates(sampled: Path, run_script: RunScript) -> None:
    row = default_benchmark().rows("full")[3]
    name = f"{row.key.github_id}/{row.key.id}"
    done = run_script("infer/show.py", sampled, "--row", name, check=True, env={"COLUMNS": "240"})
    assert f"row {name} of {sampled}" in done.stdout.replace("\n", "")
    assert "the row's own answer" in done.stdout
    assert all(f"candidate {number}, " in done.stdout for number in range(1, 6))
    assert row.output.split()[1] in done.stdout
    unknown = run_script("infer/show.py", sampled, "--row", "9/9")
    assert "no row '9/9'" in error_line(unknown)


def test_code_is_taken_out_again_without_sampling(
    sampled: Path, run_script: RunScript, tmp_path: Path
) -> None:
    old, new = tmp_path / "old.jsonl", tmp_path / "new.jsonl"
    lines = read_lines(sampled)
    old.write_text("".join(json.dumps({**line, "output": ["old"] * 5}) + "\n" for line in lines))
    shutil.copy(sampled.with_name("whole.manifest.json"), tmp_path / "old.manifest.json")
    done = run_script("infer/extract.py", old, "--out", new, check=True)
    assert "60 rows in" in done.stdout
    assert read_lines(new) == lines
    assert "is there already" in error_line(run_script("infer/extract.py", sampled, "--out", new))


def test_an_adapter_trained_for_another_template_or_task_is_warned_of(
    tokenizer_model: Model, run_script: RunScript, tmp_path: Path
) -> None:
    template = tmp_path / "template.yaml"
    template.write_text("system: Answer.\nuser: '{readme} {instruction}'\n")
    recipe = ["--config", "configs/train/smollm2-135m-id-task3.yaml", "--model", tokenizer_model.location]
    more = ["--max_rows", 8, "--eval_rows", 0, "--output_dir", tmp_path / "adapter"]
    run_script("train/sft.py", *recipe, *more, check=True)
    asked = ["--adapter", tmp_path / "adapter", "--limit", 2, "--dry_run", "--task", 2]
    asked += ["--prompt_template", template]
    done = run_script(*arguments(tokenizer_model, tmp_path / "c.jsonl", *asked), check=True)
    assert "was trained with another prompt template" in done.stderr
    assert "was trained for task 3" in done.stderr


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


@pytest.mark.slow
def test_ten_kills_at_random_points_lose_and_double_nothing(
    sampled: Path, tokenizer_model: Model, tmp_path: Path, run_script: RunScript
) -> None:
    out = tmp_path / "killed.jsonl"
    command = [sys.executable, *arguments(tokenizer_model, out)]
    chance = random.Random(0)
    for _ in range(10):
        process = subprocess.Popen(
            command, cwd=PROJECT_ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        time.sleep(chance.uniform(0.5, 9))
        process.kill()
        process.wait()
    run_script(*arguments(tokenizer_model, out), check=True)
    assert out.read_bytes() == sampled.read_bytes()


def test_a_dry_run_shows_the_first_prompt_and_writes_nothing(
    tokenizer_model: Model, run_script: RunScript, tmp_path: Path
) -> None:
    done = run_script(*arguments(tokenizer_model, tmp_path / "c.jsonl", "--task", 1, "--dry_run"), check=True)
    row = default_benchmark().rows("full")[0]
    assert row.instruction in done.stdout
    assert "60 rows × 5 candidates of up to 24 tokens" in done.stdout
    assert "cut: 0 rows" in done.stdout
    assert not list(tmp_path.iterdir())


def test_a_few_rows_for_a_quick_look(tokenizer_model: Model, run_script: RunScript, tmp_path: Path) -> None:
    rows = default_benchmark().rows("full")
    wanted = [rows[7].key, rows[2].key]
    names = [f"{key.github_id}/{key.id}" for key in wanted]
    run_script(*arguments(tokenizer_model, tmp_path / "rows.jsonl", "--rows", *names), check=True)
    lines = read_lines(tmp_path / "rows.jsonl")
    assert [(line["github_id"], line["id"]) for line in lines] == [tuple(rows[2].key), tuple(rows[7].key)]


def test_several_adapters_and_none_on_one_base(
    sampled: Path, tokenizer_model: Model, run_script: RunScript, tmp_path: Path
) -> None:
    recipe = ["--config", "configs/train/smollm2-135m-id-task3.yaml", "--model", tokenizer_model.location]
    for name, seed in (("one", 1), ("two", 2)):
        more = ["--max_rows", 16, "--eval_rows", 0, "--learning_rate", 0.02, "--seed", seed]
        run_script("train/sft.py", *recipe, *more, "--output_dir", tmp_path / name, check=True)
    several = ["--adapter", "none", tmp_path / "one", tmp_path / "two", "--limit", 6]
    run_script(*arguments(tokenizer_model, tmp_path / "{adapter}.jsonl", *several), check=True)
    raw = {name: [line["raw"] for line in read_lines(tmp_path / f"{name}.jsonl")] for name in
           ("none", "one", "two")}  # fmt: skip
    assert all(len(lines) == 6 for lines in raw.values())
    assert raw["none"] != raw["one"] != raw["two"] != raw["none"]

    alone = ["--adapter", tmp_path / "two", "--limit", 6]
    run_script(*arguments(tokenizer_model, tmp_path / "alone.jsonl", *alone), check=True)
    assert (tmp_path / "alone.jsonl").read_bytes() == (tmp_path / "two.jsonl").read_bytes()


def test_copies_in_parallel_answer_every_row_once(
    tokenizer_model: Model, run_script: RunScript, tmp_path: Path
) -> None:
    out = tmp_path / "all.jsonl"
    run_script(*arguments(tokenizer_model, out, "--split", "quarter", "--data_parallel", 2), check=True)
    rows = default_benchmark().rows("quarter")
    assert [(line["github_id"], line["id"]) for line in read_lines(out)] == [tuple(row.key) for row in rows]
    manifest = json.loads((tmp_path / "all.manifest.json").read_text())
    assert manifest["identity"]["shard"] == "0/1"
    before = out.read_bytes()
    for more in ([], ["--data_parallel", 2]):
        again = run_script(*arguments(tokenizer_model, out, "--split", "quarter", *more), check=True)
        assert "sampled" not in again.stdout
        assert out.read_bytes() == before


def test_copies_do_not_sample_for_a_file_that_holds_something_else(
    sampled: Path, tokenizer_model: Model, run_script: RunScript, tmp_path: Path
) -> None:
    """What is wrong with the output is said before an hour of sampling, not after it."""
    out = tmp_path / "begun.jsonl"
    out.write_bytes(b"".join(sampled.read_bytes().splitlines(keepends=True)[:3]))
    manifest = json.loads(manifest_of(sampled).read_text())
    manifest_of(out).write_text(json.dumps({**manifest, "finished": False}))
    done = run_script(*arguments(tokenizer_model, out, "--data_parallel", 2))
    assert "holds 3 rows that one process has sampled" in error_line(done)
    done = run_script(*arguments(tokenizer_model, out, "--data_parallel", 2, "--seed", 9))
    assert "made with other seed" in error_line(done)
    assert not list(tmp_path.glob("*part*"))


def test_copies_end_with_the_run_that_is_killed_and_the_same_command_continues(
    tokenizer_model: Model, run_script: RunScript, tmp_path: Path
) -> None:
    out = tmp_path / "all.jsonl"
    asked = arguments(tokenizer_model, out, "--split", "quarter", "--data_parallel", 2)
    part = tmp_path / "all.part0of2.jsonl"
    kill_when([sys.executable, *asked], lambda: part.exists() and b"\n" in part.read_bytes(), PROJECT_ROOT)
    kept = part.read_bytes()
    run_script(*asked, check=True)
    assert set(kept.splitlines()[: kept.count(b"\n")]) <= set(out.read_bytes().splitlines())
    assert not part.exists()
    assert len(read_lines(out)) == len(default_benchmark().rows("quarter"))


@pytest.mark.parametrize(
    ("settings", "record", "wrong"),
    [
        ({"r": 8}, None, "peft_type is not LORA"),
        ({"r": 8, "peft_type": "LORA"}, {"finished": True, "identity": {}}, "does not say what was trained"),
        ({"r": 8, "peft_type": "LORA"}, {"finished": True, "identity": []}, "does not say what was trained"),
    ],
)
def test_an_adapter_that_is_damaged_is_refused(
    tokenizer_model: Model, tmp_path: Path, settings: object, record: object, wrong: str
) -> None:
    (tmp_path / "adapter_model.safetensors").touch()
    (tmp_path / "adapter_config.json").write_text(json.dumps(settings))
    if record:
        (tmp_path / "training.json").write_text(json.dumps(record))
    with pytest.raises(BadInput, match=wrong):
        open_adapter(str(tmp_path), tokenizer_model)


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
        (["--limit", "0"], "limit is 0"),
        (["--rows", "1/999"], "no row '1/999' in this split; its first is"),
        (["--rows", "1"], "rows have the id 1: say which"),
        (["--adapter", "none", "nowhere"], "for 2 adapters; write {adapter} in it"),
        (["--engine", "openai"], "needs --base_url"),
        (["--base_url", "http://a:b@localhost/v1"], "set OPENAI_API_KEY instead"),
        (["--base_url", "localhost:8000"], "expected an address such as"),
        (["--base_url", "http://localhost/v1", "--engine", "vllm"], "leave one of them out"),
        (["--quantization", "int8", "--engine", "vllm"], "use transformers"),
        (["--quantization", "fp8", "--engine", "transformers"], "use vllm"),
        (["--max_num_seqs", 4, "--engine", "transformers"], "max_num_seqs is 4 and engine transformers"),
        (["--gpu_memory_utilization", 1.5], "gpu_memory_utilization is 1.5"),
        (["--data_parallel", "99"], "data_parallel is 99"),
        (["--stop", ""], "stop is"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    more: list[str], message: str, tokenizer_model: Model, run_script: RunScript, tmp_path: Path
) -> None:
    done = run_script(*arguments(tokenizer_model, tmp_path / "c.jsonl"), *more)
    assert message in error_line(done)
    assert not list(tmp_path.iterdir())
