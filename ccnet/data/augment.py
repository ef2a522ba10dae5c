"""Augmented training crops: jittered boxes, degraded images, occluded parts.

A calibration head learns from the mistakes of the network, and on clean crops the network makes
too few of them."""

from dataclasses import dataclass

import cv2
import numpy as np


@dataclass(frozen=True)
class Augment:
    """Probabilities and strengths. Adding one augmented pass closed 33 to 35 % of the AP gap where
    plain crops alone closed 31 to 33 % (docs/train-ccnet.md); the single strengths are not
    tuned."""

    scale_log: float = 0.12  # standard deviation of the logarithm of the box's size
    shift: float = 0.04  # standard deviation of the box's centre, in box sides
    # Probability of showing the image around the box, where the network's crops are grey.
    surroundings: float = 0.15
    flip: float = 0.5  # probability of a mirror image
    grey: float = 0.3  # probability of an image without colour
    coarse: float = 0.4  # probability of a loss of resolution
    coarse_factor: tuple[float, float] = (1.2, 4.0)  # by this much
    hidden: float = 0.4  # probability of one or two occluders (`occlude`)
    light: float = 0.3  # probability of another brightness and contrast


def jitter_box(box_px: np.ndarray, augment: Augment, random: np.random.Generator) -> np.ndarray:
    """Return the box x1, y1, x2, y2 with random errors, as a detector makes them."""
    size = box_px[2:] - box_px[:2]
    centre = (box_px[:2] + box_px[2:]) / 2 + random.normal(0, augment.shift, 2) * size.max()
    size = size * np.exp(random.normal(0, augment.scale_log))
    return np.concatenate([centre - size / 2, centre + size / 2])


def degrade(
    crop: np.ndarray,  # [H, W, 3] uint8, RGB
    box_px: np.ndarray,  # x1, y1, x2, y2 of what the crop shows; all else is grey and stays so
    person_px: np.ndarray,  # [M, 2] points of the person
    augment: Augment,
    random: np.random.Generator,
) -> np.ndarray:
    """Return the crop with less colour or resolution, parts occluded, or in other light."""
    height, width = crop.shape[:2]
    if random.random() < augment.grey:
        crop = np.repeat(cv2.cvtColor(crop, cv2.COLOR_RGB2GRAY)[:, :, None], 3, 2)
    if random.random() < augment.coarse:
        factor = random.uniform(*augment.coarse_factor)
        small_wh = (int(width / factor), int(height / factor))
        small = cv2.resize(crop, small_wh, interpolation=cv2.INTER_AREA)
        crop = cv2.resize(small, (width, height), interpolation=cv2.INTER_LINEAR)
    if random.random() < augment.hidden:
        corners = np.clip(np.round(box_px), 0, [width, height, width, height])
        left, top, right, bottom = corners.astype(int)
        crop = crop.copy()
        visible_part = (slice(top, bottom), slice(left, right))
        for _ in range(random.integers(1, 3) if right > left and bottom > top else 0):
            crop[visible_part] = occlude(crop[visible_part], person_px - (left, top), random)
    if random.random() < augment.light:
        lit = crop * random.uniform(0.6, 1.4) + random.uniform(-25, 25)
        crop = np.clip(lit, 0, 255).astype(np.uint8)
    return crop


# Occluders: boxes and ellipses before a limb, a desk that covers everything beyond its edge, a post
# across the image; each a shaded colour, another part of the crop, or the crop blurred. Sizes and
# odds are not tuned.
SHAPES = {"box": 0.4, "ellipse": 0.25, "desk": 0.2, "post": 0.15}  # with their odds
TEXTURES = {"surface": 0.4, "other part": 0.3, "blur": 0.3}  # with their odds
SMALL = (0.06, 0.4)  # side of a box or ellipse, in crop sides
DESK_DEPTH = (0.0, 0.3)  # how far a desk's edge lies from the crop's middle, in crop sides
POST_WIDTH = (0.04, 0.2)  # in crop sides
BLUR = (0.25, 0.6)  # sigma over the side of what is blurred
GRAIN = 12.0  # largest standard deviation of a surface's noise, of 255


def occlude(crop: np.ndarray, near_px: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Return a crop [H, W, 3] uint8 with one occluder at one of the points `near_px` [M, 2], or at
    a random place.
    """
    height, width = crop.shape[:2]
    centre = random.uniform((0, 0), (width, height))
    if len(near_px) and random.random() < 0.7:
        centre = near_px[random.integers(len(near_px))] + random.normal(0, 0.03, 2) * (
            width,
            height,
        )
    mask = occluded(
        random.choice(list(SHAPES), p=list(SHAPES.values())), (height, width), centre, random
    )
    if not mask.any():
        return crop
    rows = np.flatnonzero(mask.any(1))
    columns = np.flatnonzero(mask.any(0))
    size_px = float(np.sqrt((rows[-1] - rows[0] + 1) * (columns[-1] - columns[0] + 1)))
    kind = random.choice(list(TEXTURES), p=list(TEXTURES.values()))
    return np.where(mask[..., None], texture(kind, crop, size_px, random), crop)


def occluded(
    shape: str, size: tuple[int, int], centre: np.ndarray, random: np.random.Generator
) -> np.ndarray:
    """Return the mask [H, W] of an occluder in a crop of this size (height, width)."""
    if shape in ("box", "ellipse"):
        sides = random.uniform(*SMALL, 2) * max(size)
        if shape == "ellipse":
            blob = (centre.tolist(), sides.tolist(), random.uniform(0, 180))
            return cv2.ellipse(np.zeros(size, np.uint8), blob, 1, -1) > 0
        turn = 0.0 if random.random() < 0.5 else random.uniform(0, 90)
        corners = cv2.boxPoints((centre.tolist(), sides.tolist(), turn))
        return cv2.fillConvexPoly(np.zeros(size, np.uint8), corners.round().astype(np.int32), 1) > 0
    if shape == "desk":  # everything beyond a line: mostly below it, sometimes beside it
        side = random.choice([0.0, np.pi / 2, -np.pi / 2], p=[0.7, 0.15, 0.15])
        turn = side + random.normal(0, 0.1)
        away = _along(size, turn, np.array(size)[::-1] / 2)
        return away > random.uniform(*DESK_DEPTH) * max(size)
    turn = random.choice([0.0, np.pi / 2]) + random.normal(0, 0.15)
    return np.abs(_along(size, turn, centre)) < random.uniform(*POST_WIDTH) * max(size) / 2


def _along(size: tuple[int, int], turn: float, origin: np.ndarray) -> np.ndarray:
    """Return the distance [H, W] in pixels from `origin`, downwards for turn 0."""
    rows, columns = np.ogrid[: size[0], : size[1]]
    return (rows - origin[1]) * np.cos(turn) + (columns - origin[0]) * np.sin(turn)


def texture(kind: str, crop: np.ndarray, size_px: float, random: np.random.Generator) -> np.ndarray:
    """Return an image of the crop's size that fills an occluder of `size_px`."""
    height, width = crop.shape[:2]
    if kind == "surface":  # one colour, lighter on one side than on the other, with some grain
        colour = random.uniform(0, 255, 3)
        if random.random() < 0.5:  # things in one image often share colours
            colour = crop[random.integers(height), random.integers(width)].astype(float)
        middle = np.array([width, height]) / 2
        light = _along((height, width), random.uniform(0, 2 * np.pi), middle) / max(height, width)
        grain = random.normal(0, random.uniform(0, GRAIN), (height, width))
        shade = 1 + random.uniform(0, 0.6) * light
        return np.clip(colour * shade[..., None] + grain[..., None], 0, 255).astype(np.uint8)
    if kind == "other part":  # moved, turned upside down or mirrored
        moved = np.roll(crop, (random.integers(height), random.integers(width)), (0, 1))
        return moved[:: random.choice([-1, 1]), :: random.choice([-1, 1])]
    sigma = random.uniform(*BLUR) * size_px
    small = max(1, int(sigma / 4))  # a wide blur needs no fine image
    little = cv2.resize(crop, None, fx=1 / small, fy=1 / small, interpolation=cv2.INTER_AREA)
    little = cv2.GaussianBlur(little, (0, 0), sigma / small, borderType=cv2.BORDER_REPLICATE)
    return cv2.resize(little, (width, height), interpolation=cv2.INTER_LINEAR)
