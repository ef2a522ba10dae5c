"""Calibration files: where cameras stand, read for the videos they belong to, and written.

Files of other programs are read by `calibration_formats`. The unit of a file's translations is
found from the people (`check`).
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from scipy.spatial.transform import Rotation

from fitting.camera import Camera
from fitting.camera.pinhole import COUNTS
from fitting.rig.calibration_formats import (
    EXPECTED,
    MOST_CAMERAS,
    Entry,
    find_value,
    read_entries,
)
from fitting.rig.rig import PlacedCamera, Rig
from pose2d.base.errors import UserError
from pose2d.base.files import atomic_file

_ROTATION_TOLERANCE = 1e-3  # of an element of R R^T: what six printed digits leave
_SAME_ASPECT = 0.01  # difference of logarithms of aspect ratios: same sensor, other resolution
_TILTED_SENSOR = 14  # distortion coefficients, of which the last two tilt the sensor


def read_rig(path: Path, names: Sequence[str], sizes: Sequence[tuple[int, int]]) -> Rig:
    """Return the cameras of a calibration for videos of these names and sizes (width, height).

    They are matched by name where all names fit, else by the order of the file.
    """
    entries = list(read_entries(path))
    if len(entries) > MOST_CAMERAS:
        raise UserError(
            f"{path} has {len(entries)} cameras: at most {MOST_CAMERAS} are used together."
        )
    matched, notes = _match_videos(entries, names, path)
    cameras = []
    for (name, content), video, size in zip(matched, names, sizes, strict=True):
        camera, camera_notes = _read_camera(content, f"{path}: camera {name}", video, size)
        cameras.append(replace(camera, name=name))
        notes += camera_notes
    for a, b in combinations(cameras, 2):
        same_rotation = np.allclose(a.rotation, b.rotation, atol=1e-6)
        if same_rotation and np.allclose(a.translation_m, b.translation_m, atol=1e-6):
            raise UserError(
                f"{path}: cameras {a.name} and {b.name} stand at the same place: one was copied."
            )
    return Rig(tuple(cameras), str(path), tuple(notes))


def write_rig(path: Path, rig: Rig) -> None:
    """Write the rig as Pose2Sim's toml."""
    lines = []
    for placed in rig.cameras:
        numbers = {
            "size": [float(side) for side in placed.camera.size],
            "matrix": placed.camera.intrinsics.tolist(),
            "distortions": list(placed.camera.distortion or (0.0,) * 4),
            "rotation": Rotation.from_matrix(placed.rotation).as_rotvec().tolist(),
            "translation": placed.translation_m.tolist(),
        }
        key = re.sub(r"[^A-Za-z0-9_-]", "_", placed.name)
        name = placed.name.replace("\\", "_").replace('"', "_")
        lines += [f"[{key}]", f'name = "{name}"']
        lines += [f"{quantity} = {value}" for quantity, value in numbers.items()]
        lines += ["fisheye = false", ""]
    lines += ["[metadata]", "adjusted = false", "error = 0.000", ""]
    with atomic_file(path) as temporary:
        temporary.write_text("\n".join(lines))


def _match_videos(
    entries: Sequence[Entry], names: Sequence[str], path: Path
) -> tuple[list[Entry], list[str]]:
    """Return the entries of videos of these names, and notes on how they were matched."""
    by_name = {name.lower(): (name, content) for name, content in entries}
    exact = [by_name.get(name.lower()) for name in names]
    within = []
    for name in names:
        contained = [entry for key, entry in by_name.items() if key in name.lower()]
        within.append(contained[0] if len(contained) == 1 else None)
    for candidates in (exact, within):
        matched = [entry for entry in candidates if entry is not None]
        if len(matched) == len(names) == len({name for name, _ in matched}):
            return matched, []
    if len(entries) != len(names):
        camera_names = ", ".join(name for name, _ in entries)
        raise UserError(
            f"{path} has {len(entries)} cameras ({camera_names}) for {len(names)} videos "
            f"({', '.join(names)}): give as many, or name the videos as the cameras."
        )
    pairs = [f"{video} is {name}" for video, (name, _) in zip(names, entries, strict=True)]
    return list(entries), [f"cameras in the order of the file: {', '.join(pairs)}"]


def _read_numbers(
    content: Mapping[str, Any], quantity: str, counts: Sequence[int], label: str
) -> np.ndarray:
    """Return as many finite numbers as one of the counts says, or raise UserError."""
    value = find_value(content, quantity)
    if value is None:
        raise UserError(f"{label}: the {quantity} is missing. {EXPECTED}")
    try:
        numbers = np.asarray(value, np.float64).ravel()
    except (TypeError, ValueError):
        numbers = np.full(1, np.nan)
    if len(numbers) not in counts or not np.isfinite(numbers).all():
        expected = " or ".join(map(str, counts))
        raise UserError(f"{label}: the {quantity} is not {expected} finite numbers. {EXPECTED}")
    return numbers


def _read_camera(
    content: Mapping[str, Any], label: str, video: str, size: tuple[int, int]
) -> tuple[PlacedCamera, list[str]]:
    """Return one camera for a video of this size, and notes on what was changed."""
    if content.get("fisheye") is True:
        raise UserError(
            f"{label} is a fisheye lens, which is not modelled: undistort the videos first."
        )
    matrix = _read_numbers(content, "matrix", (9,), label).reshape(3, 3)
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
        matrix = _scale_matrix(matrix, calibrated_size, size, label, video)
        notes.append(
            f"{video}: the calibration is for {calibrated_size[0]}x{calibrated_size[1]}, its lens "
            f"is scaled to {size[0]}x{size[1]}"
        )
    if abs(matrix[0, 1]) < 1e-3 * matrix[0, 0]:
        matrix[0, 1] = 0.0
    if not (0 < matrix[0, 2] < size[0] and 0 < matrix[1, 2] < size[1]):
        raise UserError(
            f"{label}: the principal point ({matrix[0, 2]:.0f}, {matrix[1, 2]:.0f}) lies outside of "
            f"{video}, which has {size[0]}x{size[1]}: the calibration is of another resolution."
        )
    camera = Camera.from_intrinsics(matrix, size, distortion)
    return PlacedCamera(video, camera, rotation, translation), notes


def _read_rotation(content: Mapping[str, Any], label: str) -> np.ndarray:
    """Return the rotation [3, 3] that a matrix or a Rodrigues vector states."""
    numbers = _read_numbers(content, "rotation", (3, 9), label)
    if len(numbers) == 3:
        rotation = Rotation.from_rotvec(numbers).as_matrix()
    else:
        rotation = numbers.reshape(3, 3)
    deviation = np.abs(rotation @ rotation.T - np.eye(3)).max()
    if deviation > _ROTATION_TOLERANCE or np.linalg.det(rotation) < 0:
        raise UserError(
            f"{label}: the rotation is no rotation (its rows are not at right angles, or it mirrors)."
        )
    return Rotation.from_matrix(rotation).as_matrix()


def _scale_matrix(
    matrix: np.ndarray,
    calibrated_size: tuple[int, int],
    size: tuple[int, int],
    label: str,
    video: str,
) -> np.ndarray:
    """Return the intrinsic matrix at another resolution of the same sensor, or raise UserError."""
    sizes = (
        f"{label} was calibrated for {calibrated_size[0]}x{calibrated_size[1]} and {video} has "
        f"{size[0]}x{size[1]}"
    )
    if calibrated_size == size[::-1]:
        raise UserError(
            f"{sizes}: the video is turned by 90 degrees. Turn it back, or calibrate as you record."
        )
    x_ratio = size[0] / calibrated_size[0]
    y_ratio = size[1] / calibrated_size[1]
    if abs(math.log(x_ratio / y_ratio)) > _SAME_ASPECT:
        raise UserError(
            f"{sizes}: another part of the sensor. Calibrate in the mode that you record in."
        )
    return np.diag([x_ratio, y_ratio, 1]) @ matrix


def _read_size(
    content: Mapping[str, Any], label: str, size: tuple[int, int]
) -> tuple[int, int] | None:
    """Return the width and height that the file states; None: it states none."""
    if "image_width" in content and "image_height" in content:
        width = np.ravel(content["image_width"])[0]
        height = np.ravel(content["image_height"])[0]
        content = {"size": [width, height]}
    if find_value(content, "size") is None:
        return None
    first, second = (round(float(side)) for side in _read_numbers(content, "size", (2,), label))
    if "imageSize" in content and (second, first) == size:  # OpenCap's is height, width
        return second, first
    return first, second
