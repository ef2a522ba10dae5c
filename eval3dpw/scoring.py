"""Predicted bodies against true ones: the metrics, the published protocols, and `evaluate`.

Points are metres, [N, J, 3]; errors are millimetres per frame, [N]. Published tables differ in the
body file of the truth, in the root that bodies are aligned at, in whether the mesh is aligned there
too, and in the frames that count: one function of this file for each such choice."""

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
    """Return points [N, J, 3] under the similarity (shift, rotation, scale) that brings them
    closest.

    The sign of the last singular value is flipped where the best orthogonal matrix would be a
    reflection (Umeyama, 1991).
    """
    centre = points.mean(-2, keepdim=True)
    target_centre = target.mean(-2, keepdim=True)
    x = points - centre
    y = target - target_centre
    u, singular, vt = torch.linalg.svd(x.mT @ y)
    sign = torch.ones_like(singular)
    sign[..., -1] = torch.sign(torch.linalg.det(u @ vt))
    rotation = (u * sign.unsqueeze(-2)) @ vt  # y ~ scale x rotation
    scale = (singular * sign).sum(-1) / x.square().sum((-1, -2)).clamp(min=1e-30)
    return scale[..., None, None] * (x @ rotation) + target_centre


def mpjpe_mm(joints: Tensor, target: Tensor, root: Tensor, target_root: Tensor) -> Tensor:
    """Return the mean distance [N] of joints [N, J, 3], each relative to its root [N, 3]."""
    offset = (joints - root.unsqueeze(-2)) - (target - target_root.unsqueeze(-2))
    return 1000 * offset.norm(dim=-1).mean(-1)


def pa_mpjpe_mm(joints: Tensor, target: Tensor) -> Tensor:
    """Return the mean distance [N] of joints after `procrustes`."""
    return 1000 * (procrustes(joints, target) - target).norm(dim=-1).mean(-1)


def mve_mm(vertices: Tensor, target: Tensor, root: Tensor, target_root: Tensor) -> Tensor:
    """Return the mean distance [N] of vertices [N, V, 3], each relative to its root [N, 3]."""
    return mpjpe_mm(vertices, target, root, target_root)


def acceleration_error_mm(joints: Tensor, target: Tensor) -> Tensor:
    """Return the mean distance [N - 2] of second differences over time, mm per frame^2, as VIBE
    does.
    """
    return 1000 * torch.diff(joints - target, n=2, dim=0).norm(dim=-1).mean(-1)


@dataclass(frozen=True)
class PerFrame:
    """Hold the errors of N bodies in millimetres."""

    mpjpe_mm: Tensor  # [N]
    pa_mpjpe_mm: Tensor  # [N]
    mve_mm: Tensor | None  # [N]; None: the protocol has none, or no mesh was given
    acceleration_mm: (
        Tensor | None
    )  # [N] per frame^2, NaN where a neighbour is missing; None: no tracks were given


def _seen(enough: Callable[[np.ndarray], np.ndarray]) -> Callable[[TruthTrack], np.ndarray]:
    """Return a rule that selects frames [T] with a valid camera and enough of OpenPose's
    keypoints.
    """

    def counts(track: TruthTrack) -> np.ndarray:
        return (
            track.camera_valid
            if track.poses2d_px is None
            else track.camera_valid & enough(track.poses2d_px)
        )

    return counts


HAS_CAMERA = _seen(lambda points: np.ones(len(points), bool))  # SPIN's file, and WHAM's tracks
HAS_SEVEN_KEYPOINTS = _seen(
    lambda points: (points[..., 2] > VIBE_CONFIDENCE).sum(1) >= VIBE_KEYPOINTS
)
HAS_ANY_KEYPOINT = _seen(lambda points: (points != 0).any((1, 2)))


Root = Literal["pelvis", "hips", "first joint", "translation"]  # what points are relative to
# The field of `Bodies` that has it, and which of that field's points it is: None, the field itself.
_ROOTS: dict[Root, tuple[str, tuple[int, ...] | None]] = {
    "pelvis": ("pelvis", None),
    "hips": ("joints", HIPS),
    "first joint": ("kinematic", (0,)),
    "translation": ("translation", None),
}


@dataclass(frozen=True)
class Protocol:
    """Describe one published way to measure."""

    name: str
    truth_body: Literal["gendered", "neutral"]  # the body file of the true mesh
    joints: Literal["joints", "kinematic"]  # the field of `Bodies` that is compared
    root: Root  # of joints
    mesh_root: Root | None  # of the mesh; None: no MVE
    counts: Callable[[TruthTrack], np.ndarray]
    left_out: str  # what the frames lack that do not count


PROTOCOLS = {
    protocol.name: protocol
    for protocol in (
        # SPIN, EFT: relative to Human3.6M's pelvis. They report no MVE; here it is relative to that
        # pelvis.
        Protocol("spin", "gendered", "joints", "pelvis", "pelvis", HAS_CAMERA, "no valid camera"),
        # Meshes as the body model leaves them, without translation.
        Protocol(
            "vibe",
            "neutral",
            "joints",
            "hips",
            "translation",
            HAS_SEVEN_KEYPOINTS,
            "no valid camera or fewer than 7 keypoints by OpenPose",
        ),
        Protocol("wham", "gendered", "joints", "hips", "hips", HAS_CAMERA, "no valid camera"),
        # The 3DPW challenge: SMPL's own 24 joints.
        Protocol(
            "challenge",
            "gendered",
            "kinematic",
            "first joint",
            None,
            HAS_ANY_KEYPOINT,
            "no valid camera or not seen by OpenPose",
        ),
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
    """Score N predicted bodies, row n against row n of the truth. protocol: spin, vibe, wham or
    challenge. What each needs besides `joints`: spin `pelvis`, vibe `translation` if there are
    meshes, challenge `kinematic`. MVE needs `vertices`, acceleration `track` and `frame` of the
    truth."""
    if not len(truth):
        raise UserError("there are no bodies to score.")
    for field in ("joints", "pelvis", "vertices", "kinematic", "translation"):
        estimate = getattr(predicted, field)
        true = getattr(truth, field)
        if estimate is not None and true is not None and estimate.shape != true.shape:
            raise UserError(
                f"{field} of the prediction have size {list(estimate.shape)}, of the truth {list(true.shape)}; rows and "
                "body must be the same."
            )
        for source, value in (("prediction", estimate), ("truth", true)):
            if value is not None and not torch.isfinite(value).all():
                raise UserError(
                    f"{field} of the {source} have a number that is not finite (NaN or infinity)."
                )
    errors = _errors(predicted, truth, protocol_named(protocol))
    means = {
        name: None if value is None else float(value.nanmean())
        for name, value in vars(errors).items()
    }
    return Report(protocol=protocol, frames=len(truth), per_frame=errors, **means)  # type: ignore[arg-type]


def _errors(predicted: Bodies, truth: Bodies, protocol: Protocol) -> PerFrame:
    def both(field: str) -> tuple[Tensor, Tensor]:
        of_prediction = getattr(predicted, field)
        of_truth = getattr(truth, field)
        if of_prediction is None or of_truth is None:
            source = "the prediction" if of_prediction is None else "the truth"
            needs = f"the protocol {protocol.name} needs `{field}`"
            raise UserError(f"{needs}, which {source} does not have (eval3dpw.Bodies).")
        return of_prediction, of_truth

    def both_roots(root: Root) -> list[Tensor]:
        field, middle_of = _ROOTS[root]
        return [
            points if middle_of is None else points[:, middle_of, :].mean(1)
            for points in both(field)
        ]

    joints = both(protocol.joints)
    roots = both_roots(protocol.root)
    mve = None
    if (
        protocol.mesh_root is not None
        and predicted.vertices is not None
        and truth.vertices is not None
    ):
        mve = mve_mm(predicted.vertices, truth.vertices, *both_roots(protocol.mesh_root))
    own, true = (points - root[:, None] for points, root in zip(joints, roots, strict=True))
    return PerFrame(
        mpjpe_mm(*joints, *roots), pa_mpjpe_mm(*joints), mve, _acceleration_mm(own, true, truth)
    )


def _acceleration_mm(joints_m: Tensor, true_joints_m: Tensor, truth: Bodies) -> Tensor | None:
    """Return acceleration errors [N]; NaN where a frame and its neighbours are not three evenly
    spaced frames of a track.
    """
    if truth.track is None or truth.frame is None:
        return None
    result = joints_m.new_full((len(truth),), torch.nan)
    if len(truth) < 3:
        return result
    same_track = truth.track[1:] == truth.track[:-1]
    step = torch.diff(truth.frame)
    if not bool(same_track.any()):
        return result
    consecutive = same_track & (step == step[same_track].min())
    error = acceleration_error_mm(joints_m, true_joints_m)
    result[1:-1] = torch.where(consecutive[1:] & consecutive[:-1], error, torch.nan)
    return result
