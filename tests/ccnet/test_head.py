import math

import pytest
import torch

import ccnet
import pose2d
from ccnet.heads import peaks
from ccnet.heads.files import save
from ccnet.heads.head import flip_average, person_confidence
from ccnet.heads.kinds import build, fitting_kinds
from ccnet.heads.linear import ConvHead, FcHead, GapFcHead, QueryHead
from ccnet.heads.peaks import PeaksHead
from ccnet.paper.ensemble import Ensemble
from pose2d.base.errors import UserError
from pose2d.models.movenet import ChosenCells
from pose2d.skeletons import COCO17, MPII16, WHOLEBODY133
from tests.ccnet.toy import toy_model


def parameters(head: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in head.parameters())


def test_the_conv_head_has_the_published_number_of_parameters():
    assert parameters(ConvHead((256, 64, 48), 17)) == 78_370
    assert parameters(GapFcHead((256, 64, 48), 17)) == 8_738
    assert parameters(FcHead((2048,), 17)) == 69_666


@pytest.mark.parametrize("keypoints", [COCO17.size, MPII16.size, WHOLEBODY133.size])
@pytest.mark.parametrize(
    ("kind", "shape"),
    [
        (ConvHead, (8, 12, 10)),
        (GapFcHead, (8, 12, 10)),
        (FcHead, (32,)),
        (QueryHead, None),
        (PeaksHead, (8, 12, 10)),
    ],
)
def test_every_head_answers_between_0_and_1_for_every_skeleton(kind, shape, keypoints):
    head = kind(shape or (keypoints, 16), keypoints).eval()
    confidence, presence = head(torch.randn(3, *head.feature_shape))
    for answer in (confidence, presence):
        assert answer.shape == (3, keypoints)
        assert bool(((answer >= 0) & (answer <= 1)).all())


def test_one_person_answers_alike_alone_and_in_a_batch():
    head = PeaksHead((8, 12, 10), 17).eval()
    head.readout = torch.randn(17, 9)
    features = torch.randn(5, 8, 12, 10)
    together = head(features)[0]
    alone = torch.cat([head(features[i : i + 1])[0] for i in range(5)])
    torch.testing.assert_close(together, alone)


def test_the_features_of_another_network_are_refused():
    with pytest.raises(UserError, match="another pose model"):
        ConvHead((8, 12, 10), 17)(torch.zeros(1, 9, 12, 10))


def test_no_gradient_reaches_the_pose_network():
    features = torch.randn(2, 8, 12, 10, requires_grad=True)
    sum(answer.sum() for answer in GapFcHead((8, 12, 10), 17)(features)).backward()
    assert features.grad is None


def test_the_flip_test_averages_after_left_and_right_trade_places():
    plain = torch.rand(2, 17)
    mirrored = torch.rand(2, 17)
    confidence, presence = flip_average((plain, plain), (mirrored, mirrored), COCO17)
    torch.testing.assert_close(
        confidence[:, 9], (plain[:, 9] + mirrored[:, 10]) / 2
    )  # left wrist, right wrist
    torch.testing.assert_close(presence[:, 0], (plain[:, 0] + mirrored[:, 0]) / 2)


def test_person_confidence_is_the_presence_weighted_mean():
    confidence = torch.tensor([[0.2, 0.8, 0.5]])
    presence = torch.tensor([[1.0, 0.5, 0.0]])
    torch.testing.assert_close(person_confidence(confidence, presence), torch.tensor([0.6 / 1.5]))


def test_an_ensemble_averages_probabilities():
    heads = [GapFcHead((8, 4, 4), 17) for _ in range(3)]
    features = torch.randn(2, 8, 4, 4)
    mean = torch.stack([head(features)[0] for head in heads]).mean(0)
    torch.testing.assert_close(Ensemble(heads)(features)[0], mean)


def gaussian(row: float, column: float, sigma: float, height: float = 0.9) -> torch.Tensor:
    y, x = torch.meshgrid(torch.arange(32.0), torch.arange(32.0), indexing="ij")
    return height * torch.exp(-((y - row) ** 2 + (x - column) ** 2) / (2 * sigma**2))


def test_peaks_tell_height_place_rivals_and_spread():
    alone = gaussian(16, 16, 1.5)
    doubtful = torch.maximum(alone, gaussian(16, 30, 1.5, 0.8))
    wide = gaussian(16, 16, 4)
    heat = torch.stack([alone, doubtful, wide])[None]
    index = peaks.find_peaks(heat)
    assert index.tolist() == [[16 * 32 + 16] * 3]
    names = [
        "peak",
        "odds",
        "column",
        "row",
        "mass",
        "spread",
        "rival0",
        "rival1",
        "rival2",
        "in0",
        "in1",
        "in2",
    ]
    numbers = {name: peaks.describe_peaks(heat, index)[0, :, i] for i, name in enumerate(names)}
    torch.testing.assert_close(numbers["peak"], torch.full((3,), 0.9))
    torch.testing.assert_close(numbers["column"], torch.full((3,), 16 / 32))
    expected = torch.logit(torch.tensor(0.8)) - torch.logit(torch.tensor(0.9))
    torch.testing.assert_close(numbers["rival2"][1], expected)
    assert numbers["rival2"][0] < -5  # nothing else in the map
    assert numbers["spread"][2] > 1.3 * numbers["spread"][0]
    assert numbers["in1"][0] > numbers["in1"][1]  # the rival holds a part of the mass


def test_features_at_a_peak_are_those_of_its_cell_and_their_local_mean():
    features = torch.arange(100.0).reshape(1, 1, 10, 10)
    both = peaks.features_at(features, torch.tensor([[55, 0]]))
    torch.testing.assert_close(
        both[0, 0], torch.tensor([55.0, 55.0])
    )  # a plane's mean is its middle
    rows = columns = torch.tensor([0, 0, 0, 0, 1, 2, 3.0])
    torch.testing.assert_close(
        both[0, 1], torch.stack([torch.tensor(0.0), (10 * rows).mean() + columns.mean()])
    )


def test_a_head_comes_back_from_its_file(tmp_path):
    model = toy_model()
    head = build(model, "peaks").eval()
    head.fit_scale(head.inputs(model.features(torch.rand(20, 3, 32, 24))))
    save(head, tmp_path / "ccnet.safetensors", model, "toy")
    again = ccnet.load(tmp_path / "ccnet.safetensors")
    features = model.features(torch.rand(4, 3, 32, 24))
    for before, after in zip(head(features), again(features), strict=True):
        torch.testing.assert_close(before, after, rtol=0, atol=2e-3)  # half precision
    ccnet.check_fits(again, model, "toy")


def test_a_head_for_other_weights_or_another_model_is_refused(tmp_path):
    model = toy_model()
    head = build(model, "gap-fc")
    save(head, tmp_path / "head.safetensors", model, "toy")
    again = ccnet.load(tmp_path / "head.safetensors")
    with pytest.raises(UserError, match="trained for toy, not for other"):
        ccnet.check_fits(again, model, "other")
    with pytest.raises(UserError, match="other weights"):
        ccnet.check_fits(again, toy_model(seed=1), "toy")


def test_a_head_of_the_wrong_kind_for_the_features_is_refused():
    with pytest.raises(UserError, match="use 'peaks'"):
        build(toy_model(), "fc")
    with pytest.raises(UserError, match="unknown head"):
        build(toy_model(), "magic")


def test_the_readout_is_the_networks_own_last_layer():
    model = toy_model()
    head = build(model, "peaks")
    assert isinstance(head, PeaksHead)
    assert not head.log_odds  # the toy's maps are its last layer's values
    torch.testing.assert_close(head.readout[:, :-1], model.final_layer.weight.flatten(1))


def test_a_file_that_is_no_head_is_refused(tmp_path):
    with pytest.raises(UserError, match="no calibration head"):
        ccnet.load(tmp_path / "nothing")
    (tmp_path / "x.safetensors").write_bytes(b"nonsense")
    with pytest.raises(UserError, match="not a safetensors file"):
        ccnet.load(tmp_path / "x.safetensors")


def _movenet_head(model):
    head = build(model, "movenet").eval()
    pixels = torch.randint(
        0,
        256,
        (3, 3, *model.input_wh),
        dtype=torch.uint8,
        generator=torch.Generator().manual_seed(0),
    )
    with torch.inference_mode():
        return head, model.features(model.normalize(pixels))


def test_the_movenet_head_reads_the_peaks_that_movenet_decodes():
    model = pose2d.load("movenet-lightning")
    head, features = _movenet_head(model)
    with torch.inference_mode():
        heat, index, more = head.peaks(features)
        found = model.predict(features)
    torch.testing.assert_close(heat, found.maps)
    torch.testing.assert_close(heat.flatten(2).gather(2, index[..., None])[..., 0], found.score)
    assert more.shape == (3, peaks.AGREEMENT_NUMBERS)
    assert bool(torch.isfinite(more).all())
    assert fitting_kinds(model)[0] == "movenet"


def test_evidence_tells_how_far_a_keypoint_is_from_where_it_was_expected():
    heat = torch.full((1, 17, 8, 8), 0.1)
    centre = torch.full((1, 1, 8, 8), 0.1)
    heat[0, 5, 2, 3], heat[0, 6, 2, 3] = (
        0.9,
        0.5,
    )  # the left shoulder's peak, where the right one's map is warm too
    centre[0, 0, 4, 4] = 0.8
    expected = torch.full((1, 17, 2), 3.5)
    expected[0, 5] = torch.tensor([5.5, 2.5])
    index = torch.full((1, 17), 2 * 8 + 3)
    chosen = ChosenCells(heat, centre, torch.tensor([[[4, 4]]]), expected, index)
    numbers = peaks.describe_agreement(chosen)[0]
    x, y, distance, twin_distance, against_twin, there = numbers[5 * 6 : 6 * 6].tolist()
    assert (x, y) == (pytest.approx(-2 / 8), 0)
    assert distance == pytest.approx(math.log(2 / 8 + 1e-3))
    assert twin_distance == pytest.approx(math.log(1e-2))
    assert against_twin == pytest.approx(math.log(9), abs=1e-5)
    assert there == pytest.approx(-math.log(81), abs=1e-5)
    own, *rivals = numbers[17 * 6 :][:4].tolist()
    assert own == pytest.approx(math.log(4), abs=1e-5)
    assert rivals == pytest.approx([-math.log(36)] * 3, abs=1e-4)


def test_a_movenet_head_comes_back_from_its_file(tmp_path):
    model = pose2d.load("movenet-lightning")
    head, features = _movenet_head(model)
    for parameter in head.parameters():  # as it will be stored
        parameter.data = parameter.data.half().float()
    save(head, tmp_path / "head.safetensors", model, "movenet-lightning")
    with torch.inference_mode():
        torch.testing.assert_close(
            ccnet.load(tmp_path / "head.safetensors")(features), head(features)
        )


def test_the_movenet_head_is_refused_for_other_networks():
    with pytest.raises(UserError, match="'movenet' does not fit the features of ToyModel"):
        build(toy_model(), "movenet")
