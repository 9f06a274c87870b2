"""A prompt template holds README and instruction once each, in this order."""

from pathlib import Path

import pytest

from mlbench_data.bad_input import BadInput
from mlbench_data.models import Model, load_tokenizer
from mlbench_data.template import DEFAULT_TEMPLATE, Template, read_template, render_template

GOOD = "system: Be short.\nuser: 'Page {readme} asked {instruction} end'\n"


def written(folder: Path, text: str) -> Path:
    path = folder / "template.yaml"
    path.write_text(text)
    return path


def test_the_projects_own_template_reads_the_readme_first() -> None:
    template = read_template(None)
    assert template == read_template(DEFAULT_TEMPLATE)
    assert 0 <= template.user.index("{readme}") < template.user.index("{instruction}")
    assert template.system


def test_messages_hold_readme_and_instruction(tmp_path: Path) -> None:
    template = read_template(written(tmp_path, GOOD))
    assert template.messages("R", "I") == [
        {"role": "system", "content": "Be short."},
        {"role": "user", "content": "Page R asked I end"},
    ]


def test_without_a_system_text_there_is_no_system_message(tmp_path: Path) -> None:
    template = read_template(written(tmp_path, "system:\nuser: '{readme} {instruction}'\n"))
    assert [message["role"] for message in template.messages("R", "I")] == ["user"]


def test_fields_inside_a_readme_are_text() -> None:
    template = Template("", "{readme}|{instruction}")
    assert template.messages("{instruction} {readme} {x}", "{readme}")[0]["content"] == (
        "{instruction} {readme} {x}|{readme}"
    )


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("user: '{readme} {instruction}'", "has the keys system and user"),
        ("system: a\nuser: '{readme} {instruction}'\nusr: b", "has the keys system and user"),
        ("just text", "has the keys system and user"),
        ("system: [a\nuser: b", "not YAML"),
        ("system: a\nuser: '{readme}'", "must hold {readme} and then {instruction}"),
        ("system: a\nuser: '{instruction} {readme}'", "must hold {readme} and then {instruction}"),
        ("system: a\nuser: '{readme} {readme} {instruction}'", "once each"),
        ("system: '{readme}'\nuser: '{readme} {instruction}'", "system must not hold"),
        ("system: [a]\nuser: '{readme} {instruction}'", "must be text"),
        ("system: a\nuser: '{readme} {instruction}': b", "YAML"),
        ('system: a\nuser: "{readme} {instruction} \\ud800"', "no text"),
    ],
)
def test_a_wrong_template_is_named(tmp_path: Path, text: str, error: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(BadInput) as refused:
        read_template(path)
    message = str(refused.value)
    assert message.startswith(f"{path}:")
    assert error in message
    assert "\n" not in message


def test_the_hash_follows_the_wording_not_the_file(tmp_path: Path) -> None:
    one = read_template(written(tmp_path, GOOD))
    same = read_template(written(tmp_path, "# a comment\n" + GOOD))
    other = read_template(written(tmp_path, GOOD.replace("short", "brief")))
    assert one.sha256 == same.sha256 != other.sha256


def test_the_words_put_together_are_the_models_chat_format(tokenizer_model: Model) -> None:
    tokenizer, template = load_tokenizer(tokenizer_model), read_template(None)
    words = render_template(template, tokenizer, "chat")
    messages = template.messages("R", "I")
    assert f"{words.before}R{words.between}I{words.after}" == tokenizer.apply_chat_template(
        messages, tokenize=False, add_generation_prompt=True
    )
    assert words.start == []


def test_plain_format_has_no_chat_markers_and_asks_for_the_answer(tokenizer_model: Model) -> None:
    tokenizer = load_tokenizer(tokenizer_model)
    words = render_template(Template("Be short.", "{readme} and {instruction}"), tokenizer, "plain")
    assert (words.before, words.between, words.after) == ("Be short.\n\n", " and ", "\n\nAnswer:\n")


def test_plain_format_starts_with_the_begin_token_of_models_that_have_one() -> None:
    words = render_template(Template("", "a{readme}b{instruction}"), BeginTokenizer(), "plain")
    assert words.start == [1]
    assert (words.before, words.between) == ("a", "b")


def test_a_model_without_a_chat_template_must_be_plain() -> None:
    with pytest.raises(BadInput, match=r"no chat template; describe the model with format: plain"):
        render_template(read_template(None), BeginTokenizer(), "chat")


NO_SYSTEM = (
    "{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    "{% for message in messages %}<{{ message['role'] }}>{{ message['content'] }}{% endfor %}<model>"
)


def test_a_model_that_refuses_a_system_message_reads_it_in_the_users(tokenizer_model: Model) -> None:
    tokenizer = load_tokenizer(tokenizer_model)
    tokenizer.chat_template = NO_SYSTEM
    words = render_template(Template("Be short.", "{readme} and {instruction}"), tokenizer, "chat")
    assert f"{words.before}R{words.between}I{words.after}" == "<user>Be short.\n\nR and I<model>"


def test_a_chat_template_that_takes_nothing_is_bad_input(tokenizer_model: Model) -> None:
    tokenizer = load_tokenizer(tokenizer_model)
    tokenizer.chat_template = "{{ raise_exception('never') }}"
    with pytest.raises(BadInput, match=r"takes no user message \(never\); use format: plain"):
        render_template(read_template(None), tokenizer, "chat")


class BeginTokenizer:
    """As Llama's tokenizer: a begin token before every text, unless told otherwise."""

    bos_token_id = 1
    chat_template = None

    def __call__(self, text: str, add_special_tokens: bool = True) -> "BeginTokenizer":
        self.input_ids = [1] * add_special_tokens + [ord(character) for character in text]
        return self
