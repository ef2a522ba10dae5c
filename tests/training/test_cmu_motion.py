"""Motion capture files of the layouts that CMU gives out, made small, against rotations that are
known.
"""

from pathlib import Path

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from pose2d.base.errors import UserError
from training.cmu.capture import JOINT_OF_BONE, Capture, read_amc, read_asf, read_bvh
from training.cmu_motion import JOINTS, Wanted, differences, find, listed, main, pack, sampled

ASF = """# comment
:version 1.10
:name TINY
:units
  mass 1.0
  length 0.45
  angle deg
:documentation
   by hand
:root
   order TX TY TZ RX RY RZ
   axis XYZ
   position 0 0 0
   orientation 0 0 0
:bonedata
  begin
     id 1
     name lhipjoint
     direction 0.6 -0.8 0.0
     length 2.5
     axis 0 0 0  XYZ
  end
  begin
     id 2
     name lfemur
     direction 0.0 -1.0 0.0
     length 7.0
     axis 0 0 90  XYZ
    dof rx ry rz
    limits (-160.0 20.0)
           (-70.0 70.0)
           (-60.0 70.0)
  end
  begin
     id 3
     name ltibia
     direction 0 -1 0
     length 7
     axis 0 0 20 XYZ
    dof rx
    limits (-10.0 170.0)
  end
:hierarchy
  begin
    root lhipjoint
    lhipjoint lfemur
    lfemur ltibia
  end
"""
AMC = """#!OML:ASF F:\\tiny.asf
:FULLY-SPECIFIED
:DEGREES
1
root 1 2 3 10 20 30
lfemur 30 0 0
ltibia 0
2
root 4 5 6 0 0 0
lfemur 10 20 30
ltibia 90
"""


@pytest.fixture
def tiny(tmp_path: Path) -> Capture:
    (tmp_path / "01.asf").write_text(ASF)
    (tmp_path / "01_01.amc").write_text(AMC)
    return read_amc(tmp_path / "01_01.amc", read_asf(tmp_path / "01.asf"), 120)


def turn(capture: Capture, frame: int, joint: str) -> Rotation:
    angles = capture.euler_zyx_deg[frame, capture.skeleton.joint.index(joint)]
    return Rotation.from_euler("ZYX", angles, degrees=True)


def apart_deg(a: Rotation, b: Rotation) -> float:
    return float(np.rad2deg((a.inv() * b).magnitude()))


def test_bones_become_joints_where_they_begin(tiny: Capture) -> None:
    assert tiny.skeleton.joint == ("Hips", "LHipJoint", "LeftUpLeg", "LeftLeg")
    assert tiny.skeleton.parent == (-1, 0, 1, 2)
    np.testing.assert_allclose(
        tiny.skeleton.offset, [[0, 0, 0], [0, 0, 0], [1.5, -2.0, 0], [0, -7, 0]]
    )
    np.testing.assert_allclose(tiny.root, [[1, 2, 3], [4, 5, 6]])


def test_a_turn_about_a_bones_own_x_is_about_the_worlds_y_where_the_bone_lies_so(
    tiny: Capture,
) -> None:
    assert apart_deg(turn(tiny, 0, "LeftUpLeg"), Rotation.from_euler("y", 30, degrees=True)) < 1e-9
    about_tilted_x = Rotation.from_rotvec(
        np.deg2rad(90) * np.array([np.cos(np.pi / 9), np.sin(np.pi / 9), 0])
    )
    assert apart_deg(turn(tiny, 1, "LeftLeg"), about_tilted_x) < 1e-9


def test_the_root_turns_about_x_then_y_then_z(tiny: Capture) -> None:
    x, y, z = (
        Rotation.from_euler(axis, angle, degrees=True)
        for axis, angle in zip("xyz", (10, 20, 30), strict=True)
    )
    assert apart_deg(turn(tiny, 0, "Hips"), z * y * x) < 1e-9
    assert apart_deg(turn(tiny, 0, "LHipJoint"), Rotation.identity()) < 1e-9, (
        "a bone without channels stays"
    )


@pytest.mark.parametrize("order", ["ZYX", "XYZ", "YXZ"])
def test_a_bvh_file_may_order_its_channels_as_it_likes(order: str, tmp_path: Path) -> None:
    rotations = Rotation.random(4, random_state=1)
    write_bvh(tmp_path / "a.bvh", ("Hips", "LeftUpLeg"), (-1, 0), rotations, order)
    capture = read_bvh(tmp_path / "a.bvh")
    assert capture.fps == pytest.approx(120, rel=1e-4)
    np.testing.assert_allclose(capture.root, [[0, 10, 0], [1, 10, 0]])
    for k, (frame, joint) in enumerate(
        ((0, "Hips"), (0, "LeftUpLeg"), (1, "Hips"), (1, "LeftUpLeg"))
    ):
        assert apart_deg(turn(capture, frame, joint), rotations[k]) < 1e-3


def write_bvh(
    path: Path, names: tuple, parents: tuple, rotations: Rotation, order: str, fps: float = 120
) -> None:
    """Frame after frame, joint after joint; joints are given depth first."""
    depth = [0]
    for parent in parents[1:]:
        depth.append(depth[parent] + 1)
    lines = ["HIERARCHY"]
    turning = " ".join(f"{axis}rotation" for axis in order)
    for number, name in enumerate(names):
        for _ in range(depth[number - 1] - depth[number] + 1 if number else 0):
            lines.append("}")
        lines.append(
            f"{'JOINT' if number else 'ROOT'} {name}\n{{\nOFFSET {number} {-2 * number} 0.5"
        )
        place = "" if number else "Xposition Yposition Zposition "
        lines.append(f"CHANNELS {3 if number else 6} {place}{turning}")
    lines += ["End Site", "{", "OFFSET 0 -1 0", "}", *["}"] * (depth[-1] + 1)]
    angles = rotations.as_euler(order, degrees=True).reshape(-1, 3 * len(names))
    lines += ["MOTION", f"Frames: {len(angles)}", f"Frame Time: {1 / fps:.7f}"]
    lines += [
        f"{t} 10 0 " + " ".join(f"{value:.6f}" for value in row) for t, row in enumerate(angles)
    ]
    path.write_text("\n".join(lines) + "\n")


def test_frames_are_thinned_from_the_first_on(tiny: Capture) -> None:
    long = Capture(tiny.skeleton, np.zeros((298, 4, 3)), np.zeros((298, 3)), 120.0)
    assert len(long.root[sampled(long, 30)]) == 75
    with pytest.raises(UserError, match="cannot be thinned to 50"):
        sampled(long, 50)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("1\nlfemur 1 2\n", "expected 3 numbers"),
        ("1\nwing 1\n", "neither a frame number"),
        ("", "no frames"),
        ("1\nroot 0 0 0 0 0 0\nltibia 3\n", "lacks lfemur"),
    ],
)
def test_damaged_motion_is_named(text: str, problem: str, tmp_path: Path) -> None:
    (tmp_path / "01.asf").write_text(ASF)
    (tmp_path / "01_01.amc").write_text(text)
    with pytest.raises(UserError, match=problem):
        read_amc(tmp_path / "01_01.amc", read_asf(tmp_path / "01.asf"), 120)


def test_every_joint_has_a_bone_and_the_list_has_its_clips() -> None:
    assert set(JOINTS) == set(JOINT_OF_BONE.values())
    clips = listed()
    assert len({clip.name for clip in clips}) == len(clips) == 238
    assert sum(clip.frames for clip in clips) == 26_211


def test_captured_clips_come_back_as_they_are(shared: Path, tmp_path: Path) -> None:
    """Clips of the real file, written as BVH at 120 frames/s after a T-pose, give the real file's
    arrays again.
    """
    with np.load(shared / "data" / "cmu" / "clips_30fps.npz") as file:
        real = dict(file)
    names = tuple(map(str, real["joint"]))
    clips = listed()[:2]
    for number, clip in enumerate(clips):
        start, end = real["clip_start"][number : number + 2]
        angles = real["euler_zyx_deg_x100"][start:end].astype(float) / 100
        held = np.concatenate(
            [np.zeros((1, len(names), 3)), np.repeat(angles, 4, 0)[: 4 * len(angles) - 2]]
        )
        rotations = Rotation.from_euler("ZYX", held.reshape(-1, 3), degrees=True)
        write_bvh(tmp_path / f"{clip.name}.bvh", names, tuple(real["parent"]), rotations, "ZYX")
    made = pack(clips, find(tmp_path), 30, 120, JOINTS)
    end = real["clip_start"][2]
    for name in ("joint", "parent"):
        np.testing.assert_array_equal(made[name], real[name])
    np.testing.assert_array_equal(made["clip_start"], real["clip_start"][:3])
    ours, theirs = (
        Rotation.from_euler("ZYX", values.reshape(-1, 3) / 100, degrees=True)
        for values in (made["euler_zyx_deg_x100"], real["euler_zyx_deg_x100"][:end])
    )
    assert np.rad2deg((ours.inv() * theirs).magnitude()).max() < 0.03
    assert list(differences(made, clips, 30)) == []


def test_the_command_says_which_clips_are_missing_and_makes_what_is_there(
    tmp_path: Path, capsys
) -> None:
    rotations = Rotation.random(len(JOINTS) * 8, random_state=0)
    parents = (-1, *(max(0, number - 1) for number in range(1, len(JOINTS))))
    write_bvh(tmp_path / "09_01.bvh", JOINTS, parents, rotations, "ZYX")
    with pytest.raises(SystemExit, match="238 clips are not there: 02_02"):
        main([str(tmp_path / "nothing"), "--out", str(tmp_path / "out.npz")])
    main([str(tmp_path), "--out", str(tmp_path / "out.npz"), "--all", "--fps", "30"])
    with np.load(tmp_path / "out.npz") as made:
        assert made["euler_zyx_deg_x100"].shape == (2, 31, 3)
        assert made["clip_name"].tolist() == ["09_01"]
    assert list(
        differences(
            pack([Wanted("09_01", 5, "")], find(tmp_path), 30, 120, JOINTS),
            [Wanted("09_01", 5, "")],
            30,
        )
    )
