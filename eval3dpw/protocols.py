"""How published tables measure on 3DPW. They differ in the body the truth is made with, in where bodies are laid on
each other, in whether the mesh is laid there too, and in which frames count. One function each.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from torch import Tensor

from eval3dpw.bodies import HIPS, Bodies
from eval3dpw.metrics import mpjpe_mm, mve_mm, pa_mpjpe_mm
from eval3dpw.tracks import TruthTrack
from pose2d.base.errors import UserError

SEEN = 0.3  # VIBE: OpenPose's confidence of a keypoint that counts ..
LEAST_SEEN = 7  # .. and how many of them a frame needs


@dataclass(frozen=True)
class Errors:
    """Of N bodies, in millimetres."""

    mpjpe_mm: Tensor  # [N]
    pa_mpjpe_mm: Tensor  # [N]
    mve_mm: Tensor | None  # [N]; None: the protocol has none, or no mesh was given
    away_m: Tensor  # [N, J, 3] what is left after the roots are laid on each other


def spin(predicted: Bodies, truth: Bodies) -> Errors:
    """SPIN, EFT: 14 joints relative to Human3.6M's pelvis. They state no MVE; here both meshes hang on that pelvis."""
    root, true_root = _given(predicted.pelvis, truth.pelvis, "pelvis", "spin")
    return _joints_and_mesh(predicted, truth, root, true_root)


def wham(predicted: Bodies, truth: Bodies) -> Errors:
    """WHAM: joints and mesh relative to the middle of the hips."""
    return _joints_and_mesh(predicted, truth, _mid_hips(predicted), _mid_hips(truth))


def vibe(predicted: Bodies, truth: Bodies) -> Errors:
    """VIBE: joints relative to the middle of the hips; meshes as the body model leaves them, without translation."""
    mve = None
    if predicted.vertices is not None and truth.vertices is not None:
        origin, true_origin = _given(predicted.translation, truth.translation, "translation", "vibe")
        mve = mve_mm(predicted.vertices, truth.vertices, origin, true_origin)
    return _of_joints(predicted.joints, truth.joints, _mid_hips(predicted), _mid_hips(truth), mve)


def challenge(predicted: Bodies, truth: Bodies) -> Errors:
    """The 3DPW challenge: SMPL's own 24 joints relative to the first of them; no mesh."""
    joints, true_joints = _given(predicted.kinematic, truth.kinematic, "kinematic", "challenge")
    return _of_joints(joints, true_joints, joints[:, 0], true_joints[:, 0], None)


def _joints_and_mesh(predicted: Bodies, truth: Bodies, root: Tensor, true_root: Tensor) -> Errors:
    mve = None
    if predicted.vertices is not None and truth.vertices is not None:
        mve = mve_mm(predicted.vertices, truth.vertices, root, true_root)
    return _of_joints(predicted.joints, truth.joints, root, true_root, mve)


def _of_joints(joints: Tensor, true_joints: Tensor, root: Tensor, true_root: Tensor, mve: Tensor | None) -> Errors:
    """What all protocols measure alike, once the joints and where they hang are chosen."""
    return Errors(
        mpjpe_mm(joints, true_joints, root, true_root),
        pa_mpjpe_mm(joints, true_joints),
        mve,
        (joints - root[:, None]) - (true_joints - true_root[:, None]),
    )


def _mid_hips(bodies: Bodies) -> Tensor:
    return bodies.joints[:, HIPS, :].mean(1)


def _given(predicted: Tensor | None, truth: Tensor | None, field: str, protocol: str) -> tuple[Tensor, Tensor]:
    if predicted is None or truth is None:
        whose = "the prediction" if predicted is None else "the truth"
        raise UserError(f"the protocol {protocol} needs `{field}`, which {whose} does not have (eval3dpw.Bodies).")
    return predicted, truth


# Which frames [T] of a person count.


def camera_known(track: TruthTrack) -> np.ndarray:
    """SPIN's file, and the tracks of WHAM."""
    return track.camera_valid


def well_seen(track: TruthTrack) -> np.ndarray:
    """VIBE: OpenPose saw at least seven keypoints."""
    if track.poses2d_px is None:
        return track.camera_valid
    return track.camera_valid & ((track.poses2d_px[..., 2] > SEEN).sum(1) >= LEAST_SEEN)


def detected(track: TruthTrack) -> np.ndarray:
    """The challenge: OpenPose saw the person at all."""
    if track.poses2d_px is None:
        return track.camera_valid
    return track.camera_valid & (track.poses2d_px != 0).any((1, 2))


@dataclass(frozen=True)
class Protocol:
    """One way of measuring."""

    name: str
    truth_body: Literal["gendered", "neutral"]  # the file that the true mesh is made with
    counts: Callable[[TruthTrack], np.ndarray]
    errors: Callable[[Bodies, Bodies], Errors]
    left_out: str  # what a frame lacks that does not count
    test_frames: int | None  # person-frames of 3DPW's test split, as published


PROTOCOLS = {
    protocol.name: protocol
    for protocol in (
        Protocol("spin", "gendered", camera_known, spin, "no valid camera", 35_515),
        Protocol("vibe", "neutral", well_seen, vibe, "no valid camera or fewer than 7 keypoints by OpenPose", 34_561),
        Protocol("wham", "gendered", camera_known, wham, "no valid camera", None),
        Protocol("challenge", "gendered", detected, challenge, "no valid camera or not seen by OpenPose", None),
    )
}


def protocol_named(name: str) -> Protocol:
    if name not in PROTOCOLS:
        raise UserError(f"unknown protocol {name!r}: choose {', '.join(PROTOCOLS)}.")
    return PROTOCOLS[name]
