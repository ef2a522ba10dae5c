"""Find 21 keypoints of both hands of each person, with their error, from the body's keypoints.

MediaPipe's hand landmark network reads a square that the hand fills, turned so that the fingers
point up. The arm tells where a hand is, so no palm detector is needed. The first square lies beyond
the wrist, along the forearm; the next ones lie around the network's own landmarks. A hand is left
or right by the arm it belongs to. `pose2d.hand_tracks` follows hands from frame to frame.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from pose2d.base.columns import column
from pose2d.base.embedded import check_embedded
from pose2d.base.table import Table
from pose2d.crops import squares, turns
from pose2d.models.checkpoints import WEIGHTS, read_state
from pose2d.models.convolutions import OnnxNetwork
from pose2d.skeletons import COCO17
from pose2d.types import AREA_OF_BOX, Detections, l_squared, sigma_px

HAND_WEIGHTS = "hand_landmarks_fp16.npz"  # tools/convert_mediapipe.py
HAND_GRAPH = "hand_landmarks.onnx"
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
HAND_BONES = tuple((0 if joint % 4 == 1 else joint - 1, joint) for joint in range(1, 21))
CROP = 224  # side of the network's input in pixels
PALM = (0, 1, 2, 3, 5, 6, 9, 10, 13, 14, 17, 18)
REGION = 2.0  # side of the square over the extent of PALM, as the network was trained
MIDDLE = (0, 9, 10, 11, 12)  # from the wrist to the tip of the middle finger: a hand's length
LEAST_PX = 24.0  # least length in the image of hands that are looked for
HAND_OF_FOREARM = 0.73  # length of a hand over that of a forearm, from elbow to wrist
LEAST_SURE = 0.2  # least confidence times presence of a wrist whose hand is looked for
# The hand's wrist may be away from the body's by this share of the hand's length plus this many
# standard deviations of the body's wrist.
WRIST_OF_HAND = 0.25
WRIST_STD = 2.0
SIZE_RATIO = 2.2  # largest ratio of a hand's length to the length that the body suggests
STARTS = 3  # squares that are tried for a hand that was not followed
# Least presence of a hand that is kept. Hands with such a low value are right more often than it
# says (docs/hands.md).
SEEN = 0.15
HOPELESS = 0.02  # score of the network below which no second square is tried
SAME = 0.3  # mean distance of keypoints, in lengths of a hand, below which two hands are one
_ARMS = np.array(
    [
        [COCO17.keypoints.index(f"{side}_{part}") for part in ("shoulder", "elbow", "wrist")]
        for side in SIDES
    ]
)
_HIPS = [COCO17.keypoints.index(f"{side}_hip") for side in SIDES]


@dataclass(frozen=True)
class Look(Table):
    """The network's output for N squares."""

    xy_px: np.ndarray = column((21, 2), "f", "in the image", unit="px")  # [N, 21, 2]
    score: np.ndarray = column((), "f", "that there is a hand")  # [N]
    right: np.ndarray = column((), "f", "that it is a right one, seen in no mirror")  # [N]
    # [N, 21, 3]
    landmarks_m: np.ndarray = column((21, 3), "f", "relative to the wrist, camera axes", unit="m")

    @property
    def size_px(self) -> np.ndarray:
        """Return the length [N] that the hands would have in the image if they were flat and faced
        the camera.
        """
        image = self.xy_px - self.xy_px.mean(1, keepdims=True)
        metric = self.landmarks_m[..., :2]
        metric = metric - metric.mean(1, keepdims=True)
        extent = np.maximum((metric**2).sum((1, 2)), 1e-12)
        px_per_m = np.sqrt((image**2).sum((1, 2)) / extent)
        bones = np.diff(self.landmarks_m[:, MIDDLE], axis=1)
        return np.asarray(px_per_m * np.linalg.norm(bones, axis=-1).sum(1))


@cache
def network() -> OnnxNetwork:
    """Load the hand network once."""
    return OnnxNetwork(HAND_GRAPH, read_state(check_embedded(WEIGHTS / HAND_WEIGHTS)))


def look(images: Sequence[np.ndarray], regions: np.ndarray) -> Look:
    """Run the network on a square in each of N RGB images.

    regions [N, 4]: x and y of the centre, side in pixels, and angle that the square is turned by.
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
    """Return squares [N, 4] around hands [N, 21, 2], with the knuckles above the wrist."""
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
    """Return squares [N, 4] beyond the wrist along the forearm, for hands not found yet."""
    arm = arms.wrist_px - arms.elbow_px
    along = arm / np.maximum(np.linalg.norm(arm, axis=1, keepdims=True), 1)
    middle = arms.wrist_px + 0.3 * arms.forearm_px[:, None] * along
    angle = np.arctan2(arm[:, 1], arm[:, 0]) + np.pi / 2
    return np.column_stack([middle, 1.7 * arms.forearm_px, angle])


def forearm_px(xy_px: np.ndarray, sure: np.ndarray) -> np.ndarray:
    """Return the forearm lengths [N, 2] in the image as if seen at a right angle.

    xy_px [N, K, 2] and sure [N, K] are the body's keypoints. Forearms are foreshortened, so the
    largest of several estimates counts: the forearm itself, and the upper arm, shoulder width and
    torso times the average ratio of a forearm to them."""
    shoulder, elbow, wrist = (xy_px[:, _ARMS[:, part]] for part in range(3))
    visible = sure >= LEAST_SURE
    torso = shoulder.mean(1) - xy_px[:, _HIPS].mean(1)
    shoulders = shoulder[:, 0] - shoulder[:, 1]
    shoulders_visible = visible[:, _ARMS[:, 0]].all(1)
    torso_visible = shoulders_visible & visible[:, _HIPS].all(1)
    from_forearm = np.linalg.norm(wrist - elbow, axis=-1)
    from_upper_arm = 0.9 * np.linalg.norm(elbow - shoulder, axis=-1)
    from_upper_arm = from_upper_arm * visible[:, _ARMS[:, :2]].all(-1)
    from_shoulders = 0.7 * np.linalg.norm(shoulders, axis=-1) * shoulders_visible
    from_torso = 0.5 * np.linalg.norm(torso, axis=-1) * torso_visible
    estimates = np.stack(
        [
            from_forearm,
            from_upper_arm,
            from_shoulders[:, None].repeat(2, 1),
            from_torso[:, None].repeat(2, 1),
        ]
    )
    return np.asarray(np.nan_to_num(estimates).max(0))


@dataclass(frozen=True)
class Arms(Table):
    """N arms of people, whose hands are looked for."""

    elbow_px: np.ndarray = column((2,), "d", "of the body's keypoints", unit="px")  # [N, 2]
    wrist_px: np.ndarray = column((2,), "d", "of the body's keypoints", unit="px")  # [N, 2]
    wrist_std_px: np.ndarray = column((), "d", "stated error of the wrist", unit="px")  # [N]
    # [N]
    forearm_px: np.ndarray = column((), "d", "its length as seen at a right angle", unit="px")
    sure: np.ndarray = column((), "d", "confidence times presence of the wrist")  # [N]
    right: np.ndarray = column((), "b", "the right arm")  # [N]
    row: np.ndarray = column((), "i", "of the person")  # [N]

    @property
    def seen(self) -> np.ndarray:
        """Return whether the wrist is visible, [N]."""
        is_located = np.isfinite(self.wrist_px).all(-1) & (self.forearm_px > 1)
        return np.asarray((self.sure >= LEAST_SURE) & is_located)

    @property
    def large(self) -> np.ndarray:
        """Return whether a hand would be large enough to be found, [N]."""
        return np.asarray(HAND_OF_FOREARM * self.forearm_px >= LEAST_PX)


def arms_of(rows: Detections) -> Arms:
    """Return the arms of each person, left before right."""
    xy_px = rows.xy_px.astype(np.float64)
    sure = rows.sure
    wrists = _ARMS[:, 2]
    if rows.points.area_px2 is None:
        area = AREA_OF_BOX * (rows.box_px[:, 2:] - rows.box_px[:, :2]).prod(1)
    else:
        area = np.asarray(rows.points.area_px2)
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


@dataclass(frozen=True)
class FoundHands(Look):
    """The network's output at N arms, with calibrated error and presence."""

    std_px: np.ndarray = column((21,), "f", "stated error along each axis", unit="px")  # [N, 21]
    presence: np.ndarray = column((), "f", "probability that the hand is seen there")  # [N]


def hands_in_image(rgb: np.ndarray, arms: Arms, before_px: np.ndarray) -> FoundHands:
    """Find the hand of each arm in an RGB image; presence is 0 where there is none.

    before_px [N, 21, 2]: keypoints in the previous frame, moved with the wrist; NaN: not found."""
    followed = np.isfinite(before_px[:, 0, 0])
    regions = region_of_arm(arms)
    regions[followed] = region_around(before_px[followed])
    hands = _look_at_arms(rgb, arms, regions, before_px)
    lost = followed & (hands.presence < SEEN)
    if lost.any():
        lost_arms = arms.rows(lost)
        no_guess = np.full_like(before_px[lost], np.nan)
        hands = hands.put(lost, _look_at_arms(rgb, lost_arms, region_of_arm(lost_arms), no_guess))
    for _ in range(STARTS - 1):
        retry = np.flatnonzero((~followed | lost) & (hands.score > HOPELESS))
        if len(retry):
            guess = hands.xy_px[retry]
            again = _look_at_arms(rgb, arms.rows(retry), region_around(guess), guess)
            hands = hands.put(retry, again)
    return replace(hands, presence=np.where(_belongs_to_other(hands, arms), 0, hands.presence))


def _look_at_arms(
    rgb: np.ndarray, arms: Arms, regions: np.ndarray, guess_px: np.ndarray
) -> FoundHands:
    """Run the network on a square at each arm, and calibrate its output.

    guess_px [N, 21, 2]: keypoints that the square was made around; NaN: it was made from the arm.
    """
    output = look([rgb] * len(arms), regions)
    size_wh = (rgb.shape[1], rgb.shape[0])
    constants = _constants()
    log_odds = presence_features(output, arms, size_wh) @ constants["presence"]
    features = error_features(output, guess_px, size_wh)
    std = relative_std(features, constants["error"], constants["floor"])
    return FoundHands(
        **vars(output),
        std_px=(output.size_px[:, None] * std).astype(np.float32),
        presence=(fits_arm(output, arms) / (1 + np.exp(-log_odds))).astype(np.float32),
    )


def _wrist_distance(output: Look, arms: Arms) -> np.ndarray:
    """Return the distance [N] from the body's wrist to the hand's; 1: the most that is allowed."""
    most = WRIST_OF_HAND * output.size_px + WRIST_STD * arms.wrist_std_px
    distance = np.linalg.norm(output.xy_px[:, 0] - arms.wrist_px, axis=-1)
    return np.asarray(distance / np.maximum(most, 1e-6))


def fits_arm(output: Look, arms: Arms) -> np.ndarray:
    """Tell which hands [N] can belong to their arm, by the place of the wrist and by size."""
    size = output.size_px
    ratio = size / np.maximum(HAND_OF_FOREARM * arms.forearm_px, 1e-6)
    has_right_size = (size >= LEAST_PX / 2) & (ratio < SIZE_RATIO) & (ratio > 1 / SIZE_RATIO)
    return np.asarray(has_right_size & (_wrist_distance(output, arms) <= 1))


def _belongs_to_other(hands: FoundHands, arms: Arms) -> np.ndarray:
    """Tell which hands [N] were also found at another arm, whose wrist is nearer."""
    wrist_distance = np.linalg.norm(hands.xy_px[:, 0] - arms.wrist_px, axis=-1)
    away = wrist_distance / np.maximum(hands.size_px, 1e-6)
    distance = np.linalg.norm(hands.xy_px[:, None] - hands.xy_px, axis=-1).mean(-1)
    same = distance < SAME * np.maximum(hands.size_px[:, None], hands.size_px)
    same &= (hands.presence[:, None] >= SEEN) & (hands.presence >= SEEN)
    order = np.arange(len(arms))
    nearer = (away < away[:, None]) | ((away == away[:, None]) & (order < order[:, None]))
    return np.asarray((same & nearer).any(1))


@cache
def _constants() -> dict[str, np.ndarray]:
    """Return the calibration of errors and presence."""
    constants = json.loads(check_embedded(HAND_CONSTANTS).read_text())
    return {name: np.array(values) for name, values in constants.items()}


def error_features(output: Look, guess_px: np.ndarray, size_wh: tuple[int, int]) -> np.ndarray:
    """Return the features [N, 21, 6] from which the error of a keypoint is predicted.

    They are the hand's size, the network's score, the distance from the guess, the distance outside
    the image, and the share of the hand that is outside."""
    size = np.maximum(output.size_px, 1)[:, None]
    moved = np.nan_to_num(np.linalg.norm(output.xy_px - guess_px, axis=-1) / size, nan=0.5)
    beyond = np.maximum(-output.xy_px, output.xy_px - np.array(size_wh) + 1)
    outside = np.maximum(beyond, 0).max(-1) / size
    features = (
        np.ones(1),
        np.log(size / 100),
        np.log(1.005 - output.score[:, None]),
        np.log(moved.mean(1, keepdims=True) + moved + 0.02),
        np.minimum(outside, 1),
        (outside > 0).mean(1, keepdims=True),
    )
    return np.stack([np.broadcast_to(feature, moved.shape) for feature in features], -1)


def relative_std(features: np.ndarray, error: np.ndarray, floor: np.ndarray) -> np.ndarray:
    """Return the error [..., 21] in lengths of the hand; `floor` is that of the clearest hands."""
    return np.asarray(np.sqrt(np.exp(2 * features @ error) + floor**2))


def presence_features(output: Look, arms: Arms, size_wh: tuple[int, int]) -> np.ndarray:
    """Return the features [N, 6] from which the probability of a hand is predicted.

    They are the network's score, the distance of the wrists, the hand's size, whether it is a hand
    of that side, and the share of it that is in the image."""
    same_side = np.where(arms.right, output.right, 1 - output.right)
    is_inside = (output.xy_px >= 0) & (output.xy_px <= np.array(size_wh) - 1)
    inside = is_inside.all(-1).mean(1)
    score = np.log((output.score + 1e-3) / (1 - output.score + 1e-3))
    distance = np.minimum(_wrist_distance(output, arms), 2)
    size = np.log(np.maximum(output.size_px, 1) / 100)
    return np.stack([np.ones(len(distance)), score, distance, size, same_side, inside], 1)
