"""Which tracks of different cameras are one person."""

from collections.abc import Sequence
from itertools import combinations

import numpy as np

from fitting.rig.epipolar import FEWEST_KEYPOINTS, score_camera_pairs
from fitting.rig.rig import Rig
from fitting.rig.sights import Sight

OVERLAP_S = 0.3  # two tracks of one camera that overlap longer are two people

Track = tuple[int, int]  # a camera, and the number of a track in it


def associate(
    rig: Rig, tracks: Sequence[Sequence[Sight]], offsets_s: Sequence[float]
) -> list[list[Track]]:
    """Return people as lists of tracks, the one that is visible longest first.

    The two groups whose rays meet best are joined until no two groups gain by it. Overlapping
    tracks of one camera are different people.
    """
    gain: dict[tuple[Track, Track], float] = {}  # of tracks of different cameras
    for a, b, pair_gain, count in score_camera_pairs(rig, tracks, offsets_s):
        for i, j in np.argwhere(count >= FEWEST_KEYPOINTS).tolist():
            gain[(a, i), (b, j)] = float(pair_gain[i, j])
            gain[(b, j), (a, i)] = float(pair_gain[i, j])

    def overlap(one: Track, two: Track) -> bool:
        if one[0] != two[0]:
            return False
        first = tracks[one[0]][one[1]].time_s
        second = tracks[two[0]][two[1]].time_s
        return min(first[-1], second[-1]) - max(first[0], second[0]) > OVERLAP_S

    def duration_s(group: list[Track]) -> float:
        return sum(float(np.ptp(tracks[camera][number].time_s)) for camera, number in group)

    groups = [[(camera, number)] for camera, own in enumerate(tracks) for number in range(len(own))]
    while True:
        best_gain = 0.0
        best_pair = None
        for a, b in combinations(range(len(groups)), 2):
            pairs = [(x, y) for x in groups[a] for y in groups[b]]
            total = sum(gain.get(pair, 0.0) for pair in pairs)
            if total > best_gain and not any(overlap(x, y) for x, y in pairs):
                best_gain = total
                best_pair = (a, b)
        if best_pair is None:
            break
        groups[best_pair[0]] += groups.pop(best_pair[1])
    return sorted((sorted(group) for group in groups), key=duration_s, reverse=True)
