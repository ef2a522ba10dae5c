"""Images that are the same everywhere: blocks of random colour."""

import numpy as np


def pattern(seed: int, height: int, width: int, block: int = 16) -> np.ndarray:
    """[1, 3, height, width], 0..255 as float64."""
    small = np.random.default_rng(seed).integers(0, 256, (1, 3, height // block, width // block))
    return np.kron(small, np.ones((1, 1, block, block)))
