"""Bash answers: which commands are there, does one of them run something, and with which values."""

import io
import re
import shlex
from collections.abc import Iterator

from eval.facts import Facts, canonical, number, number_series

_OPERATORS = ";&|()<>\n"
_INNER_HASH = "\ue000"
_WRITES_ONLY = {"echo", "printf", ":", "true", "false"}
_PREPARES = {
    *("alias", "apt", "apt-get", "cat", "cd", "chmod", "conda", "cp", "curl", "exit", "export", "git"),
    *("grep", "head", "ls", "mamba", "mkdir", "mv", "pip", "pip3", "popd", "pushd", "pwd", "rm", "set"),
    *("sleep", "source", "tail", "tar", "test", "touch", "unset", "unzip", "wget", "which", "yum", "."),
}
_BEFORE_A_COMMAND = {
    *("!", "{", "do", "else", "elif", "if", "then", "time", "until", "while"),
    *("env", "exec", "export", "nohup", "sudo"),
}
_INTERPRETER = re.compile(r"(.*/)?(python[\d.]*|bash|sh|zsh)")
_LAUNCHERS = {"accelerate", "deepspeed", "horovodrun", "make", "mpirun", "srun", "streamlit", "torchrun"}
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)
_PATH = re.compile(r"(\.\.?|~|\$\{?\w+\}?)?(/[\w.+-]+)+")
_PROGRAM_NAME = re.compile(r"[a-z][\w.+/-]*")
_LONGEST_SERIES = 8
"""The most words after an option that are also taken together (`--size 3 256 320`)."""
_VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)\})")


def shell_facts(text: str) -> Facts | None:
    """What a bash text says, or None if it does not parse or none of its commands runs a program.

    Echoed text is not counted, nor are comments. Variables that the text sets itself are filled in.
    """
    try:
        commands = list(_commands(text))
    except ValueError:
        return None
    reader = _Reader()
    for words in commands:
        reader.read(words)
    return reader.facts() if reader.runs_something else None


def _commands(text: str) -> Iterator[list[str]]:
    """The words of each simple command. Raises ValueError for an unclosed quote."""
    command: list[str] = []
    after_redirection = False
    for token in _tokens(text):
        if token.strip(_OPERATORS):
            if not (after_redirection and token.isdigit()):
                command.append(token)
            after_redirection = False
        elif set(token) & set("<>") and "\n" not in token:
            if command and command[-1].isdigit() and "&" in token:
                command.pop()
            after_redirection = True
        else:
            yield command
            command, after_redirection = [], False
    yield command


def _tokens(text: str) -> Iterator[str]:
    # A hash inside a word starts no comment in bash but does in shlex.
    text = re.sub(r"(?<=[^\s;&|()])#", _INNER_HASH, text.replace("\r\n", "\n").replace("\\\n", " "))
    lexer = shlex.shlex(_LinesWithoutEnds(text), posix=True, punctuation_chars=_OPERATORS)
    lexer.whitespace = " \t\r"
    lexer.whitespace_split = True
    for token in lexer:
        yield token.replace(_INNER_HASH, "#")


class _LinesWithoutEnds(io.StringIO):
    """shlex skips a comment with readline; the newline must stay, because it ends the command."""

    def readline(self, size: int = -1, /) -> str:  # type: ignore[override]
        line = super().readline(size)
        if line.endswith("\n"):
            self.seek(self.tell() - 1)
        return line


class _Reader:
    """Collects facts command by command."""

    def __init__(self) -> None:
        self.runs_something = False
        self._variables: dict[str, str] = {}
        self._pairs: list[tuple[str, str]] = []
        self._options: set[str] = set()
        self._values: list[str] = []
        self._programs: list[str] = []

    def facts(self) -> Facts:
        series = tuple(numbers for value in self._values if len(numbers := number_series(value)) > 1)
        return Facts(
            tuple(self._pairs), frozenset(self._options), tuple(self._values), series, tuple(self._programs)
        )

    def read(self, words: list[str]) -> None:
        words = [_VARIABLE.sub(self._filled_in, word) for word in words]
        while words and (words[0] in _BEFORE_A_COMMAND or _ASSIGNMENT.fullmatch(words[0])):
            word = words.pop(0)
            if "=" in word:
                name, _, value = word.partition("=")
                self._variables[name] = value
                self._named(name, value)
        if not words or words[0] in _WRITES_ONLY:
            return
        program = _program(words)
        if program is not None:
            self.runs_something = True
            self._programs.append(program)
        self._arguments(words)

    def _filled_in(self, found: re.Match[str]) -> str:
        return self._variables.get(found[1] or found[2], found[0])

    def _arguments(self, words: list[str]) -> None:
        option: str | None = None
        following: list[str] = []
        for word in words:
            if _is_option(word):
                option, following = None, []
                name, equals, value = word.partition("=")
                glued = re.fullmatch(r"-([A-Za-z])(\d.*)", word)
                if glued:
                    self._named(glued[1], glued[2])
                elif equals:
                    self._named(name, value)
                else:
                    option = canonical(name)
                    self._options.add(option)
                continue
            if _ASSIGNMENT.fullmatch(word):
                self._named(*word.split("=", 1))
            else:
                self._values.append(word)
            if option is not None:
                following.append(word)
                self._pairs.append((option, word))
                if 1 < len(following) <= _LONGEST_SERIES:
                    self._pairs.append((option, " ".join(following)))
                    self._values.append(" ".join(following))

    def _named(self, name: str, value: str) -> None:
        self._options.add(canonical(name))
        self._pairs.append((canonical(name), value))
        self._values.append(value)


def _is_option(word: str) -> bool:
    return re.match(r"--?[A-Za-z]", word) is not None and number(word) is None


def _program(words: list[str]) -> str | None:
    """The file, module or program that a command runs, or None if it only prepares or is no command."""
    name, rest = words[0], words[1:]
    if _INTERPRETER.fullmatch(name):
        return _interpreted(rest)
    if name.endswith((".sh", ".py")) or _PATH.fullmatch(name):
        return name
    if name in _LAUNCHERS and rest:
        scripts = [word for word in rest if word.endswith((".py", ".sh"))]
        return scripts[0] if scripts else rest[0]
    if name not in _PREPARES and _PROGRAM_NAME.fullmatch(name) and any(map(_is_option, rest)):
        return name
    return None


def _interpreted(arguments: list[str]) -> str | None:
    """What an interpreter is given: a script, `-m` module or `-c` code."""
    for position, word in enumerate(arguments):
        if word in ("-m", "-c"):
            return arguments[position + 1] if position + 1 < len(arguments) else None
        if not word.startswith("-"):
            return word
    return None
