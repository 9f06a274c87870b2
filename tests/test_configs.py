"""Every shipped YAML is parsed by the very code of the script that it is for."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from mlbench_data.cli import parse
from mlbench_data.files import PROJECT_ROOT
from mlbench_data.models import resolve_model

CONFIGS = PROJECT_ROOT / "configs"


def train_config() -> Any:
    from train.sft import TrainConfig

    return TrainConfig


def eval_config() -> Any:
    from eval.config import EvalConfig

    return EvalConfig


def generate_config() -> Any:
    from infer.generate import GenerateConfig

    return GenerateConfig


SCRIPTS: dict[str, Callable[[], Any]] = {
    "train": train_config, "eval": eval_config, "infer": generate_config,
}  # fmt: skip
COMMANDS = {"train": "train/sft.py", "eval": "eval/run.py", "infer": "infer/generate.py"}
FILES = sorted(path for folder in SCRIPTS for path in (CONFIGS / folder).glob("*.yaml"))


def name_of(path: Path) -> str:
    return str(path.relative_to(CONFIGS))


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_a_config_parses_and_every_value_arrives(path: Path) -> None:
    config = parse(SCRIPTS[path.parent.name](), "", ["--config", str(path)])
    values = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert {name: getattr(config, name) for name in values} == values


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_a_config_begins_with_the_command_that_uses_it(path: Path) -> None:
    head = path.read_text(encoding="utf-8").split("\n\n")[0]
    assert all(line.startswith("#") for line in head.splitlines())
    assert f"{COMMANDS[path.parent.name]} --config configs/{name_of(path)}" in head


@pytest.mark.parametrize("path", [file for file in FILES if file.parent.name != "eval"], ids=name_of)
def test_a_config_names_a_model_that_there_is(path: Path) -> None:
    config = parse(SCRIPTS[path.parent.name](), "", ["--config", str(path)])
    assert resolve_model(config.model).name == config.model


@pytest.mark.parametrize("folder", SCRIPTS)
def test_the_command_line_comes_before_the_file(folder: str, tmp_path: Path) -> None:
    field = "seed" if folder != "eval" else "workers"
    (tmp_path / "config.yaml").write_text(f"{field}: 3\n")
    kind = SCRIPTS[folder]()
    assert getattr(parse(kind, "", ["--config", str(tmp_path / "config.yaml")]), field) == 3
    both = ["--config", str(tmp_path / "config.yaml"), f"--{field}", "4"]
    assert getattr(parse(kind, "", both), field) == 4


@pytest.mark.parametrize(
    ("folder", "misspelt", "nearest"),
    [
        ("train", "learning_rat: 0.1", "learning_rate"),
        ("eval", "timeuot: 3", "timeout"),
        ("infer", "temprature: 0.1", "temperature"),
    ],
)
def test_a_misspelt_key_is_refused_with_the_nearest(
    folder: str, misspelt: str, nearest: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.yaml").write_text(misspelt + "\n")
    with pytest.raises(SystemExit) as stop:
        parse(SCRIPTS[folder](), "", ["--config", str(tmp_path / "config.yaml")])
    assert stop.value.code == 2
    name = misspelt.split(":")[0]
    assert capsys.readouterr().err == f"error: unknown option '{name}'; did you mean {nearest}?\n"


@pytest.mark.parametrize(
    ("folder", "wrong"), [("train", "task: 4"), ("train", "batch_size: many"), ("infer", "engine: tensorrt")]
)
def test_a_wrong_value_is_one_line_that_names_the_key(
    folder: str, wrong: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.yaml").write_text(wrong + "\n")
    with pytest.raises(SystemExit) as stop:
        parse(SCRIPTS[folder](), "", ["--config", str(tmp_path / "config.yaml")])
    assert stop.value.code == 2
    written = capsys.readouterr().err
    assert written.startswith("error: ")
    assert wrong.split(":")[0] in written
    assert written.count("\n") == 1


def test_a_missing_config_is_one_line_that_names_it(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        parse(generate_config(), "", ["--config", "missing.yaml"])
    assert stop.value.code == 2
    written = capsys.readouterr().err
    assert "missing.yaml" in written
    assert written.count("\n") == 1


@pytest.mark.parametrize("folder", SCRIPTS)
def test_help_explains_every_field(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    kind = SCRIPTS[folder]()
    with pytest.raises(SystemExit) as stop:
        parse(kind, "", ["--help"])
    assert stop.value.code == 0
    words = [entry.split("(type:")[0].split() for entry in capsys.readouterr().out.split("\n  --")]
    explained = {flag: meaning for flag, _, *meaning in words}
    for field in dataclasses.fields(kind):
        assert len(explained[field.name]) >= 2, field.name
