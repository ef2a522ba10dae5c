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

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from fitting.rig.opencv_yaml import parse_opencv_yaml
from pose2d.base.errors import UserError
from pose2d.base.files import open_regular
from pose2d.base.json_files import read_json
from pose2d.base.toml_files import parse_toml
from pose2d.base.unpickle import load as load_pickle

MOST_CAMERAS = 16
MOST_BYTES = 1 << 18  # of a calibration file; sixteen cameras take 16 kB
MOST_FILES = 4 * MOST_CAMERAS  # of a folder
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
            raise UserError(f"{path} holds no calibration. {EXPECTED}", file=path)
        for file in files[:MOST_FILES]:
            for name, content in read_entries(file):
                yield (file.parent.name if name == _OPENCAP_FILE else name), content
        return
    if not path.is_file():
        raise UserError(f"there is no calibration {path}. {EXPECTED}", file=path)
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        suffixes = ", ".join(_READERS)
        raise UserError(
            f"{path} has no suffix that a calibration has ({suffixes}). {EXPECTED}", file=path
        )
    yield from _split_cameras(path, reader(path))


def find_value(content: Mapping[str, Any], quantity: str) -> Any:
    """Return the value of one of SYNONYMS in a camera's numbers; None: not stated."""
    return next((content[name] for name in SYNONYMS[quantity] if name in content), None)


def _split_cameras(path: Path, content: Mapping[str, Any]) -> Iterator[Entry]:
    """Yield the cameras of one file's content."""
    # A camera may be called like a quantity: then the value is a section and no numbers.
    numbers = {name: value for name, value in content.items() if not isinstance(value, Mapping)}
    if {"M1", "M2", "R", "T"} <= numbers.keys():  # OpenCV's stereo samples
        yield from _split_stereo(content)
        return
    if find_value(numbers, "matrix") is not None:
        yield path.stem, content
        return
    cameras = content.get("cameras", content)
    if isinstance(cameras, Mapping) and find_value(cameras, "matrix") is not None:
        cameras = content  # one of them is called `cameras`
    pairs: list[tuple[Any, Any]] = []
    if isinstance(cameras, list):
        pairs = list(enumerate(cameras, 1))
    elif isinstance(cameras, Mapping):
        pairs = list(cameras.items())
    entries = [
        (_camera_name(key, camera), camera)
        for key, camera in pairs
        if isinstance(camera, Mapping) and not _is_metadata(key, camera)
    ]
    if not entries:
        raise UserError(f"{path} has no cameras. {EXPECTED}", file=path)
    yield from entries


def _camera_name(key: object, camera: Mapping[str, Any]) -> str:
    """Return the name that a camera states, or the name of its section."""
    name = camera.get("name")
    return name if isinstance(name, str) and name else str(key)


def _is_metadata(key: object, camera: Mapping[str, Any]) -> bool:
    """Say whether a section is about the file; a camera may also be called metadata."""
    return key == "metadata" and find_value(camera, "matrix") is None


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
    return parse_toml(_read_text(path), path, EXPECTED)


def _read_json(path: Path) -> Mapping[str, Any]:
    _read_text(path)  # refuses what is too large
    value = read_json(path, EXPECTED).value
    return value if isinstance(value, Mapping) else {"cameras": value}


def _read_yaml(path: Path) -> Mapping[str, Any]:
    try:
        return parse_opencv_yaml(_read_text(path))
    except ValueError as error:
        raise UserError(f"{path} is not OpenCV's yaml: {error}. {EXPECTED}", file=path) from error


def _read_pickle(path: Path) -> Mapping[str, Any]:
    content = load_pickle(path)
    if not isinstance(content, Mapping):
        raise UserError(f"{path} is no calibration of OpenCap. {EXPECTED}", file=path)
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
    """Return the text of a file that is small enough to be a calibration."""
    with open_regular(path) as stream:
        content = stream.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise UserError(
            f"{path} has more than {MOST_BYTES >> 10} kB, which no calibration has. {EXPECTED}",
            file=path,
        )
    return content.decode("utf-8", errors="replace")
