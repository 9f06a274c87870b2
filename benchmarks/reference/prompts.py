"""Prompts the plain way: render each one, tokenize it as a whole, and cut README tokens if it is too long."""

from typing import Any

from mlbench_data.template import Template


def prompt_ids(
    tokenizer: Any, template: Template, readme: str, instruction: str, context: int, answer: int
) -> list[int]:
    """One prompt's tokens; those of the README go from its end until prompt and answer fit."""
    messages = template.messages(readme, instruction)
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    found = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    ids = found.input_ids
    too_many = len(ids) + answer - context
    if too_many <= 0:
        return ids
    end_of_readme = text.rindex(instruction) - len("\n\nInstruction:\n")
    after = next(place for place, (_, end) in enumerate(found.offset_mapping) if end > end_of_readme)
    return ids[: after - too_many] + ids[after:]
