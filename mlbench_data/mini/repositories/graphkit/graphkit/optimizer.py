"""Adam for a list of arrays."""

import numpy as np


class Adam:
    """Updates the given arrays in place."""

    def __init__(self, weights: list[np.ndarray], lr: float, weight_decay: float = 0.0) -> None:
        self.weights, self.lr, self.weight_decay = weights, lr, weight_decay
        self.mean = [np.zeros_like(weight) for weight in weights]
        self.square = [np.zeros_like(weight) for weight in weights]
        self.steps = 0

    def step(self, gradients: list[np.ndarray]) -> None:
        self.steps += 1
        for weight, gradient, mean, square in zip(
            self.weights, gradients, self.mean, self.square, strict=True
        ):
            gradient = gradient + self.weight_decay * weight
            mean += 0.1 * (gradient - mean)
            square += 0.001 * (gradient**2 - square)
            corrected = mean / (1 - 0.9**self.steps)
            scale = np.sqrt(square / (1 - 0.999**self.steps)) + 1e-8
            weight -= self.lr * corrected / scale
