"""Hands: 21 keypoints of both hands of a person, with their stated error, beside the body's
keypoints.

MediaPipe's hand landmark network reads a square that the hand fills, turned so that the fingers
point up. Where a hand begins is known from the arm: there is no detector of palms. The first square
lies beyond the wrist, along the forearm; the next ones around the network's own landmarks. Once a
hand is found, one look a frame follows it, as long as its wrist stays where the body's keypoint
says. Left and right is the arm that a hand hangs on.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from pose2d.base.columns import column
from pose2d.base.table import Table, column_fields
from pose2d.crops import squares, turns
from pose2d.models.checkpoints import WEIGHTS, read_state
from pose2d.models.convolutions import OnnxNetwork
from pose2d.skeletons import COCO17
from pose2d.types import AREA_OF_BOX, Detections, HandKeypoints, l_squared, sigma_px
from pose2d.video.frames import Frame

HAND_WEIGHTS, HAND_GRAPH = (
    "hand_landmarks_fp16.npz",
    "hand_landmarks.onnx",
)  # tools/convert_mediapipe.py
HAND_CONSTANTS = WEIGHTS / "hand_error.json"  # training/calibrate_hands.py
SIDES = ("left", "right")  # of the person: axis 1 of every column
FINGERS = ("thumb", "index", "middle", "ring", "little")
# The order of the 21 keypoints is MediaPipe's: the wrist, then each finger's joints from the palm
# outwards.
HAND_KEYPOINTS = (
    "wrist",
    *("thumb_cmc", "thumb_mcp", "thumb_ip", "thumb_tip"),
    *(f"{finger}_{joint}" for finger in FINGERS[1:] for joint in ("mcp", "pip", "dip", "tip")),
)
HAND_BONES = tuple(
    (0 if joint % 4 == 1 else joint - 1, joint) for joint in range(1, 21)
)  # along each finger
CROP = 224  # side of what the network sees, in pixels
PALM = (0, 1, 2, 3, 5, 6, 9, 10, 13, 14, 17, 18)  # between them and the region around a hand ..
REGION = 2.0  # .. is this ratio: MediaPipe's, which the network was trained with
MIDDLE = (0, 9, 10, 11, 12)  # from the wrist to the tip of the middle finger: a hand's length
LEAST_PX = 24.0  # a hand's length in the image: smaller ones are not looked for
HAND_OF_FOREARM = 0.73  # a hand's length over that of a forearm, from elbow to wrist
LEAST_SURE = 0.2  # confidence times presence of a wrist whose hand is looked for
WRIST_OF_HAND = 0.25  # the network's wrist and the body's are this near, in lengths of the hand, ..
WRIST_STD = 2.0  # .. and so many stated errors of the body's wrist
SIZE_RATIO = 2.2  # a hand is at most so many times as long or as short as the body says
STARTS = 3  # looks until a hand that was not followed counts as found
# presence from which a hand is kept; what is stated so low is seen more often (docs/hands.md)
SEEN = 0.15
HOPELESS = 0.02  # the network's score below which nobody looks a second time
LONGEST_S = 0.2  # a hand is followed over so many seconds
SAME = 0.3  # two hands whose keypoints are this near on average, in lengths of a hand, are one
_ARMS = np.array(
    [
        [COCO17.keypoints.index(f"{side}_{part}") for part in ("shoulder", "elbow", "wrist")]
        for side in SIDES
    ]
)
_HIPS = [COCO17.keypoints.index(f"{side}_hip") for side in SIDES]


@dataclass(frozen=True)
class Look(Table):
    """What the network says of N squares."""

    xy_px: np.ndarray = column((21, 2), "f", "in the image", unit="px")  # [N, 21, 2]
    score: np.ndarray = column((), "f", "that there is a hand")  # [N]
    right: np.ndarray = column((), "f", "that it is a right one, seen in no mirror")  # [N]
    landmarks_m: np.ndarray = column(
        (21, 3), "f", "relative to the wrist, camera axes", unit="m"
    )  # [N, 21, 3]

    @property
    def size_px(self) -> np.ndarray:
        """[N] how long the hand would be in the image, flat and across the line of sight."""
        seen, said = (
            part - part.mean(1, keepdims=True) for part in (self.xy_px, self.landmarks_m[..., :2])
        )
        px_per_m = np.sqrt((seen**2).sum((1, 2)) / np.maximum((said**2).sum((1, 2)), 1e-12))
        bones = np.diff(self.landmarks_m[:, MIDDLE], axis=1)
        return np.asarray(px_per_m * np.linalg.norm(bones, axis=-1).sum(1))


@cache
def network() -> OnnxNetwork:
    return OnnxNetwork(HAND_GRAPH, read_state(WEIGHTS / HAND_WEIGHTS))


def look(images: Sequence[np.ndarray], regions: np.ndarray) -> Look:
    """RGB images [N] and a square in each, [N, 4]: its centre, its side in pixels, and the angle it
    is turned by.
    """
    if not len(regions):
        return Look.empty()
    turn = turns(regions[:, 3])
    landmarks, score, right, metres = (
        part.numpy() for part in network()(squares(images, regions, CROP))
    )
    inside = landmarks.reshape(-1, 21, 3)[..., :2] / CROP - 0.5
    metres = metres.reshape(-1, 21, 3)
    metres = metres - metres[:, :1]
    xy = regions[:, None, :2] + regions[:, None, 2:3] * np.einsum("nij,nkj->nki", turn, inside)
    metres[..., :2] = np.einsum("nij,nkj->nki", turn, metres[..., :2])
    return Look(xy.astype(np.float32), score[:, 0], right[:, 0], metres.astype(np.float32))


def region_around(xy_px: np.ndarray) -> np.ndarray:
    """[N, 4] the square to look at next for hands [N, 21, 2]: from the wrist to the knuckles is up."""
    towards = xy_px[:, 5] / 4 + xy_px[:, 9] / 2 + xy_px[:, 13] / 4 - xy_px[:, 0]
    turn = turns(np.arctan2(towards[:, 1], towards[:, 0]) + np.pi / 2)
    palm = xy_px[:, PALM] @ turn  # along the square's own axes
    low = palm.min(1)
    high = palm.max(1)
    side = (high - low).max(1)
    middle = (low + high) / 2 - np.stack([np.zeros_like(side), 0.1 * side], 1)
    middle = np.einsum("nij,nj->ni", turn, middle)
    return np.column_stack([middle, REGION * side, np.arctan2(turn[:, 1, 0], turn[:, 0, 0])])


def region_of_arm(arms: "Arms") -> np.ndarray:
    """[N, 4] the first square: beyond the wrist, along the forearm."""
    arm = arms.wrist_px - arms.elbow_px
    along = arm / np.maximum(np.linalg.norm(arm, axis=1, keepdims=True), 1)
    middle = arms.wrist_px + 0.3 * arms.forearm_px[:, None] * along
    return np.column_stack(
        [middle, 1.7 * arms.forearm_px, np.arctan2(arm[:, 1], arm[:, 0]) + np.pi / 2]
    )


def forearm_px(xy_px: np.ndarray, sure: np.ndarray) -> np.ndarray:
    """[N, 2] how long the forearms of people [N, K, 2] are in the image, if they lay across the
    line of sight: the most that other parts say too, which are longer than a forearm by what people
    have on average."""
    shoulder, elbow, wrist = (xy_px[:, _ARMS[:, part]] for part in range(3))
    seen = sure >= LEAST_SURE
    torso = shoulder.mean(1) - xy_px[:, _HIPS].mean(1)
    shoulders = shoulder[:, 0] - shoulder[:, 1]
    shoulders_seen = seen[:, _ARMS[:, 0]].all(1)
    lengths = np.stack(
        [
            np.linalg.norm(wrist - elbow, axis=-1),
            0.9 * np.linalg.norm(elbow - shoulder, axis=-1) * seen[:, _ARMS[:, :2]].all(-1),
            (0.7 * np.linalg.norm(shoulders, axis=-1) * shoulders_seen)[:, None].repeat(2, 1),
            (0.5 * np.linalg.norm(torso, axis=-1) * (shoulders_seen & seen[:, _HIPS].all(1)))[
                :, None
            ].repeat(2, 1),
        ]
    )
    return np.asarray(np.nan_to_num(lengths).max(0))


@dataclass(frozen=True)
class Arms(Table):
    """Where the hands of people should be."""

    elbow_px: np.ndarray = column((2,), "d", "of the body's keypoints", unit="px")  # [N, 2]
    wrist_px: np.ndarray = column((2,), "d", "of the body's keypoints", unit="px")  # [N, 2]
    wrist_std_px: np.ndarray = column((), "d", "stated error of the wrist", unit="px")  # [N]
    forearm_px: np.ndarray = column(
        (), "d", "its length, if it lay across the line of sight", unit="px"
    )  # [N]
    sure: np.ndarray = column((), "d", "confidence times presence of the wrist")  # [N]
    right: np.ndarray = column((), "b", "the right arm")  # [N]
    row: np.ndarray = column((), "i", "of the person")  # [N]

    @property
    def seen(self) -> np.ndarray:
        """[N]"""
        return np.asarray(
            (self.sure >= LEAST_SURE) & np.isfinite(self.wrist_px).all(-1) & (self.forearm_px > 1)
        )

    @property
    def large(self) -> np.ndarray:
        """[N] a hand would be large enough to be found."""
        return np.asarray(HAND_OF_FOREARM * self.forearm_px >= LEAST_PX)


def arms_of(rows: Detections) -> Arms:
    """Both arms of each person, one after the other."""
    xy_px = rows.xy_px.astype(np.float64)
    sure = rows.sure
    wrists = _ARMS[:, 2]
    known = rows.points.area_px2
    area = (
        AREA_OF_BOX * (rows.box_px[:, 2:] - rows.box_px[:, :2]).prod(1)
        if known is None
        else np.asarray(known)
    )
    falloff = l_squared(area, rows.points.skeleton)[:, wrists]
    std = sigma_px(np.asarray(rows.points.confidence)[:, wrists].clip(0.05, 1), falloff)
    return Arms(
        elbow_px=xy_px[:, _ARMS[:, 1]].reshape(-1, 2),
        wrist_px=xy_px[:, wrists].reshape(-1, 2),
        wrist_std_px=std.ravel(),
        forearm_px=forearm_px(xy_px, sure).ravel(),
        sure=sure[:, wrists].ravel(),
        right=np.tile([False, True], len(rows)),
        row=np.repeat(np.arange(len(rows)), 2),
    )


def find_hands(
    frames: Iterable[Frame], rows: Detections, progress: Callable[[int], None] = lambda frames: None
) -> HandKeypoints:
    """Both hands of everybody, a row for each of `rows`; frames in order of time."""
    hands = HandKeypoints.unseen(len(rows))
    arms = arms_of(rows)
    in_frame: dict[int, list[int]] = {}
    for arm in np.flatnonzero(arms.seen & arms.large).tolist():
        in_frame.setdefault(int(rows.frame[arms.row[arm]]), []).append(arm)
    last: dict[
        tuple[int, bool], tuple[float, np.ndarray, np.ndarray]
    ] = {}  # whose -> time, body's wrist, keypoints
    for frame in frames if in_frame else ():
        if frame.index not in in_frame:
            continue
        here = arms.rows(in_frame.pop(frame.index))
        time_s = float(frame.time_s)
        whose = list(zip(rows.identity[here.row].tolist(), here.right.tolist(), strict=True))
        before = np.full((len(here), 21, 2), np.nan)
        for number, who in enumerate(whose):
            if who in last and time_s - last[who][0] <= LONGEST_S:
                before[number] = last[who][2] + here.wrist_px[number] - last[who][1]
        seen = hands_in_image(frame.rgb, here, before)
        kept = np.flatnonzero(seen.presence >= SEEN)
        for name, _ in column_fields(HandKeypoints):
            values = getattr(seen, name)[kept]
            getattr(hands, name)[here.row[kept], here.right[kept].astype(int)] = values
        last |= {whose[n]: (time_s, here.wrist_px[n], seen.xy_px[n]) for n in kept.tolist()}
        progress(1)
        if not in_frame:
            break
    return hands


@dataclass(frozen=True)
class FoundHands(Look):
    """What was found at N arms, with what is stated of it."""

    std_px: np.ndarray = column((21,), "f", "stated error along each axis", unit="px")  # [N, 21]
    presence: np.ndarray = column((), "f", "probability that the hand is seen there")  # [N]


def hands_in_image(rgb: np.ndarray, arms: Arms, before_px: np.ndarray) -> FoundHands:
    """A hand for each arm, with presence 0 where it is none; before_px [N, 21, 2]: where it was in
    the frame before, moved with the wrist, NaN where it was not seen."""
    followed = np.isfinite(before_px[:, 0, 0])
    regions = region_of_arm(arms)
    regions[followed] = region_around(before_px[followed])
    hands = _looked(rgb, arms, regions, before_px)
    lost = followed & (hands.presence < SEEN)
    if lost.any():
        nothing = np.full_like(before_px[lost], np.nan)
        hands = hands.put(
            lost, _looked(rgb, arms.rows(lost), region_of_arm(arms.rows(lost)), nothing)
        )
    for _ in range(STARTS - 1):
        more = np.flatnonzero((~followed | lost) & (hands.score > HOPELESS))
        if len(more):
            guess = hands.xy_px[more]
            hands = hands.put(more, _looked(rgb, arms.rows(more), region_around(guess), guess))
    return replace(hands, presence=np.where(_of_another_arm(hands, arms), 0, hands.presence))


def _looked(rgb: np.ndarray, arms: Arms, regions: np.ndarray, guess_px: np.ndarray) -> FoundHands:
    """guess_px [N, 21, 2]: keypoints that the regions were made around, NaN where they were made
    from the arm.
    """
    seen = look([rgb] * len(arms), regions)
    size_wh = (rgb.shape[1], rgb.shape[0])
    constants = _constants()
    odds = presence_features(seen, arms, size_wh) @ constants["presence"]
    std = relative_std(
        error_features(seen, guess_px, size_wh), constants["error"], constants["floor"]
    )
    return FoundHands(
        **vars(seen),
        std_px=(seen.size_px[:, None] * std).astype(np.float32),
        presence=(fits_arm(seen, arms) / (1 + np.exp(-odds))).astype(np.float32),
    )


def _wrist_away(seen: Look, arms: Arms) -> np.ndarray:
    """[N] from the body's wrist to the hand's; 1: as far as can be."""
    most = WRIST_OF_HAND * seen.size_px + WRIST_STD * arms.wrist_std_px
    return np.asarray(
        np.linalg.norm(seen.xy_px[:, 0] - arms.wrist_px, axis=-1) / np.maximum(most, 1e-6)
    )


def fits_arm(seen: Look, arms: Arms) -> np.ndarray:
    """[N] a hand can be this arm's: by where its wrist is, and by its size."""
    size = seen.size_px
    ratio = seen.size_px / np.maximum(HAND_OF_FOREARM * arms.forearm_px, 1e-6)
    right_size = (size >= LEAST_PX / 2) & (ratio < SIZE_RATIO) & (ratio > 1 / SIZE_RATIO)
    return np.asarray(right_size & (_wrist_away(seen, arms) <= 1))


def _of_another_arm(hands: FoundHands, arms: Arms) -> np.ndarray:
    """[N] the hand was found at two arms, and this arm's wrist is the farther one."""
    away = np.linalg.norm(hands.xy_px[:, 0] - arms.wrist_px, axis=-1) / np.maximum(
        hands.size_px, 1e-6
    )
    apart = np.linalg.norm(hands.xy_px[:, None] - hands.xy_px, axis=-1).mean(-1)
    same = apart < SAME * np.maximum(hands.size_px[:, None], hands.size_px)
    same &= (hands.presence[:, None] >= SEEN) & (hands.presence >= SEEN)
    order = np.arange(len(arms))
    nearer = (away < away[:, None]) | ((away == away[:, None]) & (order < order[:, None]))
    return np.asarray((same & nearer).any(1))


@cache
def _constants() -> dict[str, np.ndarray]:
    return {
        name: np.array(values) for name, values in json.loads(HAND_CONSTANTS.read_text()).items()
    }


def error_features(seen: Look, guess_px: np.ndarray, size_wh: tuple[int, int]) -> np.ndarray:
    """[N, 21, 6] what the stated error of a keypoint is made of: the hand's size, the network's
    score, how far it is from where it was thought to be, how far outside the image, and how much of
    the hand is outside."""
    size = np.maximum(seen.size_px, 1)[:, None]
    moved = np.nan_to_num(np.linalg.norm(seen.xy_px - guess_px, axis=-1) / size, nan=0.5)
    outside = (
        np.maximum(np.maximum(-seen.xy_px, seen.xy_px - np.array(size_wh) + 1), 0).max(-1) / size
    )
    features = (
        np.ones(1),
        np.log(size / 100),
        np.log(1.005 - seen.score[:, None]),
        np.log(moved.mean(1, keepdims=True) + moved + 0.02),
        np.minimum(outside, 1),
        (outside > 0).mean(1, keepdims=True),
    )
    return np.stack([np.broadcast_to(feature, moved.shape) for feature in features], -1)


def relative_std(features: np.ndarray, error: np.ndarray, floor: np.ndarray) -> np.ndarray:
    """[..., 21] stated error in lengths of the hand; `floor` is what even a still, large, clear
    hand has.
    """
    return np.asarray(np.sqrt(np.exp(2 * features @ error) + floor**2))


def presence_features(seen: Look, arms: Arms, size_wh: tuple[int, int]) -> np.ndarray:
    """[N, 6] what the probability of a hand is made of: the network's score, how far the wrists are
    apart, the hand's size, whether it is a hand of that side, and how much of it is in the
    image."""
    same_side = np.where(arms.right, seen.right, 1 - seen.right)
    inside = ((seen.xy_px >= 0) & (seen.xy_px <= np.array(size_wh) - 1)).all(-1).mean(1)
    score = np.log((seen.score + 1e-3) / (1 - seen.score + 1e-3))
    away = np.minimum(_wrist_away(seen, arms), 2)
    size = np.log(np.maximum(seen.size_px, 1) / 100)
    return np.stack([np.ones(len(away)), score, away, size, same_side, inside], 1)
