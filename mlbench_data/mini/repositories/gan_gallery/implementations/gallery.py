"""What all implementations share: a small network, losses, pictures and the common options."""

import argparse
import itertools
import pathlib
from collections.abc import Callable, Iterator

import numpy as np

Loss = Callable[[np.ndarray], tuple[float, np.ndarray]]
SHAPES = ("disc", "square", "cross", "stripe", "diagonal")
PAIRS = {
    "photo2sketch": lambda pictures: np.abs(np.diff(pictures, axis=2, append=-1.0)) - 1.0,
    "day2night": lambda pictures: 0.4 * pictures - 0.6,
    "sharp2blurred": lambda pictures: (pictures + np.roll(pictures, 1, 1) + np.roll(pictures, 1, 2)) / 3.0,
    "positive2negative": lambda pictures: -pictures,
}


class Net:
    """Fully connected layers with leaky rectifiers, trained by Adam; the last layer ends as `end` says."""

    def __init__(self, sizes: list[int], rng: np.random.Generator, lr: float, end: str = "linear") -> None:
        self.weights = [rng.normal(scale=n**-0.5, size=(n + 1, m)) for n, m in itertools.pairwise(sizes)]
        self.mean = [np.zeros_like(weight) for weight in self.weights]
        self.square = [np.zeros_like(weight) for weight in self.weights]
        self.lr, self.end, self.steps = lr, end, 0
        self.forget()

    def forget(self) -> None:
        """Drops the gradients gathered so far."""
        self.gradients = [np.zeros_like(weight) for weight in self.weights]

    def forward(self, inputs: np.ndarray) -> np.ndarray:
        self.inputs = []
        for number, weight in enumerate(self.weights):
            self.inputs.append(np.column_stack([inputs, np.ones(len(inputs))]))
            inputs = self.inputs[-1] @ weight
            if number < len(self.weights) - 1:
                inputs = np.where(inputs > 0, inputs, 0.2 * inputs)
        self.outputs = np.tanh(inputs) if self.end == "tanh" else inputs
        return self.outputs

    def backward(self, gradient: np.ndarray) -> np.ndarray:
        """Gathers the weights' gradients of the last forward pass; returns that of its inputs."""
        if self.end == "tanh":
            gradient = gradient * (1.0 - self.outputs**2)
        for number in reversed(range(len(self.weights))):
            self.gradients[number] += self.inputs[number].T @ gradient
            gradient = gradient @ self.weights[number][:-1].T
            if number:
                gradient = gradient * np.where(self.inputs[number][:, :-1] > 0, 1.0, 0.2)
        return gradient

    def step(self) -> None:
        """One update of Adam with the gathered gradients, which are dropped afterwards."""
        self.steps += 1
        for weight, gradient, mean, square in zip(self.weights, self.gradients, self.mean, self.square):
            mean += 0.5 * (gradient - mean)
            square += 0.001 * (gradient**2 - square)
            scale = np.sqrt(square / (1 - 0.999**self.steps)) + 1e-8
            weight -= self.lr * mean / (1 - 0.5**self.steps) / scale
        self.forget()


def bce(target: float) -> Loss:
    """Binary cross-entropy of scores (logits) with one target."""

    def loss(scores: np.ndarray) -> tuple[float, np.ndarray]:
        value = np.logaddexp(0.0, scores) - target * scores
        return float(value.mean()), (1.0 / (1.0 + np.exp(-scores)) - target) / scores.size

    return loss


def squared(target: np.ndarray | float) -> Loss:
    return lambda outputs: (float(np.mean((outputs - target) ** 2)), 2.0 * (outputs - target) / outputs.size)


def absolute(target: np.ndarray) -> Loss:
    return lambda outputs: (float(np.abs(outputs - target).mean()), np.sign(outputs - target) / outputs.size)


def average(factor: float) -> Loss:
    """`factor` times the mean score."""
    return lambda scores: (factor * float(scores.mean()), np.full(scores.shape, factor / scores.size))


def classes(labels: np.ndarray) -> Loss:
    """Cross-entropy of class scores."""

    def loss(scores: np.ndarray) -> tuple[float, np.ndarray]:
        shares = np.exp(scores - scores.max(axis=1, keepdims=True))
        shares /= shares.sum(axis=1, keepdims=True)
        wanted = np.eye(scores.shape[1])[labels]
        return -float(np.log((shares * wanted).sum(axis=1) + 1e-12).mean()), (shares - wanted) / len(scores)

    return loss


def update_critic(critic: Net, *parts: tuple[np.ndarray, Loss]) -> float:
    """One step on the sum of the losses of several inputs."""
    total = 0.0
    for inputs, loss in parts:
        value, gradient = loss(critic.forward(inputs))
        critic.backward(gradient)
        total += value
    critic.step()
    return total


def update_generator(generator: Net, critic: Net, noise: np.ndarray, loss: Loss) -> tuple[float, np.ndarray]:
    """One step of the generator through a critic that stays as it is; the loss and the pictures."""
    pictures = generator.forward(noise)
    value, gradient = loss(critic.forward(pictures))
    generator.backward(critic.backward(gradient))
    critic.forget()
    generator.step()
    return value, pictures


def slope_penalty(critic: Net, start: np.ndarray, direction: np.ndarray, factor: float) -> float:
    """Gathers the gradient of factor * (slope - 1)^2, slope being a finite difference along a direction."""
    width = 1e-2
    unit = direction / (np.linalg.norm(direction, axis=1, keepdims=True) + 1e-8)
    slope = (critic.forward(start + width * unit) - critic.forward(start)) / width
    gradient = 2.0 * factor * (np.abs(slope) - 1.0) * np.sign(slope) / (width * len(start))
    critic.backward(-gradient)
    critic.forward(start + width * unit)
    critic.backward(gradient)
    return factor * float(((np.abs(slope) - 1.0) ** 2).mean())


def pictures(size: int, count: int = 64) -> tuple[np.ndarray, np.ndarray]:
    """Pictures (count, size * size) from -1 to 1 of one shape each, and the shapes' numbers."""
    rng = np.random.default_rng(0)
    labels = np.arange(count) % len(SHAPES)
    row, column = np.mgrid[0:size, 0:size]
    found = []
    for label, (top, left) in zip(labels, rng.integers(-1, 2, size=(count, 2))):
        y, x = row - size // 2 - top, column - size // 2 - left
        radius = size // 3
        shape = (
            x**2 + y**2 <= radius**2,
            np.maximum(abs(x), abs(y)) == radius,
            (x == 0) | (y == 0),
            abs(y) <= 1,
            abs(x - y) <= 1,
        )[label]
        found.append(np.where(shape, 1.0, -1.0).ravel())
    return np.array(found), labels


def picture_pairs(name: str, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Pictures of the first domain, and the same pictures in the second."""
    first = pictures(size)[0]
    return first, PAIRS[name](first.reshape(-1, size, size)).reshape(len(first), -1)


def batches(count: int, size: int, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """Row numbers in random order, `size` at a time."""
    order = rng.permutation(count)
    for start in range(0, count, size):
        yield order[start : start + size]


def between(low: float, high: float, kind: type = int) -> Callable[[str], float]:
    """An argparse type for numbers in a range."""

    def number(text: str) -> float:
        value = kind(text)
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"must be between {low} and {high}, got {text}")
        return value

    return number


def options(description: str | None) -> argparse.ArgumentParser:
    """The options of every implementation that draws pictures from noise."""
    parser = argparse.ArgumentParser(description=description, allow_abbrev=False)
    parser.add_argument("--n_epochs", type=between(1, 200), default=10, help="passes over the pictures")
    parser.add_argument("--batch_size", type=between(2, 64), default=16, help="pictures in an update")
    parser.add_argument("--lr", type=between(1e-6, 0.1, float), default=0.002, help="learning rate of Adam")
    parser.add_argument("--latent_dim", type=between(2, 256), default=16, help="numbers in a noise vector")
    parser.add_argument("--img_size", type=int, choices=(8, 12, 16), default=8, help="height and width")
    return parser


def save(rows: np.ndarray, size: int, name: str) -> None:
    """Writes the first eight pictures side by side as NAME.pgm, and says so."""
    strip = np.concatenate(list(rows[:8].reshape(-1, size, size)), axis=1)
    grey = np.clip((strip + 1.0) * 127.5, 0, 255).astype(int)
    lines = [" ".join(map(str, line)) for line in grey]
    pathlib.Path(f"{name}.pgm").write_text(f"P2\n{grey.shape[1]} {grey.shape[0]}\n255\n" + "\n".join(lines))
    print(f"saved {name}.pgm ({min(8, len(rows))} pictures of {size} x {size})")
