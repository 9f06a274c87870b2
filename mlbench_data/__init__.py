"""The benchmark as data: rows, READMEs, splits, prompts. Never imports torch."""

import logging

# What libraries say on every machine without a GPU, and nobody asked: (logger, beginning of the line).
for _logger, _line in (
    ("bitsandbytes.backends.cpu.ops", "Failed to load CPU gemm_4bit_forward"),
    ("DeepSpeed", "Setting accelerator to CPU"),
):
    logging.getLogger(_logger).addFilter(
        lambda record, line=_line: not record.getMessage().startswith(line)  # type: ignore[misc]
    )
