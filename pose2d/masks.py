"""Where a person ends: outlines of everybody in a few well-chosen frames, for the body's girth
(docs/masks.md).

MediaPipe's pose landmark network (lite) tells the pixels of one person in a square around the hips
from all others. Ten frames of a track are enough, so masks are made once it is known who is who: of
frames that show the whole person with confidence and nobody else close by, from different sides and
at different times. What is kept of a mask is its outline: points in pixels of the image, each with
its normal to the outside.
"""

from collections.abc import Iterable, Iterator
from functools import cache

import cv2
import numpy as np

from pose2d.crops import squares
from pose2d.detect.boxes import intersection
from pose2d.models.checkpoints import WEIGHTS, read_state
from pose2d.models.convolutions import OnnxNetwork
from pose2d.skeletons import COCO17
from pose2d.tracking.track_path import rows_of_frames
from pose2d.types import OUTLINE_POINTS, Detections, Outlines
from pose2d.video.frames import Frame

MASK_WEIGHTS, MASK_GRAPH = "person_mask_fp16.npz", "person_mask.onnx"  # tools/convert_mediapipe.py
CROP = 256  # side of what the network sees, in pixels
# side of the square over the distance from the hips to the farthest keypoint: MediaPipe's is 2.3 to
# 2.5
REGION = 2.4
MASKS = 10  # of a person, at most
LEAST_SURE = 0.3  # confidence times presence of a keypoint that is seen
# from the highest to the lowest keypoint: smaller people are blurred in the network's square
LEAST_PX = 80.0
FREE = 0.1  # share of a person's box that others' boxes may cover
INSIDE = 0.8  # share of the seen keypoints that lie in a mask that is this person's
# of the image's longer side: an outline that is nearer to the edge is where the image ends
SEEN_FROM_EDGE = 0.01
CANDIDATES = 400  # rows of a person among which frames are chosen
_SHOULDERS, _HIPS, _KNEES, _ANKLES = (
    [COCO17.keypoints.index(f"{side}_{part}") for side in ("left", "right")]
    for part in ("shoulder", "hip", "knee", "ankle")
)


@cache
def network() -> OnnxNetwork:
    return OnnxNetwork(MASK_GRAPH, read_state(WEIGHTS / MASK_WEIGHTS))


def chosen_rows(rows: Detections, size_wh: tuple[int, int]) -> np.ndarray:
    """Rows of `rows` (person after person) of which masks are made: at most MASKS a person."""
    if rows.keypoints is None or not len(rows):
        return np.zeros(0, np.int64)
    xy = rows.xy_px.astype(np.float64)[:, :17]
    sure = rows.sure[:, :17]
    inside = ((xy >= 0) & (xy <= np.array(size_wh) - 1)).all(-1)
    seen = np.where(inside, sure, 0) * np.isfinite(xy).all(-1)
    torso = seen[:, _SHOULDERS + _HIPS].min(1)
    whole = np.minimum(torso, seen[:, _KNEES + _ANKLES].min(1))
    known = np.where((seen >= LEAST_SURE)[..., None], xy, np.nan)
    good = (torso >= LEAST_SURE) & (_covered_by_others(rows) <= FREE)
    good[good] = (np.nanmax(known[good, :, 1], 1) - np.nanmin(known[good, :, 1], 1)) >= LEAST_PX
    quality = np.where(whole >= LEAST_SURE, 1 + whole, 0.5 * torso) * good
    trunk = xy[:, _SHOULDERS].mean(1) - xy[:, _HIPS].mean(1)
    facing = (xy[:, _SHOULDERS] - xy[:, _SHOULDERS[::-1]])[:, 0, 0] / np.maximum(
        np.linalg.norm(trunk, axis=1), 1
    )
    chosen = []
    for identity in np.unique(rows.identity):
        mine = np.flatnonzero((rows.identity == identity) & (quality > 0))
        mine = mine[:: max(1, len(mine) // CANDIDATES)]
        if not len(mine):
            continue
        long = max(int(rows.frame[mine[-1]] - rows.frame[mine[0]]), 1)
        place = np.stack(
            [facing[mine].clip(-1, 1), (rows.frame[mine] - rows.frame[mine[0]]) / long], 1
        )
        taken = [int(quality[mine].argmax())]
        while len(taken) < min(MASKS, len(mine)):  # the best of those that are unlike all before
            apart = np.linalg.norm(place[:, None] - place[taken], axis=-1).min(1)
            taken.append(int((quality[mine] * apart).argmax()))
        chosen.append(mine[np.unique(taken)])
    return np.concatenate(chosen) if chosen else np.zeros(0, np.int64)


def _covered_by_others(rows: Detections) -> np.ndarray:
    """[N] the largest share of a box that one other box of its frame covers."""
    covered = np.zeros(len(rows))
    for here in rows_of_frames(rows):
        mine = rows.box_px[here].astype(np.float64)
        share = (
            intersection(mine, mine) / np.maximum((mine[:, 2:] - mine[:, :2]).prod(-1), 1)[:, None]
        )
        covered[here] = (share * (1 - np.eye(len(here)))).max(1)
    return covered


class MaskFinder:
    """Makes masks of chosen rows while somebody else goes over the video."""

    def __init__(self, rows: Detections, size_wh: tuple[int, int]) -> None:
        self.rows = rows
        self.made = [Outlines.empty()]
        self._wanted: dict[int, list[int]] = {}
        for row in chosen_rows(rows, size_wh).tolist():
            self._wanted.setdefault(int(rows.frame[row]), []).append(row)

    def __len__(self) -> int:
        """Frames that are still to come."""
        return len(self._wanted)

    def watching(self, frames: Iterable[Frame]) -> Iterator[Frame]:
        """The same frames, looked at on the way."""
        for frame in frames:
            for row in self._wanted.pop(frame.index, ()):
                keypoints = self.rows.xy_px[row].astype(np.float64)
                sure = self.rows.sure[row]
                self.made.append(
                    outline_of(
                        frame.rgb, keypoints[sure >= LEAST_SURE], keypoints[_HIPS].mean(0), row
                    )
                )
            yield frame

    @property
    def outlines(self) -> Outlines:
        """In the order of rows."""
        made = Outlines.concat(self.made)
        return made.rows(np.argsort(made.row, kind="stable"))


def mask_of(rgb: np.ndarray, region: np.ndarray) -> np.ndarray:
    """[256, 256] logits of the person in a square [3]: its centre and its side in pixels."""
    return (
        network()(squares([rgb], np.array([[*region, 0.0]]), CROP))[0].numpy().reshape(CROP, CROP)
    )


def person_mask(
    rgb: np.ndarray, seen_px: np.ndarray, middle_px: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """Of who has keypoints seen_px [K, 2] around the hips' middle [2]: a region [3], the
    probability of the person there [256, 256], and the part of it [256, 256] that is this person.
    None: it is nobody's."""
    side = REGION * float(np.linalg.norm(seen_px - middle_px, axis=1).max())
    region = np.array([*middle_px, side])
    probable = cv2.GaussianBlur(1 / (1 + np.exp(-mask_of(rgb, region).clip(-30, 30))), (0, 0), 1.0)
    _, label = cv2.connectedComponents((probable > 0.5).astype(np.uint8))
    at = (
        np.round((seen_px - region[:2]) * CROP / side + (CROP - 1) / 2)
        .astype(int)
        .clip(0, CROP - 1)
    )
    whose = label[at[:, 1], at[:, 0]]
    mine = 1 + np.bincount(whose, minlength=2)[1:].argmax()
    return None if np.mean(whose == mine) < INSIDE else (region, probable, label == mine)


def outline_of(rgb: np.ndarray, seen_px: np.ndarray, middle_px: np.ndarray, row: int) -> Outlines:
    """The outline of who has keypoints seen_px [K, 2] around the hips' middle [2]; no row where it
    is nobody's.
    """
    mask = person_mask(rgb, seen_px, middle_px)
    if mask is None:
        return Outlines.empty()
    region, probable, mine = mask
    side = region[2]
    contours, _ = cv2.findContours(mine.astype(np.uint8), cv2.RETR_CCOMP, cv2.CHAIN_APPROX_NONE)
    points = np.concatenate([line[:, 0] for line in contours if len(line) > 8]).astype(np.float64)
    points = points[np.linspace(0, len(points), OUTLINE_POINTS, endpoint=False).astype(int)]
    rise = np.stack(
        [cv2.Sobel(probable, cv2.CV_32F, *axis, scale=1 / 8) for axis in ((1, 0), (0, 1))], -1
    )
    x, y = points.astype(int).T
    slope = rise[y, x].astype(np.float64)
    steep = np.linalg.norm(slope, axis=1, keepdims=True)
    # To where the probability is 1/2, between pixels: one step along the slope, at most a pixel.
    move = ((0.5 - probable[y, x])[:, None] * slope / np.maximum(steep, 1e-3) ** 2).clip(-1, 1)
    xy = (points + move - (CROP - 1) / 2) * side / CROP + region[:2]
    size = np.array([rgb.shape[1], rgb.shape[0]])
    edge = SEEN_FROM_EDGE * size.max()
    known = (steep[:, 0] > 0.02) & (xy > edge).all(1) & (xy < size - 1 - edge).all(1)
    known &= (points > 1).all(1) & (points < CROP - 2).all(1)
    xy[~known] = np.nan
    normal = -slope / np.maximum(steep, 1e-6)
    return Outlines(np.array([row]), xy[None].astype(np.float32), normal[None].astype(np.float32))
