"""Keep the frozen network's maps of crops on disk, so that they are computed once.

The frozen stages take as long as everything that learns. A crop's map is 98 kB, so this pays for
up to some 100,000 crops. Kept maps are of crops as they are: neither mirrored nor brightened.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from training.image.network import EARLY_CHANNELS

MAP_HW = (16, 12)


class MapCache:
    """The maps of files of crops, computed where they are not there yet."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._files: dict[str, tuple[np.memmap, np.memmap]] = {}

    def maps(
        self, name: str, count: int, rows: Tensor, compute: Callable[[Tensor], Tensor]
    ) -> Tensor:
        """Return float32 maps [B, 256, 16, 12] of rows [B] of the file `name` with `count` crops.

        compute: rows -> maps, for those that are not kept.
        """
        kept, is_kept = self._open(name, count)
        missing = rows[torch.from_numpy(~is_kept[rows.numpy()])].unique()
        if len(missing):
            kept[missing.numpy()] = compute(missing).half().numpy()
            # Marked after the maps are written, so that a stop between them costs time only.
            kept.flush()
            is_kept[missing.numpy()] = True
        return torch.from_numpy(kept[rows.numpy()]).float()

    def _open(self, name: str, count: int) -> tuple[np.memmap, np.memmap]:
        if name not in self._files:
            shape = (count, EARLY_CHANNELS, *MAP_HW)
            maps = _mapped(self.folder / f"{name}.f16", np.float16, shape)
            is_kept = _mapped(self.folder / f"{name}.kept", np.bool_, (count,))
            self._files[name] = (maps, is_kept)
        return self._files[name]


def _mapped(path: Path, kind: type, shape: tuple[int, ...]) -> np.memmap:
    """Open an array on disk; a new one, or one of another size, begins with zeros."""
    size = int(np.prod(shape)) * np.dtype(kind).itemsize
    is_new = not path.exists() or path.stat().st_size != size
    return np.memmap(path, kind, "w+" if is_new else "r+", shape=shape)
