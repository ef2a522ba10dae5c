"""Where a network reads a person's keypoints, beside where the body has them.

Clothes hide joints. Networks learnt from people's marks on photographs, and read the hips of a
dressed person below the joints, by about a tenth of the thigh, which makes legs look short. By how
much differs between people and clothes, and hardly over a clip: these are a few unknowns of each
track (HABITS), in standard deviations from what real people show. 0 is their mean. `Body.at` adds
the displacements to the keypoints of `BodyParams` that have a `reading`; without one, keypoints are
the body's own. Joints and mesh never move.

A habit moves keypoints along a bone, by a share of that bone's length in the mean body:

    q_k <- q_k + (mean + std * reading) G_b (J_end - J_start).
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from fitting.body.attached_points import AttachedPoints
from fitting.body.kinematics import JOINT_NAMES
from pose2d.skeletons import HALPE26


@dataclass(frozen=True)
class Habit:
    """One habit of reading: keypoints of both sides move alike, along the bone that starts there."""

    keypoint: str  # without its side; the joint of this name carries the bone
    end: str  # joint where the bone ends
    mean: float  # share of the bone's length
    std: float  # between people


# From the hip downwards, chosen with `bench/tuning/reading_habits.py` and the four cameras of
# pose2sim. Of upright people who face the camera, legs lean to it by 17.8 degrees without readings,
# by 14.2 with these, and by 12.4 with hips of 0.13 +- 0.05 and knees of 0.03 +- 0.03; but the man of
# pose2sim, whose hips are read where they are, is then 5 mm (MPJPE) worse than with these. Shoulders
# (up the trunk) and elbows (down the forearm) bring nothing: people lean no less.
HABITS = (Habit("hip", "knee", 0.10, 0.08), Habit("knee", "ankle", 0.0, 0.03))
READINGS = len(HABITS)


def reading_terms(rest_joints: Tensor) -> AttachedPoints:
    """Return the displacements of the 26 keypoints as terms on bones, for joints at rest [24, 3].

    Their offset is the mean displacement, and `offset_shapedirs` [E, 3, READINGS] are metres per
    standard deviation. The pelvis follows half of each hip.
    """
    keypoints = []
    carriers = []
    means = []
    directions = []
    for number, habit in enumerate(HABITS):
        for side in ("left", "right"):
            start = JOINT_NAMES.index(f"{side}_{habit.keypoint}")
            end = JOINT_NAMES.index(f"{side}_{habit.end}")
            bone = rest_joints[end] - rest_joints[start]
            moved = {f"{side}_{habit.keypoint}": 1.0}
            if habit.keypoint == "hip":
                moved["pelvis"] = 0.5
            for keypoint, share in moved.items():
                keypoints.append(HALPE26.keypoints.index(keypoint))
                carriers.append(start)
                means.append(share * habit.mean * bone)
                direction = bone.new_zeros(3, READINGS)
                direction[:, number] = share * habit.std * bone
                directions.append(direction)
    numbers = torch.arange(HALPE26.size)
    gather = (numbers[:, None] == torch.tensor(keypoints)).to(rest_joints)
    return AttachedPoints(
        bone=torch.tensor(carriers),
        coefficient=rest_joints.new_zeros(len(carriers)),
        offset=torch.stack(means),
        offset_shapedirs=torch.stack(directions),
        offset_posedirs=None,
        gather=gather,
    )


def join_reading(points: AttachedPoints, reading: AttachedPoints, size: int) -> AttachedPoints:
    """Return keypoints together with where they are read: the leading `size` shape directions come
    first, then the readings.
    """
    readings = reading.offset_shapedirs.shape[-1]
    own = torch.nn.functional.pad(points.offset_shapedirs[..., :size], (0, readings))
    added = torch.nn.functional.pad(reading.offset_shapedirs, (size, 0))
    posedirs = points.offset_posedirs
    if posedirs is not None:
        none = posedirs.new_zeros(len(reading.bone), *posedirs.shape[1:])
        posedirs = torch.cat((posedirs, none))
    return AttachedPoints(
        torch.cat((points.bone, reading.bone)),
        torch.cat((points.coefficient, reading.coefficient)),
        torch.cat((points.offset, reading.offset)),
        torch.cat((own, added)),
        posedirs,
        torch.cat((points.gather, reading.gather), 1),
    )
