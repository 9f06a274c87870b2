"""The paper's three models as the hub has them, with tiny weights, from their rows to merged weights."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from benchmarks.hub_cache import NAMES, folder_of
from benchmarks.paper_sweep import PaperSweepConfig, sweep_of
from infer import extract
from infer.engines.interface import Sampling, requests_of
from infer.engines.transformers_engine import TransformersEngine
from mlbench_data.adapter import open_adapter
from mlbench_data.cli import parse
from mlbench_data.files import read_json
from mlbench_data.models import load_tokenizer, resolve_model
from mlbench_data.prompts import PromptBuilder
from mlbench_data.sources import benchmark_named
from mlbench_data.template import read_template, render_template
from slurm.jobs import jobs_of
from slurm.sweep import cells_of
from tests.helpers import RunScript, read_lines
from train import merge, sft

GREEDY = Sampling(n=1, temperature=0, top_p=1, max_new_tokens=16, seed=0)
TINY = ["--dtype", "float32", "--max_rows", "12", "--eval_rows", "4", "--max_steps", "1"]


def by_folder(hub: Path, name: str, tmp_path: Path) -> str:
    """A copy of the model's files under a name that no library knows."""
    shutil.copytree(folder_of(hub, NAMES[name]), tmp_path / "weights")
    return str(tmp_path / "weights")


def answers(model: str, adapter: Path | None, rows: int = 4) -> list[str]:
    """What the transformers engine answers to the first rows of MiniBench."""
    found = resolve_model(model)
    builder = PromptBuilder(load_tokenizer(found), found, read_template(None), 3, 256)
    benchmark = benchmark_named("mini")
    prompts = builder.prompts(benchmark.rows("full")[:rows], benchmark, "full")
    engine = TransformersEngine(found, 8192, "none", False)
    engine.use(open_adapter(str(adapter), found) if adapter else None)
    answered = {
        answer.index: answer.completions[0].text
        for batch in engine.sample(requests_of(prompts, 0), (), GREEDY)
        for answer in batch
    }
    return [answered[index] for index in range(rows)]


@pytest.mark.parametrize("name", NAMES)
def test_a_prompt_is_what_the_tokenizers_library_makes_of_its_text(name: str, hub: Path) -> None:
    model = resolve_model(name)
    tokenizer = load_tokenizer(model)
    builder = PromptBuilder(tokenizer, model, read_template(None), 3, 256)
    benchmark = benchmark_named("mini")
    words = render_template(builder.template, tokenizer, model.format)
    for row, prompt in zip(
        benchmark.rows("full"), builder.prompts(benchmark.rows("full"), benchmark, "full"), strict=True
    ):
        text = words.before + row.oracle + words.between + row.instruction + words.after
        assert prompt.token_ids == words.start + tokenizer(text, add_special_tokens=False).input_ids
        assert text.removeprefix(tokenizer.bos_token) in tokenizer.decode(prompt.token_ids)


@pytest.mark.parametrize("name", NAMES)
def test_training_and_merging_by_name_and_by_folder_are_one(name: str, hub: Path, tmp_path: Path) -> None:
    """A step of the paper's recipe, and the merged weights with their own tokenizer answer alike."""
    model = by_folder(hub, name, tmp_path)
    found: dict[str, Any] = {}
    for given in (name, model):
        adapter = tmp_path / f"adapter-{Path(given).name}"
        recipe = ["--config", f"configs/train/paper/{name}-id-task3.yaml", *TINY]
        words = [*recipe, "--benchmark", "mini", "--model", given, "--output_dir", str(adapter)]
        assert sft.main(parse(sft.TrainConfig, "", words)) == 0
        found[given] = answers(given, adapter)
    merged = tmp_path / "merged"
    assert merge.main(merge.MergeConfig(str(tmp_path / f"adapter-{name}"), str(merged))) == 0
    assert found[name] == found[model] == answers(str(merged), None)
    assert read_json(merged / "tokenizer_config.json", "")["tokenizer_class"] == "PreTrainedTokenizerFast"


@pytest.mark.slow
def test_deepseek_through_vllm_says_what_it_says_through_transformers(
    hub: Path, run_script: RunScript, tmp_path: Path
) -> None:
    """vLLM's own tokenizer for this folder decodes its bytes as characters, and its spaces as Ġ. Extraction
    finds the same code in both.
    """
    model = by_folder(hub, "deepseek-coder-6.7b-base", tmp_path)
    asked = ["--model", model, "--limit", 4, "--n", 1, "--temperature", 0, "--max_new_tokens", 16]
    found = {}
    for engine, more in (("vllm", ["--max_num_seqs", 2]), ("transformers", [])):
        out = tmp_path / f"{engine}.jsonl"
        words = ["infer/generate.py", *asked, "--engine", engine, *more, "--out", out]
        run_script(*words, check=True, timeout=600)
        code = tmp_path / f"{engine}-code.jsonl"
        assert extract.main(extract.ExtractConfig([str(out)], str(code))) == 0
        lines = read_lines(code)
        found[engine] = [(line["raw"], line["output"], line["finish"]) for line in lines]
    assert found["vllm"] == found["transformers"]
    assert [raw for [raw], _, _ in found["vllm"]] == answers(model, None)


def test_the_dry_sweep_is_the_papers(tmp_path: Path) -> None:
    """All its cells and adapters, by the models' own names."""
    sweep = sweep_of(PaperSweepConfig(), tmp_path)
    jobs = jobs_of(sweep, cells_of(sweep))
    stages = [job.stage for job in jobs]
    assert (len(cells_of(sweep)), stages.count("train"), stages.count("collect")) == (27, 18, 27)
    assert {cell.given_model for cell in cells_of(sweep)} == set(NAMES)
    assert {cell.engine for cell in cells_of(sweep)} == {"vllm"}
