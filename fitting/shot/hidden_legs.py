"""Legs that no frame shows: seated behind furniture, straight where the image ends.

Of legs that are never visible the guess is a mean of people who sit and people who stand, which is a
half squat, and it states less doubt than there is. Two things tell more. Legs that would be inside
the image but are not visible are behind a desk or a table, where people who stay in place sit. Legs
below the image's border belong to a person who stands, unless the guess says clearly that the person
sits."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch

from fitting.fits import InitialGuess
from fitting.track import Track

SHOULDERS, HIPS, LEGS = (5, 6), (11, 12), (13, 14, 15, 16)  # among Halpe's 26
HIP_JOINTS, KNEE_JOINTS = (1, 2), (4, 5)
VISIBLE = 0.5  # presence of a keypoint
MOSTLY = 0.9  # share of frames in which the legs are hidden
LEAST_FRAMES = 10
# Lengths in trunks (shoulders to hips in the image). Hips so far over the image's border would show
# a thigh; people who sit move less than this. Not tuned.
THIGH_TRUNKS = 0.7
STILL_TRUNKS = 0.5
# Guesses beyond this bend of the hips are left as they are: people who sit. Chosen on
# desk_classroom and sign_again of bench/facts.py.
SEATED_DEG = 60.0
LEG_STD_RAD = 0.5  # least deviation of hips and knees that rest on this alone
SEATED_POSE = {
    1: (-80.0, 0.0, 8.0),
    2: (-80.0, 0.0, -8.0),
    4: (80.0, 0.0, 0.0),
    5: (80.0, 0.0, 0.0),
}


def settle_hidden_legs(
    tracks: Mapping[int, Track], image_height_px: float, is_static: bool
) -> dict[int, Track]:
    """Return the tracks, with hidden legs seated or straight in the guess instead of half bent."""
    return {
        identity: _settle(
            track,
            image_height_px,
            is_static,
            [other for number, other in tracks.items() if number != identity],
        )
        for identity, track in tracks.items()
    }


def _settle(
    track: Track, image_height_px: float, is_static: bool, others: Sequence[Track]
) -> Track:
    visible = (track.keypoints.presence.numpy() >= VISIBLE) & track.detected[:, None]
    rows = visible[:, (*SHOULDERS, *HIPS)].all(1)
    if rows.sum() < LEAST_FRAMES or (~visible[rows][:, LEGS]).all(1).mean() < MOSTLY:
        return track
    xy = track.keypoints.xy_px.numpy()
    hips = xy[:, HIPS].mean(1)
    trunk_px = float(np.median((hips - xy[:, SHOULDERS].mean(1))[rows, 1]))
    bend_deg = math.degrees(
        float(track.guess.params.pose[torch.from_numpy(rows)][:, HIP_JOINTS].norm(dim=-1).median())
    )
    if trunk_px <= 0 or bend_deg > SEATED_DEG:
        return track
    travel_px = float(np.ptp(hips[rows], axis=0).max())
    knees = hips + np.array([0.0, THIGH_TRUNKS * trunk_px])
    inside = float(np.median(knees[rows, 1])) < image_height_px
    if not inside:
        return replace(track, guess=_with_legs(track.guess, {}))
    stays = is_static and travel_px < STILL_TRUNKS * trunk_px
    if stays and not _is_covered(track, knees, rows, others):
        return replace(track, guess=_with_legs(track.guess, SEATED_POSE))
    return track


def _with_legs(
    guess: InitialGuess, pose_deg: Mapping[int, tuple[float, float, float]]
) -> InitialGuess:
    """Return the guess with these rotations of hips and knees; the others are straight."""
    pose = guess.params.pose.clone()
    std_rad = guess.rotation_std_rad.clone()
    for joint in (*HIP_JOINTS, *KNEE_JOINTS):
        rotation = torch.tensor(pose_deg.get(joint, (0.0, 0.0, 0.0))).deg2rad()
        pose[:, joint] = rotation.to(pose.dtype)
        std_rad[:, joint] = std_rad[:, joint].clamp(min=LEG_STD_RAD)
    return replace(guess, params=replace(guess.params, pose=pose), rotation_std_rad=std_rad)


def _is_covered(
    track: Track, points: np.ndarray, rows: np.ndarray, others: Sequence[Track]
) -> bool:
    """Return whether other people are mostly in front of points [T, 2] of a track."""
    covered = np.zeros(len(points), bool)
    frames = track.grid.frame
    for other in others:
        presence = other.keypoints.presence.numpy() >= VISIBLE
        xy = np.where(presence[..., None], other.keypoints.xy_px.numpy(), np.nan)
        present = other.detected & presence.any(1)
        place = np.searchsorted(other.grid.frame, frames).clip(0, len(present) - 1)
        same_frame = (other.grid.frame[place] == frames) & present[place]
        for row in np.flatnonzero(same_frame & rows):
            low = np.nanmin(xy[place[row]], axis=0)
            high = np.nanmax(xy[place[row]], axis=0)
            covered[row] |= bool(((points[row] >= low) & (points[row] <= high)).all())
    return bool(covered[rows].mean() > 1 - MOSTLY)
