"""The size and shape of one person, from a known height or weight, outlines and the ground."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch

from fitting.body import Body
from fitting.camera.focal import refocus_params
from fitting.fits import TrackFit
from fitting.scene.ground_problem import GroundEstimate
from fitting.scene.height_prior import (
    ADULT_M,
    CHILD_BELOW_M,
    has_child_head,
    head_share,
    likely_heights_m,
)
from fitting.scene.person_evidence import shown_head_share
from fitting.shot.types import ShotPerson
from fitting.shot.view import ShotView
from fitting.solver.terms.shape import ShapeEvidence
from fitting.track import Track, with_outlines
from pose2d.types import Keypoints

ADULT_HEAD_SHARE = float(head_share(np.array(ADULT_M)))
HEAD = [0, 1, 2, 3, 4, 17]  # Halpe's keypoints of the head
NECK = 18
# Density of people with air in their lungs (0.98 to 1.04), and how exactly a body's volume gives
# its weight: density, clothes and food on the scales, and a body model without inner air.
KG_PER_M3 = 1010.0
WEIGHT_LOG_STD = 0.05
HEIGHT_STD_M = 0.002  # by which a fit may leave a height that is stated


@dataclass(frozen=True)
class GroundOfPerson:
    """What the ground estimate says of one person."""

    height_m: float
    scale: float  # what multiplies the body of the first fit, so that it stands on the floor
    on_floor: bool  # the feet show the floor
    level_m: float  # height of what the person stands on over the floor

    @staticmethod
    def of(ground: GroundEstimate, number: int) -> "GroundOfPerson":
        """Return what the ground says of person `number`.

        A person whom the floor alone makes a child stays an adult, and off the floor: far people and
        wrong horizons look alike, so a child's head must agree.
        """
        is_small = ground.height_m[number] < CHILD_BELOW_M
        if is_small and not ground.has_child_head[number]:
            height_m = float(ground.height_m[number] / ground.scale[number])
            return GroundOfPerson(height_m, 1.0, False, 0.0)
        return GroundOfPerson(
            float(ground.height_m[number]),
            float(ground.scale[number]),
            bool(ground.on_floor[number]),
            float(ground.level_m[number]),
        )

    @property
    def is_child(self) -> bool:
        return self.height_m < CHILD_BELOW_M


def body_size(
    person: ShotPerson, track_fit: TrackFit, view: ShotView, ground: GroundOfPerson | None = None
) -> float:
    """Return what multiplies the fitted body: 1 where several cameras measure distances; else what
    gives it a known height; else the ground's scale.

    The size is an adult's unless the feet show the floor or the head is child-sized.
    """
    if view.has_several_cameras:
        return 1.0
    if person.height_m is not None:
        return person.height_m / view.body.height_m(track_fit.fit.params.shape)
    if ground is not None:
        return ground.scale if ground.on_floor or ground.is_child else 1.0
    share = np.array([shown_head_share(track_fit)])
    if not has_child_head(share)[0]:
        return 1.0
    likely_m = float(likely_heights_m(share)[0])
    return likely_m / view.body.height_m(track_fit.fit.params.shape)


def head_enlargement(track_fit: TrackFit, ground: GroundOfPerson) -> float:
    """Return how many times as large the head of a child is as the body model's, at least 1.

    The body model has an adult's head. On a child's shoulders it explains the keypoints of a large
    head by leaning towards the camera, so heads are scaled down before the fit.
    """
    if not ground.is_child:
        return 1.0
    return max(1.0, shown_head_share(track_fit) / ADULT_HEAD_SHARE)


def scale_head(keypoints: Keypoints, factor: float) -> Keypoints:
    """Return keypoints with the head scaled about the neck."""
    if factor == 1.0:
        return keypoints
    xy_px = keypoints.xy_px.clone()
    neck = keypoints.xy_px[:, NECK : NECK + 1]
    xy_px[:, HEAD] = neck + factor * (xy_px[:, HEAD] - neck)
    return replace(keypoints, xy_px=xy_px)


def refocus(
    track: Track, track_fit: TrackFit, body: Body, focal_ratio: float
) -> tuple[Track, TrackFit]:
    """Return the guess of the track and its fit under a focal length `focal_ratio` times as long."""
    params = track_fit.fit.params
    shapedirs = body.rest_joint_shapedirs[0, :, : len(params.shape)]
    pelvis = body.rest_joints[0] + shapedirs @ params.shape.to(body.dtype)
    params = refocus_params(params, pelvis, focal_ratio)
    guess_params = refocus_params(track.guess.params, pelvis, focal_ratio)
    track = replace(track, guess=replace(track.guess, params=guess_params))
    return track, replace(track_fit, fit=replace(track_fit.fit, params=params))


def estimate_shape(
    track: Track, track_fit: TrackFit, person: ShotPerson, view: ShotView, size: float
) -> tuple[Track, TrackFit]:
    """Return the track with what the person's outlines, height and weight say of the shape, and the
    fit with the shape that outlines show.
    """
    outlines = person.outlines
    if outlines is not None and person.has_outlines and not view.has_several_cameras:
        rows = np.searchsorted(track.grid.frame, person.frame[outlines.row])
        usable = (track.grid.segment[rows] >= 0) & track_fit.fit.observed.numpy()[rows]
        outlines = replace(outlines, row=rows).rows(usable)
        track, track_fit = with_outlines(
            track, track_fit, outlines, view.camera, view.body, view.options.fit
        )
    shape = track_fit.fit.params.shape.double()
    evidence = _add_known_lengths(track.shape, shape, person, view.body, size)
    return replace(track, shape=evidence), track_fit


def _add_known_lengths(
    evidence: ShapeEvidence | None,
    shape: torch.Tensor,
    person: ShotPerson,
    body: Body,
    size: float,
) -> ShapeEvidence | None:
    """Return evidence of the shape with what a known height and weight add, linear around `shape`."""

    def log_kg(shape: torch.Tensor) -> float:
        metres = size if person.height_m is None else person.height_m / body.height_m(shape)
        return math.log(KG_PER_M3 * body.volume_m3(shape)) + 3 * math.log(metres)

    if person.height_m is not None:  # the size was found for the height of this shape
        height_m = body.height_m(shape)
        evidence = _add_measurement(evidence, shape, body.height_m, height_m, HEIGHT_STD_M)
    if person.weight_kg is not None:
        log_weight = math.log(person.weight_kg)
        evidence = _add_measurement(evidence, shape, log_kg, log_weight, WEIGHT_LOG_STD)
    return evidence


def _add_measurement(
    evidence: ShapeEvidence | None,
    shape: torch.Tensor,
    measure: Callable[[torch.Tensor], float],
    value: float,
    std: float,
) -> ShapeEvidence:
    """Return evidence with a measurement of the body that has this value and deviation."""
    count = len(shape)
    if evidence is None:
        evidence = ShapeEvidence(torch.zeros(count, count), torch.zeros(count))
    steps = 0.5 * torch.eye(count, dtype=shape.dtype)
    slope = torch.tensor(
        [measure(shape + step) - measure(shape - step) for step in steps], dtype=shape.dtype
    )
    target = slope @ shape + value - measure(shape)
    return replace(
        evidence,
        precision=evidence.precision + (slope[:, None] * slope / std**2).float(),
        information=evidence.information + (slope * target / std**2).float(),
    )
