"""Who stands has the centre of mass over the feet; annotators' scatter is not the network's."""

import math

import torch

import fitting
from fitting.body import BodyParams
from fitting.keypoints.weights import ANNOTATOR_STD, LEAST_SHARE, joint_variance
from fitting.solver.terms.balance import Balance, mass_shares
from fitting.solver.terms.contact import FEET

UP = torch.tensor([0.0, -1.0, 0.0])


def stands(lean_deg: float, frames: int = 1) -> BodyParams:
    """Somebody with straight legs in front of the camera, who leans towards it as a whole."""
    pose = torch.zeros(frames, 24, 3)
    pose[:, 0, 0] = math.pi + math.radians(
        lean_deg
    )  # x right, y down: half a turn about x faces the camera
    return BodyParams(pose, torch.zeros(10), torch.tensor([0.0, 0.0, 5.0]).expand(frames, 3))


def away(params: BodyParams) -> torch.Tensor:
    at = fitting.load_body().at(params)
    carries = torch.full((len(params), len(FEET)), 1 / len(FEET))
    return Balance(UP, carries).horizontal(at.joints, at.keypoints[:, FEET])


def test_an_upright_body_is_balanced_and_a_leaning_one_is_not() -> None:
    assert away(stands(0)).norm() < 2.0  # stds
    assert away(stands(20)).norm() > 4.0
    assert abs(float(mass_shares().sum()) - 1) < 1e-6


def test_height_does_not_count_in_balance() -> None:
    assert abs(float(away(stands(20))[0] @ UP)) < 1e-5


def test_annotators_scatter_is_taken_out_of_the_stated_variance() -> None:
    annotation = torch.tensor([ANNOTATOR_STD**2, 0.5**2, 3.0**2])
    found = joint_variance(annotation)
    torch.testing.assert_close(found[1:], annotation[1:] - ANNOTATOR_STD**2)
    torch.testing.assert_close(found[0], LEAST_SHARE**2 * annotation[0])
