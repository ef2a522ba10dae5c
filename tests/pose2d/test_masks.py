"""Outlines: which frames they are made of, and that they lie where a mask ends."""

from fractions import Fraction

import cv2
import numpy as np
import pytest
import torch

from pose2d import masks
from pose2d.masks import CROP, MASKS, MaskFinder, choose_rows, trace_outline
from pose2d.skeletons import COCO17
from pose2d.types import OUTLINE_POINTS as POINTS
from pose2d.types import Detections, Keypoints, Outlines
from pose2d.video.frames import Frame

SIZE = (1000, 800)
# Somebody who stands, 300 px tall, around the hips' middle.
STANDS = np.array(
    [
        (0, -160),
        (5, -165),
        (-5, -165),
        (10, -160),
        (-10, -160),
        (35, -120),
        (-35, -120),
        (45, -60),
        (-45, -60),
        (50, -5),
        (-50, -5),
        (20, 0),
        (-20, 0),
        (22, 70),
        (-22, 70),
        (22, 140),
        (-22, 140),
    ],
    np.float64,
)


def people(
    xy_px: np.ndarray, identity: list[int], frame: list[int], sure: float = 0.9
) -> Detections:
    known = torch.full((len(xy_px), 17), sure)
    points = Keypoints(
        torch.from_numpy(xy_px).float(), known, torch.ones_like(known), "ccnet", skeleton=COCO17
    )
    box = np.concatenate([xy_px.min(1) - 15, xy_px.max(1) + 15], 1)
    return Detections(np.array(frame), np.array(identity), box, np.ones(len(xy_px)), points)


def one_person(frames: int) -> Detections:
    """Walks to the right and turns from the front to the side and back."""
    turned = np.cos(np.linspace(0, 2 * np.pi, frames))[:, None]
    xy = np.repeat(STANDS[None], frames, 0) * np.stack([turned, np.ones_like(turned)], -1)
    xy += np.stack([np.linspace(200, 800, frames), np.full(frames, 400.0)], 1)[:, None]
    return people(xy, [1] * frames, list(range(frames)))


def test_frames_are_spread_over_time_and_over_facings() -> None:
    chosen = choose_rows(one_person(200), SIZE)
    assert len(chosen) == MASKS
    assert np.diff(chosen).max() < 50
    facing = np.cos(np.linspace(0, 2 * np.pi, 200))[chosen]
    assert facing.max() > 0.8
    assert facing.min() < -0.8
    assert np.abs(facing).min() < 0.4


def test_frames_that_show_the_whole_person_go_before_those_that_do_not() -> None:
    rows = one_person(60)
    rows.keypoints.confidence[:40, 15] = 0.05  # an ankle
    assert (choose_rows(rows, SIZE) >= 40).sum() >= 8


def test_nobody_is_chosen_whose_trunk_is_not_seen_who_is_tiny_or_whom_others_cover() -> None:
    place = np.array([500.0, 400.0])
    assert not len(choose_rows(people(STANDS[None] + place, [1], [0], sure=0.2), SIZE))
    assert not len(choose_rows(people(STANDS[None] / 5 + place, [1], [0]), SIZE))
    pair = np.stack([STANDS + place, STANDS + place + [40, 0]])
    assert not len(choose_rows(people(pair, [1, 2], [0, 0]), SIZE))
    pair[1] += 300
    assert len(choose_rows(people(pair, [1, 2], [0, 0]), SIZE)) == 2
    assert not len(
        choose_rows(people(STANDS[None] + [500, 900], [1], [0]), SIZE)
    )  # below the image
    assert not len(choose_rows(Detections.empty(), SIZE))


def disc(radius_px: float, logits: float = 4.0) -> np.ndarray:
    """A disc in the middle of the network's square, soft at its edge."""
    y, x = np.mgrid[:CROP, :CROP] - (CROP - 1) / 2
    return (logits * np.clip(radius_px - np.hypot(x, y), -1, 1)).astype(np.float32)


def test_an_outline_lies_where_the_mask_ends_and_its_normals_point_outside(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(masks, "mask_logits", lambda rgb, region: disc(112.3))
    seen = np.array([[500.0, 300.0], [500.0, 400.0], [520.0, 420.0]])
    found = trace_outline(np.zeros((800, 1000, 3), np.uint8), seen, np.array([500.0, 400.0]), 7)
    assert found.row.tolist() == [7]
    away = found.xy_px[0] - [500, 400]
    radius = np.linalg.norm(away, axis=1)
    side = masks.REGION * 100  # of the square, in pixels of the image
    np.testing.assert_allclose(radius, 112.3 * side / CROP, atol=0.35)
    assert ((away / radius[:, None]) * found.normal[0]).sum(1).min() > 0.95


def test_a_mask_that_misses_the_person_or_is_empty_gives_no_outline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    image = np.zeros((800, 1000, 3), np.uint8)
    middle = np.array([500.0, 400.0])
    seen = STANDS + middle
    monkeypatch.setattr(masks, "mask_logits", lambda rgb, region: disc(10))
    assert not len(trace_outline(image, seen, middle, 0))
    monkeypatch.setattr(
        masks, "mask_logits", lambda rgb, region: np.full((CROP, CROP), -9, np.float32)
    )
    assert not len(trace_outline(image, seen, middle, 0))


def test_points_at_the_edge_of_the_image_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(masks, "mask_logits", lambda rgb, region: disc(112))
    seen = np.array([[500.0, 5.0], [500.0, 95.0]])
    found = trace_outline(np.zeros((800, 1000, 3), np.uint8), seen, np.array([500.0, 50.0]), 0)
    known = np.isfinite(found.xy_px[0]).all(1)
    assert 0.5 < known.mean() < 1
    assert found.xy_px[0][known][:, 1].min() > 8


def test_the_network_tells_a_person_from_the_background() -> None:
    """A figure drawn in skin and dark clothes on a plain ground: legs, trunk, arms and a head."""
    image = np.full((400, 400, 3), (150, 170, 150), np.uint8)
    at = (STANDS + np.array([200, 190])).astype(int)
    for a, b, width, color in (
        (11, 15, 26, (40, 50, 90)),
        (12, 16, 26, (40, 50, 90)),
        (5, 9, 18, (190, 60, 60)),
        (6, 10, 18, (190, 60, 60)),
    ):
        cv2.line(image, at[a].tolist(), at[b].tolist(), color, width)
    cv2.fillConvexPoly(
        image, at[[5, 6, 12, 11]] + [[8, 0], [-8, 0], [-8, 0], [8, 0]], (190, 60, 60)
    )
    cv2.ellipse(image, (200, 28), (18, 24), 0, 0, 360, (220, 180, 160), -1)
    logits = masks.mask_logits(image, np.array([200.0, 190.0, 420.0]))
    assert logits.shape == (CROP, CROP)
    assert logits[128, 128] > 0 > logits[128, 10]
    assert 0.05 < (logits > 0).mean() < 0.35


def test_masks_are_made_while_frames_go_by(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    def outline(rgb: np.ndarray, seen_px: np.ndarray, middle_px: np.ndarray, row: int) -> Outlines:
        seen.append(row)
        return Outlines(
            np.array([row]),
            np.zeros((1, POINTS, 2), np.float32),
            np.zeros((1, POINTS, 2), np.float32),
        )

    monkeypatch.setattr(masks, "trace_outline", outline)
    rows = one_person(50)
    finder = MaskFinder(rows, SIZE)
    wanted = choose_rows(rows, SIZE).tolist()
    frames = (Frame(n, Fraction(n, 30), np.zeros((8, 8, 3), np.uint8)) for n in range(50))
    assert [frame.index for frame in finder.watch(frames)] == list(range(50))
    assert seen == wanted == finder.outlines.row.tolist()
    assert not finder
