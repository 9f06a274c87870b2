"""A training step of a 7B model on a pretended GPU: types, gradients, and the memory that was estimated.

Decoder layers are alike: what one adds is the difference of networks of 4 and of 3, which one network of all
32 confirms to five digits.
"""

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from mlbench_data.cli import parse
from mlbench_data.models import resolve_model
from tests.gpu.conftest import OnPretendedGpu
from train import memory
from train.config import TrainConfig
from train.memory import Case, Trace, architecture_of, divided, trace_of

TOLERANCE = 0.03
LAYERS, SMALL, LARGE = 32, 3, 4
RECIPE = [
    "--config",
    "configs/train/paper/codellama-7b-instruct-id-task2.yaml",
    "--gradient_accumulation",
    "1",
]
KEPT = ["--activation_checkpointing", "false"]
METHODS = {
    "lora": ["--lora_dropout", "0"],
    "lora, dropout": ["--lora_dropout", "0.05"],
    "lora, activations kept": KEPT,
    "nf4": ["--quantization", "nf4"],
    "nf4, activations kept": ["--quantization", "nf4", *KEPT],
    "full": ["--method", "full"],
    "full, activations kept": ["--method", "full", *KEPT],
    "full, two passes": ["--method", "full", "--gradient_accumulation", "2"],
}
RUN = {1: tuple(METHODS)[:-1], 8: ("lora", "nf4", "full", "full, two passes")}
"""By GPUs, with FSDP where there are several."""
CHECKED = [(gpus, name) for gpus, names in RUN.items() for name in names]

Steps = dict[tuple[int, str, int], dict[str, Any]]
Traces = dict[tuple[int, str], list[tuple[Case, Trace]]]


@pytest.fixture(scope="module")
def steps(on_pretended_gpu: OnPretendedGpu) -> Steps:
    """By GPUs, method and number of layers."""

    def run(gpus: int) -> Steps:
        asked = [(name, layers) for name in RUN[gpus] for layers in (SMALL, LARGE)]
        asked += [("lora", LAYERS)] if gpus == 1 else []
        options = [[*RECIPE, *METHODS[name], "--layers", str(layers)] for name, layers in asked]
        found = on_pretended_gpu(
            "tests/gpu/step.py", json.dumps({"gpus": gpus, "steps": options}), capability="8.0"
        )
        return {(gpus, *key): step for key, step in zip(asked, found["steps"], strict=True)}

    with ThreadPoolExecutor(len(RUN)) as both:
        return {key: step for found in both.map(run, RUN) for key, step in found.items()}


def whole(small: int, large: int) -> int:
    """Of all layers, by what one adds."""
    return large + (LAYERS - LARGE) * (large - small) // (LARGE - SMALL)


def faked(steps: Steps, gpus: int, name: str) -> int:
    return whole(*(steps[gpus, name, layers]["peak"] for layers in (SMALL, LARGE)))


def case_of(step: dict[str, Any], gpus: int, name: str, layers: int) -> Case:
    config = parse(TrainConfig, "", [*RECIPE, *METHODS[name]])
    model = resolve_model(config.model)
    architecture = architecture_of(model)
    architecture.num_hidden_layers = layers
    sizes = (step["tokens"], step["answers"], model.lora_targets, gpus)
    return Case(architecture, config, *sizes, "fsdp" if gpus > 1 else "none")


@pytest.fixture(scope="module")
def traces(steps: Steps) -> Traces:
    """What estimates are made of, by GPUs and method: with few layers and with more."""
    found = {}
    for gpus, name in CHECKED:
        cases = [case_of(steps[gpus, name, layers], gpus, name, layers) for layers in (SMALL, LARGE)]
        found[gpus, name] = [(case, trace_of(case)) for case in cases]
    return found


def estimated(traces: Traces, gpus: int, name: str) -> int:
    return whole(*(divided(case, trace).total for case, trace in traces[gpus, name]))


def test_layers_are_alike(steps: Steps) -> None:
    assert steps[1, "lora", LAYERS]["peak"] == pytest.approx(faked(steps, 1, "lora"), rel=1e-5)


@pytest.mark.parametrize(("gpus", "name"), CHECKED)
def test_the_estimate_is_what_a_step_on_a_gpu_holds(
    gpus: int, name: str, steps: Steps, traces: Traces
) -> None:
    found, expected = estimated(traces, gpus, name), faked(steps, gpus, name)
    print(f"{gpus} GPU, {name}: {found / 2**30:.2f} GiB estimated, {expected / 2**30:.2f} GiB in the step")
    assert found == pytest.approx(expected, rel=TOLERANCE)


@pytest.mark.parametrize(("gpus", "name"), CHECKED)
def test_everything_trained_has_a_gradient_and_states_in_float32(gpus: int, name: str, steps: Steps) -> None:
    step = steps[gpus, name, LARGE]
    assert step["without_gradient"] == []
    assert step["trained"] == step["gradients"] == step["states"] == ["float32"]
    assert flat(step["seen"]["aten._fused_adamw_.default"]) == {"float32"}


@pytest.mark.parametrize(("gpus", "name"), CHECKED)
def test_products_and_attention_are_in_bfloat16_and_the_loss_in_float32(
    gpus: int, name: str, steps: Steps
) -> None:
    seen = steps[gpus, name, LARGE]["seen"]
    assert flat(seen["aten.mm.default"]) == {"bfloat16"}
    assert {tuple(types[:3]) for types in seen["flex_attention"]} == {("bfloat16",) * 3}
    assert seen["aten._log_softmax.default"] == [["float32"]]
    if "nf4" in name:
        assert {tuple(types[:2]) for types in seen["bitsandbytes.gemm_4bit.default"]} == {("bfloat16",) * 2}


def test_dropout_before_lora_works_on_no_copies_in_float32(steps: Steps) -> None:
    assert flat(steps[1, "lora, dropout", LARGE]["seen"]["aten.native_dropout.default"]) == {"bfloat16"}


def test_gradients_of_all_weights_do_not_pile_up_under_fsdp(steps: Steps) -> None:
    one, two = (faked(steps, 8, name) for name in ("full", "full, two passes"))
    parts = 4 * 6_738_546_688 // 8  # of the first pass
    assert two - one < 1.1 * parts


def test_checkpointing_and_quantization_and_sharding_save_what_they_should(steps: Steps) -> None:
    peaks = {key: faked(steps, *key) for key in CHECKED}
    for name in ("lora", "nf4", "full"):
        assert peaks[1, name] < peaks[1, f"{name}, activations kept"]
        assert peaks[8, name] < peaks[1, name]
    assert peaks[1, "nf4"] < peaks[1, "lora"] < peaks[1, "full"]


@pytest.mark.parametrize("dropped", ["activations", "optimizer", "buffers", "gradients"])
def test_an_estimate_that_forgets_something_is_noticed(
    dropped: str, steps: Steps, traces: Traces, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = memory._held_at
    monkeypatch.setattr(memory, "_held_at", lambda *given: replace(full(*given), **{dropped: 0}))
    keys = [key for key in CHECKED if key[1] in ("full", "full, two passes")]
    ratios = [estimated(traces, *key) / faked(steps, *key) for key in keys]
    assert min(ratios) < 1 - TOLERANCE, ratios


def flat(types: list[list[str]]) -> set[str]:
    return {name for names in types for name in names}
