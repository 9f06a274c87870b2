"""One softmax over the whole batch: the real pictures shall get all of the probability.

python softmax_gan.py --batch_size 8
"""

import pathlib
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from gallery import Net, batches, options, pictures, save


def batch_softmax(scores: np.ndarray, wanted: np.ndarray) -> tuple[float, np.ndarray]:
    """Cross-entropy of the softmax over all scores of a batch, and its gradient."""
    log_total = np.logaddexp.reduce(scores.ravel())
    return float((wanted * (log_total - scores)).sum()), np.exp(scores - log_total) - wanted


def main() -> None:
    parser = options(__doc__)
    args = parser.parse_args()
    rng = np.random.default_rng(0)
    real, _ = pictures(args.img_size)
    generator = Net([args.latent_dim, 64, real.shape[1]], rng, args.lr, end="tanh")
    critic = Net([real.shape[1], 64, 1], rng, args.lr)
    for _ in range(args.n_epochs):
        for batch in batches(len(real), args.batch_size, rng):
            noise = rng.normal(size=(len(batch), args.latent_dim))
            fake = generator.forward(noise)
            count = len(batch)
            wanted = np.repeat([1.0 / count, 0.0], count)[:, None]
            loss_d, gradient = batch_softmax(critic.forward(np.concatenate([real[batch], fake])), wanted)
            critic.backward(gradient)
            critic.step()
            wanted = np.full((2 * count, 1), 0.5 / count)
            loss_g, gradient = batch_softmax(critic.forward(np.concatenate([real[batch], fake])), wanted)
            generator.backward(critic.backward(gradient)[count:])
            critic.forget()
            generator.step()
    print(f"softmax_gan: generator {loss_g:.4f}, critic {loss_d:.4f}")
    save(fake, args.img_size, "softmax_gan")


if __name__ == "__main__":
    main()
