"""The benchmark as data: rows, READMEs, splits, prompts. Never imports torch."""

import logging

# On a CPU bitsandbytes advises at every import to install a kernel that nothing here needs.
logging.getLogger("bitsandbytes.backends.cpu.ops").setLevel(logging.ERROR)
