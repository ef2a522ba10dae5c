"""Read the arrays of a body file, safely, and see that they fit together."""

import io
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

from pose2d.base import unpickle
from pose2d.base.errors import UserError

_NEEDED = ("v_template", "shapedirs", "posedirs", "J_regressor", "weights", "kintree_table", "f")
_OPTIONAL = ("J_regressor_coco17", "J_regressor_h36m17", "vertex_pick_names", "vertex_picks")


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """The arrays that define a body, by the names SMPL's files use; other entries of the file are left alone."""
    if path.suffix == ".npz":
        arrays = _read_npz(path)
    elif path.suffix == ".pkl":
        content = unpickle.load(path)
        if not isinstance(content, dict):
            raise UserError(f"{path} is a pickle, but not of a body: expected a dictionary of arrays.")
        arrays = {name: _dense(content[name]) for name in (*_NEEDED, *_OPTIONAL) if name in content}
    else:
        raise UserError(f"{path} is not a body file: expected .pkl or .npz.")
    missing = [name for name in _NEEDED if name not in arrays]
    if missing:
        raise UserError(f"{path} is not a body file: it has no {', '.join(missing)}.")

    vertices, joints = len(arrays["v_template"]), len(arrays["J_regressor"])
    checked(
        arrays,
        path,
        {
            "v_template": (vertices, 3),
            "shapedirs": (vertices, 3, None),
            "posedirs": (vertices, 3, 9 * (joints - 1)),
            "J_regressor": (joints, vertices),
            "weights": (vertices, joints),
            "kintree_table": (2, joints),
            "f": (None, 3),
        },
    )
    faces = arrays["f"]
    if faces.size and not 0 <= int(faces.min()) <= int(faces.max()) < vertices:
        raise UserError(f"{path}: f names vertices that do not exist (there are {vertices}).")
    return arrays


def checked(arrays: Mapping[str, np.ndarray], path: Path, sizes: Mapping[str, tuple[int | None, ...]]) -> None:
    """Refuse arrays that are not of these sizes (None: any) or hold something other than finite numbers."""
    for name, size in sizes.items():
        array = arrays[name]
        if array.dtype.kind not in "fiu" or not np.isfinite(array).all():
            raise UserError(f"{path}: {name} holds something other than finite numbers; the file is damaged.")
        fits = array.ndim == len(size) and all(b in (None, a) for a, b in zip(array.shape, size, strict=True))
        if not fits:
            wanted = " x ".join("any" if side is None else str(side) for side in size)
            raise UserError(f"{path}: {name} has size {array.shape}, expected {wanted}; the file is damaged.")


def _read_npz(path: Path) -> dict[str, np.ndarray]:
    try:
        with zipfile.ZipFile(path) as archive:
            present = set(archive.namelist())
            return {
                name: _entry(io.BytesIO(archive.read(f"{name}.npy")))
                for name in (*_NEEDED, *_OPTIONAL)
                if f"{name}.npy" in present
            }
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
    if header(content)[2].hasobject:
        return _dense(unpickle.load_stream(content))
    content.seek(0)
    return np.lib.format.read_array(content, allow_pickle=False)


def _dense(value: Any) -> np.ndarray:
    if isinstance(value, np.ndarray) and value.dtype.hasobject and value.ndim == 0:
        value = value.item()
    return value.toarray() if scipy.sparse.issparse(value) else np.asarray(value)
