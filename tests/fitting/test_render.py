"""The z-buffer against hand arithmetic, a literal reference and ray casting; the picture against what eyes expect."""

import sys
import types

import numpy as np
import pytest
import torch

from fitting import Mesh, load_body, render
from fitting.camera import Camera
from fitting.pytorch3d_paint import problem
from fitting.rasterize import Raster, rasterize
from fitting.screen import NEAR_M
from fitting.shading import softened, vertex_normals
from pose2d.errors import UserError

SMALL = Camera.from_focal(10.0, (8, 6), (0.0, 0.0))  # a point (x, y, 1) lands on pixel (10 x, 10 y)
TOY = Camera.from_focal((60.0, 55.0), (64, 48), (30.0, 25.0))


def _at(*corners: tuple[float, float, float]) -> np.ndarray:
    """Points that SMALL sees at pixel (u, v) with depth z."""
    return np.array([(u * z / 10, v * z / 10, z) for u, v, z in corners])


def _sphere(center: tuple[float, float, float], radius: float, rings: int = 24) -> tuple[np.ndarray, np.ndarray]:
    """A closed ball, counter-clockwise from outside."""
    theta, phi = np.linspace(0, np.pi, rings + 1), np.arange(2 * rings) * np.pi / rings
    x, y = np.outer(np.sin(theta), np.cos(phi)), np.outer(np.sin(theta), np.sin(phi))
    grid = np.stack((x, y, np.outer(np.cos(theta), np.ones_like(phi))), axis=-1)
    i, j = np.meshgrid(np.arange(rings), np.arange(2 * rings), indexing="ij")
    a, b = i * 2 * rings + j, i * 2 * rings + (j + 1) % (2 * rings)
    c, d = a + 2 * rings, b + 2 * rings
    faces = np.concatenate((np.stack((a, c, d), -1).reshape(-1, 3), np.stack((a, d, b), -1).reshape(-1, 3)))
    return grid.reshape(-1, 3) * radius + center, faces.astype(np.int32)


def _reference(vertices: np.ndarray, faces: np.ndarray, camera: Camera) -> Raster:
    """The definition, literally: every face asks every pixel. All vertices must be in front of the camera."""
    width, height = camera.size
    x, y = np.meshgrid(np.arange(width), np.arange(height))
    u = vertices[:, 0] / vertices[:, 2] * camera.focal_px[0] + camera.center_px[0]
    v = vertices[:, 1] / vertices[:, 2] * camera.focal_px[1] + camera.center_px[1]
    face = np.full((height, width), -1, np.int32)
    depth, weights = np.full((height, width), np.inf), np.zeros((height, width, 3))
    for f, corners in enumerate(faces):
        (ax, bx, cx), (ay, by, cy), z = u[corners], v[corners], vertices[corners, 2]
        area = (bx - ax) * (cy - ay) - (cx - ax) * (by - ay)
        w = np.stack((
            (bx - x) * (cy - y) - (cx - x) * (by - y),
            (cx - x) * (ay - y) - (ax - x) * (cy - y),
            (ax - x) * (by - y) - (bx - x) * (ay - y),
        ), axis=-1) / area  # fmt: skip
        here = 1 / (w / z).sum(axis=-1)
        wins = (w >= 0).all(axis=-1) & (here < depth)
        face[wins], depth[wins], weights[wins] = f, here[wins], (w / z * here[..., None])[wins]
    return Raster(face, depth, weights)


def _ray_cast(vertices: np.ndarray, faces: np.ndarray, camera: Camera) -> tuple[Raster, np.ndarray]:
    """Where rays meet triangles, with no projection at all; and how safely (least barycentric coordinate)."""
    width, height = camera.size
    x, y = np.meshgrid(np.arange(width), np.arange(height))
    rays = camera.rays(torch.from_numpy(np.stack((x, y), axis=-1)).double()).numpy()
    face = np.full((height, width), -1, np.int32)
    depth, weights = np.full((height, width), np.inf), np.zeros((height, width, 3))
    margin = np.full((height, width), np.inf)
    for f, corners in enumerate(faces):
        scaled = rays @ np.linalg.inv(vertices[corners])  # barycentric over depth: sum_i b_i v_i = z ray
        with np.errstate(divide="ignore", invalid="ignore"):
            here = 1 / scaled.sum(axis=-1)
            b = scaled * here[..., None]
        margin = np.minimum(margin, np.minimum(np.abs(b).min(axis=-1), np.abs(here - NEAR_M)))
        wins = (b >= 0).all(axis=-1) & (here >= NEAR_M) & (here < depth)
        face[wins], depth[wins], weights[wins] = f, here[wins], b[wins]
    return Raster(face, depth, weights), margin


def _random_triangles(seed: int, count: int, z: tuple[float, float]) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    vertices = random.uniform((-1, -1, z[0]), (1, 1, z[1]), (count * 3, 3))
    return vertices, np.arange(count * 3, dtype=np.int32).reshape(-1, 3)


def test_a_triangle_covers_the_pixels_that_a_pencil_says() -> None:
    raster = rasterize(_at((0, 0, 1), (4, 0, 1), (0, 4, 1)), np.array([[0, 2, 1]]), SMALL)
    y, x = np.mgrid[:6, :8]
    np.testing.assert_array_equal(raster.face, np.where(x + y <= 4, 0, -1))
    np.testing.assert_array_equal(raster.depth_m, np.where(x + y <= 4, 1.0, np.inf))
    np.testing.assert_allclose(raster.barycentric[1, 1], (0.5, 0.25, 0.25))
    np.testing.assert_allclose(raster.barycentric[0, 3], (0.25, 0, 0.75))
    assert raster.barycentric[5, 5].tolist() == [0, 0, 0]


def test_depth_and_place_are_perspective_correct() -> None:
    raster = rasterize(_at((0, 0, 1), (4, 0, 2), (0, 4, 4)), np.array([[0, 1, 2]]), SMALL)
    # Halfway in the picture between depths 1 and 2: 1/z = (1 + 1/2) / 2, and two thirds of the way at the near end.
    assert raster.depth_m[0, 2] == pytest.approx(4 / 3)
    np.testing.assert_allclose(raster.barycentric[0, 2], (2 / 3, 1 / 3, 0), atol=1e-6)
    assert raster.depth_m[2, 2] == pytest.approx(1 / (0.5 / 2 + 0.5 / 4))
    np.testing.assert_allclose(raster.barycentric[2, 2], (0, 2 / 3, 1 / 3), atol=1e-6)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_the_nearer_of_two_triangles_is_seen_whatever_their_order(order: tuple[int, int]) -> None:
    vertices = _at((0, 0, 2), (7, 0, 2), (0, 5, 2), (0, 0, 1), (3, 0, 1), (0, 3, 1))
    faces = np.array([[0, 1, 2], [3, 4, 5]])[list(order)]
    raster = rasterize(vertices, faces, SMALL)
    assert order[raster.face[0, 0]] == 1
    assert order[raster.face[0, 3]] == 1
    assert order[raster.face[0, 4]] == 0
    assert (raster.depth_m[0, 0], raster.depth_m[0, 4]) == (1, 2)


def test_triangles_that_pierce_each_other_part_where_their_depths_are_equal() -> None:
    flat = _at((0, 0, 2), (7, 0, 2), (0, 5, 2))
    leaning = _at((0, 0, 1), (7, 0, 8), (0, 5, 1))  # along y = 0: 1/z = 1 - x/8, equal to 1/2 at x = 4
    raster = rasterize(np.concatenate((flat, leaning)), np.array([[0, 1, 2], [3, 4, 5]]), SMALL)
    assert raster.face[0].tolist() == [1, 1, 1, 1, 0, 0, 0, 0]


@pytest.mark.parametrize("seed", range(3))
def test_random_meshes_equal_the_literal_definition(seed: int) -> None:
    vertices, faces = _random_triangles(seed, 60, (0.8, 3))
    raster, reference = rasterize(vertices, faces, TOY), _reference(vertices, faces, TOY)
    np.testing.assert_array_equal(raster.face, reference.face)
    np.testing.assert_allclose(raster.depth_m, reference.depth_m, rtol=1e-6)
    np.testing.assert_allclose(raster.barycentric, reference.barycentric, atol=1e-5)


@pytest.mark.parametrize("seed", range(4))
def test_triangles_that_reach_behind_the_camera_equal_ray_casting(seed: int) -> None:
    vertices, faces = _random_triangles(seed, 12, (-0.6, 1.0))
    in_front = (vertices[faces, 2] > NEAR_M).sum(axis=1)
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
    np.testing.assert_array_equal(render([Mesh(vertices, np.array([[0, 1, 2]]))], TOY, background), background)


def test_only_the_side_whose_corners_turn_counter_clockwise_survives_culling() -> None:
    vertices = _at((0, 0, 1), (4, 0, 1), (0, 4, 1))
    front, back = np.array([[0, 2, 1]]), np.array([[0, 1, 2]])
    assert (rasterize(vertices, front, SMALL, cull=True).face >= 0).sum() == 15
    assert (rasterize(vertices, back, SMALL, cull=True).face >= 0).sum() == 0
    assert (rasterize(vertices, back, SMALL).face >= 0).sum() == 15


def test_a_closed_surface_has_no_cracks() -> None:
    vertices, faces = _sphere((0.1, 0.05, 3), 1.0)
    seen = rasterize(vertices, faces, TOY, cull=True).face >= 0
    for row in seen[seen.any(axis=1)]:
        first, last = np.flatnonzero(row)[[0, -1]]
        assert row[first : last + 1].all()


def test_an_image_row_beyond_the_frame_changes_nothing_inside() -> None:
    vertices, faces = _sphere((0.9, 0.7, 2), 1.0)  # sticks out at the right and below
    part, whole = (
        rasterize(vertices, faces, TOY),
        rasterize(vertices, faces, Camera(TOY.focal_px, TOY.center_px, (99, 99))),
    )
    np.testing.assert_array_equal(part.face, whole.face[:48, :64])


def test_a_lens_bends_the_outline_as_it_bends_points() -> None:
    camera = Camera.from_intrinsics(TOY.intrinsics, TOY.size, (-0.2, 0.0, 0.0, 0.0))
    vertices, faces = _sphere((0.6, 0.3, 2), 0.1)
    y, x = np.nonzero(rasterize(vertices, faces, camera).face >= 0)
    expected = camera.project(torch.tensor([0.6, 0.3, 2.0])).numpy()
    assert np.hypot(x.mean() - expected[0], y.mean() - expected[1]) < 0.6


def test_what_a_lens_formula_folds_back_into_the_picture_is_not_drawn() -> None:
    camera = Camera.from_intrinsics(TOY.intrinsics, TOY.size, (-0.3, 0.0, 0.0, 0.0))
    vertices, faces = _sphere((2.0, 0.0, 1.1), 0.1)  # r = 1.82, where r (1 - 0.3 r^2) is about 0 again
    inside = camera.project(torch.from_numpy(vertices))
    assert ((inside > 0) & (inside < torch.tensor(TOY.size))).all(dim=-1).any()  # the formula alone would show it
    assert (rasterize(vertices, faces, camera).face == -1).all()


def _standing() -> tuple[np.ndarray, np.ndarray]:
    """The open body's mesh, facing the camera from 3 m."""
    body = load_body()
    mesh = body(torch.zeros(1, 24, 3), vertices=True).vertices
    assert mesh is not None
    return mesh[0].numpy() * (1, -1, -1) + (0, 0, 3), body.faces.numpy()


def test_the_open_body_is_outside_out() -> None:
    vertices, faces = _standing()
    camera = Camera.default((320, 240))
    seen, culled = rasterize(vertices, faces, camera), rasterize(vertices, faces, camera, cull=True)
    np.testing.assert_array_equal(seen.face, culled.face)
    inside_out = rasterize(vertices, faces[:, ::-1].copy(), camera, cull=True)
    both = (seen.face >= 0) & (inside_out.face >= 0)
    assert both.sum() > 0.95 * (seen.face >= 0).sum()
    assert (inside_out.depth_m[both] > seen.depth_m[both]).all()


def test_the_body_is_not_mirrored() -> None:
    vertices, faces = _standing()
    color = np.where(vertices[:, :1] > 0, (1.0, 0.0, 0.0), (0.0, 0.0, 1.0))  # its left side (+x) red
    picture = render([Mesh(vertices, faces, color)], Camera.default((320, 240)), alpha=1).astype(int)
    red, blue = picture[..., 0] - picture[..., 2] > 60, picture[..., 2] - picture[..., 0] > 60
    assert red.any()
    assert blue.any()
    assert np.nonzero(red)[1].min() >= 159  # who looks at us has the left hand on our right
    assert np.nonzero(blue)[1].max() <= 161


def test_who_is_nearer_hides_who_is_farther() -> None:
    far, near = _sphere((0, 0, 4), 1.0), _sphere((0, 0, 2), 0.3)
    red, green = Mesh(*far, (1.0, 0.0, 0.0)), Mesh(*near, (0.0, 1.0, 0.0))
    one, other = render([red, green], TOY, alpha=1), render([green, red], TOY, alpha=1)
    np.testing.assert_array_equal(one, other)
    assert one[25, 30].argmax() == 1
    assert one[25, 40].argmax() == 0


def test_people_apart_are_drawn_as_if_alone_and_a_chain_of_neighbours_together() -> None:
    """1 and 3 stand apart until 2, in between and behind both, joins them; 4 is alone."""
    balls = [_sphere((x, y, z), 0.3) for x, y, z in ((-0.9, 0, 2), (0.5, 0, 2), (-0.2, 0, 2.4), (0.9, -0.85, 3))]
    meshes = [Mesh(*ball, color) for ball, color in zip(balls, np.eye(4)[:, :3], strict=True)]
    photo = np.random.default_rng(0).integers(0, 256, (48, 64, 3)).astype(np.uint8)
    together = render(meshes, TOY, photo)
    alone = render(meshes[3:], TOY, render(meshes[:3], TOY, photo))
    np.testing.assert_array_equal(together, alone)
    everyone = np.concatenate([ball[0] for ball in balls])
    start = np.cumsum([0, *(len(ball[0]) for ball in balls)])
    faces = np.concatenate([ball[1] + first for ball, first in zip(balls, start, strict=False)])
    colors = np.repeat(np.eye(4)[:, :3], [len(ball[0]) for ball in balls], axis=0)
    np.testing.assert_array_equal(together, render([Mesh(everyone, faces, colors)], TOY, photo))


def test_alpha_mixes_the_person_with_the_photograph() -> None:
    photo = np.random.default_rng(0).integers(0, 256, (48, 64, 3)).astype(np.uint8)
    kept = photo.copy()
    mesh = [Mesh(*_sphere((0, 0, 3), 1.0)), Mesh(*_sphere((0.3, 0, 5), 1.0))]
    solid, half = render(mesh, TOY, photo, alpha=1), render(mesh, TOY, photo, alpha=0.5)
    np.testing.assert_array_equal(render(mesh, TOY, photo, alpha=0), photo)
    np.testing.assert_allclose(half, (solid / 2 + photo / 2), atol=1.01)
    np.testing.assert_array_equal(photo, kept)
    np.testing.assert_array_equal(render([], TOY, photo), photo)


def test_people_without_a_colour_get_different_ones() -> None:
    vertices, faces = _sphere((-0.5, 0, 3), 0.3)
    picture = render([Mesh(vertices, faces), Mesh(vertices + np.array((1, 0, 0)), faces)], TOY, alpha=1).astype(int)
    assert np.abs(picture[25, 20] - picture[25, 40]).max() > 50


def test_vertex_colours_run_smoothly_across_a_face() -> None:
    vertices = _at((0, 0, 1), (0, 5, 1), (7, 0, 1))
    color = np.array([[1.0, 0, 0], [1.0, 0, 0], [0, 1.0, 0]])
    row = render([Mesh(vertices, np.array([[0, 1, 2]]), color)], SMALL, alpha=1, antialias=False)[0].astype(int)
    assert (np.diff(row[:, 0]) < 0).all()
    assert (np.diff(row[:, 1]) > 0).all()
    steps = np.diff(row[:, 1])
    assert steps.max() - steps.min() <= 1


def test_an_outline_pixel_shows_the_share_of_it_that_is_covered() -> None:
    # The triangle's edge runs down at x = 3.25: it covers three quarters of the pixel from 2.5 to 3.5.
    vertices = _at((3.25, -50, 1), (-60, 2, 1), (3.25, 50, 1))
    mesh, black = Mesh(vertices, np.array([[0, 1, 2]]), (1.0, 1.0, 1.0)), np.zeros((6, 8, 3), np.uint8)
    smooth, hard = render([mesh], SMALL, black, alpha=1), render([mesh], SMALL, black, alpha=1, antialias=False)
    assert (hard[3, 3] == hard[3, 1]).all()
    np.testing.assert_allclose(smooth[3, 3], hard[3, 3] * 0.75, atol=1)
    np.testing.assert_array_equal(smooth[3, :2], hard[3, :2])
    np.testing.assert_array_equal(smooth[3, 5:], 0)


def test_normals_of_a_ball_point_away_from_its_centre() -> None:
    vertices, faces = _sphere((1, 2, 3), 2.0, rings=48)
    inner = slice(4 * 96, -4 * 96)  # at the poles vertices coincide, each with one face
    outward = (vertices - (1, 2, 3)) / 2
    np.testing.assert_allclose(vertex_normals(vertices, faces)[inner], outward[inner], atol=5e-3)


def test_tensors_and_arrays_give_the_same_picture() -> None:
    vertices, faces = _sphere((0, 0, 3), 1.0)
    arrays = render([Mesh(vertices, faces, (0.2, 0.4, 0.6))], TOY)
    tensors = Mesh(torch.from_numpy(vertices), torch.from_numpy(faces).long(), torch.tensor([0.2, 0.4, 0.6]).double())
    np.testing.assert_array_equal(render([tensors], TOY), arrays)


BALL = _sphere((0, 0, 3), 1.0)


@pytest.mark.parametrize(
    ("draw", "says"),
    [
        (lambda: render([Mesh(BALL[0] * np.nan, BALL[1])], TOY), "mesh 0: vertices"),
        (lambda: render([Mesh(*BALL), Mesh(BALL[0][:, :2], BALL[1])], TOY), "mesh 1: vertices"),
        (lambda: render([Mesh(BALL[0], BALL[1].astype(float))], TOY), "mesh 0: faces"),
        (lambda: render([Mesh(BALL[0], BALL[1] + 9999)], TOY), "beyond"),
        (lambda: render([Mesh(BALL[0], BALL[1] - 1)], TOY), "beyond"),
        (lambda: render([Mesh(*BALL, (255.0, 0.0, 0.0))], TOY), "colours"),
        (lambda: render([Mesh(*BALL, np.zeros((7, 3)))], TOY), "colours"),
        (lambda: render([Mesh(*BALL)], TOY, np.zeros((64, 48, 3), np.uint8)), "background"),
        (lambda: render([Mesh(*BALL)], TOY, np.zeros((48, 64, 3))), "background"),
        (lambda: render([Mesh(*BALL)], TOY, alpha=1.5), "alpha"),
        (lambda: render([Mesh(*BALL)], TOY, alpha=float("nan")), "alpha"),
        (lambda: render([Mesh(*BALL)], TOY, backend="opengl"), "renderer"),  # type: ignore[arg-type]
    ],
)
def test_what_cannot_be_drawn_is_refused_in_words(draw, says: str) -> None:
    with pytest.raises(UserError, match=says):
        draw()


def test_pytorch3d_that_is_not_there_is_said_to_be_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pytorch3d", None)
    with pytest.raises(UserError, match="not installed"):
        render([Mesh(*BALL)], TOY, backend="pytorch3d")


def test_pytorch3d_without_its_compiled_part_is_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    half = types.ModuleType("pytorch3d")
    half.__path__ = []
    monkeypatch.setitem(sys.modules, "pytorch3d", half)
    monkeypatch.setitem(sys.modules, "pytorch3d._C", None)
    with pytest.raises(UserError, match="compiled part does not load"):
        render([Mesh(*BALL)], TOY, backend="pytorch3d")


@pytest.mark.skipif(problem() is not None, reason=str(problem()))
def test_pytorch3d_draws_the_same_picture() -> None:
    # Off the grid: where a pixel's centre lies exactly on an edge, PyTorch3D gives it to neither triangle.
    meshes = [Mesh(*_sphere((0.013, 0.007, 3), 1.0)), Mesh(*_sphere((0.5, 0.2, 0.3), 0.4))]
    photo = np.random.default_rng(0).integers(0, 256, (48, 64, 3)).astype(np.uint8)
    ours = render(meshes, TOY, photo, antialias=False).astype(int)
    theirs = render(meshes, TOY, photo, antialias=False, backend="pytorch3d").astype(int)
    assert (np.abs(ours - theirs).max(axis=-1) > 2).mean() < 0.005  # outline pixels may fall either way


def test_softened_light_hides_a_bump_and_leaves_a_plane_as_it_is():
    x, y = np.meshgrid(np.arange(9.0), np.arange(9.0))
    corner = np.arange(81).reshape(9, 9)
    a, b, c, d = corner[:-1, :-1].ravel(), corner[:-1, 1:].ravel(), corner[1:, :-1].ravel(), corner[1:, 1:].ravel()
    faces = np.concatenate([np.stack([a, c, b], 1), np.stack([b, c, d], 1)]).astype(np.int32)
    plane = np.stack([x.ravel(), y.ravel(), np.full(81, 5.0)], 1)
    bump = plane.copy()
    bump[40, 2] -= 1.0
    flat, rough = vertex_normals(plane, faces), vertex_normals(bump, faces)
    np.testing.assert_allclose(softened(flat, faces, 5), flat, atol=1e-6)
    np.testing.assert_array_equal(softened(rough, faces, 0), rough)
    soft = softened(rough, faces, 5)
    np.testing.assert_allclose(np.linalg.norm(soft, axis=1), 1, atol=1e-5)
    assert np.abs(soft - flat).max() < 0.3 * np.abs(rough - flat).max()
