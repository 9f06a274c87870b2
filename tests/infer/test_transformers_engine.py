"""The transformers engine: one cache a prompt, and the numbers of stock attention."""

from array import array
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from infer.engines.drawing import draw
from infer.engines.interface import Sampling, requests_of
from infer.engines.transformers_engine import TransformersEngine, computed
from mlbench_data.budget import Cut
from mlbench_data.models import Model, resolve_model
from mlbench_data.prompts import Prompt
from mlbench_data.quantization import Quantization
from tests.infer.asked import request, requests, row

GREEDY = Sampling(n=1, temperature=0, top_p=1, max_new_tokens=24, seed=0)


@pytest.fixture(scope="module")
def engine(tokenizer_model: Model) -> TransformersEngine:
    engine = TransformersEngine(tokenizer_model, 4096, "none", trust_remote_code=False)
    engine.use(None)
    return engine


def stock_greedy(location: str, prompt: list[int], tokens: int) -> list[int]:
    """Greedy decoding by the stock model."""
    model = AutoModelForCausalLM.from_pretrained(location, dtype=torch.float32).eval()
    return greedy(model, prompt, tokens)


def greedy(model: Any, prompt: list[int], tokens: int) -> list[int]:
    """Greedy decoding by whole forward passes, without any cache."""
    ids = torch.tensor([prompt])
    with torch.inference_mode():
        for _ in range(tokens):
            ids = torch.cat([ids, model(input_ids=ids).logits[:, -1:].argmax(-1)], 1)
    return ids[0, len(prompt) :].tolist()


def test_greedy_tokens_are_those_of_stock_attention(
    engine: TransformersEngine, tokenizer_model: Model
) -> None:
    """The shared prompt, the padding and the merged attention change no token."""
    engine.end_ids = set()
    batch = requests(4)
    found = engine.completions(batch, GREEDY)
    for asked, completions in zip(batch, found, strict=True):
        expected = stock_greedy(tokenizer_model.location, asked.token_ids, GREEDY.max_new_tokens)
        assert completions[0].text == engine.tokenizer.decode(expected)


def test_a_shared_readme_is_read_once_and_changes_no_token(
    engine: TransformersEngine, tokenizer_model: Model
) -> None:
    """Two READMEs of unequal length, five rows, unequal instructions."""
    engine.end_ids = set()
    readmes = [[300 + place for place in range(40)], [800 + 3 * place for place in range(57)]]
    batch = [
        request(
            readmes[row % 2] + [50 + row * 11 + place for place in range(6 + 3 * row)],
            row,
            len(readmes[row % 2]),
        )
        for row in range(5)
    ]
    found = engine.completions(batch, GREEDY)
    for asked, completions in zip(batch, found, strict=True):
        expected = stock_greedy(tokenizer_model.location, asked.token_ids, GREEDY.max_new_tokens)
        assert completions[0].text == engine.tokenizer.decode(expected)


@pytest.mark.slow
def test_greedy_tokens_of_the_embedded_model_are_those_of_stock_attention() -> None:
    model = resolve_model("smollm2-135m")
    engine = TransformersEngine(model, 4096, "none", trust_remote_code=False)
    engine.use(None)
    engine.end_ids = set()
    text = "README:\npython train.py --dataset cora --lr 0.01\nWrite the command for pubmed.\n"
    prompts = [engine.tokenizer(text * times).input_ids for times in (1, 3)]
    found = engine.completions([request(prompt, 0) for prompt in prompts], GREEDY)
    for prompt, completions in zip(prompts, found, strict=True):
        expected = engine.tokenizer.decode(stock_greedy(model.location, prompt, 24))
        assert completions[0].tokens >= 8  # shorter than the limit if its code block was closed
        assert expected.startswith(completions[0].text)


def test_a_row_s_candidates_do_not_depend_on_the_rows_beside_it(engine: TransformersEngine) -> None:
    """Each candidate has random numbers of its own. Padding changes the last bit of a sum, and with it, on
    some processors more than on others, a few tokens of a random model, which are nearly equally likely:
    candidates are short. Shared numbers would change all of them.
    """
    sampling = Sampling(n=3, temperature=0.8, top_p=0.95, max_new_tokens=3, seed=0)
    together = engine.completions(requests(5), sampling)
    alone = [engine.completions([one], sampling)[0] for one in requests(5)]
    pairs = [pair for rows in zip(together, alone, strict=True) for pair in zip(*rows, strict=True)]
    assert sum(one == other for one, other in pairs) >= 0.7 * len(pairs)


def test_candidates_of_a_row_differ_and_the_seed_decides_them(engine: TransformersEngine) -> None:
    sampling = Sampling(n=5, temperature=1.0, top_p=1.0, max_new_tokens=16, seed=0)
    first = engine.completions(requests(1), sampling)[0]
    assert len({completion.text for completion in first}) == 5
    assert engine.completions(requests(1), sampling)[0] == first
    other = [request(requests(1)[0].token_ids, 1000)]
    assert engine.completions(other, sampling)[0] != first


def test_candidates_end_at_the_end_token_or_at_the_limit(engine: TransformersEngine) -> None:
    sampling = Sampling(n=4, temperature=1.0, top_p=1.0, max_new_tokens=12, seed=0)
    engine.end_ids = set()
    limited = [item for row in engine.completions(requests(3), sampling) for item in row]
    assert {(item.finish, item.tokens) for item in limited} == {("length", 12)}
    engine.end_ids = set(range(0, 49152, 2))
    ended = [item for row in engine.completions(requests(3), sampling) for item in row]
    engine.end_ids = set()
    stopped = [item for item in ended if item.finish == "stop"]
    assert len(stopped) > len(ended) / 2
    assert len({item.tokens for item in stopped}) > 1


def test_a_stop_text_ends_a_candidate_and_is_not_part_of_it(engine: TransformersEngine) -> None:
    engine.end_ids = set()
    [[whole]] = engine.completions(requests(1), GREEDY)
    stop = whole.text[12:16]
    [[ended]] = engine.completions(requests(1), replace(GREEDY, stop=("never written", stop)))
    assert ended.text == whole.text[: whole.text.index(stop)]
    assert ended.finish == "stop"
    assert ended.tokens < whole.tokens


def test_rows_that_are_done_are_not_answered_again_and_change_no_number(
    engine: TransformersEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A continued run computes whole batches as an undisturbed one does."""
    monkeypatch.setattr(engine, "batch_tokens", 400)
    sampling = Sampling(n=2, temperature=1.0, top_p=1.0, max_new_tokens=8, seed=0)
    asked = requests(12)
    assert len(engine.batches(asked, sampling)) > 1
    whole = {answer.index: answer for answers in engine.sample(asked, (), sampling) for answer in answers}
    done = {0, 3, 4, 5, 11}
    rest = {answer.index: answer for answers in engine.sample(asked, done, sampling) for answer in answers}
    assert rest == {index: answer for index, answer in whole.items() if index not in done}


def test_a_long_readme_is_read_once_for_the_batches_that_follow_and_changes_no_number(
    engine: TransformersEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when the run is continued at a batch in its middle, which then reads the README itself."""
    monkeypatch.setattr(engine, "batch_tokens", 1450)
    sampling = Sampling(n=2, temperature=1.0, top_p=1.0, max_new_tokens=8, seed=0)
    readmes = [[300 + place % 700 for place in range(1100 + 50 * number)] for number in range(2)]
    asked = [
        request([*readmes[number % 2], *range(60, 180 + number)], number, len(readmes[number % 2]))
        for number in range(12)
    ]
    batches = engine.batches(asked, sampling)
    assert len(batches) > 4
    whole = [answer for answers in engine.sample(asked, (), sampling) for answer in answers]
    unique = sum(map(len, readmes)) + sum(len(one.prompt) - one.prompt.readme_end for one in asked)
    assert sum(answer.usage.computed_tokens for answer in whole) == unique
    assert not engine.kept
    done = {index for batch in batches[:1] for index in batch}
    rest = [answer for answers in engine.sample(asked, done, sampling) for answer in answers]
    texts = [(answer.index, answer.completions) for answer in whole if answer.index not in done]
    assert [(answer.index, answer.completions) for answer in rest] == texts
    alone = [engine.completions([one], sampling)[0] for one in asked]
    engine.kept.clear()
    pairs = [(answer.completions, alone[answer.index]) for answer in whole]
    assert sum(one == other for one, other in pairs) >= 0.7 * len(pairs)


def test_rows_whose_readme_is_cut_at_different_places_share_what_all_of_them_read() -> None:
    """A README that does not fit loses more, the longer the instruction; once, rows then shared nothing."""
    start = array("i", range(100))
    prompts = [
        Prompt(row(number), start, 90 - number, array("i", range(200, 205 + number)), Cut(100, 90 - number))
        for number in range(3)
    ]
    asked = requests_of(prompts, 0)
    assert [one.shared for one in asked] == [88, 88, 88]
    assert len({one.readme for one in asked}) == 1
    assert [one.token_ids for one in asked] == [prompt.token_ids for prompt in prompts]
    assert computed(asked) == [95, 7, 7]


def test_a_readme_is_computed_once_in_a_batch() -> None:
    readme = list(range(100, 140))
    batch = [request([*readme, *range(5 + number)], number, len(readme)) for number in range(3)]
    assert computed([*batch, request(readme, 9)]) == [45, 6, 7, 40]
    assert computed(batch, [batch[0].readme]) == [5, 6, 7]


@pytest.mark.slow
@pytest.mark.parametrize("quantization", ["nf4", "int8"])
def test_greedy_tokens_of_a_quantized_model_are_those_of_stock_attention(quantization: Quantization) -> None:
    engine = TransformersEngine(resolve_model("smollm2-135m"), 4096, quantization, trust_remote_code=False)
    engine.use(None)
    assert engine.model.is_quantized
    text = "README:\npython train.py --dataset cora --lr 0.01\nWrite the command for pubmed.\n"
    prompt = engine.tokenizer(text).input_ids
    [[found]] = engine.completions([request(prompt, 0)], replace(GREEDY, max_new_tokens=12))
    assert engine.tokenizer.decode(greedy(engine.model, prompt, 12)).startswith(found.text)


def test_batches_hold_every_row_once_and_keep_to_the_cache(engine: TransformersEngine) -> None:
    sampling = Sampling(n=5, temperature=1.0, top_p=1.0, max_new_tokens=100, seed=0)
    asked = requests(30)
    batches = engine.batches(asked, sampling)
    assert sorted(index for batch in batches for index in batch) == list(range(30))
    assert len(batches) > 1
    for batch in batches:
        longest = max(len(asked[index].token_ids) for index in batch)
        assert len(batch) == 1 or len(batch) * (longest + 5 * 100) <= engine.batch_tokens


def test_draw_follows_the_distribution_within_top_p() -> None:
    """Frequencies are those of the renormalised nucleus, and nothing outside it is ever drawn."""
    probabilities = torch.tensor([0.5, 0.25, 0.15, 0.07, 0.03])
    logits = probabilities.log().repeat(4000, 1)
    sampling = Sampling(n=1, temperature=1.0, top_p=0.8, max_new_tokens=1, seed=0)
    generators = [torch.Generator().manual_seed(seed) for seed in range(4000)]
    counts = Counter(draw(logits, sampling, generators))
    assert set(counts) == {0, 1, 2}
    for token, share in ((0, 0.5 / 0.9), (1, 0.25 / 0.9), (2, 0.15 / 0.9)):
        assert counts[token] / 4000 == pytest.approx(share, abs=0.03)


def test_draw_from_a_flat_distribution_looks_beyond_the_likeliest_tokens() -> None:
    sampling = Sampling(n=1, temperature=1.0, top_p=0.95, max_new_tokens=1, seed=0)
    generators = [torch.Generator().manual_seed(seed) for seed in range(500)]
    drawn = draw(torch.zeros(500, 4096), sampling, generators)
    assert len(set(drawn)) > 400
