"""Halpe's nine points beyond COCO-17: on the open body as a regressor, on SMPL bodies as a table of
shares.
"""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import fitting
from eval3dpw.captured.motion import load_motion
from fitting.body.kinematics import JOINT_COUNT, JOINT_NAMES
from fitting.body.open_body import OPEN_BODY
from fitting.body.rotations import rotation_matrices

POSES = Path(__file__).parents[2].parent / "shared" / "data" / "cmu" / "poses_5fps.npz"
SKELETON = POSES.with_name("clips_30fps.npz")
ON_SMPL = json.loads((OPEN_BODY.parent / "halpe26_on_smpl.json").read_text())
HEAD_TOP = 17
NECK = 18
PELVIS = 19
MIRROR = [
    0,
    2,
    1,
    4,
    3,
    6,
    5,
    8,
    7,
    10,
    9,
    12,
    11,
    14,
    13,
    16,
    15,
    17,
    18,
    19,
    21,
    20,
    23,
    22,
    25,
    24,
]


@pytest.fixture(scope="module")
def arrays():
    with np.load(OPEN_BODY, allow_pickle=False) as file:
        return {name: file[name] for name in file.files}


@pytest.fixture(scope="module")
def regressor(arrays):
    return torch.from_numpy(arrays["J_regressor_halpe26"])


@pytest.fixture(scope="module")
def body():
    return fitting.load_body().to(dtype=torch.float64)


def captured_poses(body, count):
    if not POSES.is_file():
        pytest.skip(f"{POSES} is absent")
    motion = load_motion(POSES, fitting.load_body(), fps=5, skeleton=SKELETON)
    chosen = torch.randperm(len(motion.pose), generator=torch.Generator().manual_seed(0))[:count]
    return motion.pose[chosen].double()


def random_poses(count):
    return 0.5 * torch.randn(
        count, JOINT_COUNT, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64
    )


def placed(body, regressor, pose, shape):
    """The points as sums of posed vertices and as terms on bones, both [T, 26, 3] metres."""
    mesh = body(pose, shape, vertices=True).vertices
    terms = body.points(
        torch.zeros(len(regressor), JOINT_COUNT, dtype=torch.float64), regressor.double()
    )
    placement = body.placement(rotation_matrices(pose), shape)
    return regressor.double() @ mesh, terms.place(placement, terms.moments(shape, None))


def shapes(body, count):
    drawn = torch.randn(
        count, body.shape_size, generator=torch.Generator().manual_seed(2), dtype=torch.float64
    )
    return drawn.clamp(-2, 2)


def test_the_first_17_are_cocos_and_every_row_is_a_sparse_mean(arrays):
    rows = arrays["J_regressor_halpe26"]
    assert rows.shape == (26, 6800)
    assert rows.dtype == np.float32
    np.testing.assert_array_equal(rows[:17], arrays["J_regressor_coco17"])
    assert (rows >= 0).all()
    np.testing.assert_allclose(rows.sum(1), 1, atol=1e-5)
    assert ((rows[17:] != 0).sum(1) <= 24).all()


def test_left_and_right_are_mirror_images(arrays):
    rows = arrays["J_regressor_halpe26"]
    np.testing.assert_allclose(rows[17:], rows[MIRROR][17:, arrays["mirror"]], atol=1e-6)


def test_points_lie_where_anatomy_has_them(arrays):
    place = arrays["J_regressor_halpe26"] @ arrays["v_template"]
    joint = dict(zip(arrays["joint_names"], arrays["J"], strict=True))
    pick = dict(
        zip(arrays["vertex_pick_names"], arrays["v_template"][arrays["vertex_picks"]], strict=True)
    )
    assert np.linalg.norm(place[HEAD_TOP] - pick["headtop"]) < 0.015
    assert joint["neck"][1] < place[NECK][1] < joint["head"][1]
    np.testing.assert_allclose(place[PELVIS], (place[11] + place[12]) / 2, atol=0.003)
    big = place[20]
    small = place[22]
    heel = place[24]
    for point, tip in ((big, "LBigToe"), (small, "LSmallToe"), (heel, "LHeel")):
        assert np.linalg.norm(point - pick[tip]) < 0.035
        assert point[1] < joint["left_ankle"][1] - 0.015  # under the ankle
    assert heel[2] < joint["left_ankle"][2] < small[2] < big[2]
    assert big[0] < heel[0] < small[0]  # the big toe is inside


@pytest.mark.parametrize("poses", ["captured", "random"])
def test_terms_on_bones_give_the_posed_mesh_points(body, regressor, poses):
    pose = captured_poses(body, 200) if poses == "captured" else random_poses(40)
    from_mesh, from_bones = placed(body, regressor, pose, shapes(body, len(pose)))
    assert (from_mesh - from_bones).norm(
        dim=-1
    ).max() < 1e-5  # float32 skinning weights sum to 1 within 1e-7


def test_neck_and_pelvis_stay_at_their_joints_in_captured_poses(body, regressor):
    """They are sums of vertices fitted to sums of joints: millimetres, in poses and shapes that the
    fit never saw.
    """
    pose = captured_poses(body, 200)
    shape = shapes(body, len(pose))
    points = placed(body, regressor, pose, shape)[1]
    joints = body(pose, shape).joints
    neck = 0.8 * joints[:, JOINT_NAMES.index("neck")] + 0.2 * joints[:, JOINT_NAMES.index("head")]
    pelvis = (
        joints[:, JOINT_NAMES.index("left_hip")] + joints[:, JOINT_NAMES.index("right_hip")]
    ) / 2
    for number, wanted in ((NECK, neck), (PELVIS, pelvis)):
        error_mm = 1000 * (points[:, number] - wanted).norm(dim=-1)
        assert error_mm.median() < 4, number  # raised shoulders pull at the neck
        assert error_mm.quantile(0.95) < 10, number


def test_head_top_toes_and_heels_go_with_one_bone(body, regressor):
    terms = body.points(torch.zeros(26, JOINT_COUNT, dtype=torch.float64), regressor.double())
    carriers = {
        17: "head",
        20: "left_foot",
        21: "right_foot",
        22: "left_foot",
        23: "right_foot",
        24: "left_ankle",
        25: "right_ankle",
    }
    for number, bone in carriers.items():
        of_point = terms.gather[number] > 0
        share = terms.coefficient[of_point & (terms.bone == JOINT_NAMES.index(bone))]
        assert share.sum() > 0.8


@pytest.mark.parametrize(
    ("family", "smplx_table", "vertices"), [("SMPL", "smplh", 6890), ("SMPL-X", "smplx", 10475)]
)
def test_shares_on_smpl_sum_to_one_and_name_smplx_vertices(family, smplx_table, vertices):
    known = pytest.importorskip("smplx.vertex_ids").vertex_ids[smplx_table]
    table = ON_SMPL[family]
    assert list(table) == ON_SMPL["order"]
    for name, entry in table.items():
        assert sum(entry["vertices"].values()) + sum(entry["joints"].values()) == pytest.approx(1)
        assert all(0 <= int(vertex) < vertices for vertex in entry["vertices"])
        assert all(joint in JOINT_NAMES for joint in entry["joints"])
        if name.endswith(("toe", "heel")):
            side, part = name.split("_", 1)
            pick = side[0].upper() + part.title().replace("_", "")
            assert [int(vertex) for vertex in entry["vertices"]] == [known[pick]]


def test_the_shares_on_smpl_give_the_same_points_on_the_open_body(body, regressor, arrays):
    """SMPL's table uses named vertices and joints; on the open body those exist too, so the two can
    be compared.
    """
    pick = dict(
        zip(arrays["vertex_pick_names"].tolist(), arrays["vertex_picks"].tolist(), strict=True)
    )
    rest = body(torch.zeros(1, JOINT_COUNT, 3, dtype=torch.float64), vertices=True)
    for number, name in enumerate(ON_SMPL["order"], 17):
        point = torch.zeros(3, dtype=torch.float64)
        for joint, share in ON_SMPL["SMPL"][name]["joints"].items():
            point += share * rest.joints[0, JOINT_NAMES.index(joint)]
        for share in ON_SMPL["SMPL"][name]["vertices"].values():
            side, _, part = name.partition("_")
            vertex = pick[
                "headtop" if name == "head_top" else side[0].upper() + part.title().replace("_", "")
            ]
            point += share * rest.vertices[0, vertex]
        assert (point - regressor[number].double() @ rest.vertices[0]).norm() < 0.013, name
