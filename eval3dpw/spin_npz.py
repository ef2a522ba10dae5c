"""SPIN's `3dpw_test.npz`: a row per person and image, the root already turned into the camera, no place in space."""

import re
import zipfile
from itertools import pairwise
from pathlib import Path

import numpy as np

from eval3dpw.sequences import GENDERS
from eval3dpw.tracks import TruthTrack
from pose2d.base.errors import UserError

_NEEDED = {"imgname": (), "center": (2,), "scale": (), "pose": (72,), "shape": (10,), "gender": ()}
_NAME = re.compile(r"(?:.*/)?([^/]+)/image_(\d+)\.\w+$")
BOX_SCALE = 1.2  # SPIN's scale is 1.2 times the longer side of the keypoints' box, over 200 pixels


def read_spin_npz(path: Path) -> list[TruthTrack]:
    """Everyone, as tracks: rows of one sequence in which the image's number keeps rising are one person."""
    rows = _rows(path)
    names, frames = _images(rows["imgname"], path)
    new = np.concatenate([[True], (names[1:] != names[:-1]) | (frames[1:] <= frames[:-1])])
    first = np.append(np.flatnonzero(new), len(new))
    tracks: list[TruthTrack] = []
    people: dict[str, int] = {}
    for span in (slice(a, b) for a, b in pairwise(first.tolist())):
        name = str(names[span.start])
        people[name] = people.get(name, -1) + 1
        tracks.append(_track(rows, name, people[name], frames, span, path))
    return tracks


def _track(
    rows: dict[str, np.ndarray], name: str, person: int, frames: np.ndarray, span: slice, path: Path
) -> TruthTrack:
    gender = str(rows["gender"][span.start])[:1].lower()
    if gender not in GENDERS:
        raise UserError(f"{path}: gender is {gender!r} at row {span.start}; expected m or f.")
    count = span.stop - span.start
    half = (200 * rows["scale"][span] / BOX_SCALE / 2)[:, None]
    return TruthTrack(
        sequence=name,
        person=person,
        gender=GENDERS[gender],
        frame=frames[span],
        shape=rows["shape"][span.start],
        pose=rows["pose"][span].reshape(-1, 24, 3),
        translation=np.zeros((count, 3)),
        T_cam_world=np.tile(np.eye(4), (count, 1, 1)),
        camera_valid=np.ones(count, bool),
        intrinsics=None,
        boxes_px=np.concatenate([rows["center"][span] - half, rows["center"][span] + half], 1),
    )


def _rows(path: Path) -> dict[str, np.ndarray]:
    try:
        with np.load(path, allow_pickle=False) as file:
            missing = [key for key in _NEEDED if key not in file.files]
            if missing:
                raise UserError(f"{path} is not SPIN's file of 3DPW: it lacks {', '.join(missing)}.")
            rows = {key: file[key] for key in _NEEDED}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise UserError(f"cannot read {path} ({error}). Expected 3dpw_test.npz as SPIN distributes it.") from error
    count = len(rows["imgname"])
    for key, tail in _NEEDED.items():
        if rows[key].shape != (count, *tail):
            raise UserError(f"{path}: {key} has size {list(rows[key].shape)}; expected {[count, *tail]}.")
        if key not in ("imgname", "gender"):
            rows[key] = rows[key].astype(np.float64)
            if not np.isfinite(rows[key]).all():
                raise UserError(f"{path}: {key} has a number that is not finite.")
    if not count:
        raise UserError(f"{path} has no rows.")
    return rows


def _images(imgname: np.ndarray, path: Path) -> tuple[np.ndarray, np.ndarray]:
    parts = [_NAME.match(str(name)) for name in imgname]
    wrong = [str(name) for name, part in zip(imgname, parts, strict=True) if part is None]
    if wrong:
        raise UserError(f"{path}: imgname {wrong[0]!r} is not like imageFiles/downtown_arguing_00/image_00000.jpg.")
    return np.array([p[1] for p in parts if p]), np.array([int(p[2]) for p in parts if p])
