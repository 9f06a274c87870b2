"""The GPUs of this machine, counted without touching them.

torch.cuda.is_available() starts the driver, and a process that is forked afterwards cannot use CUDA. Whatever
may be followed by vLLM asks here.
"""

import os

os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")  # so that libraries do not start it either


def gpus() -> int:
    """How many GPUs there are for this process, by the driver's management library."""
    import torch  # takes a second, and most wrong input is found before it is needed

    return torch.cuda.device_count()
