"""PCKh by hand."""

from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat

from ccnet.data.datasets import read_split
from ccnet.data.mpii import PCKH_AT, pckh, read_head_sizes, right_keypoints
from pose2d.base.errors import UserError
from pose2d.skeletons import MPII16
from tests.ccnet.toy import write_mpii


def _off_by(
    share_of_head: np.ndarray, head_px: float = 50.0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Predictions [N, 16, 2] that miss by these shares [N, 16] of the head size."""
    truth = np.random.default_rng(0).uniform(0, 500, (*share_of_head.shape, 2))
    direction = np.array([0.6, 0.8])
    return (
        truth + share_of_head[..., None] * head_px * direction,
        truth,
        np.full(len(share_of_head), head_px),
    )


def test_a_keypoint_is_right_up_to_the_threshold() -> None:
    share = np.full((4, 16), 0.2)
    share[:, 0] = [0.1, 0.49, 0.51, 2.0]
    xy, truth, head = _off_by(share)
    result = pckh(right_keypoints(xy, truth, np.ones((4, 16), bool), head))
    assert result["ankle"] == 75  # the right one 50, the left one 100
    assert all(
        result[part] == 100 for part in ("head", "shoulder", "elbow", "wrist", "hip", "knee")
    )
    assert result["mean"] == pytest.approx(100 * (14 * 4 - 2) / (14 * 4))


def test_pelvis_and_thorax_do_not_count_in_the_mean() -> None:
    share = np.zeros((3, 16))
    share[:, [MPII16.keypoints.index("pelvis"), MPII16.keypoints.index("thorax")]] = 9
    xy, truth, head = _off_by(share)
    right = right_keypoints(xy, truth, np.ones((3, 16), bool), head)
    assert pckh(right)["mean"] == 100
    assert (right[:, [6, 7]] == 0).all()


def test_keypoints_weigh_by_how_often_they_are_labelled() -> None:
    share = np.zeros((10, 16))
    share[:, 0] = 9
    labelled = np.ones((10, 16), bool)
    labelled[2:, 0] = False
    xy, truth, head = _off_by(share)
    result = pckh(right_keypoints(xy, truth, labelled, head))
    assert result["mean"] == pytest.approx(100 * 130 / 132)
    labelled[:, 3] = False
    assert np.isnan(pckh(right_keypoints(xy, truth, labelled, head))["hip"])


def test_the_published_mean_at_a_tenth_is_taken_at_011() -> None:
    xy, truth, head = _off_by(np.full((1, 16), 0.105))
    everything = np.ones((1, 16), bool)
    means = [pckh(right_keypoints(xy, truth, everything, head, at))["mean"] for at in PCKH_AT]
    assert dict(zip(PCKH_AT, means, strict=True)) == {0.5: 100, 0.1: 0, 0.11: 100}


def test_head_boxes_are_read_as_corners(tmp_path: Path) -> None:
    boxes = np.array([[10.0, 20.0, 40.0, 60.0], [0.0, 0.0, 6.0, 8.0]])
    savemat(tmp_path / "gt_valid.mat", {"headboxes_src": boxes.reshape(2, 2, 2).transpose(1, 2, 0)})
    np.testing.assert_allclose(read_head_sizes(tmp_path / "gt_valid.mat"), [30, 6])
    (tmp_path / "broken.mat").write_bytes(
        b"not a matrix at all, but long enough to be read as a header" * 10
    )
    with pytest.raises(UserError, match="not MPII"):
        read_head_sizes(tmp_path / "broken.mat")


def test_the_area_is_that_of_the_box_around_labelled_keypoints(tmp_path: Path) -> None:
    write_mpii(tmp_path, "valid", count=3)
    for person in read_split(tmp_path, "valid", MPII16).people:
        labelled = person.keypoints[person.keypoints[:, 2] > 0, :2]
        assert person.area_px2 == pytest.approx(np.ptp(labelled, axis=0).prod())
