"""Occluders in training crops."""

import numpy as np
import pytest

from ccnet.data.augment import SHAPES, TEXTURES, Augment, degrade, occlude, occluded, texture

NOTHING_ELSE = Augment(grey=0, coarse=0, light=0, hidden=1)


def crop_of(random: np.random.Generator) -> np.ndarray:
    return random.integers(0, 256, (96, 64, 3), np.uint8)


def test_an_occluder_mostly_covers_the_person():
    """Over many draws the person's own point is hidden far more often than a corner of the crop."""
    random = np.random.default_rng(0)
    crop = crop_of(random)
    point = np.array([[32.0, 30.0]])
    changed = np.mean([(occlude(crop, point, random) != crop).any(-1) for _ in range(300)], 0)
    assert changed[30, 32] > 0.5
    assert changed[2, 2] < changed[30, 32] / 2


@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_hides_something_and_leaves_something(shape):
    random = np.random.default_rng(1)
    shares = [occluded(shape, (96, 64), np.array([32.0, 48.0]), random).mean() for _ in range(50)]
    assert min(shares) > 0
    assert max(shares) < 0.8


@pytest.mark.parametrize("kind", TEXTURES)
def test_behind_every_texture_the_crop_cannot_be_recognised(kind):
    random = np.random.default_rng(2)
    crop = crop_of(random)
    for _ in range(10):
        covered = texture(kind, crop, 40.0, random)
        assert covered.shape == crop.shape
        assert covered.dtype == np.uint8
        assert abs(np.corrcoef(covered.ravel(), crop.ravel())[0, 1]) < 0.2


def test_grey_around_the_box_stays_grey():
    random = np.random.default_rng(3)
    crop = np.full((96, 64, 3), 127, np.uint8)
    crop[:, 20:40] = crop_of(random)[:, 20:40]
    for _ in range(100):
        degraded = degrade(
            crop, np.array([20.0, 0, 40, 96]), np.array([[30.0, 40.0]]), NOTHING_ELSE, random
        )
        assert (degraded[:, :20] == 127).all()
        assert (degraded[:, 40:] == 127).all()


def test_a_box_that_misses_the_crop_hides_nothing():
    random = np.random.default_rng(4)
    crop = crop_of(random)
    degraded = degrade(crop, np.array([70.0, 0, 90, 96]), np.zeros((0, 2)), NOTHING_ELSE, random)
    np.testing.assert_array_equal(degraded, crop)
