"""Finding the rotation that lays one cloud on another."""

import numpy as np

METHODS = {"PCRNet": 4, "PointNetLK": 10, "DCP": 1, "RPMNet": 6}


def rotation_about_z(degrees: float) -> np.ndarray:
    """A 3 × 3 rotation matrix."""
    angle = np.deg2rad(degrees)
    return np.array([[np.cos(angle), -np.sin(angle), 0], [np.sin(angle), np.cos(angle), 0], [0, 0, 1]])


def align(source: np.ndarray, template: np.ndarray) -> np.ndarray:
    """The rotation of least squares for clouds in corresponding order (Kabsch 1976)."""
    left, _, right = np.linalg.svd(source.T @ template)
    sign = np.sign(np.linalg.det(left @ right))
    return (left @ np.diag([1, 1, sign]) @ right).T


def register(source: np.ndarray, template: np.ndarray, method: str, strength: float) -> np.ndarray:
    """Applies `align` as often as the method iterates, each time with `strength` of the points."""
    kept = max(3, int(strength * len(source)))
    total = np.eye(3)
    for _ in range(METHODS[method]):
        total = align((source @ total.T)[:kept], template[:kept]) @ total
    return total


def angle_between(first: np.ndarray, second: np.ndarray) -> float:
    """Degrees between two rotations."""
    cosine = (np.trace(first @ second.T) - 1) / 2
    return float(np.rad2deg(np.arccos(np.clip(cosine, -1, 1))))
