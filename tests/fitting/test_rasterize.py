"""The z-buffer against hand arithmetic, a literal reference and ray casting."""

from typing import NamedTuple

import numpy as np
import pytest
import torch

from fitting.camera import Camera
from fitting.camera.pinhole import NEAR_PLANE_M
from fitting.render import Mesh, render
from fitting.render import raster as product
from tests.fitting.shapes import SMALL, TOY, at, sphere


class Raster(NamedTuple):
    face: np.ndarray  # [H, W]
    depth_m: np.ndarray  # [H, W] infinite where there is no face
    barycentric: np.ndarray  # [H, W, 3] place in the given face, 0 where there is none


def rasterize(
    vertices: np.ndarray, faces: np.ndarray, camera: Camera, cull: bool = False
) -> Raster:
    """With the places that the shading reads: weights on a screen's triangle, carried over to the
    given face.
    """
    found = product.rasterize(vertices, faces, camera, cull=cull)
    screen = found.screen
    face = found.face
    places = np.zeros((*found.triangle.shape, 3))
    own = screen.interpolate(
        np.eye(len(vertices)), faces
    )  # of each vertex of the screen, shares of the given ones
    for y, x in np.argwhere(face >= 0):
        t = found.triangle[y, x]
        weights = product.surface_weights(screen.xy_px, screen.inverse_depth, screen.faces, t, x, y)
        places[y, x] = (np.array(weights) @ own[screen.faces[t]])[faces[face[y, x]]]
    with np.errstate(divide="ignore"):
        return Raster(face, 1 / found.inverse_depth, places)


def _reference(vertices: np.ndarray, faces: np.ndarray, camera: Camera) -> Raster:
    """The definition, literally: every face asks every pixel. All vertices must be in front of the
    camera.
    """
    width, height = camera.size
    x, y = np.meshgrid(np.arange(width), np.arange(height))
    u = vertices[:, 0] / vertices[:, 2] * camera.focal_px[0] + camera.center_px[0]
    v = vertices[:, 1] / vertices[:, 2] * camera.focal_px[1] + camera.center_px[1]
    face = np.full((height, width), -1, np.int32)
    depth = np.full((height, width), np.inf)
    weights = np.zeros((height, width, 3))
    for f, corners in enumerate(faces):
        ax, bx, cx = u[corners]
        ay, by, cy = v[corners]
        z = vertices[corners, 2]
        area = (bx - ax) * (cy - ay) - (cx - ax) * (by - ay)
        w = (
            np.stack(
                (
                    (bx - x) * (cy - y) - (cx - x) * (by - y),
                    (cx - x) * (ay - y) - (ax - x) * (cy - y),
                    (ax - x) * (by - y) - (bx - x) * (ay - y),
                ),
                axis=-1,
            )
            / area
        )
        here = 1 / (w / z).sum(axis=-1)
        wins = (w >= 0).all(axis=-1) & (here < depth)
        face[wins] = f
        depth[wins] = here[wins]
        weights[wins] = (w / z * here[..., None])[wins]
    return Raster(face, depth, weights)


def _ray_cast(vertices: np.ndarray, faces: np.ndarray, camera: Camera) -> tuple[Raster, np.ndarray]:
    """Where rays meet triangles, with no projection at all; and how safely (least barycentric
    coordinate).
    """
    width, height = camera.size
    x, y = np.meshgrid(np.arange(width), np.arange(height))
    rays = camera.rays(torch.from_numpy(np.stack((x, y), axis=-1)).double()).numpy()
    face = np.full((height, width), -1, np.int32)
    depth = np.full((height, width), np.inf)
    weights = np.zeros((height, width, 3))
    margin = np.full((height, width), np.inf)
    for f, corners in enumerate(faces):
        scaled = rays @ np.linalg.inv(
            vertices[corners]
        )  # barycentric over depth: sum_i b_i v_i = z ray
        with np.errstate(divide="ignore", invalid="ignore"):
            here = 1 / scaled.sum(axis=-1)
            b = scaled * here[..., None]
        margin = np.minimum(margin, np.minimum(np.abs(b).min(axis=-1), np.abs(here - NEAR_PLANE_M)))
        wins = (b >= 0).all(axis=-1) & (here >= NEAR_PLANE_M) & (here < depth)
        face[wins] = f
        depth[wins] = here[wins]
        weights[wins] = b[wins]
    return Raster(face, depth, weights), margin


def _random_triangles(
    seed: int, count: int, z: tuple[float, float]
) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    vertices = random.uniform((-1, -1, z[0]), (1, 1, z[1]), (count * 3, 3))
    return vertices, np.arange(count * 3, dtype=np.int32).reshape(-1, 3)


def test_a_triangle_covers_the_pixels_that_a_pencil_says() -> None:
    raster = rasterize(at((0, 0, 1), (4, 0, 1), (0, 4, 1)), np.array([[0, 2, 1]]), SMALL)
    y, x = np.mgrid[:6, :8]
    np.testing.assert_array_equal(raster.face, np.where(x + y <= 4, 0, -1))
    np.testing.assert_array_equal(raster.depth_m, np.where(x + y <= 4, 1.0, np.inf))
    np.testing.assert_allclose(raster.barycentric[1, 1], (0.5, 0.25, 0.25))
    np.testing.assert_allclose(raster.barycentric[0, 3], (0.25, 0, 0.75))
    assert raster.barycentric[5, 5].tolist() == [0, 0, 0]


def test_depth_and_place_are_perspective_correct() -> None:
    raster = rasterize(at((0, 0, 1), (4, 0, 2), (0, 4, 4)), np.array([[0, 1, 2]]), SMALL)
    # Halfway in the image between depths 1 and 2: 1/z = (1 + 1/2) / 2, and two thirds of the way at
    # the near end.
    assert raster.depth_m[0, 2] == pytest.approx(4 / 3)
    np.testing.assert_allclose(raster.barycentric[0, 2], (2 / 3, 1 / 3, 0), atol=1e-6)
    assert raster.depth_m[2, 2] == pytest.approx(1 / (0.5 / 2 + 0.5 / 4))
    np.testing.assert_allclose(raster.barycentric[2, 2], (0, 2 / 3, 1 / 3), atol=1e-6)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_the_nearer_of_two_triangles_is_seen_whatever_their_order(order: tuple[int, int]) -> None:
    vertices = at((0, 0, 2), (7, 0, 2), (0, 5, 2), (0, 0, 1), (3, 0, 1), (0, 3, 1))
    faces = np.array([[0, 1, 2], [3, 4, 5]])[list(order)]
    raster = rasterize(vertices, faces, SMALL)
    assert order[raster.face[0, 0]] == 1
    assert order[raster.face[0, 3]] == 1
    assert order[raster.face[0, 4]] == 0
    assert (raster.depth_m[0, 0], raster.depth_m[0, 4]) == (1, 2)


def test_triangles_that_pierce_each_other_part_where_their_depths_are_equal() -> None:
    flat = at((0, 0, 2), (7, 0, 2), (0, 5, 2))
    leaning = at(
        (0, 0, 1), (7, 0, 8), (0, 5, 1)
    )  # along y = 0: 1/z = 1 - x/8, equal to 1/2 at x = 4
    raster = rasterize(np.concatenate((flat, leaning)), np.array([[0, 1, 2], [3, 4, 5]]), SMALL)
    assert raster.face[0].tolist() == [1, 1, 1, 1, 0, 0, 0, 0]


@pytest.mark.parametrize("seed", range(3))
def test_random_meshes_equal_the_literal_definition(seed: int) -> None:
    vertices, faces = _random_triangles(seed, 60, (0.8, 3))
    raster = rasterize(vertices, faces, TOY)
    reference = _reference(vertices, faces, TOY)
    np.testing.assert_array_equal(raster.face, reference.face)
    np.testing.assert_allclose(raster.depth_m, reference.depth_m, rtol=1e-6)
    np.testing.assert_allclose(raster.barycentric, reference.barycentric, atol=1e-5)


@pytest.mark.parametrize("seed", range(4))
def test_triangles_that_reach_behind_the_camera_equal_ray_casting(seed: int) -> None:
    vertices, faces = _random_triangles(seed, 12, (-0.6, 1.0))
    in_front = (vertices[faces, 2] > NEAR_PLANE_M).sum(axis=1)
    assert {1, 2} <= set(in_front.tolist())  # both ways of cutting a triangle occur
    raster = rasterize(vertices, faces, TOY)
    reference, margin = _ray_cast(vertices, faces, TOY)
    safe = margin > 1e-6
    assert safe.mean() > 0.99
    assert (reference.face >= 0).any()
    np.testing.assert_array_equal(raster.face[safe], reference.face[safe])
    np.testing.assert_allclose(raster.depth_m[safe], reference.depth_m[safe], rtol=1e-4)
    np.testing.assert_allclose(raster.barycentric[safe], reference.barycentric[safe], atol=1e-4)


def test_what_lies_behind_the_camera_is_not_seen() -> None:
    vertices = np.array([[-1.0, -1, -2], [1, -1, -2], [0, 1, -2]])
    assert (rasterize(vertices, np.array([[0, 1, 2]]), TOY).face == -1).all()
    background = np.full((48, 64, 3), 77, np.uint8)
    np.testing.assert_array_equal(
        render([Mesh(vertices, np.array([[0, 1, 2]]))], TOY, background), background
    )


def test_only_the_side_whose_corners_turn_counter_clockwise_survives_culling() -> None:
    vertices = at((0, 0, 1), (4, 0, 1), (0, 4, 1))
    front = np.array([[0, 2, 1]])
    back = np.array([[0, 1, 2]])
    assert (rasterize(vertices, front, SMALL, cull=True).face >= 0).sum() == 15
    assert (rasterize(vertices, back, SMALL, cull=True).face >= 0).sum() == 0
    assert (rasterize(vertices, back, SMALL).face >= 0).sum() == 15


def test_a_closed_surface_has_no_cracks() -> None:
    vertices, faces = sphere((0.1, 0.05, 3), 1.0)
    seen = rasterize(vertices, faces, TOY, cull=True).face >= 0
    for row in seen[seen.any(axis=1)]:
        first, last = np.flatnonzero(row)[[0, -1]]
        assert row[first : last + 1].all()


def test_an_image_row_beyond_the_frame_changes_nothing_inside() -> None:
    vertices, faces = sphere((0.9, 0.7, 2), 1.0)  # sticks out at the right and below
    part = rasterize(vertices, faces, TOY)
    whole = rasterize(vertices, faces, Camera(TOY.focal_px, TOY.center_px, (99, 99)))
    np.testing.assert_array_equal(part.face, whole.face[:48, :64])


def test_a_lens_bends_the_outline_as_it_bends_points() -> None:
    camera = Camera.from_intrinsics(TOY.intrinsics, TOY.size, (-0.2, 0.0, 0.0, 0.0))
    vertices, faces = sphere((0.6, 0.3, 2), 0.1)
    y, x = np.nonzero(rasterize(vertices, faces, camera).face >= 0)
    expected = camera.project(torch.tensor([0.6, 0.3, 2.0])).numpy()
    assert np.hypot(x.mean() - expected[0], y.mean() - expected[1]) < 0.6


def test_what_a_lens_formula_folds_back_into_the_image_is_not_drawn() -> None:
    camera = Camera.from_intrinsics(TOY.intrinsics, TOY.size, (-0.3, 0.0, 0.0, 0.0))
    vertices, faces = sphere(
        (2.0, 0.0, 1.1), 0.1
    )  # r = 1.82, where r (1 - 0.3 r^2) is about 0 again
    inside = camera.project(torch.from_numpy(vertices))
    assert (
        ((inside > 0) & (inside < torch.tensor(TOY.size))).all(dim=-1).any()
    )  # the formula alone would show it
    assert (rasterize(vertices, faces, camera).face == -1).all()
