import numpy as np
import torch

from pose2d.types import Keypoints


def test_rows_of_keypoints_are_rows_of_every_array():
    keypoints = Keypoints(
        torch.rand(6, 17, 2), torch.rand(6, 17), torch.rand(6, 17), "raw", torch.arange(6.0)
    )
    for index in (slice(1, 4), torch.tensor([5, 0]), torch.tensor([True, False] * 3)):
        part = keypoints.rows(index)
        assert part.area_px2 is not None
        assert torch.equal(part.area_px2, torch.arange(6.0)[index])
        for name in ("xy_px", "confidence", "presence"):
            assert torch.equal(getattr(part, name), getattr(keypoints, name)[index])
        assert (part.source, part.skeleton) == ("raw", keypoints.skeleton)


def test_rows_without_an_area_have_none():
    assert (
        Keypoints(torch.rand(6, 17, 2), torch.rand(6, 17), torch.rand(6, 17), "raw")
        .rows(slice(2))
        .area_px2
        is None
    )


def test_keypoints_take_arrays() -> None:
    xy = np.ones((2, 17, 2))
    score = np.full((2, 17), 0.5)
    found = Keypoints(
        xy_px=xy, confidence=score, presence=score > 0, source="raw", area_px2=np.ones(2)
    )  # type: ignore[arg-type]
    for value in (found.xy_px, found.confidence, found.presence, found.area_px2):
        assert isinstance(value, torch.Tensor)
        assert value.dtype == torch.float32
