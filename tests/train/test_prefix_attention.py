"""The split attention against torch's own, with a mask over everything."""

import random
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.nn.attention.flex_attention import create_block_mask

from mlbench_data.bad_input import JobFailed
from train import prefix_attention
from train.prefix_attention import (
    Layout,
    block_mask,
    flex_prefix_attention,
    kernel_options,
    may_see,
    shared_prefix_attention,
)

LAYOUTS = [
    Layout(((0, (7,)),)),
    Layout(((5, (1, 3)),)),
    Layout(((130, (1, 70, 33)), (0, (40,)), (2, (2, 2, 2)))),
    Layout(((0, (1,)), (0, (1,)), (1, (1,)))),
]


def mask_of(layout: Layout) -> torch.Tensor:
    """Who may see whom, written out token by token."""
    owner: list[tuple[int, int]] = []
    for group, (prefix, branches) in enumerate(layout.groups):
        for branch, length in enumerate((prefix, *branches)):
            owner += [(group, branch)] * length
    size = len(owner)
    mask = torch.zeros(size, size, dtype=torch.bool)
    for query in range(size):
        for key in range(query + 1):
            same_group = owner[query][0] == owner[key][0]
            mask[query, key] = same_group and owner[key][1] in (0, owner[query][1])
    return mask


def tokens_of(layout: Layout) -> int:
    return sum(prefix + sum(branches) for prefix, branches in layout.groups)


def random_layout(generator: random.Random, most: int) -> Layout:
    """One to four groups, their prefixes and branches of up to `most` tokens."""

    def group() -> tuple[int, tuple[int, ...]]:
        branches = (generator.randint(1, most) for _ in range(generator.randint(1, 4)))
        return generator.randint(0, most), tuple(branches)

    return Layout(tuple(group() for _ in range(generator.randint(1, 4))))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("heads", "key_heads"), [(4, 4), (6, 2), (3, 1)])
def test_output_and_gradients_are_those_of_masked_attention(
    layout: Layout, heads: int, key_heads: int
) -> None:
    torch.manual_seed(0)
    tokens = tokens_of(layout)
    query = torch.randn(1, heads, tokens, 16, dtype=torch.float64, requires_grad=True)
    key, value = (
        torch.randn(1, key_heads, tokens, 16, dtype=torch.float64, requires_grad=True) for _ in range(2)
    )
    expected = F.scaled_dot_product_attention(
        query, key, value, attn_mask=mask_of(layout), scale=0.3, enable_gqa=True
    )
    direction = torch.randn_like(expected)
    expected_gradients = torch.autograd.grad((expected * direction).sum(), (query, key, value))
    found, weights = shared_prefix_attention(None, query, key, value, None, scaling=0.3, layout=layout)
    assert weights is None
    torch.testing.assert_close(found.transpose(1, 2), expected, rtol=1e-6, atol=1e-7)
    gradients = torch.autograd.grad((found.transpose(1, 2) * direction).sum(), (query, key, value))
    for gradient, wanted in zip(gradients, expected_gradients, strict=True):
        torch.testing.assert_close(gradient, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_mask_for_gpus_says_the_same(layout: Layout) -> None:
    """FlexAttention asks it for every pair of positions."""
    mask = mask_of(layout)
    places = torch.arange(len(mask))
    found = may_see(layout, torch.device("cpu"))(None, None, places[:, None], places[None])
    assert torch.equal(found, mask)


def test_the_block_mask_is_what_asking_about_every_pair_gives() -> None:
    """Which takes T x T bytes several times over."""
    generator = random.Random(0)
    for most in (3, 30, 130, 300) * 10:
        layout = random_layout(generator, most)
        found, tokens = block_mask(layout, torch.device("cpu")), tokens_of(layout)
        asked = create_block_mask(found.mask_mod, None, None, tokens, tokens, device="cpu")
        assert found.shape == asked.shape
        for name in asked._TENSOR_ATTRS:
            wanted = getattr(asked, name)
            if wanted is not None:
                assert torch.equal(getattr(found, name), wanted), (layout, name)


@pytest.fixture
def compilations(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """What dynamo hands to inductor, which here computes nothing for it but runs it as it is."""
    graphs: list[Any] = []

    def count(graph: Any, inputs: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    compile = torch.compile
    monkeypatch.setattr(
        torch, "compile", lambda function, **options: compile(function, backend=count, **options)
    )
    prefix_attention._compiled.cache_clear()
    torch._dynamo.reset()
    yield graphs
    prefix_attention._compiled.cache_clear()
    torch._dynamo.reset()


def attend(layout: Layout, heads: int = 2) -> None:
    query, key = torch.randn(1, heads, tokens_of(layout), 16), torch.randn(1, 1, tokens_of(layout), 16)
    flex_prefix_attention(None, query, key, key, block_mask(layout, query.device), scaling=0.25)


def test_packs_of_all_lengths_share_a_few_compilations(compilations: list[Any]) -> None:
    """In training and in evaluation: past 8 of them dynamo computes without a kernel, in silence."""
    generator = random.Random(0)
    layouts = [random_layout(generator, most) for most in (9, 40, 100, 300) * 2]
    layouts += [
        Layout(((0, (128,)),)),
        Layout(((0, (100,)),)),
        Layout(((128, (128,)),)),
        Layout(((60, (30,)),)),
    ]
    for layout in layouts:
        attend(layout)
        with torch.no_grad():
            attend(layout)
    assert len(compilations) <= 6 < torch._dynamo.config.recompile_limit


def test_a_kernel_too_many_is_an_error(compilations: list[Any]) -> None:
    """Dynamo goes on without a kernel and with all T x T scores: slow, or out of memory, and never said."""
    with torch._dynamo.config.patch(recompile_limit=1):
        attend(LAYOUTS[2])
        with pytest.raises(JobFailed, match="compiled for 1 kinds of packs and here is one more"):
            attend(LAYOUTS[2], heads=4)


def test_attention_without_a_compiler_is_an_error(compilations: list[Any]) -> None:
    with torch._dynamo.config.patch(disable=True), pytest.raises(JobFailed, match="not compiled"):
        attend(LAYOUTS[2])


def test_small_cards_get_small_blocks() -> None:
    """Which sizes fit is measured in tests/gpu."""
    forced = {"FORCE_USE_FLEX_ATTENTION": True}
    assert kernel_options(166_912, torch.float32) == forced
    assert kernel_options(101_376, torch.bfloat16) == {**forced, "fwd_num_stages": 2}
    assert kernel_options(101_376, torch.float32) == {**forced, "fwd_num_stages": 2, "fwd_BLOCK_M": 64}


def test_a_card_that_is_too_small_is_refused() -> None:
    with pytest.raises(JobFailed, match=r"65536 bytes .* needs 101376; use one of compute capability 8.0"):
        kernel_options(65_536, torch.float32)


def test_flex_attention_computes_the_same_forward() -> None:
    """The kernel of GPUs, run on the CPU, where it has no backward pass."""
    from torch.nn.attention.flex_attention import flex_attention

    torch.manual_seed(0)
    layout = Layout(((130, (40, 70, 16)),))
    query, key, value = (torch.randn(1, 2, 256, 16) for _ in range(3))
    mask = block_mask(layout, query.device)
    expected = flex_attention(query, key, value, block_mask=mask, scale=0.25)
    found, _ = shared_prefix_attention(None, query, key, value, None, scaling=0.25, layout=layout)
    torch.testing.assert_close(found.transpose(1, 2), expected, rtol=1e-5, atol=1e-5)


def test_what_it_cannot_compute_is_refused() -> None:
    query = torch.randn(1, 2, 4, 8)
    with pytest.raises(ValueError, match="needs the pack's layout"):
        shared_prefix_attention(None, query, query, query, None, scaling=1.0)
    with pytest.raises(ValueError, match="neither dropout nor sliding windows"):
        shared_prefix_attention(None, query, query, query, None, scaling=1.0, layout=LAYOUTS[0], dropout=0.1)
