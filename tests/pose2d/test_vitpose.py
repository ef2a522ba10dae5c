import pytest
import torch
from torch import Tensor

import pose2d
from pose2d.models import vitpose
from pose2d.models.loading import fill
from pose2d.models.vitpose import ViTPose, from_mmpose, without_experts
from pose2d.skeletons import COCO17, MPII16, WHOLEBODY133


@torch.inference_mode()
def test_the_answers_are_the_official_implementations(reference, saved, relative_error):
    official = reference("vitpose_b_256x192")
    model = pose2d.load("vitpose-b", checkpoint=saved({"state_dict": official.state}))
    features = model.features(official.crops)
    assert features.shape[1:] == model.feature_shape == (256, 64, 48)
    assert relative_error(features[:, :8], official.answers["penultimate_first8"]) < 1e-4
    assert relative_error(model.predict(features).maps, official.answers["output"]) < 1e-4
    assert model.state_dict().keys() == official.state.keys()


def build(model: str) -> ViTPose:
    with torch.device("meta"):
        return pose2d.card(model).build()


def test_udp_measures_from_the_first_pixel_to_the_last():
    model = build("vitpose-s")
    maps = torch.full((1, 17, 64, 48), 1e-3)
    maps[:, :, 63, 47] = 1
    assert model.crop == "udp"
    torch.testing.assert_close(
        model.cell_px(maps) * torch.tensor([47.0, 63.0]), torch.tensor([191.0, 255.0])
    )


def test_the_flip_test_does_not_shift(monkeypatch):
    model = build("vitpose-s")
    monkeypatch.setattr(model, "maps", lambda features: features)
    maps = torch.rand(1, 17, 64, 48)
    mirrored = maps[:, COCO17.flip_order].flip(-1)
    torch.testing.assert_close(model.predict_flip(maps, mirrored).maps, maps)


@pytest.fixture
def tiny(monkeypatch) -> str:
    """A size that takes no time: 96 channels, 3 blocks, 4 heads."""
    monkeypatch.setitem(vitpose.SIZES, "tiny", (96, 3, 4))
    return "tiny"


# transformers
# ----------------------------------------------------------------------------------------------------


def transformers_model(simple: bool, experts: int) -> torch.nn.Module:
    transformers = pytest.importorskip("transformers")
    backbone = transformers.VitPoseBackboneConfig(
        hidden_size=96,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_experts=experts,
        part_features=24,
    )
    config = transformers.VitPoseConfig(
        backbone_config=backbone, use_simple_decoder=simple, num_labels=17
    )
    torch.manual_seed(0)
    model = transformers.VitPoseForPoseEstimation(config).eval()
    for name, value in model.named_parameters():  # their initial values hide most mistakes
        value.data.normal_(0, 0.05)
        if "norm" in name and name.endswith("weight"):
            value.data.uniform_(0.5, 1.5)
    return model


@pytest.mark.parametrize(("simple", "experts"), [(False, 1), (True, 1), (False, 6)])
@torch.inference_mode()
def test_the_answers_are_transformers(simple, experts, tiny, tmp_path, relative_error):
    theirs = transformers_model(simple, experts)
    from safetensors.torch import save_file

    save_file(
        {key: value.clone() for key, value in theirs.state_dict().items()},
        tmp_path / "model.safetensors",
    )
    ours = ViTPose(tiny, COCO17, simple).eval()
    fill(ours, tmp_path / "model.safetensors", "tiny")
    crops = torch.randn(2, 3, 256, 192)
    options = {"dataset_index": torch.tensor([0, 0])} if experts > 1 else {}
    expected = theirs(pixel_values=crops, **options).heatmaps
    assert relative_error(ours(crops).maps, expected.numpy()) < 1e-4


# mmpose 1.x
# ------------------------------------------------------------------------------------------------------


def as_mmpose(own: dict[str, Tensor]) -> dict[str, Tensor]:
    pairs = (
        (".patch_embed.proj.", ".patch_embed.projection."),
        ("backbone.last_norm.", "backbone.ln1."),
        ("backbone.blocks.", "backbone.layers."),
        (".norm1.", ".ln1."),
        (".norm2.", ".ln2."),
        (".mlp.fc1.", ".ffn.layers.0.0."),
        (".mlp.fc2.", ".ffn.layers.1."),
        ("keypoint_head.", "head."),
    )
    state = {}
    for key, value in own.items():
        for ours, theirs in pairs:
            key = key.replace(ours, theirs)
        state[key] = value
    places = state["backbone.pos_embed"]
    state["backbone.pos_embed"] = places[:, 1:] + places[:, :1]
    return state


@torch.inference_mode()
def test_mmposes_names_give_the_same_answers(tiny):
    torch.manual_seed(0)
    model = ViTPose(tiny, COCO17).eval()
    torch.nn.init.normal_(model.backbone.pos_embed)
    crops = torch.randn(1, 3, 256, 192)
    expected = model(crops).maps
    own = {key: value.clone() for key, value in model.state_dict().items()}
    state = as_mmpose(own)
    assert state["backbone.pos_embed"].shape == (1, 192, 96)
    assert not (state.keys() & own.keys()) - {"backbone.pos_embed"}
    model.load_state_dict(model.convert(state))
    torch.testing.assert_close(model(crops).maps, expected, atol=1e-4, rtol=1e-4)


def test_files_that_are_not_mmposes_stay_as_they_are():
    own = build("vitpose-s").state_dict()
    assert from_mmpose(own).keys() == own.keys()


# ViTPose+
# --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "skeleton", "expert", "head"),
    [
        ("vitpose-s", COCO17, 0, "keypoint_head."),
        ("vitpose-s-mpii", MPII16, 2, "associate_keypoint_heads.1."),
        ("vitpose-s-wholebody", WHOLEBODY133, 5, "associate_keypoint_heads.4."),
    ],
)
def test_a_mixture_gives_each_data_set_its_expert_and_head(name, skeleton, expert, head):
    own = build(name).state_dict()
    mixture = {}
    for key, value in own.items():
        full = torch.full(tuple(value.shape), -1.0)
        if ".mlp.fc2." in key:
            mixture[key] = full[:288]
            for index in range(6):
                mixture[key.replace("fc2", f"experts.{index}")] = torch.full(
                    full[288:].shape, float(index)
                )
        elif key.startswith("keypoint_head."):
            mixture[key] = full
            for index in range(5):
                wide = (
                    torch.full((133, *full.shape[1:]), float(index))
                    if ".final_layer." in key
                    else full
                )
                mixture[key.replace("keypoint_head.", f"associate_keypoint_heads.{index}.")] = wide
        else:
            mixture[key] = full
    converted = without_experts(mixture, skeleton, 384)
    assert {key: value.shape for key, value in converted.items()} == {
        key: value.shape for key, value in own.items()
    }
    second = converted["backbone.blocks.3.mlp.fc2.weight"]
    assert second[0, 0] == -1
    assert second[-1, 0] == expert
    last = converted["keypoint_head.final_layer.bias"]
    assert last[0] == (-1 if head == "keypoint_head." else int(head.split(".")[1]))
