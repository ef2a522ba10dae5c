"""Find a body file and read its arrays. Pickles are read safely and never executed."""

import math
import re
from pathlib import Path
from typing import Any

import numpy as np

from pose2d.base import unpickle
from pose2d.base.arrays import Array, check_arrays, read_npz
from pose2d.base.errors import UserError
from pose2d.base.limits import MOST_ARRAY_BYTES, most_bytes

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
    """Return `path` if it is a file, else the file for that gender in the folder: SMPL before
    SMPL-H before SMPL-X.
    """
    if path.is_file():
        return path
    if not path.is_dir():
        raise UserError(f"there is no body file or folder {path}. Expected {WHERE}", file=path)
    entries = sorted(
        entry
        for depth in range(_DEEPEST + 1)
        for entry in path.glob("*/" * depth + "*")
        if entry.is_file()
    )

    def files_for(gender: str) -> list[Path]:
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

    if matching := files_for(gender):
        return matching[0]
    if existing := [entry for kind in ("neutral", "male", "female") for entry in files_for(kind)]:
        names = ", ".join(str(entry.relative_to(path)) for entry in existing)
        raise UserError(
            f"{path} has no body file for gender {gender!r}; it has {names}. "
            "Choose another gender or add the file.",
            file=path,
        )
    raise UserError(f"{path} holds no body file under a usual name. Expected {WHERE}", file=path)


_READ = (
    *("v_template", "shapedirs", "posedirs", "J_regressor", "weights", "kintree_table", "f"),
    "J_regressor_coco17",
    *("J_regressor_halpe26", "J_regressor_h36m17", "vertex_pick_names", "vertex_picks"),
)


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """Read the arrays that define a body, under the names of SMPL's files; other entries are
    ignored.
    """
    if path.suffix == ".npz":
        arrays = read_npz(path, "Expected a body file; get it again.", _READ)
    elif path.suffix == ".pkl":
        content = unpickle.load(path)
        if not isinstance(content, dict):
            raise UserError(
                f"{path} is a pickle, but not of a body: expected a dictionary of arrays.",
                file=path,
            )
        arrays = {name: _dense(content[name]) for name in _READ if name in content}
    else:
        raise UserError(f"{path} is not a body file: expected .pkl or .npz.", file=path)
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
            f"{path}: posedirs has size {arrays['posedirs'].shape}; "
            f"expected 9 numbers for each of {joints - 1} joints, {9 * (joints - 1)} in all.",
            file=path,
        )
    if faces.size and not 0 <= int(faces.min()) <= int(faces.max()) < vertices:
        raise UserError(
            f"{path}: f names vertices that do not exist (there are {vertices}).", file=path
        )
    if not vertices or (np.abs(arrays["weights"].sum(1) - 1) > WEIGHTS_OFF).any():
        raise UserError(
            f"{path}: the weights of a vertex do not add up to 1; the file is damaged.", file=path
        )
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
