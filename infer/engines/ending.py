"""When a candidate ends: its code block is closed, or a stop text was written."""

from infer.answers import is_answered

_FENCES = "`~"


class Ending:
    """Ends a candidate whose code is complete, whatever the engine: what would follow is never read."""

    def __init__(self, stop: tuple[str, ...] = ()) -> None:
        self.stop = stop

    def may_begin_in(self, new: str) -> bool:
        """Whether text that was just added can have reached the end; saves looking at the whole."""
        return bool(self.stop) or any(mark in new for mark in _FENCES)

    def is_reached(self, text: str) -> bool:
        """Whether more text would not count."""
        return any(item in text for item in self.stop) or is_answered(text)

    def cut(self, text: str) -> str:
        """The text before the first stop text."""
        found = [place for place in (text.find(item) for item in self.stop) if place >= 0]
        return text[: min(found)] if found else text
