"""What protocols compare: joints, pelvis and mesh of bodies, and the body files that they are made
with.

Bodies predicted by any method, in one .npz.

`sequence` [M] (names), `person` [M] and `frame` [M] name the row; then either parameters of the
neutral body in the camera frame, `pose` [M, 24, 3] or [M, 72] (axis-angle), `shape` [M, S] and
optionally `translation` [M, 3]; or points in metres, `joints` [M, 14, 3] with, as the protocol
needs them, `pelvis` [M, 3], `vertices` [M, V, 3], `kinematic` [M, 24, 3], `translation` [M, 3] (see
`Bodies`)."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from eval3dpw.sequences import LARGEST, TruthTrack
from fitting.body import Body, BodyParams
from fitting.body.load import load_body
from pose2d.base.arrays import Array, check_arrays, read_npy, read_npz
from pose2d.base.columns import column
from pose2d.base.errors import OptionError, UserError
from pose2d.base.files import atomic_file
from pose2d.base.table import Table

# 14 of Human3.6M's 17: ankles, knees, hips, wrists, elbows, shoulders, thorax, head; in the order
# of SPIN's list.
H36M_14 = (6, 5, 4, 1, 2, 3, 16, 15, 14, 11, 12, 13, 8, 10)
H36M_PELVIS = 0
HIPS = (2, 3)  # of the 14


@dataclass(frozen=True)
class Bodies(Table):
    """Hold N bodies in metres, all in one frame of reference per row.

    `evaluate` compares two of these row by row.
    """

    # [N, 14, 3] see H36M_14; any order, if both sides use it and hips are 2 and 3
    joints: Tensor = column((14, 3), "f", "Human3.6M's 14", unit="m")
    pelvis: Tensor | None = column(
        (3,), "f", "Human3.6M's joint 0", unit="m", optional=True
    )  # [N, 3]
    vertices: Tensor | None = column(
        ("vertices", 3), "f", "mesh", unit="m", optional=True
    )  # [N, V, 3]
    # [N, 24, 3]
    kinematic: Tensor | None = column(
        (24, 3), "f", "SMPL's joints by forward kinematics", unit="m", optional=True
    )
    # [N, 3] contained in the positions above
    translation: Tensor | None = column(
        (3,), "f", "the body's translation", unit="m", optional=True
    )
    track: Tensor | None = column(
        (), "i", "track; with `frame`, for the acceleration", optional=True
    )  # [N]
    frame: Tensor | None = column((), "i", "frame number", optional=True)  # [N]

    @staticmethod
    def from_vertices(
        vertices: Tensor | np.ndarray, regressor: Tensor | np.ndarray, **columns: Tensor
    ) -> "Bodies":
        """Compute joints and pelvis of meshes [N, V, 3] by a regressor [17, V] of Human3.6M's
        joints.
        """
        vertices = torch.as_tensor(vertices)
        regressor = torch.as_tensor(regressor).to(vertices)
        if regressor.shape != (17, vertices.shape[1]):
            raise UserError(
                f"the regressor has size {list(regressor.shape)}; 17 joints of {vertices.shape[1]} vertices need "
                f"[17, {vertices.shape[1]}]."
            )
        joints = torch.einsum("jv,nvc->njc", regressor, vertices)
        return Bodies(joints[:, H36M_14, :], joints[:, H36M_PELVIS], vertices, **columns)


@dataclass(frozen=True)
class BodySet:
    """Hold the body files of truth and predictions."""

    load: Callable[[str], Body]  # by gender
    regressor: Tensor  # [17, V] Human3.6M's joints from posed vertices

    def place(self, params: BodyParams, gender: str = "neutral") -> Bodies:
        body = self.load(gender)
        out = body.at(params, vertices=True)
        assert out.vertices is not None
        return Bodies.from_vertices(
            out.vertices,
            self.regressor,
            kinematic=out.joints,
            translation=params.translation.to(body.dtype),
        )


def body_set(body_model: str | Path | None = None, regressor: str | Path | None = None) -> BodySet:
    """Load SMPL's files with the user's regressor, or for sets made by `fitmesh synth` the open
    body with its own.
    """
    load = lru_cache(maxsize=None)(lambda gender: load_body(body_model, gender))
    own = load("neutral").h36m_regressor
    if own is not None:
        if regressor is not None:
            raise OptionError(
                "--regressor is for SMPL's bodies: the open body has joints of its own. Leave it out."
            )
        return BodySet(load, own)
    return BodySet(
        load, _read_regressor(None if regressor is None else Path(regressor), load("neutral"))
    )


def _read_regressor(path: Path | None, body: Body) -> Tensor:
    vertices = len(body.v_template)
    description = (
        f"J_regressor_h36m.npy (17 x {vertices}, Human3.6M's joints from SMPL's vertices), which SPIN's fetch_data.sh "
        "and VIBE's prepare_data.sh download; it is not shipped. Pass it with --regressor."
    )
    if path is None:
        raise UserError(f"3DPW is scored on joints that need {description}")
    array = read_npy(path, f"Expected {description}")
    if (
        array.dtype.kind not in "fiu"
        or array.shape != (17, vertices)
        or not np.isfinite(array).all()
    ):
        raise UserError(
            f"{path} holds {array.dtype} {list(array.shape)}; expected {description}", file=path
        )
    return torch.as_tensor(array, dtype=torch.float32)


def _numbers(*shape: int | str) -> Array:
    return Array("f", ("rows", *shape), finite=True, low=-LARGEST, high=LARGEST)


_KEYS = {
    "sequence": Array("U", ("rows",)),
    "person": Array("i", ("rows",)),
    "frame": Array("i", ("rows",)),
}
_POINTS = {
    "joints": _numbers(14, 3),
    "pelvis": _numbers(3),
    "vertices": _numbers("vertices", 3),
    "kinematic": _numbers(24, 3),
    "translation": _numbers(3),
}
_PREDICTED = {**_KEYS, **_POINTS, "pose": _numbers(72), "shape": _numbers("numbers")}


@dataclass(frozen=True)
class Predictions:
    row: dict[tuple[str, int, int], int]  # (sequence, person, frame) -> row of the arrays
    arrays: dict[str, np.ndarray]  # as in the file

    def has(self, track: TruthTrack) -> np.ndarray:
        """Return which frames [T] of a track were predicted."""
        return np.array(
            [(track.sequence, track.person, int(n)) in self.row for n in track.frame], bool
        )

    def bodies(self, track: TruthTrack, bodies: BodySet) -> Bodies:
        """Return the predicted bodies of a track; all of its frames must be predicted."""
        rows = np.array([self.row[track.sequence, track.person, int(n)] for n in track.frame])

        def tensor(name: str) -> torch.Tensor:
            return torch.from_numpy(self.arrays[name][rows].astype(np.float32))

        if "pose" not in self.arrays:
            return Bodies(**{name: tensor(name) for name in _POINTS if name in self.arrays})
        translation = (
            tensor("translation") if "translation" in self.arrays else torch.zeros(len(rows), 3)
        )
        return bodies.place(
            BodyParams(tensor("pose").reshape(-1, 24, 3), tensor("shape"), translation)
        )


def read_predictions(path: Path) -> Predictions:
    arrays = read_npz(path, "Expected predictions in an .npz (docs/eval-3dpw.md).", _PREDICTED)
    if arrays.get("pose", np.zeros(0)).shape[1:] == (24, 3):
        arrays["pose"] = arrays["pose"].reshape(-1, 72)
    required_keys = {*_KEYS, "joints"} if "joints" in arrays else {*_KEYS, "pose", "shape"}
    specification = {
        name: replace(array, optional=name not in required_keys)
        for name, array in _PREDICTED.items()
    }
    check_arrays(arrays, specification, path, "predictions as docs/eval-3dpw.md says")
    keys = zip(
        arrays["sequence"].tolist(),
        arrays["person"].tolist(),
        arrays["frame"].tolist(),
        strict=True,
    )
    return Predictions(
        {(str(s), int(p), int(f)): row for row, (s, p, f) in enumerate(keys)}, arrays
    )


def write_predictions(path: Path, predictions: Iterable[tuple[TruthTrack, BodyParams]]) -> None:
    rows = [
        {
            "sequence": np.full(len(t), t.sequence),
            "person": np.full(len(t), t.person),
            "frame": t.frame,
            "pose": p.pose.numpy(),
            "shape": p.shape.expand(len(p.pose), -1).numpy(),
            "translation": p.translation.numpy(),
        }
        for t, p in predictions
    ]
    arrays: dict[str, Any] = {name: np.concatenate([row[name] for row in rows]) for name in rows[0]}
    with atomic_file(path) as temporary:
        np.savez_compressed(temporary, **arrays)
