"""The image against what eyes expect."""

import sys
import types

import numpy as np
import pytest
import torch

from fitting import load_body
from fitting.camera import Camera
from fitting.render import Mesh, render
from fitting.render.raster import rasterize
from fitting.render.shading import soften_normals, vertex_normals
from fitting.render.with_pytorch3d import explain_unavailable
from pose2d.base.errors import UserError
from tests.fitting.shapes import SMALL, TOY, at, sphere


def _standing() -> tuple[np.ndarray, np.ndarray]:
    """The open body's mesh, facing the camera from 3 m."""
    body = load_body()
    mesh = body(torch.zeros(1, 24, 3), vertices=True).vertices
    assert mesh is not None
    return mesh[0].numpy() * (1, -1, -1) + (0, 0, 3), body.faces.numpy()


def test_the_open_body_is_outside_out() -> None:
    vertices, faces = _standing()
    camera = Camera.default((320, 240))
    seen = rasterize(vertices, faces, camera)
    culled = rasterize(vertices, faces, camera, cull=True)
    np.testing.assert_array_equal(seen.face, culled.face)
    inside_out = rasterize(vertices, faces[:, ::-1].copy(), camera, cull=True)
    both = (seen.face >= 0) & (inside_out.face >= 0)
    assert both.sum() > 0.95 * (seen.face >= 0).sum()
    assert (inside_out.inverse_depth[both] < seen.inverse_depth[both]).all()


def test_the_body_is_not_mirrored() -> None:
    vertices, faces = _standing()
    color = np.where(
        vertices[:, :1] > 0, (1.0, 0.0, 0.0), (0.0, 0.0, 1.0)
    )  # its left side (+x) red
    image = render([Mesh(vertices, faces, color)], Camera.default((320, 240)), alpha=1).astype(int)
    red = image[..., 0] - image[..., 2] > 60
    blue = image[..., 2] - image[..., 0] > 60
    assert red.any()
    assert blue.any()
    assert np.nonzero(red)[1].min() >= 159  # who looks at us has the left hand on our right
    assert np.nonzero(blue)[1].max() <= 161


def test_who_is_nearer_hides_who_is_farther() -> None:
    far = sphere((0, 0, 4), 1.0)
    near = sphere((0, 0, 2), 0.3)
    red = Mesh(*far, (1.0, 0.0, 0.0))
    green = Mesh(*near, (0.0, 1.0, 0.0))
    one = render([red, green], TOY, alpha=1)
    other = render([green, red], TOY, alpha=1)
    np.testing.assert_array_equal(one, other)
    assert one[25, 30].argmax() == 1
    assert one[25, 40].argmax() == 0


def test_people_apart_are_drawn_as_if_alone_and_a_chain_of_neighbours_together() -> None:
    """1 and 3 stand apart until 2, in between and behind both, joins them; 4 is alone."""
    balls = [
        sphere((x, y, z), 0.3)
        for x, y, z in ((-0.9, 0, 2), (0.5, 0, 2), (-0.2, 0, 2.4), (0.9, -0.85, 3))
    ]
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
    mesh = [Mesh(*sphere((0, 0, 3), 1.0)), Mesh(*sphere((0.3, 0, 5), 1.0))]
    solid = render(mesh, TOY, photo, alpha=1)
    half = render(mesh, TOY, photo, alpha=0.5)
    np.testing.assert_array_equal(render(mesh, TOY, photo, alpha=0), photo)
    np.testing.assert_allclose(half, (solid / 2 + photo / 2), atol=1.01)
    np.testing.assert_array_equal(photo, kept)
    np.testing.assert_array_equal(render([], TOY, photo), photo)


def test_people_without_a_colour_get_different_ones() -> None:
    vertices, faces = sphere((-0.5, 0, 3), 0.3)
    image = render(
        [Mesh(vertices, faces), Mesh(vertices + np.array((1, 0, 0)), faces)], TOY, alpha=1
    ).astype(int)
    assert np.abs(image[25, 20] - image[25, 40]).max() > 50


def test_vertex_colours_run_smoothly_across_a_face() -> None:
    vertices = at((0, 0, 1), (0, 5, 1), (7, 0, 1))
    color = np.array([[1.0, 0, 0], [1.0, 0, 0], [0, 1.0, 0]])
    row = render([Mesh(vertices, np.array([[0, 1, 2]]), color)], SMALL, alpha=1, antialias=False)[
        0
    ].astype(int)
    assert (np.diff(row[:, 0]) < 0).all()
    assert (np.diff(row[:, 1]) > 0).all()
    steps = np.diff(row[:, 1])
    assert steps.max() - steps.min() <= 1


def test_an_outline_pixel_shows_the_share_of_it_that_is_covered() -> None:
    # The triangle's edge runs down at x = 3.25: it covers three quarters of the pixel from 2.5 to
    # 3.5.
    vertices = at((3.25, -50, 1), (-60, 2, 1), (3.25, 50, 1))
    mesh = Mesh(vertices, np.array([[0, 1, 2]]), (1.0, 1.0, 1.0))
    black = np.zeros((6, 8, 3), np.uint8)
    smooth = render([mesh], SMALL, black, alpha=1)
    hard = render([mesh], SMALL, black, alpha=1, antialias=False)
    assert (hard[3, 3] == hard[3, 1]).all()
    np.testing.assert_allclose(smooth[3, 3], hard[3, 3] * 0.75, atol=1)
    np.testing.assert_array_equal(smooth[3, :2], hard[3, :2])
    np.testing.assert_array_equal(smooth[3, 5:], 0)


def test_normals_of_a_ball_point_away_from_its_centre() -> None:
    vertices, faces = sphere((1, 2, 3), 2.0, rings=48)
    inner = slice(4 * 96, -4 * 96)  # at the poles vertices coincide, each with one face
    outward = (vertices - (1, 2, 3)) / 2
    np.testing.assert_allclose(vertex_normals(vertices, faces)[inner], outward[inner], atol=5e-3)


def test_tensors_and_arrays_give_the_same_image() -> None:
    vertices, faces = sphere((0, 0, 3), 1.0)
    arrays = render([Mesh(vertices, faces, (0.2, 0.4, 0.6))], TOY)
    tensors = Mesh(
        torch.from_numpy(vertices),
        torch.from_numpy(faces).long(),
        torch.tensor([0.2, 0.4, 0.6]).double(),
    )
    np.testing.assert_array_equal(render([tensors], TOY), arrays)


BALL = sphere((0, 0, 3), 1.0)


@pytest.mark.parametrize(
    ("draw", "says"),
    [
        (lambda: render([Mesh(BALL[0] * np.nan, BALL[1])], TOY), "mesh 0: vertices"),
        (lambda: render([Mesh(*BALL), Mesh(BALL[0][:, :2], BALL[1])], TOY), "mesh 1: vertices"),
        (lambda: render([Mesh(BALL[0], BALL[1].astype(float))], TOY), "mesh 0: faces"),
        (lambda: render([Mesh(BALL[0], BALL[1] + 9999)], TOY), "mesh 0: faces"),
        (lambda: render([Mesh(BALL[0], BALL[1] - 1)], TOY), "mesh 0: faces"),
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


@pytest.mark.skipif(explain_unavailable() is not None, reason=str(explain_unavailable()))
def test_pytorch3d_draws_the_same_image() -> None:
    # Off the grid: where a pixel's centre lies exactly on an edge, PyTorch3D gives it to neither
    # triangle.
    meshes = [Mesh(*sphere((0.013, 0.007, 3), 1.0)), Mesh(*sphere((0.5, 0.2, 0.3), 0.4))]
    photo = np.random.default_rng(0).integers(0, 256, (48, 64, 3)).astype(np.uint8)
    ours = render(meshes, TOY, photo, antialias=False).astype(int)
    theirs = render(meshes, TOY, photo, antialias=False, backend="pytorch3d").astype(int)
    assert (
        np.abs(ours - theirs).max(axis=-1) > 2
    ).mean() < 0.005  # outline pixels may fall either way


def test_softened_light_hides_a_bump_and_leaves_a_plane_as_it_is():
    x, y = np.meshgrid(np.arange(9.0), np.arange(9.0))
    corner = np.arange(81).reshape(9, 9)
    a = corner[:-1, :-1].ravel()
    b = corner[:-1, 1:].ravel()
    c = corner[1:, :-1].ravel()
    d = corner[1:, 1:].ravel()
    faces = np.concatenate([np.stack([a, c, b], 1), np.stack([b, c, d], 1)]).astype(np.int32)
    plane = np.stack([x.ravel(), y.ravel(), np.full(81, 5.0)], 1)
    bump = plane.copy()
    bump[40, 2] -= 1.0
    flat = vertex_normals(plane, faces)
    rough = vertex_normals(bump, faces)
    np.testing.assert_allclose(soften_normals(flat, faces, 5), flat, atol=1e-6)
    np.testing.assert_array_equal(soften_normals(rough, faces, 0), rough)
    soft = soften_normals(rough, faces, 5)
    np.testing.assert_allclose(np.linalg.norm(soft, axis=1), 1, atol=1e-5)
    assert np.abs(soft - flat).max() < 0.3 * np.abs(rough - flat).max()


def test_opacity_lets_the_photograph_shine_through_vertex_by_vertex() -> None:
    vertices, faces = sphere((0, 0, 3), 1.0)
    photo = np.full((TOY.size[1], TOY.size[0], 3), 40, np.uint8)
    solid, half = (
        render([Mesh(vertices, faces, (0.9, 0.5, 0.1), 0, o)], TOY, photo, alpha=0.8)
        for o in (None, 0.5 * np.ones(len(vertices)))
    )
    expected = 40 + (solid.astype(float) - 40) / 2
    np.testing.assert_allclose(half, expected, atol=1)
    upper = render(
        [Mesh(vertices, faces, (0.9, 0.5, 0.1), 0, (vertices[:, 1] < 0).astype(float))],
        TOY,
        photo,
        alpha=0.8,
    )
    rows = np.abs(upper.astype(int) - photo).sum((1, 2))
    middle = TOY.size[1] // 2
    assert rows[: middle - 3].max() > 0
    assert rows[middle + 8 :].max() == 0  # below the middle nothing is drawn
    with pytest.raises(UserError, match="opacity"):
        render([Mesh(vertices, faces, None, 0, np.ones(3))], TOY)
