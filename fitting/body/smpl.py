"""Bodies of SMPL, SMPL-H and SMPL-X files, set up by the `smplx` package.

`smplx` is for non-commercial use. It gets arrays that were read safely, never a path: with a path
it would unpickle the file itself.

SMPL-H and SMPL-X have hands and faces that body keypoints say nothing about: jaw and eyes stay at
rest, and so do fingers in a run without hand keypoints. A bone at rest moves exactly as its parent
does, so their skinning weights are added to wrist and head. What remains has the 22 body joints
plus `left_hand` and `right_hand`, taken at the root of the middle finger. Rotations given for those
last two move nothing. The fingers are a layer on top (`Body.fingers`).
"""

import contextlib
import io
import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fitting.body.body import Body
from fitting.body.fingers import BODY_JOINTS, FINGERS, WRISTS, Fingers
from fitting.body.kinematics import JOINT_COUNT, JOINT_NAMES, PARENTS
from pose2d.base.embedded import check_embedded
from pose2d.base.errors import UserError
from pose2d.skeletons import COCO17

_log = logging.getLogger(__name__)
_SHAPES = 10  # directions that fits, 3DPW and the published networks use


@dataclass(frozen=True)
class _Family:
    name: str
    vertices: int
    joints: int
    left_hand: int  # the number of the first left finger joint; the right hand follows after 15
    vertex_names: str  # smplx's table of named vertices


_FAMILIES = (
    _Family("SMPL", 6890, 24, 24, "smplh"),
    _Family("SMPL-H", 6890, 52, 22, "smplh"),
    _Family("SMPL-X", 10475, 55, 25, "smplx"),
)
_FACE_VERTICES = {
    "nose": "nose",
    "left_eye": "leye",
    "right_eye": "reye",
    "left_ear": "lear",
    "right_ear": "rear",
}


def smpl_body(arrays: Mapping[str, np.ndarray], path: Path) -> Body:
    """Build the body of a file in SMPL's layout."""
    vertices = len(arrays["v_template"])
    joints = len(arrays["J_regressor"])
    family = next((f for f in _FAMILIES if (f.vertices, f.joints) == (vertices, joints)), None)
    if family is None:
        families = "; ".join(f"{f.name} {f.vertices} and {f.joints}" for f in _FAMILIES)
        raise UserError(
            f"{path} has {vertices} vertices and {joints} joints; "
            f"expected one of these numbers of vertices and joints: {families}.",
            file=path,
        )
    model, picks = _through_smplx(arrays, family)

    carrier = _carriers(model.parents.tolist(), family, path)
    if joints == JOINT_COUNT:
        hands = [22, 23]
    else:  # the root of each middle finger
        left_middle = family.left_hand + 3 * FINGERS.index("middle")
        hands = [left_middle, left_middle + 15]
    joint_rows = [*range(22), *hands]
    weights = torch.zeros(vertices, JOINT_COUNT).index_add_(
        1, torch.tensor(carrier), model.lbs_weights
    )
    # correctives of resting joints are zero
    moved_joints = JOINT_COUNT - 1 if joints == JOINT_COUNT else 21
    posedirs = model.posedirs[: 9 * moved_joints].T.unflatten(0, (vertices, 3))
    keypoint_joints, keypoint_vertices = _halpe26(picks, vertices, family.name)
    return Body(
        name=family.name,
        v_template=model.v_template,
        shapedirs=model.shapedirs,
        posedirs=posedirs if posedirs.any() else None,
        J_regressor=model.J_regressor[joint_rows],
        weights=weights,
        faces=model.faces_tensor,
        keypoint_joints=keypoint_joints,
        keypoint_vertices=keypoint_vertices,
        vertex_picks=picks,
        fingers=None if joints == JOINT_COUNT else _fingers(model, family, picks, weights),
    )


def _fingers(model: Any, family: _Family, picks: Mapping[str, int], weights: Tensor) -> Fingers:
    """Return the fingers of the file: its hands are flat at rest, and its joints are in the order
    of FINGER_JOINTS.
    """
    own = list(range(family.left_hand, family.left_hand + 30))
    shares = torch.cat((weights[:, :BODY_JOINTS], model.lbs_weights[:, own]), 1)
    for side, wrist in enumerate(WRISTS):
        shares[:, wrist] -= shares[:, BODY_JOINTS + 15 * side : BODY_JOINTS + 15 * (side + 1)].sum(
            1
        )
    of_joints = model.J_regressor[own]
    correctives = model.posedirs[9 * (own[0] - 1) : 9 * own[-1]].T.unflatten(0, (len(shares), 3))
    return Fingers(
        v_template=model.v_template,
        shapedirs=model.shapedirs,
        weights=shares,
        rest_joints=of_joints @ model.v_template,
        rest_joint_shapedirs=torch.einsum("jv,vcs->jcs", of_joints, model.shapedirs),
        tips=torch.tensor([picks[f"{side}{finger}"] for side in "lr" for finger in FINGERS]),
        offsets=torch.zeros(2, 21, 3),
        posedirs=correctives if correctives.any() else None,
    )


@cache
def _tell_licence(smplx_version: str) -> None:
    """Say once in a process that SMPL's files and `smplx` are for non-commercial use."""
    _log.warning(
        "SMPL, SMPL-H and SMPL-X files and the package smplx %s, which sets them up, are for "
        "non-commercial use unless you bought a licence; the embedded open body is CC0 "
        "(docs/install.md).",
        smplx_version,
    )


def _through_smplx(arrays: Mapping[str, np.ndarray], family: _Family) -> tuple[Any, dict[str, int]]:
    try:
        import smplx
        from smplx.vertex_ids import vertex_ids
    except ImportError as error:
        raise UserError(
            "SMPL files need the `smplx` package: pip install smplx (for non-commercial use). "
            "The embedded open body works without it."
        ) from error
    _tell_licence(version("smplx"))
    picks = dict(vertex_ids[family.vertex_names])
    flat_hands: dict[str, np.ndarray] = {}  # SMPLH asks for them; hands stay at rest here
    for side in "lr":
        flat_hands |= {
            f"hands_components{side}": np.zeros((45, 45)),
            f"hands_mean{side}": np.zeros(45),
        }
    data = SimpleNamespace(**flat_hands, **arrays)
    # smplx.SMPLX reads a path and nothing else; SMPLH, its parent, sets up the same tensors from
    # arrays.
    build = smplx.SMPL if family.name == "SMPL" else smplx.SMPLH
    # smplx prints a warning about ten shape directions
    with contextlib.redirect_stdout(io.StringIO()):
        model = build(
            "",
            data_struct=data,
            vertex_ids=picks,
            num_betas=_SHAPES,
            create_betas=False,
            create_transl=False,
            create_global_orient=False,
            create_body_pose=False,
        )
    return model.requires_grad_(False), picks


def _carriers(parents: list[int], family: _Family, path: Path) -> list[int]:
    """Return, for every joint of the file, which of the 24 joints moves what hangs on it."""
    body = JOINT_COUNT if family.joints == JOINT_COUNT else 22
    if tuple(parents[1:body]) != PARENTS[1:body]:
        raise UserError(
            f"{path}: kintree_table is not the joint tree of {family.name}; the file is damaged.",
            file=path,
        )
    carriers = list(range(body))
    for joint in range(body, family.joints):
        if not 0 <= parents[joint] < joint:
            raise UserError(
                f"{path}: kintree_table puts joint {joint} before its parent; the file is damaged.",
                file=path,
            )
        carriers.append(carriers[parents[joint]])
    return carriers


def _halpe26(picks: Mapping[str, int], vertices: int, family: str) -> tuple[Tensor, Tensor]:
    """Return the shares [26, 24] of joints and [26, V] of vertices in Halpe's 26 keypoints.

    COCO's points of SMPL bodies are the customary ones (limbs are the joints themselves, the face
    five vertices); Halpe's nine more come from `data/halpe26_on_smpl.json`. A mesh that is not
    SMPL's own has no such vertices.
    """
    joint_part = torch.zeros(26, JOINT_COUNT)
    vertex_part = torch.zeros(26, vertices)
    path = Path(str(files("fitting") / "data" / "halpe26_on_smpl.json"))
    table = json.loads(check_embedded(path).read_text())
    for number, name in enumerate(table["order"], start=COCO17.size):
        shares = table["SMPL-X" if family == "SMPL-X" else "SMPL"][name]
        for vertex, share in shares["vertices"].items():
            vertex_part[number, int(vertex)] = share
        for joint, share in shares["joints"].items():
            joint_part[number, JOINT_NAMES.index(joint)] = share
    for number, keypoint in enumerate(COCO17.keypoints):
        if keypoint in _FACE_VERTICES:
            vertex_part[number, picks[_FACE_VERTICES[keypoint]]] = 1
        else:
            joint_part[number, JOINT_NAMES.index(keypoint)] = 1
    return joint_part, vertex_part
