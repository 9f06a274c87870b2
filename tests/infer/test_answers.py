"""From completion to code: what a model wrote around its answer never becomes part of it."""

import pytest

from infer.answers import code_in, is_answered

COMPLETIONS = {
    "tagged block": ("```bash\npython a.py --lr 0.1\n```", "python a.py --lr 0.1"),
    "python block": ("```python\nimport a\na.run()\n```\n", "import a\na.run()"),
    "no tag": ("```\npython a.py\n```", "python a.py"),
    "odd tag": ("```shell-session\n$ python a.py\n```", "python a.py"),
    "prose around": ("Sure! Here it is:\n\n```sh\npython a.py\n```\nGood luck.", "python a.py"),
    "first of two": ("```bash\npython a.py\n```\nor\n```bash\npython b.py\n```", "python a.py"),
    "empty first block": ("```bash\n\n```\n```bash\npython b.py\n```", "python b.py"),
    "cut by the limit": ("Here:\n```python\nimport a\na.run(", "import a\na.run("),
    "tildes": ("~~~bash\npython a.py\n~~~", "python a.py"),
    "backticks inside tildes": ("~~~python\nprint('```')\n~~~", "print('```')"),
    "plain command": ("python a.py --lr 0.1\n", "python a.py --lr 0.1"),
    "plain prompt": ("$ cd x\n$ python a.py", "cd x\npython a.py"),
    "dollar in some lines only": ("```bash\nX=$HOME\n$ python a.py\n```", "X=$HOME\n$ python a.py"),
    "indented python keeps its indent": ("```python\n  x = 1\n  y = 2\n```", "  x = 1\n  y = 2"),
    "windows line ends": ("```bash\r\npython a.py\r\n```\r\n", "python a.py"),
    "empty": ("", ""),
    "only prose": ("I cannot do that.", "I cannot do that."),
}


@pytest.mark.parametrize("name", COMPLETIONS)
def test_code_in(name: str) -> None:
    completion, code = COMPLETIONS[name]
    assert code_in(completion) == code


@pytest.mark.parametrize("name", COMPLETIONS)
def test_once_answered_more_text_changes_nothing(name: str) -> None:
    """Sampling stops there, so it must be true at every prefix."""
    completion, _code = COMPLETIONS[name]
    for end in range(len(completion) + 1):
        if is_answered(completion[:end]):
            for more in (completion[end:], "\nmore", "\n```bash\npython other.py\n```"):
                assert code_in(completion[:end] + more) == code_in(completion[:end])


def test_an_open_block_is_not_answered() -> None:
    assert not is_answered("```bash\npython a.py\n")
    assert is_answered("```bash\npython a.py\n```")
