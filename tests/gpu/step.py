"""Optimizer steps of the real Trainer, network and optimizer on a pretended GPU, or on the first of several:

    python -m tests.gpu.pretended 8.0 tests/gpu/step.py '{"gpus": 1, "steps": [["--config", "….yaml"]]}'

Options are those of train/sft.py, and `--layers`. Weights, packs and gradients are tensors of the GPU without
data (torch's fake tensors); other GPUs are messages that nobody answers (torch's fake process group). The
functions named `…_instead` stand in for what cannot run so: reading weights from files, Params4bit,
FlexAttention's compiler, Module.to.
"""

import json
import os
import sys
import tempfile
from array import array
from collections import Counter, defaultdict
from dataclasses import dataclass, fields, replace
from multiprocessing import get_context
from typing import Any

import bitsandbytes
import torch
import torch.distributed.fsdp._fully_shard._fully_shard as fully_shard
import torch.nn.attention.flex_attention as flex
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, unset_fake_temporarily
from torch.distributed.device_mesh import init_device_mesh
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._pytree import tree_leaves
from transformers import AutoModelForCausalLM, TrainerCallback
from transformers.integrations.bitsandbytes import replace_with_bnb_linear
from transformers.quantizers.quantizer_bnb_4bit import Bnb4BitHfQuantizer

import train.prefix_attention as prefix_attention
from mlbench_data.budget import Cut
from mlbench_data.cli import parse
from mlbench_data.files import PROJECT_ROOT, read_yaml
from mlbench_data.models import resolve_model
from mlbench_data.prompts import Prompt
from tests.gpu.held import Held
from tests.gpu.pretended import pretend_streams
from train.config import TrainConfig, step_size
from train.examples import Example
from train.groups import Group
from train.memory import architecture_of
from train.network import load_network
from train.packs import Pack
from train.plan import Plan
from train.sft import network_settings
from train.trainer import PackTrainer, training_arguments

KERNELS = torch.library.Library("aten", "IMPL")


@dataclass(frozen=True)
class StepConfig(TrainConfig):
    """A training configuration; the model's layers, if not all; and the pack: rows that share a prefix."""

    layers: int | None = None
    prefix: int = 7680
    rows: int = 32
    prompt: int = 72
    answer: int = 200


def main() -> None:
    asked = json.loads(sys.argv[1])
    if asked["gpus"] > 1:
        be_first_of(asked["gpus"], "fsdp2")
    pretend_streams()
    pretend_data_is_there()
    configs = [parse(StepConfig, "", options) for options in asked["steps"]]
    with get_context("fork").Pool(1, maxtasksperchild=1) as alone:  # what accelerate, FSDP and torch remember
        print(json.dumps({"steps": alone.map(step, configs, chunksize=1)}))


def step(config: StepConfig) -> dict[str, Any]:
    """What one step held and computed in."""
    gpus = torch.distributed.get_world_size() if torch.distributed.is_initialized() else 1
    pack = pack_of(config)
    packs = [pack] * step_size(config, gpus).accumulation * gpus
    model = resolve_model(config.model)
    architecture = architecture_of(model)
    architecture.num_hidden_layers = config.layers or architecture.num_hidden_layers
    is_quantized = config.quantization != "none"
    splits_while_reading = str(not is_quantized).lower()  # accelerate does not where it sees Params4bit
    os.environ["FSDP_CPU_RAM_EFFICIENT_LOADING"] = splits_while_reading

    def weights_instead(location: str, **options: Any) -> Any:
        wanted = ("dtype", "attn_implementation", "quantization_config")
        return network_of(architecture, *(options[name] for name in wanted))

    setattr(AutoModelForCausalLM, "from_pretrained", weights_instead)  # noqa: B010
    with tempfile.TemporaryDirectory() as folder, FakeTensorMode(allow_non_fake_inputs=True), Held() as held:
        training = TrainConfig(**{item.name: getattr(config, item.name) for item in fields(TrainConfig)})
        training = replace(training, output_dir=folder)
        arguments = training_arguments(training, Plan(packs, len(packs)), evaluate=False)
        arguments.dataloader_pin_memory = False  # there is nothing to pin
        with torch.device("cpu" if gpus > 1 and not is_quantized else "cuda"):  # FSDP splits what it reads
            network = load_network(*network_settings(training, model))
        trainer = CountedTrainer(network, arguments, packs, [])
        watch = Watch(held)
        trainer.add_callback(watch)
        trainer.train()
    answers = sum(len(example.answer_ids) for example in pack.examples)
    return {"tokens": pack.tokens, "answers": answers, **watch.found}


class CountedTrainer(PackTrainer):
    """Labels without data cannot be counted."""

    def get_batch_samples(self, *arguments: Any) -> Any:
        samples, _ = super().get_batch_samples(*arguments)
        return samples, sum(sample["labels"].numel() for sample in samples)


class Watch(TrainerCallback):
    """Measures a step that finds optimizer states, as all but the first do."""

    def __init__(self, held: Held) -> None:
        self.held = held
        self.seen: dict[str, set[tuple[str, ...]]] = defaultdict(set)
        self.found: dict[str, Any] = {}

    def on_step_begin(self, args: Any, state: Any, control: Any, **there: Any) -> None:
        network, optimizer, held = there["model"], there["optimizer"].optimizer, self.held
        trained = [item for item in network.parameters() if item.requires_grad]
        for item in trained:
            item.grad = torch.zeros_like(item)
        optimizer.step()  # which makes its states
        optimizer.zero_grad()
        held.name("weights", tensors_of([*network.parameters(), *network.buffers(), statistics_of(network)]))
        held.name("trained", trained)
        held.name("optimizer", tensors_of(optimizer.state))
        for item in trained:
            item.register_post_accumulate_grad_hook(lambda item: held.name("gradients", [item.grad]))
        held.start(self.note)

    def note(self, operator: str, given: list[torch.Tensor]) -> None:
        self.seen[operator].add(tuple(str(item.dtype).removeprefix("torch.") for item in given))

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **there: Any) -> None:
        trained = {name: item for name, item in there["model"].named_parameters() if item.requires_grad}
        self.found["without_gradient"] = [name for name, item in trained.items() if item.grad is None]
        self.found["trained"] = types_of(trained.values())
        self.found["gradients"] = types_of(item.grad for item in trained.values() if item.grad is not None)

    def on_step_end(self, args: Any, state: Any, control: Any, **there: Any) -> None:
        control.should_save = False
        self.found["states"] = types_of(tensors_of(there["optimizer"].state))
        self.found["seen"] = {name: sorted(types) for name, types in self.seen.items()}
        self.found["most"], self.found["peak"] = self.held.most, self.held.most.total()


def types_of(tensors: Any) -> list[str]:
    return sorted(Counter(str(item.dtype).removeprefix("torch.") for item in tensors))


def tensors_of(tree: Any) -> list[torch.Tensor]:
    return [item for item in tree_leaves(dict(tree) if hasattr(tree, "keys") else tree) if is_tensor(item)]


def is_tensor(item: Any) -> bool:
    return isinstance(item, torch.Tensor)


def statistics_of(network: Any) -> list[torch.Tensor]:
    """What bitsandbytes keeps beside packed weights."""
    states = [module.quant_state for module in network.modules() if hasattr(module, "quant_state")]
    return [tensor for state in states if state for tensor in (state.absmax, state.code, state.state2.absmax)]


def pack_of(config: StepConfig) -> Pack:
    no_row: Any = None
    ids = array("i", [5] * (config.prefix + config.prompt))
    example = Example(Prompt(no_row, ids, len(ids), array("i"), Cut(0, 0)), [7] * config.answer)
    return Pack([Group(config.prefix, [example] * config.rows)])


def be_first_of(gpus: int, launch: str) -> None:
    """Sets what accelerate would with a file of configs/accelerate, for the first process."""
    place = {"MASTER_ADDR": "localhost", "MASTER_PORT": "1"}
    os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE=str(gpus), ACCELERATE_USE_FSDP="true", **place)
    settings = read_yaml(PROJECT_ROOT / "configs" / "accelerate" / f"{launch}.yaml", "a launch configuration")
    for name, value in settings["fsdp_config"].items():
        os.environ[name.upper()] = str(value).lower() if isinstance(value, bool) else str(value)
    torch.distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=gpus)
    mesh = init_device_mesh("cuda", (gpus,))  # here, since it computes with data
    fully_shard._init_default_mesh = lambda *unused, **named: mesh


def pretend_data_is_there() -> None:
    """Puts what needs no data in the place of what does."""
    patched: Any = (FakeTensorMode, FakeTensor, torch.nn.Module, prefix_attention, bitsandbytes.nn.modules)
    mode, tensor, module, attention, quantized = patched
    mode.avoid_device_init = True  # tensors that are made of numbers are made on the CPU first
    tensor.data_ptr = lambda item: item.untyped_storage()._cdata  # by which accelerate tells parameters apart
    module._apply = apply_instead
    attention._compiled = lambda: flex_attention_instead
    # One kernel on GPUs; a torch without it would do the same in several steps, and hold what is between.
    KERNELS.impl("silu_backward", flex_attention_instead, "CUDA")
    quantized.fix_4bit_weight_quant_state_from_module = keep_statistics_instead


def apply_instead(module: Any, convert: Any, recurse: bool = True) -> Any:
    """Module.to and the like: torch's own swaps tensors in place, which fake tensors do not allow."""
    for part in module.children() if recurse else ():
        part._apply(convert)
    for name, tensor in module._parameters.items():
        if tensor is None:
            continue
        with torch.no_grad():
            new = convert(tensor)
        if new is not tensor:
            module._parameters[name] = torch.nn.Parameter(new, tensor.requires_grad)
    for name, tensor in module._buffers.items():
        module._buffers[name] = tensor if tensor is None else convert(tensor)
    return module


def flex_attention_instead(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: Any, scaling: float, chosen: Any
) -> torch.Tensor:
    """The operator that the compiler would lower, with its own backward operator."""
    named = ("PRESCALE_QK", "ROWS_GUARANTEED_SAFE", "BLOCKS_ARE_CONTIGUOUS", "OUTPUT_MAX")
    options = {"BACKEND": "AUTO", "WRITE_DQ": True, "OUTPUT_LOGSUMEXP": True} | dict.fromkeys(named, False)
    operator: Any = flex.flex_attention_hop
    out: torch.Tensor = operator(query, key, value, flex._identity, mask.as_tuple(), scaling, options)[0]
    return out


def keep_statistics_instead(layer: Any) -> None:
    """bitsandbytes gives weights that FSDP has gathered their class and statistics again: only the latter."""
    layer.weight.quant_state = layer.quant_state


def network_of(architecture: Any, dtype: Any, attn_implementation: str, quantization: Any) -> Any:
    """What from_pretrained would give, without the weights' values."""
    options = {"dtype": dtype, "attn_implementation": attn_implementation}
    network = AutoModelForCausalLM.from_config(architecture, **options)
    if quantization is not None:
        quantize(network, quantization)
    return network


def quantize(network: Any, quantization: Any) -> None:
    """Gives the layers that transformers would quantize bitsandbytes' own code, and weights that its own code
    has packed. Their class is not Params4bit, which cannot hold fake tensors.
    """
    plain = {name: module for name, module in network.named_modules() if isinstance(module, torch.nn.Linear)}
    with unset_fake_temporarily():
        replace_with_bnb_linear(network, ["lm_head"], quantization)
    for name, module in network.named_modules():
        if not isinstance(module, bitsandbytes.nn.Linear4bit):
            continue
        packed, state = bitsandbytes.functional.quantize_4bit(
            plain[name].weight.data,
            quant_type=quantization.bnb_4bit_quant_type,
            compress_statistics=quantization.bnb_4bit_use_double_quant,
            quant_storage=quantization.bnb_4bit_quant_storage,
        )
        attributes = {**module.weight.__dict__, "quant_state": state}
        module.weight = torch.nn.Parameter(packed, requires_grad=False)
        module.weight.__dict__.update(attributes)
        module.quant_state = state
    network.is_loaded_in_4bit = network.is_quantized = True
    network.hf_quantizer = Bnb4BitHfQuantizer(quantization)


if __name__ == "__main__":
    main()
