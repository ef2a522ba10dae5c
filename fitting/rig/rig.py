"""Cameras that are placed in one world, and the calibration files that say where they stand.

A camera is placed by x_camera = rotation x_world + translation, OpenCV's convention, in metres.
Read are

    Pose2Sim's toml          a section a camera: size, matrix, distortions, rotation (Rodrigues), translation in metres
    json, OpenCV's yaml      the same numbers under the names that people use (_NAMES), a file a camera or one for all;
                             M1 D1 M2 D2 R T of OpenCV's stereo samples, whose world is the first camera
    OpenCap's pickles        intrinsicMat, distortion, rotation, translation in millimetres; a folder of them

A folder is read file by file. What unit a file's translations have, people tell
(`fitting.rig.meeting`).
"""

import math
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from scipy.spatial.transform import Rotation

from fitting.camera import COUNTS, Camera
from pose2d.base.errors import UserError
from pose2d.base.files import atomic_file, open_regular
from pose2d.base.json_files import read_json
from pose2d.base.unpickle import load as load_pickle

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

MOST_CAMERAS = 16
MOST_BYTES = 1 << 22  # of a calibration file
_NAMES = {
    "matrix": (
        "matrix",
        "camera_matrix",
        "intrinsicMat",
        "intrinsic",
        "intrinsics",
        "K",
        "M",
        "mtx",
    ),
    "distortion": (
        "distortions",
        "distortion",
        "dist_coeffs",
        "distortion_coefficients",
        "dist",
        "D",
    ),
    "rotation": ("rotation", "R", "rvec", "rotation_matrix"),
    "translation": ("translation", "T", "tvec", "t"),
    "size": ("size", "image_size", "imageSize", "resolution"),
}
_EXPECTED = (
    "Expected for every camera a matrix (3x3, pixels), a rotation (3x3, or 3 numbers of Rodrigues) and a translation "
    "(3), from the world to the camera: Pose2Sim's toml, json, OpenCV's yaml, or a folder of them or of OpenCap's "
    "pickles."
)
_OPENCV_MATRIX = re.compile(
    r"^\s*(\w+)\s*:\s*!!opencv-matrix\s+rows:\s*\d+\s+cols:\s*\d+\s+dt:\s*\"?\w+\"?\s+data:\s*\[([^\]]*)\]",
    re.M,
)
_YAML_VALUE = re.compile(r"^(\w+)\s*:\s*(\[[^\]]*\]|[-+0-9.eE]+)\s*$", re.M)
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
_ROTATION_TOLERANCE = 1e-3  # of an element of R R^T: what six printed digits leave
_SAME_ASPECT = 0.01  # log of the ratio of both sides' ratios: another resolution of the same sensor


@dataclass(frozen=True)
class PlacedCamera:
    """x_camera = rotation x_world + translation."""

    name: str
    camera: Camera
    rotation: np.ndarray  # [3, 3]
    translation_m: np.ndarray  # [3]

    @property
    def position_m(self) -> np.ndarray:
        """[3] of the camera in the world."""
        return -self.rotation.T @ self.translation_m

    @property
    def inverted(self) -> "PlacedCamera":
        """As it stands if the file means the way from the camera to the world."""
        return replace(self, rotation=self.rotation.T, translation_m=self.position_m)


@dataclass(frozen=True)
class Rig:
    """Cameras in one world, in the order of their videos."""

    cameras: tuple[PlacedCamera, ...]
    source: str  # a file, or "people"
    notes: tuple[str, ...] = ()  # what was decided while it was read

    def __len__(self) -> int:
        return len(self.cameras)

    def relative(self, number: int, to: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """Rotation [3, 3] and offset [3] from camera `to` to camera `number`: x = rotation x_to +
        offset.
        """
        one = self.cameras[number]
        base = self.cameras[to]
        rotation = one.rotation @ base.rotation.T
        return rotation, one.translation_m - rotation @ base.translation_m

    def scaled(self, factor: float) -> "Rig":
        """With all translations so many times as long."""
        return replace(
            self,
            cameras=tuple(replace(c, translation_m=factor * c.translation_m) for c in self.cameras),
        )

    def upright(self, up_cam: np.ndarray, height_m: float) -> "Rig":
        """In a world with z up and its floor at 0 under the first camera. up_cam: in the first
        camera's frame.
        """
        base = self.cameras[0]
        ahead = np.array([0.0, 0.0, 1.0]) - up_cam[2] * up_cam
        ahead /= np.linalg.norm(ahead)
        world = (
            np.stack((np.cross(ahead, up_cam), ahead, up_cam)) @ base.rotation
        )  # from the world that it was
        shift = np.array([0.0, 0.0, height_m]) - world @ base.position_m
        cameras = []
        for one in self.cameras:
            rotation = one.rotation @ world.T
            cameras.append(
                replace(one, rotation=rotation, translation_m=one.translation_m - rotation @ shift)
            )
        return replace(self, cameras=tuple(cameras))

    @property
    def angles_deg(self) -> list[float]:
        """Between the optical axes of every two cameras."""
        axes = [camera.rotation[2] for camera in self.cameras]
        return [math.degrees(math.acos(np.clip(a @ b, -1, 1))) for a, b in combinations(axes, 2)]


def read_rig(path: Path, names: Sequence[str], sizes: Sequence[tuple[int, int]]) -> Rig:
    """The cameras of a calibration for videos of these names and sizes (width, height): by name
    where all names fit, else in the order of the file."""
    entries = list(_entries(path))
    if len(entries) > MOST_CAMERAS:
        raise UserError(
            f"{path} has {len(entries)} cameras: at most {MOST_CAMERAS} are used together."
        )
    chosen, notes = _in_order(entries, names, path)
    cameras = []
    for (name, content), video, size in zip(chosen, names, sizes, strict=True):
        camera, note = _camera(content, f"{path}: camera {name}", video, size)
        cameras.append(replace(camera, name=name))
        notes += note
    for a, b in combinations(cameras, 2):
        if np.allclose(a.rotation, b.rotation, atol=1e-6) and np.allclose(
            a.translation_m, b.translation_m, atol=1e-6
        ):
            raise UserError(
                f"{path}: cameras {a.name} and {b.name} stand at the same place: one was copied."
            )
    return Rig(tuple(cameras), str(path), tuple(notes))


def write_rig(path: Path, rig: Rig) -> None:
    """As Pose2Sim's toml."""
    lines = []
    for one in rig.cameras:
        numbers = {
            "size": [float(side) for side in one.camera.size],
            "matrix": one.camera.intrinsics.tolist(),
            "distortions": list(one.camera.distortion or (0.0,) * 4),
            "rotation": Rotation.from_matrix(one.rotation).as_rotvec().tolist(),
            "translation": one.translation_m.tolist(),
        }
        key = re.sub(r"[^A-Za-z0-9_-]", "_", one.name)
        name = one.name.replace("\\", "_").replace('"', "_")
        lines += [
            f"[{key}]",
            f'name = "{name}"',
            *(f"{name} = {value}" for name, value in numbers.items()),
        ]
        lines += ["fisheye = false", ""]
    lines += ["[metadata]", "adjusted = false", "error = 0.000", ""]
    with atomic_file(path) as temporary:
        temporary.write_text("\n".join(lines))


def _entries(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Every camera of a file or of a folder's files, by its name."""
    if path.is_dir():
        files = sorted(
            p for p in path.rglob("*") if p.suffix.lower() in _READERS and not p.is_symlink()
        )
        if not files:
            raise UserError(f"{path} holds no calibration. {_EXPECTED}")
        for file in files[: 4 * MOST_CAMERAS]:
            for name, content in _entries(file):
                # OpenCap: Cam0/cameraIntrinsicsExtrinsics.pickle
                yield (file.parent.name if name == "cameraIntrinsicsExtrinsics" else name), content
        return
    if not path.is_file():
        raise UserError(f"there is no calibration {path}. {_EXPECTED}")
    if path.suffix.lower() not in _READERS:
        raise UserError(
            f"{path} has no suffix that a calibration has ({', '.join(_READERS)}). {_EXPECTED}"
        )
    content = _READERS[path.suffix.lower()](path)
    if {"M1", "M2", "R", "T"} <= content.keys():  # OpenCV's stereo samples
        yield (
            "1",
            {
                "matrix": content["M1"],
                "distortion": content.get("D1", ()),
                "rotation": (0, 0, 0),
                "translation": (0, 0, 0),
            },
        )
        yield (
            "2",
            {
                "matrix": content["M2"],
                "distortion": content.get("D2", ()),
                "rotation": content["R"],
                "translation": content["T"],
            },
        )
        return
    if _given(content, "matrix") is not None:
        yield path.stem, content
        return
    inner = content.get("cameras", content)
    pairs = (
        enumerate(inner)
        if isinstance(inner, list)
        else inner.items()
        if isinstance(inner, Mapping)
        else ()
    )
    found = [
        (str(c.get("name", key)), c)
        for key, c in pairs
        if isinstance(c, Mapping) and key != "metadata"
    ]
    if not found:
        raise UserError(f"{path} has no cameras. {_EXPECTED}")
    yield from found


def _read_toml(path: Path) -> Mapping[str, Any]:
    try:
        return tomllib.loads(_text(path))
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{path} is no toml: {error}. {_EXPECTED}") from error


def _read_json(path: Path) -> Mapping[str, Any]:
    value = read_json(path, _EXPECTED).value
    return value if isinstance(value, Mapping) else {"cameras": value}


def _read_yaml(path: Path) -> Mapping[str, Any]:
    """OpenCV's: matrices, lists and numbers by name."""
    text = _text(path)
    pairs = [*_YAML_VALUE.findall(text), *_OPENCV_MATRIX.findall(text)]
    return {name: [float(number) for number in _NUMBER.findall(values)] for name, values in pairs}


def _read_pickle(path: Path) -> Mapping[str, Any]:
    content = load_pickle(path)
    if not isinstance(content, Mapping):
        raise UserError(f"{path} is no calibration of OpenCap. {_EXPECTED}")
    return content


_READERS = {
    ".toml": _read_toml,
    ".json": _read_json,
    ".yaml": _read_yaml,
    ".yml": _read_yaml,
    ".pickle": _read_pickle,
    ".pkl": _read_pickle,
}


def _text(path: Path) -> str:
    with open_regular(path) as stream:
        content = stream.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise UserError(f"{path} is larger than any calibration. {_EXPECTED}")
    return content.decode("utf-8", errors="replace")


def _in_order(
    entries: Sequence[tuple[str, Mapping[str, Any]]], names: Sequence[str], path: Path
) -> tuple[list[tuple[str, Mapping[str, Any]]], list[str]]:
    """The entries of videos of these names, and what to say of it."""
    by_name = {name.lower(): (name, content) for name, content in entries}
    exact = [by_name.get(name.lower()) for name in names]
    within = [[pair for key, pair in by_name.items() if key in name.lower()] for name in names]
    for found in (exact, [found[0] if len(found) == 1 else None for found in within]):
        pairs = [pair for pair in found if pair is not None]
        if len(pairs) == len(names) == len({name for name, _ in pairs}):
            return pairs, []
    stated = ", ".join(name for name, _ in entries)
    if len(entries) != len(names):
        raise UserError(
            f"{path} has {len(entries)} cameras ({stated}) for {len(names)} videos ({', '.join(names)}): give as many, "
            "or name the videos as the cameras."
        )
    pairs_text = ", ".join(
        f"{video} is {name}" for video, (name, _) in zip(names, entries, strict=True)
    )
    return list(entries), [f"cameras in the order of the file: {pairs_text}"]


def _given(content: Mapping[str, Any], what: str) -> Any:
    return next((content[name] for name in _NAMES[what] if name in content), None)


def _numbers(
    content: Mapping[str, Any], what: str, counts: Sequence[int], where: str
) -> np.ndarray:
    value = _given(content, what)
    try:
        found = np.asarray(value, np.float64).ravel()
    except (TypeError, ValueError):
        found = np.full(1, np.nan)
    if value is None or len(found) not in counts or not np.isfinite(found).all():
        state = (
            "is missing"
            if value is None
            else f"is not {' or '.join(map(str, counts))} finite numbers"
        )
        raise UserError(f"{where}: the {what} {state}. {_EXPECTED}")
    return found


def _camera(
    content: Mapping[str, Any], where: str, video: str, size: tuple[int, int]
) -> tuple[PlacedCamera, list[str]]:
    """One camera, for a video of this size."""
    if content.get("fisheye") is True:
        raise UserError(
            f"{where} is a fisheye lens, which is not modelled: undistort the videos first."
        )
    matrix = _numbers(content, "matrix", (9,), where).reshape(3, 3)
    turn = _numbers(content, "rotation", (3, 9), where)
    rotation = Rotation.from_rotvec(turn).as_matrix() if len(turn) == 3 else turn.reshape(3, 3)
    if (
        np.abs(rotation @ rotation.T - np.eye(3)).max() > _ROTATION_TOLERANCE
        or np.linalg.det(rotation) < 0
    ):
        raise UserError(
            f"{where}: the rotation is no rotation (its rows are not at right angles, or it mirrors)."
        )
    rotation = Rotation.from_matrix(rotation).as_matrix()
    translation = _numbers(content, "translation", (3,), where)
    stated = _given(content, "distortion") is not None
    lens = _numbers(content, "distortion", (*COUNTS, 14), where) if stated else np.zeros(0)
    lens = (
        lens[:12] if len(lens) == 14 and not lens[12:].any() else lens
    )  # a sensor that is not tilted
    notes = []
    if (made_for := _stated_size(content, where, size)) is not None and made_for != size:
        ratio = (size[0] / made_for[0], size[1] / made_for[1])
        mode = f"{made_for[0]}x{made_for[1]}"
        if made_for == size[::-1]:
            raise UserError(
                f"{where} was calibrated for {mode} and {video} has {size[0]}x{size[1]}: the video "
                "is turned by 90 degrees. Turn it back, or calibrate as you record."
            )
        if abs(math.log(ratio[0] / ratio[1])) > _SAME_ASPECT:
            raise UserError(
                f"{where} was calibrated for {mode} and {video} has {size[0]}x{size[1]}: another "
                "part of the sensor. Calibrate in the mode that you record in."
            )
        matrix = np.diag([ratio[0], ratio[1], 1]) @ matrix
        notes.append(
            f"{video}: the calibration is for {mode}, its lens is scaled to {size[0]}x{size[1]}"
        )
    matrix[0, 1] = 0.0 if abs(matrix[0, 1]) < 1e-3 * matrix[0, 0] else matrix[0, 1]
    if not (0 < matrix[0, 2] < size[0] and 0 < matrix[1, 2] < size[1]):
        raise UserError(
            f"{where}: the principal point ({matrix[0, 2]:.0f}, {matrix[1, 2]:.0f}) lies outside of {video}, which has "
            f"{size[0]}x{size[1]}: the calibration is of another resolution."
        )
    return PlacedCamera(
        video, Camera.from_intrinsics(matrix, size, lens), rotation, translation
    ), notes


def _stated_size(
    content: Mapping[str, Any], where: str, size: tuple[int, int]
) -> tuple[int, int] | None:
    """Width and height that the file states, if it does."""
    if "image_width" in content and "image_height" in content:
        content = {
            "size": [np.ravel(content["image_width"])[0], np.ravel(content["image_height"])[0]]
        }
    if _given(content, "size") is None:
        return None
    width, height = (round(float(side)) for side in _numbers(content, "size", (2,), where))
    if "imageSize" in content and (height, width) == size:  # OpenCap's is height, width
        width, height = height, width
    return width, height
