"""What an engine reads in the tokens that it has drawn: their text, and whether the candidate has ended."""

from functools import lru_cache
from typing import Any

from infer.engines.ending import Ending
from infer.engines.interface import Completion


class Reading:
    """The same text and the same end of the same tokens, whichever engine drew them.

    Text is always the project's own tokenizer's: the tokenizer of an engine may be another one.
    """

    def __init__(self, tokenizer: Any, end_ids: set[int], stop: tuple[str, ...]) -> None:
        self.tokenizer, self.end_ids, self.ending = tokenizer, end_ids, Ending(stop)
        self.longest = max((len(item.encode()) for item in stop), default=0)
        self._text_of = lru_cache(maxsize=None)(lambda token: self._text([token]))

    def has_ended(self, tokens: list[int]) -> bool:
        """Whether a candidate has ended with its last token by itself: its model ended it, or more text would
        not count. Asked after each token; what is decoded for that does not grow with the candidate.
        """
        last = tokens[-1]
        if last in self.end_ids or (self.longest and self.ending.stops_in(self._tail(tokens))):
            return True
        return self.ending.may_close_in(self._text_of(last)) and self.ending.is_closed(self._text(tokens))

    def completion(self, tokens: list[int]) -> Completion:
        """The candidate of these tokens, which are all that were drawn."""
        text = self._text(tokens[:-1] if tokens[-1] in self.end_ids else tokens)
        finish = "stop" if self.has_ended(tokens) else "length"
        return Completion(self.ending.cut(text), finish, len(tokens))

    def _tail(self, tokens: list[int]) -> str:
        """The end of the text, in which a stop text that the last token has completed lies: a token is a byte
        at least. It begins with a whole character, and one token early, because some tokenizers drop a space
        at the beginning.
        """
        start = max(0, len(tokens) - self.longest - 1)
        while start > 0 and "\ufffd" in self._text_of(tokens[start]):
            start -= 1
        return self._text(tokens[start:])

    def _text(self, tokens: list[int]) -> str:
        return self.tokenizer.decode(tokens)


def end_ids(tokenizer: Any, generation: Any) -> set[int]:
    """Every token that ends an answer: the tokenizer's, and those of the model's generation settings, as
    transformers holds them.
    """
    configured = generation.eos_token_id
    listed = configured if isinstance(configured, list) else [configured]
    return {item for item in [tokenizer.eos_token_id, *listed] if item is not None}
