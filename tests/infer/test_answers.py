"""From completion to code: what a model wrote around its answer never becomes part of it."""

import json
import re
from pathlib import Path

import pytest

from infer.answers import code_in, is_answered

TRAIN = "python train.py --lr 0.1"
PROGRAM = "import torch\nfrom models import Gan\n\n\nmodel = Gan(lr=0.1)\nmodel.run()"

FENCED = {
    "tagged block": ("```bash\npython a.py --lr 0.1\n```", "python a.py --lr 0.1"),
    "python block": ("```python\nimport a\na.run()\n```\n", "import a\na.run()"),
    "no tag": ("```\npython a.py\n```", "python a.py"),
    "odd tag": ("```shell-session\n$ python a.py\n```", "python a.py"),
    "unknown tag": ("```Dockerfile-ish\npython a.py\n```", "python a.py"),
    "upper case tag": ("```Python\nprint(1)\n```", "print(1)"),
    "tag with attributes": ('```python title="run.py"\nprint(1)\n```', "print(1)"),
    "tag in braces": ("```{python}\nprint(1)\n```", "print(1)"),
    "prose around": ("Sure! Here it is:\n\n```sh\npython a.py\n```\nGood luck.", "python a.py"),
    "first of two": ("```bash\npython a.py\n```\nor\n```bash\npython b.py\n```", "python a.py"),
    "empty first block": ("```bash\n\n```\n```bash\npython b.py\n```", "python b.py"),
    "cut by the limit": ("Here:\n```python\nimport a\na.run(", "import a\na.run("),
    "cut inside a command": ("```bash\npython a.py --epochs 1", "python a.py --epochs 1"),
    "cut at the fence": ("```bash\npython a.py\n``", "python a.py\n``"),
    "tildes": ("~~~bash\npython a.py\n~~~", "python a.py"),
    "backticks inside tildes": ("~~~python\nprint('```')\n~~~", "print('```')"),
    "four backticks": ("````python\nprint('```')\n````", "print('```')"),
    "indented block of a list": ("1. Run\n   ```bash\n   python a.py\n   ```", "python a.py"),
    "dollar in some lines only": ("```bash\nX=$HOME\n$ python a.py\n```", "X=$HOME\n$ python a.py"),
    "prompt in every line": ("```console\n$ cd x\n$ python a.py\n```", "cd x\npython a.py"),
    "prompt of an environment": ("```\n(base) $ python a.py\n```", "python a.py"),
    "python's own prompt": ("```python\n>>> import a\n>>> a.run()\n```", "import a\na.run()"),
    "indented python keeps its indent": ("```python\n  x = 1\n  y = 2\n```", "  x = 1\n  y = 2"),
    "windows line ends": ("```bash\r\npython a.py\r\n```\r\n", "python a.py"),
    "command over several lines": (
        "```bash\npython a.py \\\n  --lr 0.1 \\\n  --n 5\n```",
        "python a.py \\\n  --lr 0.1 \\\n  --n 5",
    ),
    "here document": (
        "```bash\npython - <<'EOF'\nprint(1)\nEOF\n```",
        "python - <<'EOF'\nprint(1)\nEOF",
    ),
    "install first": (
        "First install:\n```bash\npip install -r requirements.txt\n```\nThen:\n```bash\npython a.py\n```",
        "python a.py",
    ),
    "clone first": (
        "```bash\ngit clone https://x.org/y && pip install torch\n```\n```bash\npython a.py\n```",
        "python a.py",
    ),
    "install only": ("```bash\npip install torch\n```", "pip install torch"),
    "install and run in one block": (
        "```bash\npip install torch\npython a.py\n```",
        "pip install torch\npython a.py",
    ),
    "directory first": ("```bash\ncd gan\n```\nand\n```bash\npython a.py\n```", "cd gan\npython a.py"),
    "directory and command in one line": (
        "```bash\ncd gan && python a.py\n```\n```bash\npython b.py\n```",
        "cd gan && python a.py",
    ),
    "variables first": (
        "```sh\nexport DATA=/d\n```\n```sh\npython a.py --data $DATA\n```",
        "export DATA=/d\npython a.py --data $DATA",
    ),
    "directory before a program": ("```bash\ncd gan\n```\n```python\nimport a\n```", "import a"),
    "json first": ('```json\n{"lr": 0.1}\n```\n```bash\npython a.py\n```', "python a.py"),
    "output after": ("```bash\npython a.py\n```\nprints\n```text\nloss 1\n```", "python a.py"),
    "output before": ("```output\nloss 1\n```\n```bash\npython a.py\n```", "python a.py"),
    "only a configuration": ("```yaml\nlr: 0.1\n```", "lr: 0.1"),
    "comments only first": ("```bash\n# nothing here\n```\n```bash\npython a.py\n```", "python a.py"),
    "command on the fence's line": ("```bash python a.py --lr 0.1\n```", "python a.py --lr 0.1"),
    "language is part of the command": ("```python a.py --lr 0.1\n```", "python a.py --lr 0.1"),
    "all on one line": ("Run ```python a.py --lr 0.1```.", "python a.py --lr 0.1"),
    "one line alone": ("```python a.py --lr 0.1``` trains it.", "python a.py --lr 0.1"),
    "only a fence": ("```bash\n", ""),
    "only an empty block": ("```bash\n```", ""),
    "end of turn after the block": ("```bash\npython a.py\n```<|im_end|>", "python a.py"),
    "end of turn in an open block": ("```bash\npython a.py</s>", "python a.py"),
    "token in a program": ("```python\ntok.eos = '</s>'\nrun()\n```", "tok.eos = '</s>'\nrun()"),
    "echo of the role": ("<|im_start|>assistant\n```bash\npython a.py\n```", "python a.py"),
    "another turn after it": (
        "```bash\npython a.py\n```\nInstruction:\nNow b.\n```bash\npython b.py\n```",
        "python a.py",
    ),
}

PLAIN = {
    "command": (f"{TRAIN}\n", TRAIN),
    "spaces before": (f"   {TRAIN}", TRAIN),
    "prompts": ("$ cd x\n$ python a.py", "cd x\npython a.py"),
    "variable before a command": (f"CUDA_VISIBLE_DEVICES=0 {TRAIN}", f"CUDA_VISIBLE_DEVICES=0 {TRAIN}"),
    "script of shell": ("bash scripts/run.sh 4\n", "bash scripts/run.sh 4"),
    "executable": ("./run.sh --fast", "./run.sh --fast"),
    "module": ("python -m gan.train --n 5", "python -m gan.train --n 5"),
    "launcher": ("torchrun --nproc 2 train.py", "torchrun --nproc 2 train.py"),
    "over several lines": ("python a.py \\\n  --lr 0.1\n", "python a.py \\\n  --lr 0.1"),
    "prose before": (f"You can train it with:\n\n{TRAIN}", TRAIN),
    "prose after": (f"{TRAIN}\n\nThis command trains the model for you.", TRAIN),
    "prose around": (f"Use this:\n{TRAIN}\n\nIt takes an hour.", TRAIN),
    "two commands with a gap": (f"cd gan\n\n{TRAIN}", f"cd gan\n\n{TRAIN}"),
    "inline": (f"Run `{TRAIN}` in the folder `gan`.", TRAIN),
    "inline names are no commands": ("The file `train.py` does it.", "The file `train.py` does it."),
    "answer heading": (f"Answer:\n{TRAIN}", TRAIN),
    "response heading": (f"### Response:\n{TRAIN}", TRAIN),
    "role": (f"Assistant: {TRAIN}", TRAIN),
    "llama's echo": (f" [/INST] {TRAIN} </s>", TRAIN),
    "end of turn": (f"{TRAIN}<|im_end|>\n<|im_start|>user\nmore", TRAIN),
    "goes on with the next task": (f"{TRAIN}\n\nInstruction:\nTrain another model.", TRAIN),
    "program": (PROGRAM, PROGRAM),
    "program after prose": (f"Here is the code:\n\n{PROGRAM}", PROGRAM),
    "program before prose": (f"{PROGRAM}\n\nThis code trains the model.", PROGRAM),
    "program with a comment first": (f"# train\n{PROGRAM}", f"# train\n{PROGRAM}"),
    "broken program stays broken": (
        "import a\n\n# Call it\na.run(???)",
        "import a\n\n# Call it\na.run(???)",
    ),
    "prose in a string of a program": (
        'x = """One.\n\nThis is a text."""\nprint(x)',
        'x = """One.\n\nThis is a text."""\nprint(x)',
    ),
    "empty": ("", ""),
    "only spaces": (" \n\n ", ""),
    "only prose": ("I cannot do that.", "I cannot do that."),
    "prose about python": ("python is a language I like.", "python is a language I like."),
}

COMPLETIONS = {f"{kind}: {name}": case for kind, cases in (("fenced", FENCED), ("plain", PLAIN))
               for name, case in cases.items()}  # fmt: skip


@pytest.mark.parametrize("name", COMPLETIONS)
def test_code_in(name: str) -> None:
    completion, code = COMPLETIONS[name]
    assert code_in(completion) == code.strip("\n")


@pytest.mark.parametrize("name", COMPLETIONS)
def test_once_answered_more_text_changes_nothing(name: str) -> None:
    """Sampling stops there, so it must be true at every prefix."""
    completion, _code = COMPLETIONS[name]
    for end in range(len(completion) + 1):
        if is_answered(completion[:end]):
            for more in (completion[end:], "\nmore", "\n```bash\npython other.py\n```", " and `x`"):
                assert code_in(completion[:end] + more) == code_in(completion[:end])


def test_an_open_block_is_not_answered() -> None:
    assert not is_answered("```bash\npython a.py\n")
    assert is_answered("```bash\npython a.py\n```")


def test_a_block_that_only_prepares_is_not_answered() -> None:
    """The command comes after it."""
    assert not is_answered("```bash\npip install torch\n```\nThen:\n")
    assert not is_answered("```bash\ncd gan\n```\n")


def test_extraction_is_stable() -> None:
    """Taking the code out of code gives that code, or a file of old answers could not be read again."""
    for completion, code in COMPLETIONS.values():
        if "```" not in code and "~~~" not in code:
            assert code_in(code_in(completion)) == code_in(completion)


def test_real_answers_keep_their_code(shared_data: Path) -> None:
    """GPT-4.1's and ML-Agent's answers: without a fence they are code as they stand; with one, its block."""
    seen = 0
    for file in ("candidates_gpt41.jsonl", "candidates_mlagent_gpt4.jsonl"):
        for line in (shared_data / "mlbench" / file).read_text().splitlines():
            for completion in json.loads(line)["output"]:
                block = re.search(r"```\w*\n(.*?)```", completion, re.DOTALL)
                expected = block[1] if block else completion
                assert code_in(completion) == expected.strip("\n")
                seen += 1
    assert seen == 169
