"""What a first user of a GPU runs: are its kernels right, does a model train and answer, how fast, in how
much memory. Ends with a table to send back.

python train/doctor_gpu.py
"""

import gc
import json
import math
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import version
from itertools import product
from pathlib import Path
from typing import Any

import torch

from mlbench_data.bad_input import BadInput, JobFailed
from mlbench_data.cli import run_script, versions
from mlbench_data.files import PROJECT_ROOT, write_text
from mlbench_data.models import resolve_model
from train.callbacks import LOG_FILE, Preemption, read_log
from train.config import TrainConfig
from train.memory import estimate, in_gib
from train.network import load_network
from train.plan import largest_case, make_plan
from train.prefix_attention import (
    Layout,
    block_mask,
    flex_prefix_attention,
    shared_memory,
    shared_prefix_attention,
)
from train.sft import load_examples, make_trainer, network_settings
from train.trained import save_trained, trained_tensors
from train.trainer import training_arguments

LAYOUTS = {
    "ragged": Layout(((130, (40, 27, 33)), (60, (20,)), (0, (25,)))),
    "short": Layout(((30, (4, 9)), (0, (11,)))),
    "one branch": Layout(((900, (75,)),)),
    "many groups": Layout(((11, (5, 3)), (0, (17,)), (20, (1, 1, 9)), (7, (30,)), (2, (2, 2)))),
    "long": Layout(((1500, (120,) * 8), (700, (90,) * 4))),
}
HEADS, KEY_HEADS = 6, 2
TOLERANCES = {torch.float32: 1e-5, torch.bfloat16: 4 * 2**-8}
"""Largest difference, relative to the largest value. bfloat16 rounds the scores' weights to 8 bits."""
MEMORY_TOLERANCE = 0.25
"""Share by which the measured peak may exceed the estimate, which leaves out CUDA's context and scratch."""
ROWS = 32


@dataclass(frozen=True)
class DoctorConfig:
    """What to try, and where."""

    model: str = "smollm2-135m"
    """The model that is trained and sampled: a name of configs/models, a folder with weights, or a hub id."""
    steps: int = 4
    """Optimizer steps that are trained."""
    on_cpu: bool = False
    """Without a GPU: the same with the CPU's attention, which says nothing about GPUs."""
    out: str | None = None
    """A file for the table as well."""


@dataclass(frozen=True)
class Check:
    """Something that was tried; `ok` is None for what is told and not judged."""

    name: str
    found: str
    ok: bool | None = None

    def row(self) -> str:
        """Its line in the table."""
        verdict = {True: "ok", False: "NOT OK", None: ""}[self.ok]
        return f"| {self.name} | {self.found.replace('|', '/')} | {verdict} |"


def main(config: DoctorConfig) -> int:
    """Tries a GPU: kernels beside a reference, training steps, one sample. A table to send back."""
    if config.steps < 2:
        raise BadInput(
            f"steps is {config.steps}; expected 2 or more: the first one compiles, the last is timed"
        )
    if not config.on_cpu and not torch.cuda.is_available():
        raise BadInput("torch sees no GPU here; --on_cpu tries what a CPU can")
    if config.on_cpu and torch.cuda.is_available():
        raise BadInput("torch sees a GPU here; leave --on_cpu out")
    device = torch.device("cpu") if config.on_cpu else torch.device("cuda", 0)
    model = resolve_model(config.model)
    checks = []
    for check in _checks(config, device):
        print(check.row(), flush=True)
        checks.append(check)
    title = "CPU ONLY, says nothing about GPUs" if config.on_cpu else torch.cuda.get_device_name(0)
    lines = [f"### {title}: {model.name}", "", "| what | found | |", "|---|---|---|"]
    report = "\n".join([*lines, *(check.row() for check in checks)])
    print(f"\n{report}\n")
    if config.out:
        write_text(Path(config.out), report + "\n")
    ok = all(check.ok is not False for check in checks)
    print(json.dumps({"ok": ok, "on_cpu": config.on_cpu, "checks": [asdict(check) for check in checks]}))
    return 0 if ok else 1


def _checks(config: DoctorConfig, device: torch.device) -> Iterator[Check]:
    yield from _machine(device)
    for head_size, dtype in product((64, 128), TOLERANCES):
        torch._dynamo.reset()  # each is a kernel of its own, and a run may have few
        for layout in LAYOUTS:
            yield _attention(device, layout, head_size, dtype)
    torch._dynamo.reset()
    with tempfile.TemporaryDirectory(prefix="doctor-") as folder:
        trained = _tried("training", lambda: _training(config, Path(folder)))
        yield from trained
        gc.collect()
        torch.cuda.empty_cache()  # the sampling engine takes a share of the whole card
        if all(check.ok is not False for check in trained):
            yield from _tried("sample", lambda: _sample(config, Path(folder)))


def _tried(name: str, work: Callable[[], list[Check]]) -> list[Check]:
    """What the work finds; what CUDA, a compiler or the job itself raises is a finding, too."""
    try:
        return work()
    except (RuntimeError, JobFailed) as error:
        return [Check(name, f"{type(error).__name__}: {_first_line(error)}", False)]


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), "")


def _machine(device: torch.device) -> Iterator[Check]:
    """Card, driver, libraries and the C compiler with which Triton builds what starts a kernel."""
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        yield Check("card", f"{properties.name}, {in_gib(properties.total_memory)}")
        yield Check("compute capability", f"{properties.major}.{properties.minor}")
        yield Check("shared memory of a block", f"{shared_memory(device)} bytes")
        yield Check("driver", _driver())
        yield Check("bfloat16", "by the hardware", torch.cuda.is_bf16_supported(including_emulation=False))
        compiler = next(filter(None, map(shutil.which, (os.environ.get("CC", "cc"), "gcc", "clang"))), None)
        header = Path(sysconfig.get_path("include"), "Python.h").is_file()
        found = f"{compiler or 'none'}, {'with' if header else 'without'} Python.h"
        yield Check("C compiler", found, compiler is not None and header)
        yield Check("CUDA and Triton", f"{torch.version.cuda}, {version('triton')}")
    yield Check("versions", ", ".join(f"{name} {value}" for name, value in versions().items()))


def _driver() -> str:
    program = shutil.which("nvidia-smi")
    if program is None:
        return "unknown: no nvidia-smi"
    command = [program, "--query-gpu=driver_version", "--format=csv,noheader"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    return done.stdout.split("\n")[0].strip() or "unknown"


def _attention(device: torch.device, layout: str, head_size: int, dtype: torch.dtype) -> Check:
    """Output and gradients beside those of the CPU's attention in float64."""
    short = str(dtype).removeprefix("torch.")
    name = f"attention, {layout}, heads of {head_size}, {short}"

    def compared() -> list[Check]:
        error = attention_error(device, LAYOUTS[layout], head_size, dtype)
        return [Check(name, f"largest error {error:.1e}", error <= TOLERANCES[dtype])]

    return _tried(name, compared)[0]


def attention_error(device: torch.device, layout: Layout, head_size: int, dtype: torch.dtype) -> float:
    """The largest difference of output and gradients, each relative to its largest value; NaN if any is."""
    generator = torch.Generator().manual_seed(0)
    tokens = layout.segments()[-1].stop
    sizes = [(1, heads, tokens, head_size) for heads in (HEADS, KEY_HEADS, KEY_HEADS)]
    given = [torch.randn(size, generator=generator).to(dtype) for size in sizes]
    direction = torch.randn(1, tokens, HEADS, head_size, generator=generator).to(dtype)
    fused: _Attention = (flex_prefix_attention, block_mask(layout, device), {})
    split: _Attention = (shared_prefix_attention, None, {"layout": layout})
    wanted = _with_gradients(split, [tensor.double() for tensor in given], direction.double())
    tried = fused if device.type == "cuda" else split
    found = _with_gradients(tried, [tensor.to(device) for tensor in given], direction.to(device))
    errors = [
        ((left.cpu().double() - right).abs().max() / right.abs().max()).item()
        for left, right in zip(found, wanted, strict=True)
    ]
    return math.nan if any(map(math.isnan, errors)) else max(errors)


_Attention = tuple[Any, Any, dict[str, Any]]
"""A function of transformers' signature, its mask, and what else it takes."""


def _with_gradients(
    attention: _Attention, given: list[torch.Tensor], direction: torch.Tensor
) -> list[torch.Tensor]:
    function, mask, more = attention
    leaves = [tensor.requires_grad_() for tensor in given]
    out, _ = function(None, *leaves, mask, scaling=given[0].shape[-1] ** -0.5, **more)
    return [out.detach(), *torch.autograd.grad(out, leaves, direction)]


def _training(config: DoctorConfig, folder: Path) -> list[Check]:
    """A few steps as train/sft.py makes them, on rows of MiniBench; leaves an adapter in `folder`."""
    settings = TrainConfig(
        model=config.model, output_dir=str(folder), max_steps=config.steps, max_rows=ROWS, eval_rows=0
    )
    model = resolve_model(settings.model)
    plan = make_plan(settings, load_examples(settings, model), 1)
    arguments = training_arguments(settings, plan, False)
    torch.manual_seed(settings.seed)
    network = load_network(*network_settings(settings, model))
    trainer = make_trainer(settings, network, arguments, plan, [], Preemption())
    if on_gpu := torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    trainer.train()
    log = read_log(folder / LOG_FILE)
    losses = [line["loss"] for line in log]
    finite = len(losses) == plan.steps and all(map(math.isfinite, losses))
    count = save_trained(trainer.model, trained_tensors(trainer.model), folder)  # proves it nonzero and read
    seconds = log[-1]["time"] - log[-2]["time"]
    checks = [
        Check("training", f"{len(losses)} steps, loss {losses[0]:.3f} to {losses[-1]:.3f}", finite),
        Check("adapter", f"{count} tensors, learned and read back", count > 0),
        Check("last step", f"{seconds:.2f} s, {log[-1]['tokens_per_second']:.0f} computed tokens a second"),
    ]
    if on_gpu:
        peak, wanted = torch.cuda.max_memory_allocated(), estimate(largest_case(settings, model, plan)).total
        told = f"peak {in_gib(peak)}, estimated {in_gib(wanted)}"
        checks.append(Check("memory", told, peak <= (1 + MEMORY_TOLERANCE) * wanted))
    return checks


def _sample(config: DoctorConfig, folder: Path) -> list[Check]:
    """One candidate of the model with the adapter, by infer/generate.py in a process of its own."""
    out = folder / "candidates.jsonl"
    script = PROJECT_ROOT / "infer" / "generate.py"
    options = ["--model", config.model, "--adapter", str(folder), "--out", str(out)]
    small = ["--limit", "1", "--n", "1", "--max_new_tokens", "32"]
    command = [sys.executable, str(script), *options, *small]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode:
        last = next(reversed(done.stderr.strip().splitlines()), f"exit code {done.returncode}")
        return [Check("sample", last, False)]
    [line] = out.read_text(encoding="utf-8").splitlines()
    text = " ".join(json.loads(line)["raw"][0].split())
    return [Check("sample", repr(text[:60]), bool(text))]


if __name__ == "__main__":
    run_script(DoctorConfig, main)
