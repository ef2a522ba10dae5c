"""`tools/cmu_clips.py` reads BVH files and makes what `load_motion` reads."""

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import fitting
from fitting.motion_capture import load_motion
from pose2d.base.errors import UserError

ROOT = Path(__file__).resolve().parents[2]
# CMU's skeleton: joints in depth-first order with their parents; offsets are not needed to be anybody's own.
JOINTS = (
    "Hips", "LHipJoint", "LeftUpLeg", "LeftLeg", "LeftFoot", "LeftToeBase", "RHipJoint", "RightUpLeg", "RightLeg",
    "RightFoot", "RightToeBase", "LowerBack", "Spine", "Spine1", "Neck", "Neck1", "Head", "LeftShoulder", "LeftArm",
    "LeftForeArm", "LeftHand", "LeftFingerBase", "LeftHandIndex1", "LThumb", "RightShoulder", "RightArm",
    "RightForeArm", "RightHand", "RightFingerBase", "RightHandIndex1", "RThumb",
)  # fmt: skip
PARENTS = (
    -1, 0, 1, 2, 3, 4, 0, 6, 7, 8, 9, 0, 11, 12, 13, 14, 15, 13, 17, 18, 19, 20, 21, 20, 13, 24, 25, 26, 27, 28, 27,
)  # fmt: skip


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("cmu_clips", ROOT / "tools" / "cmu_clips.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def write_bvh(path: Path, offset: np.ndarray, euler_deg: np.ndarray, root: np.ndarray) -> None:
    """The reference writer: a tree of joints, leaves with an end site, then a line of numbers a frame."""

    def joint(number: int, indent: str) -> list[str]:
        kind = "ROOT" if number == 0 else "JOINT"
        places = "Xposition Yposition Zposition " if number == 0 else ""
        children = [child for child, parent in enumerate(PARENTS) if parent == number]
        lines = [
            f"{indent}{kind} {JOINTS[number]}",
            f"{indent}{{",
            f"{indent}\tOFFSET {' '.join(map(str, offset[number]))}",
        ]
        lines += [f"{indent}\tCHANNELS {6 if number == 0 else 3} {places}Zrotation Yrotation Xrotation"]
        for child in children:
            lines += joint(child, indent + "\t")
        if not children:
            lines += [f"{indent}\tEnd Site", f"{indent}\t{{", f"{indent}\t\tOFFSET 0 1 0", f"{indent}\t}}"]
        return [*lines, f"{indent}}}"]

    rows = np.concatenate([root, euler_deg.reshape(len(root), -1)], 1)
    motion = [" ".join(f"{value:.4f}" for value in row) for row in rows]
    head = ["MOTION", f"Frames: {len(rows)}", "Frame Time: .0083333"]
    path.write_text("\n".join(["HIERARCHY", *joint(0, ""), *head, *motion]) + "\n")


@pytest.fixture
def clip(tmp_path: Path) -> tuple[Path, np.ndarray, np.ndarray]:
    """13 frames of 120 a second: 4 at 30, 1 at 5."""
    rng = np.random.default_rng(3)
    offset = np.round(rng.normal(0, 3, (31, 3)), 3)
    euler, root = np.round(rng.uniform(-170, 170, (13, 31, 3)), 2), np.round(rng.normal(0, 20, (13, 3)), 3)
    (tmp_path / "bvh" / "02").mkdir(parents=True)
    write_bvh(tmp_path / "bvh" / "02" / "02_02.bvh", offset, euler, root)
    return tmp_path / "bvh", euler, root


def test_every_fourth_frame_comes_out_to_a_hundredth_of_a_degree(
    tool: ModuleType, clip: tuple[Path, np.ndarray, np.ndarray]
) -> None:
    folder, euler, root = clip
    arrays = tool.collect(folder, {"02_02": (4, "walk")}, 30)
    assert tuple(arrays["joint"]) == JOINTS
    assert tuple(arrays["parent"]) == PARENTS
    np.testing.assert_array_equal(arrays["euler_zyx_deg_x100"], np.rint(100 * euler[::4]))
    np.testing.assert_allclose(arrays["root_pos"], root[::4], atol=1e-3)
    assert arrays["clip_start"].tolist() == [0, 4]


def test_a_rest_pose_before_the_first_frame_is_left_out_and_angles_are_wrapped(
    tool: ModuleType, clip: tuple[Path, np.ndarray, np.ndarray]
) -> None:
    folder, euler, root = clip
    with_rest = np.concatenate([np.zeros((1, 31, 3)), euler + 360])
    write_bvh(folder / "02" / "02_02.bvh", np.zeros((31, 3)), with_rest, np.concatenate([root[:1], root]))
    arrays = tool.collect(folder, {"02_02": (4, "walk")}, 30)
    np.testing.assert_array_equal(arrays["euler_zyx_deg_x100"], np.rint(100 * euler[::4]))


def test_the_loader_reads_both_files(
    tool: ModuleType, clip: tuple[Path, np.ndarray, np.ndarray], tmp_path: Path
) -> None:
    clips, poses = (tool.collect(clip[0], {"02_02": (length, "walk")}, fps) for length, fps in ((4, 30), (1, 5)))
    np.savez(tmp_path / "clips.npz", **clips)
    np.savez(tmp_path / "poses.npz", **tool.without_fingers(poses))
    body = fitting.load_body()
    motion = load_motion(tmp_path / "clips.npz", body, 30.0)
    assert motion.pose.shape == (4, 24, 3)
    assert load_motion(tmp_path / "poses.npz", body, 5.0, tmp_path / "clips.npz").pose.shape == (1, 24, 3)


def test_a_missing_clip_and_one_of_another_length_are_errors(
    tool: ModuleType, clip: tuple[Path, np.ndarray, np.ndarray]
) -> None:
    with pytest.raises(UserError, match="bvh does not exist"):
        tool.collect(clip[0], {"05_01": (4, "walk")}, 30)
    with pytest.raises(UserError, match="gives 4 frames at 30/s, expected 5"):
        tool.collect(clip[0], {"02_02": (5, "walk")}, 30)


def test_the_published_lists_have_the_clips_that_the_benches_name() -> None:
    listed = json.loads((ROOT / "bench" / "cmu_clips.json").read_text())
    assert len(listed["clips_30fps"]) == 238
    assert sum(length for length, _ in listed["clips_30fps"].values()) == 26_211
    assert len(listed["poses_5fps"]) == 2_425
    assert sum(length for length, _ in listed["poses_5fps"].values()) == 136_193
