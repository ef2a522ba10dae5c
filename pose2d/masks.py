"""Find the outlines of people in a few well-chosen frames, for the body's girth (docs/masks.md).

MediaPipe's pose landmark network (lite) separates the pixels of one person from all others in a
square around the hips. Ten frames of a track are enough, so masks are made after identities are
known. The chosen frames show the whole person with confidence and no other person close by, from
different sides and at different times. Of a mask only the outline is kept: points in pixels of the
image, each with its outward normal.
"""

from collections.abc import Iterable, Iterator
from functools import cache

import cv2
import numpy as np

from pose2d.base.embedded import check_embedded
from pose2d.crops import squares
from pose2d.detect.boxes import intersection
from pose2d.models.checkpoints import WEIGHTS, read_state
from pose2d.models.convolutions import OnnxNetwork
from pose2d.skeletons import COCO17
from pose2d.tracking.track_path import rows_of_frames
from pose2d.types import OUTLINE_POINTS, Detections, Outlines
from pose2d.video.frames import Frame

MASK_WEIGHTS = "person_mask_fp16.npz"  # tools/convert_mediapipe.py
MASK_GRAPH = "person_mask.onnx"
CROP = 256  # side of the network's input in pixels
# Side of the square over the distance from the hips to the farthest keypoint; MediaPipe uses 2.3 to
# 2.5.
REGION = 2.4
MASKS = 10  # most masks of one person
LEAST_SURE = 0.3  # least confidence times presence of a visible keypoint
# Least height from the highest to the lowest keypoint: smaller people are blurred in the square.
LEAST_PX = 80.0
FREE = 0.1  # share of a person's box that other boxes may cover
INSIDE = 0.8  # share of the visible keypoints that lie in the mask if it is this person's
# Outline points closer to the image border, as a share of the image's longer side, show where the
# image ends and not where the person ends.
SEEN_FROM_EDGE = 0.01
CANDIDATES = 400  # rows of a person among which frames are chosen
LEAST_SLOPE = 0.02  # change of the probability per pixel that an outline point needs


def _indices(part: str) -> list[int]:
    return [COCO17.keypoints.index(f"{side}_{part}") for side in ("left", "right")]


_SHOULDERS = _indices("shoulder")
_HIPS = _indices("hip")
_KNEES = _indices("knee")
_ANKLES = _indices("ankle")


@cache
def network() -> OnnxNetwork:
    """Load the mask network once."""
    return OnnxNetwork(MASK_GRAPH, read_state(check_embedded(WEIGHTS / MASK_WEIGHTS)))


def choose_rows(rows: Detections, size_wh: tuple[int, int]) -> np.ndarray:
    """Return the row numbers that masks are made of, person after person; at most MASKS each.

    `rows` stands person after person; `size_wh` is the image size in pixels."""
    if rows.keypoints is None or not len(rows):
        return np.zeros(0, np.int64)
    quality, facing = _rate_rows(rows, size_wh)
    chosen = []
    for identity in np.unique(rows.identity):
        candidates = np.flatnonzero((rows.identity == identity) & (quality > 0))
        candidates = candidates[:: max(1, len(candidates) // CANDIDATES)]
        if not len(candidates):
            continue
        frame = rows.frame[candidates]
        duration = max(int(frame[-1] - frame[0]), 1)
        time = (frame - frame[0]) / duration
        view = np.stack([facing[candidates].clip(-1, 1), time], 1)
        picks = _pick_diverse(quality[candidates], view)
        chosen.append(candidates[np.unique(picks)])
    return np.concatenate(chosen) if chosen else np.zeros(0, np.int64)


def _rate_rows(rows: Detections, size_wh: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """Return quality [N] of rows for a mask, 0: unusable, and the facing direction [N].

    The facing direction is the shoulders' distance along x over the length of the trunk."""
    xy = rows.xy_px.astype(np.float64)[:, :17]
    sure = rows.sure[:, :17]
    inside = ((xy >= 0) & (xy <= np.array(size_wh) - 1)).all(-1)
    visibility = np.where(inside, sure, 0) * np.isfinite(xy).all(-1)
    torso = visibility[:, _SHOULDERS + _HIPS].min(1)
    full_body = np.minimum(torso, visibility[:, _KNEES + _ANKLES].min(1))
    usable = (torso >= LEAST_SURE) & (_covered_by_others(rows) <= FREE)
    visible_xy = np.where((visibility >= LEAST_SURE)[..., None], xy, np.nan)
    y = visible_xy[usable, :, 1]
    usable[usable] = (np.nanmax(y, 1) - np.nanmin(y, 1)) >= LEAST_PX
    quality = np.where(full_body >= LEAST_SURE, 1 + full_body, 0.5 * torso) * usable
    trunk = xy[:, _SHOULDERS].mean(1) - xy[:, _HIPS].mean(1)
    shoulder_width = (xy[:, _SHOULDERS] - xy[:, _SHOULDERS[::-1]])[:, 0, 0]
    return quality, shoulder_width / np.maximum(np.linalg.norm(trunk, axis=1), 1)


def _pick_diverse(quality: np.ndarray, view: np.ndarray) -> list[int]:
    """Pick up to MASKS candidates: the best one, then good ones unlike all picked before.

    `view` [N, 2] is the facing direction and the time of each candidate."""
    picks = [int(quality.argmax())]
    while len(picks) < min(MASKS, len(quality)):
        distance = np.linalg.norm(view[:, None] - view[picks], axis=-1).min(1)
        picks.append(int((quality * distance).argmax()))
    return picks


def _covered_by_others(rows: Detections) -> np.ndarray:
    """Return the largest share of each box that another box of its frame covers, [N]."""
    covered = np.zeros(len(rows))
    for in_frame in rows_of_frames(rows):
        boxes = rows.box_px[in_frame].astype(np.float64)
        area = np.maximum((boxes[:, 2:] - boxes[:, :2]).prod(-1), 1)
        share = intersection(boxes, boxes) / area[:, None]
        covered[in_frame] = (share * (1 - np.eye(len(in_frame)))).max(1)
    return covered


class MaskFinder:
    """Makes masks of chosen rows while another stage iterates over the video."""

    def __init__(self, rows: Detections, size_wh: tuple[int, int]) -> None:
        self.rows = rows
        self._outlines = [Outlines.empty()]
        self._rows_by_frame: dict[int, list[int]] = {}
        for row in choose_rows(rows, size_wh).tolist():
            self._rows_by_frame.setdefault(int(rows.frame[row]), []).append(row)

    def __len__(self) -> int:
        """Return the number of frames that masks are still needed of."""
        return len(self._rows_by_frame)

    def watch(self, frames: Iterable[Frame]) -> Iterator[Frame]:
        """Yield the same frames, and make masks of the chosen ones on the way."""
        for frame in frames:
            for row in self._rows_by_frame.pop(frame.index, ()):
                keypoints = self.rows.xy_px[row].astype(np.float64)
                visible = keypoints[self.rows.sure[row] >= LEAST_SURE]
                hips = keypoints[_HIPS].mean(0)
                self._outlines.append(trace_outline(frame.rgb, visible, hips, row))
            yield frame

    @property
    def outlines(self) -> Outlines:
        """Return the outlines made so far, in the order of rows."""
        outlines = Outlines.concat(self._outlines)
        return outlines.rows(np.argsort(outlines.row, kind="stable"))


def mask_logits(rgb: np.ndarray, region: np.ndarray) -> np.ndarray:
    """Return logits [256, 256] of the person in a square [3]: x, y of its centre and its side."""
    crop = squares([rgb], np.array([[*region, 0.0]]), CROP)
    return network()(crop)[0].numpy().reshape(CROP, CROP)


def segment_person(
    rgb: np.ndarray, visible_px: np.ndarray, hips_px: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """Segment the person with keypoints visible_px [K, 2] around the middle of the hips [2].

    Returns the square [3] (see `mask_logits`), the probability of a person there [256, 256], and
    the part of it [256, 256] that is this person; None if no part holds the keypoints."""
    side = REGION * float(np.linalg.norm(visible_px - hips_px, axis=1).max())
    region = np.array([*hips_px, side])
    probability = 1 / (1 + np.exp(-mask_logits(rgb, region).clip(-30, 30)))
    probability = cv2.GaussianBlur(probability, (0, 0), 1.0)
    _, labels = cv2.connectedComponents((probability > 0.5).astype(np.uint8))
    cells = np.round((visible_px - region[:2]) * CROP / side + (CROP - 1) / 2)
    cells = cells.astype(int).clip(0, CROP - 1)
    keypoint_labels = labels[cells[:, 1], cells[:, 0]]
    person = 1 + np.bincount(keypoint_labels, minlength=2)[1:].argmax()
    if np.mean(keypoint_labels == person) < INSIDE:
        return None
    return region, probability, labels == person


def trace_outline(
    rgb: np.ndarray, visible_px: np.ndarray, hips_px: np.ndarray, row: int
) -> Outlines:
    """Return the outline of the person with keypoints visible_px [K, 2] around the hips [2].

    The table has no row if the mask is not this person's."""
    segmented = segment_person(rgb, visible_px, hips_px)
    if segmented is None:
        return Outlines.empty()
    region, probability, mask = segmented
    side = region[2]
    contours, _ = cv2.findContours(mask.astype(np.uint8), cv2.RETR_CCOMP, cv2.CHAIN_APPROX_NONE)
    points = np.concatenate([line[:, 0] for line in contours if len(line) > 8]).astype(np.float64)
    points = points[np.linspace(0, len(points), OUTLINE_POINTS, endpoint=False).astype(int)]
    slope_x = cv2.Sobel(probability, cv2.CV_32F, 1, 0, scale=1 / 8)
    slope_y = cv2.Sobel(probability, cv2.CV_32F, 0, 1, scale=1 / 8)
    x, y = points.astype(int).T
    slope = np.stack([slope_x, slope_y], -1)[y, x].astype(np.float64)
    steepness = np.linalg.norm(slope, axis=1, keepdims=True)
    # Move to where the probability is 1/2, between pixels: one step along the slope, at most one
    # pixel on each axis.
    missing = (0.5 - probability[y, x])[:, None]
    step = (missing * slope / np.maximum(steepness, 1e-3) ** 2).clip(-1, 1)
    xy = (points + step - (CROP - 1) / 2) * side / CROP + region[:2]
    size = np.array([rgb.shape[1], rgb.shape[0]])
    border = SEEN_FROM_EDGE * size.max()
    valid = (steepness[:, 0] > LEAST_SLOPE) & (xy > border).all(1)
    valid &= (xy < size - 1 - border).all(1)
    valid &= (points > 1).all(1) & (points < CROP - 2).all(1)
    xy[~valid] = np.nan
    normal = -slope / np.maximum(steepness, 1e-6)
    return Outlines(np.array([row]), xy[None].astype(np.float32), normal[None].astype(np.float32))
