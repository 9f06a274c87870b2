"""The memory of one training step on each GPU, or in each process, before any weight is loaded.

No formula says what a layer should keep: one forward and backward pass of the very network runs on tensors
without data, while every byte that torch would hold is counted. Only the model's config.json is needed. On a
GPU come on top: CUDA's context, the kernels' scratch, and what its allocator cannot fill. tests/gpu checks
all this against a step of the Trainer itself, with FSDP as it is.
"""

from collections import Counter
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from transformers import AttentionInterface, AutoConfig, AutoModelForCausalLM, LlamaConfig

from mlbench_data.bad_input import BadInput
from mlbench_data.models import Model
from train.config import TrainConfig, step_size
from train.ledger import Ledger
from train.network import DTYPES, Lora, add_lora, keep_input_dtypes
from train.prefix_attention import Layout, shared_prefix_attention
from train.quantized_shapes import quantize, stored_bytes

Sharding = Literal["none", "ddp", "fsdp", "zero2", "zero3"]
Device = Literal["gpu", "cpu"]

GIB = 2**30
ZERO_BUCKET = 500_000_000
"""Parameters that ZeRO-2 gathers at once after a step: DeepSpeed's allgather_bucket_size."""
ZERO_LIVE = 1_000_000_000
"""Parameters that ZeRO-3 leaves gathered for their next use: DeepSpeed's stage3_max_live_parameters."""
ATTENTION = "estimated"
"""The name under which transformers finds the attention of tensors without data."""


@dataclass(frozen=True)
class Estimate:
    """Bytes on each GPU, or in each process, at the moment of a step when they are most."""

    weights: int
    adapter: int
    gradients: int
    optimizer: int
    activations: int
    logits: int
    buffers: int

    @property
    def total(self) -> int:
        """All parts together."""
        return sum(asdict(self).values())


@dataclass(frozen=True)
class Case:
    """What is estimated: a configuration, and the `tokens` of its largest pack, `answers` of them of answers.

    No pack can be smaller than the `longest_row`. `architecture` is transformers' configuration of the
    model, `targets` its card's LoRA targets.
    """

    architecture: Any
    config: TrainConfig
    tokens: int
    answers: int
    targets: tuple[str, ...] | Literal["all-linear"] = "all-linear"
    processes: int = 1
    sharding: Sharding = "none"
    device: Device = "gpu"
    longest_row: int = 1024

    @property
    def is_sharded(self) -> bool:
        """Whether each process keeps a part of what is trained only."""
        return self.sharding in ("fsdp", "zero2", "zero3")

    @property
    def compute(self) -> torch.dtype:
        """What products are computed in."""
        if self.device == "cpu" and self.config.method == "full":
            return torch.float32
        default = torch.bfloat16 if self.device == "gpu" else torch.float32
        return DTYPES.get(self.config.dtype, default)

    @property
    def has_autocast(self) -> bool:
        """Whether weights may be of another type than products; what gathers weights converts them then."""
        return self.device == "gpu" and self.compute != torch.float32 and not self.is_sharded

    @property
    def gradient_bytes(self) -> int:
        """Of a parameter's gradient in the pass itself: gathered weights are of the type of products."""
        return self.compute.itemsize if self.is_sharded else 4

    @property
    def trained_bytes(self) -> int:
        """Of a trained parameter, and of its gradient; DeepSpeed keeps float32 with the optimizer instead."""
        return self.compute.itemsize if self.sharding in ("zero2", "zero3") else 4


def architecture_of(model: Model, trust_remote_code: bool = False) -> Any:
    """transformers' configuration of a model, from its folder, its card or the hub. Raises BadInput."""
    if model.shape is not None and not Path(model.location).is_dir():
        return LlamaConfig(**asdict(model.shape))
    try:
        return AutoConfig.from_pretrained(
            model.location, revision=model.revision, trust_remote_code=trust_remote_code
        )
    except (OSError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise BadInput(f"{model.location}: no config.json could be loaded ({reason})") from error


def estimate(case: Case) -> Estimate:
    """The memory of one optimizer step. Raises BadInput for an architecture or LoRA targets there are not."""
    return divided(case, trace_of(case))


@dataclass(frozen=True)
class _Unit:
    """Parameters that are gathered together: bytes of the frozen ones, number of the trained ones."""

    frozen: int
    trained: int

    def gathered(self, compute: torch.dtype) -> int:
        """Bytes of the parameters, and of the gradients, of one gathered unit."""
        return self.frozen + 2 * self.trained * compute.itemsize


@dataclass(frozen=True)
class Moment:
    """Bytes that a pass holds. `gradients` are those of all parameters so far, whole."""

    activations: int
    logits: int
    gradients: int


@dataclass(frozen=True)
class Trace:
    """The network's parameters, and a pass over the pack: the moments that may be its worst."""

    whole: _Unit
    largest_layer: _Unit
    rest: _Unit
    head: _Unit
    moments: tuple[Moment, ...]


def divided(case: Case, trace: Trace) -> Estimate:
    """What each process holds at its worst moment. Optimizer states are there from the second step on."""
    return max((_held_at(moment, case, trace) for moment in trace.moments), key=lambda found: found.total)


def _held_at(moment: Moment, case: Case, trace: Trace) -> Estimate:
    whole, parts = trace.whole, case.processes if case.is_sharded else 1
    trained = whole.trained * case.trained_bytes
    made = moment.gradients * case.trained_bytes // case.gradient_bytes
    states = 8 if case.trained_bytes == 4 else 12  # the latter with the weights in float32
    keeps_all = case.sharding == "zero2"
    weights, adapter = (trained, 0) if case.config.method == "full" else (whole.frozen, trained)
    return Estimate(
        weights=weights if keeps_all else _share(weights, parts),
        adapter=adapter if keeps_all else _share(adapter, parts),
        gradients=_share(trained if _gradients_stay(case) else made, parts),
        optimizer=_share(whole.trained * states, parts),
        activations=moment.activations,
        logits=moment.logits,
        buffers=_buffers(case, trace, bool(moment.logits)),
    )


def _share(number: int, parts: int) -> int:
    return -(-number // parts)


def _gradients_stay(case: Case) -> bool:
    """Whether all gradients are there during a pass: earlier ones made them, or DeepSpeed's own buffers."""
    return case.sharding in ("zero2", "zero3") or step_size(case.config, case.processes).accumulation > 1


def _buffers(case: Case, trace: Trace, at_head: bool) -> int:
    """What communication holds. FSDP and ZeRO-3 gather a layer while another one is computed; FSDP has only
    the head where there are logits.
    """
    gathered = 2 * trace.largest_layer.gathered(case.compute)
    match case.sharding:
        case "ddp":
            return trace.whole.trained * case.trained_bytes  # the buckets, which are copies of all gradients
        case "fsdp":
            return trace.head.gathered(case.compute) if at_head else gathered
        case "zero2":
            return min(trace.whole.trained, ZERO_BUCKET) * case.compute.itemsize
        case "zero3":
            everything = trace.whole.frozen + trace.whole.trained * case.compute.itemsize
            kept = min(everything, ZERO_LIVE * case.compute.itemsize)
            return max(gathered + trace.rest.gathered(case.compute), kept)
    return 0


def trace_of(case: Case) -> Trace:
    """The network of a case, and a pass over its pack, in bytes. Raises BadInput."""
    network = _network(case)
    units = _units(network, case.config.quantization)
    held = _held_in_a_pass(network, case)
    return Trace(*units, tuple(Moment(*(most[item.name] for item in fields(Moment))) for most in held))


def _network(case: Case) -> Any:
    """The network that load_network would load, as shapes. Raises BadInput."""
    config = case.config
    full_precision = config.method == "full" and not case.is_sharded
    try:
        with torch.device("meta"):
            network = AutoModelForCausalLM.from_config(
                case.architecture,
                dtype=torch.float32 if full_precision else case.compute,
                attn_implementation=ATTENTION,
                trust_remote_code=config.trust_remote_code,
            )
    except ValueError as error:
        raise BadInput(f"{config.model}: no such network ({str(error).splitlines()[0]})") from error
    if config.quantization != "none":
        quantize(network, config.quantization)
    if config.method == "lora":
        network = _with_lora(network, case)
    if config.activation_checkpointing:
        network.enable_input_require_grads()
        network.gradient_checkpointing_enable({"use_reentrant": False})
    if case.device == "gpu":
        _drop_out_as_gpus_do(network)
    return network.train()


def _with_lora(network: Any, case: Case) -> Any:
    config = case.config
    targets = tuple(config.lora_targets) if config.lora_targets else case.targets
    numbers = (config.lora_rank, config.lora_alpha, config.lora_dropout)
    with torch.device("meta"):
        adapted = add_lora(network, Lora(*numbers, targets, config.rslora, config.dora))
    if case.is_sharded:
        for parameter in adapted.parameters():
            parameter.data = parameter.data.to(case.compute) if parameter.requires_grad else parameter.data
    return keep_input_dtypes(adapted) if case.has_autocast else adapted


def _drop_out_as_gpus_do(network: Any) -> None:
    for module in network.modules():
        if type(module) is torch.nn.Dropout:
            module.__class__ = _FusedDropout


class _FusedDropout(torch.nn.Dropout):
    """Keeps a byte for each number, where a CPU keeps another number."""

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        return torch.native_dropout(given, self.p, self.training)[0]


def _units(network: Any, quantization: str) -> tuple[_Unit, _Unit, _Unit, _Unit]:
    """All parameters; those of the largest layer; those outside of layers; of these, those of the head."""
    base = network.get_base_model() if hasattr(network, "get_base_model") else network
    names = set(base._no_split_modules or ())
    layers = [module for module in network.modules() if type(module).__name__ in names]
    inside = {id(parameter) for layer in layers for parameter in layer.parameters()}
    units = [_unit(list(layer.parameters()), quantization) for layer in layers]
    rest = [parameter for parameter in network.parameters() if id(parameter) not in inside]
    largest = max(units, key=lambda unit: unit.gathered(torch.float32), default=_Unit(0, 0))
    embedding = base.get_input_embeddings().weight
    is_tied = embedding is base.get_output_embeddings().weight
    head = [parameter for parameter in rest if is_tied or parameter is not embedding]
    everything, outside, last = (
        _unit(part, quantization) for part in (list(network.parameters()), rest, head)
    )
    return everything, largest, outside, last


def _unit(parameters: list[Any], quantization: str) -> _Unit:
    frozen = sum(stored_bytes(item, quantization) for item in parameters if not item.requires_grad)
    return _Unit(frozen, sum(item.numel() for item in parameters if item.requires_grad))


def _whole_pack_attention(
    module: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: Any, **rest: Any
) -> tuple[torch.Tensor, None]:
    """The project's attention over a pack of one row, which no other layout of as many tokens exceeds.
    Rotated queries and keys are made of the values' type, as flex_prefix_attention does.
    """
    layout = Layout(((0, (query.shape[2],)),))
    rotated = query.to(value.dtype), key.to(value.dtype)
    return shared_prefix_attention(module, *rotated, value, None, rest["scaling"], layout=layout)


AttentionInterface.register(ATTENTION, _whole_pack_attention)


def _held_in_a_pass(network: Any, case: Case) -> list[Counter[str]]:
    """Bytes by kind in a forward and backward pass, parameters apart: see Ledger.moments."""
    place: Any = torch.device("meta")
    if case.has_autocast:
        place = FakeTensorMode()
        _make_fake(network, place)
    trained = [parameter for parameter in network.parameters() if parameter.requires_grad]
    with place:
        if _gradients_stay(case):
            for parameter in trained:
                parameter.grad = torch.empty_like(parameter)
        there = [*network.parameters(), *network.buffers()]
        there += [parameter.grad for parameter in trained if parameter.grad is not None]
        with Ledger(case.architecture.get_text_config().vocab_size, there) as ledger:
            for parameter in trained:
                parameter.register_post_accumulate_grad_hook(ledger.is_gradient)
            _loss(network, case).backward()
    return list(ledger.moments.values())


def _make_fake(network: Any, mode: FakeTensorMode) -> None:
    """Puts fake CPU tensors in the place of meta tensors, for which there is no autocast."""
    made: dict[int, Any] = {}  # weights may be tied
    for module in network.modules():
        for name, tensor in list(module.named_parameters(recurse=False, remove_duplicate=False)):
            fake = FakeTensor(mode, tensor.data, torch.device("cpu"))
            new = torch.nn.Parameter(fake, requires_grad=tensor.requires_grad)
            module._parameters[name] = made.setdefault(id(tensor), new)
        for name, tensor in list(module.named_buffers(recurse=False)):
            module._buffers[name] = FakeTensor(mode, tensor, torch.device("cpu"))


def _loss(network: Any, case: Case) -> torch.Tensor:
    """The trainer's loss of a pack."""
    ids = torch.zeros((1, case.tokens), dtype=torch.long)
    answers = torch.zeros(case.answers, dtype=torch.long)
    with torch.autocast("cpu", torch.bfloat16, enabled=case.has_autocast):
        logits = network(input_ids=ids, position_ids=ids, logits_to_keep=answers, use_cache=False).logits
    return F.cross_entropy(logits[0].float(), answers, reduction="sum")


def table(found: Estimate, device: Device = "gpu") -> list[str]:
    """The parts in GiB, a line each, and the total."""
    unit = "GPU" if device == "gpu" else "process"
    parts = [*asdict(found).items(), ("total", found.total)]
    return [
        f"memory, estimated, on each {unit}",
        *(f"  {name:<12}{in_gib(size):>14}" for name, size in parts),
    ]


def in_gib(size: int) -> str:
    """A size as people read it."""
    return f"{size / GIB:.2f} GiB"
