"""Decide where points of feet are held in place: contacts that stay within their stated error, on
levels, with heel and toes as far apart as a flat foot has them.
"""

from dataclasses import dataclass, replace

import numpy as np

from fitmesh.exports import scene as scenes
from fitmesh.person import Person
from fitting.scene.contact import OFF_FLOOR_M
from fitting.solver.terms.contact import FEET

STANDS = 0.5  # least probability of contact
SHORTEST_S = 0.15  # shorter contacts are not held
# A point may be moved within a contact by its ankle's stated error, and by so much in any case.
ALWAYS_M = 0.03
# Contacts that differ less in height stand on the same level.
SAME_LEVEL_M = 0.1
# A chain of contacts (heel, both, toes, both again) needs a few rounds until all lengths are right.
_LENGTH_ROUNDS = 100


@dataclass
class Hold:
    """A point of a foot that is held in place over some rows."""

    point: int  # of FEET
    rows: slice
    place_m: np.ndarray  # [3] in the scene


def find_holds(
    person: Person,
    points_m: np.ndarray,
    lift_m: np.ndarray,
    along_m: np.ndarray,
    rows: slice,
    rate: float,
) -> list[Hold]:
    """Return where points [T, 4, 3] are held in a segment of frames without an absence."""
    shortest = max(2, round(SHORTEST_S * rate))
    std_m = np.nan_to_num(person.joint_std_relative_mm[:, [7, 7, 8, 8]] / 1000)  # of the ankles
    allowed_m = np.maximum(ALWAYS_M, std_m)
    holds = []
    for point in range(len(FEET)):
        for a, b in scenes.runs(person.contact[rows, point] >= STANDS):
            whole = slice(rows.start + a, rows.start + b + 1)
            for part in _split(points_m[:, point], allowed_m[:, point], whole, shortest):
                holds.append(Hold(point, part, points_m[part, point].mean(0)))
    _set_levels(holds, lift_m)
    for foot in (0, 1):
        heels = [hold for hold in holds if hold.point == 2 * foot]
        toes = [hold for hold in holds if hold.point == 2 * foot + 1]
        _keep_foot_length(heels, toes, along_m[foot])
    return holds


def _set_levels(holds: list[Hold], lift_m: np.ndarray) -> None:
    """Put points on what they stand on: contacts that follow each other at almost the same height
    share a level, and a level near the floor is the floor.
    """
    levels: list[list[Hold]] = []
    before_m = np.inf
    for hold in sorted(holds, key=lambda hold: hold.rows.start):
        height_m = hold.place_m[1] - lift_m[hold.point]
        if abs(height_m - before_m) > SAME_LEVEL_M:
            levels.append([])
        levels[-1].append(hold)
        before_m = height_m
    heights_m = [
        float(np.median([hold.place_m[1] - lift_m[hold.point] for hold in level]))
        for level in levels
    ]
    # Where someone stands close to the floor, what is farther from it is a step.
    nearest_m = min(map(abs, heights_m), default=0.0)
    floor_m = SAME_LEVEL_M if nearest_m < SAME_LEVEL_M else OFF_FLOOR_M
    for level, height_m in zip(levels, heights_m, strict=True):
        on_floor = abs(height_m) < floor_m
        for hold in level:
            hold.place_m[1] = lift_m[hold.point] + (0.0 if on_floor else height_m)


def _split(point_m: np.ndarray, allowed_m: np.ndarray, rows: slice, shortest: int) -> list[slice]:
    """Return parts of a contact in which the point [T, 3] stays within what is allowed of its mean
    place; parts that are too short are left out.
    """
    count = rows.stop - rows.start
    if count < shortest:
        return []
    ground = point_m[rows][:, [0, 2]]
    away_m = np.linalg.norm(ground - ground.mean(0), axis=1)
    if (away_m <= allowed_m[rows]).all():
        return [rows]
    # The split that leaves the smallest squared distances from the means of both parts.
    total = np.cumsum(ground, 0)
    sizes = np.arange(1, count)[:, None]
    explained = (total[:-1] ** 2 / sizes).sum(1) + (
        (total[-1] - total[:-1]) ** 2 / (count - sizes)
    ).sum(1)
    middle = rows.start + 1 + int(explained.argmax())
    halves = (slice(rows.start, middle), slice(middle, rows.stop))
    return [part for half in halves for part in _split(point_m, allowed_m, half, shortest)]


def _keep_foot_length(heels: list[Hold], toes: list[Hold], along_m: np.ndarray) -> None:
    """Move the places of heel and toes that are held at the same time to where a flat foot has
    them, which is `along_m` [3] apart in the T-pose.
    """
    level_m = float(np.linalg.norm(along_m[[0, 2]]))
    pairs = [
        (heel, toe)
        for heel in heels
        for toe in toes
        if max(heel.rows.start, toe.rows.start) < min(heel.rows.stop, toe.rows.stop)
    ]
    for heel, toe in pairs:  # on one level: the heel's, because heels are clearer
        toe.place_m[1] = heel.place_m[1] + along_m[1]
    for _ in range(_LENGTH_ROUNDS):
        for heel, toe in pairs:
            way = toe.place_m - heel.place_m
            way[1] = 0
            change = (level_m / max(float(np.linalg.norm(way)), 1e-6) - 1) / 2 * way
            toe.place_m += change
            heel.place_m -= change


def holds_within(holds: list[Hold], rows: slice) -> list[Hold]:
    """Return the holds of a segment with rows counted from its first."""
    return [
        replace(hold, rows=slice(hold.rows.start - rows.start, hold.rows.stop - rows.start))
        for hold in holds
        if rows.start <= hold.rows.start < rows.stop
    ]
