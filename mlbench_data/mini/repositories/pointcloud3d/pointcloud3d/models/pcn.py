"""Point completion: a coarse cloud from one feature, then a small grid around each coarse point."""

import numpy as np

from pointcloud3d.models.pointnet import PointNet


class PCN:
    """Completes partial clouds to `num_coarse` times `grid_size` squared points."""

    def __init__(self, *, emb_dims: int, num_coarse: int, grid_size: int):
        if min(num_coarse, grid_size) < 1:
            raise ValueError(f"num_coarse {num_coarse}, grid_size {grid_size}: expected at least 1")
        self.encoder = PointNet(emb_dims=emb_dims, symfn="max")
        self.num_coarse = num_coarse
        random = np.random.default_rng(num_coarse)
        self.decoder = random.normal(size=(emb_dims, num_coarse * 3)) / np.sqrt(emb_dims)
        steps = np.linspace(-0.05, 0.05, grid_size)
        flat = np.zeros((grid_size, grid_size))
        self.grid = np.stack([*np.meshgrid(steps, steps), flat], axis=-1).reshape(-1, 3)

    def __call__(self, clouds: np.ndarray) -> dict[str, np.ndarray]:
        """`coarse` of shape (batch, num_coarse, 3) and `fine` with the grid around each coarse point."""
        coarse = (self.encoder(clouds) @ self.decoder).reshape(len(clouds), self.num_coarse, 3)
        fine = coarse[:, :, None] + self.grid
        return {"coarse": coarse, "fine": fine.reshape(len(clouds), -1, 3)}
