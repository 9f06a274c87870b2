"""The benchmark as data: rows, READMEs, splits, prompts. Never imports torch."""
