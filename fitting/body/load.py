"""From files to bodies: the embedded one, or SMPL, SMPL-H and SMPL-X. Pickles are read safely and never executed."""

import io
import math
import re
import zipfile
from collections.abc import Mapping
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fitting.body.body import Body
from fitting.body.kinematics import JOINT_COUNT, OPEN_KEYPOINTS_MM, Fingers
from pose2d.base import unpickle
from pose2d.base.errors import UserError
from pose2d.base.files import MOST_ARRAY_BYTES, MOST_GROWTH, Array, check_arrays, most_bytes, size_text
from pose2d.base.threads import single_thread

OPEN_BODY = Path(str(files("fitting") / "data" / "open_body.npz"))
OPEN_HANDS = OPEN_BODY.with_name("open_hands.npz")  # by the same tool; of the body in open_body.npz alone


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
    try:
        if "J_regressor_coco17" in arrays:
            return _open_body(arrays, path)
        from fitting.body.smpl_files import smpl_body

        return smpl_body(arrays, path)
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        reason = (str(error).splitlines() or [""])[0][:200]
        raise UserError(f"{path} is not a body file, or it is damaged ({type(error).__name__}: {reason}).") from error


def _open_body(arrays: Mapping[str, np.ndarray], path: Path) -> Body:
    """A body whose file defines its own keypoints, as `tools/build_open_body.py` writes it."""

    def real(name: str) -> Tensor:
        return torch.as_tensor(arrays[name], dtype=torch.float32)

    vertices = len(arrays["v_template"])
    sizes = {"J_regressor_halpe26": (26, vertices), "J_regressor_h36m17": (17, vertices), "kintree_table": (2, 24)}
    check_arrays(arrays, {n: Array("f", size, finite=True) for n, size in sizes.items()}, path, "a body file")
    picks = zip(arrays["vertex_pick_names"], arrays["vertex_picks"], strict=True)
    return Body(
        name="open", v_template=real("v_template"), shapedirs=real("shapedirs"),
        posedirs=real("posedirs") if arrays["posedirs"].any() else None, J_regressor=real("J_regressor"),
        weights=real("weights"), faces=torch.as_tensor(arrays["f"].astype(np.int64)),
        keypoint_joints=torch.zeros(26, JOINT_COUNT), keypoint_vertices=real("J_regressor_halpe26"),
        h36m_regressor=real("J_regressor_h36m17"), vertex_picks={str(name): int(vertex) for name, vertex in picks},
        fingers=_open_fingers(real("v_template"), real("shapedirs"), real("weights")) if path == OPEN_BODY else None,
    )  # fmt: skip


def _open_fingers(v_template: Tensor, shapedirs: Tensor, weights: Tensor) -> Fingers:
    """The embedded fingers of the embedded body."""
    with np.load(OPEN_HANDS, allow_pickle=False) as file:
        hand = {name: torch.from_numpy(file[name]) for name in file.files if name != "joint_names"}
    at, rest = hand["vertices"].long(), v_template.clone()
    rest[at] = hand["v_template"]
    directions, shares = shapedirs.clone(), torch.cat((weights[:, :22], weights.new_zeros(len(weights), 30)), 1)
    directions[at], shares[at] = hand["shapedirs"], hand["weights"]
    offsets = torch.tensor(OPEN_KEYPOINTS_MM) / 1000
    offsets = torch.stack((offsets, offsets * torch.tensor([-1.0, 1, 1])))
    return Fingers(rest, directions, shares, hand["J"], hand["J_shapedirs"], hand["tips"].long(), offsets)


# Usual file names of SMPL, SMPL-H and SMPL-X, most usual first; {G} is the gender as that name writes it.
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
    """`path` itself if it is a file, else the file for that gender in it: SMPL before SMPL-H before SMPL-X."""
    if path.is_file():
        return path
    if not path.is_dir():
        raise UserError(f"there is no body file or folder {path}. Expected {WHERE}")
    found = sorted(entry for depth in range(_DEEPEST + 1) for entry in path.glob("*/" * depth + "*") if entry.is_file())

    def named(gender: str) -> list[Path]:
        short = gender if gender == "neutral" else gender[0]
        names = [name.replace("{G}", gender).replace("{g}", f"({short}|{gender})") for name in _NAMES]
        # The folder's own name counts too: its path may end in smplh/male.
        places = {entry: f"{path.resolve().name}/{entry.relative_to(path).as_posix()}" for entry in found}
        return [e for name in names for e in found if re.search(rf"(^|/){name}$", places[e], re.I)]

    if mine := named(gender):
        return mine[0]
    if others := [entry for other in ("neutral", "male", "female") for entry in named(other)]:
        raise UserError(
            f"{path} has no body file for gender {gender!r}; it has "
            f"{', '.join(str(entry.relative_to(path)) for entry in others)}. Choose another gender or add the file."
        )
    raise UserError(f"{path} holds no body file under a usual name. Expected {WHERE}")


_READ = (
    *("v_template", "shapedirs", "posedirs", "J_regressor", "weights", "kintree_table", "f"), "J_regressor_coco17",
    *("J_regressor_halpe26", "J_regressor_h36m17", "vertex_pick_names", "vertex_picks"),
)  # fmt: skip


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """The arrays that define a body, by the names SMPL's files use; other entries of the file are left alone."""
    if path.suffix == ".npz":
        arrays = _read_npz(path)
    elif path.suffix == ".pkl":
        content = unpickle.load(path)
        if not isinstance(content, dict):
            raise UserError(f"{path} is a pickle, but not of a body: expected a dictionary of arrays.")
        arrays = {name: _dense(content[name]) for name in _READ if name in content}
    else:
        raise UserError(f"{path} is not a body file: expected .pkl or .npz.")
    sizes = {
        "v_template": ("vertices", 3), "shapedirs": ("vertices", 3, "shapes"), "posedirs": ("vertices", 3, "poses"),
        "J_regressor": ("joints", "vertices"), "weights": ("vertices", "joints"), "kintree_table": (2, "joints"),
        "f": ("faces", 3),
    }  # fmt: skip
    check_arrays(arrays, {n: Array("f", size, finite=True) for n, size in sizes.items()}, path, "a body file")
    (joints, vertices), faces = arrays["J_regressor"].shape, arrays["f"]
    if arrays["posedirs"].shape[2] != 9 * (joints - 1):
        raise UserError(f"{path}: posedirs has size {arrays['posedirs'].shape}, expected 9 for each of {joints - 1}.")
    if faces.size and not 0 <= int(faces.min()) <= int(faces.max()) < vertices:
        raise UserError(f"{path}: f names vertices that do not exist (there are {vertices}).")
    if not vertices or (np.abs(arrays["weights"].sum(1) - 1) > WEIGHTS_OFF).any():
        raise UserError(f"{path}: the weights of a vertex do not add up to 1; the file is damaged.")
    return arrays


def _read_npz(path: Path) -> dict[str, np.ndarray]:
    cap = most_bytes(MOST_ARRAY_BYTES)
    try:
        with zipfile.ZipFile(path) as archive:
            members = {member.filename: member for member in archive.infolist()}
            wanted = {n: members[f"{n}.npy"] for n in _READ if f"{n}.npy" in members}
            total = sum(member.file_size for member in wanted.values())
            if total > cap or total > MOST_GROWTH * path.stat().st_size:
                raise UserError(
                    f"{path} claims {size_text(total)} of arrays, more than it can hold or than may be read "
                    f"({size_text(cap)}). Get it again."
                )
            return {name: _entry(io.BytesIO(archive.read(member))) for name, member in wanted.items()}
    except UserError:
        raise
    except unpickle.Refused as refusal:
        raise UserError(f"{path} was refused: {refusal}. Get the file again from its official site.") from refusal
    except Exception as error:  # what damaged bytes raise is as varied as the bytes
        raise UserError(
            f"{path} is not a readable .npz: damaged, cut short, or another kind of file. Get it again."
        ) from error


def _entry(content: io.BytesIO) -> np.ndarray:
    """One array; one stored as Python objects (a sparse matrix, say) goes through our own unpickler."""
    version = np.lib.format.read_magic(content)
    header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = header(content)
    if dtype.hasobject:
        return _dense(unpickle.load_stream(content))
    if math.prod(shape) * dtype.itemsize > len(content.getbuffer()):
        raise ValueError("an array claims more than there is")
    content.seek(0)
    return np.lib.format.read_array(content, allow_pickle=False)


def _dense(value: Any) -> np.ndarray:
    if isinstance(value, np.ndarray) and value.dtype.hasobject and value.ndim == 0:
        value = value.item()
    # A scipy.sparse matrix is known by its method, so that scipy.sparse, slow to import, is not needed.
    if not hasattr(value, "toarray"):
        return np.asarray(value)
    if math.prod(value.shape) * 8 > most_bytes(MOST_ARRAY_BYTES):
        raise UserError(f"a sparse matrix of size {value.shape} is no part of a body: the file is damaged.")
    return value.toarray()
