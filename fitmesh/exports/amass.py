"""`amass/person_N.npz`: the layout of AMASS with SMPL-H poses, which retargeting tools read.

World with z up, as AMASS has it: x to the right as the camera first sees it, y away from that camera, z up, metres.
`trans` is SMPL's: added to every point of the posed body, so that the pelvis is at its rest position plus `trans`.

AMASS knows neither absences nor a size. Each segment of frames in which the person is there is a file of its own, so
that nobody learns a pose that was only held; and lengths are divided by the person's size, so that a body of SMPL's
size moves like the person and stands on the floor."""

from pathlib import Path
from typing import Any

import numpy as np
from scipy.spatial.transform import Rotation

from fitmesh.exports.scene import SceneFrame, frame_rate, motion_of, rest_body
from fitmesh.result import Person, Result

Z_UP_FROM_Y_UP = np.array([[1.0, 0, 0], [0, 0, -1], [0, 1, 0]])
BODY_JOINTS, HAND_NUMBERS = 22, 90  # SMPL-H: SMPL's joints without its two hands, then 15 joints a hand
BETAS = 16
# Pelvis of SMPL's neutral body at rest and at zero shape, metres: SMPL's origin is in the chest, the open body's in the
# pelvis. Whoever poses SMPL or SMPL-H with `trans` finds the pelvis where it was.
SMPL_REST_PELVIS_M = np.array([-0.0018, -0.2233, 0.0282])


def write(result: Result, scene: SceneFrame, path: Path, person: Person, rows: slice) -> None:
    rate, rest = frame_rate(result), rest_body(result.body, person)
    rotations, pelvis_m = motion_of(result, person, scene, rows)
    rotations[0] = Rotation.from_matrix(Z_UP_FROM_Y_UP) * rotations[0]
    body = np.concatenate([rotation.as_rotvec() for rotation in rotations[:BODY_JOINTS]], 1)
    hands = np.zeros((len(body), HAND_NUMBERS))
    if person.hand_pose_rad is not None:
        hands = np.concatenate([rotation.as_rotvec() for rotation in rotations[BODY_JOINTS:]], 1)
    shape = np.zeros(BETAS)
    rest_pelvis_m = SMPL_REST_PELVIS_M
    if result.body_path is not None:  # a model of the SMPL family: its own shape, its own pelvis
        shape[: len(person.shape)] = person.shape[:BETAS]
        rest_pelvis_m = rest.joints_m[0] / person.size
    arrays: dict[str, Any] = {
        "poses": np.concatenate([body, hands], 1),
        "trans": pelvis_m @ Z_UP_FROM_Y_UP.T / person.size - rest_pelvis_m,
        "betas": shape,
        "gender": np.array("neutral"),
        "mocap_framerate": np.array(float(rate)),
        # The same under the names of AMASS's newer files, which GMR reads.
        "mocap_frame_rate": np.array(float(rate)),
        "root_orient": body[:, :3],
        "pose_body": body[:, 3:],
        "pose_hand": hands,
        "surface_model_type": np.array("smplh"),
        # Beyond AMASS.
        "size": np.array(person.size),
        "height_m": np.array(person.height_m),
        "upright": np.array(scene.upright[person.shot]),
    }
    np.savez(path, **arrays)
