"""Bodies fitted to the marks of real people, to learn from as if they were true (SPIN's loop).

A fit begins at the image network's answer and stays near it, so the depth is the network's and the
image is the annotators'. Fits that miss the marks, and the unlikeliest poses, are not used.
Kolotouros et al., "Learning to Reconstruct 3D Human Pose and Shape via Model-fitting in the Loop",
2019.
"""

import torch
from torch import Tensor

from fitting.body import Body, BodyParams
from fitting.body.rotations import axis_angle_to_quaternion
from fitting.camera import Camera
from fitting.fits import InitialGuess
from fitting.init.lifter import SEEN_TWICE, to_camera
from fitting.init.lifter_inputs import Box, Observation, make_inputs
from fitting.init.lifter_network import LOG_STD_RANGE, LifterOutput
from fitting.optimise import fit_frames
from fitting.solver.terms.pose_prior import load_prior
from fitting.solver.unknowns import from_params
from pose2d.models.base import PoseModel
from pose2d.skeletons import COCO17
from pose2d.types import AREA_OF_BOX, Keypoints
from training.image.batches import crop_inputs, points_in_crop, unchanged
from training.image.network import ImageLifter
from training.image.real_people import NO_MARKS, PseudoTruth, RealShard

BATCH = 50
# Expected OKS of a joint at its mark: annotators scatter by 0.35 l (fitting/keypoints/weights.py).
MARK_CONFIDENCE = 0.89
HIP_CONFIDENCE = 0.6  # hips are marked by eye in clothes. Not tuned
FARTHEST_SHARE = 0.04  # of the box's larger side, on average, from marks: else the fit has failed
UNLIKELY_SHARE = 0.1  # of the fits, by the pose prior, are not used


def fit_marks(shard: RealShard, network: ImageLifter, model: PoseModel, body: Body) -> PseudoTruth:
    """Fit everyone to the marks, from the network's answer."""
    parts = [
        _fit_rows(shard, rows, network, model, body)
        for rows in torch.arange(len(shard)).split(BATCH)
    ]
    turn, shape, pelvis_m, miss, unlikeliness = (
        torch.cat(values) for values in zip(*parts, strict=True)
    )
    fits_marks = miss < FARTHEST_SHARE
    is_good = fits_marks.clone()
    if bool(fits_marks.any()):
        is_good &= unlikeliness <= unlikeliness[fits_marks].quantile(1 - UNLIKELY_SHARE)
    return PseudoTruth(turn, shape, pelvis_m, is_good)


def network_guess(
    shard: RealShard, rows: Tensor, network: ImageLifter, model: PoseModel, body: Body
) -> InitialGuess:
    """Return the network's bodies of rows [B] with its stated deviations."""
    draw = unchanged(rows)
    keypoints = Observation(*(column[rows][:, None] for column in shard.keypoints))
    inputs = make_inputs(keypoints)
    points = points_in_crop(shard.keypoints_px[rows], draw.flip, model)
    with torch.inference_mode():
        early = network.early_features(crop_inputs(shard, draw, model))
        output = network(early, inputs.features[:, 0], points).body
    alone = LifterOutput(*(value[:, 0] for value in output))
    box = Box(*(value[:, 0] for value in inputs.box))
    params = to_camera(alone, box, body)
    rotation_std = alone.log_rotation_std.clamp(*LOG_STD_RANGE).exp()
    depth_std = alone.log_depth_std.clamp(*LOG_STD_RANGE).exp()
    values = (params.pose, params.shape, params.translation)
    pose, shape, translation = (value.clone() for value in values)
    return InitialGuess(
        BodyParams(pose, shape, translation), SEEN_TWICE * rotation_std.clone(), depth_std.clone()
    )


def _fit_rows(
    shard: RealShard, rows: Tensor, network: ImageLifter, model: PoseModel, body: Body
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return rotations, shapes, pelvises, misses in box sides and unlikeliness of rows [B]."""
    keypoints, cameras = marks_as_keypoints(shard, rows)
    guess = network_guess(shard, rows, network, model, body)
    fit = fit_frames(keypoints, cameras, body, guess)
    params = fit.params
    sides_px = (shard.box_px[rows, 2:] - shard.box_px[rows, :2]).amax(-1)
    counted = [k for k in range(COCO17.size) if k not in NO_MARKS]
    miss = fit.reprojection_px[:, counted].nanmean(1) / sides_px
    # Frames that were not solved stay at their guess.
    miss = torch.where(fit.observed & torch.isfinite(miss), miss, torch.inf)
    state = from_params(params, params.shape.shape[-1])
    unlikeliness = -load_prior().log_likelihood(state.body_pose)
    pelvis = body.at(params).joints[:, 0]
    shape = torch.nn.functional.pad(params.shape, (0, body.shape_size - params.shape.shape[-1]))
    return axis_angle_to_quaternion(params.pose), shape, pelvis, miss, unlikeliness


def marks_as_keypoints(shard: RealShard, rows: Tensor) -> tuple[Keypoints, list[Camera]]:
    """Return annotators' marks of rows [B] as keypoints with a stated error, and the cameras."""
    assert shard.marked_rays is not None
    assert shard.mark_weight is not None
    focal = shard.focal_px[rows]
    center = shard.image_wh[rows] / 2
    confidence = torch.full((COCO17.size,), MARK_CONFIDENCE)
    confidence[list(NO_MARKS)] = HIP_CONFIDENCE
    presence = (shard.mark_weight[rows] > 0).float()
    keypoints = Keypoints(
        shard.marked_rays[rows] * focal[:, None, None] + center[:, None],
        confidence * presence,
        presence,
        "closed-form",
        skeleton=COCO17,
        area_px2=AREA_OF_BOX * (shard.box_px[rows, 2:] - shard.box_px[rows, :2]).prod(-1),
    )
    cameras = [
        Camera.from_focal(float(f), (int(width), int(height)))
        for f, (width, height) in zip(focal, shard.image_wh[rows].tolist(), strict=True)
    ]
    return keypoints, cameras
