"""When a candidate ends: its code block is closed, or a stop text was written."""

from infer.answers import is_answered

_FENCES = "`~"


class Ending:
    """Ends a candidate whose code is complete, whatever the engine: what would follow is never read."""

    def __init__(self, stop: tuple[str, ...] = ()) -> None:
        self.stop = stop

    def stops_in(self, text: str) -> bool:
        """Whether a stop text is there."""
        return any(item in text for item in self.stop)

    def may_close_in(self, new: str) -> bool:
        """Whether text that was just added can have closed the code block; saves looking at the whole."""
        return any(mark in new for mark in _FENCES)

    def is_closed(self, text: str) -> bool:
        """Whether the code block of the answer is closed, so that more text would not count."""
        return is_answered(text)

    def cut(self, text: str) -> str:
        """The text before the first stop text."""
        found = [place for place in (text.find(item) for item in self.stop) if place >= 0]
        return text[: min(found)] if found else text
