"""The head that states a distribution: what follows from it is exact, and keypoints without labels
share the rest.
"""

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import ccnet
import pose2d
from ccnet.data.observations import cache_key
from ccnet.heads.files import save
from ccnet.heads.kinds import build
from ccnet.heads.mixture import CHANNELS, COMPONENTS, LOG_RATIO_RANGE, distribution_of
from ccnet.heads.simcc import AXES, SUMMARY, SimCCDistributionHead, principal_axes
from ccnet.losses import Targets, channels, default, keypoint_loss
from ccnet.train import TrainingSettings, new_head
from pose2d.base.errors import UserError
from pose2d.models.trunk import FeaturesWithTrunk
from pose2d.skeletons import COCO17, HALPE26


def test_the_loss_counts_present_keypoints_only_and_reads_the_error_along_both_axes() -> None:
    logits = torch.randn(2, 26, channels("likelihood"), generator=torch.Generator().manual_seed(1))
    error = torch.tensor([1.2, -0.9])
    oks = torch.full((2, 26), math.exp(-0.5 * 1.5**2))
    present = torch.zeros(2, 26)
    present[0, 3] = 1
    targets = Targets(oks, present, present, error.expand(2, 26, 2), torch.arange(2))
    expected = -distribution_of(logits[0, 3]).log_likelihood(error)
    without = keypoint_loss(logits, replace(targets, present=torch.zeros(2, 26)), "likelihood")
    presence = torch.nn.functional.softplus(logits[0, 3, 1]) - torch.nn.functional.softplus(
        -logits[0, 3, 1]
    )
    torch.testing.assert_close(
        keypoint_loss(logits, targets, "likelihood")[0] - without[0], expected - presence
    )


def test_the_embedded_head_states_a_distribution_whose_oks_is_its_confidence() -> None:
    model = pose2d.load("rtmpose-s-halpe26")
    head = ccnet.load("rtmpose-s-halpe26")
    assert isinstance(head, SimCCDistributionHead)
    crops = torch.randint(
        0, 256, (2, 3, 256, 192), generator=torch.Generator().manual_seed(0)
    ).float()
    with torch.inference_mode():
        features = model.features(model.normalize(crops))
        confidence, presence = head(features)
        stated = head.distribution(features)
    assert confidence.shape == presence.shape == (2, HALPE26.size)
    assert stated.weight.shape == (2, HALPE26.size, 3)
    torch.testing.assert_close(stated.expected_oks(), confidence, atol=2e-4, rtol=0)
    torch.testing.assert_close(stated.weight.sum(-1), torch.ones(2, HALPE26.size))
    assert stated.log_ratio is not None
    assert stated.log_ratio.shape == (2, HALPE26.size)
    for foot, ankle in (("left_heel", "left_ankle"), ("right_big_toe", "right_ankle")):
        numbers = [HALPE26.keypoints.index(name) for name in (foot, ankle)]
        torch.testing.assert_close(presence[:, numbers[0]], presence[:, numbers[1]])


@pytest.fixture(scope="module")
def untrained() -> SimCCDistributionHead:
    torch.manual_seed(0)
    head = SimCCDistributionHead((HALPE26.size, 256), HALPE26.size)
    generator = torch.Generator().manual_seed(3)
    head.cls_x, head.cls_y = (
        0.1 * torch.randn(len(w), 256, generator=generator) for w in (head.cls_x, head.cls_y)
    )
    return head.eval()


def test_inputs_hold_all_that_the_network_says(untrained: SimCCDistributionHead) -> None:
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randn(2, HALPE26.size, 256, generator=generator)
    maps = torch.randn(2, 512, 8, 6, generator=generator)
    inputs = untrained.inputs(FeaturesWithTrunk.join(tokens, maps))
    summary, token, found = untrained.parts(inputs)
    torch.testing.assert_close(token, tokens)
    torch.testing.assert_close(found, maps)
    assert summary.shape == (2, HALPE26.size, SUMMARY)
    place = torch.stack(
        [(tokens @ w.mT).argmax(-1) / (len(w) - 1) for w in (untrained.cls_x, untrained.cls_y)], -1
    )
    torch.testing.assert_close(summary[..., -2:], place)


def test_training_features_stay_valid_when_only_trained_layers_change(
    untrained: SimCCDistributionHead,
) -> None:
    class Other(SimCCDistributionHead):
        kind = "simcc"

        def logits(self, inputs: torch.Tensor) -> torch.Tensor:
            return inputs[:, :1, None]

    model = pose2d.load("rtmpose-s-halpe26")
    other = Other((HALPE26.size, 256), HALPE26.size)
    assert (
        cache_key(model, other, [], None, (0,)).digest
        == cache_key(model, untrained, [], None, (0,)).digest
    )


def test_along_the_principal_axes_everything_varies_by_one_and_nothing_together() -> None:
    generator = torch.Generator().manual_seed(2)
    mixed = (
        torch.randn(4000, 96, generator=generator) @ torch.randn(96, 96, generator=generator) + 7
    )
    mean, axes = principal_axes(mixed)
    along = (mixed - mean) @ axes
    assert along.shape == (4000, AXES)
    torch.testing.assert_close(along.mT @ along / len(along), torch.eye(AXES), atol=0.02, rtol=0)


def test_keypoints_without_labels_teach_presence_nothing(untrained: SimCCDistributionHead) -> None:
    size = HALPE26.size * (SUMMARY + 256) + 512 * 48
    logits = untrained.logits(
        torch.randn(2, size, generator=torch.Generator().manual_seed(4)).clamp(-1, 1)
    )
    logits[:, COCO17.size :, 1].sum().backward()
    assert all(p.grad is None or not p.grad.any() for p in untrained.presence.parameters())
    torch.testing.assert_close(logits[:, 20, 1], logits[:, 15, 1])  # left big toe, left ankle


def test_a_keypoint_without_labels_is_as_sharp_in_pixels_as_the_one_it_stands_beside(
    untrained: SimCCDistributionHead,
) -> None:
    rows = torch.rand(1, HALPE26.size, SUMMARY + 256, generator=torch.Generator().manual_seed(6))
    neck, shoulder = (HALPE26.keypoints.index(name) for name in ("neck", "left_shoulder"))
    rows[:, neck] = rows[:, shoulder]
    with torch.inference_mode():
        stated = distribution_of(
            untrained.logits(torch.cat([rows.flatten(1), torch.zeros(1, 512 * 48)], 1))
        )
    in_pixels = stated.sigma * torch.tensor(HALPE26.oks_sigma)[:, None]
    torch.testing.assert_close(in_pixels[:, neck], in_pixels[:, shoulder])
    torch.testing.assert_close(stated.weight[:, neck], stated.weight[:, shoulder])


def test_a_head_says_the_same_after_saving_and_loading(tmp_path: Path) -> None:
    model = pose2d.load("rtmpose-s-halpe26")
    head = new_head(model, TrainingSettings(head="simcc", loss="likelihood")).eval()
    save(head, tmp_path / "head.safetensors", model, "rtmpose-s-halpe26")
    loaded = ccnet.load(tmp_path / "head.safetensors")
    ccnet.check_fits(loaded, model, "rtmpose-s-halpe26")
    inputs = torch.rand(
        2, HALPE26.size * (SUMMARY + 256) + 512 * 48, generator=torch.Generator().manual_seed(5)
    )
    with torch.inference_mode():
        torch.testing.assert_close(loaded.logits(inputs), head.logits(inputs), atol=5e-3, rtol=1e-2)


def test_the_ratio_of_the_axes_is_bounded() -> None:
    logits = torch.zeros(2, CHANNELS)
    logits[:, -1] = torch.tensor([40.0, -40.0])
    ratio = distribution_of(logits).log_ratio
    assert ratio is not None
    assert ratio.tolist() == [LOG_RATIO_RANGE[1], LOG_RATIO_RANGE[0]]


def test_a_file_without_the_ratio_of_the_axes_loads_and_states_an_isotropic_error(
    tmp_path: Path,
) -> None:
    model = pose2d.load("rtmpose-s-halpe26")
    torch.manual_seed(1)
    head = build(model, "simcc", 2 + 2 * COMPONENTS).eval()
    save(head, tmp_path / "old.safetensors", model, "rtmpose-s-halpe26")
    loaded = ccnet.load(tmp_path / "old.safetensors")
    assert isinstance(loaded, SimCCDistributionHead)
    features = FeaturesWithTrunk.join(torch.randn(1, HALPE26.size, 256), torch.randn(1, 512, 8, 6))
    with torch.inference_mode():
        stated = loaded.distribution(features)
        confidence, _ = loaded(features)
    assert stated.log_ratio is None
    torch.testing.assert_close(stated.axis_sigma[..., 0], stated.axis_sigma[..., 1])
    torch.testing.assert_close(
        (stated.weight / (1 + stated.sigma.square())).sum(-1), confidence, atol=2e-4, rtol=0
    )


def test_a_loss_that_does_not_fit_the_head_is_refused() -> None:
    model = pose2d.load("rtmpose-s-halpe26")
    with pytest.raises(UserError, match="does not fit head 'simcc'"):
        new_head(model, TrainingSettings(head="simcc", loss="mse"))
    assert default("simcc") == "likelihood"
    assert default("movenet") == "mse"
