"""FlexAttention's kernels of the pack's mask: what they compute, and whether cards can start them."""

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.gpu.conftest import OnPretendedGpu

# The head sizes of configs/models are 128 and 64; 64 takes less wherever inductor's blocks are the same. Left
# out is what needs no more than a case that is here.
CASES = {
    "8.0": ["128:bfloat16"],
    "8.6": ["128:bfloat16", "64:bfloat16", "128:float32"],
    "8.9": ["128:bfloat16"],
    "9.0": ["128:bfloat16", "64:bfloat16"],
    "10.0": ["128:bfloat16"],
    "12.0": ["128:bfloat16", "128:float32"],
}

RAGGED = [[130, [40, 27, 33]], [60, [20]], [0, [25]]]
SHORT = [[30, [4, 9]], [0, [11]]]
ONE_BRANCH = [[90, [75]]]
MANY_GROUPS = [[11, [5, 3]], [0, [17]], [20, [1, 1, 9]], [7, [30]], [2, [2, 2]], [13, [13]]]
WHOLE_BLOCKS = [[128, [60, 68]]]


@pytest.fixture(scope="module")
def compiled(on_pretended_gpu: OnPretendedGpu) -> dict[str, list[dict[str, Any]]]:
    """The kernels of each card, compiled on two cores."""

    def compile_for(card: str) -> list[dict[str, Any]]:
        found = on_pretended_gpu("tests/gpu/compile_kernels.py", *CASES[card], capability=card)
        kernels: list[dict[str, Any]] = found["kernels"]
        return kernels

    with ThreadPoolExecutor(2) as pool:
        return dict(zip(CASES, pool.map(compile_for, CASES), strict=True))


@pytest.mark.parametrize("card", CASES)
def test_every_kernel_fits_the_cards_shared_memory(
    card: str, compiled: dict[str, list[dict[str, Any]]]
) -> None:
    """Most cards have 99 KiB, and inductor's own choice for heads of 128 takes more: the first step would end
    in OutOfResources.
    """
    kernels = compiled[card]
    assert len(kernels) == 2 * len(CASES[card]), "forward and backward"
    for kernel in kernels:
        told = "{direction:8} {dtype:8} {head_size:3} {stages} stages {shared_memory:7} of {limit}"
        print(f"sm_{card.replace('.', '')}", told.format(**kernel))
        assert kernel["machine_code"] > 0
        assert kernel["shared_memory"] <= kernel["limit"], kernel


@pytest.mark.parametrize(
    ("heads", "head_size", "dtype", "layouts", "tolerance"),
    [
        ((2, 1), 64, "float32", [RAGGED, SHORT, ONE_BRANCH, MANY_GROUPS, WHOLE_BLOCKS], 1e-6),
        # Scores' weights and their gradients are rounded to 8 bits before each product, by the interpreter
        # towards zero: a few times 2^-8 of the largest value.
        ((3, 1), 128, "bfloat16", [RAGGED, SHORT, ONE_BRANCH, MANY_GROUPS, WHOLE_BLOCKS], 4 * 2**-8),
    ],
    ids=["float32", "bfloat16"],
)
def test_generated_kernels_compute_shared_prefix_attention(
    heads: tuple[int, int],
    head_size: int,
    dtype: str,
    layouts: list[Any],
    tolerance: float,
    on_pretended_gpu: OnPretendedGpu,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The real kernels, output and gradients, on ragged, short and whole lengths, also without prefixes."""
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    found = on_pretended_gpu(
        "tests/gpu/interpret_kernels.py", *heads, head_size, dtype, *map(json.dumps, layouts)
    )
    assert len(found["errors"]) == len(layouts)
    for layout, errors in zip(layouts, found["errors"], strict=True):
        for name, error in errors.items():
            assert error <= tolerance, (layout, name, error)
    assert not any("decoding" in kernel for kernel in found["kernels"])
