"""Sampling from a server with an OpenAI-compatible API: a local vLLM, or the closed models of the paper.

The key comes from the environment (OPENAI_API_KEY) and goes nowhere else: no file, no message.
"""

import os
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any, Literal

import openai

from infer.engines.ending import Ending
from infer.engines.interface import Answer, Completion, Request, Sampling, Usage
from mlbench_data.adapter import Adapter
from mlbench_data.bad_input import BadInput, JobFailed

KEY = "OPENAI_API_KEY"
FAILED_IN_A_ROW = 8  # rows, before the server counts as gone
FIRST_CONTACT_SECONDS = 10.0

Messages = Callable[[Request], list[dict[str, str]]]


@dataclass(frozen=True)
class ServerSettings:
    """Which server and model, and how patiently it is asked."""

    base_url: str
    model: str
    api: Literal["chat", "completions"] = "chat"
    concurrency: int = 8
    timeout: float = 120.0
    retries: int = 5


class Malformed(Exception):
    """A reply that is not what the API promises; worth another try."""


class OpenaiEngine:
    """A server. Rows are asked for at the same time, up to `concurrency`; chat needs `messages`."""

    name = "openai"

    def __init__(self, settings: ServerSettings, messages: Messages) -> None:
        """Raises BadInput if the server refuses the key or lacks the model, JobFailed if none answers."""
        self.settings, self.messages = settings, messages
        self.key = os.environ.get(KEY)
        if self.key is not None and not self.key.isascii():
            raise BadInput(f"{KEY} holds letters that no key has; set it again")
        self.client = openai.OpenAI(
            base_url=settings.base_url,
            api_key=self.key or "none",  # local servers want any
            max_retries=settings.retries,
            timeout=settings.timeout,
        )
        self.one_by_one = False
        self.sends_seed = True
        self.limit_name = "max_tokens"
        self._greet()

    def use(self, adapter: Adapter | None) -> None:
        """A server's adapters have names of their own."""
        if adapter is not None:
            raise BadInput("engine openai takes no --adapter; give the name it is served under as --model")

    def close(self) -> None:
        """Ends the connections."""
        self.client.close()

    def sample(
        self, requests: list[Request], done: Collection[int], sampling: Sampling
    ) -> Iterator[list[Answer]]:
        """Rows as they are answered; one that cannot be had, after all retries, is an error of that row.

        Raises JobFailed once rows fail one after another: the server is gone.
        """
        failed = 0
        for answer in self._answers(requests, done, sampling):
            yield [answer]
            failed = failed + 1 if answer.error else 0
            if failed >= FAILED_IN_A_ROW:
                raise JobFailed(
                    f"{self.settings.base_url}: {failed} rows failed one after another, the last with "
                    f"{answer.error}; what was answered is kept: run the same command again"
                )

    def _answers(
        self, requests: list[Request], done: Collection[int], sampling: Sampling
    ) -> Iterator[Answer]:
        left = iter([index for index in range(len(requests)) if index not in done])
        going: set[Future[Answer]] = set()
        with ThreadPoolExecutor(self.settings.concurrency) as pool:
            try:
                while True:
                    while len(going) < self.settings.concurrency and (index := next(left, None)) is not None:
                        going.add(pool.submit(self._answer, index, requests[index], sampling))
                    if not going:
                        return
                    ended, going = wait(going, return_when=FIRST_COMPLETED)
                    for future in sorted(ended, key=lambda future: future.exception() is not None):
                        yield future.result()
            finally:
                if going:
                    self.client.close()  # nobody waits for what is still being answered

    def _greet(self) -> None:
        """Finds a wrong address, key or name before any row is asked."""
        try:
            hasty = self.client.with_options(timeout=FIRST_CONTACT_SECONDS, max_retries=1)
            served = [str(model.id) for model in hasty.models.list()]
        except openai.APIConnectionError as error:
            raise JobFailed(
                f"{self.settings.base_url}: no server answers there ({self._reason(error)}); start it, or "
                "give another --base_url"
            ) from None
        except (openai.AuthenticationError, openai.PermissionDeniedError) as error:
            raise self._refused(error) from None
        except (openai.OpenAIError, ValueError, TypeError, AttributeError):
            return  # a server that does not list its models
        if served and self.settings.model not in served:
            raise BadInput(
                f"{self.settings.base_url}: serves no model {self.settings.model!r}; --model is one of "
                f"{', '.join(served[:8])}"
            )

    def _answer(self, index: int, request: Request, sampling: Sampling) -> Answer:
        """A row's candidates, in one call if the server can, else one by one."""
        try:
            found, usage = self._completions(request, sampling)
        except (openai.AuthenticationError, openai.PermissionDeniedError) as error:
            raise self._refused(error) from None
        except openai.NotFoundError as error:
            raise BadInput(
                f"{self.settings.base_url}: no such model or address ({self._reason(error)})"
            ) from None
        except (openai.OpenAIError, Malformed) as error:
            return Answer(index, [], Usage(), self._reason(error))
        return Answer(index, found, usage)

    def _completions(self, request: Request, sampling: Sampling) -> tuple[list[Completion], Usage]:
        drawn = sampling.n if sampling.temperature > 0 else 1
        found: list[Completion] = []
        usage = Usage()
        while len(found) < drawn:
            asked = 1 if self.one_by_one else drawn - len(found)
            reply = self._reply(request, sampling, asked, request.seed + len(found))
            found += [self._completion(choice, sampling) for choice in reply.choices[:asked]]
            if len(reply.choices) < asked:
                self.one_by_one = True
            usage += _usage(reply)
        return found * (sampling.n // drawn), usage

    def _reply(self, request: Request, sampling: Sampling, n: int, seed: int) -> Any:
        """One call. What a server does not know of is left out of all later ones, if candidates stay what
        they are without it.
        """
        while True:
            values = self._values(sampling, n, seed)
            try:
                return self._sound_reply(request, values)
            except openai.BadRequestError as error:
                unknown = _parameter_of(error)
                if unknown not in values:
                    raise
                if unknown == "n":
                    self.one_by_one, n = True, 1
                elif unknown == "seed":
                    self.sends_seed = False
                elif unknown == "max_tokens":
                    self.limit_name = "max_completion_tokens"
                else:
                    raise

    def _sound_reply(self, request: Request, values: dict[str, Any]) -> Any:
        """A reply with choices in it. The client retries errors of the server and of the way to it; broken
        replies are retried here.
        """
        for _ in range(self.settings.retries + 1):
            reply = self._call(request, values)
            if _is_sound(reply, self.settings.api):
                return reply
        raise Malformed("the server's replies are not what the API promises")

    def _values(self, sampling: Sampling, n: int, seed: int) -> dict[str, Any]:
        """The parameters of a call."""
        values: dict[str, Any] = {
            "model": self.settings.model,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            self.limit_name: sampling.max_new_tokens,
        }
        if n > 1:
            values["n"] = n
        if self.sends_seed:
            values["seed"] = seed
        if sampling.stop:
            values["stop"] = list(sampling.stop)
        return values

    def _call(self, request: Request, values: dict[str, Any]) -> Any:
        try:
            if self.settings.api == "completions":
                return self.client.completions.create(prompt=request.token_ids, **values)
            messages: Any = self.messages(request)
            return self.client.chat.completions.create(messages=messages, **values)
        except (ValueError, TypeError):  # a body that is no JSON, or JSON of another kind
            return None

    def _completion(self, choice: Any, sampling: Sampling) -> Completion:
        text = choice.text if self.settings.api == "completions" else choice.message.content
        return Completion(Ending(sampling.stop).cut(text or ""), choice.finish_reason or "stop", 0)

    def _refused(self, error: openai.APIStatusError) -> BadInput:
        return BadInput(
            f"{self.settings.base_url}: refused the key ({error.status_code}); set {KEY} in the environment"
        )

    def _reason(self, error: Exception) -> str:
        """One line without the key, which servers repeat in what they say."""
        cause = error.__cause__ if isinstance(error, openai.APIConnectionError) else None
        text = " ".join(f"{type(error).__name__}: {cause or error}".split())
        return (text.replace(self.key, "***") if self.key else text)[:300]


def _is_sound(reply: Any, api: str) -> bool:
    """Whether there are choices, each with a text or, where a model had nothing to say, with none."""
    choices = getattr(reply, "choices", None)
    if not isinstance(choices, list) or not choices:
        return False
    said = choices if api == "completions" else [getattr(choice, "message", None) for choice in choices]
    name = "text" if api == "completions" else "content"
    texts = [getattr(item, name, 0) for item in said]
    return all(text is None or isinstance(text, str) for text in texts)


def _parameter_of(error: openai.BadRequestError) -> str | None:
    """The parameter that a server does not know, by its own word or in its message."""
    if error.param:
        return error.param
    message = str(error).lower()
    if "unsupported" not in message and "not support" not in message and "unrecognized" not in message:
        return None
    named = [name for name in ("max_tokens", "seed", "n") if f"'{name}'" in message or f"`{name}`" in message]
    return named[0] if named else None


def _usage(reply: Any) -> Usage:
    usage = getattr(reply, "usage", None)
    if usage is None:
        return Usage()
    prompt = _count(usage, "prompt_tokens")
    cached = _count(getattr(usage, "prompt_tokens_details", None), "cached_tokens")
    return Usage(prompt, prompt - cached, _count(usage, "completion_tokens"))


def _count(item: Any, name: str) -> int:
    """A number of tokens; 0 where a server says none, or something else."""
    value = getattr(item, name, None)
    return value if type(value) is int else 0
