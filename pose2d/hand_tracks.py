"""Follow both hands of people from frame to frame.

Once a hand is found, the network follows it with one square per frame, as long as its wrist stays
near the body's wrist. Two rules save looks of the network, which are most of what hands cost: where
all hands of a frame move evenly, every second frame is interpolated; and an arm at which no hand was
found is searched again only after a while.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np

from pose2d.base.table import column_fields
from pose2d.hands import SEEN, Arms, FoundHands, arms_of, hands_in_image
from pose2d.types import Detections, HandKeypoints
from pose2d.video.frames import Frame

LONGEST_S = 0.2  # longest time over which a hand is followed
# Time after which an arm is searched again at which no hand was found. Where none was found for
# RECENT_S, it doubles with every search up to the longest one.
SEARCH_S = 0.1
LONGEST_SEARCH_S = 0.4
RECENT_S = 1.0
# A hand moves evenly if its keypoints are at most so far from where the two looks before lead, in
# lengths of the hand. Interpolating over twice the time errs by at most half as much.
EVEN = 0.04
LONGEST_GAP_S = 0.042  # between frames of which one may be interpolated: 24 frames/s and more
_COLUMNS = tuple(name for name, _ in column_fields(HandKeypoints))

Key = tuple[int, bool]  # identity, and whether it is the right hand


@dataclass
class _Hand:
    """What is known of one hand from the frames so far."""

    searched_s: float = -np.inf  # when the network looked last
    found_s: float = -np.inf  # when it found the hand last
    wait_s: float = 0.0  # until it looks again, after it found nothing
    wrist_px: np.ndarray = field(default_factory=lambda: np.zeros(2))  # the body's, then
    values: dict[str, np.ndarray] = field(default_factory=dict)  # columns of HandKeypoints, then
    before: tuple[float, np.ndarray] | None = None  # time and keypoints of the look before that
    moves_evenly: bool = False
    skipped: list[tuple[int, float]] = field(default_factory=list)  # rows and times since then

    def is_followed(self, time_s: float) -> bool:
        """Tell whether the hand was found a short time ago."""
        return time_s - self.found_s <= LONGEST_S

    def can_be_skipped(self, time_s: float) -> bool:
        """Tell whether the hand in this frame can be interpolated from the frames beside it."""
        return self.moves_evenly and not self.skipped and time_s - self.found_s <= LONGEST_GAP_S

    def is_searched(self, time_s: float) -> bool:
        """Tell whether the network looks for the hand, if it is not followed."""
        return time_s - self.searched_s >= self.wait_s - 1e-6

    def miss(self, time_s: float) -> None:
        """Note that the network found nothing."""
        was_recent = time_s - self.found_s <= RECENT_S
        longer_s = SEARCH_S if was_recent else 2 * self.wait_s
        self.wait_s = min(max(longer_s, SEARCH_S), LONGEST_SEARCH_S)

    def take(self, time_s: float, wrist_px: np.ndarray, values: dict[str, np.ndarray]) -> None:
        """Note where the hand was found."""
        xy_px = values["xy_px"]
        self.moves_evenly = False
        if self.values and self.is_followed(time_s):
            if self.before is not None:
                time_before_s, xy_before_px = self.before
                speed = (self.values["xy_px"] - xy_before_px) / (self.found_s - time_before_s)
                expected_px = self.values["xy_px"] + (time_s - self.found_s) * speed
                away_px = np.linalg.norm(xy_px - expected_px, axis=-1).mean()
                self.moves_evenly = bool(away_px <= EVEN * values["size_px"])
            self.before = (self.found_s, self.values["xy_px"])
        else:
            self.before = None
        self.found_s = time_s
        self.wait_s = 0.0
        self.wrist_px = wrist_px
        self.values = values


class HandFollower:
    """Finds the hands of people in a video whose frames come in pieces, in order of time."""

    def __init__(self) -> None:
        self._hands: dict[Key, _Hand] = {}

    def find(
        self,
        frames: Iterable[Frame],
        rows: Detections,
        progress: Callable[[int], None] = lambda frames: None,
    ) -> HandKeypoints:
        """Find both hands of all people in the next frames; the result has a row for each of
        `rows`, which are people in these frames in any order.

        `progress` is called after each frame that has arms."""
        hands = HandKeypoints.unseen(len(rows))
        arms = arms_of(rows)
        in_frame: dict[int, list[int]] = {}
        last_frame: dict[Key, int] = {}
        for arm in np.flatnonzero(arms.seen & arms.large).tolist():
            frame_number = int(rows.frame[arms.row[arm]])
            in_frame.setdefault(frame_number, []).append(arm)
            key = (int(rows.identity[arms.row[arm]]), bool(arms.right[arm]))
            last_frame[key] = max(frame_number, last_frame.get(key, frame_number))
        for frame in frames if in_frame else ():
            if frame.index not in in_frame:
                continue
            frame_arms = arms.rows(in_frame.pop(frame.index))
            identity = rows.identity[frame_arms.row].tolist()
            keys = list(zip(identity, frame_arms.right.tolist(), strict=True))
            comes_again = [last_frame[key] > frame.index for key in keys]
            self._find_in_frame(frame, frame_arms, keys, comes_again, hands)
            progress(1)
            if not in_frame:
                break
        for hand in self._hands.values():  # their rows are of these frames only
            hand.skipped = []
        return hands

    def _find_in_frame(
        self,
        frame: Frame,
        arms: Arms,
        keys: list[Key],
        comes_again: list[bool],
        result: HandKeypoints,
    ) -> None:
        """Put the hands of a frame into their rows of `result`, and those of skipped frames."""
        time_s = float(frame.time_s)
        tracks = [self._hands.setdefault(key, _Hand()) for key in keys]
        followed = [number for number, hand in enumerate(tracks) if hand.is_followed(time_s)]
        if followed and all(
            comes_again[number] and tracks[number].can_be_skipped(time_s) for number in followed
        ):
            for number in followed:
                tracks[number].skipped.append((int(arms.row[number]), time_s))
            return
        wanted = [
            number
            for number, hand in enumerate(tracks)
            if hand.is_followed(time_s) or hand.is_searched(time_s)
        ]
        if not wanted:
            return
        arms = arms.rows(wanted)
        tracks = [tracks[number] for number in wanted]
        previous = np.full((len(arms), 21, 2), np.nan)
        for number, hand in enumerate(tracks):
            hand.searched_s = time_s
            if hand.is_followed(time_s):
                previous[number] = hand.values["xy_px"] + arms.wrist_px[number] - hand.wrist_px
        found = hands_in_image(frame.rgb, arms, previous)
        for number, hand in enumerate(tracks):
            if found.presence[number] >= SEEN:
                _put(hand, time_s, arms.rows([number]), found.rows([number]), result)
            else:
                hand.miss(time_s)
            hand.skipped = []


def _put(hand: _Hand, time_s: float, arm: Arms, found: FoundHands, result: HandKeypoints) -> None:
    """Put a hand that was found into its row, and interpolate it in the frames skipped before."""
    values = {name: getattr(found, name)[0] for name in _COLUMNS}
    side = int(arm.right[0])
    for row, skipped_s in hand.skipped:
        share = (skipped_s - hand.found_s) / (time_s - hand.found_s)
        for name in _COLUMNS:
            between = (1 - share) * hand.values[name] + share * values[name]
            getattr(result, name)[row, side] = between
    for name in _COLUMNS:
        getattr(result, name)[arm.row[0], side] = values[name]
    hand.take(time_s, arm.wrist_px[0], values)


def find_hands(
    frames: Iterable[Frame], rows: Detections, progress: Callable[[int], None] = lambda frames: None
) -> HandKeypoints:
    """Find both hands of all people; the result has a row for each of `rows`.

    Frames come in order of time; `progress` is called after each frame that has arms."""
    return HandFollower().find(frames, rows, progress)
