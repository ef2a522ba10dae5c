"""One track in order of time, and the rows of detections by track and by frame."""

from dataclasses import dataclass

import numpy as np

from pose2d.base.columns import column, nested
from pose2d.base.table import Table
from pose2d.tracking.appearance import no_appearance
from pose2d.types import Appearance, Detections

TORSO_SURE = 0.3  # least confidence times presence at which a keypoint of the torso is used
EDGE = 0.03  # a box that ends this near an edge, in image sides, is cut by it
_TORSO = ("left_shoulder", "right_shoulder", "left_hip", "right_hip")


@dataclass(frozen=True)
class TrackPath(Table):
    """T detections of one track, in order of time."""

    row: np.ndarray = column((), "i", "number of the detection among all")
    frame: np.ndarray = column((), "i", "frame number")
    time_s: np.ndarray = column((), "d", "strictly increasing", unit="s")
    centre_px: np.ndarray = column(
        (2,), "d", "of the torso, or of the box where the torso is not visible", unit="px"
    )
    place: np.ndarray = column(
        (3,), "d", "of the box: centre x and upper edge (legs are hidden first), log height"
    )
    body_px: np.ndarray = column((), "d", "the body's size: a box's diagonal", unit="px")
    inside: np.ndarray = column((), "b", "the box ends at no edge of the image")
    alone: np.ndarray = column(
        (), "b", "no other box overlaps it, so its appearance is surely its own"
    )
    appearance: Appearance = nested(Appearance, "weight 0 where colours were not read")


def track_path(
    detections: Detections, row: np.ndarray, image_wh: tuple[int, int], alone: np.ndarray
) -> TrackPath:
    """Return the path of the track with the detections `row` [T] of N, in order of time. alone [N]:
    no other box overlaps the detection's.

    A box shrinks and moves when something hides the legs; the torso does not. So the torso's centre
    is used in every frame in which all its keypoints reach TORSO_SURE."""
    part = detections.pick(row)
    boxes = part.box_px
    centre = (boxes[:, :2] + boxes[:, 2:]) / 2
    if part.keypoints is not None:
        torso = [part.keypoints.skeleton.keypoints.index(name) for name in _TORSO]
        torso_px = part.xy_px[:, torso]
        is_sure = (part.sure[:, torso] >= TORSO_SURE).all(1)
        has_torso = is_sure & np.isfinite(torso_px).all((1, 2))
        centre = np.where(has_torso[:, None], np.nan_to_num(torso_px).mean(1), centre)
    height = np.maximum(boxes[:, 3] - boxes[:, 1], 1.0)
    return TrackPath(
        row=row,
        frame=part.frame,
        time_s=part.time_s,
        centre_px=centre,
        place=np.stack([(boxes[:, 0] + boxes[:, 2]) / 2, boxes[:, 1], np.log(height)], 1),
        body_px=body_sizes(part.time_s, boxes),
        inside=inside_image(boxes, image_wh),
        alone=alone[row],
        appearance=no_appearance(len(row)) if part.appearance is None else part.appearance,
    )


def rows_of_tracks(detections: Detections) -> dict[int, np.ndarray]:
    """Return the rows of every track in order of time, by track number."""
    order = np.lexsort((detections.frame, detections.identity))
    track = detections.identity[order]
    rows_by_track = np.split(order, np.flatnonzero(np.diff(track)) + 1)
    return {
        int(detections.identity[rows[0]]): rows
        for rows in rows_by_track
        if len(rows) and detections.identity[rows[0]] >= 0
    }


def rows_of_frames(detections: Detections) -> list[np.ndarray]:
    """Return the rows of each frame that belong to a track, in order of time and track."""
    tracked = np.flatnonzero(detections.identity >= 0)
    order = tracked[np.lexsort((detections.identity[tracked], detections.frame[tracked]))]
    frame_starts = np.flatnonzero(np.diff(detections.frame[order])) + 1
    return [rows for rows in np.split(order, frame_starts) if len(rows)]


def inside_image(boxes_px: np.ndarray, image_wh: tuple[int, int]) -> np.ndarray:
    """Return which boxes [N, 4] end at no edge of the image, [N]. There people can only come and go
    behind something.
    """
    margin = EDGE * np.array(image_wh)
    after_start = boxes_px[:, :2] >= margin
    before_end = boxes_px[:, 2:] <= np.array(image_wh) - margin
    return np.all(after_start & before_end, axis=1)


def body_sizes(time_s: np.ndarray, boxes_px: np.ndarray, near_s: float = 0.5) -> np.ndarray:
    """Return the body's size [T] in pixels at each of T detections: the largest diagonal of a box
    within `near_s` either way, because a half-hidden person is not a smaller person.
    """
    diagonal = np.linalg.norm(boxes_px[:, 2:] - boxes_px[:, :2], axis=-1)
    first = np.searchsorted(time_s, time_s - near_s)
    end = np.searchsorted(time_s, time_s + near_s, side="right")
    return np.maximum([diagonal[a:b].max() for a, b in zip(first, end, strict=True)], 1.0)
