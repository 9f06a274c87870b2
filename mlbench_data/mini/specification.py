"""MiniBench's specification: what each small repository can be asked, as typed data read from YAML."""

import itertools
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from mlbench_data.bad_input import BadInput
from mlbench_data.files import read_yaml
from mlbench_data.rows import BASH, PYTHON

MINI = Path(__file__).resolve().parent
REPOSITORIES = MINI / "repositories"
SPECIFICATION = MINI / "specification"

Values = dict[str, str]


@dataclass(frozen=True)
class Task:
    """One thing a repository can do: parameters with candidate values, and templates over them.

    `parameters` maps a name to {value: the words an instruction uses for it}.
    `arguments` are the required parameters of a row, as templates over the values.
    The last of `instructions` is kept for test rows, so that no test phrasing is trained on.
    """

    name: str
    repo_id: int
    type: str
    path: str
    parameters: dict[str, Values]
    oracle: str
    answer: str
    instructions: list[str]
    arguments: dict[str, str] = field(default_factory=dict)
    prefix_code: str = ""

    def combinations(self) -> list[Values]:
        """Every choice of one value for each parameter, in the specification's order."""
        names = list(self.parameters)
        return [
            dict(zip(names, choice, strict=True)) for choice in itertools.product(*self.parameters.values())
        ]

    def required(self, values: Values) -> Values:
        """The `arguments` of a row with these values."""
        templates = self.arguments or {name: "{" + name + "}" for name in self.parameters}
        return {name: fill(template, values) for name, template in templates.items()}

    def instruction(self, template: str, values: Values) -> str:
        """An instruction, with the words for each value instead of the value."""
        return fill(template, {name: self.parameters[name][value] for name, value in values.items()})


@dataclass(frozen=True)
class Repository:
    """One MiniBench repository and its tasks. `readme` is the page that task 1 reads."""

    name: str
    github_id: int
    github: str
    domain: str
    role: str
    readme: str
    tasks: list[Task]


def fill(template: str, values: Values) -> str:
    """Replaces `{name}` by its value for these names only: other braces are code and stay."""
    for name, value in values.items():
        template = template.replace("{" + name + "}", value)
    return template


def read_specification(folder: Path = SPECIFICATION) -> list[Repository]:
    """Every repository of the specification, by github_id. Raises BadInput naming file and key."""
    repositories = [_repository(path) for path in sorted(folder.glob("*.yaml"))]
    return sorted(repositories, key=lambda repository: repository.github_id)


def _repository(path: Path) -> Repository:
    values = read_yaml(path, "a MiniBench specification")
    _check_keys(values, Repository, f"{path}", optional={"name"})
    tasks = [
        _task(task, f"{path}: task {number}") for number, task in enumerate(values.pop("tasks"), start=1)
    ]
    if values["role"] not in ("test", "ood"):
        raise BadInput(f"{path}: role is {values['role']!r}; expected test or ood")
    return Repository(name=path.stem, tasks=tasks, **values)


def _task(values: dict[str, Any], where: str) -> Task:
    _check_keys(values, Task, where, optional={"arguments", "prefix_code"})
    if values["type"] not in (BASH, PYTHON):
        raise BadInput(f"{where}: type is {values['type']!r}; expected {BASH!r} or {PYTHON!r}")
    if len(values["instructions"]) < 2:
        raise BadInput(f"{where}: instructions has {len(values['instructions'])} entry; expected at least 2")
    parameters = {name: _words(candidates) for name, candidates in values.pop("parameters").items()}
    texts = {name: values.pop(name).strip() for name in ("oracle", "answer")}
    return Task(parameters=parameters, **texts, **values)


def _words(candidates: list[str] | dict[str, str]) -> Values:
    pairs = candidates.items() if isinstance(candidates, dict) else zip(candidates, candidates, strict=True)
    return {str(value): str(words) for value, words in pairs}


def _check_keys(values: Any, kind: type, where: str, optional: set[str]) -> None:
    names = {item.name for item in fields(kind)}
    found = set(values) if isinstance(values, dict) else set()
    wrong = sorted(found - names) + sorted(names - found - optional)
    if wrong:
        raise BadInput(
            f"{where}: keys unknown or missing: {', '.join(wrong)}; expected {', '.join(sorted(names))}"
        )
