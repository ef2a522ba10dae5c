"""The patch hides what it should and nothing else; the curve shows whether confidence falls with OKS."""

import numpy as np

from ccnet.occlusion import blur_patch, occlusion_curves


def test_only_the_patch_is_blurred() -> None:
    image = np.random.default_rng(0).integers(0, 256, (80, 100, 3), dtype=np.uint8)
    before = image.copy()
    hidden = blur_patch(image, (60, 30), 20)
    np.testing.assert_array_equal(image, before)
    changed = (hidden != image).any(-1)
    rows, columns = np.nonzero(changed)
    assert (rows.min(), rows.max(), columns.min(), columns.max()) == (20, 39, 50, 69)
    assert hidden[20:40, 50:70].std() < 0.15 * image[20:40, 50:70].std()


def test_a_patch_may_hang_over_the_edge_or_miss_the_image() -> None:
    image = np.random.default_rng(0).integers(0, 256, (40, 40, 3), dtype=np.uint8)
    corner = blur_patch(image, (0, 0), 20)
    assert (corner != image).any(-1)[:10, :10].mean() > 0.9
    np.testing.assert_array_equal(corner[10:], image[10:])
    np.testing.assert_array_equal(blur_patch(image, (200, 200), 20), image)


def _spot_finder(crops: np.ndarray) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Reads the brightest spot as its one keypoint; its confidence is how bright the spot is."""
    grey = crops[..., 0].astype(float)
    peak = grey.reshape(len(crops), -1).argmax(1)
    xy = np.column_stack([peak % crops.shape[2], peak // crops.shape[2]]).astype(float)
    return xy[:, None], {"raw": grey.reshape(len(crops), -1).max(1)[:, None] / 255}


def test_confidence_and_oks_fall_as_the_patch_grows() -> None:
    rng = np.random.default_rng(1)
    crops, truth = [], rng.integers(30, 70, (6, 2)).astype(float)
    for x, y in truth.astype(int):
        crop = np.full((100, 100, 3), 40, np.uint8)
        crop[5, 5] = 90  # a distraction
        crop[y - 2 : y + 3, x - 2 : x + 3] = 200
        crop[y, x] = 255
        crops.append(crop)
    curves = occlusion_curves(
        crops, truth, np.full(6, 25.0), np.full(6, 50.0), keypoint=0, predict=_spot_finder, sizes=(0.0, 0.1, 0.5, 1.0)
    )
    confidence = curves.confidence["raw"]
    assert curves.people == 6
    assert curves.oks[0] == 1
    assert confidence[0] == 1
    assert curves.oks[-1] < 0.01
    assert (np.diff(confidence) <= 0).all()
    assert confidence[-1] < 0.5
