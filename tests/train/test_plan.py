"""What --dry_run says, and the paper's runs as configurations."""

import dataclasses
from collections import Counter
from pathlib import Path

import pytest
from transformers import LlamaConfig

from mlbench_data.cli import parse
from mlbench_data.files import PROJECT_ROOT
from mlbench_data.models import Model, load_tokenizer, resolve_model
from train.config import TrainConfig, check_config
from train.memory import GIB, estimate
from train.plan import Plan, largest_case, make_plan
from train.sft import load_examples, main, split_examples
from train.steps import readme_of

PAPER = sorted((PROJECT_ROOT / "configs" / "train" / "paper").glob("*.yaml"))
OTHERS = sorted((PROJECT_ROOT / "configs" / "train").glob("*.yaml"))
GPU = 80 * GIB


def config_of(path: Path, *more: str) -> TrainConfig:
    return parse(TrainConfig, "", ["--config", str(path), *more])


@pytest.fixture(scope="module")
def hub_model(tokenizer_model: Model, tmp_path_factory: pytest.TempPathFactory) -> Model:
    """What a paper's model is before its weights are there: its configuration, and some tokenizer."""
    folder = tmp_path_factory.mktemp("hub") / "no-weights"
    load_tokenizer(tokenizer_model).save_pretrained(folder)
    return dataclasses.replace(tokenizer_model, location=str(folder))


def planned(config: TrainConfig, model: Model) -> Plan:
    training, _ = split_examples(load_examples(config, model), config.eval_rows)
    return make_plan(config, training, 1)


@pytest.mark.parametrize("path", [*PAPER, *OTHERS], ids=lambda path: path.stem)
def test_a_configuration_says_what_its_name_says(path: Path) -> None:
    config = config_of(path)
    check_config(config)
    model, split, task = path.stem.rsplit("-", 2)
    assert (config.model, config.split, config.task) == (model, f"{split}_train", int(task[-1]))
    assert config.output_dir == f"runs/sft/{path.stem}"
    assert str(path.relative_to(PROJECT_ROOT)) in path.read_text()


def test_the_papers_table_is_there() -> None:
    """Table 1: three models, ID and OOD, tasks 1 to 3, of which it left task 1 empty."""
    models = ("codellama-7b-instruct", "deepseek-coder-6.7b-base", "llama-2-7b")
    wanted = {
        f"{model}-{split}-task{task}" for model in models for split in ("id", "ood") for task in (1, 2, 3)
    }
    assert {path.stem for path in PAPER} == wanted
    assert {config_of(path).dtype for path in PAPER} == {"bfloat16"}


@pytest.mark.parametrize("path", PAPER, ids=lambda path: path.stem)
def test_a_run_of_the_paper_fits_on_one_gpu(path: Path, hub_model: Model, tmp_path: Path) -> None:
    """Planned with the shapes of the paper, another tokenizer and the rows of MiniBench."""
    card = resolve_model(config_of(path).model)
    assert card.shape is not None
    shape = LlamaConfig(**dataclasses.asdict(card.shape))
    shape.save_pretrained(hub_model.location)
    config = config_of(
        path, "--benchmark", "mini", "--max_rows", "256", "--output_dir", str(tmp_path / "out")
    )
    model = dataclasses.replace(hub_model, context=card.context, lora_targets=card.lora_targets)
    plan = planned(config, model)
    assert plan.steps >= 2
    rows = Counter(readme_of(row) for step in plan.rows_of_steps() for row in step)
    fair = max(1 / config.prefixes_per_step, max(rows.values()) / rows.total())
    assert plan.mixture().largest_share <= 2 * fair  # two steps an epoch: groups do not divide evenly
    case = largest_case(config, model, plan)
    assert case.tokens <= config.pack_tokens
    needed = estimate(case)
    assert 12.5 * GIB < needed.weights < 12.7 * GIB  # 6.7 billion weights in two bytes each
    assert needed.total < GPU
    assert not (tmp_path / "out").exists()


def test_a_dry_run_prints_everything_and_writes_nothing(
    tokenizer_model: Model, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = PROJECT_ROOT / "configs" / "train" / "smollm2-135m-id-task1.yaml"
    out = tmp_path / "planned"
    assert (
        main(
            config_of(
                path, "--model", tokenizer_model.location, "--output_dir", str(out), "--dry_run", "true"
            )
        )
        == 0
    )
    printed = capsys.readouterr().out
    for wanted in (
        "model ",
        "248 for training, 8 for evaluation",
        "unique tokens after sharing",
        "times fewer",
        "33 of 1 packs",
        "7.5 rows, at most 8 in a group; 1.0 different READMEs",
        "no README has more than 100.0% of a step's rows",
        "total",
    ):
        assert wanted in printed, wanted
    assert not out.exists()


def test_sharing_is_what_makes_task_1_cheap(tokenizer_model: Model) -> None:
    config = TrainConfig(model=tokenizer_model.location, task=1, max_rows=120, batch_size=32, group_size=32)
    shared = planned(config, tokenizer_model)
    plain = planned(dataclasses.replace(config, prefix_sharing=False), tokenizer_model)
    tokens = [sum(pack.tokens for pack in plan.packs) for plan in (shared, plain)]
    assert tokens[1] > 8 * tokens[0]
