"""Whether a calibration belongs to the videos.

Rays of people's keypoints must meet, and people must be as tall as people are. Where they do not,
the usual mistakes are tried: an inverted or exchanged calibration, a mirrored or upside-down video,
another unit of length. The error names the one that makes rays meet.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations, permutations

import numpy as np

from fitting.rig.epipolar import ray_agreement, score_camera_pairs
from fitting.rig.offsets import Offset, find_offsets
from fitting.rig.rig import PlacedCamera, Rig
from fitting.rig.sights import Sight, sample_times
from fitting.rig.triangulation import measure_body_size, triangulate
from pose2d.base.errors import UserError

# Agreement of rays is 0.8 to 0.97 where a calibration is right, rendered or real, and 0 to 0.4
# where it is not (tests/fitting/test_rig.py makes the mistakes). Not tuned.
GOOD_AGREEMENT = 0.75
POOR_AGREEMENT = 0.5
CLEARLY_BETTER = 0.12
MOST_ORDERS = 4  # cameras of which every order is tried; with more, only exchanges of two
UNITS = {"metres": 1.0, "centimetres": 0.01, "millimetres": 0.001}
BODY_SIZES = (0.4, 1.6)  # of a person over an adult's
ADULT_HEIGHT_M = 1.7

Tracks = Sequence[Sequence[Sight]]  # of each camera


def check_calibration(
    rig: Rig, tracks: Tracks, stated_s: Sequence[float | None], steps_s: Sequence[float]
) -> tuple[Rig, list[Offset]]:
    """Return the rig in metres and the offsets, or raise UserError that names what is wrong."""
    offsets = find_offsets(rig, tracks, stated_s, steps_s)
    offsets_s = [offset.seconds for offset in offsets]
    agreement = ray_agreement(rig, tracks, offsets_s)
    if np.isnan(agreement):
        note = "no person is visible in two cameras at once: the calibration could not be checked"
        return replace(rig, notes=(*rig.notes, note)), offsets
    if agreement < GOOD_AGREEMENT:
        best = agreement + CLEARLY_BETTER
        explanation = ""
        for words, corrected_rig, corrected_tracks in _usual_mistakes(rig, tracks):
            corrected_offsets = find_offsets(corrected_rig, corrected_tracks, stated_s, steps_s)
            corrected_s = [offset.seconds for offset in corrected_offsets]
            corrected = ray_agreement(corrected_rig, corrected_tracks, corrected_s)
            if corrected > best:
                best = corrected
                explanation = words
        if explanation:
            raise UserError(
                f"{explanation} As given, people's rays agree to {agreement:.0%}; corrected, to "
                f"{best:.0%} ({rig.source})."
            )
        if agreement < POOR_AGREEMENT:
            raise UserError(
                f"the cameras' rays of people do not meet ({agreement:.0%}; a right calibration has "
                "80 % and more): the videos are of different scenes or times, or "
                f"{rig.source} is not their calibration."
            )
    return _convert_to_metres(rig, tracks, offsets_s), offsets


def _usual_mistakes(rig: Rig, tracks: Tracks) -> Iterator[tuple[str, Rig, Tracks]]:
    """Yield each usual mistake in words, with the rig and the tracks as they would be without it."""
    yield (
        "The calibration is inverted: its rotations and translations lead from the camera to the "
        "world, and the other way was expected.",
        replace(rig, cameras=tuple(camera.inverse() for camera in rig.cameras)),
        tracks,
    )
    yield from _exchanged_cameras(rig, tracks)
    yield from _flipped_videos(rig, tracks)


def _exchanged_cameras(rig: Rig, tracks: Tracks) -> Iterator[tuple[str, Rig, Tracks]]:
    for order in _other_orders(len(rig)):
        cameras = tuple(rig.cameras[n] for n in order)
        pairs = list(zip(rig.cameras, cameras, strict=True))
        if any(old.camera.size != new.camera.size for old, new in pairs):
            continue
        names = ", ".join(f"video {n + 1} is {camera.name}" for n, camera in enumerate(cameras))
        words = f"The calibration's cameras are in another order than the videos: {names}."
        reread = [
            [_through_other_lens(sight, old, new) for sight in own]
            for own, (old, new) in zip(tracks, pairs, strict=True)
        ]
        yield words, replace(rig, cameras=cameras), reread


def _flipped_videos(rig: Rig, tracks: Tracks) -> Iterator[tuple[str, Rig, Tracks]]:
    flips = (
        ("mirrored: record again, or flip it", True, False),
        ("upside down: turn it", True, True),
    )
    for number, placed in enumerate(rig.cameras):
        camera = placed.camera
        center = ((np.array(camera.size) - 1) / 2 - camera.center_px) / camera.focal_px
        for words, x, y in flips:
            flipped = [sight.mirrored(x, y, center) for sight in tracks[number]]
            with_flipped = [flipped if n == number else own for n, own in enumerate(tracks)]
            yield f"The video of camera {placed.name} is {words}.", rig, with_flipped


def _other_orders(count: int) -> Iterator[tuple[int, ...]]:
    """Yield orders of so many cameras other than the one they are in."""
    given = tuple(range(count))
    if count <= MOST_ORDERS:
        yield from (order for order in permutations(given) if order != given)
        return
    for a, b in combinations(given, 2):
        order = list(given)
        order[a] = b
        order[b] = a
        yield tuple(order)


def _through_other_lens(sight: Sight, old: PlacedCamera, new: PlacedCamera) -> Sight:
    """Return the rays of the same pixels through another camera's lens."""
    ratio = np.array(old.camera.focal_px) / new.camera.focal_px
    shift = (np.array(old.camera.center_px) - new.camera.center_px) / new.camera.focal_px
    return Sight(sight.time_s, sight.rays * ratio + shift, sight.sigma * ratio.mean())


def _convert_to_metres(rig: Rig, tracks: Tracks, offsets_s: Sequence[float]) -> Rig:
    """Return the rig in the unit in which the person whose rays meet best has a person's size."""
    best_gain, a, b, gain = max(
        (float(gain.max(initial=0.0)), a, b, gain)
        for a, b, gain, _ in score_camera_pairs(rig, tracks, offsets_s)
    )
    if not best_gain > 0:
        return rig
    i, j = divmod(int(gain.argmax()), gain.shape[1])
    times = sample_times(tracks[a])
    rays_a, sigma_a = tracks[a][i].at(times)
    rays_b, sigma_b = tracks[b][j].at(times - (offsets_s[b] - offsets_s[a]))
    rotation, translation = rig.relative(b, a)
    points, _ = triangulate(
        np.stack((rays_a, rays_b)),
        np.stack((sigma_a, sigma_b)),
        np.stack((np.eye(3), rotation)),
        np.stack((np.zeros(3), translation)),
    )
    size = measure_body_size(points)
    for unit, metres in UNITS.items():
        if BODY_SIZES[0] <= size * metres <= BODY_SIZES[1]:
            if unit == "metres":
                return rig
            note = (
                f"{rig.source}: translations are {unit} (in metres, people would be "
                f"{ADULT_HEIGHT_M * size:,.0f} m tall)"
            )
            return replace(rig.scaled(metres), notes=(*rig.notes, note))
    raise UserError(
        f"{rig.source}: people would be {ADULT_HEIGHT_M * size:,.1f} m tall, so translations are "
        "neither metres, centimetres nor millimetres (squares of the board?): multiply them by "
        f"their unit's length in metres, {1 / size:.4g} or so."
    )
