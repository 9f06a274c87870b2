"""Clouds of points on the surfaces of simple bodies."""

import numpy as np

SHAPES = ("sphere", "cube", "torus", "cylinder")


def make_shape(name: str, *, num_points: int, noise: float = 0.0, seed: int = 0) -> np.ndarray:
    """Points of shape (num_points, 3) on a body of about unit size."""
    if name not in SHAPES:
        raise ValueError(f"shape is {name!r}; expected one of {', '.join(SHAPES)}")
    if not isinstance(num_points, int) or num_points < 1 or noise < 0:
        raise ValueError(f"num_points {num_points!r}, noise {noise}: expected at least 1 and 0")
    random = np.random.default_rng(seed)
    turn = random.uniform(0, 2 * np.pi, num_points)
    if name == "sphere":
        points = random.normal(size=(num_points, 3))
        points = points / np.linalg.norm(points, axis=1, keepdims=True)
    elif name == "cube":
        points = random.uniform(-1, 1, (num_points, 3))
        points = points / np.abs(points).max(axis=1, keepdims=True)
    elif name == "torus":
        tube = random.uniform(0, 2 * np.pi, num_points)
        radius = 0.75 + 0.25 * np.cos(tube)
        points = np.stack([radius * np.cos(turn), radius * np.sin(turn), 0.25 * np.sin(tube)], axis=1)
    else:
        height = random.uniform(-1, 1, num_points)
        points = np.stack([0.5 * np.cos(turn), 0.5 * np.sin(turn), height], axis=1)
    return points + random.normal(0, noise, points.shape) if noise else points


def labelled_shapes(count: int, num_points: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """`count` noisy clouds of each shape, and their labels."""
    clouds = [
        make_shape(name, num_points=num_points, noise=0.05, seed=seed + 97 * number + label)
        for label, name in enumerate(SHAPES)
        for number in range(count)
    ]
    return np.stack(clouds), np.repeat(np.arange(len(SHAPES)), count)
