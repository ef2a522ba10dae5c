"""Calibration files: where cameras stand, read for the videos they belong to, and written.

Files of other programs are read by `calibration_formats`. The unit of a file's translations is
found from the people (`check`).
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations, islice
from pathlib import Path
from typing import Any

import numpy as np
from scipy.spatial.transform import Rotation

from fitting.camera import Camera
from fitting.camera.pinhole import COUNTS
from fitting.rig.calibration_formats import (
    EXPECTED,
    MOST_CAMERAS,
    find_value,
    read_entries,
)
from fitting.rig.camera_names import match_videos
from fitting.rig.rig import PlacedCamera, Rig
from pose2d.base.errors import UserError
from pose2d.base.files import atomic_file

MOST_ENTRIES = 256  # cameras of a file or a folder
MOST_NUMBERS = 64  # of one quantity of a camera
MOST_VALUE = 1e9  # of any number; millimetres, pixels and coefficients are smaller
MOST_FOCAL_PX = 1e6
MOST_SIDE_PX = 1e5
_ROTATION_TOLERANCE = 1e-3  # of an element of R R^T: what six printed digits leave
_ROUNDED_PX = 2.0  # of a side after scaling to even numbers of pixels
_CODEC_BLOCK_PX = 16
_TILTED_SENSOR = 14  # distortion coefficients, of which the last two tilt the sensor


def read_rig(
    path: Path,
    names: Sequence[str],
    sizes: Sequence[tuple[int, int]],
    camera_names: Sequence[str] = (),
) -> Rig:
    """Return the cameras of a calibration for videos of these names and sizes (width, height).

    camera_names: the calibration's name of each video's camera; without them, videos and cameras
    are matched by `match_videos`.
    """
    entries = list(islice(read_entries(path), MOST_ENTRIES))
    chosen, notes = match_videos([name for name, _ in entries], names, camera_names, path)
    if len(chosen) > MOST_CAMERAS:
        raise UserError(
            f"{len(chosen)} cameras were given: at most {MOST_CAMERAS} are used together.",
            file=path,
        )
    cameras = []
    for number, video, size in zip(chosen, names, sizes, strict=True):
        name, content = entries[number]
        camera, camera_notes = _read_camera(content, f"{path}: camera {name}", video, size)
        cameras.append(replace(camera, name=name))
        notes += camera_notes
    for a, b in combinations(cameras, 2):
        same_rotation = np.allclose(a.rotation, b.rotation, atol=1e-6)
        if same_rotation and np.allclose(a.translation_m, b.translation_m, atol=1e-6):
            raise UserError(
                f"{path}: cameras {a.name} and {b.name} stand at the same place: one was copied.",
                file=path,
            )
    return Rig(tuple(cameras), str(path), tuple(notes))


def write_rig(path: Path, rig: Rig) -> None:
    """Write the rig as Pose2Sim's toml."""
    lines = []
    keys = {"metadata"}
    for number, placed in enumerate(rig.cameras, 1):
        numbers = {
            "size": [float(side) for side in placed.camera.size],
            "matrix": placed.camera.intrinsics.tolist(),
            "distortions": list(placed.camera.distortion or (0.0,) * 4),
            "rotation": Rotation.from_matrix(placed.rotation).as_rotvec().tolist(),
            "translation": placed.translation_m.tolist(),
        }
        key = re.sub(r"[^A-Za-z0-9_-]", "_", placed.name)
        while not key or key in keys:  # sections need different names
            key = f"{key}_{number}"
        keys.add(key)
        lines += [f"[{key}]", f"name = {_toml_string(placed.name)}"]
        lines += [f"{quantity} = {value}" for quantity, value in numbers.items()]
        lines += ["fisheye = false", ""]
    lines += ["[metadata]", "adjusted = false", "error = 0.000", ""]
    with atomic_file(path) as temporary:
        temporary.write_text("\n".join(lines), encoding="utf-8")


def _toml_string(text: str) -> str:
    """Return text as a string of TOML, whose escapes are those of JSON."""
    encodable = text.encode("utf-8", "replace").decode("utf-8")
    return json.dumps(encodable, ensure_ascii=False).replace("\x7f", "\\u007f")


def _read_numbers(
    content: Mapping[str, Any],
    quantity: str,
    counts: Sequence[int],
    label: str,
    most: float = MOST_VALUE,
) -> np.ndarray:
    """Return as many numbers up to `most` as one of the counts says, or raise UserError."""
    value = find_value(content, quantity)
    if value is None:
        raise UserError(f"{label}: the {quantity} is missing. {EXPECTED}")
    numbers = _flatten(value)
    if numbers is None or len(numbers) not in counts:
        found = "something else" if numbers is None else f"{len(numbers)} numbers"
        expected = " or ".join(map(str, counts))
        raise UserError(
            f"{label}: the {quantity} must be {expected} numbers; found {found}. {EXPECTED}"
        )
    if not all(abs(number) <= most for number in numbers):
        raise UserError(f"{label}: the {quantity} has a number beyond +-{most:g}. {EXPECTED}")
    return np.array(numbers, np.float64)


def _flatten(value: Any) -> list[float] | None:
    """Return the numbers of nested lists; None: it has too many, or something else in it."""
    numbers: list[float] = []
    pending = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, np.ndarray | np.generic):
            if item.size > MOST_NUMBERS:
                return None
            item = item.tolist()
        if isinstance(item, list | tuple):
            if len(item) + len(pending) > MOST_NUMBERS:
                return None
            pending += reversed(item)
        elif isinstance(item, int | float) and not isinstance(item, bool):
            if len(numbers) == MOST_NUMBERS:
                return None
            is_huge = isinstance(item, int) and abs(item) > MOST_VALUE
            numbers.append(math.inf if is_huge else float(item))
        else:
            return None
    return numbers


def _read_camera(
    content: Mapping[str, Any], label: str, video: str, size: tuple[int, int]
) -> tuple[PlacedCamera, list[str]]:
    """Return one camera for a video of this size, and notes on what was changed."""
    if content.get("fisheye") is True:
        raise UserError(
            f"{label} is a fisheye lens, which is not modelled: undistort the videos first."
        )
    matrix = _read_matrix(content, label)
    rotation = _read_rotation(content, label)
    translation = _read_numbers(content, "translation", (3,), label)
    distortion = np.zeros(0)
    if find_value(content, "distortion") is not None:
        distortion = _read_numbers(content, "distortion", (*COUNTS, _TILTED_SENSOR), label)
    if len(distortion) == _TILTED_SENSOR and not distortion[12:].any():
        distortion = distortion[:12]
    notes = []
    calibrated_size = _read_size(content, label, size)
    if calibrated_size is not None and calibrated_size != size:
        matrix, note = _adapt_matrix(matrix, calibrated_size, size, label, video)
        notes.append(note)
    if abs(matrix[0, 1]) < 1e-3 * matrix[0, 0]:
        matrix[0, 1] = 0.0
    if not (0 < matrix[0, 2] < size[0] and 0 < matrix[1, 2] < size[1]):
        raise UserError(
            f"{label}: the principal point ({matrix[0, 2]:.0f}, {matrix[1, 2]:.0f}) lies outside of "
            f"{video}, which has {size[0]}x{size[1]}: the calibration is of another resolution."
        )
    camera = Camera.from_intrinsics(matrix, size, distortion)
    return PlacedCamera(video, camera, rotation, translation), notes


def _read_matrix(content: Mapping[str, Any], label: str) -> np.ndarray:
    """Return the intrinsic matrix [3, 3] with focal lengths that a lens can have."""
    matrix = _read_numbers(content, "matrix", (9,), label, MOST_FOCAL_PX).reshape(3, 3)
    if not (matrix[0, 0] >= 1 and matrix[1, 1] >= 1):
        raise UserError(
            f"{label}: the matrix has focal lengths {matrix[0, 0]:g} and {matrix[1, 1]:g}; "
            f"expected 1 to {MOST_FOCAL_PX:g} px. {EXPECTED}"
        )
    if not np.allclose(matrix[2], (0, 0, 1), atol=1e-6):
        raise UserError(f"{label}: the last row of the matrix must be 0 0 1. {EXPECTED}")
    return matrix


def _read_rotation(content: Mapping[str, Any], label: str) -> np.ndarray:
    """Return the rotation [3, 3] that a matrix or a Rodrigues vector states."""
    numbers = _read_numbers(content, "rotation", (3, 9), label)
    if len(numbers) == 3:
        rotation = Rotation.from_rotvec(numbers).as_matrix()
    else:
        rotation = numbers.reshape(3, 3)
    deviation = np.abs(rotation @ rotation.T - np.eye(3)).max()
    if not deviation <= _ROTATION_TOLERANCE or np.linalg.det(rotation) < 0:
        raise UserError(
            f"{label}: the rotation is no rotation (its rows are not at right angles, or it mirrors)."
        )
    return Rotation.from_matrix(rotation).as_matrix()


def _adapt_matrix(
    matrix: np.ndarray,
    calibrated_size: tuple[int, int],
    size: tuple[int, int],
    label: str,
    video: str,
) -> tuple[np.ndarray, str]:
    """Return the intrinsic matrix for a video of another size, and a note on what was done.

    The same shape is scaled. A side that lacks a few pixels of a multiple of 16 was padded by a
    codec and cut off again at its end, so that pixels stay where they are. Anything else shows
    another part of the sensor and raises UserError.
    """
    calibrated = f"{calibrated_size[0]}x{calibrated_size[1]}"
    recorded = f"{size[0]}x{size[1]}"
    sizes = f"{label} was calibrated for {calibrated} and {video} has {recorded}"
    if calibrated_size == size[::-1]:
        raise UserError(
            f"{sizes}: the video is turned by 90 degrees. Turn it back, or calibrate as you record."
        )
    x_ratio = size[0] / calibrated_size[0]
    y_ratio = size[1] / calibrated_size[1]
    off_px = abs(size[1] - x_ratio * calibrated_size[1])
    if off_px <= _ROUNDED_PX:
        note = f"{video}: the calibration is for {calibrated}, its lens is scaled to {recorded}"
        return np.diag([x_ratio, y_ratio, 1]) @ matrix, note
    if all(map(_is_padded, calibrated_size, size)):
        note = (
            f"{video}: the calibration is for {calibrated} with a codec's padding, of which "
            f"{recorded} are left; its lens is used as it is"
        )
        return matrix, note
    raise UserError(
        f"{sizes}: another part of the sensor. Calibrate in the mode that you record in."
    )


def _is_padded(calibrated_px: int, recorded_px: int) -> bool:
    """Say whether a side is the same, or was filled up to a multiple of 16 by a codec."""
    return calibrated_px == -(-recorded_px // _CODEC_BLOCK_PX) * _CODEC_BLOCK_PX or (
        calibrated_px == recorded_px
    )


def _read_size(
    content: Mapping[str, Any], label: str, size: tuple[int, int]
) -> tuple[int, int] | None:
    """Return the width and height that the file states; None: it states none."""
    if "image_width" in content and "image_height" in content:
        content = {"size": [content["image_width"], content["image_height"]]}
    if find_value(content, "size") is None:
        return None
    first, second = map(round, _read_numbers(content, "size", (2,), label, MOST_SIDE_PX).tolist())
    if first < 1 or second < 1:
        raise UserError(f"{label}: the size {first}x{second} must be at least 1x1. {EXPECTED}")
    if "imageSize" in content and (second, first) == size:  # OpenCap's is height, width
        return second, first
    return first, second
