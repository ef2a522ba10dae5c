"""The embedded open body with its fingers, and files in its layout."""

from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fitting.body.body import Body
from fitting.body.fingers import OPEN_KEYPOINTS_MM, Fingers
from fitting.body.kinematics import JOINT_COUNT
from pose2d.base.arrays import Array, check_arrays
from pose2d.base.embedded import check_embedded

OPEN_BODY = Path(str(files("fitting") / "data" / "open_body.npz"))
# written by the same tool; only valid for the body in open_body.npz
OPEN_HANDS = OPEN_BODY.with_name("open_hands.npz")


def open_body(arrays: Mapping[str, np.ndarray], path: Path) -> Body:
    """Build a body whose file defines its own keypoints, as `tools/build_open_body.py`
    writes it.
    """

    def real(name: str) -> Tensor:
        return torch.tensor(arrays[name], dtype=torch.float32)

    vertices = len(arrays["v_template"])
    sizes = {
        "J_regressor_halpe26": (26, vertices),
        "J_regressor_h36m17": (17, vertices),
        "kintree_table": (2, 24),
    }
    check_arrays(
        arrays, {n: Array("f", size, finite=True) for n, size in sizes.items()}, path, "a body file"
    )
    picks = zip(arrays["vertex_pick_names"], arrays["vertex_picks"], strict=True)
    return Body(
        name="open",
        v_template=real("v_template"),
        shapedirs=real("shapedirs"),
        posedirs=real("posedirs") if arrays["posedirs"].any() else None,
        J_regressor=real("J_regressor"),
        weights=real("weights"),
        faces=torch.as_tensor(arrays["f"].astype(np.int64)),
        keypoint_joints=torch.zeros(26, JOINT_COUNT),
        keypoint_vertices=real("J_regressor_halpe26"),
        h36m_regressor=real("J_regressor_h36m17"),
        vertex_picks={str(name): int(vertex) for name, vertex in picks},
        fingers=_open_fingers(real("v_template"), real("shapedirs"), real("weights"))
        if path == OPEN_BODY
        else None,
    )


def _open_fingers(v_template: Tensor, shapedirs: Tensor, weights: Tensor) -> Fingers:
    """Return the embedded fingers of the embedded body."""
    with np.load(check_embedded(OPEN_HANDS), allow_pickle=False) as file:
        hand = {name: torch.from_numpy(file[name]) for name in file.files if name != "joint_names"}
    vertices = hand["vertices"].long()
    template = v_template.clone()
    template[vertices] = hand["v_template"]
    directions = shapedirs.clone()
    shares = torch.cat((weights[:, :22], weights.new_zeros(len(weights), 30)), 1)
    directions[vertices] = hand["shapedirs"]
    shares[vertices] = hand["weights"]
    offsets = torch.tensor(OPEN_KEYPOINTS_MM) / 1000
    offsets = torch.stack((offsets, offsets * torch.tensor([-1.0, 1, 1])))
    return Fingers(
        template, directions, shares, hand["J"], hand["J_shapedirs"], hand["tips"].long(), offsets
    )
