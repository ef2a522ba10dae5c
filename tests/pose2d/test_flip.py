import numpy as np
import torch

from pose2d import decode
from pose2d.skeletons import COCO17


def test_maps_come_back_as_in_the_original_code(conventions):
    back = decode.maps_back(torch.from_numpy(conventions["heatmaps"]), COCO17.flip_order)
    np.testing.assert_array_equal(back.numpy(), conventions["flip_back"])
    np.testing.assert_array_equal(decode.shift_right(back).numpy(), conventions["flip_shift"])


def test_points_come_back_as_in_the_original_code(conventions):
    back = decode.points_back(torch.from_numpy(conventions["rle_pj"]), COCO17.flip_order, -1 / 192)
    np.testing.assert_allclose(back.numpy(), conventions["rle_flip_pj"], atol=1e-7)
    np.testing.assert_array_equal(
        conventions["rle_ps"][:, COCO17.flip_order], conventions["rle_flip_ps"]
    )


def test_mirroring_twice_changes_nothing():
    maps = torch.rand(2, 17, 6, 4)
    xy = torch.rand(2, 17, 2)
    torch.testing.assert_close(
        decode.maps_back(decode.maps_back(maps, COCO17.flip_order), COCO17.flip_order), maps
    )
    once = decode.points_back(xy, COCO17.flip_order, 191)
    torch.testing.assert_close(
        decode.points_back(once, COCO17.flip_order, 191), xy, atol=1e-4, rtol=0
    )
