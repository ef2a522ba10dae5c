import numpy as np
import pytest

from pose2d import scores
from pose2d.nms import oks_nms, oks_to_others
from pose2d.skeletons import COCO17


def test_the_kept_poses_are_those_of_the_original_code(conventions):
    xy, areas = conventions["nms_kpts"][..., :2], conventions["nms_areas"]
    np.testing.assert_array_equal(oks_nms(xy, conventions["nms_scores"], areas), conventions["nms_keep"])
    oks = oks_to_others(xy[0], areas[0], xy, areas, COCO17)
    np.testing.assert_allclose(oks, conventions["nms_oks0"], rtol=1e-12)


def test_the_better_of_two_equal_poses_stays():
    pose = np.random.default_rng(0).uniform(0, 200, (17, 2))
    kept = oks_nms(np.stack([pose, pose, pose + 500]), np.array([0.4, 0.9, 0.1]), np.full(3, 1e4))
    assert kept.tolist() == [1, 2]


def test_no_pose_is_no_error():
    assert oks_nms(np.zeros((0, 17, 2)), np.zeros(0), np.zeros(0)).tolist() == []


def test_a_heatmap_pose_is_rated_by_its_visible_keypoints_and_its_box():
    keypoints = np.array([[0.9, 0.5, 0.2, 0.1], [0.1, 0.1, 0.0, 0.2]])
    assert scores.heatmap_score(keypoints, np.array([0.5, 1.0])).tolist() == pytest.approx([0.5 * 0.7, 0.0])


def test_a_regressed_pose_is_rated_by_sum_of_box_mean_and_best():
    keypoints = np.array([[0.9, 0.5, 0.1, 0.5]])
    assert scores.regression_score(keypoints, np.array([0.3])).tolist() == pytest.approx([0.3 + 0.5 + 0.9])
    assert scores.regression_score(keypoints).tolist() == pytest.approx([0.5 + 0.9])
