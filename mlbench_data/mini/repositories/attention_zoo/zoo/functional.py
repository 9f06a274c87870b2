"""What all modules share: activations, weights and checks of shapes."""

import numpy as np


def softmax(values: np.ndarray, axis: int = -1) -> np.ndarray:
    """Softmax along an axis."""
    shifted = np.exp(values - values.max(axis=axis, keepdims=True))
    return shifted / shifted.sum(axis=axis, keepdims=True)


def sigmoid(values: np.ndarray) -> np.ndarray:
    """Logistic function."""
    return 1 / (1 + np.exp(-values))


def relu(values: np.ndarray) -> np.ndarray:
    """Rectifier."""
    return np.maximum(values, 0)


def weight(inputs: int, outputs: int) -> np.ndarray:
    """A fixed random matrix of shape (inputs, outputs) in float32."""
    random = np.random.default_rng(inputs * 31 + outputs)
    return random.standard_normal((inputs, outputs), dtype=np.float32) / np.sqrt(np.float32(inputs))


def check_positive(**sizes: int) -> None:
    """Raises TypeError or ValueError unless every size is an int of at least 1."""
    for name, size in sizes.items():
        if not isinstance(size, int) or isinstance(size, bool):
            raise TypeError(f"{name} is {size!r}; expected an int")
        if size < 1:
            raise ValueError(f"{name} is {size}; expected at least 1")


def check_input(values: np.ndarray, layout: str, **sizes: int) -> None:
    """Raises ValueError unless the input has the axes of `layout` (`batch tokens dim`) in these sizes."""
    axes = layout.split()
    if values.ndim != len(axes):
        raise ValueError(f"input has shape {values.shape}; expected ({', '.join(axes)})")
    for name, size in sizes.items():
        found = values.shape[axes.index(name)]
        if found != size:
            raise ValueError(f"input has {name} {found} in shape {values.shape}; expected {size}")
