"""The camera, against hand arithmetic, OpenCV and the reference conventions."""

import math
from dataclasses import replace

import cv2
import numpy as np
import pytest
import torch

from fitting.body.rotations import matrix_to_rot6d, rot6d_to_matrix, rotation_matrices
from fitting.camera import Camera
from fitting.camera.crop import SPIN_CROP, cliff_box_info, crop_to_full
from pose2d.base.errors import UserError
from tests.references import answers

LENSES = {
    "barrel": (-0.28, 0.07, 0.001, -0.0005),
    "five": (-0.28, 0.07, 0.001, -0.0005, 0.01),
    "rational": (0.4, -0.1, 0.0007, 0.0004, 0.01, 0.7, -0.05, 0.02),
    "prism": (-0.1, 0.02, 0.001, -0.0005, 0.01, 0.02, 0.01, 0.0, 0.002, -0.001, 0.001, 0.0005),
}
K = [[900.0, 0, 660], [0, 880.0, 350], [0, 0, 1]]


def _points(count: int = 200) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    xy = (torch.rand(count, 2, generator=generator, dtype=torch.float64) * 2 - 1) * torch.tensor(
        [2.0, 1.2]
    )
    return torch.cat(
        (xy, 3 + torch.rand(count, 1, generator=generator, dtype=torch.float64)), dim=-1
    )


def test_a_point_lands_where_the_similar_triangles_say() -> None:
    camera = Camera.from_focal((1000.0, 500.0), (640, 480), (300.0, 200.0))
    pixel = camera.project(torch.tensor([[[0.5, -1.0, 2.0]]]))
    assert pixel.tolist() == [[[300 + 1000 * 0.25, 200 - 500 * 0.5]]]


def test_the_default_focal_length_is_the_diagonal() -> None:
    camera = Camera.default((1920, 1080))
    assert camera.focal_px == (math.hypot(1920, 1080),) * 2
    assert camera.center_px == (960, 540)


@pytest.mark.parametrize(
    ("across", "corner"), [("width", (960, 0)), ("height", (0, 540)), ("diagonal", (960, 540))]
)
def test_the_edge_of_the_image_lies_at_half_the_field_of_view(
    across: str, corner: tuple[int, int]
) -> None:
    camera = Camera.from_field_of_view(70, (1920, 1080), across=across)  # type: ignore[arg-type]
    ray = camera.rays(torch.tensor([960.0 + corner[0], 540.0 + corner[1]], dtype=torch.float64))
    assert math.degrees(math.atan(ray[:2].norm().item())) == pytest.approx(35, abs=1e-9)


def test_the_diagonal_view_of_the_default_camera_is_53_degrees() -> None:
    default = Camera.default((640, 480))
    asked = Camera.from_field_of_view(
        2 * math.degrees(math.atan(0.5)), (640, 480), across="diagonal"
    )
    assert default.focal_px == pytest.approx(asked.focal_px)


@pytest.mark.parametrize("lens", LENSES)
def test_projection_and_its_inverse_equal_opencv(lens: str) -> None:
    camera = Camera.from_intrinsics(K, (1280, 720), LENSES[lens])
    points = _points()
    expected, _ = cv2.projectPoints(
        points.numpy(), np.zeros(3), np.zeros(3), np.array(K), np.array(LENSES[lens])
    )
    pixels = camera.project(points)
    np.testing.assert_allclose(pixels.numpy(), expected[:, 0], atol=1e-9)
    straight = camera.pinhole.project(points)
    np.testing.assert_allclose(camera.undistort(pixels).numpy(), straight.numpy(), atol=1e-6)
    np.testing.assert_allclose(
        camera.rays(pixels).numpy(), (points / points[:, 2:]).numpy(), atol=1e-8
    )


def test_a_pixel_that_no_ray_reaches_is_nan() -> None:
    camera = replace(Camera.from_focal(500.0, (1000, 1000)), distortion=(-0.3, 0.0, 0.0, 0.0))
    # r (1 - 0.3 r^2) is never more than 0.70, so the image ends 351 px from its centre.
    seen = camera.undistort(
        torch.tensor([[500.0 + 340, 500.0], [500.0 + 360, 500.0]], dtype=torch.float64)
    )
    assert seen.isnan().tolist() == [[False, False], [True, True]]


@pytest.mark.parametrize("lens", [(), LENSES["rational"]])
def test_gradients_of_the_projection_equal_finite_differences(lens: tuple[float, ...]) -> None:
    camera = Camera.from_intrinsics(K, (1280, 720), lens)
    assert torch.autograd.gradcheck(camera.project, (_points(5).requires_grad_(),), atol=1e-3)


def test_points_behind_the_camera_have_no_pixel_and_no_gradient() -> None:
    points = torch.tensor([[0.1, 0.2, 2.0], [0.1, 0.2, 0.0], [0.1, 0.2, -2.0]], requires_grad=True)
    pixels = Camera.from_intrinsics(K, (1280, 720), LENSES["five"]).project(points)
    assert pixels.isnan().all(dim=-1).tolist() == [False, True, True]
    pixels.nansum().backward()
    assert points.grad is not None
    assert points.grad.isfinite().all()
    assert points.grad[1:].eq(0).all()
    assert points.grad[0].ne(0).all()


def test_project_keeps_batch_shape_and_type() -> None:
    camera = Camera.default((640, 480))
    for dtype in (torch.float32, torch.float64):
        pixels = camera.project(torch.ones(4, 7, 24, 3, dtype=dtype))
        assert (pixels.shape, pixels.dtype) == ((4, 7, 24, 2), dtype)


def test_intrinsics_come_back_as_they_were_given() -> None:
    assert Camera.from_intrinsics(torch.tensor(K), (1280, 720)).intrinsics.tolist() == K


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Camera.from_focal(0.0, (640, 480)), "focal"),
        (lambda: Camera.from_focal(-5.0, (640, 480)), "focal"),
        (lambda: Camera.from_focal(math.nan, (640, 480)), "focal"),
        (lambda: Camera.from_focal(500.0, (640, 480), (math.inf, 0.0)), "principal point"),
        (lambda: Camera.default((0, 480)), "size"),
        (lambda: Camera.default((640.5, 480)), "size"),  # type: ignore[arg-type]
        (lambda: Camera.from_field_of_view(0, (640, 480), across="width"), "field of view"),
        (lambda: Camera.from_field_of_view(180, (640, 480), across="width"), "field of view"),
        (lambda: Camera.from_field_of_view(math.nan, (640, 480), across="width"), "field of view"),
        (lambda: Camera.from_field_of_view(60, (640, 480), across="depth"), "across"),  # type: ignore[arg-type]
        (lambda: Camera.from_intrinsics(np.eye(4), (640, 480)), "3x3"),
        (lambda: Camera.from_intrinsics(np.full((3, 3), np.nan), (640, 480)), "3x3"),
        (
            lambda: Camera.from_intrinsics([[9, 1, 3], [0, 9, 3], [0, 0, 1]], (640, 480)),
            "must read",
        ),
        (lambda: Camera.from_intrinsics(np.eye(3), (640, 480), (0.1, 0.2)), "k1 k2 p1 p2"),
        (
            lambda: Camera.from_intrinsics(np.eye(3), (640, 480), (0.1, 0.2, 0.3, math.nan)),
            "k1 k2 p1 p2",
        ),
        (lambda: Camera.default((640, 480)).project(torch.zeros(5, 2)), "points"),
        (lambda: Camera.default((640, 480)).rays(torch.zeros(5, 3)), "pixels"),
    ],
)
def test_a_camera_that_cannot_be_is_refused_in_words(make, says: str) -> None:
    with pytest.raises(UserError, match=says):
        make()


def test_the_full_frame_translation_equals_cliffs() -> None:
    reference = answers("conventions")
    for i, (height, width) in enumerate(reference["cliff_hw"]):
        camera = Camera.default((int(width), int(height)))
        assert camera.mean_focal_px == pytest.approx(reference["cliff_f"][i])
        crop = torch.from_numpy(reference["cliff_crop_cam"][i])
        center = torch.from_numpy(reference["cliff_center"][i])
        side = torch.tensor(reference["cliff_scale"][i] * 200)
        full = crop_to_full(crop, center, side, camera)
        np.testing.assert_allclose(full.numpy(), reference["cliff_full_cam"][i], rtol=1e-6)


def test_spins_translation_is_the_same_formula_for_a_camera_that_sees_the_crop() -> None:
    crop = torch.tensor([[0.9, 0.05, -0.1], [0.7, -0.2, 0.3]])
    full = crop_to_full(crop, torch.tensor([112.0, 112.0]), torch.tensor(224.0), SPIN_CROP)
    s, tx, ty = crop.unbind(-1)
    torch.testing.assert_close(full, torch.stack((tx, ty, 2 * 5000 / (224 * s + 1e-9)), dim=-1))


def test_crop_and_full_frame_put_the_root_on_the_same_pixel() -> None:
    camera = Camera.from_focal((1500.0, 1400.0), (1920, 1080), (900.0, 600.0))
    crop = torch.tensor([0.8, 0.0, 0.0])
    center = torch.tensor([300.0, 500.0])
    side = torch.tensor(400.0)
    torch.testing.assert_close(camera.project(crop_to_full(crop, center, side, camera)), center)


def test_cliffs_box_info_is_its_published_formula() -> None:
    camera = Camera.default((1600, 1200))  # focal 2000
    info = cliff_box_info(torch.tensor([900.0, 500.0]), torch.tensor(600.0), camera)
    torch.testing.assert_close(
        info, torch.tensor([2.8 * 100 / 2000, -2.8 * 100 / 2000, (600 - 480) / 120])
    )


def test_rotations_equal_spins() -> None:
    reference = answers("conventions")
    matrices = rot6d_to_matrix(torch.from_numpy(reference["rot6d"]))
    np.testing.assert_allclose(matrices.numpy(), reference["rotmat"], atol=1e-6)
    turned = rotation_matrices(torch.from_numpy(reference["aa"]))
    np.testing.assert_allclose(turned.numpy(), reference["aa_rot"], atol=1e-6)


def test_six_numbers_of_a_rotation_give_it_back() -> None:
    matrix = rotation_matrices(torch.randn(2, 24, 3, generator=torch.Generator().manual_seed(2)))
    torch.testing.assert_close(rot6d_to_matrix(matrix_to_rot6d(matrix)), matrix)


def test_arrays_are_projected_to_arrays() -> None:
    camera = Camera.from_focal(1000, (640, 480))
    points = np.array([[0.1, 0.2, 3.0], [0.0, 0.0, -1.0]])
    found = camera.project(points)
    assert isinstance(found, np.ndarray)
    np.testing.assert_allclose(found[0], camera.project(torch.from_numpy(points))[0].numpy())
    assert np.isnan(found[1]).all()
