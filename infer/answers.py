"""From a completion to the code in it."""

import re

_FENCE = re.compile(r"^[ \t]*(?P<fence>`{3,}|~{3,})[ \t]*(?P<tag>[\w+.-]*)[^\n]*\n", re.MULTILINE)


def is_answered(completion: str) -> bool:
    """Whether the code of `code_in` is complete: more text would not change it."""
    text = completion.replace("\r\n", "\n")
    for opening in _FENCE.finditer(text):
        block, closed = _block(text[opening.end() :], opening["fence"])
        if block.strip():
            return closed
    return False


def code_in(completion: str) -> str:
    """The code of a completion, by the first rule that applies.

    1. The first fenced block with anything in it, whatever its tag; a fence that is never closed, because
       the token limit cut the answer, reaches to the end.
    2. Without a fence, the whole text: an answer may be a plain command.

    A leading `$ ` of a shell prompt is dropped from each line of a block in which every line has one.
    """
    text = completion.replace("\r\n", "\n")
    for opening in _FENCE.finditer(text):
        block, _closed = _block(text[opening.end() :], opening["fence"])
        if block.strip():
            return _without_prompt(block.strip("\n"))
    return _without_prompt(text.strip())


def _block(text: str, fence: str) -> tuple[str, bool]:
    """The text up to the line that closes the fence, and whether there is one."""
    closing = re.search(rf"^[ \t]*{re.escape(fence)}", text, re.MULTILINE)
    return (text[: closing.start()], True) if closing else (text, False)


def _without_prompt(code: str) -> str:
    lines = code.split("\n")
    prompted = [line for line in lines if line.strip()]
    if prompted and all(line.lstrip().startswith("$ ") for line in prompted):
        return "\n".join(line.lstrip()[2:] if line.strip() else line for line in lines)
    return code
