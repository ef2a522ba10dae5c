"""The forward model: equal to smplx, differentiable, and its keypoints ride the bones exactly."""

import contextlib
import io
import pickle
from types import SimpleNamespace

import numpy as np
import pytest
import smplx
import torch

import fitting
from fitting.body.kinematics import PARENTS, tree
from fitting.body.rotations import rotation_matrices
from pose2d.base.errors import UserError
from tests.references import rules


class ToySMPL(smplx.SMPL):
    """smplx keeps ten of fewer than 300 shape directions; this one keeps all that the open body
    has.
    """

    SHAPE_SPACE_DIM = 16


def reference(arrays, dtype, directions, picks=None):
    with contextlib.redirect_stdout(io.StringIO()):
        return ToySMPL(
            "",
            data_struct=SimpleNamespace(**arrays),
            num_betas=directions,
            vertex_ids=picks,
            dtype=dtype,
        )


def random_params(frames, directions, dtype, seed=0):
    generator = torch.Generator().manual_seed(seed + frames)
    pose = 0.6 * torch.randn(frames, 24, 3, generator=generator, dtype=dtype)
    shape = torch.randn(frames, directions, generator=generator, dtype=dtype)
    return pose, shape, torch.randn(frames, 3, generator=generator, dtype=dtype)


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    """The random body with SMPL's vertex count and pose correctives: (arrays, the body loaded from
    its pickle).
    """
    arrays = rules().toy_body()
    path = tmp_path_factory.mktemp("toy") / "SMPL_NEUTRAL.pkl"
    path.write_bytes(pickle.dumps(arrays, protocol=2))
    return arrays, fitting.load_body(path)


@pytest.fixture(scope="module")
def body():
    return fitting.load_body()


@pytest.fixture(scope="module")
def exact(body):
    return body.to(dtype=torch.float64)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("frames", [1, 7, 64])
def test_the_toy_body_moves_as_in_smplx(toy, frames, dtype):
    arrays, body = toy
    body = body.to(dtype=dtype)
    pose, shape, translation = random_params(frames, 10, dtype)
    theirs = reference(arrays, dtype, 10)(
        betas=shape, global_orient=pose[:, 0], body_pose=pose[:, 1:].flatten(1), transl=translation
    )
    ours = body(pose, shape, translation, vertices=True)
    torch.testing.assert_close(ours.vertices, theirs.vertices.detach(), atol=1e-5, rtol=0)
    torch.testing.assert_close(ours.joints, theirs.joints[:, :24].detach(), atol=1e-5, rtol=0)
    coco = theirs.joints[:, [24, 26, 25, 28, 27, 16, 17, 18, 19, 20, 21, 1, 2, 4, 5, 7, 8]].detach()
    torch.testing.assert_close(ours.keypoints[:, :17], coco, atol=1e-5, rtol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("frames", [1, 7, 64])
def test_the_open_body_moves_as_in_smplx(body, frames, dtype):
    arrays = dict(np.load(fitting.body.open_body.OPEN_BODY))
    pose, shape, translation = random_params(frames, 16, dtype)
    theirs = reference(arrays, dtype, 16, body.vertex_picks)(
        betas=shape, global_orient=pose[:, 0], body_pose=pose[:, 1:].flatten(1), transl=translation
    )
    ours = body.to(dtype=dtype)(pose, shape, translation, vertices=True)
    torch.testing.assert_close(ours.vertices, theirs.vertices.detach(), atol=1e-5, rtol=0)
    torch.testing.assert_close(ours.joints, theirs.joints[:, :24].detach(), atol=1e-5, rtol=0)
    coco = torch.as_tensor(arrays["J_regressor_coco17"], dtype=dtype) @ theirs.vertices.detach()
    torch.testing.assert_close(ours.keypoints[:, :17], coco, atol=1e-5, rtol=0)


@pytest.mark.parametrize("which", ["open", "toy"])
def test_keypoints_without_the_mesh_equal_those_of_the_mesh(which, exact, request):
    body = exact if which == "open" else request.getfixturevalue("toy")[1].to(dtype=torch.float64)
    pose, shape, _ = random_params(9, body.shape_size, torch.float64)
    with_mesh = body(pose, shape, vertices=True)
    alone = body(pose, shape)
    assert alone.vertices is None
    from_mesh = (
        body.keypoint_joints @ with_mesh.joints + body.keypoint_vertices @ with_mesh.vertices
    )
    torch.testing.assert_close(alone.keypoints, from_mesh, atol=1e-12, rtol=0)
    torch.testing.assert_close(alone.keypoints, with_mesh.keypoints, atol=0, rtol=0)


def test_any_weighted_sum_of_vertices_can_ride_the_bones(exact):
    pose, shape, _ = random_params(5, 16, torch.float64)
    points = exact.points(torch.zeros(17, 24, dtype=torch.float64), exact.h36m_regressor)
    placement = exact.placement(rotation_matrices(pose), shape)
    riding = points.place(placement, points.moments(shape, None))
    on_mesh = exact.h36m_regressor @ exact(pose, shape, vertices=True).vertices
    torch.testing.assert_close(riding, on_mesh, atol=1e-12, rtol=0)


def test_axis_angle_and_matrices_place_the_same_body(exact):
    pose, shape, translation = random_params(4, 16, torch.float64)
    results = [
        exact(form, shape, translation, vertices=True)
        for form in (pose, pose.flatten(1), rotation_matrices(pose), pose.numpy())
    ]
    for other in results[1:]:
        torch.testing.assert_close(other.vertices, results[0].vertices, atol=1e-14, rtol=0)
        torch.testing.assert_close(other.keypoints, results[0].keypoints, atol=1e-14, rtol=0)


def test_one_shape_for_all_frames_equals_the_same_shape_in_each(exact):
    pose, shape, translation = random_params(40, 16, torch.float64)
    shared_shape = exact(pose, shape[0], translation, vertices=True)
    for form in (shape[:1], shape[:1].expand(40, 16)):
        each = exact(pose, form, translation, vertices=True)
        torch.testing.assert_close(each.vertices, shared_shape.vertices, atol=1e-14, rtol=0)
        torch.testing.assert_close(each.keypoints, shared_shape.keypoints, atol=1e-14, rtol=0)


def test_a_short_shape_is_the_leading_directions(exact):
    pose, shape, _ = random_params(3, 10, torch.float64)
    full = torch.nn.functional.pad(shape, (0, 6))
    torch.testing.assert_close(exact(pose, shape).joints, exact(pose, full).joints, atol=0, rtol=0)


def test_parameters_that_travel_together_place_the_same_body(exact):
    params = fitting.BodyParams(*random_params(3, 16, torch.float64))
    together = exact.at(params, vertices=True)
    apart = exact(params.pose, params.shape, params.translation, vertices=True)
    torch.testing.assert_close(together.vertices, apart.vertices, atol=0, rtol=0)


def test_at_rest_the_body_is_its_template(exact):
    rest = exact(torch.zeros(1, 24, 3), vertices=True)
    torch.testing.assert_close(rest.vertices[0], exact.v_template, atol=1e-7, rtol=0)
    torch.testing.assert_close(
        rest.joints[0], exact.J_regressor @ exact.v_template, atol=1e-7, rtol=0
    )


def test_turning_the_root_turns_everything_about_the_pelvis(exact):
    pose, shape, _ = random_params(1, 16, torch.float64)
    turned = pose.clone()
    turned[:, 0] = torch.tensor([0.0, torch.pi / 2, 0.0])
    pose[:, 0] = 0
    before = exact(pose, shape, vertices=True)
    after = exact(turned, shape, vertices=True)
    pelvis = before.joints[:, :1]
    quarter = torch.tensor([[0.0, 0, 1], [0, 1, 0], [-1, 0, 0]], dtype=torch.float64)
    for one, other in ((before.vertices, after.vertices), (before.keypoints, after.keypoints)):
        torch.testing.assert_close((one - pelvis) @ quarter.T + pelvis, other, atol=1e-7, rtol=0)


def test_the_mirror_image_of_a_pose_is_the_mirror_image_of_the_body(exact):
    arrays = np.load(fitting.body.open_body.OPEN_BODY)
    vertex_mirror = torch.as_tensor(arrays["mirror"]).long()
    names = [str(name) for name in arrays["joint_names"]]
    swap = {"left": "right", "right": "left"}
    joint_mirror = [
        names.index("_".join(swap.get(part, part) for part in name.split("_"))) for name in names
    ]
    pose = random_params(3, 16, torch.float64)[0]
    other = pose[:, joint_mirror] * torch.tensor([1.0, -1, -1], dtype=torch.float64)
    flip = torch.tensor([-1.0, 1, 1], dtype=torch.float64)
    one = exact(pose, vertices=True)
    two = exact(other, vertices=True)
    torch.testing.assert_close(
        two.vertices, one.vertices[:, vertex_mirror] * flip, atol=1e-5, rtol=0
    )


def test_gradients_of_the_mesh_are_its_finite_differences(exact):
    params = random_params(2, 16, torch.float64)
    generator = torch.Generator().manual_seed(1)
    towards = [
        torch.randn(value.shape, generator=generator, dtype=torch.float64) for value in params
    ]
    mix = torch.randn(2, 6800, 3, generator=generator, dtype=torch.float64)

    def score(*given):
        out = exact(*given, vertices=True)
        return (out.vertices * mix).sum() + out.keypoints.square().sum() + out.joints.sum()

    leaves = [value.clone().requires_grad_() for value in params]
    score(*leaves).backward()
    step = 1e-6
    for which in range(3):
        ends = []
        for sign in (step, -step):
            moved = list(params)
            moved[which] = params[which] + sign * towards[which]
            ends.append(score(*moved))
        slope = (leaves[which].grad * towards[which]).sum()
        torch.testing.assert_close(slope, (ends[0] - ends[1]) / (2 * step), atol=1e-6, rtol=1e-6)


def test_gradients_are_finite_at_the_zero_rotation(body):
    pose = torch.zeros(1, 24, 3, requires_grad=True)
    body(pose).keypoints.square().sum().backward()
    assert torch.isfinite(pose.grad).all()
    assert pose.grad.abs().max() > 0.01


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rodrigues_agrees_with_the_matrix_exponential_at_every_size(dtype):
    axis = torch.nn.functional.normalize(
        torch.randn(200, 3, generator=torch.manual_seed(0)), dim=1
    ).double()
    vectors = axis * torch.logspace(-12, 1, 200, dtype=torch.float64)[:, None]
    x, y, z = vectors.unbind(1)
    zero = torch.zeros_like(x)
    cross = torch.stack((zero, -z, y, z, zero, -x, -y, x, zero), 1).view(-1, 3, 3)
    found = rotation_matrices(vectors.to(dtype)).double()
    tolerance = 1e-13 if dtype == torch.float64 else 3e-6
    torch.testing.assert_close(found, torch.linalg.matrix_exp(cross), atol=tolerance, rtol=0)


def test_the_closed_form_derivative_of_the_keypoints_is_the_derivative(exact):
    """The two formulas that `fitting.body.body` states, against automatic differentiation."""
    pose, shape, _ = random_params(1, 16, torch.float64)
    rotation = rotation_matrices(pose)
    terms = exact.keypoint_terms
    path = tree(torch.float64, exact.device)[1]

    def keypoints(
        spin, shape
    ):  # world-frame rotation vectors [24, 3] applied to each joint in turn
        turned = rotation.clone()
        for joint in range(24):
            above = (
                placed.rotation[0, PARENTS[joint]] if joint else torch.eye(3, dtype=torch.float64)
            )
            turned = turned.clone()
            turned[0, joint] = above.T @ rotation_matrices(spin[joint]) @ above @ rotation[0, joint]
        # Each joint is perturbed alone below, so the frames above it are the unperturbed ones.
        return terms.place(exact.placement(turned, shape), terms.moments(shape, None))[0]

    placed = exact.placement(rotation, shape)
    world = placed.rotation[0]
    joints = placed.joints[0]
    moments = terms.moments(shape, None)[0]
    carried = terms.coefficient[:, None] * joints[terms.bone] + torch.einsum(
        "eab,eb->ea", world[terms.bone], moments
    )
    below = path[terms.bone]  # [E, 24] is the term's bone at or below joint i
    lever = torch.einsum("ke,ei,ec->kic", terms.gather, below, carried) - torch.einsum(
        "ke,ei,e,ic->kic", terms.gather, below, terms.coefficient, joints
    )
    zero = torch.zeros(24, 3, dtype=torch.float64)
    by_spin = torch.autograd.functional.jacobian(
        lambda spin: keypoints(spin, shape), zero
    )  # [26, 3, 24, 3]
    unit = torch.eye(3, dtype=torch.float64)
    closed = torch.linalg.cross(
        unit.expand(26, 24, 3, 3), lever[:, :, None].expand(26, 24, 3, 3)
    )  # [k, i, w, c]
    torch.testing.assert_close(closed, torch.einsum("kciw->kiwc", by_spin), atol=1e-10, rtol=0)

    by_shape = torch.autograd.functional.jacobian(lambda s: keypoints(zero, s[None]), shape[0])
    joint_shape_jacobian = torch.autograd.functional.jacobian(
        lambda s: exact.placement(rotation, s).joints[0], shape[0]
    )
    closed = torch.einsum(
        "ke,e,ecs->kcs", terms.gather, terms.coefficient, joint_shape_jacobian[terms.bone]
    )
    closed = closed + torch.einsum(
        "ke,eab,ebs->kas", terms.gather, world[terms.bone], terms.offset_shapedirs
    )
    torch.testing.assert_close(closed, by_shape, atol=1e-10, rtol=0)


@pytest.mark.parametrize(
    ("pose", "shape", "translation", "named"),
    [
        ((2, 23, 3), None, None, "pose has size"),
        ((24, 3), None, None, "pose has size"),
        ((72,), None, None, "pose has size"),
        ((), None, None, "pose has size"),
        ((2, 24, 3, 2), None, None, "pose has size"),
        ((2, 24, 3), (17,), None, "shape has size"),
        ((2, 24, 3), (0,), None, "shape has size"),
        ((2, 24, 3), (3, 10), None, "shape has size"),
        ((2, 24, 3), (), None, "shape has size"),
        ((2, 24, 3), None, (3,), "translation has size"),
        ((2, 24, 3), None, (3, 3), "translation has size"),
        ((2, 24, 3), None, (2, 4), "translation has size"),
    ],
)
def test_wrong_sizes_are_named(body, pose, shape, translation, named):
    given = [None if size is None else torch.zeros(size) for size in (pose, shape, translation)]
    with pytest.raises(UserError, match=named):
        body(*given)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_numbers_that_are_none_are_refused(body, place, bad):
    given = [torch.zeros(2, 24, 3), torch.zeros(16), torch.zeros(2, 3)]
    given[place].view(-1)[5] = bad
    with pytest.raises(
        UserError, match=("pose", "shape", "translation")[place] + " holds NaN or infinity"
    ):
        body(*given)


def test_no_frames_give_no_bodies(body):
    empty = body(torch.zeros(0, 24, 3), vertices=True)
    assert empty.keypoints.shape == (0, 26, 3)
    assert empty.vertices.shape == (0, 6800, 3)


def test_a_size_multiplies_the_posed_body_before_it_is_moved() -> None:
    body = fitting.load_body()
    generator = torch.Generator().manual_seed(4)
    pose = 0.3 * torch.randn(2, 24, 3, generator=generator)
    shape = torch.randn(10, generator=generator)
    move = torch.tensor([[1.0, 2, 3], [4, 5, 6]])
    size = torch.tensor([0.6, 1.1])
    plain = body.at(fitting.BodyParams(pose, shape, torch.zeros(2, 3)), vertices=True)
    params = fitting.BodyParams(pose, shape, move, size)
    sized = body.at(params, vertices=True)
    for name in ("joints", "keypoints", "vertices"):
        expected = size[:, None, None] * getattr(plain, name) + move[:, None]
        torch.testing.assert_close(getattr(sized, name), expected)
    torch.testing.assert_close(body.at(params.rows(slice(1, 2))).joints, sized.joints[1:])
    one = body.at(fitting.BodyParams(pose, shape, move, torch.tensor(0.6)).rows(slice(0, 1)))
    torch.testing.assert_close(one.joints, sized.joints[:1])
    with pytest.raises(UserError, match="size has"):
        body.at(fitting.BodyParams(pose, shape, move, torch.tensor([1.0, 1, 1])))
