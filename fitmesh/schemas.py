"""What the arrays of tracks.npz, keypoints.npz and fit.npz look like; docs/run.md says what they mean.

Files may come from another machine or be damaged: nothing reads them before they have been checked here."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from pose2d.base.errors import UserError
from pose2d.base.files import Array, check_arrays
from pose2d.events import Event
from pose2d.skeletons import BY_NAME, COCO17
from pose2d.types import HandKeypoints, Keypoints, Outlines

MOST_PIXELS_A_SIDE = 1 << 20
FARTHEST_PX = 1e7  # coordinates beyond this are not those of a keypoint in or near an image
_TEXT = Array("U", ())
_SIDE = Array("i", (), low=1, high=MOST_PIXELS_A_SIDE)
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
    **_CLIP, **_ROWS, "row_box_px": Array("f", ("rows", 4), finite=True, low=-FARTHEST_PX, high=FARTHEST_PX),
    "row_score": Array("f", ("rows",)), "warnings": Array("U", ("warnings",)),
    "shot_first_frame": Array("i", ("shots",), low=0), "same_as": Array("i", ("people",)), **_EVENTS,
    "camera_kind": Array("U", ("shots",), optional=True), "camera_reason": Array("U", ("shots",), optional=True),
    "camera_focal_px": Array("f", ("shots",), low=1, high=FARTHEST_PX, finite=True, optional=True),
    "camera_first_from_frame": Array("f", ("frames", 3, 3), finite=True, optional=True, low=-1.1, high=1.1),
    "camera_zoom": Array("f", ("frames",), low=1e-3, high=1e3, finite=True, optional=True),
    "camera_turning_focal_px": Array("f", ("shots",), optional=True, low=1e-3),
    "camera_turning_focal_log_std": Array("f", ("shots",), optional=True, low=0),
    "camera_vertical": Array("f", ("shots", 3), optional=True, low=-1.1, high=1.1),
}  # fmt: skip
KEYPOINTS = {
    **_ROWS, "pose_model": _TEXT, "skeleton": _TEXT, "source": _TEXT,
    "row_box_px": Array("f", ("rows", 4), low=-FARTHEST_PX, high=FARTHEST_PX), **Keypoints.schema(),
    "row_area_px2": Array("f", ("rows",), low=0), "row_raw": Array("f", ("rows", "keypoints")),
}  # fmt: skip


def fit_schema(tables: Mapping[str, Array]) -> dict[str, Array]:
    """Of fit.npz: what its tables declare (`fitmesh.result.tables`), and what is the same for the whole clip."""
    return {
        **_CLIP,
        **_ROWS,
        **{name: _TEXT for name in ("body", "body_path", "body_digest", "weighting", "init", "source", "pose_model")},
        "focal_px": Array("f", (2,), finite=True, low=1e-3, high=FARTHEST_PX),
        "center_px": Array("f", (2,), finite=True, low=-FARTHEST_PX, high=FARTHEST_PX),
        "distortion": Array("f", ("coefficients",), finite=True, optional=True, low=-1e3, high=1e3),
        "frame_focal_px": Array("f", ("frames",), finite=True, low=1e-3, high=FARTHEST_PX),
        "world_from_camera": Array("f", ("frames", 4, 4), low=-1e6, high=1e6),
        **_EVENTS,
        **tables,
    }


def check_tracks(arrays: Mapping[str, np.ndarray], path: Path) -> None:
    check_arrays(arrays, TRACKS, path, "a tracks.npz of fitmesh")
    _check_rows(arrays, path)
    _check_clip(arrays, path)


def check_keypoints(arrays: Mapping[str, np.ndarray], path: Path) -> None:
    optional: dict[str, Array] = {}
    for table, rows in ((HandKeypoints, "rows"), (Outlines, "masks")):
        optional |= table.schema(rows=rows, optional=not any(name.startswith(table.PREFIX) for name in arrays))
    check_arrays(arrays, {**KEYPOINTS, **optional}, path, "a keypoints.npz of fitmesh")
    _check_rows(arrays, path)
    if "mask_row" in arrays and (arrays["mask_row"] >= len(arrays["row_frame"])).any():
        raise UserError(f"{path} is damaged: a mask belongs to nobody's row.")
    name = str(arrays["skeleton"])
    if name not in BY_NAME:
        raise UserError(f"{path} has keypoints of {name[:80]!r}; expected one of {', '.join(BY_NAME)}.")
    skeleton = BY_NAME[name]
    if skeleton.keypoints[: COCO17.size] != COCO17.keypoints:
        raise UserError(f"{path} has keypoints of {name}; expected COCO's 17 or a set that begins with them.")
    if arrays["row_xy_px"].shape[1] != skeleton.size:
        raise UserError(f"{path} has {arrays['row_xy_px'].shape[1]} keypoints a person; {name} has {skeleton.size}.")
    known = arrays["row_xy_px"][np.isfinite(arrays["row_xy_px"])]
    if known.size and np.abs(known).max() > FARTHEST_PX:
        raise UserError(f"{path} has a keypoint at {np.abs(known).max():.3g} px: no image is so large.")


def check_fit(arrays: Mapping[str, np.ndarray], path: Path, version: int, tables: Mapping[str, Array]) -> None:
    stated = arrays.get("schema_version")
    number = int(stated) if stated is not None and stated.shape == () and stated.dtype.kind in "iu" else 0
    if number != version:
        raise UserError(
            f"{path} has schema {number}, and this fitmesh reads {version}: make it anew with `fitmesh run`."
        )
    check_arrays(arrays, fit_schema(tables), path, "a fit.npz of fitmesh")
    _check_rows(arrays, path)
    _check_clip(arrays, path)
    if len(arrays["shot"]) and int(arrays["shot"].max()) >= len(arrays["shot_first_frame"]):
        raise UserError(f"{path} is damaged: a person is in a shot that is not there.")


def _check_rows(arrays: Mapping[str, np.ndarray], path: Path) -> None:
    """Everyone's rows, one after the other, frames rising."""
    first, frame = arrays["first_row"].astype(np.int64), arrays["row_frame"]
    people = len(arrays["identity"])
    if len(first) != people + 1 or first[0] != 0 or first[-1] != len(frame) or (np.diff(first) < 1).any():
        raise UserError(f"{path} is damaged: first_row does not say which rows belong to whom.")
    if len(np.unique(arrays["identity"])) != people:
        raise UserError(f"{path} is damaged: two people have one identity.")
    steps = np.diff(frame.astype(np.int64))
    inside = np.ones(len(steps), np.bool_)
    inside[first[1:-1] - 1] = False  # from one person to the next
    if (steps[inside] <= 0).any():
        raise UserError(f"{path} is damaged: the frames of a person do not rise.")


def _check_clip(arrays: Mapping[str, np.ndarray], path: Path) -> None:
    """Frames, shots and people of a clip."""
    for name in ("frame", "time_s"):
        if (np.diff(arrays[name]) <= 0).any():
            raise UserError(f"{path} is damaged: {name} does not rise.")
    if not np.isin(arrays["row_frame"], arrays["frame"]).all():
        raise UserError(f"{path} is damaged: it has somebody in a frame that was not looked at.")
    first = arrays["shot_first_frame"].astype(np.int64)
    if (np.diff(first) <= 0).any() or (len(arrays["frame"]) and not len(first)):
        raise UserError(f"{path} is damaged: shot_first_frame does not say where shots begin.")
    if not np.isin(arrays["same_as"], arrays["identity"]).all():
        raise UserError(f"{path} is damaged: same_as names somebody who is not there.")
