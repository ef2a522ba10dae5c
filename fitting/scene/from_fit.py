"""What fitted tracks tell of their surroundings: evidence for the ground, and which points of a body rest.

And whether a person keeps the scene: fitted with it against without, judged by the keypoints. Gravity, floor and
contacts are hypotheses. Terms of the solver let go of single contacts that keypoints contradict; here the whole is
judged. Where keypoints are hardly worse explained with the scene, it is used. Where they are, some of them are left out
of both fits, and the scene stays when it predicts these as well; else it is softened, and dropped when that does not
help either."""

import math
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from scipy.ndimage import maximum_filter1d
from torch import Tensor

from fitting.body import Body
from fitting.camera import Camera
from fitting.fits import TrackFit
from fitting.keypoints.observed import OBSERVED_PROBABILITY
from fitting.keypoints.weights import PRESENT, stated_error_px
from fitting.optimise import CONSTANT_ERROR_SHARE
from fitting.scene.ground_evidence import (
    PersonEvidence,
    contact_probability,
    depth_speeds,
    intervals,
    point_motion,
)
from fitting.solver.terms.scene import FEET, foot_lifts
from fitting.track import PreparedTrack
from pose2d.base.files import release_scratch, scratch_array
from pose2d.base.table import BLOCK, blocks

_FOOT_KEYPOINTS = (15, 24, 20, 16, 25, 21)  # `ground_evidence.FOOT_POINTS` among Halpe's 26
# A foot that rests so far from the floor stands on something else. Feet of people on the floor are found within 0.1 m.
OFF_FLOOR_M = 0.2
UNSEEN_S = 0.1


def keypoint_sigma_px(found: TrackFit) -> np.ndarray:
    """[T, 26] deviation of the keypoints that count as seen, as it changes over time; inf: not seen. Of the core of the
    stated distribution: whoever is in its tail is plainly wrong, and mostly so in all neighbouring frames. The constant
    share of an error moves no keypoint."""
    if len(found) > BLOCK:
        return np.concatenate([keypoint_sigma_px(found.rows(some)) for some in blocks(len(found))])
    points = found.keypoints
    weight, sigma_px = stated_error_px(replace(points, xy_px=torch.nan_to_num(points.xy_px)))
    sigma = ((1 - CONSTANT_ERROR_SHARE) ** 0.5 * (weight / sigma_px.square()).sum(-1).rsqrt()).numpy()
    seen = found.keypoint_observed >= OBSERVED_PROBABILITY
    seen &= (points.presence.numpy() >= PRESENT) & found.detected[:, None]
    return np.where(seen, sigma, np.inf)


def person_evidence(found: TrackFit, body: Body, rows: np.ndarray, known_height_m: float | None) -> PersonEvidence:
    """rows [T]: the places of the track's frames among those of the shot."""
    fit = found.fit
    joints = scratch_array((len(found), 24, 3), np.float64)
    for some in blocks(len(found)):
        part = fit.rows(some)
        joints[some] = np.where(part.observed.numpy()[:, None, None], body.at(part.params).joints.numpy(), np.nan)
    release_scratch()
    return PersonEvidence(
        frames=rows, joints_cam_m=joints, observed=found.joint_observed,
        feet_px=found.keypoints.xy_px.numpy()[:, _FOOT_KEYPOINTS].astype(float),
        feet_sigma_px=keypoint_sigma_px(found)[:, _FOOT_KEYPOINTS], height_m=body.height_m(fit.params.shape),
        known_height_m=known_height_m, head_share=shown_head_share(found),
    )  # fmt: skip


def shown_head_share(found: TrackFit) -> float:
    """Neck to crown over ankle to neck in the image, median of the frames that show all of it; NaN: too few do."""
    points, seen = found.keypoints.xy_px.numpy(), found.keypoints.presence.numpy() >= 0.5

    def length(a: int, b: int) -> np.ndarray:
        return np.linalg.norm(points[:, a] - points[:, b], axis=-1)

    whole = seen[:, (11, 12, 13, 14, 15, 16, 17, 18, 19)].all(1) & found.detected
    if whole.sum() < min(3, len(found)):
        return math.nan
    legs = np.maximum(length(11, 13) + length(13, 15), length(12, 14) + length(14, 16))
    return float(np.median((length(17, 18) / np.maximum(length(18, 19) + legs, 1e-6))[whole]))


def resting_points(
    found: TrackFit, body: Body, time_s: np.ndarray, camera: Camera, first_from_camera: np.ndarray | None,
    up: np.ndarray, floor_m: float | None,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """[T, 4] probability that each of FEET rests, zero outside the spans of `intervals`, and that it is on the floor.
    found: the body at size 1, as the ground has it. first_from_camera [T, 3, 3]; None: the camera does not turn.
    floor_m: up . x of the floor at the body's size 1; None: not known."""
    params, focal_px = found.fit.params, camera.mean_focal_px
    turn = np.broadcast_to(np.eye(3), (len(params), 3, 3)) if first_from_camera is None else first_from_camera
    points_cam, pelvis = np.empty((len(params), len(FEET), 3)), np.empty((len(params), 3))
    sigma = np.zeros((len(params), len(FEET)))
    for some in blocks(len(params)):
        part = found.rows(some)
        at = body.at(part.fit.params)
        points_cam[some], pelvis[some] = at.keypoints[:, FEET].numpy(), at.joints[:, 0].numpy()
        sigma[some] = keypoint_sigma_px(part)[:, FEET]
        release_scratch()
    height_m, xy = body.height_m(params.shape), found.keypoints.xy_px[:, FEET].numpy()
    apparent = focal_px * height_m / np.maximum(pelvis[:, 2], 0.2)
    motion = point_motion(xy, sigma, apparent, time_s, focal_px, camera.center_px, first_from_camera)
    over = None
    if floor_m is not None:
        points = np.einsum("tij,tnj->tni", turn, points_cam)
        over = points @ up - floor_m - foot_lifts(body).double().numpy()
    by_depth = depth_speeds(points_cam, pelvis, time_s, height_m)
    # Feet far over the floor may stand on a step: their speed decides.
    told = None if over is None else np.where(over > OFF_FLOOR_M, np.nan, over)
    probability = contact_probability(motion, by_depth, told)
    seen = _near_in_time(np.isfinite(motion.sigma_rad) & found.fit.observed.numpy()[:, None], time_s)
    rest = np.zeros_like(probability)
    for point in range(len(FEET)):
        for first, end in intervals(probability[:, point]):
            rest[first:end, point] = probability[first:end, point]
    rest *= seen
    if over is None:
        return rest, np.zeros_like(rest)
    return rest, rest * (np.abs(over) < OFF_FLOOR_M)


def _near_in_time(seen: np.ndarray, time_s: np.ndarray) -> np.ndarray:
    """[T, n] whether a point is seen within UNSEEN_S of each frame: one that is missed once rests all the same."""
    step = float(np.median(np.diff(time_s))) if len(time_s) > 1 else 1.0
    reach = max(0, round(UNSEEN_S / max(step, 1e-6)))
    return maximum_filter1d(seen.astype(np.uint8), 2 * reach + 1, axis=0, mode="constant") > 0


Verdict = Literal["used", "softened", "dropped", "not known"]

# Mean distance to the keypoints with the scene over that without: below, nobody sees a difference; above, fits with it
# were visibly worse (bench/scene_evidence.py). Predictions of keypoints left out may be worse by chance alone.
DOUBTFUL, DAMAGED, PREDICTED = 1.10, 1.15, 1.02
HIDDEN_EVERY, HIDDEN_S = 4, 0.4  # one of so many keypoints is left out for so long


@dataclass(frozen=True)
class Judged:
    """One person's scene."""

    verdict: Verdict
    misfit: float  # mean distance to the keypoints with the scene over that without; NaN: not compared
    predicted: float = float("nan")  # the same of keypoints left out of both fits; NaN: not compared


def misfit_ratio(scene: TrackFit, alone: TrackFit) -> float:
    """Of the keypoints that count in both."""
    a, b = scene.fit.reprojection_px.numpy(), alone.fit.reprojection_px.numpy()
    both = np.isfinite(a) & np.isfinite(b)
    return float(a[both].mean() / max(b[both].mean(), 1e-6)) if both.any() else 1.0


def with_some_left_out(prepared: PreparedTrack, fps: float) -> tuple[PreparedTrack, Tensor]:
    """Keypoints of which every fourth is hidden for a while, by turns; and which [T, K]."""
    points = prepared.keypoints
    frames, count = points.presence.shape
    block = torch.arange(frames) // max(1, round(HIDDEN_S * fps))
    hidden = (block[:, None] + torch.arange(count)) % HIDDEN_EVERY == 0
    hidden &= points.presence >= PRESENT
    kept = replace(points, presence=points.presence.masked_fill(hidden, 0.0))
    return replace(prepared, keypoints=kept), hidden


def prediction_ratio(scene_px: Tensor, alone_px: Tensor, xy_px: Tensor, hidden: Tensor) -> float:
    """Distances of keypoints left out [T, K] from where two fits put them, one over the other; medians of keypoints
    that are plainly wrong do not count."""
    with_scene, without = ((px - xy_px).norm(dim=-1)[hidden] for px in (scene_px, alone_px))
    usable = torch.isfinite(with_scene) & torch.isfinite(without)
    if not bool(usable.any()):
        return 1.0
    far = 5 * without[usable].median().clamp(min=1.0)
    return float(with_scene[usable].clamp(max=far).mean() / without[usable].clamp(max=far).mean().clamp(min=1e-6))
