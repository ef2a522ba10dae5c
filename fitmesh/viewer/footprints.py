"""Where feet stood: one footprint for every run of frames in which a heel or toes rest."""

from dataclasses import dataclass

import numpy as np

from fitmesh.exports.scene import SceneFrame, foot_points
from fitmesh.exports.segments import segments
from fitmesh.result import Person, Result

STANDS = 0.5  # probability of contact


@dataclass(frozen=True)
class Footprint:
    """One foot that stood, in the scene frame."""

    left: bool
    first: int  # row of the person in which it began to stand
    last: int  # and the last in which it stood
    heel_m: np.ndarray  # [3] median over the rows in which the heel stood, or over all if it never did
    toes_m: np.ndarray  # [3] the same


def footprints(result: Result, person: Person, scene: SceneFrame) -> list[Footprint]:
    """In order of time; none where gravity is not known, since a place in a turning camera's frame is no place."""
    stands = person.contact >= STANDS
    if not scene.upright[person.shot] or not stands.any():
        return []
    places = foot_points(result, person, scene)
    found = [
        _footprint(places, stands, foot, rows)
        for foot in (0, 1)
        for part in segments(result, person)
        for rows in _runs(stands[:, 2 * foot] | stands[:, 2 * foot + 1], part)
    ]
    return sorted(found, key=lambda footprint: footprint.first)


def _runs(standing: np.ndarray, part: slice) -> list[slice]:
    """Stretches of true in [T], within a part of the rows."""
    inside = np.concatenate([[False], standing[part], [False]])
    edges = np.flatnonzero(np.diff(inside.astype(int))) + part.start
    return [slice(a, b) for a, b in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True)]


def _footprint(places: np.ndarray, stands: np.ndarray, foot: int, rows: slice) -> Footprint:
    ends = []
    for point in (2 * foot, 2 * foot + 1):
        at = places[rows, point]
        resting = stands[rows, point]
        ends.append(np.median(at[resting] if resting.any() else at, axis=0))
    return Footprint(foot == 0, rows.start, rows.stop - 1, ends[0], ends[1])
