"""From files to bodies: the embedded one, or SMPL, SMPL-H and SMPL-X. Pickles are read safely and
never executed.

SMPL's families go through the `smplx` package, which is for non-commercial use. It is given arrays
that were read safely, never a path: with a path it would unpickle the file itself.

SMPL-H and SMPL-X have hands and faces that body keypoints say nothing about: jaw and eyes stay at
rest, and so do fingers where nobody looks for hands. A bone at rest moves exactly as its parent
does, so their skinning weights are added to wrist and head, and what remains has the 22 body joints
plus `left_hand` and `right_hand`, taken at the root of the middle finger. Rotations given for those
last two move nothing. The fingers are a layer on top (`Body.fingers`)."""

import contextlib
import io
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fitting.body.body import Body
from fitting.body.kinematics import (
    BODY_JOINTS,
    FINGERS,
    JOINT_COUNT,
    JOINT_NAMES,
    OPEN_KEYPOINTS_MM,
    PARENTS,
    WRISTS,
    Fingers,
)
from pose2d.base import unpickle
from pose2d.base.arrays import Array, check_arrays, read_npz
from pose2d.base.errors import UserError
from pose2d.base.limits import MOST_ARRAY_BYTES, most_bytes
from pose2d.base.threads import single_thread
from pose2d.skeletons import COCO17

OPEN_BODY = Path(str(files("fitting") / "data" / "open_body.npz"))
OPEN_HANDS = OPEN_BODY.with_name(
    "open_hands.npz"
)  # by the same tool; of the body in open_body.npz alone


def load_body(path: str | Path | None = None, gender: str = "neutral") -> Body:
    """The embedded open body, or the body in an SMPL / SMPL-H / SMPL-X file.

    path: None, a file (.pkl, .npz), or a folder that holds files under their usual names. gender:
    "neutral", "male" or "female"; which file of a folder to take. The open body is one for all.
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
    try:
        if "J_regressor_coco17" in arrays:
            return _open_body(arrays, path)
        return smpl_body(arrays, path)
    except (
        ArithmeticError,
        AttributeError,
        LookupError,
        RuntimeError,
        TypeError,
        ValueError,
    ) as error:
        reason = (str(error).splitlines() or [""])[0][:200]
        raise UserError(
            f"{path} is not a body file, or it is damaged ({type(error).__name__}: {reason})."
        ) from error


def _open_body(arrays: Mapping[str, np.ndarray], path: Path) -> Body:
    """A body whose file defines its own keypoints, as `tools/build_open_body.py` writes it."""

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
    """The embedded fingers of the embedded body."""
    with np.load(OPEN_HANDS, allow_pickle=False) as file:
        hand = {name: torch.from_numpy(file[name]) for name in file.files if name != "joint_names"}
    at = hand["vertices"].long()
    rest = v_template.clone()
    rest[at] = hand["v_template"]
    directions = shapedirs.clone()
    shares = torch.cat((weights[:, :22], weights.new_zeros(len(weights), 30)), 1)
    directions[at] = hand["shapedirs"]
    shares[at] = hand["weights"]
    offsets = torch.tensor(OPEN_KEYPOINTS_MM) / 1000
    offsets = torch.stack((offsets, offsets * torch.tensor([-1.0, 1, 1])))
    return Fingers(
        rest, directions, shares, hand["J"], hand["J_shapedirs"], hand["tips"].long(), offsets
    )


# Usual file names of SMPL, SMPL-H and SMPL-X, most usual first; {G} is the gender as that name
# writes it.
_NAMES = (
    *(r"SMPL_{G}\.(pkl|npz)", r"basicModel_{g}_lbs_10_207_0_v\d\.\d\.\d\.pkl"),
    *(r"SMPLH_{G}\.(npz|pkl)", r"{G}/model\.(npz|pkl)"),
    *(r"SMPLX_{G}\.(npz|pkl)", r"SMPLX_{G}_2020\.npz"),
)
WEIGHTS_OFF = 0.05  # rounding of published files is far below
_DEEPEST = 3  # folders below the given one: models/smplh/male/model.npz
WHERE = (
    "SMPL: SMPL_NEUTRAL.pkl or basicModel_neutral_lbs_10_207_0_v1.0.0.pkl from smpl.is.tue.mpg.de; "
    "SMPL-H: SMPLH_NEUTRAL.npz or neutral/model.npz from mano.is.tue.mpg.de; "
    "SMPL-X: SMPLX_NEUTRAL.npz from smpl-x.is.tue.mpg.de (likewise MALE and FEMALE); "
    "each after registration there. Without a path the embedded open body is used."
)


def find_body_file(path: Path, gender: str) -> Path:
    """`path` itself if it is a file, else the file for that gender in it: SMPL before SMPL-H before
    SMPL-X.
    """
    if path.is_file():
        return path
    if not path.is_dir():
        raise UserError(f"there is no body file or folder {path}. Expected {WHERE}")
    entries = sorted(
        entry
        for depth in range(_DEEPEST + 1)
        for entry in path.glob("*/" * depth + "*")
        if entry.is_file()
    )

    def named(gender: str) -> list[Path]:
        short = gender if gender == "neutral" else gender[0]
        names = [
            name.replace("{G}", gender).replace("{g}", f"({short}|{gender})") for name in _NAMES
        ]
        # The folder's own name counts too: its path may end in smplh/male.
        places = {
            entry: f"{path.resolve().name}/{entry.relative_to(path).as_posix()}"
            for entry in entries
        }
        return [
            e for name in names for e in entries if re.search(rf"(^|/){name}$", places[e], re.I)
        ]

    if mine := named(gender):
        return mine[0]
    if others := [entry for other in ("neutral", "male", "female") for entry in named(other)]:
        raise UserError(
            f"{path} has no body file for gender {gender!r}; it has "
            f"{', '.join(str(entry.relative_to(path)) for entry in others)}. Choose another gender or add the file."
        )
    raise UserError(f"{path} holds no body file under a usual name. Expected {WHERE}")


_READ = (
    *("v_template", "shapedirs", "posedirs", "J_regressor", "weights", "kintree_table", "f"),
    "J_regressor_coco17",
    *("J_regressor_halpe26", "J_regressor_h36m17", "vertex_pick_names", "vertex_picks"),
)


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """The arrays that define a body, by the names SMPL's files use; other entries of the file are
    left alone.
    """
    if path.suffix == ".npz":
        arrays = read_npz(path, "Expected a body file; get it again.", _READ)
    elif path.suffix == ".pkl":
        content = unpickle.load(path)
        if not isinstance(content, dict):
            raise UserError(
                f"{path} is a pickle, but not of a body: expected a dictionary of arrays."
            )
        arrays = {name: _dense(content[name]) for name in _READ if name in content}
    else:
        raise UserError(f"{path} is not a body file: expected .pkl or .npz.")
    sizes = {
        "v_template": ("vertices", 3),
        "shapedirs": ("vertices", 3, "shapes"),
        "posedirs": ("vertices", 3, "poses"),
        "J_regressor": ("joints", "vertices"),
        "weights": ("vertices", "joints"),
        "kintree_table": (2, "joints"),
        "f": ("faces", 3),
    }
    check_arrays(
        arrays, {n: Array("f", size, finite=True) for n, size in sizes.items()}, path, "a body file"
    )
    joints, vertices = arrays["J_regressor"].shape
    faces = arrays["f"]
    if arrays["posedirs"].shape[2] != 9 * (joints - 1):
        raise UserError(
            f"{path}: posedirs has size {arrays['posedirs'].shape}, expected 9 for each of {joints - 1}."
        )
    if faces.size and not 0 <= int(faces.min()) <= int(faces.max()) < vertices:
        raise UserError(f"{path}: f names vertices that do not exist (there are {vertices}).")
    if not vertices or (np.abs(arrays["weights"].sum(1) - 1) > WEIGHTS_OFF).any():
        raise UserError(f"{path}: the weights of a vertex do not add up to 1; the file is damaged.")
    return arrays


def _dense(value: Any) -> np.ndarray:
    # A scipy.sparse matrix is known by its method, so that scipy.sparse, slow to import, is not
    # needed.
    if not hasattr(value, "toarray"):
        return np.asarray(value)
    if math.prod(value.shape) * 8 > most_bytes(MOST_ARRAY_BYTES):
        raise UserError(
            f"a sparse matrix of size {value.shape} is no part of a body: the file is damaged."
        )
    return value.toarray()


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
    """The body of a file in SMPL's layout."""
    vertices = len(arrays["v_template"])
    joints = len(arrays["J_regressor"])
    family = next((f for f in _FAMILIES if (f.vertices, f.joints) == (vertices, joints)), None)
    if family is None:
        families = "; ".join(f"{f.name} {f.vertices} and {f.joints}" for f in _FAMILIES)
        raise UserError(
            f"{path} has {vertices} vertices and {joints} joints, which is no known body ({families})."
        )
    model, picks = _through_smplx(arrays, family)

    carrier = _carriers(model.parents.tolist(), family, path)
    middle = (
        22 if joints == JOINT_COUNT else family.left_hand + 3 * FINGERS.index("middle")
    )  # the left hand's
    kept = [*range(22), middle, middle + (1 if joints == JOINT_COUNT else 15)]
    weights = torch.zeros(vertices, JOINT_COUNT).index_add_(
        1, torch.tensor(carrier), model.lbs_weights
    )
    moved = 9 * (
        JOINT_COUNT - 1 if joints == JOINT_COUNT else 21
    )  # correctives of resting joints are zero
    posedirs = model.posedirs[:moved].T.unflatten(0, (vertices, 3))
    keypoint_joints, keypoint_vertices = _halpe26(picks, vertices, family.name)
    return Body(
        name=family.name,
        v_template=model.v_template,
        shapedirs=model.shapedirs,
        posedirs=posedirs if posedirs.any() else None,
        J_regressor=model.J_regressor[kept],
        weights=weights,
        faces=model.faces_tensor,
        keypoint_joints=keypoint_joints,
        keypoint_vertices=keypoint_vertices,
        vertex_picks=picks,
        fingers=None if joints == JOINT_COUNT else _fingers(model, family, picks, weights),
    )


def _fingers(model: Any, family: _Family, picks: Mapping[str, int], weights: Tensor) -> Fingers:
    """The file's own: its hands are flat at rest, and its joints in this order."""
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


def _through_smplx(arrays: Mapping[str, np.ndarray], family: _Family) -> tuple[Any, dict[str, int]]:
    try:
        import smplx
        from smplx.vertex_ids import vertex_ids
    except ImportError as error:
        raise UserError(
            "SMPL files need the `smplx` package: pip install smplx (for non-commercial use). "
            "The embedded open body works without it."
        ) from error
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
    with contextlib.redirect_stdout(
        io.StringIO()
    ):  # it prints a warning about ten shape directions
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
    """For every joint of the file, which of the 24 moves what hangs on it."""
    body = JOINT_COUNT if family.joints == JOINT_COUNT else 22
    if tuple(parents[1:body]) != PARENTS[1:body]:
        raise UserError(
            f"{path}: kintree_table is not the joint tree of {family.name}; the file is damaged."
        )
    carriers = list(range(body))
    for joint in range(body, family.joints):
        if not 0 <= parents[joint] < joint:
            raise UserError(
                f"{path}: kintree_table puts joint {joint} before its parent; the file is damaged."
            )
        carriers.append(carriers[parents[joint]])
    return carriers


def _halpe26(picks: Mapping[str, int], vertices: int, family: str) -> tuple[Tensor, Tensor]:
    """The customary COCO points of SMPL bodies (limbs are the joints themselves, the face five
    vertices), and Halpe's nine more as `data/halpe26_on_smpl.json` has them. A mesh that is not
    SMPL's own has no such vertices."""
    joint_part = torch.zeros(26, JOINT_COUNT)
    vertex_part = torch.zeros(26, vertices)
    table = json.loads((files("fitting") / "data" / "halpe26_on_smpl.json").read_text())
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
