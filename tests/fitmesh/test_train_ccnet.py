import json
import sys
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

import ccnet
import pose2d
from ccnet.data.datasets import read_split
from fitmesh.cli import app
from fitmesh.coco.train_ccnet import worse_than_untrained
from pose2d.base.errors import UserError
from tests.ccnet.toy import toy_model, write_coco

IMAGES = (
    "reliability.png",
    "precision_recall.png",
    "confidence_vs_oks.png",
    "sparsification.png",
    "occlusion.png",
)


@pytest.fixture
def toy(monkeypatch):
    """The commands see one more model."""
    load = pose2d.load
    monkeypatch.setattr(
        pose2d, "load", lambda name, checkpoint=None: toy_model() if name == "toy" else load(name)
    )


@pytest.fixture
def data(tmp_path):
    write_coco(tmp_path / "data", "train2017", count=8)
    write_coco(tmp_path / "data", "val2017", count=5, seed=1)
    return tmp_path / "data"


def call(*arguments: object) -> str:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if result.exception is not None:
        raise result.exception
    return result.output


@pytest.mark.slow
def test_training_leaves_a_head_its_figures_and_images(toy, data, tmp_path):
    out = tmp_path / "out"
    options = ("--model", "toy", "--data", data, "--out", out, "--epochs", 2, "--batch", 4)
    said = " ".join(call("train-ccnet", *options).split())
    assert (
        f"the head is {out}/ccnet.safetensors; use it: fitmesh run --pose-model toy --ccnet" in said
    )
    assert "trained on 16 people: a head needs about 2,000" in said
    head = ccnet.load(out)
    ccnet.check_fits(head, toy_model(), "toy")
    metrics = json.loads((out / "metrics.json").read_text())["test"]
    assert metrics["split"] == "val2017"
    assert set(metrics["sources"]) == {"ones", "raw", "raw-mean", "closed-form", "ccnet", "oracle"}
    assert metrics["sources"]["oracle"]["exact_ap"] == pytest.approx(
        metrics["sources"]["oracle"]["ar"]
    )
    assert all((out / "test" / name).stat().st_size > 5000 for name in IMAGES)
    hidden = metrics["occlusion"]
    assert set(hidden["confidence"]) == {"raw", "ccnet"}
    assert (
        len(hidden["oks"])
        == len(hidden["patch_side_per_person_size"])
        == len(hidden["confidence"]["ccnet"])
    )
    assert 0 < hidden["people"] <= metrics["people"]
    before = (out / "ccnet.safetensors").read_bytes()
    call("train-ccnet", *options)
    assert (out / "ccnet.safetensors").read_bytes() == before

    told = call(
        "eval-coco", "--model", "toy", "--data", data, "--head", out, "--out", tmp_path / "eval"
    )
    assert "ccnet" in told
    again = json.loads((tmp_path / "eval" / "metrics.json").read_text())["sources"]
    for source in ("raw", "oracle"):
        assert again[source]["ap"] == pytest.approx(metrics["sources"][source]["ap"])
    assert again["ccnet"]["keypoint"]["ece"] == pytest.approx(
        metrics["sources"]["ccnet"]["keypoint"]["ece"], abs=2e-3
    )


@pytest.mark.slow
def test_the_closed_form_is_fitted_where_no_features_are_kept_too(toy, data, tmp_path):
    options = (
        "--model",
        "toy",
        "--data",
        data,
        "--epochs",
        1,
        "--recipe",
        "paper",
        "--no-occlusion-test",
    )
    found = []
    for gigabytes in (1, 0):
        out = tmp_path / str(gigabytes)
        call("train-ccnet", *options, "--out", out, "--cache-gb", gigabytes)
        found.append(ccnet.load(out).about)
    assert found[1].area_share == pytest.approx(found[0].area_share, rel=1e-3)
    assert found[1].target_cells == pytest.approx(found[0].target_cells, rel=1e-2)
    assert found[0].kind == "conv"


def test_boxes_may_come_from_a_detection_file(toy, data, tmp_path):
    people = read_split(data, "val2017").people
    rows = [
        {
            "image_id": p.image_id,
            "category_id": 1,
            "bbox": [p.box_px[0], p.box_px[1], 49, 49],
            "score": 0.9,
        }
        for p in people
    ]
    (tmp_path / "boxes.json").write_text(json.dumps(rows))
    out = tmp_path / "eval"
    call(
        "eval-coco",
        "--model",
        "toy",
        "--data",
        data,
        "--boxes",
        tmp_path / "boxes.json",
        "--out",
        out,
    )
    found = json.loads((out / "metrics.json").read_text())["sources"]
    assert found["oracle"]["person"]["samples"] == len(people)
    assert found["raw"]["keypoint"] is None  # nobody knows whose a detected box is


@pytest.mark.parametrize(
    ("command", "extra", "says"),
    [
        ("train-ccnet", ("--train", "nothing2017"), "no annotations at"),
        ("train-ccnet", ("--loss", "magic"), "unknown loss"),
        ("train-ccnet", ("--head", "fc"), "does not fit"),
        ("eval-coco", ("--boxes", "magic"), "unknown boxes"),
        ("eval-coco", ("--confidence", "magic"), "unknown confidence"),
        ("eval-coco", ("--confidence", "ccnet"), "no calibration head for toy"),
        ("eval-coco", ("--head", "movenet-thunder"), "trained for movenet-thunder, not for toy"),
    ],
)
def test_mistakes_are_told_in_words(toy, data, tmp_path, command, extra, says):
    out = ("--out", tmp_path / "out") if command == "train-ccnet" else ()
    with pytest.raises(UserError, match=says):
        call(command, "--model", "toy", "--data", data, *out, *extra)


def test_a_head_that_is_worse_than_what_needs_no_training_is_named():
    def figures(ece):
        return {"keypoint": {"ece": ece}, "person": {"ece": 0.0}}

    def told(raw, closed_form, mine):
        found = {"raw": figures(raw), "closed-form": figures(closed_form), "ccnet": figures(mine)}
        return worse_than_untrained(SimpleNamespace(split="val2017", figures=found))

    assert told(0.25, 0.038, 0.01) == []
    (text,) = told(0.25, 0.038, 0.05)
    assert "worse than closed-form: ECE 0.050 against 0.038" in text
    assert len(told(0.03, 0.038, 0.05)) == 2


def test_plots_without_matplotlib_are_refused_before_the_work(toy, data, tmp_path, monkeypatch):
    monkeypatch.delitem(sys.modules, "ccnet.plots", raising=False)
    monkeypatch.delattr(ccnet, "plots", raising=False)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(UserError, match=r"fitmesh\[plots\]"):
        call("eval-coco", "--model", "toy", "--data", data, "--out", tmp_path / "eval")
    assert not (tmp_path / "eval").exists()
    assert "oracle" in call("eval-coco", "--model", "toy", "--data", data)  # figures need none
