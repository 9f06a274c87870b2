"""Estimates the memory that training needs on each GPU, or in each process, before any weight is loaded.

python train/estimate.py --config configs/train/smollm2-135m-id-task3.yaml --gpus 2 --gpu_memory 80GiB

No formula says what a layer should keep: one forward and backward pass of the very network runs on fake
tensors, which have shapes and no data, while every byte that torch would hold is counted. Only the model's
config.json is needed. On a GPU come on top: CUDA's context, the kernels' scratch, and what its allocator
cannot fill.
"""

import re
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import AttentionInterface, AutoConfig, AutoModelForCausalLM, LlamaConfig

from mlbench_data.bad_input import BadInput
from mlbench_data.cli import run_script
from mlbench_data.models import Model, resolve_model
from train.config import TrainConfig, check_config
from train.network import DTYPES, Lora, add_lora
from train.prefix_attention import Layout, shared_prefix_attention

Sharding = Literal["none", "ddp", "fsdp", "zero2", "zero3"]
Device = Literal["gpu", "cpu"]

GIB = 2**30
UNITS = {"GiB": GIB, "MiB": 2**20, "GB": 10**9, "MB": 10**6}
MOST_GPUS = 64
"""The most GPUs that are tried where a configuration does not fit."""
FEWEST_TOKENS = 1024
"""The smallest packs that are tried there."""
ZERO_BUCKET = 500_000_000
"""Parameters that ZeRO-2 gathers at once after a step: DeepSpeed's allgather_bucket_size."""
ZERO_LIVE = 1_000_000_000
"""Parameters that ZeRO-3 leaves gathered for their next use: DeepSpeed's stage3_max_live_parameters."""

PACKED = "is_packed"
"""The attribute of a parameter that bitsandbytes would pack; its own layers need data to be made."""
ATTENTION = "estimated"
"""The name under which transformers finds the attention of fake tensors."""


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

    `architecture` is transformers' configuration of the model, `targets` its card's LoRA targets.
    """

    architecture: Any
    config: TrainConfig
    tokens: int
    answers: int
    targets: tuple[str, ...] | Literal["all-linear"] = "all-linear"
    processes: int = 1
    sharding: Sharding = "none"
    device: Device = "gpu"

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
    return _divided(case, _trace(case))


@dataclass(frozen=True)
class _Unit:
    """Parameters that are gathered together: bytes of the frozen ones, number of the trained ones."""

    frozen: int
    trained: int

    def gathered(self, compute: torch.dtype) -> int:
        """Bytes of the parameters, and of the gradients, of one gathered unit."""
        return self.frozen + 2 * self.trained * compute.itemsize


@dataclass(frozen=True)
class _Trace:
    """The network's parameters, and the bytes that a pass over the pack holds when they are most."""

    whole: _Unit
    largest_layer: _Unit
    rest: _Unit
    activations: int
    logits: int
    gradients: int


def _divided(case: Case, trace: _Trace) -> Estimate:
    """What each process holds. Optimizer states are there from the second step on."""
    whole, parts = trace.whole, case.processes if case.is_sharded else 1
    trained = whole.trained * case.trained_bytes
    states = 8 if case.trained_bytes == 4 else 12  # the latter with the weights in float32
    keeps_all = case.sharding == "zero2"
    weights, adapter = (trained, 0) if case.config.method == "full" else (whole.frozen, trained)
    return Estimate(
        weights=weights if keeps_all else _share(weights, parts),
        adapter=adapter if keeps_all else _share(adapter, parts),
        gradients=_share(trained, parts) if _gradients_stay(case) else trace.gradients,
        optimizer=_share(whole.trained * states, parts),
        activations=trace.activations,
        logits=trace.logits,
        buffers=_buffers(case, trace),
    )


def _share(number: int, parts: int) -> int:
    return -(-number // parts)


def _gradients_stay(case: Case) -> bool:
    """Whether all gradients are there during a pass: earlier ones made them, or each process keeps few."""
    return case.is_sharded or case.config.gradient_accumulation > 1


def _buffers(case: Case, trace: _Trace) -> int:
    """What communication holds. FSDP and ZeRO-3 gather a layer while another one is computed."""
    gathered = 2 * trace.largest_layer.gathered(case.compute) + trace.rest.gathered(case.compute)
    match case.sharding:
        case "ddp":
            return trace.whole.trained * case.trained_bytes  # the buckets, which are copies of all gradients
        case "fsdp":
            return gathered
        case "zero2":
            return min(trace.whole.trained, ZERO_BUCKET) * case.compute.itemsize
        case "zero3":
            everything = trace.whole.frozen + trace.whole.trained * case.compute.itemsize
            return max(gathered, min(everything, ZERO_LIVE * case.compute.itemsize))
    return 0


def _trace(case: Case) -> _Trace:
    network = _network(case)
    whole, largest, rest = _units(network, case.config.quantization)
    most = _most_held(network, case)
    return _Trace(whole, largest, rest, most["activations"], most["logits"], most["gradients"])


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
        _quantize(network, config.quantization)
    if config.method == "lora":
        network = _with_lora(network, case)
    if config.activation_checkpointing:
        network.enable_input_require_grads()
        network.gradient_checkpointing_enable({"use_reentrant": False})
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
    return adapted


def _units(network: Any, quantization: str) -> tuple[_Unit, _Unit, _Unit]:
    """All parameters; those of the largest layer; those outside of layers."""
    base = network.get_base_model() if hasattr(network, "get_base_model") else network
    names = set(base._no_split_modules or ())
    layers = [module for module in network.modules() if type(module).__name__ in names]
    inside = {id(parameter) for layer in layers for parameter in layer.parameters()}
    units = [_unit(list(layer.parameters()), quantization) for layer in layers]
    rest = [parameter for parameter in network.parameters() if id(parameter) not in inside]
    largest = max(units, key=lambda unit: unit.gathered(torch.float32), default=_Unit(0, 0))
    return _unit(list(network.parameters()), quantization), largest, _unit(rest, quantization)


def _unit(parameters: list[Any], quantization: str) -> _Unit:
    frozen = sum(_stored_bytes(item, quantization) for item in parameters if not item.requires_grad)
    return _Unit(frozen, sum(item.numel() for item in parameters if item.requires_grad))


def _stored_bytes(parameter: Any, quantization: str) -> int:
    """Of a frozen parameter. NF4: half a byte a weight, a byte for each 64, and a float32 for each 256 of
    these; int8: a byte a weight, and a float32 for each row.
    """
    if not hasattr(parameter, PACKED):
        return int(parameter.nbytes)
    if quantization == "int8":
        return int(parameter.numel() + 4 * parameter.shape[0])
    blocks = _share(parameter.numel(), 64)
    return int(_share(parameter.numel(), 2) + blocks + 4 * _share(blocks, 256))


def _quantize(network: Any, quantization: str) -> None:
    """Makes every linear layer but the head compute as bitsandbytes does, as far as memory goes."""
    kind = _NF4Linear if quantization == "nf4" else _Int8Linear
    for module in network.modules():
        if isinstance(module, torch.nn.Linear) and module is not network.get_output_embeddings():
            module.__class__ = kind
            setattr(module.weight, PACKED, True)


class _NF4Linear(torch.nn.Linear):
    """Unpacks its weight for every product; PEFT copies what comes out."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return _NF4Product.apply(input, self.weight).clone()


class _Int8Linear(torch.nn.Linear):
    """Quantizes its input; PEFT copies what comes out."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return _Int8Product.apply(input, self.weight).clone()


class _NF4Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, given: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        ctx.weight = weight
        return F.linear(given, torch.empty_like(weight, dtype=given.dtype))

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[Any, ...]:
        return gradients[0] @ torch.empty_like(ctx.weight, dtype=gradients[0].dtype), None


class _Int8Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, given: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        ctx.weight = weight
        ctx.given = given  # bitsandbytes keeps it, though only gradients of weights would need it
        packed = given.to(torch.float16, copy=True).to(torch.int8)
        product = packed.new_empty((*given.shape[:-1], weight.shape[0]), dtype=torch.int32)
        return product.to(given.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[Any, ...]:
        return gradients[0] @ torch.empty_like(ctx.weight, dtype=gradients[0].dtype), None


def _whole_pack_attention(
    module: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: Any, **rest: Any
) -> tuple[torch.Tensor, None]:
    """The project's attention over a pack of one row, which no other layout of as many tokens exceeds."""
    layout = Layout(((0, (query.shape[2],)),))
    return shared_prefix_attention(module, query, key, value, None, rest["scaling"], layout=layout)


AttentionInterface.register(ATTENTION, _whole_pack_attention)


def _most_held(network: Any, case: Case) -> Counter[str]:
    """Bytes by kind at the moment of a forward and backward pass when they are most, parameters apart."""
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
        with _Ledger(case.architecture.get_text_config().vocab_size, there) as ledger:
            for parameter in trained:
                parameter.register_post_accumulate_grad_hook(ledger.is_gradient)
            _loss(network, case).backward()
    return ledger.most


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


class _Ledger(TorchDispatchMode):
    """Counts the bytes of all tensors that are made and not yet freed, by kind; `most` when they were most.

    What is `there` already, of which views are made, is not counted.
    """

    def __init__(self, vocabulary: int, there: list[Any]) -> None:
        super().__init__()
        self.vocabulary = vocabulary
        self.there = {id(tensor.untyped_storage()): tensor for tensor in there}
        self.held: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self.storages: dict[int, _Storage] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(made):
            if isinstance(tensor, torch.Tensor):
                self._note(tensor)
        if self.held.total() > self.most.total():
            self.most = self.held.copy()
        return made

    def is_gradient(self, parameter: Any) -> None:
        """Files what was counted as an activation under gradients: a hook of each trained parameter."""
        storage = self.storages.get(id(parameter.grad.untyped_storage()))
        if storage is not None:
            self.held[storage.kind] -= storage.size
            storage.kind = "gradients"
            self.held[storage.kind] += storage.size

    def _note(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        key = id(storage)
        if key in self.storages or key in self.there:
            return
        is_logits = tensor.dim() > 1 and tensor.shape[-1] == self.vocabulary
        known = _Storage(storage.nbytes(), "logits" if is_logits else "activations")
        known.reference = weakref.ref(storage, lambda _: self._forget(key))
        self.storages[key] = known
        self.held[known.kind] += known.size

    def _forget(self, key: int) -> None:
        gone = self.storages.pop(key)
        self.held[gone.kind] -= gone.size


@dataclass
class _Storage:
    """What a tensor's data would take: bytes, and what they are for."""

    size: int
    kind: str
    reference: Any = None
    """Tells the ledger when the data is freed."""


def table(found: Estimate, device: Device = "gpu") -> list[str]:
    """The parts in GiB, a line each, and the total."""
    unit = "GPU" if device == "gpu" else "process"
    parts = [*asdict(found).items(), ("total", found.total)]
    return [f"memory, estimated, on each {unit}", *(f"  {name:<12}{_gib(size):>14}" for name, size in parts)]


def _gib(size: int) -> str:
    return f"{size / GIB:.2f} GiB"


Choice = tuple[str, Case, Estimate]


def remedies(case: Case, memory: int) -> list[tuple[str, Estimate]]:
    """What would need less memory, and how much: each change alone and, if none is enough, several together.

    A change that comes in degrees is as small as fits into `memory` bytes, or the largest that is tried.
    """
    alone = [choice for lever in LEVERS if (choice := _tried(lever(case), memory))]
    found = [(words, needed) for words, _, needed in alone]
    if any(needed.total <= memory for _, needed in found):
        return found
    together: list[str] = []
    for lever in LEVERS:
        choice = _tried(lever(case), memory)
        if choice is None:
            continue
        words, case, needed = choice
        together.append(words)
        if needed.total <= memory:
            break
    return [*found, (" and ".join(together), needed)] if len(together) > 1 else found


def _tried(choices: Iterator[Choice], memory: int) -> Choice | None:
    """The first choice that fits, else the last one, else None."""
    choice = None
    for choice in choices:
        if choice[2].total <= memory:
            break
    return choice


def _checkpointing(case: Case) -> Iterator[Choice]:
    if not case.config.activation_checkpointing:
        changed = replace(case, config=replace(case.config, activation_checkpointing=True))
        yield "activation_checkpointing true", changed, estimate(changed)


def _quantization(case: Case) -> Iterator[Choice]:
    if case.config.method == "lora" and case.config.quantization == "none":
        changed = replace(case, config=replace(case.config, quantization="nf4"))
        yield "quantization nf4", changed, estimate(changed)


def _smaller_packs(case: Case) -> Iterator[Choice]:
    tokens = case.tokens // 2
    while tokens >= FEWEST_TOKENS:
        config = replace(case.config, pack_tokens=tokens)
        changed = replace(case, config=config, tokens=tokens, answers=min(case.answers, tokens))
        yield f"pack_tokens {tokens}", changed, estimate(changed)
        tokens //= 2


def _more_gpus(case: Case) -> Iterator[Choice]:
    sharded = replace(case, sharding="fsdp")
    trace = _trace(sharded)
    processes = case.processes if case.sharding != "fsdp" and case.processes > 1 else 2 * case.processes
    while processes <= MOST_GPUS:
        changed = replace(sharded, processes=processes)
        yield f"{processes} GPUs with fsdp", changed, _divided(changed, trace)
        processes *= 2


LEVERS: tuple[Callable[[Case], Iterator[Choice]], ...] = (
    _checkpointing,
    _quantization,
    _smaller_packs,
    _more_gpus,
)


@dataclass(frozen=True)
class EstimateConfig(TrainConfig):
    """A training configuration, and the GPUs that it is meant for."""

    gpus: int = 1
    """GPUs over all machines."""
    gpu_memory: str = "80GiB"
    """Memory of each: a number and GiB, MiB, GB or MB."""
    sharding: Literal["ddp", "fsdp", "zero2", "zero3"] = "ddp"
    """What several GPUs share: ddp nothing, zero2 gradients and optimizer, fsdp and zero3 the weights too."""


def main(config: EstimateConfig) -> int:
    """Estimates the memory that a training configuration needs on each GPU."""
    memory = parse_memory(config.gpu_memory)
    case = case_of(config)
    needed = estimate(case)
    print(f"{config.model}, packs of {case.tokens} tokens, at most {case.answers} of them of answers")
    print("\n".join(table(needed)))
    if needed.total <= memory:
        print(f"fits in {_size(memory)}")
        return 0
    print(f"does NOT fit in {_size(memory)}; what would need less:")
    for words, changed in remedies(case, memory):
        verdict = "fits" if changed.total <= memory else "does not fit either"
        print(f"  {words}: {_gib(changed.total)}, {verdict}")
    return 0


def case_of(config: EstimateConfig) -> Case:
    """The largest pack that a configuration allows, without reading a row. Raises BadInput."""
    training = TrainConfig(**{item.name: getattr(config, item.name) for item in fields(TrainConfig)})
    check_config(training)
    if config.gpus < 1:
        raise BadInput(f"gpus is {config.gpus}; expected a number above 0")
    model = resolve_model(config.model)
    answers = min(config.batch_size * config.answer_tokens, config.pack_tokens)
    sharding = "none" if config.sharding == "ddp" and config.gpus == 1 else config.sharding
    architecture = architecture_of(model, config.trust_remote_code)
    sizes = (config.pack_tokens, answers, model.lora_targets, config.gpus)
    return Case(architecture, training, *sizes, sharding)


def parse_memory(text: str) -> int:
    """Bytes of a size such as 80GiB. Raises BadInput."""
    found = re.fullmatch(rf"(\d+(?:\.\d+)?) ?({'|'.join(UNITS)})", text.strip())
    size = int(float(found[1]) * UNITS[found[2]]) if found else 0
    if size <= 0:
        raise BadInput(f"gpu_memory is {text!r}; expected a size such as 80GiB, 24000MiB or 24GB")
    return size


def _size(memory: int) -> str:
    return f"{memory / GIB:.1f} GiB"


if __name__ == "__main__":
    run_script(EstimateConfig, main)
