"""Keep a hand's side over time where it is seen alone.

The arm decides whether a hand is a left or a right one. Where little more than a hand is in the
image, the body's keypoints hardly tell the arms apart, and the hand would change its side from
frame to frame."""

import numpy as np

from pose2d.hand_tracks import LONGEST_S
from pose2d.hands import SAME, SEEN
from pose2d.skeletons import COCO17
from pose2d.types import Detections, HandKeypoints

# By how much confidence times presence of the new wrist has to be higher than that of the old one
# for a hand to change its side. Not tuned.
CLEARLY_SURER = 0.5
_WRISTS = [COCO17.keypoints.index(f"{side}_wrist") for side in ("left", "right")]


def keep_sides(rows: Detections, hands: HandKeypoints, fps: float) -> HandKeypoints:
    """Return the hands of people's rows [N] with sides that do not change without a reason.

    rows: person after person, frames rising. A person's only hand keeps its side if the only hand
    just before was at the same place, unless the wrist of its new arm is clearly surer."""
    visible = (hands.presence >= SEEN).sum(1)
    side = hands.presence.argmax(1)
    sure = rows.sure[:, _WRISTS]
    is_swapped = np.zeros(len(rows), bool)
    last = -1  # the last row with one hand
    last_side = -1  # of the hand in that row, as it is returned
    for row in np.flatnonzero(visible).tolist():
        if visible[row] == 2:  # which tell each other apart
            last = -1
            continue
        now = int(side[row])
        is_near = last >= 0 and _is_same_hand(rows, hands, (last, int(side[last])), (row, now), fps)
        is_surer = sure[row, now] >= sure[row, 1 - now] + CLEARLY_SURER
        is_swapped[row] = is_near and now != last_side and not is_surer
        last = row
        last_side = 1 - now if is_swapped[row] else now
    return hands.swap_sides(is_swapped) if is_swapped.any() else hands


def _is_same_hand(
    rows: Detections,
    hands: HandKeypoints,
    before: tuple[int, int],
    now: tuple[int, int],
    fps: float,
) -> bool:
    """Tell whether two hands (row, side) are one person's within a short time at one place."""
    if rows.identity[before[0]] != rows.identity[now[0]]:
        return False
    if rows.frame[now[0]] - rows.frame[before[0]] > LONGEST_S * fps:
        return False
    away_px = np.linalg.norm(hands.xy_px[now] - hands.xy_px[before], axis=-1).mean()
    return bool(away_px < SAME * hands.size_px[now])
