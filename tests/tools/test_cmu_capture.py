"""Motion capture files of the layouts that CMU gives out, made small, against rotations that are known."""

from pathlib import Path

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from pose2d.base.errors import UserError
from tools.cmu.capture import JOINT_OF_BONE, Capture, Skeleton, read_amc, read_asf, read_bvh
from tools.cmu_clips import JOINTS, collect, frames_of, read

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
    return read_amc(tmp_path / "01_01.amc", read_asf(tmp_path / "01.asf"))


def turn(capture: Capture, frame: int, joint: str) -> Rotation:
    angles = capture.euler_zyx_deg[frame, capture.skeleton.joint.index(joint)]
    return Rotation.from_euler("ZYX", angles, degrees=True)


def apart_deg(a: Rotation, b: Rotation) -> float:
    return float(np.rad2deg((a.inv() * b).magnitude()))


def test_bones_become_joints_where_they_begin(tiny: Capture) -> None:
    assert tiny.skeleton.joint == ("Hips", "LHipJoint", "LeftUpLeg", "LeftLeg")
    assert tiny.skeleton.parent == (-1, 0, 1, 2)
    np.testing.assert_allclose(tiny.skeleton.offset, [[0, 0, 0], [0, 0, 0], [1.5, -2.0, 0], [0, -7, 0]])
    np.testing.assert_allclose(tiny.root, [[1, 2, 3], [4, 5, 6]])


def test_a_turn_about_a_bones_own_x_is_about_the_worlds_y_where_the_bone_lies_so(tiny: Capture) -> None:
    assert apart_deg(turn(tiny, 0, "LeftUpLeg"), Rotation.from_euler("y", 30, degrees=True)) < 1e-9
    about_tilted_x = Rotation.from_rotvec(np.deg2rad(90) * np.array([np.cos(np.pi / 9), np.sin(np.pi / 9), 0]))
    assert apart_deg(turn(tiny, 1, "LeftLeg"), about_tilted_x) < 1e-9


def test_the_root_turns_about_x_then_y_then_z(tiny: Capture) -> None:
    x, y, z = (Rotation.from_euler(axis, angle, degrees=True) for axis, angle in zip("xyz", (10, 20, 30), strict=True))
    assert apart_deg(turn(tiny, 0, "Hips"), z * y * x) < 1e-9
    assert apart_deg(turn(tiny, 0, "LHipJoint"), Rotation.identity()) < 1e-9, "a bone without channels stays"


@pytest.mark.parametrize("order", ["ZYX", "XYZ", "YXZ"])
def test_a_bvh_file_may_order_its_channels_as_it_likes(order: str, tmp_path: Path) -> None:
    rotations = Rotation.random(4, random_state=1)
    write_bvh(tmp_path / "a.bvh", ("Hips", "LeftUpLeg"), (-1, 0), rotations, order)
    capture = read_bvh(tmp_path / "a.bvh")
    np.testing.assert_allclose(capture.root, [[0, 10, 0], [1, 10, 0]])
    for k, (frame, joint) in enumerate(((0, "Hips"), (0, "LeftUpLeg"), (1, "Hips"), (1, "LeftUpLeg"))):
        assert apart_deg(turn(capture, frame, joint), rotations[k]) < 1e-3


def write_bvh(path: Path, names: tuple, parents: tuple, rotations: Rotation, order: str, fps: float = 120) -> None:
    """Frame after frame, joint after joint; joints are given depth first."""
    depth = [0]
    for parent in parents[1:]:
        depth.append(depth[parent] + 1)
    lines, turning = ["HIERARCHY"], " ".join(f"{axis}rotation" for axis in order)
    for number, name in enumerate(names):
        for _ in range(depth[number - 1] - depth[number] + 1 if number else 0):
            lines.append("}")
        lines.append(f"{'JOINT' if number else 'ROOT'} {name}\n{{\nOFFSET {number} {-2 * number} 0.5")
        place = "" if number else "Xposition Yposition Zposition "
        lines.append(f"CHANNELS {3 if number else 6} {place}{turning}")
    lines += ["End Site", "{", "OFFSET 0 -1 0", "}", *["}"] * (depth[-1] + 1)]
    angles = rotations.as_euler(order, degrees=True).reshape(-1, 3 * len(names))
    lines += ["MOTION", f"Frames: {len(angles)}", f"Frame Time: {1 / fps:.7f}"]
    lines += [f"{t} 10 0 " + " ".join(f"{value:.6f}" for value in row) for t, row in enumerate(angles)]
    path.write_text("\n".join(lines) + "\n")


@pytest.mark.parametrize(
    ("text", "problem"),
    [("1\nlfemur 1 2\n", "expected 3 numbers"), ("1\nwing 1\n", "neither a frame number"), ("", "no frames"),
     ("1\nroot 0 0 0 0 0 0\nltibia 3\n", "lacks lfemur")],
)  # fmt: skip
def test_damaged_motion_is_named(text: str, problem: str, tmp_path: Path) -> None:
    (tmp_path / "01.asf").write_text(ASF)
    (tmp_path / "01_01.amc").write_text(text)
    with pytest.raises(UserError, match=problem):
        read_amc(tmp_path / "01_01.amc", read_asf(tmp_path / "01.asf"))


def test_every_joint_of_the_clips_has_a_bone() -> None:
    assert set(JOINTS) == set(JOINT_OF_BONE.values())


def test_captured_clips_come_back_as_they_are(shared: Path, tmp_path: Path) -> None:
    """Clips of the real file, written as BVH at 120 frames/s after a rest pose, give the real file's arrays again."""
    with np.load(shared / "data" / "cmu" / "clips_30fps.npz") as file:
        real = dict(file)
    listed = {}
    for number, name in enumerate(map(str, real["clip_name"][:2])):
        start, end = real["clip_start"][number : number + 2]
        angles = real["euler_zyx_deg_x100"][start:end].astype(float) / 100
        held = np.concatenate([np.zeros((1, len(JOINTS), 3)), np.repeat(angles, 4, 0)[: 4 * len(angles) - 2]])
        rotations = Rotation.from_euler("ZYX", held.reshape(-1, 3), degrees=True)
        write_bvh(tmp_path / f"{name}.bvh", JOINTS, tuple(real["parent"]), rotations, "ZYX")
        listed[name] = (int(end - start), "")
    made = collect(tmp_path, listed, 30)
    for name in ("joint", "parent"):
        np.testing.assert_array_equal(made[name], real[name])
    ours, theirs = (
        Rotation.from_euler("ZYX", values.reshape(-1, 3) / 100, degrees=True)
        for values in (made["euler_zyx_deg_x100"], real["euler_zyx_deg_x100"][: real["clip_start"][2]])
    )
    assert np.rad2deg((ours.inv() * theirs).magnitude()).max() < 0.03


@pytest.mark.parametrize(("captured", "length"), [(298, 75), (149, 75), (100, None)])
def test_the_listed_length_tells_the_rate_that_cmus_files_do_not_state(captured: int, length: int | None) -> None:
    clip = Capture(Skeleton(("Hips",), (-1,), np.zeros((1, 3))), np.zeros((captured, 1, 3)), np.zeros((captured, 3)))
    frames = frames_of(clip, 30, 75)
    assert (None if frames is None else len(clip.root[frames])) == length


def test_a_skeleton_has_to_lie_beside_its_motion(tmp_path: Path) -> None:
    (tmp_path / "01_01.amc").write_text(AMC)
    with pytest.raises(UserError, match=r"needs its skeleton 01\.asf"):
        read(tmp_path / "01_01.amc")
