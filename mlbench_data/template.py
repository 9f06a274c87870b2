"""Prompt templates: a file with `system` and `user`, rendered for one model's format."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from jinja2 import TemplateError

from mlbench_data.bad_input import BadInput
from mlbench_data.files import is_text, read_yaml, sha256_of

DEFAULT_TEMPLATE = Path(__file__).resolve().parent / "templates" / "default.yaml"

_README, _INSTRUCTION = "{readme}", "{instruction}"


@dataclass(frozen=True)
class Template:
    """The words around README and instruction: `user` holds {readme} and then {instruction}."""

    system: str
    user: str

    @property
    def sha256(self) -> str:
        """Identifies the wording, wherever the file lies."""
        return sha256_of([self.system, self.user])

    def messages(self, readme: str, instruction: str) -> list[dict[str, str]]:
        """Chat messages; text in the README that looks like a field is left alone."""
        before, rest = self.user.split(_README)
        between, after = rest.split(_INSTRUCTION)
        user = before + readme + between + instruction + after
        system = [{"role": "system", "content": self.system}] if self.system else []
        return [*system, {"role": "user", "content": user}]


def read_template(path: str | Path | None) -> Template:
    """A template file, the project's own by default. Raises BadInput naming file and key."""
    path = path or DEFAULT_TEMPLATE
    values = read_yaml(path, "a prompt template (YAML with system and user)")
    if not isinstance(values, dict) or set(values) != {"system", "user"}:
        raise BadInput(f"{path}: a prompt template has the keys system and user, and no others")
    system, user = values["system"] or "", values["user"]
    if not isinstance(system, str) or not isinstance(user, str):
        raise BadInput(f"{path}: system and user must be text")
    template = Template(system.strip(), user.strip())
    if not is_text(template.system + template.user):
        raise BadInput(f"{path}: holds half a surrogate pair, which is no text")
    places = [template.user.count(_README), template.user.count(_INSTRUCTION)]
    if _README in template.system or _INSTRUCTION in template.system:
        raise BadInput(f"{path}: system must not hold {_README} or {_INSTRUCTION}; they belong in user")
    if places != [1, 1] or template.user.index(_README) > template.user.index(_INSTRUCTION):
        raise BadInput(f"{path}: user must hold {_README} and then {_INSTRUCTION}, once each")
    return template


@dataclass(frozen=True)
class Rendered:
    """A template as text for one model: what stands before the README, between README and instruction, and
    after. `start` are token ids before all text.
    """

    start: list[int]
    before: str
    between: str
    after: str


def render_template(template: Template, tokenizer: Any, format: Literal["chat", "plain"]) -> Rendered:
    """Renders the template once and cuts it where README and instruction go. Raises BadInput."""
    messages = template.messages(_README, _INSTRUCTION)
    if format == "chat":
        if not getattr(tokenizer, "chat_template", None):
            raise BadInput(
                "the model's tokenizer has no chat template; describe the model with format: plain"
            )
        text, start = _chat(messages, tokenizer), []
    else:
        text = "\n\n".join(message["content"] for message in messages) + "\n\nAnswer:\n"
        start = [tokenizer.bos_token_id] if tokenizer("").input_ids[:1] == [tokenizer.bos_token_id] else []
    if [text.count(_README), text.count(_INSTRUCTION)] != [1, 1]:
        raise BadInput("the model's chat template does not repeat its messages once each; use format: plain")
    before, rest = text.split(_README)
    between, after = rest.split(_INSTRUCTION)
    return Rendered(start, before, between, after)


def _chat(messages: list[dict[str, str]], tokenizer: Any) -> str:
    """The messages in the model's chat format; for one that refuses a system message (Gemma's, for example)
    its text comes first in the user's. Raises BadInput if the format takes neither.
    """
    joined = {"role": "user", "content": "\n\n".join(message["content"] for message in messages)}
    try:
        try:
            return tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        except TemplateError:
            return tokenizer.apply_chat_template([joined], tokenize=False, add_generation_prompt=True)
    except TemplateError as error:
        raise BadInput(
            f"the model's chat template takes no user message ({error}); use format: plain"
        ) from error
