"""The split attention against torch's own, with a mask over everything."""

import pytest
import torch
import torch.nn.functional as F

from train.prefix_attention import Layout, may_see, shared_prefix_attention

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


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("heads", "key_heads"), [(4, 4), (6, 2), (3, 1)])
def test_output_and_gradients_are_those_of_masked_attention(
    layout: Layout, heads: int, key_heads: int
) -> None:
    torch.manual_seed(0)
    tokens = sum(prefix + sum(branches) for prefix, branches in layout.groups)
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


def test_flex_attention_computes_the_same_forward() -> None:
    """The kernel of GPUs, run on the CPU, where it has no backward pass."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    torch.manual_seed(0)
    layout = Layout(((130, (40, 70, 16)),))
    query, key, value = (torch.randn(1, 2, 256, 16) for _ in range(3))
    mask = create_block_mask(may_see(layout, query.device), None, None, 256, 256, device="cpu")
    expected = flex_attention(query, key, value, block_mask=mask, scale=0.25)
    found, _ = shared_prefix_attention(None, query, key, value, None, scaling=0.25, layout=layout)
    torch.testing.assert_close(found.transpose(1, 2), expected, rtol=1e-5, atol=1e-5)


def test_what_it_cannot_compute_is_refused() -> None:
    query = torch.randn(1, 2, 4, 8)
    with pytest.raises(ValueError, match="needs the pack's layout"):
        shared_prefix_attention(None, query, query, query, None, scaling=1.0)
    with pytest.raises(ValueError, match="neither dropout nor sliding windows"):
        shared_prefix_attention(None, query, query, query, None, scaling=1.0, layout=LAYOUTS[0], dropout=0.1)
