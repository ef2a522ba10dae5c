"""Check the arrays of tracks.npz, keypoints.npz and fit.npz before anything reads them.

The files may come from another machine or be damaged. docs/run.md says what the arrays mean.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from fitmesh.person import FAR_PX, Person, Shot, View
from pose2d.base.arrays import Array, check_arrays
from pose2d.base.errors import UserError
from pose2d.events import Event
from pose2d.skeletons import BY_NAME, COCO17

SCHEMA_VERSION = 5  # of fit.npz
_TEXT = Array("U", ())
_SIDE = Array("i", (), low=1, high=1 << 20)  # of an image, pixels
_CLIP = {
    "width_px": _SIDE,
    "height_px": _SIDE,
    "rate": Array("i", (2,), low=1, high=2**53),
    "frame": Array("i", ("frames",), low=0, high=2**53),
    "time_s": Array("f", ("frames",), finite=True, low=-1e9, high=1e9),
}
_ROWS = {
    "identity": Array("i", ("people",)),
    "first_row": Array("i", ("people + 1",), low=0),
    "row_frame": Array("i", ("rows",), low=0, high=2**53),
}
_EVENTS = Event.schema(rows="events")
TRACKS = {
    **_CLIP,
    **_ROWS,
    "row_box_px": Array("f", ("rows", 4), finite=True, low=-FAR_PX, high=FAR_PX),
    "row_score": Array("f", ("rows",)),
    "warnings": Array("U", ("warnings",)),
    "shot_first_frame": Array("i", ("shots",), low=0),
    "same_as": Array("i", ("people",)),
    **_EVENTS,
    "camera_kind": Array("U", ("shots",), optional=True),
    "camera_reason": Array("U", ("shots",), optional=True),
    "camera_focal_px": Array("f", ("shots",), low=1, high=FAR_PX, finite=True, optional=True),
    "camera_first_from_frame": Array(
        "f", ("frames", 3, 3), finite=True, optional=True, low=-1.1, high=1.1
    ),
    "camera_zoom": Array("f", ("frames",), low=1e-3, high=1e3, finite=True, optional=True),
    "camera_turning_focal_px": Array("f", ("shots",), optional=True, low=1e-3),
    "camera_turning_focal_log_std": Array("f", ("shots",), optional=True, low=0),
    "camera_vertical": Array("f", ("shots", 3), optional=True, low=-1.1, high=1.1),
}


def fit_schema() -> dict[str, Array]:
    """Return the schema of fit.npz: the columns of its tables and the arrays of the whole clip."""
    return {
        **_CLIP,
        **_ROWS,
        **{
            name: _TEXT
            for name in (
                "body",
                "body_path",
                "body_digest",
                "weighting",
                "init",
                "source",
                "pose_model",
            )
        },
        "focal_px": Array("f", (2,), finite=True, low=1e-3, high=FAR_PX),
        "center_px": Array("f", (2,), finite=True, low=-FAR_PX, high=FAR_PX),
        "distortion": Array("f", ("coefficients",), finite=True, optional=True, low=-1e3, high=1e3),
        "frame_focal_px": Array("f", ("frames",), finite=True, low=1e-3, high=FAR_PX),
        "world_from_camera": Array("f", ("frames", 4, 4), low=-1e6, high=1e6),
        **_EVENTS,
        **Shot.schema(rows="shots"),
        **Person.schema(),
        **View.schema(rows="views", optional=True),
    }


def check_tracks(arrays: Mapping[str, np.ndarray], path: Path) -> None:
    """Raise UserError if these are not the arrays of a tracks.npz."""
    check_arrays(arrays, TRACKS, path, "a tracks.npz of fitmesh")
    _check_rows(arrays, path)
    _check_clip(arrays, path)


def keypoints_schema(names: Iterable[str] = ()) -> dict[str, Array]:
    """Return the schema of a keypoints.npz that has arrays of these names.

    Arrays of hands and of masks are complete or absent.
    """
    from pose2d.types import HandKeypoints, Keypoints, Outlines  # they import torch

    schema = {
        **_ROWS,
        "pose_model": _TEXT,
        "skeleton": _TEXT,
        "source": _TEXT,
        "row_box_px": Array("f", ("rows", 4), low=-FAR_PX, high=FAR_PX),
        **Keypoints.schema(),
        "row_xy_px": Array("f", ("rows", "keypoints", 2), low=-FAR_PX, high=FAR_PX),
        "row_area_px2": Array("f", ("rows",), low=0),
        "row_raw": Array("f", ("rows", "keypoints")),
    }
    for table, rows in ((HandKeypoints, "rows"), (Outlines, "masks")):
        schema |= table.schema(
            rows=rows, optional=not any(name.startswith(table.PREFIX) for name in names)
        )
    return schema


def check_keypoints(arrays: Mapping[str, np.ndarray], path: Path) -> None:
    """Raise UserError if these are not the arrays of a keypoints.npz."""
    check_arrays(arrays, keypoints_schema(arrays), path, "a keypoints.npz of fitmesh")
    _check_rows(arrays, path)
    masks = arrays.get("mask_row", np.zeros(0))
    _require((masks < len(arrays["row_frame"])).all(), path, "a mask belongs to no row")
    name = str(arrays["skeleton"])
    if name not in BY_NAME:
        raise UserError(
            f"{path} has keypoints of {name[:80]!r}; expected one of {', '.join(BY_NAME)}.",
            file=path,
        )
    skeleton = BY_NAME[name]
    if skeleton.keypoints[: COCO17.size] != COCO17.keypoints:
        raise UserError(
            f"{path} has keypoints of {name}; expected COCO's 17 or a set that begins with them.",
            file=path,
        )
    if arrays["row_xy_px"].shape[1] != skeleton.size:
        raise UserError(
            f"{path} has {arrays['row_xy_px'].shape[1]} keypoints a person; {name} has {skeleton.size}.",
            file=path,
        )


def check_fit(arrays: Mapping[str, np.ndarray], path: Path) -> None:
    """Raise UserError if these are not the arrays of a fit.npz of this version."""
    version = arrays.get("schema_version")
    is_number = version is not None and version.shape == () and version.dtype.kind in "iu"
    number = int(version) if version is not None and is_number else 0
    if number != SCHEMA_VERSION:
        raise UserError(
            f"{path} has schema {number}, and this fitmesh reads {SCHEMA_VERSION}: make it again with "
            "`fitmesh run`.",
            file=path,
        )
    check_arrays(arrays, fit_schema(), path, "a fit.npz of fitmesh")
    _check_rows(arrays, path)
    _check_clip(arrays, path)
    _require(
        (arrays["shot"] < len(arrays["shot_first_frame"])).all(),
        path,
        "a person is in a shot that does not exist",
    )


def _require(condition: bool | np.bool_, path: Path, problem: str) -> None:
    """Raise UserError for a damaged file unless the condition holds."""
    if not condition:
        raise UserError(f"{path} is damaged: {problem}.", file=path)


def _check_rows(arrays: Mapping[str, np.ndarray], path: Path) -> None:
    """Check that the rows of people follow each other with increasing frames."""
    first = arrays["first_row"].astype(np.int64)
    frame = arrays["row_frame"].astype(np.int64)
    people = len(arrays["identity"])
    is_rising = (
        len(first) == people + 1
        and first[0] == 0
        and first[-1] == len(frame)
        and (np.diff(first) > 0).all()
    )
    _require(is_rising, path, "first_row does not assign rows to people")
    _require(len(np.unique(arrays["identity"])) == people, path, "two people have one identity")
    is_same_person = np.ones(max(len(frame) - 1, 0), np.bool_)
    is_same_person[first[1:-1] - 1] = False
    _require((np.diff(frame)[is_same_person] > 0).all(), path, "the frames of a person do not rise")


def _check_clip(arrays: Mapping[str, np.ndarray], path: Path) -> None:
    """Check the frames, shots and people of a clip."""
    for name in ("frame", "time_s"):
        _require((np.diff(arrays[name]) > 0).all(), path, f"{name} does not rise")
    has_frames = np.isin(arrays["row_frame"], arrays["frame"]).all()
    _require(has_frames, path, "a person is in a frame that was not read")
    first = arrays["shot_first_frame"].astype(np.int64)
    is_rising = (np.diff(first) > 0).all() and (len(first) > 0 or not len(arrays["frame"]))
    _require(is_rising, path, "shot_first_frame does not say where shots begin")
    _require(
        np.isin(arrays["same_as"], arrays["identity"]).all(),
        path,
        "same_as names a person who does not exist",
    )
