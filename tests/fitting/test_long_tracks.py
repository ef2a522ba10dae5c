"""Blocks, in which long tracks are worked through for the sake of memory, give what the whole
gives.
"""

import sys
from dataclasses import fields

import numpy as np
import pytest
import torch

from fitting.body.load import load_body
from fitting.camera import Camera
from fitting.init.lifter import lift
from fitting.keypoints.observed import observed_joints
from fitting.keypoints.usable import check_body_keypoints, find_usable_frames
from pose2d.base import table
from pose2d.types import Keypoints
from tests.walkers import walker

FRAMES = 130
SIZE = (640, 480)


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch):
    def shrink() -> None:
        monkeypatch.setattr(table, "BLOCK", 40)
        for module in ("fitting.body.body", "fitting.init.lifter", "fitting.keypoints.observed"):
            monkeypatch.setattr(sys.modules[module], "BLOCK", 40)

    return shrink


def test_blocks_cover_all_rows_once() -> None:
    assert table.blocks(0) == [slice(0, 0)]
    rows = np.arange(2 * table.BLOCK + 3)
    np.testing.assert_array_equal(
        np.concatenate([rows[some] for some in table.blocks(len(rows))]), rows
    )


def test_blocks_of_a_track_give_what_the_whole_gives(small_blocks) -> None:
    xy = walker(FRAMES, SIZE).keypoints_px
    score = np.full(xy.shape[:2], 0.9)
    given = Keypoints(xy_px=xy, confidence=score, presence=score, source="ccnet")  # type: ignore[arg-type]
    keypoints = check_body_keypoints(given)
    body = load_body()
    camera = Camera.default(SIZE)

    def everything():
        lifted = lift(keypoints, camera, body, fps=30.0)
        placed = body.at(lifted.params)
        usable = find_usable_frames(keypoints, [camera], "likelihood")
        return lifted, placed, usable, torch.from_numpy(observed_joints(keypoints, SIZE))

    whole = everything()
    small_blocks()
    parts = everything()
    for name in (f.name for f in fields(whole[0].params)):
        torch.testing.assert_close(
            getattr(parts[0].params, name), getattr(whole[0].params, name), atol=1e-4, rtol=1e-4
        )
    torch.testing.assert_close(parts[1].keypoints, whole[1].keypoints, atol=1e-4, rtol=1e-4)
    assert torch.equal(parts[2], whole[2])
    assert torch.equal(parts[3], whole[3])
