"""The shape from outlines: bodies of known shape, and their own silhouettes."""

from dataclasses import replace
from functools import cache

import cv2
import numpy as np
import pytest
import torch
from scipy.spatial.transform import Rotation

import fitting
from fitting.body import BodyParams
from fitting.camera import Camera
from fitting.camera.focal import focal_from_user
from fitting.fits import FitInput, FitOptions, with_default_errors
from fitting.outlines import shape_from_outlines
from fitting.render.raster import rasterize
from fitting.shot import SceneOptions, ShotPerson, fit_shot
from fitting.solver.terms import silhouette
from pose2d.skeletons import HALPE26
from pose2d.types import OUTLINE_POINTS as POINTS
from pose2d.types import Keypoints, Outlines

CAMERA = Camera.from_focal(1000.0, (900, 900))
FRAMES = 6
SHAPE = torch.tensor([0.3, 1.0, -0.8, 1.6, 0.5, -0.5, 0.0, 0.0, 0.0, 0.0])  # a heavy person


@cache
def body() -> fitting.Body:
    return fitting.load_body()


def turning(shape: torch.Tensor = SHAPE) -> BodyParams:
    """Arms away from the trunk, turned once around."""
    pose = torch.zeros(FRAMES, 24, 3)
    for number in range(FRAMES):
        turn = Rotation.from_euler("x", np.pi) * Rotation.from_euler(
            "y", 2 * np.pi * number / FRAMES
        )
        pose[number, 0] = torch.from_numpy(turn.as_rotvec()).float()
    pose[:, 16, 2] = -1.0
    pose[:, 17, 2] = 1.0
    return BodyParams(pose, shape, torch.tensor([0.0, 0.1, 3.2]).repeat(FRAMES, 1))


def seen(params: BodyParams) -> Keypoints:
    points = CAMERA.project(body().at(params).keypoints)
    sure = torch.full(points.shape[:2], 0.95)
    area = torch.full((len(points),), 60000.0)
    return Keypoints(points, sure, torch.ones_like(sure), "ccnet", skeleton=HALPE26, area_px2=area)


def outlines(params: BodyParams, outside_m: float = 0.0) -> Outlines:
    """Of the mesh, moved outwards by so many metres."""
    mesh = body().at(params, vertices=True).vertices
    assert mesh is not None
    lines = []
    normals = []
    for vertices in mesh:
        mask = (rasterize(vertices.numpy(), body().faces.numpy(), CAMERA).face >= 0).astype(
            np.uint8
        )
        soft = cv2.GaussianBlur(mask.astype(np.float32), (0, 0), 2)
        contours, _ = cv2.findContours(mask, cv2.RETR_CCOMP, cv2.CHAIN_APPROX_NONE)
        points = np.concatenate([line[:, 0] for line in contours if len(line) > 8])
        x, y = points[np.linspace(0, len(points), POINTS, endpoint=False).astype(int)].T
        rise = np.stack(
            [cv2.Sobel(soft, cv2.CV_32F, *axis, scale=1 / 8)[y, x] for axis in ((1, 0), (0, 1))], 1
        )
        steep = np.linalg.norm(rise, axis=1, keepdims=True)
        move = (0.5 - soft[y, x])[:, None] * rise / steep**2
        normal = -rise / steep
        away_px = outside_m * CAMERA.mean_focal_px / 3.2
        lines.append(np.stack([x, y], 1) + move.clip(-1, 1) + away_px * normal)
        normals.append(normal)
    return Outlines(np.arange(FRAMES), np.float32(lines), np.float32(normals))


def shape_of(found: Outlines) -> tuple[torch.Tensor, torch.Tensor]:
    """The shape, and the precision that the outlines add; the start has the right pose and the mean
    shape.
    """
    start = replace(turning(), shape=torch.zeros(10))
    given = FitInput(seen(turning()), with_default_errors(start), start=start)
    xy_px = torch.from_numpy(found.xy_px)
    normal = torch.from_numpy(found.normal)
    said = shape_from_outlines(given, xy_px, normal, CAMERA, body(), FitOptions())
    assert said is not None
    return said[1], said[0].precision


def girths(shape: torch.Tensor) -> np.ndarray:
    """Relative to the height: one camera does not know how far away somebody is."""
    return body().girths_m(shape)[0] / body().height_m(shape)


def test_a_bodys_own_silhouettes_give_its_girths(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(silhouette, "CLOTHES_M", (0.0, 0.0, 0.0))
    for name in ("CLOTHES_UNSURE_M", "BODY_OUTSIDE_M", "CLOTHES_STD_M"):
        monkeypatch.setattr(silhouette, name, 0.002)
    monkeypatch.setattr(silhouette, "OUTLINE_INDEPENDENT", 192.0)
    shape, precision = shape_of(outlines(turning()))
    np.testing.assert_allclose(girths(shape), girths(SHAPE), rtol=0.02)
    assert np.abs(girths(torch.zeros(10)) / girths(SHAPE) - 1).max() > 0.1
    assert torch.linalg.eigvalsh(precision).min() >= 0


def test_clothes_lie_outside_an_outline_within_the_body_counts_more() -> None:
    at, loose, inside = (
        body().volume_m3(shape_of(outlines(turning(), m))[0]) for m in (0.008, 0.028, -0.012)
    )
    assert loose > at > inside
    assert at - inside > 1.3 * (loose - at)


def test_clothes_of_unknown_thickness_leave_girths_less_certain(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = outlines(turning(), 0.01)
    stated = []
    for unsure_m in (1e-6, 0.012):
        monkeypatch.setattr(silhouette, "CLOTHES_UNSURE_M", unsure_m)
        _, precision = shape_of(found)
        stated.append(body().girths_m(SHAPE, torch.linalg.inv(precision + torch.eye(10)))[1])
    assert (stated[1] > stated[0]).all()
    # A garment that is thicker by 12 mm all around makes a girth larger by 2 pi 12 mm; keypoints
    # say the rest.
    assert (stated[1] > 0.02).all()
    assert (stated[1] < 0.1).all()


def test_what_belongs_to_no_rim_says_nothing() -> None:
    start = turning()
    given = FitInput(seen(start), with_default_errors(start), start=start)
    nowhere = torch.full((FRAMES, POINTS, 2), torch.nan)
    assert shape_from_outlines(given, nowhere, nowhere * 0, CAMERA, body(), FitOptions()) is None


def shot(person: ShotPerson) -> fitting.Fit:
    focal = focal_from_user(CAMERA.mean_focal_px, CAMERA.size)
    found = fit_shot([person], CAMERA, focal, body(), fps=3.0, options=SceneOptions(ground=False))
    return found.people[1].fit


def test_without_masks_everything_is_as_from_keypoints_alone() -> None:
    person = ShotPerson(1, seen(turning()), np.arange(FRAMES), turning(torch.zeros(10)))
    plain = shot(person)
    none = shot(replace(person, outlines=Outlines.empty()))
    assert torch.equal(plain.params.pose, none.params.pose)
    assert torch.equal(plain.params.shape, none.params.shape)
    assert torch.equal(plain.shape_covariance, none.shape_covariance)


def test_masks_bring_girths_closer_and_state_smaller_deviations() -> None:
    person = ShotPerson(1, seen(turning()), np.arange(FRAMES), turning(torch.zeros(10)))
    plain = shot(person)
    masked = shot(replace(person, outlines=outlines(turning(), 0.008)))
    off = [np.abs(girths(fit.params.shape) / girths(SHAPE) - 1).mean() for fit in (plain, masked)]
    stated = [body().girths_m(fit.params.shape, fit.shape_covariance)[1] for fit in (plain, masked)]
    assert off[1] < 0.7 * off[0]
    assert (stated[1] < stated[0]).all()


def test_a_known_weight_is_kept() -> None:
    kg = 1010 * body().volume_m3(SHAPE)
    height = body().height_m(SHAPE)
    person = ShotPerson(
        1, seen(turning()), np.arange(FRAMES), turning(torch.zeros(10)), height_m=height
    )
    plain = shot(person)
    weighed = shot(replace(person, weight_kg=kg))
    off = [
        1010 * body().volume_m3(fit.params.shape) * float(fit.params.size) ** 3 / kg - 1
        for fit in (plain, weighed)
    ]
    assert abs(off[1]) < 0.06
    assert abs(off[1]) < abs(off[0]) / 2
