"""Whether a calibration belongs to the videos: people's rays must meet, and people must be as tall as people are.

Where they do not, the usual mistakes are tried, and what would make them meet is said: an inverted or exchanged
calibration, a mirrored or upside-down video, another unit."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations, permutations

import numpy as np

from fitting.optimise import OtherView
from fitting.rig.meeting import (
    FAR,
    FEWEST,
    LONGEST_OFFSET_S,
    MEETS,
    UNSURE_OFFSET_S,
    Offset,
    Sight,
    find_offset,
    gains,
    matched,
    sample_times,
    triangulate,
)
from fitting.rig.rig import PlacedCamera, Rig
from fitting.rig.views import points_of
from fitting.scene.ground import GivenGround
from pose2d.base.errors import UserError

# 1 - mean d^2 / FAR over everybody who is matched: 0.8 to 0.97 where a calibration is right, rendered or real, 0 to 0.4
# where it is not (tests/fitting/test_rig.py makes the mistakes). Not tuned.
SURELY, HARDLY, BETTER = 0.75, 0.5, 0.12
MOST_ORDERS = 4  # cameras of which every order is tried; of more, every two are exchanged
UNITS = {"metres": 1.0, "centimetres": 0.01, "millimetres": 0.001}
# Bones by Halpe's keypoints of both sides, and an adult's lengths in metres; together a factor of body size.
BONES = (
    ((5, 11), (6, 12), 0.50), ((11, 13), (12, 14), 0.42), ((13, 15), (14, 16), 0.40), ((5, 7), (6, 8), 0.28),
    ((7, 9), (8, 10), 0.25),
)  # fmt: skip
SIZES = (0.4, 1.6)  # of a person over an adult's
NECK, PELVIS, ANKLES, FEET = 18, 19, (15, 16), (20, 21, 22, 23, 24, 25)
STRAIGHT_COS, GRAVITY_COS = np.cos(np.radians(20)), np.cos(np.radians(8))  # who stands; a world axis that is up
ON_FLOOR_M = 0.12  # feet on a floor at 0


def find_offsets(
    rig: Rig, tracks: Sequence[Sequence[Sight]], stated_s: Sequence[float | None], steps_s: Sequence[float]
) -> list[Offset]:
    """What every camera's clock lacks to the first's: as stated, or found against the cameras before it. One that
    people do not tell is zero."""
    offsets = [Offset(0.0, 0.0, False)]
    for number in range(1, len(rig)):
        offsets.append(next_offset(rig, tracks, offsets, stated_s[number], max(steps_s[number], steps_s[0])))
    return offsets


def next_offset(
    rig: Rig, tracks: Sequence[Sequence[Sight]], known: Sequence[Offset], stated_s: float | None, step_s: float,
    around_s: tuple[float, float] = (-LONGEST_OFFSET_S, LONGEST_OFFSET_S),
) -> Offset:  # fmt: skip
    """Of the camera after those whose offsets are known; the middle of around_s where people do not tell. Zero where it
    is that within three deviations and half a frame: cameras that were started by hand are a few frames apart, and
    those that are not are mostly started by one signal."""
    if stated_s is not None:
        return Offset(stated_s, 0.0, False)
    number = len(known)
    others = [(tracks[n], one.seconds, rig.relative(number, n)) for n, one in enumerate(known) if tracks[n]]
    found = find_offset(others, tracks[number], step_s, around_s)
    if not (found.found and found.std_s <= UNSURE_OFFSET_S):
        return Offset(sum(around_s) / 2, np.inf, False)
    near = abs(found.seconds) <= min(3 * found.std_s, step_s / 2)
    return Offset(0.0, found.std_s, True) if near else found


def meeting(rig: Rig, tracks: Sequence[Sequence[Sight]], offsets: Sequence[Offset]) -> float:
    """How well the rays of everybody who is matched meet, 0 (nowhere) .. 1 (exactly); NaN: nobody is seen by two."""
    total = count = 0.0
    for a, b in combinations(range(len(rig)), 2):
        lag = offsets[b].seconds - offsets[a].seconds
        gain, seen = gains(tracks[a], tracks[b], rig.relative(b, a), lag, sample_times(tracks[a]))
        gain = np.where(seen >= FEWEST, gain, -np.inf)
        if not np.isfinite(gain).any():
            continue
        for i, j in matched(gain) or [divmod(int(np.argmax(gain)), gain.shape[1])]:
            total, count = total + gain[i, j], count + seen[i, j]
    return 1 - (MEETS - total / count) / FAR if count else float("nan")


def checked(
    rig: Rig, tracks: Sequence[Sequence[Sight]], stated_s: Sequence[float | None], steps_s: Sequence[float]
) -> tuple[Rig, list[Offset]]:
    """The rig in metres and the offsets, or UserError: what is wrong with them in one sentence."""
    offsets = find_offsets(rig, tracks, stated_s, steps_s)
    share = meeting(rig, tracks, offsets)
    if np.isnan(share):
        note = "nobody is seen by two cameras at once: nothing says whether the calibration is right"
        return replace(rig, notes=(*rig.notes, note)), offsets
    if share < SURELY:
        best, why = share + BETTER, ""
        for words, other, sights in _mistakes(rig, tracks):
            found = meeting(other, sights, find_offsets(other, sights, stated_s, steps_s))
            if found > best:
                best, why = found, words
        if why:
            raise UserError(
                f"{why} As given, {share:.0%} of what people's rays can agree do; so, {best:.0%} ({rig.source})."
            )
        if share < HARDLY:
            raise UserError(
                f"the cameras' rays of people do not meet ({share:.0%}; a right calibration has 80 % and more): the "
                f"videos are of different scenes or times, or {rig.source} is not their calibration."
            )
    return _in_metres(rig, tracks, offsets), offsets


def _mistakes(rig: Rig, tracks: Sequence[Sequence[Sight]]) -> Iterator[tuple[str, Rig, Sequence[Sequence[Sight]]]]:
    """What people do wrong: in words, and how it would be right."""
    yield (
        "The calibration is inverted: its rotations and translations lead from the camera to the world, and the other "
        "way was expected.",
        replace(rig, cameras=tuple(camera.inverted for camera in rig.cameras)),
        tracks,
    )
    for order in _orders(len(rig)):
        cameras = tuple(rig.cameras[n] for n in order)
        if all(a.camera.size == b.camera.size for a, b in zip(cameras, rig.cameras, strict=True)):
            names = ", ".join(f"video {n + 1} is {camera.name}" for n, camera in enumerate(cameras))
            seen = [
                [_through(sight, was, now) for sight in own]
                for own, was, now in zip(tracks, rig.cameras, cameras, strict=True)
            ]
            words = f"The calibration's cameras are in another order than the videos: {names}."
            yield words, replace(rig, cameras=cameras), seen
    for number, placed in enumerate(rig.cameras):
        camera = placed.camera
        center = ((np.array(camera.size) - 1) / 2 - camera.center_px) / camera.focal_px
        for words, x, y in (("mirrored: record again, or flip it", True, False), ("upside down: turn it", True, True)):
            turned = [sight.mirrored(x, y, center) for sight in tracks[number]]
            seen_so = [turned if n == number else own for n, own in enumerate(tracks)]
            yield f"The video of camera {placed.name} is {words}.", rig, seen_so


def _orders(count: int) -> Iterator[tuple[int, ...]]:
    same = tuple(range(count))
    if count <= MOST_ORDERS:
        yield from (order for order in permutations(range(count)) if order != same)
        return
    for a, b in combinations(range(count), 2):
        order = list(same)
        order[a], order[b] = b, a
        yield tuple(order)


def _through(sight: Sight, was: PlacedCamera, now: PlacedCamera) -> Sight:
    """The same pixels through another lens."""
    ratio = np.array(was.camera.focal_px) / now.camera.focal_px
    moved = (np.array(was.camera.center_px) - now.camera.center_px) / now.camera.focal_px
    return Sight(sight.time_s, sight.rays * ratio + moved, sight.sigma * ratio.mean())


def body_size(points: np.ndarray) -> float:
    """Of keypoints [T, 26, 3]: bones over an adult's, the median; NaN: none is known."""
    found = [np.linalg.norm(points[:, a] - points[:, b], axis=-1) / m for *ends, m in BONES for a, b in ends]
    ratios = np.concatenate(found)
    ratios = ratios[np.isfinite(ratios)]
    return float(np.median(ratios)) if len(ratios) else float("nan")


def _in_metres(rig: Rig, tracks: Sequence[Sequence[Sight]], offsets: Sequence[Offset]) -> Rig:
    """With the unit in which people are as tall as people are."""
    sizes, weights = [], []
    for a, b in combinations(range(len(rig)), 2):
        times, lag = sample_times(tracks[a]), offsets[b].seconds - offsets[a].seconds
        gain, _ = gains(tracks[a], tracks[b], rig.relative(b, a), lag, times)
        for i, j in np.argwhere(gain > 0).tolist():
            at = tracks[a][i].at(times), tracks[b][j].at(times - lag)
            pose = [np.stack(part) for part in zip((np.eye(3), np.zeros(3)), rig.relative(b, a), strict=True)]
            rays, sigma = (np.stack(part) for part in zip(*at, strict=True))
            sizes.append(body_size(triangulate(rays, sigma, *pose)[0]))
            weights.append(gain[i, j])
    if not sizes:
        return rig
    size = sizes[int(np.argmax(weights))]
    for unit, metres in UNITS.items():
        if SIZES[0] <= size * metres <= SIZES[1]:
            if unit == "metres":
                return rig
            note = f"{rig.source}: translations are {unit} (in metres, people would be {1.7 * size:,.0f} m tall)"
            scaled = rig.scaled(metres)
            return replace(scaled, notes=(*rig.notes, note))
    raise UserError(
        f"{rig.source}: people would be {1.7 * size:,.1f} m tall, so translations are neither metres, centimetres nor "
        f"millimetres (squares of the board?): multiply them by their unit's length in metres, {1 / size:.4g} or so."
    )


def stated_ground(rig: Rig, people: Sequence[Sequence[OtherView]]) -> GivenGround:
    """Gravity and floor of a calibration whose world has an axis along which people stand, and its floor at 0; what it
    does not state stays open. people: what the cameras show of each, in the first camera's frame."""
    base = rig.cameras[0]
    shown = [points_of(views)[0] for views in people if len(views) > 1]
    if not shown or rig.source == "people":
        return GivenGround()
    points = (np.concatenate(shown) - base.translation_m) @ base.rotation  # in the world
    trunk = points[:, NECK] - points[:, PELVIS]
    legs = points[:, PELVIS] - points[:, ANKLES].mean(1)
    with np.errstate(invalid="ignore"):
        upright = (trunk * legs).sum(-1) > STRAIGHT_COS * np.linalg.norm(trunk, axis=-1) * np.linalg.norm(legs, axis=-1)
    if upright.sum() < FEWEST / 3:
        return GivenGround()
    axis = np.nanmedian((trunk + legs)[upright], axis=0)
    along = int(np.abs(axis).argmax())
    if abs(axis[along]) < GRAVITY_COS * np.linalg.norm(axis):
        return GivenGround()
    up = np.sign(axis[along]) * np.eye(3)[along]
    x, y, z = (base.rotation @ up).tolist()
    feet = points[:, FEET] @ up
    lowest = np.nanquantile(feet, 0.05) if np.isfinite(feet).any() else np.inf
    height = float(base.position_m @ up)
    return GivenGround((x, y, z), height if abs(lowest) < ON_FLOOR_M and height > 0 else None)
