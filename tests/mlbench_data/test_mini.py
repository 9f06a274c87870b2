"""MiniBench is what it says: enough rows, no leak, true oracles, and what makes the real benchmark hard."""

import re
from pathlib import Path

import pytest
import yaml

from mlbench_data.bad_input import BadInput
from mlbench_data.mini.generate import generate_rows
from mlbench_data.mini.specification import (
    REPOSITORIES,
    SPECIFICATION,
    Repository,
    Task,
    fill,
    read_specification,
)
from mlbench_data.models import load_tokenizer, resolve_model
from mlbench_data.readmes import readme_text
from mlbench_data.rows import BASH, PYTHON, Row, parse_row
from mlbench_data.splits import check_disjoint


@pytest.fixture(scope="module")
def repositories() -> list[Repository]:
    return read_specification()


@pytest.fixture(scope="module")
def splits(repositories: list[Repository]) -> dict[str, list[Row]]:
    return generate_rows(repositories, seed=0)


def all_rows(splits: dict[str, list[Row]]) -> list[Row]:
    return [row for rows in splits.values() for row in rows]


def folder_of(row: Row) -> Path:
    return REPOSITORIES / row.repository


# --- size


def test_there_are_eight_repositories_of_which_two_are_for_ood_training(
    repositories: list[Repository],
) -> None:
    assert len(repositories) >= 8
    assert sum(item.role == "test" for item in repositories) >= 6
    assert sum(item.role == "ood" for item in repositories) >= 2
    assert len({item.domain for item in repositories}) >= 6
    assert len({item.github_id for item in repositories}) == len(repositories)
    assert all((REPOSITORIES / item.name / item.readme).is_file() for item in repositories)


def test_the_splits_are_large_enough(splits: dict[str, list[Row]]) -> None:
    assert len(splits["full"]) >= 60
    assert len(splits["id_train"]) >= 800
    assert len(splits["ood_train"]) >= 250


def test_every_row_is_valid_and_has_its_own_key(splits: dict[str, list[Row]]) -> None:
    rows = all_rows(splits)
    assert len({row.key for row in rows}) == len(rows)
    assert all(parse_row(row.as_dict(), "generated") == row for row in rows)


def test_both_types_are_asked_in_test_and_training(splits: dict[str, list[Row]]) -> None:
    for rows in splits.values():
        counts = {kind: sum(row.type == kind for row in rows) for kind in (BASH, PYTHON)}
        assert min(counts.values()) >= 5, counts


# --- no leak


@pytest.mark.parametrize("seed", [0, 1])
def test_no_training_row_asks_what_a_test_row_asks(repositories: list[Repository], seed: int) -> None:
    splits = generate_rows(repositories, seed)
    for split in ("id_train", "ood_train"):
        check_disjoint(splits[split], splits["full"], split)
    asked = [(row.repository, row.repo_id, row.path, row.arguments) for row in all_rows(splits)]
    assert len(set(asked)) == len(asked)


def test_ood_repositories_are_never_tested(
    repositories: list[Repository], splits: dict[str, list[Row]]
) -> None:
    tested = {item.name for item in repositories if item.role == "test"}
    assert {row.repository for row in splits["full"]} == tested
    assert {row.repository for row in splits["id_train"]} == tested
    assert not {row.repository for row in splits["ood_train"]} & tested


def pattern_of(template: str) -> re.Pattern[str]:
    return re.compile("(.+)".join(re.escape(part) for part in re.split(r"\{\w+\}", template)))


def test_the_last_phrasing_of_a_task_is_asked_in_test_only(
    repositories: list[Repository], splits: dict[str, list[Row]]
) -> None:
    training = [row.instruction for row in splits["id_train"] + splits["ood_train"]]
    tests = [row.instruction for row in splits["full"]]
    for repository in repositories:
        for task in repository.tasks:
            kept = pattern_of(task.instructions[-1])
            assert not any(map(kept.fullmatch, training)), (repository.name, task.name)
            assert repository.role == "ood" or any(map(kept.fullmatch, tests)), (repository.name, task.name)
            trained = [pattern_of(template) for template in task.instructions[:-1]]
            assert all(any(map(other.fullmatch, training)) for other in trained), (repository.name, task.name)


def test_no_instruction_is_asked_twice(splits: dict[str, list[Row]]) -> None:
    asked = [(row.repository, row.instruction) for row in all_rows(splits)]
    assert len(set(asked)) == len(asked)


# --- truth


def test_every_oracle_stands_verbatim_in_a_readme_of_its_repository(splits: dict[str, list[Row]]) -> None:
    pages = {
        folder.name: [path.read_text(encoding="utf-8") for path in folder.rglob("README*.md")]
        for folder in REPOSITORIES.iterdir()
    }
    for row in {(row.repository, row.oracle): row for row in all_rows(splits)}.values():
        assert row.oracle
        assert any(row.oracle in page for page in pages[row.repository]), (row.repository, row.oracle[:60])


def test_no_oracle_holds_an_answer(splits: dict[str, list[Row]]) -> None:
    for row in all_rows(splits):
        assert row.output not in row.oracle, row.key


def test_every_answer_holds_the_values_of_its_arguments(splits: dict[str, list[Row]]) -> None:
    for row in all_rows(splits):
        missing = [value for value in row.parameters().values() if value not in row.output]
        assert row.parameters(), row.key
        assert not missing, (row.key, missing, row.output)


def test_no_placeholder_is_left_unfilled(
    repositories: list[Repository], splits: dict[str, list[Row]]
) -> None:
    names = {name for item in repositories for task in item.tasks for name in task.parameters}
    left = re.compile(r"\{(" + "|".join(sorted(names)) + r")\}")
    for row in all_rows(splits):
        for text in (row.instruction, row.output, row.arguments, row.prefix_code):
            assert not left.search(text), (row.key, text)


def test_answers_run_in_a_folder_of_their_repository(splits: dict[str, list[Row]]) -> None:
    for row in all_rows(splits):
        assert (folder_of(row) / row.path).is_dir(), (row.key, row.path)


def test_scripts_of_bash_answers_exist(splits: dict[str, list[Row]]) -> None:
    for row in all_rows(splits):
        if row.type == BASH:
            scripts = re.findall(r"[\w./-]+\.(?:py|sh)\b", row.output)
            assert scripts, row.output
            assert (folder_of(row) / row.path / scripts[0]).is_file(), (row.key, scripts[0])


def test_python_answers_parse(splits: dict[str, list[Row]]) -> None:
    for row in all_rows(splits):
        if row.type == PYTHON:
            compile(row.output, str(row.key), "exec")


# --- what makes it hard


def test_a_readme_is_longer_than_six_thousand_tokens(repositories: list[Repository]) -> None:
    tokenizer = load_tokenizer(resolve_model("smollm2-135m"))
    lengths = {}
    for item in repositories:
        page = (REPOSITORIES / item.name / item.readme).read_text(encoding="utf-8")
        lengths[item.name] = len(tokenizer(readme_text(page), add_special_tokens=False).input_ids)
    assert max(lengths.values()) > 6000, lengths


def test_a_readme_lies_in_a_subfolder(repositories: list[Repository]) -> None:
    assert any("/" in item.readme for item in repositories)


def test_values_are_often_said_in_other_words(repositories: list[Repository]) -> None:
    tasks = [task for item in repositories for task in item.tasks]
    reworded = [
        task for task in tasks
        if any(value != words for pairs in task.parameters.values() for value, words in pairs.items())
    ]  # fmt: skip
    assert len(reworded) >= len(tasks) / 2


def test_some_choices_are_case_sensitive(repositories: list[Repository]) -> None:
    values = {
        value for item in repositories for task in item.tasks for pairs in task.parameters.values()
        for value in pairs
    }  # fmt: skip
    assert any(value != value.lower() for value in values)


def test_some_values_must_be_combined(repositories: list[Repository]) -> None:
    combined = [
        argument for item in repositories for task in item.tasks for argument in task.arguments.values()
        if "{" in argument and not re.fullmatch(r"\{\w+\}", argument)
    ]  # fmt: skip
    assert len(combined) >= 3


def test_some_rows_prepare_their_environment(splits: dict[str, list[Row]]) -> None:
    assert any(row.prefix_code for row in splits["full"])


# --- the specification


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda spec: spec.pop("domain"), r"spec\.yaml: keys unknown or missing: domain;"),
        (lambda spec: spec.update(licence="MIT"), r"spec\.yaml: keys unknown or missing: licence;"),
        (lambda spec: spec.update(role="train"), r"spec\.yaml: role is 'train'; expected test or ood"),
        (
            lambda spec: spec["tasks"][1].pop("oracle"),
            r"spec\.yaml: task 2: keys unknown or missing: oracle;",
        ),
        (lambda spec: spec["tasks"][0].update(anser="x"), r"spec\.yaml: task 1: keys .* anser;"),
        (lambda spec: spec["tasks"].append("text"), r"spec\.yaml: task \d+: keys unknown or missing: answer"),
        (
            lambda spec: spec["tasks"][0].update(instructions=["Only one."]),
            r"spec\.yaml: task 1: instructions has 1 entry; expected at least 2",
        ),
        (
            lambda spec: spec["tasks"][0].update(type="Bash"),
            r"spec\.yaml: task 1: type is 'Bash'; expected 'Bash Script' or 'Python Code'",
        ),
    ],
)
def test_a_wrong_specification_names_file_and_key(tmp_path: Path, change, error: str) -> None:  # type: ignore[no-untyped-def]
    specification = yaml.safe_load((SPECIFICATION / "graphkit.yaml").read_text(encoding="utf-8"))
    change(specification)
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump(specification))
    with pytest.raises(BadInput, match=error):
        read_specification(tmp_path)


def test_a_specification_that_is_no_yaml_names_file_and_line(tmp_path: Path) -> None:
    (tmp_path / "spec.yaml").write_text("github_id: 1\ntasks: [\n")
    with pytest.raises(BadInput, match=r"spec\.yaml:\d+: not YAML"):
        read_specification(tmp_path)


def test_only_named_placeholders_are_filled() -> None:
    assert fill("{a}-{b} f'{c}' {{a}}", {"a": "1", "b": "2"}) == "1-2 f'{c}' {1}"


def test_rows_use_each_combination_of_values_once() -> None:
    task = Task(
        name="t", repo_id=1, type=BASH, path=".", parameters={"a": {"1": "one", "2": "two"}, "b": {"x": "x"}},
        oracle="o", answer="run {a} {b}", instructions=["{a} with {b}", "use {a}, {b}"],
        arguments={"both": "{a}/{b}"},
    )  # fmt: skip
    assert task.combinations() == [{"a": "1", "b": "x"}, {"a": "2", "b": "x"}]
    assert task.required({"a": "2", "b": "x"}) == {"both": "2/x"}
    assert task.instruction("{a} with {b}", {"a": "2", "b": "x"}) == "two with x"
    repository = Repository("r", 1, "https://example.org/r", "Text", "test", "README.md", [task])
    rows = generate_rows([repository], seed=0)["full"]
    assert sorted(row.output for row in rows) == ["run 1 x", "run 2 x"]
