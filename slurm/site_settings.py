"""A site: how its cluster is asked for nodes, and how its software is switched on."""

from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from mlbench_data.bad_input import BadInput
from mlbench_data.files import is_text, read_yaml
from slurm.jobs import STAGES, Stage

Options = dict[str, str]
"""sbatch's long options and their values; true is an option without one, an empty value leaves it out."""


@dataclass(frozen=True)
class Gpu:
    """What hours are estimated with; one GPU of the site."""

    tflops: float = 312.0
    utilisation: float = 0.35
    generated_tokens_per_second: float = 1500.0
    seconds_to_start: float = 180.0
    seconds_per_candidate: float = 20.0


@dataclass(frozen=True)
class Site:
    """What a site's YAML says; the keys are explained in configs/slurm/site.yaml."""

    activate: str = ""
    wrap: str = ""
    offline: bool = False
    seconds_to_save: int = 300
    most_requeues: int = 50
    sbatch: Options = field(default_factory=dict)
    stages: dict[Stage, Options] = field(default_factory=dict)
    gpu: Gpu = field(default_factory=Gpu)

    def chosen(self, stage: Stage) -> Options:
        """The options of a stage's jobs: its own before those of all."""
        return {**self.sbatch, **self.stages.get(stage, {})}

    def options(self, stage: Stage) -> list[str]:
        """The same as words of sbatch's command line."""
        given = {
            name: value for name, value in self.chosen(stage).items() if value not in ("", "false", "null")
        }
        return [f"--{name}" if value == "true" else f"--{name}={value}" for name, value in given.items()]


def read_site(path: str | Path) -> Site:
    """The site that a file describes. Raises BadInput."""
    values = _mapping(read_yaml(path, "a site (activate, sbatch, stages)", as_text=True), str(path), Site)
    stages = _mapping(values.get("stages", {}), f"{path}: stages", None)
    if unknown := sorted(set(stages) - set(STAGES)):
        raise BadInput(f"{path}: stages has {', '.join(unknown)}; expected {', '.join(STAGES)}")
    return Site(
        activate=_text(values, "activate", path),
        wrap=_text(values, "wrap", path),
        offline=_flag(values, "offline", path),
        seconds_to_save=int(_number(values, "seconds_to_save", Site.seconds_to_save, str(path))),
        most_requeues=int(_number(values, "most_requeues", Site.most_requeues, str(path))),
        sbatch=_options(values.get("sbatch", {}), f"{path}: sbatch"),
        stages={stage: _options(stages[stage], f"{path}: {stage}") for stage in STAGES if stage in stages},
        gpu=_gpu(_mapping(values.get("gpu", {}), f"{path}: gpu", Gpu), f"{path}: gpu"),
    )


def _mapping(values: Any, where: str, kind: Any) -> dict[str, Any]:
    """Raises BadInput unless it is a mapping, and has only the fields of `kind`."""
    known = [item.name for item in fields(kind)] if kind else None
    if values in ("", "null", None):
        return {}
    if not isinstance(values, dict):
        raise BadInput(f"{where}: {str(values)[:40]!r}; expected NAME: VALUE lines")
    if known and (unknown := [str(name) for name in values if name not in known]):
        raise BadInput(f"{where}: unknown key {', '.join(unknown)}; expected {', '.join(known)}")
    return values


def _options(values: Any, where: str) -> Options:
    options = _mapping(values, where, None)
    for name, value in options.items():
        if not isinstance(value, str) or not isinstance(name, str) or name.startswith("-"):
            raise BadInput(f"{where}: {name}: {value}; expected an option of sbatch without -- and its value")
        if not is_plain(value) or not is_plain(name):
            raise BadInput(f"{where}: {name!r} is {value[:40]!r}; expected text that a shell can be given")
        if any(ours.startswith(name) for ours in OURS):
            raise BadInput(f"{where}: {name} is slurm/submit.py's own; leave it out")
    return options


OURS = (
    *(
        "job-name",
        "output",
        "array",
        "dependency",
        "parsable",
        "signal",
        "requeue",
        "no-requeue",
        "open-mode",
    ),
    *("kill-on-invalid-dep", "wait", "wrap", "test-only", "help", "usage", "version"),
)
"""Options that a sweep needs as they are, also by the short forms that sbatch takes."""


def _gpu(values: dict[str, Any], where: str) -> Gpu:
    return Gpu(**{item.name: _number(values, item.name, item.default, where) for item in fields(Gpu)})


def _text(values: dict[str, Any], name: str, path: str | Path) -> str:
    value = values.get(name, "")
    if not isinstance(value, str) or not is_plain(value):
        raise BadInput(f"{path}: {name} is {str(value)[:40]!r}; expected text")
    return "" if value in ("~", "null") else value


def is_plain(text: str) -> bool:
    """Whether a shell can be given it."""
    return is_text(text) and "\0" not in text


def _flag(values: dict[str, Any], name: str, path: str | Path) -> bool:
    text = _text(values, name, path).lower()
    if text not in ("true", "false", ""):
        raise BadInput(f"{path}: {name} is {text!r}; expected true or false")
    return text == "true"


def _number(values: dict[str, Any], name: str, default: Any, where: str) -> float:
    value = values.get(name, default)
    try:
        number = float(value)
    except (TypeError, ValueError) as error:
        raise BadInput(f"{where}: {name} is {value!r}; expected a number above 0") from error
    if not 0 < number < 1e9 or (isinstance(default, int) and number != int(number)):
        raise BadInput(f"{where}: {name} is {value!r}; expected a number above 0")
    return number


def seconds_of(limit: str) -> float | None:
    """Seconds of a time limit as sbatch takes it (30, 30:00, 4:00:00, 1-12, 1-12:30); None for others."""
    days, dash, rest = limit.rpartition("-")
    numbers = rest.split(":")
    if not all(number.isdecimal() for number in [*numbers, *([days] if dash else [])]) or len(numbers) > 3:
        return None
    values = [int(number) for number in numbers]
    hours, minutes, seconds = 0, 0, 0
    if dash:
        hours, minutes, seconds = [*values, 0, 0][:3]
    elif len(values) == 3:
        hours, minutes, seconds = values
    else:
        minutes, seconds = [*values, 0][:2]
    return ((int(days or 0) * 24 + hours) * 60 + minutes) * 60 + seconds
