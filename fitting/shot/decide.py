"""Decide for one person whether the scene is used: compare the fits with and without it."""

import math
from dataclasses import replace

import numpy as np
import torch

from fitting.body import BodyParams
from fitting.fits import FitOptions, TrackFit
from fitting.scene.contact import foot_contacts
from fitting.scene.ground_problem import GroundEstimate
from fitting.shot.types import SceneDecision
from fitting.shot.view import ShotView
from fitting.solver.terms.contact import FEET, weaken_moved_contacts
from fitting.solver.terms.floor import FLOOR_STD_M
from fitting.solver.terms.scene import SceneTerms
from fitting.track import Track, fit_prepared
from pose2d.base.table import blocks

# Mean reprojection error with the scene divided by that without it. Below, no difference is
# visible; above, fits with the scene were visibly worse (bench/scene_evidence.py).
DOUBTFUL_MISFIT = 1.10
SOFTER = 4.0  # on the deviations of lean, floor and contacts, where a scene is softened
UPRIGHT_RAD = 0.25  # standard deviation of people's lean from the vertical
# Balance does not hold in single support, so one foot counts only so much of what two feet do.
ON_ONE_FOOT = 0.1
# Hips of people who stand are higher over the ankles than this share of the legs. Not tuned.
LOWEST_STANDING = 0.75


def decide_about_scene(
    track: Track,
    alone: TrackFit,
    view: ShotView,
    ground: GroundEstimate,
    floor_m: float | None,
) -> tuple[TrackFit, SceneDecision]:
    """Return the fit with the scene, or without where keypoints contradict it; what the user states
    is obeyed.

    alone: the fit without the scene. floor_m: up . x of what the person stands on, at size 1;
    None: not known.
    """
    in_scene = fit_in_scene(track, alone, view, ground, floor_m)
    misfit = misfit_ratio(in_scene, alone)
    if misfit <= DOUBTFUL_MISFIT or view.options.user_ground.states_anything:
        return in_scene, SceneDecision("used", misfit)
    softened = fit_in_scene(track, alone, view, ground, floor_m, SOFTER)
    if misfit_ratio(softened, alone) <= DOUBTFUL_MISFIT:
        return softened, SceneDecision("softened", misfit)
    # The first fit is a rough one that follows fast motion more freely than any complete fit.
    complete = fit_alone(track, view, view.options.fit, alone.fit.params)
    misfit = misfit_ratio(in_scene, complete)
    if misfit <= DOUBTFUL_MISFIT:
        return in_scene, SceneDecision("used", misfit)
    if misfit_ratio(softened, complete) <= DOUBTFUL_MISFIT:
        return softened, SceneDecision("softened", misfit)
    return complete, SceneDecision("dropped", misfit)


def misfit_ratio(in_scene: TrackFit, alone: TrackFit) -> float:
    """Return the mean reprojection error with the scene divided by that without it, of the
    keypoints that count in both.
    """
    with_scene = in_scene.fit.reprojection_px.numpy()
    without = alone.fit.reprojection_px.numpy()
    counts = np.isfinite(with_scene) & np.isfinite(without)
    if not counts.any():
        return 1.0
    return float(with_scene[counts].mean() / max(without[counts].mean(), 1e-6))


def fit_alone(
    track: Track, view: ShotView, options: FitOptions, start: BodyParams | None = None
) -> TrackFit:
    """Fit one person with no knowledge of the scene but how the camera turned."""
    rotation = view.rotation_to_first(track.grid.frame)
    scene = None
    if rotation is not None:
        scene = SceneTerms(world_rotation=torch.from_numpy(rotation).float())
    return fit_prepared(track, view.camera, view.body, options, scene=scene, start=start)


def fit_in_scene(
    track: Track,
    alone: TrackFit,
    view: ShotView,
    ground: GroundEstimate,
    floor_m: float | None,
    softer: float = 1.0,
) -> TrackFit:
    """Fit one person again with the scene, at size 1; the fit states the contacts that it kept.

    softer: what multiplies the deviations of the scene.
    """
    rotation = view.rotation_to_first(alone.frame)
    up = ground.up_cam
    probability = np.zeros((len(alone), len(FEET)))
    on_floor = probability
    if view.stays_in_place:
        time_s = view.rows(alone.frame) / view.fps
        probability, on_floor = foot_contacts(
            alone, view.body, time_s, view.camera, rotation, up, floor_m
        )
    probability = probability / softer**2
    contact = torch.from_numpy(probability).float()
    scene = SceneTerms(
        up=torch.from_numpy(up).float(),
        world_rotation=None if rotation is None else torch.from_numpy(rotation).float(),
        floor_m=floor_m,
        contact=contact if contact.any() else None,
        on_floor=torch.from_numpy(on_floor).float(),
        floor_std_m=softer * FLOOR_STD_M,
        carries=_carrying_feet(alone, view, up, rotation, probability) / softer**2,
    )
    lean_rad = softer * math.hypot(UPRIGHT_RAD, math.radians(ground.up_sigma_deg))
    options = replace(view.options.fit, lean_rad=lean_rad)
    start = alone.fit.params
    scene_fit = fit_prepared(track, view.camera, view.body, options, scene=scene, start=start)
    feet = _feet_in_first_frame(scene_fit.fit.params, view, scene.world_rotation)
    final_contact = weaken_moved_contacts(contact, feet, view.fps).numpy().astype(np.float32)
    return replace(scene_fit, contact=final_contact)


def _feet_in_first_frame(
    params: BodyParams, view: ShotView, world_rotation: torch.Tensor | None
) -> torch.Tensor:
    """Return heels and toes [T, 4, 3] in the axes of the first frame's camera."""
    feet = torch.cat(
        [view.body.at(params.rows(block)).keypoints[:, FEET] for block in blocks(len(params))]
    )
    if world_rotation is not None:
        feet = torch.einsum("tij,tnj->tni", world_rotation, feet)
    return feet


def _carrying_feet(
    alone: TrackFit,
    view: ShotView,
    up: np.ndarray,
    rotation: np.ndarray | None,
    contact: np.ndarray,
) -> torch.Tensor:
    """Return how far heels and toes [T, 4] in contact carry a person who stands on them.

    That is known less where one foot is in contact, and not where the hips are low, as of people
    who sit.
    """
    carries = torch.zeros(len(alone), len(FEET))
    for block in blocks(len(alone)):
        joints = view.body.at(alone.fit.params.rows(block)).joints.double().numpy()
        up_cam = up if rotation is None else np.einsum("tij,i->tj", rotation[block], up)
        stands = _standing_share(joints, up_cam)
        points = contact[block]
        foot_contact = points.reshape(-1, 2, 2).max(2)
        weaker = foot_contact.min(1)
        stronger = foot_contact.max(1)
        certainty = stands * (weaker + ON_ONE_FOOT * (stronger - weaker))
        share = points / np.maximum(points.sum(1), 1e-6)[:, None]
        carries[block] = torch.from_numpy(share * certainty[:, None]).float()
    return carries


def _standing_share(joints: np.ndarray, up_cam: np.ndarray) -> np.ndarray:
    """Return how far people with these joints [T, 24, 3] stand, 0..1: hips as high over the ankles
    as legs are long is 1.
    """
    legs_m = np.linalg.norm(np.diff(joints[:, (1, 4, 7)], axis=1), axis=-1).sum(1)
    hips = joints[:, (1, 2)].mean(1)
    ankles = joints[:, (7, 8)].mean(1)
    height_share = ((hips - ankles) * up_cam).sum(1) / legs_m
    return np.clip((height_share - LOWEST_STANDING) / 0.1, 0, 1)
