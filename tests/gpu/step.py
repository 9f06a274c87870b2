"""One optimizer step of the real Trainer, network and optimizer on a pretended GPU, or on the first of several.

    python -m tests.gpu.pretended 8.0 tests/gpu/step.py --config configs/train/paper/NAME.yaml --gpus 8

Weights, packs and gradients are tensors of the GPU without data (torch's fake tensors), other GPUs are
messages that nobody answers (torch's fake process group). What is not the project's, or its libraries', own
code is named below: reading weights from files, and FlexAttention, which is not compiled.
"""

import json
import os
import tempfile
from array import array
from collections import defaultdict
from dataclasses import dataclass, fields, replace
from typing import Any

import bitsandbytes
import torch
import torch.nn.attention.flex_attention as flex
import transformers.integrations.flex_attention as transformers_flex
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, unset_fake_temporarily
from torch.utils._pytree import tree_leaves
from transformers import AutoModelForCausalLM, TrainerCallback
from transformers.quantizers.quantizer_bnb_4bit import Bnb4BitHfQuantizer
import torch.distributed.fsdp._fully_shard._fully_shard as fully_shard_module
from torch.distributed.device_mesh import init_device_mesh
from torch.testing._internal.distributed.fake_pg import FakeStore
from transformers.integrations.bitsandbytes import replace_with_bnb_linear

from mlbench_data.budget import Cut
from mlbench_data.cli import parse
from mlbench_data.files import PROJECT_ROOT, read_yaml
from mlbench_data.models import resolve_model
from mlbench_data.prompts import Prompt
from tests.gpu.held import Held
from train.config import TrainConfig
from train.examples import Example
from train.groups import Group
from train.memory import architecture_of
from train.network import load_network
from train.packs import Pack
from train.plan import Plan
from train.sft import network_settings
from train.trainer import PackTrainer, training_arguments


@dataclass(frozen=True)
class StepConfig(TrainConfig):
    """A training configuration, the GPUs, and the pack: rows that share a prefix."""

    gpus: int = 1
    launch: str = "fsdp2"
    layers: int | None = None
    prefix: int = 7680
    rows: int = 32
    prompt: int = 72
    answer: int = 200


def main(config: StepConfig) -> None:
    training = TrainConfig(**{item.name: getattr(config, item.name) for item in fields(TrainConfig)})
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(step(replace(training, output_dir=folder), config)))


def step(training: TrainConfig, config: StepConfig) -> dict[str, Any]:
    if config.gpus > 1:
        be_first_of(config.gpus, config.launch)
    pack = pack_of(config)
    arguments = training_arguments(training, Plan([pack] * training.gradient_accumulation, training.gradient_accumulation), evaluate=False)
    arguments.dataloader_pin_memory = False  # fake tensors cannot be pinned
    FakeTensorMode.avoid_device_init = True
    FakeTensor.data_ptr = lambda tensor: tensor.untyped_storage()._cdata
    torch.nn.Module._apply = replace_parameters
    transformers_flex.compile_friendly_flex_attention = uncompiled
    model = resolve_model(training.model)
    architecture = architecture_of(model)
    if config.layers:
        architecture.num_hidden_layers = config.layers

    bitsandbytes.nn.modules.fix_4bit_weight_quant_state_from_module = keep_quantization
    is_split_while_read = config.gpus > 1 and training.quantization == "none"
    place = "cpu" if is_split_while_read else "cuda"
    if training.quantization != "none":
        os.environ["FSDP_CPU_RAM_EFFICIENT_LOADING"] = "false"  # as accelerate does where it sees Params4bit

    def without_weights(location: str, **options: Any) -> Any:
        wanted = ("dtype", "attn_implementation", "quantization_config")
        return network_of(architecture, **{name: options[name] for name in wanted})

    with FakeTensorMode(allow_non_fake_inputs=True), Held() as held:
        AutoModelForCausalLM.from_pretrained = without_weights
        with torch.device(place):
            network = load_network(*network_settings(training, model))
        trainer = Counted(network, arguments, [pack] * training.gradient_accumulation, [])
        watch = Watch(held)
        trainer.add_callback(watch)
        trainer.train()
    return {"tokens": pack.tokens, **watch.found}


class Counted(PackTrainer):
    """Tensors without data cannot be asked how many labels they have."""

    def get_batch_samples(self, *arguments: Any) -> Any:
        samples, _ = super().get_batch_samples(*arguments)
        return samples, sum(sample["labels"].numel() for sample in samples)


class Watch(TrainerCallback):
    """Names what is there when the second step begins, which is the first with optimizer states."""

    def __init__(self, held: Held) -> None:
        self.held = held
        self.seen = Seen()
        self.found: dict[str, Any] = {}

    def on_step_begin(self, args: Any, state: Any, control: Any, **there: Any) -> None:
        network, optimizer, held = there["model"], there["optimizer"], self.held
        import time
        self.clock = time.time()
        trained = [item for item in network.parameters() if item.requires_grad]
        for item in trained:
            item.grad = torch.zeros_like(item)
        optimizer.step()  # which makes its states
        optimizer.zero_grad()
        held.name("weights", [*network.parameters(), *network.buffers()])
        held.name("trained", trained)
        held.name("optimizer", tensors_of(optimizer.state))
        for item in trained:
            item.register_post_accumulate_grad_hook(lambda item: held.name("gradients", [item.grad]))
        held.start()
        held.saw = self.seen

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **there: Any) -> None:
        trained = [item for item in there["model"].parameters() if item.requires_grad]
        self.found["gradients"] = sorted({str(item.grad.dtype) for item in trained})

    def on_step_end(self, args: Any, state: Any, control: Any, **there: Any) -> None:
        import time
        control.should_save = False
        self.found |= {"most": self.held.most, "peak": self.held.highest, "moment": self.held.moment, "seen": self.seen.as_json(),
            "states": sorted({str(item.dtype) for item in tensors_of(there["optimizer"].state)}), "seconds": time.time() - self.clock}


def tensors_of(tree: Any) -> list[torch.Tensor]:
    return [item for item in tree_leaves(dict(tree)) if isinstance(item, torch.Tensor)]


def replace_parameters(module: Any, convert: Any, recurse: bool = True) -> Any:
    """torch's own way, Module._apply, swaps tensors in place, which fake tensors do not allow."""
    for part in module.children() if recurse else ():
        part._apply(convert)
    for name, tensor in module._parameters.items():
        with torch.no_grad():
            new = tensor if tensor is None else convert(tensor)
        if new is not tensor:
            module._parameters[name] = torch.nn.Parameter(new, tensor.requires_grad)
    for name, tensor in module._buffers.items():
        module._buffers[name] = tensor if tensor is None else convert(tensor)
    return module


class Seen:
    """Which dtypes reached which operator."""

    def __init__(self) -> None:
        self.found = defaultdict(set)

    def __call__(self, name: str, given: list[torch.Tensor]) -> None:
        self.found[name].add(tuple(str(item.dtype).removeprefix("torch.") for item in given))

    def as_json(self) -> dict[str, Any]:
        return {name: sorted(map(list, dtypes)) for name, dtypes in self.found.items()}


def keep_quantization(layer: Any) -> None:
    """bitsandbytes gives weights that FSDP has gathered their class and statistics again: without the class."""
    layer.weight.quant_state = layer.quant_state


def be_first_of(gpus: int, launch: str) -> None:
    """Sets what `accelerate launch --config_file configs/accelerate/NAME.yaml` would, for the first process."""
    ranks = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": str(gpus), "MASTER_ADDR": "localhost", "MASTER_PORT": "1"}
    os.environ.update(ranks)
    torch.distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=gpus)
    settings = read_yaml(PROJECT_ROOT / "configs" / "accelerate" / f"{launch}.yaml", "a launch configuration")
    mesh = init_device_mesh("cuda", (gpus,))  # which cannot be made of fake tensors
    fully_shard_module._init_default_mesh = lambda *unused, **more: mesh
    if "fsdp_config" in settings:
        fsdp = {name.upper(): str(value).lower() if isinstance(value, bool) else str(value) for name, value in settings["fsdp_config"].items()}
        os.environ.update(fsdp, ACCELERATE_USE_FSDP="true")


def network_of(architecture: Any, dtype: Any, attn_implementation: str, quantization_config: Any) -> Any:
    """What from_pretrained would give, without the weights' values."""
    network = AutoModelForCausalLM.from_config(
        architecture, dtype=dtype, attn_implementation=attn_implementation
    )
    if quantization_config is not None:
        quantize(network, quantization_config)
    return network


def quantize(network: Any, quantization: Any) -> None:
    """Gives the layers that transformers would quantize bitsandbytes' own code, and weights that its own code
    has packed. Their class is not Params4bit, which cannot hold fake tensors.
    """
    plain = {name: module for name, module in network.named_modules() if isinstance(module, torch.nn.Linear)}
    with unset_fake_temporarily():
        replace_with_bnb_linear(network, ["lm_head"], quantization)
    for name, module in network.named_modules():
        if isinstance(module, bitsandbytes.nn.Linear4bit):
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


def uncompiled(query, key, value, training=False, score_mod=None, block_mask=None, enable_gqa=False, scale=None,
               kernel_options=None, return_aux=None):
    options = {'BACKEND':'AUTO','PRESCALE_QK':False,'ROWS_GUARANTEED_SAFE':False,'BLOCKS_ARE_CONTIGUOUS':False,'WRITE_DQ':True,'OUTPUT_LOGSUMEXP':True,'OUTPUT_MAX':False}
    out, lse, _ = flex.flex_attention_hop(query, key, value, score_mod, block_mask.as_tuple(), scale, options)
    return out, flex.AuxOutput(lse=lse, max_scores=None)


def pack_of(config: StepConfig) -> Pack:
    no_row: Any = None
    ids = array("i", [5] * (config.prefix + config.prompt))
    example = Example(Prompt(no_row, ids, len(ids), array("i"), Cut(0, 0)), [7] * config.answer)
    return Pack([Group(config.prefix, [example] * config.rows)])


if __name__ == "__main__":
    import sys
    main(parse(StepConfig, "", sys.argv[1:]))
