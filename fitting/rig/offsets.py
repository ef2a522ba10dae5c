"""When each camera started: the offset of its clock to the first camera's, from people's motion."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fitting.rig.epipolar import FAR, Pose, epipolar_residual, match_tracks, score_track_pairs
from fitting.rig.rig import Rig
from fitting.rig.sights import SAMPLE_S, Sight, sample_times

INDEPENDENT_PER_SECOND = (
    3.0  # as in fitting.problem_setup: errors of neighbouring frames are correlated
)
LONGEST_OFFSET_S = 15.0  # of the search
NEAR_FRAMES = 3  # around the first answer, searched again without each keypoint's constant error
UNSURE_OFFSET_S = 0.02  # deviation above which an offset counts as unknown


@dataclass(frozen=True)
class Offset:
    """Offset of a camera's clock to the first camera's."""

    seconds: float
    std_s: float  # 0: stated by the user; inf: people's motion does not determine it

    @property
    def is_estimated(self) -> bool:
        """Say whether people's motion determined it."""
        return 0 < self.std_s < np.inf


@dataclass(frozen=True)
class SyncedCamera:
    """A camera whose offset is known, beside the one whose offset is searched."""

    tracks: Sequence[Sight]
    offset_s: float
    pose: Pose  # from this camera to the other one


@dataclass(frozen=True)
class _MatchedPair:
    """Two tracks of one person: in a camera whose offset is known, and in the other one."""

    first: Sight
    second: Sight
    camera: SyncedCamera
    times_s: np.ndarray

    def squared_residuals(self, seconds: float) -> np.ndarray:
        """Return the squared residuals at an offset, less each keypoint's median.

        Part of a network's error is constant and says nothing about time.
        """
        lag_s = seconds - self.camera.offset_s
        residual, _ = epipolar_residual(
            self.first.at(self.times_s), self.second.at(self.times_s - lag_s), self.camera.pose
        )
        residual = residual[:, np.isfinite(residual).any(0)]
        return np.minimum(np.square(residual - np.nanmedian(residual, axis=0)), FAR)


def find_offset(
    known: Sequence[SyncedCamera],
    tracks: Sequence[Sight],
    step_s: float,
    around_s: tuple[float, float] = (-LONGEST_OFFSET_S, LONGEST_OFFSET_S),
) -> Offset:
    """Return the offset of the camera with these tracks to the clock of the known cameras.

    step_s: between frames. The search goes in steps of a frame within around_s; a parabola through
    the cost around the best step gives the fraction of a frame and the deviation.
    """
    if not tracks or not any(camera.tracks for camera in known):
        return Offset(0.0, np.inf)
    times = [sample_times(camera.tracks) for camera in known]
    known = [
        SyncedCamera([sight.smoothed() for sight in one.tracks], one.offset_s, one.pose)
        for one in known
    ]
    tracks = [sight.smoothed() for sight in tracks]

    def match_at(seconds: float) -> tuple[float, list[_MatchedPair]]:
        """Return the sum of gains at an offset, and the tracks that are matched there."""
        total = 0.0
        pairs = []
        for camera, times_s in zip(known, times, strict=True):
            lag_s = seconds - camera.offset_s
            gain, _ = score_track_pairs(camera.tracks, tracks, camera.pose, lag_s, times_s)
            for i, j in match_tracks(gain):
                total += float(gain[i, j])
                pairs.append(_MatchedPair(camera.tracks[i], tracks[j], camera, times_s))
        return total, pairs

    low_s, high_s = _overlap_s(known, tracks)
    low_s = max(low_s, around_s[0])
    high_s = min(high_s, around_s[1])
    coarse = np.arange(np.floor(low_s / step_s), np.ceil(high_s / step_s) + 1) * step_s
    scores = [match_at(seconds)[0] for seconds in coarse]
    best = float(coarse[int(np.argmax(scores))])
    pairs = match_at(best)[1]

    def cost(seconds: float) -> float:
        return float(sum(np.nansum(pair.squared_residuals(seconds)) / 2 for pair in pairs))

    near = best + np.linspace(-NEAR_FRAMES, NEAR_FRAMES, 4 * NEAR_FRAMES + 1) * step_s
    lowest = float(near[int(np.argmin([cost(seconds) for seconds in near]))])
    # Within two frames the cost is about a parabola; its curvature is the precision.
    fine = lowest + np.linspace(-2, 2, 9) * step_s
    curvature, slope, _ = np.polyfit(fine - lowest, [cost(seconds) for seconds in fine], 2)
    if not pairs or curvature <= 0:
        return Offset(best, np.inf)
    minimum = lowest - slope / (2 * curvature)
    if abs(minimum - best) > NEAR_FRAMES * step_s:
        return Offset(best, np.inf)
    spacing = max(float(np.diff(t).mean()) if len(t) > 1 else SAMPLE_S for t in times)
    correlated = max(1.0, 1 / (spacing * INDEPENDENT_PER_SECOND))  # samples that count as one
    return Offset(float(minimum), float(np.sqrt(correlated / (2 * curvature))))


def _overlap_s(known: Sequence[SyncedCamera], tracks: Sequence[Sight]) -> tuple[float, float]:
    """Return the lowest and the highest offset at which tracks overlap in time."""
    starts = [s.time_s[0] + camera.offset_s for camera in known for s in camera.tracks]
    ends = [s.time_s[-1] + camera.offset_s for camera in known for s in camera.tracks]
    low = min(starts) - max(sight.time_s[-1] for sight in tracks)
    high = max(ends) - min(sight.time_s[0] for sight in tracks)
    return low, high


def find_offsets(
    rig: Rig,
    tracks: Sequence[Sequence[Sight]],
    stated_s: Sequence[float | None],
    steps_s: Sequence[float],
) -> list[Offset]:
    """Return the offset of every camera: as stated, or found against the cameras before it.

    An offset that people's motion does not determine is zero.
    """
    offsets = [Offset(0.0, 0.0)]
    for number in range(1, len(rig)):
        step_s = max(steps_s[number], steps_s[0])
        offsets.append(next_offset(rig, tracks, offsets, stated_s[number], step_s))
    return offsets


def next_offset(
    rig: Rig,
    tracks: Sequence[Sequence[Sight]],
    known: Sequence[Offset],
    stated_s: float | None,
    step_s: float,
    around_s: tuple[float, float] = (-LONGEST_OFFSET_S, LONGEST_OFFSET_S),
) -> Offset:
    """Return the offset of the camera after those whose offsets are known.

    It is the middle of around_s where people's motion does not determine it. It is zero where the
    estimate is zero within three deviations and half a frame: cameras started by hand are a few
    frames apart, others are mostly started by one signal.
    """
    if stated_s is not None:
        return Offset(stated_s, 0.0)
    number = len(known)
    synced = [
        SyncedCamera(tracks[n], offset.seconds, rig.relative(number, n))
        for n, offset in enumerate(known)
        if tracks[n]
    ]
    estimate = find_offset(synced, tracks[number], step_s, around_s)
    if estimate.std_s > UNSURE_OFFSET_S:
        return Offset(sum(around_s) / 2, np.inf)
    is_zero = abs(estimate.seconds) <= min(3 * estimate.std_s, step_s / 2)
    return Offset(0.0, estimate.std_s) if is_zero else estimate
