"""From files to bodies: the embedded one, or SMPL, SMPL-H and SMPL-X."""

from collections.abc import Mapping
from functools import lru_cache
from importlib.resources import files
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fitting.body.arrays import checked, read_arrays
from fitting.body.body import Body
from fitting.body.folder import find_body_file
from fitting.body.kinematics import JOINT_COUNT
from fitting.body.smpl_files import smpl_body
from pose2d.base.errors import UserError
from pose2d.base.threads import single_thread

OPEN_BODY = Path(str(files("fitting") / "data" / "open_body.npz"))


def load_body(path: str | Path | None = None, gender: str = "neutral") -> Body:
    """The embedded open body, or the body in an SMPL / SMPL-H / SMPL-X file.

    path: None, a file (.pkl, .npz), or a folder that holds files under their usual names.
    gender: "neutral", "male" or "female"; which file of a folder to take. The open body is one for all.
    """
    if gender not in ("neutral", "male", "female"):
        raise UserError(f"unknown gender {gender!r}: choose neutral, male or female.")
    path = find_body_file(OPEN_BODY if path is None else Path(path), gender)
    about = path.stat()
    return _read_body(path, about.st_mtime_ns, about.st_size)


@lru_cache(maxsize=1)  # a run asks for its body at every step; nobody changes one
@single_thread()
def _read_body(path: Path, mtime_ns: int, size: int) -> Body:
    arrays = read_arrays(path)
    return _open_body(arrays, path) if "J_regressor_coco17" in arrays else smpl_body(arrays, path)


def _open_body(arrays: Mapping[str, np.ndarray], path: Path) -> Body:
    """A body whose file defines its own keypoints, as `tools/build_open_body.py` writes it."""

    def real(name: str) -> Tensor:
        return torch.as_tensor(arrays[name], dtype=torch.float32)

    vertices = len(arrays["v_template"])
    checked(arrays, path, {"J_regressor_coco17": (17, vertices), "J_regressor_h36m17": (17, vertices)})
    picks = zip(arrays["vertex_pick_names"], arrays["vertex_picks"], strict=True)
    return Body(
        name="open",
        v_template=real("v_template"),
        shapedirs=real("shapedirs"),
        posedirs=real("posedirs") if arrays["posedirs"].any() else None,
        J_regressor=real("J_regressor"),
        weights=real("weights"),
        faces=torch.as_tensor(arrays["f"].astype(np.int64)),
        keypoint_joints=torch.zeros(17, JOINT_COUNT),
        keypoint_vertices=real("J_regressor_coco17"),
        h36m_regressor=real("J_regressor_h36m17"),
        vertex_picks={str(name): int(vertex) for name, vertex in picks},
    )
