"""Bodies predicted by any method, in one .npz.

`sequence` [M] (names), `person` [M] and `frame` [M] name the row; then either parameters of the neutral body in
the camera frame, `pose` [M, 24, 3] or [M, 72] (axis-angle), `shape` [M, S] and optionally `translation` [M, 3]; or
points in metres, `joints` [M, 14, 3] with, as the protocol needs them, `pelvis` [M, 3], `vertices` [M, V, 3],
`kinematic` [M, 24, 3], `translation` [M, 3] (see `Bodies`).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from eval3dpw.bodies import Bodies, BodySet
from eval3dpw.sequences import TruthTrack
from fitting.body import BodyParams
from pose2d.base.arrays import read_npz
from pose2d.base.errors import UserError
from pose2d.base.files import atomic_file

_KEYS = ("sequence", "person", "frame")
LARGEST = 1e6  # metres, radians, standard deviations: nothing of a body comes near
_POINTS = ("joints", "pelvis", "vertices", "kinematic", "translation")


@dataclass(frozen=True)
class Predictions:
    """M bodies."""

    row: dict[tuple[str, int, int], int]  # (sequence, person, frame) -> row of the arrays
    arrays: dict[str, np.ndarray]  # as in the file

    def has(self, track: TruthTrack) -> np.ndarray:
        """Frames [T] of a track that were predicted."""
        return np.array([(track.sequence, track.person, int(n)) in self.row for n in track.frame], bool)

    def bodies(self, track: TruthTrack, bodies: BodySet) -> Bodies:
        """Of a track all of whose frames were predicted."""
        rows = np.array([self.row[track.sequence, track.person, int(n)] for n in track.frame])

        def tensor(name: str) -> torch.Tensor:
            return torch.from_numpy(self.arrays[name][rows].astype(np.float32))

        if "pose" not in self.arrays:
            return Bodies(**{name: tensor(name) for name in _POINTS if name in self.arrays})
        here = tensor("translation") if "translation" in self.arrays else torch.zeros(len(rows), 3)
        return bodies.place(BodyParams(tensor("pose").reshape(-1, 24, 3), tensor("shape"), here))


def read_predictions(path: Path) -> Predictions:
    arrays = read_npz(path, "Expected predictions in an .npz (docs/eval-3dpw.md).")
    missing = [name for name in _KEYS if name not in arrays]
    if not missing and "joints" not in arrays:
        missing = [name for name in ("pose", "shape") if name not in arrays]
    if missing:
        raise UserError(f"{path} lacks {', '.join(missing)}; docs/eval-3dpw.md says what predictions hold.")
    kinds = {"sequence": "U", "person": "iu", "frame": "iu"}
    for name, value in arrays.items():
        if name in (*_KEYS, *_POINTS, "pose", "shape") and (
            value.dtype.kind not in kinds.get(name, "fiu") or value.ndim < 1 or (name in _KEYS and value.ndim != 1)
        ):
            raise UserError(
                f"{path}: {name} holds {value.dtype} {list(value.shape)}; docs/eval-3dpw.md says what it may."
            )
    count = len(arrays["frame"])
    sizes = {"pose": 72, "joints": 14 * 3, "translation": 3, "pelvis": 3, "kinematic": 24 * 3}
    for name, value in arrays.items():
        if name in (*_KEYS, *_POINTS, "pose", "shape"):
            each = int(np.prod(value.shape[1:]))
            if len(value) != count or (name in sizes and each != sizes[name]):
                wanted = f", {sizes[name]} numbers each" if name in sizes else ""
                raise UserError(f"{path}: {name} has size {list(value.shape)}; expected {count} rows{wanted}.")
            if name not in _KEYS and (not np.isfinite(value).all() or np.abs(value).max(initial=0) > LARGEST):
                raise UserError(
                    f"{path}: {name} has a number that is not finite (NaN or infinity) or above {LARGEST:g}."
                )
    keys = zip(arrays["sequence"].tolist(), arrays["person"].tolist(), arrays["frame"].tolist(), strict=True)
    return Predictions({(str(s), int(p), int(f)): row for row, (s, p, f) in enumerate(keys)}, arrays)


def write_predictions(path: Path, found: Iterable[tuple[TruthTrack, BodyParams]]) -> None:
    """Fits of many tracks as one such file."""
    parts = list(found)
    arrays: dict[str, Any] = {
        "sequence": np.concatenate([np.full(len(t), t.sequence) for t, _ in parts]),
        "person": np.concatenate([np.full(len(t), t.person) for t, _ in parts]),
        "frame": np.concatenate([t.frame for t, _ in parts]),
        "pose": np.concatenate([p.pose.numpy() for _, p in parts]),
        "shape": np.concatenate([p.shape.expand(len(p.pose), -1).numpy() for _, p in parts]),
        "translation": np.concatenate([p.translation.numpy() for _, p in parts]),
    }
    with atomic_file(path) as temporary:
        np.savez_compressed(temporary, **arrays)
