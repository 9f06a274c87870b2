"""Whether a model's weights fit, by their files: asked before anything large, or CUDA, is loaded."""

import math
from pathlib import Path

import psutil
from safetensors import SafetensorError, safe_open

from mlbench_data.bad_input import BadInput
from mlbench_data.models import Model


def check_fits(model: Model, bytes_each: float, free: float) -> None:
    """Raises BadInput if the weights of a local model alone need more than the `free` bytes."""
    needed = parameters_of(Path(model.location)) * bytes_each
    if needed > free:
        raise BadInput(
            f"{model.name}: its weights need {needed / 1e9:.1f} GB and {free / 1e9:.1f} GB are free; take a "
            "smaller model, --quantization nf4, or a machine with more memory"
        )


def free_memory() -> int:
    """Bytes of this machine's memory that are free."""
    return psutil.virtual_memory().available


def parameters_of(folder: Path) -> int:
    """Numbers in a folder's safetensors, by their headers; 0 for what is still on a hub."""
    found = 0
    for path in folder.glob("*.safetensors"):
        try:
            with safe_open(path, "pt") as tensors:
                names = list(tensors.keys())
                found += sum(math.prod(tensors.get_slice(name).get_shape()) for name in names)
        except (OSError, SafetensorError) as error:
            raise BadInput(f"{path}: not a safetensors file ({error}); fetch it again") from error
    return found
