"""Captured motion on the open body: people stand, raise their shoulders and lie as people do."""

from math import radians

import numpy as np
import pytest
import torch
from torch.nn.functional import normalize

import fitting
from eval3dpw.captured.collars import ARM_DEG, RISE_MM, raise_collars
from eval3dpw.captured.knees import signed_flexion_deg, straighten_knees, subjects_excess_deg
from eval3dpw.captured.motion import Motion, load_captured, load_motion
from fitting.body import BodyParams
from fitting.body.fingers import WRISTS
from fitting.body.rotations import axis_angle_to_quaternion, rotation_matrices
from fitting.hands import lay_palms_flat
from pose2d.base.errors import UserError
from training.motion import possible_poses, rare_poses
from training.motion.accad import load_accad
from training.motion.kinds import KNEELING, LYING, ON_HANDS, SEATED, UPSIDE_DOWN, pose_kinds
from training.motion.standing import stands_quietly
from training.motion.ui_prmd import load_ui_prmd

QUANTILES = torch.tensor([0.1, 0.5, 0.9])


@pytest.fixture(scope="module")
def body():
    return fitting.load_body()


@pytest.fixture(scope="module")
def ui_prmd(shared, body):
    return load_ui_prmd(shared / "data" / "motion" / "ui_prmd_25hz.npz", body)


def joints_of(motion: Motion, body):
    return torch.cat([body(part).joints for part in motion.pose.split(8192)])


def standing_knees(motion: Motion, body):
    """10, 50 and 90 % of the knees' signed bend in quiet standing, degrees."""
    joints = joints_of(motion, body)
    quiet = stands_quietly(joints, motion.root_m, motion.clip_start, motion.fps)
    assert quiet.sum() > 1000
    return signed_flexion_deg(joints)[quiet].flatten().quantile(QUANTILES)


def opencap_static_knees(path):
    """The same of OpenCap's calibration trials, from knee and ankle markers of both sides and
    functional hips.
    """
    with np.load(path) as file:
        names = [str(name) for name in file["point"]]
        start = file["clip_start"]
        clips = [
            number for number, text in enumerate(file["clip_desc"]) if "standing still" in str(text)
        ]
        place = torch.from_numpy(
            np.concatenate([file["position_mm"][start[c] : start[c + 1]] for c in clips]).astype(
                np.float32
            )
        )

    def at(name):
        return place[:, names.index(name)]

    joints = torch.zeros(len(place), 24, 3)
    for side, (hip, knee, ankle, toes) in (("L", (1, 4, 7, 10)), ("r", (2, 5, 8, 11))):
        joints[:, hip] = at(f"{side.upper()}_HJC")
        joints[:, knee] = (at(f"{side}_knee") + at(f"{side}_mknee")) / 2
        joints[:, ankle] = (at(f"{side}_ankle") + at(f"{side}_mankle")) / 2
        joints[:, toes] = joints[:, ankle] + at(f"{side}_toe") - at(f"{side}_calc")
    return signed_flexion_deg(joints).flatten().quantile(QUANTILES)


def test_people_of_all_captures_stand_with_straight_knees(shared, body, ui_prmd):
    cmu = shared / "data" / "cmu"
    poses = load_motion(cmu / "poses_5fps.npz", body, 5.0, cmu / "clips_30fps.npz")
    others = {
        "CMU": standing_knees(poses, body),
        "UI-PRMD": standing_knees(ui_prmd, body),
        "ACCAD": standing_knees(
            load_accad(shared / "data" / "motion" / "accad_female1.npz", body), body
        ),
        "OpenCap": opencap_static_knees(shared / "data" / "motion" / "opencap_25hz.npz"),
    }
    for name, (low, median, high) in others.items():
        assert -10 < low < 4, name
        assert -4 < median < 8, name
        assert 0 < high < 22, name


def test_as_captured_cmus_people_bend_their_knees(shared, body):
    cmu = shared / "data" / "cmu"
    _low, median, high = standing_knees(
        load_captured(cmu / "poses_5fps.npz", body, 5.0, cmu / "clips_30fps.npz"), body
    )
    assert 14 < median < 22
    assert high > 30


def test_walkers_swing_their_legs_as_far_as_captured(shared, body):
    path = shared / "data" / "cmu" / "clips_30fps.npz"
    before = load_captured(path, body, 30.0)
    after = load_motion(path, body, 30.0)
    walks = before.frames_of(np.array(["walk" in text.lower() for text in before.clip_description]))
    bend = [
        signed_flexion_deg(joints_of(motion, body)[torch.from_numpy(walks)])
        for motion in (before, after)
    ]
    assert abs(float(bend[0].quantile(0.95) - bend[1].quantile(0.95))) < 4
    assert bend[0].median() - bend[1].median() > 10


def test_a_knee_goes_back_between_a_hip_and_an_ankle_in_line(body):
    pose = torch.zeros(3, 24, 3)
    pose[:, (4, 5), 0] = torch.tensor([0.25, 0.4, 1.6])[:, None]
    pose[:, (1, 2), 0] = -pose[:, (4, 5), 0] / 2
    found = straighten_knees(pose, torch.full((3, 2), 15.0), body)
    before = body(pose).joints
    after = body(found).joints
    bend = signed_flexion_deg(before) - signed_flexion_deg(after)
    assert (bend[:2] > 12).all()
    assert (bend[2] < 1).all()  # a deep bend is right
    legs = [normalize(joints[:, (7, 8)] - joints[:, (1, 2)], dim=-1) for joints in (before, after)]
    assert torch.rad2deg(torch.acos((legs[0] * legs[1]).sum(-1).clamp(-1, 1))).max() < 1.5
    feet = [joints[:, (10, 11)] - joints[:, (7, 8)] for joints in (before, after)]
    torch.testing.assert_close(feet[0], feet[1], atol=1e-3, rtol=0)


def test_a_straight_knee_is_not_made_to_bend_backwards(body):
    bend = signed_flexion_deg(
        body(straighten_knees(torch.zeros(1, 24, 3), torch.full((1, 2), 30.0), body)).joints
    )
    assert (bend > -7).all()


def test_every_subject_of_cmu_has_its_own_excess():
    excess = subjects_excess_deg()
    assert len(excess) > 100
    assert max(map(max, excess.values())) < 40
    assert min(map(min, excess.values())) >= 0


def test_shoulders_rise_with_the_arms_as_measured(body):
    pose = torch.zeros(len(ARM_DEG), 24, 3)
    pose[:, 16, 2] = torch.tensor(ARM_DEG).deg2rad() - radians(90)
    pose[:, 17, 2] = -pose[:, 16, 2]
    raised = body(raise_collars(pose, body)).joints
    rise_mm = 1000 * (raised[:, (16, 17), 1] - body(torch.zeros(1, 24, 3)).joints[:, (16, 17), 1])
    torch.testing.assert_close(
        rise_mm, torch.tensor(RISE_MM)[:, None].expand(-1, 2), atol=1.0, rtol=0
    )
    arm = raised[:, 18] - raised[:, 16]
    plain = body(pose).joints
    torch.testing.assert_close(arm, plain[:, 18] - plain[:, 16], atol=1e-4, rtol=0)


def test_ui_prmds_shoulders_rise_on_the_open_body(body, ui_prmd):
    """Abduction and scaption, done correctly: the medians that the curve was made from."""
    clips = np.array(
        [name.split("_")[1] in ("m07", "m10") and name.endswith("c") for name in ui_prmd.clip_name]
    )
    pose = ui_prmd.poses_of(clips)
    turned = body.placement(rotation_matrices(pose), torch.zeros(body.shape_size))
    rises = []
    angles = []
    for collar, shoulder, elbow in ((13, 16, 18), (14, 17, 19)):
        thorax = turned.rotation[:, 9]
        rest = body.rest_joints[shoulder] - body.rest_joints[collar]
        place = (thorax.mT @ (turned.joints[:, shoulder] - turned.joints[:, collar])[..., None])[
            :, 1, 0
        ]
        arm = normalize(turned.joints[:, elbow] - turned.joints[:, shoulder], dim=-1)
        angles.append(torch.rad2deg(torch.acos(-(arm * thorax[:, :, 1]).sum(-1))))
        rises.append(1000 * (place - rest[1]))
    rise = torch.cat(rises)
    angle = torch.cat(angles)
    for low, high, expected in (
        (0, 25, 0),
        (25, 60, 9),
        (60, 90, 27),
        (90, 120, 39),
        (120, 150, 55),
    ):
        found = float(rise[(angle >= low) & (angle < high)].median())
        assert abs(found - expected) < 12, (low, found)


def test_a_file_without_its_markers_is_refused_in_words(body, tmp_path):
    with pytest.raises(UserError, match="there is no such file"):
        load_ui_prmd(tmp_path / "none.npz", body)
    arrays = {
        "position_mm": np.zeros((4, 1, 3), np.int16),
        "point": np.array(["LASI"]),
        "clip_start": np.array([0, 4]),
        "clip_name": np.array(["m01"]),
        "clip_desc": np.array(["squat"]),
        "clip_subject": np.array([1]),
        "clip_movement": np.array([1]),
    }
    np.savez(tmp_path / "few.npz", **arrays)
    with pytest.raises(UserError, match="lacks the markers"):
        load_ui_prmd(tmp_path / "few.npz", body)


def test_recordings_of_held_out_subjects_are_not_learned_under_another_number():
    names = ("70_1", "73_1", "85_1", "117_1", "105_1", "91_1", "90_1", "121_1", "123_1", "2_1")
    motion = Motion(torch.zeros(10, 24, 3), None, np.arange(11), names, 5.0)
    assert motion.learned.tolist() == [False] * 9 + [True]


KINDS_OF = {
    "sitting": SEATED,
    "kneeling": KNEELING,
    "all fours": ON_HANDS,
    "plank": ON_HANDS,
    "lying": LYING,
    "inverted": UPSIDE_DOWN,
}


@pytest.fixture(scope="module")
def rare(body):
    return rare_poses.rare_motion(torch.zeros(4, 24, 3), body, 200, 0)


def test_rare_poses_are_of_the_kind_they_are_called(body, rare):
    kind = pose_kinds(body(rare.pose).joints)
    for name, expected in KINDS_OF.items():
        frames = torch.from_numpy(
            rare.frames_of(np.array([text == name for text in rare.clip_description]))
        )
        assert (kind[frames] == expected).float().mean() > 0.55, name


def test_palms_that_bear_weight_lie_on_the_floor_with_wrists_bent_back(body, rare):
    frames = torch.from_numpy(
        rare.frames_of(np.array([text == "all fours" for text in rare.clip_description]))
    )
    pose = rare.pose[frames]
    joints = body(pose).joints
    height = joints[..., 1] - joints[..., 1].amin(1, keepdim=True)
    assert height[:, (22, 23)].median() < 0.06
    assert height[:, (4, 5)].median() < 0.1
    bent = torch.rad2deg(torch.stack((pose[:, 20, 2], -pose[:, 21, 2]), 1))
    assert bent.median() > 60


def test_palms_of_people_on_their_hands_are_laid_flat_whatever_the_wrists_were(body, rare):
    described = np.array(rare.clip_description)
    on_hands = rare.frames_of(np.isin(described, ("all fours", "plank", "down dog")))
    up = torch.tensor([0.0, 1.0, 0.0])
    pose = rare.pose.clone()
    pose[:, list(WRISTS)] = 0.0  # hands go on where forearms end
    params = BodyParams(pose, torch.zeros(10), torch.zeros(len(pose), 3))
    lean = rotation_matrices(torch.tensor([[0.2, 0.0, 0.15]]))[0]  # up is known roughly
    flat = lay_palms_flat(params, body, (lean @ up).expand(len(pose), 3))
    before, after = (body.at(some).joints for some in (params, flat))
    assert torch.allclose(before[:, :22], after[:, :22], atol=1e-5)  # nothing but the hands moves
    sunk = [(at[:, (22, 23), 1] - at[:, list(WRISTS), 1])[on_hands] for at in (before, after)]
    assert sunk[0].median() < -0.06
    assert sunk[1].abs().median() < 0.02
    assert (sunk[1] > -0.03).float().mean() > 0.9
    turned = body.placement(rotation_matrices(flat.pose), torch.zeros(body.shape_size)).rotation[
        on_hands
    ]
    assert turned[:, WRISTS, 1, 1].median() > 0.95  # palms face down
    for joint, elbow in zip(
        WRISTS, (18, 19), strict=True
    ):  # wrists bend; turning about the forearm is the elbow's
        forearm = normalize(body.rest_joints[joint] - body.rest_joints[elbow], dim=0)
        bent = axis_angle_to_quaternion(flat.pose[on_hands][:, joint])
        assert (
            torch.rad2deg(2 * torch.atan(bent[:, :3] @ forearm / bent[:, 3])).abs().quantile(0.9)
            < 5
        )
    upright = rare.frames_of(np.isin(described, ("sitting", "kneeling", "reaching")))
    assert (flat.pose[upright] == params.pose[upright]).all(-1).all(-1).float().mean() > 0.98


def test_rare_poses_keep_to_limits_apart_and_balanced(body, rare):
    first = rare.pose[:: rare_poses.CLIP_FRAMES]
    assert possible_poses.are_limbs_apart(body(first).joints).float().mean() > 0.97
    fours = np.array([text in ("all fours", "plank") for text in rare.clip_description])
    assert possible_poses.is_balanced(body(first[torch.from_numpy(fours)]).joints).all()


def test_a_hand_in_the_belly_and_a_falling_body_are_seen(body):
    pose = torch.zeros(1, 24, 3)
    assert possible_poses.are_limbs_apart(body(pose).joints).all()
    assert possible_poses.is_balanced(body(pose).joints).all()
    pose[0, 0, 0] = 0.6  # leans by 34 degrees, straight
    assert not possible_poses.is_balanced(body(pose).joints).any()
    pose[0, 16] = torch.tensor([0.0, -1.4, 0.0])
    pose[0, 18] = torch.tensor([0.0, -2.5, 0.0])
    pose[0, 13] = torch.tensor([0.0, -0.6, 0.0])
    assert not possible_poses.are_limbs_apart(body(pose).joints).all()
