"""Argument types shared by the scripts."""

import argparse
import pathlib


def boolean(text: str) -> bool:
    """`True` or `False`, spelt like in Python."""
    if text not in ("True", "False"):
        raise argparse.ArgumentTypeError(f"expected True or False, got {text!r}")
    return text == "True"


def existing_file(text: str) -> pathlib.Path:
    path = pathlib.Path(text)
    if not path.is_file():
        raise argparse.ArgumentTypeError(f"no such file: {text}")
    return path


def model_folder(text: str) -> pathlib.Path:
    path = pathlib.Path(text)
    if not (path / "config.json").is_file():
        raise argparse.ArgumentTypeError(f"no config.json in {text}")
    return path
