"""The reference's ways of sampling: the instruction before the README, rows in any order, and with
transformers one `generate` call for each candidate, one row at a time.
"""

import random
from array import array
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from infer.engines.interface import Request
from mlbench_data.budget import Cut
from mlbench_data.models import Model, load_tokenizer
from mlbench_data.prompts import Prompt, PromptBuilder


def instruction_first(request: Request, readme: str, builder: PromptBuilder) -> Request:
    """The same row asked with the instruction before the README, in the same words and chat format."""
    template = builder.template
    [*system, user] = template.messages("", request.prompt.row.instruction)
    content = f"Instruction:\n{request.prompt.row.instruction}\n\nREADME:\n{readme}"
    text = builder.tokenizer.apply_chat_template(
        [*system, {**user, "content": content}], tokenize=False, add_generation_prompt=True
    )
    ids = array("i", builder.tokenizer(text, add_special_tokens=False).input_ids)
    return Request(Prompt(request.prompt.row, ids, 0, ids, Cut(len(ids), len(ids))), request.seed)


def shuffled(requests: list[Request], seed: int) -> list[Request]:
    """The rows in no order."""
    return random.Random(seed).sample(requests, len(requests))


def generated_one_by_one(model: Model, requests: list[Request], n: int, settings: dict[str, Any]) -> int:
    """Samples n candidates for each row, each in a call of its own; returns the tokens generated."""
    tokenizer = load_tokenizer(model)
    network: Any = AutoModelForCausalLM.from_pretrained(model.location, dtype=torch.float32).eval()
    tokens = 0
    with torch.inference_mode():
        for request in requests:
            ids = torch.tensor([request.token_ids])
            for candidate in range(n):
                torch.manual_seed(request.seed + candidate)
                out = network.generate(
                    ids,
                    attention_mask=torch.ones_like(ids),
                    pad_token_id=tokenizer.pad_token_id or tokenizer.eos_token_id,
                    **settings,
                )
                tokens += out.shape[1] - ids.shape[1]
    return tokens


def greedy_texts(model: Model, requests: list[Request], tokens: int) -> list[str]:
    """The likeliest continuation of each row, by the library's own generate."""
    tokenizer = load_tokenizer(model)
    network: Any = AutoModelForCausalLM.from_pretrained(model.location, dtype=torch.float32).eval()
    texts = []
    with torch.inference_mode():
        for request in requests:
            ids = torch.tensor([request.token_ids])
            out = network.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                do_sample=False,
                max_new_tokens=tokens,
                pad_token_id=tokenizer.pad_token_id or tokenizer.eos_token_id,
            )
            texts.append(tokenizer.decode(out[0, ids.shape[1] :], skip_special_tokens=True))
    return texts
