"""The constants that everything else stands on."""

import numpy as np
import pytest

from pose2d import COCO17, HALPE26, MPII16, WHOLEBODY133
from pose2d.keypoint_layouts import BODY_25, BODY_25B, HALPE26_IN
from pose2d.skeletons import BY_NAME

SKELETONS = [COCO17, HALPE26, MPII16, WHOLEBODY133]


@pytest.mark.parametrize("skeleton", SKELETONS, ids=lambda s: s.name)
def test_every_list_speaks_of_the_same_keypoints(skeleton):
    assert skeleton.size == len(skeleton.oks_sigma) == len(set(skeleton.keypoints))
    assert (
        skeleton.size
        == {"coco17": 17, "halpe26": 26, "mpii16": 16, "wholebody133": 133}[skeleton.name]
    )
    assert BY_NAME[skeleton.name] is skeleton
    assert all(0 <= end < skeleton.size for edge in skeleton.edges for end in edge)
    assert all(a != b for a, b in skeleton.edges)
    assert all(sigma > 0 for sigma in skeleton.oks_sigma)


@pytest.mark.parametrize("skeleton", SKELETONS, ids=lambda s: s.name)
def test_mirroring_twice_changes_nothing(skeleton):
    order = np.array(skeleton.flip_order)
    np.testing.assert_array_equal(order[order], np.arange(skeleton.size))
    assert len({k for pair in skeleton.flip_pairs for k in pair}) == 2 * len(skeleton.flip_pairs)


@pytest.mark.parametrize("skeleton", SKELETONS, ids=lambda s: s.name)
def test_left_and_right_trade_places_and_the_middle_stays(skeleton):
    for keypoint, other in zip(skeleton.keypoints, skeleton.flip_order, strict=True):
        mirrored = {"left": "right", "righ": "left"}.get(keypoint[:4])
        if mirrored is not None:
            assert skeleton.keypoints[other] == keypoint.replace(
                keypoint.split("_")[0], mirrored, 1
            )
        elif not keypoint.startswith("face"):
            assert skeleton.keypoints[other] == keypoint


@pytest.mark.parametrize("skeleton", [COCO17, HALPE26, MPII16], ids=lambda s: s.name)
def test_mirrored_keypoints_are_placed_equally_well(skeleton):
    sigma = np.array(skeleton.oks_sigma)
    np.testing.assert_array_equal(sigma, sigma[skeleton.flip_order])


def test_a_mirrored_bone_is_a_bone():
    for skeleton in (COCO17, HALPE26, MPII16):
        order = skeleton.flip_order
        edges = {frozenset(edge) for edge in skeleton.edges}
        assert {frozenset((order[a], order[b])) for a, b in skeleton.edges} == edges


def test_coco_uses_the_published_sigmas():
    from pycocotools.cocoeval import Params

    np.testing.assert_allclose(COCO17.oks_sigma, Params("keypoints").kpt_oks_sigmas)
    np.testing.assert_allclose(COCO17.oks_variance[0], (2 * 0.026) ** 2)


def test_wholebody_parts_cover_every_keypoint_once():
    covered = [k for _, first, end in WHOLEBODY133.parts for k in range(first, end)]
    assert covered == list(range(133))
    assert dict((name, end - first) for name, first, end in WHOLEBODY133.parts) == {
        "body": 17,
        "foot": 6,
        "face": 68,
        "lefthand": 21,
        "righthand": 21,
    }
    assert WHOLEBODY133.keypoints[:17] == COCO17.keypoints
    assert sum(WHOLEBODY133.oks_sigma[17:23]) == pytest.approx(
        0.068 + 0.066 * 2 + 0.092 + 0.094 * 2
    )


def test_halpe_begins_with_coco():
    assert HALPE26.keypoints[:17] == COCO17.keypoints
    assert HALPE26.oks_sigma[:17] == COCO17.oks_sigma


@pytest.mark.parametrize(
    ("layout", "names", "absent"),
    [
        ("body_25", BODY_25, {"head_top", "neck"}),
        ("body_25b", BODY_25B, {"pelvis"}),
        ("wholebody133", WHOLEBODY133.keypoints, {"head_top", "neck", "pelvis"}),
        ("coco17", COCO17.keypoints, set(HALPE26.keypoints[17:])),
        ("halpe26", HALPE26.keypoints, set()),
    ],
)
def test_each_of_halpes_keypoints_is_found_in_a_layout_by_its_name_or_is_absent(
    layout, names, absent
):
    assert len(HALPE26_IN[layout]) == HALPE26.size
    for keypoint, index in zip(HALPE26.keypoints, HALPE26_IN[layout], strict=True):
        assert (keypoint in absent) if index is None else (names[index] == keypoint)


def test_both_openpose_layouts_have_25_keypoints_in_openposes_order():
    assert len(set(BODY_25)) == len(set(BODY_25B)) == 25
    assert (BODY_25[1], BODY_25[8], BODY_25[14], BODY_25[19], BODY_25[24]) == (
        "mid_shoulder",
        "pelvis",
        "left_ankle",
        "left_big_toe",
        "right_heel",
    )
    assert (BODY_25B[16], BODY_25B[17], BODY_25B[18], BODY_25B[21]) == (
        "right_ankle",
        "neck",
        "head_top",
        "left_heel",
    )
