"""What protocols compare: joints, pelvis and mesh of bodies, and the body files that they are made with."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fitting.body import Body, BodyParams
from fitting.body.load import load_body
from pose2d.base.arrays import read_npy
from pose2d.base.errors import UserError
from pose2d.base.table import Table, column

# 14 of Human3.6M's 17: ankles, knees, hips, wrists, elbows, shoulders, thorax, head; in the order of SPIN's list.
H36M_14 = (6, 5, 4, 1, 2, 3, 16, 15, 14, 11, 12, 13, 8, 10)
H36M_PELVIS = 0
HIPS = (2, 3)  # of the 14


@dataclass(frozen=True)
class Bodies(Table):
    """N bodies, all in one frame of reference per row, metres. `evaluate` compares two of these row by row."""

    # [N, 14, 3] see H36M_14; any order, if both sides use it and hips are 2 and 3
    joints: Tensor = column((14, 3), "f", "Human3.6M's 14", unit="m")
    pelvis: Tensor | None = column((3,), "f", "Human3.6M's joint 0", unit="m", optional=True)  # [N, 3]
    vertices: Tensor | None = column(("vertices", 3), "f", "mesh", unit="m", optional=True)  # [N, V, 3]
    # [N, 24, 3]
    kinematic: Tensor | None = column((24, 3), "f", "SMPL's joints by forward kinematics", unit="m", optional=True)
    # [N, 3] contained in the positions above
    translation: Tensor | None = column((3,), "f", "the body's translation", unit="m", optional=True)
    track: Tensor | None = column((), "i", "track; with `frame`, for the acceleration", optional=True)  # [N]
    frame: Tensor | None = column((), "i", "frame number", optional=True)  # [N]

    @staticmethod
    def from_vertices(vertices: Tensor | np.ndarray, regressor: Tensor | np.ndarray, **others: Tensor) -> "Bodies":
        """Joints and pelvis of meshes [N, V, 3] by a regressor [17, V] of Human3.6M's joints."""
        vertices = torch.as_tensor(vertices)
        regressor = torch.as_tensor(regressor).to(vertices)
        if regressor.shape != (17, vertices.shape[1]):
            raise UserError(
                f"the regressor has size {list(regressor.shape)}; 17 joints of {vertices.shape[1]} vertices need "
                f"[17, {vertices.shape[1]}]."
            )
        joints = torch.einsum("jv,nvc->njc", regressor, vertices)
        return Bodies(joints[:, H36M_14, :], joints[:, H36M_PELVIS], vertices, **others)


@dataclass(frozen=True)
class BodySet:
    """The body files of truth and predictions."""

    load: Callable[[str], Body]  # by gender
    regressor: Tensor  # [17, V] Human3.6M's joints from posed vertices

    def place(self, params: BodyParams, gender: str = "neutral") -> Bodies:
        """The posed bodies of parameters."""
        body = self.load(gender)
        out = body.at(params, vertices=True)
        assert out.vertices is not None
        return Bodies.from_vertices(
            out.vertices, self.regressor, kinematic=out.joints, translation=params.translation.to(body.dtype)
        )


def body_set(body_model: str | Path | None = None, regressor: str | Path | None = None) -> BodySet:
    """SMPL's files with the user's regressor; or, for sets made by `fitmesh synth`, the open body with its own."""
    load = lru_cache(maxsize=None)(lambda gender: load_body(body_model, gender))
    own = load("neutral").h36m_regressor
    if own is not None:
        if regressor is not None:
            raise UserError("--regressor is for SMPL's bodies: the open body has joints of its own. Leave it out.")
        return BodySet(load, own)
    return BodySet(load, _read_regressor(None if regressor is None else Path(regressor), load("neutral")))


def _read_regressor(path: Path | None, body: Body) -> Tensor:
    vertices = len(body.v_template)
    what = (
        f"J_regressor_h36m.npy (17 x {vertices}, Human3.6M's joints from SMPL's vertices), which SPIN's fetch_data.sh "
        "and VIBE's prepare_data.sh download; it is not shipped. Pass it with --regressor."
    )
    if path is None:
        raise UserError(f"3DPW is scored on joints that need {what}")
    if not path.is_file():
        raise UserError(f"there is no file {path}. Expected {what}")
    array = read_npy(path, f"Expected {what}")
    if array.dtype.kind not in "fiu" or array.shape != (17, vertices) or not np.isfinite(array).all():
        raise UserError(f"{path} holds {array.dtype} {list(array.shape)}; expected {what}")
    return torch.as_tensor(array, dtype=torch.float32)
