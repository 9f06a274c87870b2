"""MiniBench's rows from its specification: the splits are disjoint in (repository, task, arguments)."""

import random

from mlbench_data.mini.specification import Repository, Task, Values, fill
from mlbench_data.rows import Row

TEST_ROWS_PER_REPOSITORY = 10
TRAIN_ROWS_PER_TASK = 40


def generate_rows(repositories: list[Repository], seed: int) -> dict[str, list[Row]]:
    """The rows of `full`, `id_train` and `ood_train`, each repository's ids counted from 1.

    A combination of values is used for one row only, so no training row has a test row's arguments.
    The order of training rows is shuffled across repositories: a prefix of it is a fair sample.
    """
    splits: dict[str, list[Row]] = {"full": [], "id_train": [], "ood_train": []}
    for repository in repositories:
        next_id = 1
        tasks = len(repository.tasks)
        for place, task in enumerate(repository.tasks):
            randomness = random.Random(f"{seed}/{repository.name}/{task.name}")
            combinations = task.combinations()
            randomness.shuffle(combinations)
            share = (
                TEST_ROWS_PER_REPOSITORY * (place + 1) // tasks - TEST_ROWS_PER_REPOSITORY * place // tasks
            )
            test_rows = share if repository.role == "test" else 0
            train_split = "id_train" if repository.role == "test" else "ood_train"
            for number, values in enumerate(combinations[: test_rows + TRAIN_ROWS_PER_TASK]):
                is_test = number < test_rows
                template = _instruction_template(task, number, is_test)
                row = _row(repository, task, values, template, next_id)
                splits["full" if is_test else train_split].append(row)
                next_id += 1
    for split in ("id_train", "ood_train"):
        random.Random(f"{seed}/{split}").shuffle(splits[split])
    return splits


def _instruction_template(task: Task, number: int, is_test: bool) -> str:
    """Test rows go through every template from the last on, training rows through all but the last."""
    if is_test:
        return task.instructions[-1 - number % len(task.instructions)]
    return task.instructions[number % (len(task.instructions) - 1)]


def _row(repository: Repository, task: Task, values: Values, template: str, row_id: int) -> Row:
    return Row(
        github_id=repository.github_id,
        github=repository.github,
        repo_id=task.repo_id,
        id=row_id,
        path=task.path,
        arguments=repr(task.required(values)),
        instruction=task.instruction(template, values),
        oracle=task.oracle,
        type=task.type,
        prefix_code=fill(task.prefix_code, values),
        output=fill(task.answer, values),
    )
