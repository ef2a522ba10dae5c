"""Heads on other features than the penultimate ones, and of other sizes: the paper's comparisons."""

import pytest
import torch

import pose2d
from ccnet import losses
from ccnet.heads.files import check_fits, load, save
from ccnet.heads.kinds import build, paper_kind
from ccnet.paper.other_features import with_features
from ccnet.train import PAPER, new_head
from fitmesh.coco.train_ccnet import settings_of
from pose2d.base.errors import UserError
from pose2d.models.base import PoseModel
from tests.ccnet.toy import toy_model

NAMES = ("sbl-r18-128x96", "rle-r18-128x96")


def random_model(name: str) -> PoseModel:
    torch.manual_seed(0)
    return pose2d.card(name).build().eval().requires_grad_(False)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", ["shallow", "output", "copy"])
def test_other_features_leave_the_prediction_as_it_is(name, kind):
    model = random_model(name)
    crops = model.normalize(torch.randint(0, 256, (2, 3, 128, 96)))
    wanted = model.predict(model.features(crops))
    other = with_features(model, kind)
    features = other.features(crops)
    assert tuple(features.shape[1:]) == other.feature_shape
    found = other.predict(features[:1])
    torch.testing.assert_close(found.xy_px, wanted.xy_px[:1])
    mirrored = other.features(crops.flip(-1))
    both = model.predict_flip(model.features(crops), model.features(crops.flip(-1)))
    torch.testing.assert_close(other.predict_flip(features, mirrored).xy_px, both.xy_px)
    shape = {
        "shallow": (64, 32, 24),
        "copy": (3, 128, 96),
        "output": (17, 32, 24) if "sbl" in name else (85,),
    }[kind]
    assert other.feature_shape == shape


@pytest.mark.parametrize("name", NAMES)
def test_a_head_with_a_copied_trunk_starts_as_the_head_on_the_networks_features(name, tmp_path):
    model = random_model(name)
    other = with_features(model, "copy")
    head = build(other, paper_kind(other), card=name)
    crops = model.normalize(torch.randint(0, 256, (1, 3, 128, 96)))
    with torch.no_grad():
        torch.testing.assert_close(head.logits(crops), head.head.logits(model.features(crops)))
    assert (
        not head.train().network.bn1.training
        if "sbl" in name
        else not head.train().network.preact.bn1.training
    )
    save(head, tmp_path / "x.safetensors", other, f"{name} (copy features)")
    again = load(tmp_path / "x.safetensors")
    with torch.no_grad():
        torch.testing.assert_close(
            again.logits(crops), head.eval().logits(crops), rtol=2e-2, atol=2e-2
        )
    with pytest.raises(UserError, match=r"trained for .* \(copy features\)"):
        check_fits(again, model, name)


def test_a_hidden_layer_is_kept_in_the_file(tmp_path):
    model = toy_model()
    head = build(model, "conv", width=5)
    save(head, tmp_path / "x.safetensors", model, "toy")
    again = load(tmp_path / "x.safetensors")
    assert again.conv.out_channels == 5
    with pytest.raises(UserError, match="no hidden layer"):
        build(model, "peaks", width=5)


def test_features_that_a_network_does_not_have_are_refused_in_words():
    with pytest.raises(UserError, match="ResNet or HRNet, and ToyModel has none"):
        with_features(toy_model(), "shallow")
    with pytest.raises(UserError, match="unknown features"):
        with_features(toy_model(), "deep")
    with pytest.raises(UserError, match="'copy' does not fit the features of ToyModel"):
        build(toy_model(), "copy")


def test_the_papers_recipe_is_one_layer_two_epochs_and_nothing_else():
    settings = settings_of("paper", epochs=None, loss=None)
    assert settings == PAPER
    assert (
        settings.epochs,
        settings.person_weight,
        settings.augmented_passes,
        settings.weight_decay,
    ) == (2, 0, 0, 0)
    assert (settings.rate(0.0), settings.rate(0.6)) == (1e-3, pytest.approx(1e-4))
    assert paper_kind(toy_model()) == "conv"
    assert losses.default(paper_kind(toy_model())) == "mse"


def test_explicit_options_win_over_the_recipe():
    settings = settings_of("paper", epochs=5, person_weight=1.0)
    assert (settings.epochs, settings.person_weight, settings.batch) == (5, 1.0, PAPER.batch)
    assert settings_of("fitmesh").augmented_passes == 1
    with pytest.raises(UserError, match="unknown recipe"):
        settings_of("magic")


def test_the_papers_head_has_its_published_size():
    """34.00 -> 34.08 million with 256 channels; RLE's 69,666."""
    for name, count in (("sbl-resnet50-256x192", 78_370), ("rle-resnet50-256x192", 69_666)):
        with torch.device("meta"):
            model = pose2d.card(name).build()
            head = new_head(model, settings_of("paper", head=paper_kind(model), loss="mse"))
        assert sum(parameter.numel() for parameter in head.parameters()) == count
