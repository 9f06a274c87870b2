"""How torch keeps a GPU's memory."""

import os

SETTINGS = "PYTORCH_ALLOC_CONF"
OLD_SETTINGS = "PYTORCH_CUDA_ALLOC_CONF"


def let_segments_grow() -> None:
    """Lets torch's allocator join and grow what it has reserved, unless the user has set it up: packs are of
    any length, and blocks of fixed segments that fit one pack lie empty beside the next. Torch reads this
    when a GPU is first used.
    """
    if OLD_SETTINGS not in os.environ:
        os.environ.setdefault(SETTINGS, "expandable_segments:True")
