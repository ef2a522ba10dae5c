import re
import subprocess
import sys
from functools import cache

import pytest
import torch

import ccnet
import pose2d
from pose2d.models.base import PoseModel

TABLE = {  # parameters, as published or counted in the original implementations
    "sbl-resnet50-256x192": 33_999_697,
    "sbl-resnet152-384x288": 68_635_473,
    "hrnet-w32-256x192": 28_536_113,
    "hrnet-w48-384x288": 63_595_745,
    "vitpose-b": 89_994_513,
    "rle-resnet50-256x192": 23_647_364,
    "rle-resnet152-384x288": 58_283_140,
    "ipr-resnet50-256x192": 33_999_697,
    "poseur-resnet50-256x192": 33_148_840,
}
WANTED = {
    "movenet-lightning",
    "movenet-thunder",
    *(f"sbl-resnet{depth}-{size}" for depth in (50, 101, 152) for size in ("256x192", "384x288")),
    *(f"hrnet-w{width}-{size}" for width in (32, 48) for size in ("256x192", "384x288")),
    *(
        f"vitpose-{size}{head}"
        for size in "sblh"
        for head in ("", "-simple", "-mpii", "-wholebody")
    ),
    *(f"rle-resnet{depth}-{size}" for depth in (50, 152) for size in ("256x192", "384x288")),
    *(f"rle-hrnet-w{width}-{size}" for width in (32, 48) for size in ("256x192", "384x288")),
    *("ipr-resnet50-256x192", "ipr-resnet50-256x256"),
    *("poseur-resnet50-256x192", "poseur-resnet50-256x192-wholebody"),
    *(f"sbl-resnet{depth}-256x256-mpii" for depth in (50, 101, 152)),
    *(f"hrnet-w{width}-256x256-mpii" for width in (32, 48)),
    *(f"hrnet-w{width}-{size}-wholebody" for width in (32, 48) for size in ("256x192", "384x288")),
}


@cache
def build(name: str) -> PoseModel:
    with torch.device("meta"):
        return pose2d.card(name).build()


def parameters(model: PoseModel) -> int:
    return sum(value.numel() for value in model.parameters())


def test_every_wanted_name_is_there():
    assert not WANTED - set(pose2d.names())


@pytest.mark.parametrize(("name", "count"), TABLE.items())
def test_parameter_counts_are_the_published_ones(name, count):
    assert parameters(build(name)) == count


def test_rle_on_hrnet_has_the_papers_size():
    assert round(parameters(build("rle-hrnet-w32-256x192")) / 1e6, 2) == 39.32
    assert round(parameters(build("rle-hrnet-w48-256x192")) / 1e6, 2) == 75.56


@pytest.mark.slow
def test_every_card_tells_the_truth_of_its_network():
    for name, card in pose2d.cards().items():
        model = build(name)
        assert (name, parameters(model)) == (name, card.parameters)
        assert (model.input_wh, model.skeleton) == (card.input_wh, card.skeleton)
        tensors = {key for key, _ in (*model.named_parameters(), *model.named_buffers())}
        assert tensors == set(model.state_dict())  # a checkpoint fills all of them
        size = re.search(r"(\d+)x(\d+)", name)
        assert size is None or card.input_wh == (int(size[2]), int(size[1]))
        for suffix, keypoints in (("-mpii", 16), ("-wholebody", 133)):
            assert name.endswith(suffix) == (card.skeleton.size == keypoints)
        assert card.licence
        assert card.source


@pytest.mark.parametrize(
    "name",
    [
        "sbl-resnet101-384x288",
        "hrnet-w48-384x288-wholebody",
        "vitpose-l-mpii",
        "vitpose-h-simple",
        "rle-resnet152-384x288",
        "rle-hrnet-w32-384x288",
        "ipr-resnet50-256x256",
        "poseur-hrnet-w48-384x288",
    ],
)
def test_features_and_predictions_have_the_promised_shapes(name):
    model = build(name)
    width, height = model.input_wh
    with torch.device("meta"):
        features = model.features(torch.empty(2, 3, height, width))
        for prediction in (model.predict(features), model.predict_flip(features, features)):
            assert prediction.xy_px.shape == (2, model.skeleton.size, 2)
            assert prediction.score.shape == (2, model.skeleton.size)
    assert features.shape == (2, *model.feature_shape)


def shapeless(name: str) -> set[str]:
    return set(build(name).state_dict())


def test_sisters_have_the_same_tensors():
    assert shapeless("sbl-resnet50-256x192") == shapeless("sbl-resnet50-384x384-mpii")
    assert shapeless("hrnet-w32-256x192") == shapeless("hrnet-w48-384x288-wholebody")
    assert shapeless("vitpose-l") == shapeless("vitpose-l-wholebody")
    assert shapeless("rle-hrnet-w32-256x192") == shapeless("rle-hrnet-w48-384x288")
    assert shapeless("poseur-resnet50-256x192") == shapeless("poseur-resnet50-256x192-wholebody")


def test_deeper_sisters_have_the_same_tensors_in_more_blocks():
    for small, large, blocks in (
        ("sbl-resnet50-256x192", "sbl-resnet101-256x192", (3, 4, 23, 3)),
        ("sbl-resnet50-256x192", "sbl-resnet152-256x192", (3, 8, 36, 3)),
    ):
        added = shapeless(large) - shapeless(small)
        assert not shapeless(small) - shapeless(large)
        assert {re.sub(r"(layer\d)\.\d+\.", r"\1.1.", key) for key in added} <= shapeless(small)
        for stage, count in enumerate(blocks, start=1):
            assert f"layer{stage}.{count - 1}.conv3.weight" in shapeless(large)
            assert f"layer{stage}.{count}.conv3.weight" not in shapeless(large)
    assert shapeless("vitpose-h") - shapeless("vitpose-b") == {
        key.replace("blocks.0.", f"blocks.{block}.")
        for block in range(12, 32)
        for key in shapeless("vitpose-b")
        if "blocks.0." in key
    }


def test_an_unknown_name_is_answered_with_near_ones():
    with pytest.raises(pose2d.UserError, match="hrnet-w32-256x192"):
        pose2d.load("hrnet-w32-256")


def test_a_model_without_embedded_weights_says_where_they_come_from():
    with pytest.raises(pose2d.UserError, match=r"microsoft/human-pose-estimation.*MIT"):
        pose2d.load("sbl-resnet50-256x192")


def test_one_model_is_loaded_without_importing_the_others():
    script = (
        "import sys, pose2d; assert 'torch' not in sys.modules; pose2d.load('movenet-lightning')\n"
    )
    script += "print(*(name for name in sys.modules if name.startswith('pose2d.models.')))"
    imported = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    ).stdout.split()
    assert {name.split(".")[2].split("_")[0] for name in imported} <= {
        "base",
        "cards",
        "checkpoints",
        "convolutions",
        "loading",
        "movenet",
        "plugins",
        "registry",
        "trunk",
    }


@pytest.mark.parametrize("package", [pose2d, ccnet])
def test_tab_completion_shows_the_public_names(package):
    assert dir(package) == sorted(package.__all__)
    assert all(getattr(package, name) is not None for name in package.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = package.nothing
