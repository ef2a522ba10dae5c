"""3DPW's truth: the folder, the sequence pickles, SPIN's `3dpw_test.npz`, and both as tracks.

sequenceFiles/{train,validation,test}/NAME.pkl    a Python 2 pickle, read without running anything
in it imageFiles/NAME/image_00000.jpg                   one image per frame"""

import re
from collections.abc import Mapping
from collections.abc import Sequence as Ordered
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fitting.body import Body, BodyParams
from fitting.body.rotations import matrix_to_axis_angle, rotation_matrices
from pose2d.base import unpickle
from pose2d.base.arrays import Array, check_arrays, read_npz
from pose2d.base.columns import column, shared
from pose2d.base.errors import UserError
from pose2d.base.table import Table

GENDERS = {"m": "male", "f": "female", "n": "neutral"}
LARGEST = 1e6  # radians, metres, standard deviations: nothing of a body comes near
SHAPE_SIZE = 10  # some files carry 300 directions; the body files in use have these
SPIN_BOX_SCALE = (
    1.2  # SPIN's `scale` is 1.2 times the longer side of the keypoints' box, over 200 pixels
)
_PERSON_KEYS = ("poses", "trans", "betas", "genders", "campose_valid", "poses2d")
_SEQUENCE_KEYS = ("cam_poses", "cam_intrinsics", *_PERSON_KEYS)
_SPIN_KEYS = {
    "imgname": Array("U", ("N",)),
    "center": Array("f", ("N", 2), finite=True, low=-1e6, high=1e6),
    "scale": Array("f", ("N",), finite=True, low=0, high=1e4),
    "pose": Array("f", ("N", 72), finite=True, low=-1e3, high=1e3),
    "shape": Array("f", ("N", 10), finite=True, low=-1e3, high=1e3),
    "gender": Array("U", ("N",)),
}
_SPIN_IMAGE = re.compile(r"(?:.*/)?([^/]+)/image_(\d{1,9})\.\w+$")
_GET_AGAIN = "Get sequenceFiles.zip again from virtualhumans.mpi-inf.mpg.de/3DPW"
_HOW = (
    "Unpack sequenceFiles.zip and imageFiles.zip of virtualhumans.mpi-inf.mpg.de/3DPW into one folder and pass it, "
    "or make a set of the same layout with `fitmesh synth`."
)


def sequence_files(data: Path, split: str, names: Ordered[str] = ()) -> list[Path]:
    """List the pickles of a split in the order of their names, or only those of the named
    sequences.
    """
    if not data.is_dir():
        raise UserError(f"there is no folder {data}. {_HOW}")
    root = data / "sequenceFiles"
    if not root.is_dir():
        raise UserError(f"{data} has no folder sequenceFiles. {_HOW}")
    splits = sorted(entry.name for entry in root.iterdir() if entry.is_dir())
    if split not in splits:
        raise UserError(
            f"{root} has no split {split!r}; it has {', '.join(splits) or 'none'}. Choose --split. {_HOW}",
            file=root,
        )
    paths = {path.stem: path for path in sorted((root / split).glob("*.pkl"))}
    if not paths:
        raise UserError(f"{root / split} holds no .pkl file. {_HOW}", file=root / split)
    if unknown := [name for name in names if name not in paths]:
        raise UserError(
            f"{root / split} has no sequence {', '.join(unknown)}; it has {', '.join(paths)}.",
            file=root / split,
        )
    return [path for name, path in paths.items() if not names or name in names]


def sequence_path(data: Path, split: str, sequence: str) -> Path:
    return data / "sequenceFiles" / split / f"{sequence}.pkl"


def image_path(data: Path, sequence: str, frame: int) -> Path:
    return data / "imageFiles" / sequence / f"image_{frame:05d}.jpg"


def image_numbers(data: Path, sequence: str) -> set[int]:
    folder = data / "imageFiles" / sequence
    numbers = (path.stem.removeprefix("image_") for path in folder.glob("image_*.jpg"))
    return {int(number) for number in numbers if number.isdecimal() and len(number) < 10}


@dataclass(frozen=True)
class TruthTrack(Table):
    """T frames of one person: the truth that a fit is measured against."""

    sequence: str
    person: int
    gender: str  # "male", "female" or "neutral"
    frame: np.ndarray = column((), "i", "image number, strictly increasing")
    shape: np.ndarray = shared()  # [S] standard deviations
    pose: np.ndarray = column(
        (24, 3), "d", "axis-angle; joint 0 rotates the body into the world frame", unit="rad"
    )
    translation: np.ndarray = column((3,), "d", "world", unit="m")
    T_cam_world: np.ndarray = column((4, 4), "d", "world to camera", unit="m")
    camera_valid: np.ndarray = column(
        (), "b", "whether the position relative to the camera is valid"
    )
    intrinsics: np.ndarray | None = shared()  # [3, 3] pixels; None: not in the source
    # [T, 18, 3]; all 0: not detected; None: not in the source
    poses2d_px: np.ndarray | None = column(
        (18, 3), "d", "OpenPose's x, y, confidence", unit="px", optional=True
    )
    # [T, 4] x1, y1, x2, y2, where the source gives boxes but no translation
    boxes_px: np.ndarray | None = column((4,), "d", "x1, y1, x2, y2", unit="px", optional=True)

    @property
    def name(self) -> str:
        return f"{self.sequence}/{self.person}"


@dataclass(frozen=True)
class Sequence:
    """One camera and its people; frame n is `imageFiles/NAME/image_{n:05d}.jpg`."""

    name: str
    intrinsics: np.ndarray  # [3, 3] pixels
    T_cam_world: np.ndarray  # [N, 4, 4] world -> camera, metres
    people: tuple[TruthTrack, ...]  # all frames, also those without a valid camera

    def __len__(self) -> int:
        return len(self.T_cam_world)


def read_sequence(path: str | Path) -> Sequence:
    """Read and check one pickle."""
    path = Path(path)
    content = unpickle.load(path)
    if not isinstance(content, Mapping):
        raise UserError(
            f"{path} is not a 3DPW sequence: it holds a {type(content).__name__}. {_GET_AGAIN}.",
            file=path,
        )
    if missing := [key for key in _SEQUENCE_KEYS if key not in content]:
        raise UserError(
            f"{path} is not a 3DPW sequence: it lacks {', '.join(missing)}. {_GET_AGAIN}.",
            file=path,
        )
    T_cam_world = _numbers(content["cam_poses"], path, "cam_poses", (-1, 4, 4))
    frames = len(T_cam_world)
    lists = (list, tuple, np.ndarray)
    if wrong := [
        k
        for k in _PERSON_KEYS
        if not isinstance(content[k], lists) or getattr(content[k], "ndim", 1) < 1
    ]:
        raise UserError(
            f"{path} is damaged: {wrong[0]} is no list of people. {_GET_AGAIN}.", file=path
        )
    counts = {key: len(content[key]) for key in _PERSON_KEYS}
    if len(set(counts.values())) != 1:
        raise UserError(
            f"{path} is damaged: it has different numbers of people in {counts}. {_GET_AGAIN}.",
            file=path,
        )
    intrinsics = _numbers(content["cam_intrinsics"], path, "cam_intrinsics", (3, 3))
    people = tuple(
        _person(content, i, T_cam_world, intrinsics, path) for i in range(counts["poses"])
    )
    valid = (
        np.any([person.camera_valid for person in people], axis=0)
        if people
        else np.zeros(frames, bool)
    )
    if not (np.isfinite(intrinsics).all() and np.isfinite(T_cam_world[valid]).all()):
        raise UserError(
            f"{path} is damaged: its camera has a number that is not finite. {_GET_AGAIN}.",
            file=path,
        )
    return Sequence(path.stem, intrinsics, T_cam_world, people)


def _person(
    content: Mapping[str, Any], i: int, T_cam_world: np.ndarray, intrinsics: np.ndarray, path: Path
) -> TruthTrack:
    frames = len(T_cam_world)

    def numbers(key: str, shape: tuple[int, ...]) -> np.ndarray:
        return _numbers(content[key][i], path, f"{key}[{i}]", shape)

    gender = content["genders"][i]
    gender = gender.decode("latin1") if isinstance(gender, bytes) else str(gender)
    if gender[:1].lower() not in GENDERS:
        raise UserError(
            f"{path}: genders[{i}] is {gender!r}; expected m or f. {_GET_AGAIN}.", file=path
        )
    valid = numbers("campose_valid", (frames,)) > 0
    pose = numbers("poses", (frames, 72))
    translation = numbers("trans", (frames, 3))
    shape = np.ravel(numbers("betas", (-1,)))[:SHAPE_SIZE]
    for values in (pose[valid], translation[valid], shape):
        if not np.isfinite(values).all() or np.abs(values).max(initial=0) > LARGEST:
            raise UserError(
                f"{path} is damaged: person {i} has a number that is not finite. {_GET_AGAIN}.",
                file=path,
            )
    return TruthTrack(
        sequence=path.stem,
        person=i,
        gender=GENDERS[gender[:1].lower()],
        frame=np.arange(frames),
        shape=shape,
        pose=pose.reshape(frames, 24, 3),
        translation=translation,
        T_cam_world=T_cam_world,
        camera_valid=valid,
        intrinsics=intrinsics,
        poses2d_px=np.nan_to_num(numbers("poses2d", (frames, 3, 18))).transpose(0, 2, 1),
    )


def _numbers(value: Any, path: Path, key: str, shape: tuple[int, ...]) -> np.ndarray:
    """`value` as float64 of that shape; -1 is any length."""
    try:
        array = np.asarray(value, np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise UserError(
            f"{path} is damaged: {key} is not an array of numbers. {_GET_AGAIN}.", file=path
        ) from error
    if array.ndim != len(shape) or any(
        w not in (-1, length) for w, length in zip(shape, array.shape, strict=True)
    ):
        sizes = ", ".join("any" if side == -1 else str(side) for side in shape)
        raise UserError(
            f"{path} is damaged: {key} has size {list(array.shape)}; expected [{sizes}]. {_GET_AGAIN}.",
            file=path,
        )
    return array


def camera_params(track: TruthTrack, body: Body) -> BodyParams:
    """Return the true body in the camera frame.

    A body rotates about its pelvis J, which in its file is not the origin: v = R (x - J) + J + t.
    In the camera frame, C v + c, the rotation is C R and the translation C (J + t) + c - J.
    """
    pose = torch.as_tensor(track.pose, dtype=torch.float64)
    C, c = (
        torch.as_tensor(track.T_cam_world[:, :3, part], dtype=torch.float64)
        for part in (slice(3), 3)
    )
    shape = torch.as_tensor(track.shape, dtype=torch.float64)
    pelvis = (
        body.rest_joints[0].double()
        + body.rest_joint_shapedirs[0, :, : len(shape)].double() @ shape
    )
    root = matrix_to_axis_angle(C @ rotation_matrices(pose[:, 0]))
    pelvis_world = torch.as_tensor(track.translation, dtype=torch.float64) + pelvis
    translation = torch.einsum("tij,tj->ti", C, pelvis_world) + c - pelvis
    camera_pose = torch.cat((root[:, None], pose[:, 1:]), 1)
    return BodyParams(camera_pose.to(body.dtype), shape.to(body.dtype), translation.to(body.dtype))


def read_spin_npz(path: Path) -> list[TruthTrack]:
    """Read SPIN's `3dpw_test.npz`: one row per person and image, root rotation in the camera frame,
    no translation. Consecutive rows of a sequence whose image numbers rise are one person.
    """
    rows = read_npz(path, "Expected 3dpw_test.npz as SPIN distributes it.", _SPIN_KEYS)
    check_arrays(rows, _SPIN_KEYS, path, "SPIN's file of 3DPW")
    rows |= {
        key: rows[key].astype(np.float64) for key, array in _SPIN_KEYS.items() if array.kind == "f"
    }
    if not len(rows["imgname"]):
        raise UserError(f"{path} has no rows.", file=path)
    parts = [(str(name), _SPIN_IMAGE.match(str(name))) for name in rows["imgname"]]
    if wrong := [name for name, part in parts if part is None]:
        raise UserError(
            f"{path}: imgname {wrong[0]!r} is not like imageFiles/downtown_arguing_00/image_00000.jpg.",
            file=path,
        )
    names = np.array([p[1] for _, p in parts if p])
    frames = np.array([int(p[2]) for _, p in parts if p])
    new = np.concatenate([[True], (names[1:] != names[:-1]) | (frames[1:] <= frames[:-1])])
    tracks: list[TruthTrack] = []
    people: dict[str, int] = {}
    for first, end in pairwise([*np.flatnonzero(new).tolist(), len(new)]):
        span = slice(first, end)
        count = end - first
        name = str(names[first])
        people[name] = people.get(name, -1) + 1
        gender = str(rows["gender"][first])[:1].lower()
        if gender not in GENDERS:
            raise UserError(
                f"{path}: gender is {gender!r} at row {first}; expected m or f.", file=path
            )
        half = (200 * rows["scale"][span] / SPIN_BOX_SCALE / 2)[:, None]
        tracks.append(
            TruthTrack(
                name,
                people[name],
                GENDERS[gender],
                frame=frames[span],
                shape=rows["shape"][first],
                pose=rows["pose"][span].reshape(-1, 24, 3),
                translation=np.zeros((count, 3)),
                T_cam_world=np.tile(np.eye(4), (count, 1, 1)),
                camera_valid=np.ones(count, bool),
                intrinsics=None,
                boxes_px=np.concatenate(
                    [rows["center"][span] - half, rows["center"][span] + half], 1
                ),
            )
        )
    return tracks
