"""Boxes become crops and come back: the published conventions, exact pixels, odd images."""

import numpy as np
import pytest
import torch

from pose2d import UserError, crops

BOXES = np.array([[10.0, 20.0, 110.0, 240.0], [-30.0, 5.0, 60.0, 45.0], [0.0, 0.0, 300.0, 200.0]])


def _reference_boxes(conventions):
    boxes = conventions["boxes"].astype(float)
    boxes[:, 2:] += boxes[:, :2]
    return boxes


def test_sbl_affines_equal_the_original(conventions):
    boxes = _reference_boxes(conventions)
    ours = crops.affines(boxes, (192, 256), 1.25, "sbl")
    np.testing.assert_allclose(ours, conventions["sbl_affine"], rtol=0, atol=2e-6)


def test_udp_affines_equal_the_original(conventions):
    ours = crops.affines(_reference_boxes(conventions), (192, 256), 1.25, "udp")
    np.testing.assert_allclose(ours, conventions["udp_warp"], rtol=0, atol=5e-6)


def test_regions_equal_the_original(conventions):
    centre, size = crops.regions(_reference_boxes(conventions), (192, 256), 1.25)
    np.testing.assert_allclose(centre, conventions["center"], atol=1e-5)
    np.testing.assert_allclose(size, conventions["scale"] * 200, rtol=1e-6)


@pytest.mark.parametrize("convention", ["sbl", "udp", "square"])
@pytest.mark.parametrize("turn", [0.0, -0.6])
def test_there_and_back_is_where_it_was(convention, turn):
    rotation = np.array([[np.cos(turn), np.sin(turn)], [-np.sin(turn), np.cos(turn)]])
    affine = rotation @ crops.affines(BOXES, (256, 256), 1.1, convention)
    xy = torch.rand(3, 17, 2, dtype=torch.float64) * 300
    again = crops.move(crops.invert(affine), crops.move(affine, xy))
    torch.testing.assert_close(again, xy, rtol=0, atol=1e-9)


def _ramp(height, width):
    """Red is x, green is y: a bilinear crop of it can be predicted exactly."""
    y, x = np.mgrid[:height, :width]
    return np.stack([x, y, np.full_like(x, 200)], -1).astype(np.uint8)


@pytest.mark.parametrize("convention", ["sbl", "udp", "square"])
@pytest.mark.parametrize("antialias", [False, True])
@pytest.mark.parametrize("side", [16, 64, 256])
def test_a_crop_shows_what_its_affine_says(convention, antialias, side):
    image = _ramp(240, 250)
    boxes = np.array([[60.0, 50.0, 180.0, 190.0]])
    affine = crops.affines(boxes, (side, side), 1.0, convention)
    pixels = crops.cut(image, affine, (side, side), antialias)
    assert pixels.shape == (1, 3, side, side)
    assert pixels.dtype == torch.uint8
    grid = torch.from_numpy(np.mgrid[:side, :side][::-1].reshape(2, -1).T.copy()).double()
    expected = crops.move(crops.invert(affine), grid[None]).reshape(side, side, 2)
    error = (pixels[0, :2].permute(1, 2, 0).double() - expected)[1:-1, 1:-1]
    assert error.abs().max() < 0.8  # rounding to whole colours, twice when a crop is first shrunk
    assert error.mean().abs() < 0.22  # half a pixel of shift, in image or crop, would show


def test_antialiasing_averages_where_plain_sampling_shows_stripes():
    image = np.zeros((512, 512, 3), np.uint8)
    image[:, ::2] = 255  # stripes finer than the crop can show
    affine = crops.affines(np.array([[0.0, 0.0, 512.0, 512.0]]), (100, 100), 1.0, "square")
    plain = crops.cut(image, affine, (100, 100), antialias=False)[0, :, 5:-5, 5:-5].float()
    smooth = crops.cut(image, affine, (100, 100), antialias=True)[0, :, 5:-5, 5:-5].float()
    assert plain.std() > 40
    assert smooth.std() < 8
    assert abs(smooth.mean() - 127.5) < 2


@pytest.mark.parametrize(
    "shape", [(32, 32), (20, 3000), (3000, 20), (4320, 7680), (1, 1), (40000, 8)]
)
def test_any_image_can_be_cropped(shape):
    image = np.full((*shape, 3), 90, np.uint8)
    box = np.array([[0.0, 0.0, shape[1], shape[0]]])
    affine = crops.affines(box, (256, 192), 1.0, "sbl")
    pixels = crops.cut(image, affine, (256, 192))
    assert pixels.max() <= 90
    assert pixels[0, 0].float().mean() > 0.2


def test_outside_the_image_is_black():
    image = np.full((100, 100, 3), 255, np.uint8)
    boxes = np.array([[500.0, 500.0, 600.0, 600.0], [-50.0, -50.0, 50.0, 50.0]])
    away, corner = crops.cut(image, crops.affines(boxes, (64, 64), 1.0, "square"), (64, 64))
    assert away.max() == 0
    assert corner[:, :30, :30].max() == 0
    assert corner[:, 34:, 34:].min() == 255


def test_no_boxes_give_no_crops():
    affine = crops.affines(np.zeros((0, 4)), (64, 48), 1.0, "sbl")
    assert crops.cut(np.zeros((9, 9, 3), np.uint8), affine, (64, 48)).shape == (0, 3, 48, 64)


@pytest.mark.parametrize("box", [[5, 5, 5, 5], [9, 0, 3, 8], [0, 0, np.nan, 4], [0, 0, np.inf, 4]])
def test_a_box_that_is_none_is_refused(box):
    with pytest.raises(UserError, match="x1, y1, x2, y2"):
        crops.affines(np.array([box], float), (64, 64), 1.0, "square")


@pytest.mark.parametrize(
    "image", [np.zeros((9, 9)), np.zeros((9, 9, 4), np.uint8), np.zeros((9, 9, 3))]
)
def test_what_is_no_rgb_image_is_refused(image):
    with pytest.raises(UserError, match="RGB uint8"):
        crops.cut(image, crops.affines(BOXES, (64, 64), 1.0, "square"), (64, 64))


def test_a_square_crop_shows_its_grown_box_and_nothing_else():
    image = np.full((400, 400, 3), 255, np.uint8)
    box = np.array([[150.0, 100.0, 200.0, 300.0]])  # 50 x 200, grown to 60 x 240
    pixels, affine = crops.crop_boxes(image, box, (120, 120), 1.2, "square")
    np.testing.assert_array_equal(affine, crops.affines(box, (120, 120), 1.2, "square"))
    assert pixels.is_contiguous(memory_format=torch.channels_last)
    assert (pixels[0, :, :, 46:75] == 255).all()
    assert (pixels[0, :, :, :45] == crops.GREY).all()
    assert (pixels[0, :, :, 76:] == crops.GREY).all()


def test_a_square_crop_is_grey_beyond_the_image():
    image = np.full((100, 100, 3), 255, np.uint8)
    pixels, _ = crops.crop_boxes(
        image, np.array([[-50.0, -50.0, 50.0, 50.0]]), (64, 64), 1.0, "square"
    )
    assert (pixels[0, :, :30, :30] == crops.GREY).all()
    assert (pixels[0, :, 34:63, 34:63] == 255).all()


@pytest.mark.parametrize("convention", ["sbl", "udp"])
def test_other_crops_show_the_neighbours_too(convention):
    image = np.full((400, 400, 3), 255, np.uint8)
    pixels, _ = crops.crop_boxes(
        image, np.array([[150.0, 100.0, 200.0, 300.0]]), (64, 64), 1.2, convention
    )
    assert (pixels == 255).all()
