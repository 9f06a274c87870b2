"""The transformers engine: one cache a prompt, and the numbers of stock attention."""

from collections import Counter

import pytest
import torch
from transformers import AutoModelForCausalLM

from infer.engines.interface import Request, Sampling
from infer.engines.transformers_engine import TransformersEngine, draw
from mlbench_data.models import Model, resolve_model

GREEDY = Sampling(n=1, temperature=0, top_p=1, max_new_tokens=24, seed=0)


@pytest.fixture(scope="module")
def engine(tokenizer_model: Model) -> TransformersEngine:
    return TransformersEngine(tokenizer_model, None, batch_tokens=4096, trust_remote_code=False)


def requests(count: int) -> list[Request]:
    """Prompts of unequal length, so that padding is there to go wrong."""
    return [
        Request([100 + (7 * row + place) % 900 for place in range(20 + 9 * row)], row) for row in range(count)
    ]


def stock_greedy(location: str, prompt: list[int], tokens: int) -> list[int]:
    """Greedy decoding by whole forward passes of the stock model, without any cache."""
    model = AutoModelForCausalLM.from_pretrained(location, dtype=torch.float32).eval()
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
    found = engine.sample(batch, GREEDY)
    for request, completions in zip(batch, found, strict=True):
        expected = stock_greedy(tokenizer_model.location, request.token_ids, GREEDY.max_new_tokens)
        assert completions[0].text == engine.tokenizer.decode(expected)


def test_a_shared_readme_is_read_once_and_changes_no_token(
    engine: TransformersEngine, tokenizer_model: Model
) -> None:
    """Two READMEs of unequal length, five rows, unequal instructions."""
    engine.end_ids = set()
    readmes = [[300 + place for place in range(40)], [800 + 3 * place for place in range(57)]]
    batch = [
        Request(
            readmes[row % 2] + [50 + row * 11 + place for place in range(6 + 3 * row)],
            row,
            len(readmes[row % 2]),
        )
        for row in range(5)
    ]
    found = engine.sample(batch, GREEDY)
    for request, completions in zip(batch, found, strict=True):
        expected = stock_greedy(tokenizer_model.location, request.token_ids, GREEDY.max_new_tokens)
        assert completions[0].text == engine.tokenizer.decode(expected)


@pytest.mark.slow
def test_greedy_tokens_of_the_embedded_model_are_those_of_stock_attention() -> None:
    model = resolve_model("smollm2-135m")
    engine = TransformersEngine(model, None, batch_tokens=4096, trust_remote_code=False)
    engine.end_ids = set()
    text = "README:\npython train.py --dataset cora --lr 0.01\nWrite the command for pubmed.\n"
    prompts = [engine.tokenizer(text * times).input_ids for times in (1, 3)]
    found = engine.sample([Request(prompt, 0) for prompt in prompts], GREEDY)
    for prompt, completions in zip(prompts, found, strict=True):
        expected = engine.tokenizer.decode(stock_greedy(model.location, prompt, 24))
        assert completions[0].tokens >= 8  # shorter than the limit if its code block was closed
        assert expected.startswith(completions[0].text)


def test_a_row_s_candidates_do_not_depend_on_the_rows_beside_it(engine: TransformersEngine) -> None:
    """Each candidate has random numbers of its own. Padding changes the last bit of a sum, and with it a few
    candidates of a random model, whose tokens are nearly equally likely; shared numbers would change all.
    """
    sampling = Sampling(n=3, temperature=0.8, top_p=0.95, max_new_tokens=16, seed=0)
    together = engine.sample(requests(5), sampling)
    alone = [engine.sample([request], sampling)[0] for request in requests(5)]
    pairs = [pair for rows in zip(together, alone, strict=True) for pair in zip(*rows, strict=True)]
    assert sum(one == other for one, other in pairs) >= 0.7 * len(pairs)


def test_candidates_of_a_row_differ_and_the_seed_decides_them(engine: TransformersEngine) -> None:
    sampling = Sampling(n=5, temperature=1.0, top_p=1.0, max_new_tokens=16, seed=0)
    first = engine.sample(requests(1), sampling)[0]
    assert len({completion.text for completion in first}) == 5
    assert engine.sample(requests(1), sampling)[0] == first
    other = [Request(requests(1)[0].token_ids, seed=1000)]
    assert engine.sample(other, sampling)[0] != first


def test_candidates_end_at_the_end_token_or_at_the_limit(engine: TransformersEngine) -> None:
    sampling = Sampling(n=4, temperature=1.0, top_p=1.0, max_new_tokens=12, seed=0)
    engine.end_ids = set()
    limited = [item for row in engine.sample(requests(3), sampling) for item in row]
    assert {(item.finish, item.tokens) for item in limited} == {("length", 12)}
    engine.end_ids = set(range(0, 49152, 2))
    ended = [item for row in engine.sample(requests(3), sampling) for item in row]
    engine.end_ids = set()
    stopped = [item for item in ended if item.finish == "stop"]
    assert len(stopped) > len(ended) / 2
    assert len({item.tokens for item in stopped}) > 1


def test_a_closed_code_block_ends_a_candidate(engine: TransformersEngine) -> None:
    tokens = engine.tokenizer("```bash\npython a.py\n```").input_ids
    assert engine._ends(tokens)
    assert not engine._ends(tokens[:-1])


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
