"""What is behind a body is hidden, what is before it is not, and stated errors widen where somebody
is in front.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch

from fitting.body import Body, BodyOutput
from fitting.body.load import load_body
from fitting.camera import Camera
from fitting.keypoints.after_fit import inflate_variance
from fitting.keypoints.hidden import (
    UNCOVERED_M,
    FittedBody,
    find_hidden_keypoints,
    surface_in_front_m,
)
from pose2d.skeletons import HALPE26
from pose2d.types import ErrorDistribution, Keypoints

CAMERA = Camera.from_focal(1000.0, (1280, 960))
CHEST = 9


@pytest.fixture(scope="module")
def body() -> Body:
    return load_body()


def standing(body: Body, x_m: float, depth_m: float) -> BodyOutput:
    """Upright with arms stretched to the sides, in the camera's frame: y down, the face towards the
    camera.
    """
    pose = torch.zeros(1, 24, 3)
    pose[:, 0, 0] = torch.pi
    return body(pose, translation=torch.tensor([[x_m, 0.0, depth_m]]))


def person(placed: BodyOutput, frames: int = 1) -> FittedBody:
    """Seen exactly where the body is; nine times in ten sharp, else plainly wrong."""
    placed = BodyOutput(
        placed.joints.expand(frames, -1, -1), placed.keypoints.expand(frames, -1, -1), None
    )
    weight = torch.tensor([0.9, 0.1]).expand(frames, 26, 2).clone()
    sigma = torch.tensor([0.3, 5.0]).expand(frames, 26, 2).clone()
    confidence = (weight / (1 + sigma.square())).sum(-1)
    area = torch.full((frames,), 40_000.0)
    keypoints = Keypoints(
        CAMERA.project(placed.keypoints),
        confidence,
        torch.ones(frames, 26),
        "ccnet",
        area,
        HALPE26,
        ErrorDistribution(weight, sigma),
    )
    return FittedBody(np.arange(frames), np.ones(frames, bool), keypoints, placed)


def tilts(people: dict[int, FittedBody]) -> dict[int, torch.Tensor]:
    return {
        identity: find_hidden_keypoints(people, identity, CAMERA).inflation for identity in people
    }


@pytest.mark.parametrize("depth_m", [2.0, 6.0])
def test_a_forearm_behind_the_torso_is_hidden_and_before_it_is_not(
    body: Body, depth_m: float
) -> None:
    placed = standing(body, 0.3, depth_m)
    chest = placed.joints[:, CHEST]
    away = chest.norm()
    ray = chest / away
    before, behind = ((away + shift) * ray for shift in (-0.35, 0.35))
    gap = surface_in_front_m(torch.stack([before, behind], 1), placed)[0]
    assert float(gap[0]) < 0
    assert (
        0.35 < float(gap[1]) < 0.35 + 0.25
    )  # behind by 0.35 m and about half the chest's thickness


def test_a_ball_around_a_bone_has_its_surface_where_it_must_be(body: Body) -> None:
    """The hand's capsule seen along the middle of the arm's end: the surface is one radius in front
    of its axis.
    """
    placed = standing(body, 0.0, 4.0)
    elbow = placed.joints[:, 18]
    ray = elbow / elbow.norm()
    behind = ((elbow.norm() + 1.0) * ray)[:, None]
    assert float(surface_in_front_m(behind, placed)) == pytest.approx(
        1.0 + 0.05, abs=0.005
    )  # the upper arm's radius


def test_a_ray_that_meets_nobody_is_uncovered(body: Body) -> None:
    placed = standing(body, 0.0, 4.0)
    beside = torch.tensor([[[3.0, 0.0, 6.0], [0.0, -2.0, 6.0]]])
    assert (surface_in_front_m(beside, placed) == UNCOVERED_M).all()


def test_who_stands_in_front_hides_who_stands_behind(body: Body) -> None:
    near = person(standing(body, 0.0, 3.0))
    far = person(standing(body, 0.1, 3.6))
    found = tilts({1: near, 2: far})
    assert (found[1] < 0.05).all()
    torso = [HALPE26.keypoints.index(name) for name in ("left_hip", "right_hip", "pelvis", "neck")]
    assert (found[2][0, torso] > 1).all()
    wider = inflate_variance(far.keypoints, found[2])
    assert (wider.confidence[0, torso] < 0.5 * far.keypoints.confidence[0, torso]).all()


def test_people_beside_each_other_hide_nothing(body: Body) -> None:
    found = tilts({1: person(standing(body, -1.5, 3.0)), 2: person(standing(body, 1.5, 4.0))})
    assert not found[1].any()
    assert not found[2].any()


def test_only_frames_in_which_both_are_there_count(body: Body) -> None:
    near = person(standing(body, 0.0, 3.0), 3)
    far = person(standing(body, 0.1, 3.6), 3)
    near = replace(near, frame=np.array([1, 2, 3]), present=np.array([True, False, True]))
    tilt = tilts({1: near, 2: far})[2]
    assert tilt.any(1).tolist() == [False, True, False]


def test_the_one_in_front_who_counts_most_decides(body: Body) -> None:
    far = person(standing(body, 0.1, 3.6))
    others = {1: person(standing(body, 0.0, 3.0)), 2: person(standing(body, 0.25, 3.3))}
    apart = [
        find_hidden_keypoints({number: other, 9: far}, 9, CAMERA)
        for number, other in others.items()
    ]
    together = find_hidden_keypoints({**others, 9: far}, 9, CAMERA)
    torch.testing.assert_close(together.covered, torch.maximum(*(one.covered for one in apart)))
    torch.testing.assert_close(together.taken, torch.maximum(*(one.taken for one in apart)))


def test_a_widened_mixture_sums_to_one_and_its_confidence_is_its_expected_oks(body: Body) -> None:
    before = person(standing(body, 0.0, 3.0)).keypoints
    tilt = torch.zeros(1, 26)
    tilt[0, 3] = 2.0
    after = inflate_variance(before, tilt)
    assert after.error is not None
    torch.testing.assert_close(after.error.weight.sum(-1), torch.ones(1, 26))
    torch.testing.assert_close(
        after.confidence, (after.error.weight / (1 + after.error.sigma.square())).sum(-1)
    )
    odds = after.error.weight[0, 3, 1] / after.error.weight[0, 3, 0]
    assert float(odds) == pytest.approx(0.1 / 0.9 * (5.0 / 0.3) ** 2, rel=1e-4)
    others = tilt[0] == 0
    torch.testing.assert_close(
        after.confidence[0, others], before.confidence[0, others], rtol=0, atol=0
    )


def test_without_a_stated_distribution_nothing_changes(body: Body) -> None:
    plain = replace(person(standing(body, 0.0, 3.0)).keypoints, error=None)
    assert inflate_variance(plain, torch.ones(1, 26)) is plain


def test_absent_keypoints_stay_as_they_are(body: Body) -> None:
    before = person(standing(body, 0.0, 3.0)).keypoints
    before = replace(before, presence=torch.zeros(1, 26))
    torch.testing.assert_close(
        inflate_variance(before, torch.ones(1, 26)).confidence, before.confidence
    )
