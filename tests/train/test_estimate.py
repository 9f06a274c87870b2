"""Estimated memory is what a real step takes on a CPU, within a tenth; what GPUs share is arithmetic.

As a script this file measures, without pytest: python -m tests.train.test_estimate SETTINGS.json
"""

import dataclasses
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from array import array
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, TrainerCallback

from mlbench_data.bad_input import BadInput
from mlbench_data.budget import Cut
from mlbench_data.cli import parse
from mlbench_data.files import PROJECT_ROOT
from mlbench_data.models import Model, Shape, resolve_model
from mlbench_data.prompts import Prompt
from tests.helpers import RunScript, error_line
from train.config import TrainConfig
from train.estimate import EstimateConfig, case_of, main, parse_memory
from train.examples import Example
from train.groups import Group
from train.memory import Case, Estimate, architecture_of, estimate, table
from train.network import load_network
from train.packs import Pack
from train.plan import Plan
from train.sft import network_settings, training_arguments
from train.trainer import PackTrainer

Measured = dict[str, int]


@dataclass(frozen=True)
class Setting:
    """A configuration, and the pack that it is measured with: rows that share a prefix, of made-up tokens."""

    model: str
    prefix: int
    rows: int
    prompt: int
    answer: int
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def tokens(self) -> int:
        return self.prefix + self.rows * (self.prompt + self.answer)

    def config(self, folder: str) -> TrainConfig:
        one_pass = {"output_dir": folder, "model": self.model, "gradient_accumulation": 1}
        return TrainConfig(**{**one_pass, **self.options})

    def case(self) -> Case:
        model = resolve_model(self.model)
        answers = self.rows * self.answer
        sizes = (self.tokens, answers, model.lora_targets)
        return Case(architecture_of(model), self.config(""), *sizes, device="cpu")


SETTINGS = {
    "short pack": Setting("smollm2-135m", 0, 1, 100, 50),
    "activation checkpointing": Setting("smollm2-135m", 0, 4, 10, 40, {"activation_checkpointing": True}),
    "nf4": Setting("smollm2-135m", 0, 2, 25, 50, {"quantization": "nf4"}),
    "full fine-tuning": Setting("smollm2-135m", 0, 1, 20, 10, {"method": "full"}),
    "many answers": Setting("tiny", 0, 2, 100, 400, {"lora_rank": 4}),
    "long pack, rank 128": Setting("small", 1000, 10, 50, 50, {"lora_rank": 128}),
    "long pack, full fine-tuning": Setting("small", 500, 10, 50, 50, {"method": "full"}),
    "DoRA": Setting("small", 500, 10, 50, 25, {"dora": True}),
    "int8": Setting("small", 500, 10, 50, 100, {"quantization": "int8"}),
}
"""tiny and small stand for folders that a fixture makes."""


class PeakMemory(TrainerCallback):
    """The most resident memory of the process during the last step."""

    bytes = 0

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")  # the peak starts anew

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        status = Path("/proc/self/status").read_text(encoding="utf-8")
        self.bytes = 1024 * int(re.findall(r"VmHWM:\s+(\d+) kB", status)[0])
        control.should_save = False


def pack_of(setting: Setting) -> Pack:
    no_row: Any = None
    ids = array("i", [5] * (setting.prefix + setting.prompt))
    example = Example(Prompt(no_row, ids, len(ids), array("i"), Cut(0, 0)), [7] * setting.answer)
    return Pack([Group(setting.prefix, [example] * setting.rows)])


def measure(setting: Setting) -> int:
    """Bytes that this process needs for the network and one optimizer step, the optimizer's states included:
    the second step of real training, of which the first makes the states.
    """
    before = psutil.Process().memory_info().rss
    with tempfile.TemporaryDirectory() as folder:
        config = setting.config(folder)
        plan = Plan([pack_of(Setting("", 0, 1, 4, 2)), pack_of(setting)], packs_per_step=1)
        arguments = training_arguments(config, plan, evaluate=False)
        network = load_network(*network_settings(config, resolve_model(setting.model)))
        for parameter in network.parameters():
            parameter.data = parameter.data.clone()  # or the whole file counts while one weight is mapped
        trainer = PackTrainer(network, arguments, plan.packs, [])
        peak = PeakMemory()
        trainer.add_callback(peak)
        trainer.train()
    return peak.bytes - before


def start_measuring(setting: Setting, warm_up: str) -> int:
    """Measures in a process of its own, which has imported, and once used, all code that it needs. Returns
    the end of a pipe where the bytes will be written.
    """
    reading, writing = os.pipe()
    if os.fork() == 0:
        measure(Setting(warm_up, 0, 1, 10, 10, {**setting.options, "lora_rank": 4}))
        os.write(writing, str(measure(setting)).encode())
        os._exit(0)
    os.close(writing)
    return reading


def measure_all(file: Path) -> None:
    settings = {name: Setting(**values) for name, values in json.loads(file.read_text()).items()}
    tiny = settings["many answers"].model
    measure(Setting(tiny, 0, 1, 10, 10))
    found = {}
    names = list(settings)
    for start in range(0, len(names), 2):  # as many at once as CI has cores
        started = {name: start_measuring(settings[name], tiny) for name in names[start : start + 2]}
        for name, reading in started.items():
            with os.fdopen(reading) as pipe:
                found[name] = int(pipe.read())
            os.wait()
    print(json.dumps(found))


@pytest.fixture(scope="module")
def settings(tokenizer_model: Model, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Setting]:
    """With folders for the two small models' names."""
    small = tmp_path_factory.mktemp("models") / "small-llama"
    sizes: dict[str, Any] = {
        "hidden_size": 256,
        "intermediate_size": 704,
        "num_hidden_layers": 8,
        "vocab_size": 8000,
    }
    architecture = LlamaConfig(**sizes, num_attention_heads=8, num_key_value_heads=4)
    LlamaForCausalLM(architecture).save_pretrained(small)
    folders = {"tiny": tokenizer_model.location, "small": str(small)}
    return {
        name: replace(setting, model=folders.get(setting.model, setting.model))
        for name, setting in SETTINGS.items()
    }


@pytest.fixture(scope="module")
def measured(settings: dict[str, Setting], tmp_path_factory: pytest.TempPathFactory) -> Measured:
    """Bytes by setting, with an allocator that gives back what is freed."""
    file = tmp_path_factory.mktemp("measured") / "settings.json"
    file.write_text(json.dumps({name: asdict(setting) for name, setting in settings.items()}))
    allocator = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
    one_thread = {"OMP_NUM_THREADS": "1", "HF_DEACTIVATE_ASYNC_LOAD": "1"}  # threads do not survive a fork
    done = subprocess.run(
        [sys.executable, "-m", "tests.train.test_estimate", str(file)],
        cwd=PROJECT_ROOT,
        env={**os.environ, **allocator, **one_thread},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    found: Measured = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", SETTINGS)
def test_the_estimate_is_what_a_step_takes(
    name: str, settings: dict[str, Setting], measured: Measured
) -> None:
    found = estimate(settings[name].case())
    print(f"{name}: {found.total / 2**20:.0f} MiB estimated, {measured[name] / 2**20:.0f} MiB measured")
    assert found.total == pytest.approx(measured[name], rel=0.1)


LLAMA = LlamaConfig(
    hidden_size=128, intermediate_size=256, num_hidden_layers=3, num_attention_heads=4, vocab_size=1000
)


def small_case(sharding: Any = "none", processes: int = 1, **options: Any) -> Case:
    config = TrainConfig(**{"lora_rank": 4, "gradient_accumulation": 1, **options})
    return Case(LLAMA, config, 512, 100, processes=processes, sharding=sharding)


def trained_parameters(method: str) -> int:
    """Of small_case."""
    linear = [(128, 128)] * 4 + [(128, 256)] * 3
    lora = 3 * sum(4 * (rows + columns) for rows, columns in linear)
    full = 3 * (sum(rows * columns for rows, columns in linear) + 2 * 128) + 2 * 1000 * 128 + 128
    return lora if method == "lora" else full


def test_a_card_with_a_shape_needs_no_hub() -> None:
    case = case_of(EstimateConfig(model="codellama-7b-instruct", pack_tokens=2048, gradient_accumulation=2))
    found = estimate(case)
    lora = 32 * 16 * (4 * (4096 + 4096) + 3 * (4096 + 11008))
    assert case.tokens == 8192  # a row may be longer than a pack, and goes alone
    assert case.answers == 1024  # batch_size * answer_tokens
    assert found.weights == 2 * 6_738_546_688  # the published number of parameters, in bfloat16
    assert (found.adapter, found.gradients, found.optimizer) == (4 * lora, 4 * lora, 8 * lora)
    assert found.activations > 32 * 2048 * 2 * (6 * 4096 + 4 * 11008)  # what every layer must keep at least


def test_a_folders_own_configuration_comes_before_a_shape(tokenizer_model: Model) -> None:
    shape = Shape(128, 256, 3, 4, 4, 1000)
    assert architecture_of(replace(tokenizer_model, shape=shape)).hidden_size == 64
    assert architecture_of(Model("far", "owner/far", "plain", shape=shape)).hidden_size == 128


@pytest.mark.parametrize("method", ["lora", "full"])
def test_what_is_trained_has_gradients_and_two_states(method: Any) -> None:
    count = trained_parameters(method)
    found = estimate(small_case(method=method, gradient_accumulation=2))
    assert (found.gradients, found.optimizer, found.buffers) == (4 * count, 8 * count, 0)
    assert (found.weights if method == "full" else found.adapter) == 4 * count


def test_gradients_of_one_pass_come_while_activations_go() -> None:
    one, several = (estimate(small_case(method="full", gradient_accumulation=number)) for number in (1, 2))
    assert one.gradients < several.gradients
    assert one.total < several.total


def test_however_few_tokens_there_are_every_gradient_is_made() -> None:
    found = estimate(replace(small_case(method="full"), tokens=4, answers=1))
    assert found.total == pytest.approx(16 * trained_parameters("full"), rel=0.001)


@pytest.mark.parametrize("method", ["lora", "full"])
def test_ddp_adds_buckets(method: Any) -> None:
    alone, ddp = estimate(small_case(method=method)), estimate(small_case("ddp", 4, method=method))
    assert ddp == replace(alone, buffers=4 * trained_parameters(method))


@pytest.mark.parametrize("sharding", ["fsdp", "zero2", "zero3"])
def test_shards_are_divided_and_activations_are_not(sharding: str) -> None:
    one, four = (estimate(small_case(sharding, processes, method="full")) for processes in (1, 4))
    count = trained_parameters("full")
    assert (one.activations, one.logits, one.buffers) == (four.activations, four.logits, four.buffers)
    assert one.buffers > 0
    assert four.weights == (one.weights if sharding == "zero2" else one.weights // 4)
    assert four.gradients == one.gradients // 4
    states = 8 if sharding == "fsdp" else 12  # DeepSpeed's float32 weights are with its optimizer
    assert four.optimizer == states * count // 4
    assert one.weights + one.optimizer == (12 if sharding == "fsdp" else 14) * count


@pytest.mark.parametrize(
    ("less", "more"),
    [
        ({"activation_checkpointing": True}, {}),
        ({"quantization": "nf4"}, {"quantization": "int8"}),
        ({}, {"dora": True}),
        ({}, {"lora_dropout": 0.1}),
        ({}, {"lora_rank": 64}),
        ({}, {"dtype": "float32"}),
        ({"lora_targets": ["q_proj"]}, {}),
    ],
)
def test_options_that_save_memory_do(less: dict[str, Any], more: dict[str, Any]) -> None:
    assert estimate(small_case(**less)).total < estimate(small_case(**more)).total


@pytest.mark.parametrize("quantization", ["nf4", "int8"])
def test_quantized_weights_take_what_bitsandbytes_stores(quantization: Any, tokenizer_model: Model) -> None:
    bytes_of = {"nf4": nf4_bytes, "int8": int8_bytes}[quantization]
    network = load_network(tokenizer_model, torch.float32, quantization)
    stored = sum(bytes_of(parameter) for parameter in network.parameters())
    config = TrainConfig(quantization=quantization)
    case = Case(architecture_of(tokenizer_model), config, 16, 4, device="cpu")
    assert estimate(case).weights == stored


def nf4_bytes(parameter: Any) -> int:
    state = getattr(parameter, "quant_state", None)
    scales = state.absmax.nbytes + state.state2.absmax.nbytes if state else 0
    return int(parameter.nbytes + scales)


def int8_bytes(parameter: Any) -> int:
    is_packed = parameter.dtype == torch.int8
    return int(parameter.nbytes + (4 * parameter.shape[0] if is_packed else 0))


def test_a_table_names_every_part() -> None:
    lines = table(Estimate(2**30, 0, 0, 0, 2**29, 0, 0))
    assert lines[0] == "memory, estimated, on each GPU"
    assert [line.split()[0] for line in lines[1:]] == [*Estimate.__annotations__, "total"]
    assert lines[-1].split()[1:] == ["1.50", "GiB"]
    assert table(Estimate(0, 0, 0, 0, 0, 0, 0), "cpu")[0].endswith("each process")


@pytest.fixture(scope="module")
def short_model(tokenizer_model: Model, tmp_path_factory: pytest.TempPathFactory) -> Model:
    """With room for 1,024 tokens, so that packs may be small."""
    folder = tmp_path_factory.mktemp("short") / "model"
    shutil.copytree(tokenizer_model.location, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "max_position_embeddings": 1024}))
    return resolve_model(str(folder))


def printed(model: Model, memory: str, capsys: pytest.CaptureFixture[str], *more: str) -> list[str]:
    arguments = ["--model", model.location, "--pack_tokens", "4096", "--gpu_memory", memory, *more]
    assert main(parse(EstimateConfig, "", arguments)) == 0
    return capsys.readouterr().out.splitlines()


def test_the_script_says_that_it_fits(short_model: Model, capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(short_model, "24GiB", capsys)
    assert lines[0] == f"{short_model.location}, packs of 4096 tokens, at most 1024 of them of answers"
    assert lines[-2].split()[0] == "total"
    assert lines[-1] == "fits in 24.0 GiB"


def test_the_script_says_what_would_help(short_model: Model, capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(short_model, "600MiB", capsys, "--batch_size", "4")
    start = lines.index("does NOT fit in 0.6 GiB; what would need less:")
    helping = [line.split(":")[0].strip() for line in lines[start + 1 :]]
    assert helping[:2] == ["activation_checkpointing true", "quantization nf4"]
    assert helping[2].startswith("pack_tokens ")
    assert helping[3].endswith("GPUs with fsdp")
    fitting = [line for line in lines[start + 1 :] if line.endswith(", fits")]
    assert fitting
    assert all(float(line.split()[-3]) <= 600 / 1024 for line in fitting)


def test_the_script_tries_changes_together_if_none_is_enough(
    short_model: Model, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = printed(short_model, "1MiB", capsys, "--pack_tokens", "2048")
    assert all(line.endswith("does not fit either") for line in lines[-5:])
    together = lines[-1].split(":")[0].strip()
    assert together == (
        "activation_checkpointing true and quantization nf4 and pack_tokens 1024 and 64 GPUs with fsdp"
    )


def test_a_shipped_configuration_is_estimated(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--config", "configs/train/smollm2-135m-id-task3.yaml", "--gpus", "2", "--sharding", "fsdp"]
    assert main(parse(EstimateConfig, "", arguments)) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "smollm2-135m, packs of 16384 tokens, at most 768 of them of answers"
    assert lines[-1] == "fits in 80.0 GiB"


def test_a_model_out_of_reach_is_one_line(run_script: RunScript) -> None:
    options = ["--model", "owner/unreachable"]
    done = run_script("train/estimate.py", *options, env={"HF_HUB_OFFLINE": "1"})
    assert error_line(done).startswith("error: owner/unreachable: no config.json could be loaded (")


@pytest.mark.parametrize(
    ("text", "size"),
    [("80GiB", 80 * 2**30), ("1.5 GiB", 3 * 2**29), ("24GB", 24 * 10**9), ("7MiB", 7 * 2**20)],
)
def test_memory_is_read_with_its_unit(text: str, size: int) -> None:
    assert parse_memory(text) == size


@pytest.mark.parametrize("text", ["", "80", "GiB", "-1GiB", "0GiB", "80 gib", "1e3GiB", "80GiB more"])
def test_other_sizes_are_refused(text: str) -> None:
    with pytest.raises(BadInput, match=r"^gpu_memory is .*; expected a size such as 80GiB"):
        parse_memory(text)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"gpus": 0}, "gpus is 0; expected a number above 0"),
        ({"gpu_memory": "lots"}, "gpu_memory is 'lots'; expected a size such as 80GiB, 24000MiB or 24GB"),
        ({"pack_tokens": 0}, "pack_tokens is 0; expected a number above 0"),
        ({"lora_targets": ["query"]}, "lora_targets: no layer is named query"),
    ],
)
def test_a_configuration_that_cannot_be_is_refused(options: dict[str, Any], error: str) -> None:
    with pytest.raises(BadInput, match=f"^{error}"):
        main(EstimateConfig(**options))


def test_help_explains_every_field(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(EstimateConfig, "", ["--help"])
    words = [entry.split("(type:")[0].split() for entry in capsys.readouterr().out.split("\n  --")]
    explained = {flag: meaning for flag, _, *meaning in words}
    for item in dataclasses.fields(EstimateConfig):
        assert len(explained[item.name]) >= 2, item.name


if __name__ == "__main__":
    measure_all(Path(sys.argv[1]))
