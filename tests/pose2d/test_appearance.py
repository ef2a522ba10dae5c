"""Colours at keypoints: the same person is recognised, other clothes are told apart, what is not
seen says nothing.
"""

import cv2
import numpy as np

from bench.identity import pose_of
from pose2d.skeletons import COCO17
from pose2d.tracking.appearance import PARTS, blend, describe, log_likelihood_ratio, no_appearance
from pose2d.types import Appearance

Clothes = dict[str, tuple[int, int, int]]
RED: Clothes = {"top": (180, 40, 40), "trousers": (40, 40, 60), "hair": (90, 60, 40)}
GREEN: Clothes = {"top": (60, 150, 80), "trousers": (170, 160, 140), "hair": (30, 30, 30)}


def image_of(
    clothes: Clothes, x: float = 160, phase: float = 0.0, light: float = 1.0
) -> tuple[np.ndarray, np.ndarray]:
    """A figure of thick lines on a grey wall, and its keypoints [1, 17, 2]."""
    random = np.random.default_rng(int(x))
    image = np.clip(random.normal(140, 8, (240, 320, 3)), 0, 255).astype(np.uint8)
    xy = pose_of(np.array([x, 120.0]), 200, phase, 1.0)
    colour_of = {5: "top", 6: "top", 7: "top", 8: "top", 9: "top", 10: "top"}
    for a, b in COCO17.edges:
        colour = clothes[
            "hair" if max(a, b) <= 4 else colour_of.get(b, colour_of.get(a, "trousers"))
        ]
        cv2.line(image, xy[a].astype(int).tolist(), xy[b].astype(int).tolist(), colour, 16)
    cv2.fillConvexPoly(image, xy[[5, 6, 12, 11]].astype(int), clothes["top"])
    cv2.circle(image, xy[0].astype(int).tolist(), 16, clothes["hair"], -1)
    return (image * light).clip(0, 255).astype(np.uint8), xy[None]


def look_of(clothes: Clothes, x: float = 160, phase: float = 0.0, light: float = 1.0) -> Appearance:
    image, xy = image_of(clothes, x, phase, light)
    return describe(image, xy, np.full((1, 17), 0.8))


def test_one_person_elsewhere_in_another_step_and_light_is_likelier_the_same() -> None:
    ratio = log_likelihood_ratio(look_of(RED), look_of(RED, x=90, phase=1.5, light=0.9))[0, 0]
    assert ratio > 1


def test_other_clothes_are_somebody_else() -> None:
    assert log_likelihood_ratio(look_of(RED), look_of(GREEN))[0, 0] < -3


def test_the_ratio_is_symmetric_and_falls_with_confidence() -> None:
    red = look_of(RED)
    green = look_of(GREEN)
    ratio = log_likelihood_ratio(red, green)[0, 0]
    assert np.isclose(ratio, log_likelihood_ratio(green, red)[0, 0])
    faint = Appearance(green.colours, 0.5 * red.weight)
    assert np.isclose(log_likelihood_ratio(red, faint)[0, 0], 0.5 * ratio)


def test_what_is_not_seen_says_nothing() -> None:
    image, xy = image_of(RED)
    nothing = describe(image, np.full_like(xy, np.nan), np.full((1, 17), 0.8))
    outside = describe(image, xy + 1000, np.full((1, 17), 0.8))
    for look in (no_appearance(1), nothing, outside):
        assert log_likelihood_ratio(look_of(RED), look)[0, 0] == 0
    assert len(describe(image, np.zeros((0, 17, 2)), np.zeros((0, 17)))) == 0


def test_a_running_mean_moves_towards_what_is_seen_and_keeps_what_is_not() -> None:
    red = look_of(RED)
    green = look_of(GREEN)
    mean = red
    for _ in range(60):
        mean = blend(mean, green)
    assert np.allclose(mean.colours, green.colours, atol=1)
    assert np.allclose(blend(red, no_appearance(1)).colours, red.colours)
    assert np.allclose(blend(no_appearance(1), green).colours, green.colours)


def test_one_row_a_person_and_45_numbers() -> None:
    image, xy = image_of(RED)
    looks = describe(image, np.repeat(xy, 3, 0), np.full((3, 17), 0.8))
    assert looks.colours.shape == (3, len(PARTS), 9)
    assert np.isfinite(looks.colours).all()
