"""From files to bodies."""

from importlib.resources import files
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fitting.body import Body
from fitting.kinematics import JOINT_COUNT


def load_body(path: str | Path | None = None, gender: str = "neutral") -> Body:
    """The embedded open body, or an SMPL / SMPL-H / SMPL-X body from a file or a folder of such files."""
    if path is None:
        path = Path(str(files("fitting") / "data" / "open_body.npz"))
    with np.load(path, allow_pickle=False) as file:
        return _open_body({name: file[name] for name in file.files})


def _open_body(arrays: dict[str, np.ndarray]) -> Body:
    def real(name: str) -> Tensor:
        return torch.as_tensor(arrays[name], dtype=torch.float32)

    regressor = real("J_regressor_coco17")
    return Body(
        name="open",
        v_template=real("v_template"),
        shapedirs=real("shapedirs"),
        posedirs=real("posedirs") if arrays["posedirs"].any() else None,
        J_regressor=real("J_regressor"),
        weights=real("weights"),
        faces=torch.as_tensor(arrays["f"].astype(np.int64)),
        keypoint_joints=torch.zeros(len(regressor), JOINT_COUNT),
        keypoint_vertices=regressor,
        h36m_regressor=real("J_regressor_h36m17"),
        vertex_picks={
            str(name): int(vertex)
            for name, vertex in zip(arrays["vertex_pick_names"], arrays["vertex_picks"], strict=True)
        },
    )
