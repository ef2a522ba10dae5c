"""Predicted bodies against true ones: the metrics, the published protocols, and `evaluate`.

Points are metres, [N, J, 3]; errors are millimetres per frame, [N]. Published tables differ in the body file of the
truth, in the root that bodies are aligned at, in whether the mesh is aligned there too, and in the frames that count:
one function of this file for each such choice."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from eval3dpw.bodies import HIPS, Bodies
from eval3dpw.sequences import TruthTrack
from pose2d.base.errors import UserError

VIBE_CONFIDENCE = 0.3  # of OpenPose, above which VIBE counts a keypoint ..
VIBE_KEYPOINTS = 7  # .. and how many of them a frame needs


def procrustes(points: Tensor, target: Tensor) -> Tensor:
    """Points [N, J, 3] under the similarity (shift, rotation, scale) that brings them closest to the target. The
    rotation is a proper one: the last singular direction is flipped when the best orthogonal matrix would be a
    reflection (Umeyama, 1991)."""
    centre, target_centre = points.mean(-2, keepdim=True), target.mean(-2, keepdim=True)
    x, y = points - centre, target - target_centre
    u, singular, vt = torch.linalg.svd(x.mT @ y)
    sign = torch.ones_like(singular)
    sign[..., -1] = torch.sign(torch.linalg.det(u @ vt))
    rotation = (u * sign.unsqueeze(-2)) @ vt  # y ~ scale x rotation
    scale = (singular * sign).sum(-1) / x.square().sum((-1, -2)).clamp(min=1e-30)
    return scale[..., None, None] * (x @ rotation) + target_centre


def mpjpe_mm(joints: Tensor, target: Tensor, root: Tensor, target_root: Tensor) -> Tensor:
    """Mean distance of joints [N, J, 3], each relative to its root [N, 3]."""
    offset = (joints - root.unsqueeze(-2)) - (target - target_root.unsqueeze(-2))
    return 1000 * offset.norm(dim=-1).mean(-1)


def pa_mpjpe_mm(joints: Tensor, target: Tensor) -> Tensor:
    """Mean distance of joints after `procrustes`."""
    return 1000 * (procrustes(joints, target) - target).norm(dim=-1).mean(-1)


def mve_mm(vertices: Tensor, target: Tensor, root: Tensor, target_root: Tensor) -> Tensor:
    """Mean distance of vertices [N, V, 3], each relative to its root [N, 3]."""
    return mpjpe_mm(vertices, target, root, target_root)


def acceleration_error_mm(joints: Tensor, target: Tensor) -> Tensor:
    """Mean distance of second differences over time, mm per frame^2 (as VIBE computes it), [N - 2]."""
    return 1000 * torch.diff(joints - target, n=2, dim=0).norm(dim=-1).mean(-1)


@dataclass(frozen=True)
class PerFrame:
    """Of N bodies, in millimetres."""

    mpjpe_mm: Tensor  # [N]
    pa_mpjpe_mm: Tensor  # [N]
    mve_mm: Tensor | None  # [N]; None: the protocol has none, or no mesh was given
    acceleration_mm: Tensor | None  # [N] per frame^2, NaN where a neighbour is missing; None: no tracks were given


def spin(predicted: Bodies, truth: Bodies) -> PerFrame:
    """SPIN, EFT: 14 joints relative to Human3.6M's pelvis. They report no MVE; here it is relative to that pelvis."""
    roots = _required(predicted.pelvis, truth.pelvis, "pelvis", "spin")
    return _errors(truth, predicted.joints, truth.joints, roots, _mve(predicted, truth, roots))


def wham(predicted: Bodies, truth: Bodies) -> PerFrame:
    """WHAM: joints and mesh relative to the middle of the hips."""
    roots = _mid_hips(predicted), _mid_hips(truth)
    return _errors(truth, predicted.joints, truth.joints, roots, _mve(predicted, truth, roots))


def vibe(predicted: Bodies, truth: Bodies) -> PerFrame:
    """VIBE: joints relative to the middle of the hips; meshes as the body model leaves them, without translation."""
    mve = None
    if predicted.vertices is not None and truth.vertices is not None:
        origins = _required(predicted.translation, truth.translation, "translation", "vibe")
        mve = _mve(predicted, truth, origins)
    return _errors(truth, predicted.joints, truth.joints, (_mid_hips(predicted), _mid_hips(truth)), mve)


def challenge(predicted: Bodies, truth: Bodies) -> PerFrame:
    """The 3DPW challenge: SMPL's own 24 joints relative to the first of them; no mesh."""
    joints, true_joints = _required(predicted.kinematic, truth.kinematic, "kinematic", "challenge")
    return _errors(truth, joints, true_joints, (joints[:, 0], true_joints[:, 0]), None)


def _mve(predicted: Bodies, truth: Bodies, roots: tuple[Tensor, Tensor]) -> Tensor | None:
    if predicted.vertices is None or truth.vertices is None:
        return None
    return mve_mm(predicted.vertices, truth.vertices, *roots)


def _errors(
    truth: Bodies, joints: Tensor, true_joints: Tensor, roots: tuple[Tensor, Tensor], mve: Tensor | None
) -> PerFrame:
    own, true = (points - root[:, None] for points, root in zip((joints, true_joints), roots, strict=True))
    mpjpe = mpjpe_mm(joints, true_joints, *roots)
    return PerFrame(mpjpe, pa_mpjpe_mm(joints, true_joints), mve, _acceleration_mm(own, true, truth))


def _mid_hips(bodies: Bodies) -> Tensor:
    return bodies.joints[:, HIPS, :].mean(1)


def _required(predicted: Tensor | None, truth: Tensor | None, field: str, protocol: str) -> tuple[Tensor, Tensor]:
    if predicted is None or truth is None:
        whose = "the prediction" if predicted is None else "the truth"
        raise UserError(f"the protocol {protocol} needs `{field}`, which {whose} does not have (eval3dpw.Bodies).")
    return predicted, truth


def _seen(enough: Callable[[np.ndarray], np.ndarray]) -> Callable[[TruthTrack], np.ndarray]:
    """Frames [T] with a valid camera in which OpenPose's keypoints [T, 18, 3], where they are known, are enough."""

    def counts(track: TruthTrack) -> np.ndarray:
        return track.camera_valid if track.poses2d_px is None else track.camera_valid & enough(track.poses2d_px)

    return counts


HAS_CAMERA = _seen(lambda points: np.ones(len(points), bool))  # SPIN's file, and WHAM's tracks
HAS_SEVEN_KEYPOINTS = _seen(lambda points: (points[..., 2] > VIBE_CONFIDENCE).sum(1) >= VIBE_KEYPOINTS)
HAS_ANY_KEYPOINT = _seen(lambda points: (points != 0).any((1, 2)))


@dataclass(frozen=True)
class Protocol:
    """One published way to measure."""

    name: str
    truth_body: Literal["gendered", "neutral"]  # the body file of the true mesh
    counts: Callable[[TruthTrack], np.ndarray]
    errors: Callable[[Bodies, Bodies], PerFrame]
    left_out: str  # what the frames lack that do not count


PROTOCOLS = {
    protocol.name: protocol
    for protocol in (
        Protocol("spin", "gendered", HAS_CAMERA, spin, "no valid camera"),
        Protocol("vibe", "neutral", HAS_SEVEN_KEYPOINTS, vibe, "no valid camera or fewer than 7 keypoints by OpenPose"),
        Protocol("wham", "gendered", HAS_CAMERA, wham, "no valid camera"),
        Protocol("challenge", "gendered", HAS_ANY_KEYPOINT, challenge, "no valid camera or not seen by OpenPose"),
    )
}


def protocol_named(name: str) -> Protocol:
    if name not in PROTOCOLS:
        raise UserError(f"unknown protocol {name!r}: choose {', '.join(PROTOCOLS)}.")
    return PROTOCOLS[name]


@dataclass(frozen=True)
class Report:
    """Means over frames, and every frame."""

    protocol: str
    frames: int
    mpjpe_mm: float
    pa_mpjpe_mm: float
    mve_mm: float | None
    acceleration_mm: float | None  # per frame^2
    per_frame: PerFrame


def evaluate(predicted: Bodies, truth: Bodies, protocol: str = "spin") -> Report:
    """Score N predicted bodies, row n against row n of the truth. protocol: spin, vibe, wham or challenge. What each
    needs besides `joints`: spin `pelvis`, vibe `translation` if there are meshes, challenge `kinematic`. MVE needs
    `vertices`, acceleration `track` and `frame` of the truth."""
    if not len(truth):
        raise UserError("there are no bodies to score.")
    for field in ("joints", "pelvis", "vertices", "kinematic", "translation"):
        found, true = getattr(predicted, field), getattr(truth, field)
        if found is not None and true is not None and found.shape != true.shape:
            raise UserError(
                f"{field} of the prediction have size {list(found.shape)}, of the truth {list(true.shape)}; rows and "
                "body must be the same."
            )
        for whose, value in (("prediction", found), ("truth", true)):
            if value is not None and not torch.isfinite(value).all():
                raise UserError(f"{field} of the {whose} have a number that is not finite (NaN or infinity).")
    errors = protocol_named(protocol).errors(predicted, truth)
    means = {name: None if value is None else float(value.nanmean()) for name, value in vars(errors).items()}
    return Report(protocol=protocol, frames=len(truth), per_frame=errors, **means)  # type: ignore[arg-type]


def _acceleration_mm(joints_m: Tensor, true_joints_m: Tensor, truth: Bodies) -> Tensor | None:
    """[N] acceleration errors; NaN where a frame and its neighbours are not three evenly spaced frames of a track."""
    if truth.track is None or truth.frame is None:
        return None
    result = joints_m.new_full((len(truth),), torch.nan)
    if len(truth) < 3:
        return result
    same_track, step = truth.track[1:] == truth.track[:-1], torch.diff(truth.frame)
    if not bool(same_track.any()):
        return result
    consecutive = same_track & (step == step[same_track].min())
    error = acceleration_error_mm(joints_m, true_joints_m)
    result[1:-1] = torch.where(consecutive[1:] & consecutive[:-1], error, torch.nan)
    return result
