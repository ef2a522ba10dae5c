"""The calibration files of other programs, read into the numbers of each camera by name.

    Pose2Sim's toml          a section a camera: size, matrix, distortions, rotation (Rodrigues),
                             translation in metres
    json, OpenCV's yaml      the same numbers under the usual names, a file a camera or one for all;
                             M1 D1 M2 D2 R T of OpenCV's stereo samples, whose world is the first
                             camera
    OpenCap's pickles        intrinsicMat, distortion, rotation, translation in millimetres; a
                             folder of them

A folder is read file by file.
"""

import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pose2d.base.errors import UserError
from pose2d.base.files import open_regular
from pose2d.base.json_files import read_json
from pose2d.base.unpickle import load as load_pickle

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

MOST_CAMERAS = 16
MOST_BYTES = 1 << 22  # of a calibration file
EXPECTED = (
    "Expected for every camera a matrix (3x3, pixels), a rotation (3x3, or 3 numbers of Rodrigues) "
    "and a translation (3), from the world to the camera: Pose2Sim's toml, json, OpenCV's yaml, or "
    "a folder of them or of OpenCap's pickles."
)
# Names that programs give to the same numbers.
SYNONYMS = {
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
_OPENCAP_FILE = "cameraIntrinsicsExtrinsics"  # in a folder named after the camera
_OPENCV_MATRIX = re.compile(
    r"^\s*(\w+)\s*:\s*!!opencv-matrix\s+rows:\s*\d+\s+cols:\s*\d+\s+dt:\s*\"?\w+\"?\s+data:\s*\[([^\]]*)\]",
    re.M,
)
_YAML_VALUE = re.compile(r"^(\w+)\s*:\s*(\[[^\]]*\]|[-+0-9.eE]+)\s*$", re.M)
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")

Entry = tuple[str, Mapping[str, Any]]  # a camera's name and its numbers, by the file's own names


def read_entries(path: Path) -> Iterator[Entry]:
    """Yield every camera of a file, or of all files in a folder."""
    if path.is_dir():
        files = sorted(
            file
            for file in path.rglob("*")
            if file.suffix.lower() in _READERS and not file.is_symlink()
        )
        if not files:
            raise UserError(f"{path} holds no calibration. {EXPECTED}")
        for file in files[: 4 * MOST_CAMERAS]:
            for name, content in read_entries(file):
                yield (file.parent.name if name == _OPENCAP_FILE else name), content
        return
    if not path.is_file():
        raise UserError(f"there is no calibration {path}. {EXPECTED}")
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        suffixes = ", ".join(_READERS)
        raise UserError(f"{path} has no suffix that a calibration has ({suffixes}). {EXPECTED}")
    yield from _split_cameras(path, reader(path))


def find_value(content: Mapping[str, Any], quantity: str) -> Any:
    """Return the value of one of SYNONYMS in a camera's numbers; None: not stated."""
    return next((content[name] for name in SYNONYMS[quantity] if name in content), None)


def _split_cameras(path: Path, content: Mapping[str, Any]) -> Iterator[Entry]:
    """Yield the cameras of one file's content."""
    if {"M1", "M2", "R", "T"} <= content.keys():  # OpenCV's stereo samples
        yield from _split_stereo(content)
        return
    if find_value(content, "matrix") is not None:
        yield path.stem, content
        return
    cameras = content.get("cameras", content)
    pairs: list[tuple[Any, Any]] = []
    if isinstance(cameras, list):
        pairs = list(enumerate(cameras))
    elif isinstance(cameras, Mapping):
        pairs = list(cameras.items())
    entries = [
        (str(camera.get("name", key)), camera)
        for key, camera in pairs
        if isinstance(camera, Mapping) and key != "metadata"
    ]
    if not entries:
        raise UserError(f"{path} has no cameras. {EXPECTED}")
    yield from entries


def _split_stereo(content: Mapping[str, Any]) -> Iterator[Entry]:
    """Yield both cameras of OpenCV's stereo calibration; the world is the first camera."""
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


def _read_toml(path: Path) -> Mapping[str, Any]:
    try:
        return tomllib.loads(_read_text(path))
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{path} is no toml: {error}. {EXPECTED}") from error


def _read_json(path: Path) -> Mapping[str, Any]:
    value = read_json(path, EXPECTED).value
    return value if isinstance(value, Mapping) else {"cameras": value}


def _read_yaml(path: Path) -> Mapping[str, Any]:
    """Return matrices, lists and numbers of OpenCV's yaml by name."""
    text = _read_text(path)
    pairs = [*_YAML_VALUE.findall(text), *_OPENCV_MATRIX.findall(text)]
    return {name: [float(number) for number in _NUMBER.findall(values)] for name, values in pairs}


def _read_pickle(path: Path) -> Mapping[str, Any]:
    content = load_pickle(path)
    if not isinstance(content, Mapping):
        raise UserError(f"{path} is no calibration of OpenCap. {EXPECTED}")
    return content


_READERS: Mapping[str, Callable[[Path], Mapping[str, Any]]] = {
    ".toml": _read_toml,
    ".json": _read_json,
    ".yaml": _read_yaml,
    ".yml": _read_yaml,
    ".pickle": _read_pickle,
    ".pkl": _read_pickle,
}


def _read_text(path: Path) -> str:
    with open_regular(path) as stream:
        content = stream.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise UserError(f"{path} is larger than any calibration. {EXPECTED}")
    return content.decode("utf-8", errors="replace")
