"""From a completion to the code in it."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

_FENCE = re.compile(r"^(?P<indent>[ \t]*)(?P<fence>`{3,}|~{3,})[ \t]*(?P<info>[^\n]*?)[ \t]*$", re.MULTILINE)
_OTHER_TEXT = {"text", "txt", "plaintext", "plain", "output", "stdout", "log", "json", "yaml", "yml", "toml",
               "ini", "csv", "diff", "markdown", "md", "html", "xml"}  # fmt: skip
_SHELL_TAGS = {"bash", "sh", "shell", "zsh", "console", "terminal", "shell-session", "shellsession", "cmd"}
_INSTALLS = re.compile(
    r"(?:sudo )?(?:(?:python3? -m )?pip3? install|conda (?:install|create|env)|apt(?:-get)? |git clone|brew "
    r"|uv pip)"
)
_ENTERS = re.compile(r"(?:cd|export|source|conda activate|mkdir|set|unset)\b")
_PROMPTS = re.compile(r"^[ \t]*(?:\$|%|>|>>>|\.\.\.|\(\w[\w.-]*\) ?\$) (?=\S)")

_ASSIGNED = r"(?:[A-Za-z_]\w*=\S* +)*"
_COMMAND = re.compile(
    rf"{_ASSIGNED}(?:(?:\S*/)?(?:python[\d.]*|bash|sh) +(?:-|[^\s=\"'{{}}]+\.(?:py|sh)\b)|(?:\./|\.\./)\S+"
    r"|(?:torchrun|deepspeed|accelerate launch|nohup|srun) +\S|pip3? install |git clone +\S"
    r"|conda +(?:activate|create|install) |export +\w+=|cd +\S+(?: *(?:&&|;).*)?$)"
)
_PROGRAM = re.compile(
    r"(?:import +[\w.]+(?: *,| +as |$)|from +[\w.]+ +import +|def +\w+\(|class +\w+|if +__name__|with +open\("
    r"|[\w.]+(?:, *[\w.]+)* *= *\S|\w[\w.]*\(.*\)$|for +\w+ +in +|@\w+|#!)"
)
_SENTENCE = re.compile(r"(?:[A-Z][a-z']*|\*\*|[-*]|\d+\.)[ ,]\S*\w\S* +\S")
_INLINE = re.compile(r"`([^`\n]+)`")

_TURN_ENDS = r"<\|im_end\|>|<\|endoftext\|>|<\|eot_id\|>|<\|end\|>|</s>|<｜end▁of▁sentence｜>|<\|EOT\|>"
_NEXT_TURN = re.compile(
    rf"(?:{_TURN_ENDS})[ \t]*(?:\n|$)"
    r"|^(?:<\|im_start\|>user|\[INST\]|### Instruction:?|Instruction:|User:|Human:)",
    re.MULTILINE,
)
_ECHO = re.compile(
    r"\s*(?:(?:<s>|<\|im_start\|>(?:assistant)?|<\|assistant\|>|\[/INST\]|<\|start_header_id\|>assistant"
    r"<\|end_header_id\|>|(?:### )?(?:Response|Answer|Assistant|Output|Solution):)\s*)+"
)


def is_answered(completion: str) -> bool:
    """Whether the code of `code_in` is complete: more text would not change it."""
    return any(block.closed and block.is_answer for block in _blocks(_plain(completion)))


def code_in(completion: str) -> str:
    """The code of a completion, by the first rule that applies.

    1. Fenced blocks, whatever their tag: the first that holds a command or a program. Blocks of other text
       (output, json, …) and blocks that only install something are passed over if any such block follows;
       one that only changes directory or variables is put before the shell block that follows it. A fence
       that is never closed, because the token limit cut the answer, reaches to the end. A command on the
       fence's own line belongs to the block.
    2. Without a fence: from the first line that looks like a command or a program, to where prose begins
       again.
    3. In prose: the first command between backticks.
    4. The whole text.

    Before all that, a role or a heading that the model wrote first is dropped, and so is what follows the end
    of its turn. A shell prompt is dropped from each line of code in which every line has one.
    """
    text = _plain(completion)
    blocks = list(_blocks(text))
    if blocks:
        return _of_blocks(blocks)
    if _FENCE.search(text) and not _FENCE.sub("", text).strip():
        return ""
    text = _own_turn(text)
    found = _of_lines(text)
    if found is None:
        inline = next((code for code in _INLINE.findall(text) if _COMMAND.match(code)), None)
        found = inline or text.strip()
    return _without_prompt(found.rstrip())


@dataclass(frozen=True)
class _Block:
    """A fenced block: its tag, what is in it, and whether its fence was closed."""

    tag: str
    code: str
    closed: bool

    @property
    def commands(self) -> list[str]:
        lines = _without_prompt(self.code).replace("\\\n", " ").split("\n")
        parts = [part.strip() for line in lines for part in re.split(r"&&|\|\||;", line)]
        return [part for part in parts if part and not part.startswith("#")]

    @property
    def installs(self) -> bool:
        return self.tag != "python" and all(_INSTALLS.match(line.lstrip("!")) for line in self.commands)

    @property
    def enters(self) -> bool:
        return self.tag in _SHELL_TAGS | {""} and all(_ENTERS.match(line) for line in self.commands)

    @property
    def is_answer(self) -> bool:
        """Whether it is code that does something, so that it decides the answer."""
        return self.tag not in _OTHER_TEXT and not self.installs and not self.enters


def _blocks(text: str) -> Iterator[_Block]:
    """The fenced blocks with anything in them."""
    place = 0
    while opening := _FENCE.search(text, place):
        fence = opening["fence"]
        tag, first_line = _of_info(opening["info"])
        code, closed, place = _body(text, opening.end(), fence, first_line)
        if code.strip():
            code = re.sub(rf"^{opening['indent']}", "", code, flags=re.MULTILINE)
            yield _Block(tag, code if closed else _own_turn(code), closed)


def _body(text: str, start: int, fence: str, first_line: str) -> tuple[str, bool, int]:
    """A block's code, whether its fence was closed, and the end of the line that closes it."""
    if fence in first_line:  # opened and closed on one line
        return first_line[: first_line.index(fence)].strip(), True, start
    closing = re.compile(rf"^[ \t]*{re.escape(fence)}[^\n]*", re.MULTILINE).search(text, start)
    body = text[start : closing.start() if closing else len(text)].strip("\n")
    code = "\n".join(filter(None, [first_line, body]))
    return code, closing is not None, closing.end() if closing else len(text)


def _of_info(info: str) -> tuple[str, str]:
    """The tag on a fence's line, and the code on it, if there is any."""
    tag, _, rest = info.partition(" ")
    if _COMMAND.match(info):
        return "bash", info
    if _COMMAND.match(rest.strip()):
        return tag.lower(), rest.strip()
    return re.sub(r"[^\w+.-].*", "", tag).lower(), ""


def _of_blocks(blocks: list[_Block]) -> str:
    place = next((place for place, block in enumerate(blocks) if block.is_answer), None)
    if place is None:
        usable = [block for block in blocks if block.tag not in _OTHER_TEXT and not block.installs]
        return _without_prompt((usable or blocks)[0].code)
    answer = blocks[place]
    parts = [answer]
    if answer.tag in _SHELL_TAGS | {""}:
        parts = [block for block in blocks[:place] if block.enters and not block.installs] + parts
    return "\n".join(_without_prompt(block.code) for block in parts)


def _of_lines(text: str) -> str | None:
    """The code in a text without fences; None if no line looks like code."""
    lines = text.split("\n")
    bare = [_PROMPTS.sub("", line).strip() for line in lines]
    start = next((place for place, line in enumerate(bare) if _is_code(line)), None)
    if start is None:
        return None
    is_command = bool(_COMMAND.match(bare[start]))
    while start > 0 and bare[start - 1].startswith(("#", "@")):
        start -= 1  # comments belong to the program
    code = _joined(lines[start:])
    if not is_command and _parses(code):
        return code  # prose in a string
    for place in range(start + 1, len(lines)):
        if not bare[place - 1] and _is_prose(bare[place]):
            before = _joined(lines[start:place])
            if is_command or _parses(before):
                return before
    return code


def _joined(lines: list[str]) -> str:
    """The lines as they stand; a command's spaces before it mean nothing."""
    code = "\n".join(lines).strip("\n")
    return code.lstrip() if _COMMAND.match(code.lstrip()) else code


def _is_prose(line: str) -> bool:
    """Whether a line explains: it begins like a sentence or an item, and has several words."""
    return bool(_SENTENCE.match(line)) and not _is_code(line)


def _is_code(line: str) -> bool:
    return bool(_COMMAND.match(line) or _PROGRAM.match(line))


def _parses(program: str) -> bool:
    try:
        ast.parse(program)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def _plain(completion: str) -> str:
    text = completion.replace("\r\n", "\n")
    echo = _ECHO.match(text)
    return text[echo.end() :] if echo else text


def _own_turn(text: str) -> str:
    """The text before the model's turn ends, or another begins."""
    found = _NEXT_TURN.search(text)
    while found and not text[: found.start()].strip():
        found = _NEXT_TURN.search(text, max(found.end(), 1))
    return text[: found.start()] if found else text


def _without_prompt(code: str) -> str:
    lines = code.split("\n")
    prompted = [line for line in lines if line.strip()]
    if prompted and all(_PROMPTS.match(line) for line in prompted):
        return "\n".join(_PROMPTS.sub("", line) for line in lines)
    return code
