"""`eval-coco` and `train-ccnet` on small files in the layouts of COCO, MPII and COCO-WholeBody."""

import json
from dataclasses import replace

import cv2
import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from typer.testing import CliRunner

import pose2d
from ccnet.coco_ap.average_precision import TEN_NUMBERS
from ccnet.data.datasets import read_split
from ccnet.heads.files import about_of, load
from ccnet.metrics import keypoint_map, labelled_samples, sparsification
from ccnet.predicted_people import predict_split
from fitmesh.cli import app
from fitmesh.coco import eval_hands
from fitmesh.coco.eval_coco import EvalCocoOptions, run, show
from pose2d.base.errors import UserError
from pose2d.hands import arms_of, hands_in_image
from pose2d.skeletons import MPII16, WHOLEBODY133
from pose2d.types import Detections as Found
from pose2d.types import Keypoints
from pose2d.video.frames import Span
from pose2d.video.video_file import Video
from tests.ccnet.toy import toy_model, write_coco, write_mpii, write_wholebody

SKELETONS = {"toy": pose2d.COCO17, "toy-mpii": MPII16, "toy-wholebody": WHOLEBODY133}


@pytest.fixture(autouse=True)
def toys(monkeypatch):
    """The commands see three more models."""
    monkeypatch.setattr(pose2d, "load", lambda name, checkpoint=None: toy_model(0, SKELETONS[name]))


@pytest.fixture
def coco(tmp_path):
    write_coco(tmp_path / "coco", "train2017", count=8)
    write_coco(tmp_path / "coco", "val2017", count=5, seed=1)
    return tmp_path / "coco"


@pytest.fixture
def mpii(tmp_path):
    write_mpii(tmp_path / "mpii", "train", count=12, head_boxes=False)
    write_mpii(tmp_path / "mpii", "valid", count=6, seed=1)
    return tmp_path / "mpii"


def call(*arguments: object) -> str:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if result.exception is not None:
        raise result.exception
    return result.output


def evaluate(request):
    """The figures; the tables go to stdout."""
    found = run(request)
    show(request, found)
    return found.as_dict()


def metrics(folder):
    return json.loads((folder / "metrics.json").read_text())


@pytest.fixture
def no_plots(monkeypatch):
    monkeypatch.setattr("fitmesh.coco.eval_coco.draw_plots", lambda *_: None)


def test_the_function_returns_what_metrics_json_holds(coco, tmp_path, no_plots):
    request = EvalCocoOptions(coco, "toy", out=tmp_path / "out", occlusion_test=False)
    found = run(request).as_dict()
    written = metrics(tmp_path / "out")
    assert found["sources"]["raw"]["ap"] == written["sources"]["raw"]["ap"]
    assert found.keys() == written.keys()
    assert written["versions"].keys() == {"fitmesh", "torch", "numpy"}
    assert (written["model"], written["head"], written["people"]) == ("toy", None, 10)
    assert len(written["checkpoint_digest"]) == 16
    assert "occlusion" not in written


@pytest.mark.parametrize(
    ("model", "write"), [("toy", write_coco), ("toy-wholebody", write_wholebody)]
)
def test_both_evaluators_give_equal_figures(model, write, tmp_path):
    write(tmp_path, "val2017", count=5, seed=1)
    for path in (
        tmp_path / "annotations"
    ).iterdir():  # the larger a person, the less an error counts
        dataset = json.loads(path.read_text())
        for number, person in enumerate(dataset["annotations"]):
            person["area"] *= 500 * 2.0 ** (number % 3)
        path.write_text(json.dumps(dataset))
    ours, reference = (
        run(EvalCocoOptions(tmp_path, model, evaluator=name)).as_dict()["sources"]
        for name in ("ours", "pycocotools")
    )
    assert 0.05 < ours["raw"]["ap"] < 1
    for source, figures in ours.items():
        for name in (*TEN_NUMBERS, "parts"):
            assert figures[name] == pytest.approx(reference[source][name], abs=1e-12), (
                source,
                name,
            )
    with pytest.raises(
        UserError, match="unknown evaluator 'theirs': choose one of ours, pycocotools"
    ):
        run(EvalCocoOptions(tmp_path, model, evaluator="theirs"))


def test_the_figures_are_on_disk_before_the_occlusion_test(coco, tmp_path, no_plots, monkeypatch):
    def stopped(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("fitmesh.coco.eval_coco.with_occlusion_test", stopped)
    with pytest.raises(KeyboardInterrupt):
        run(EvalCocoOptions(coco, "toy", out=tmp_path))
    assert metrics(tmp_path)["people"] == 10


def test_keypoint_map_is_in_the_table_and_in_the_figures(coco, capsys):
    found = evaluate(EvalCocoOptions(coco, "toy"))
    assert "mAP, keypoint" in capsys.readouterr().out
    predictions = predict_split(toy_model(), None, read_split(coco, "val2017"))
    expected = keypoint_map(predictions.confidence["raw"].keypoint, predictions.keypoint_oks)
    assert found["sources"]["raw"]["keypoint_map"] == pytest.approx(expected, abs=1e-12)


def test_a_table_in_a_pipe_keeps_its_last_column(coco, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    names = ("ones", "raw", "closed-form", "closed-form-annotated", "oracle")
    told = call(
        "eval-coco",
        "--model",
        "toy",
        "--data",
        coco,
        *(x for n in names for x in ("--confidence", n)),
    )
    header = next(line for line in told.splitlines() if "ones" in line)
    assert all(name in header for name in names)


def test_mpii_is_evaluated_on_its_own_split_with_pckh(mpii, capsys):
    found = evaluate(EvalCocoOptions(mpii, "toy-mpii"))
    told = capsys.readouterr().out
    assert "@0.5" in told
    assert "AUSE over PCK, keypoint" in told
    assert (found["split"], found["head_sizes"]) == ("valid", "gt_valid.mat")
    assert set(found["pckh"]) == {"0.5", "0.1", "0.11"}
    split = read_split(mpii, "valid", MPII16)
    predictions = predict_split(toy_model(0, MPII16), None, split)
    right = total = 0
    for person, xy in zip(split.people, predictions.xy_px, strict=True):
        for k, (x, y, v) in enumerate(person.keypoints):
            if v > 0 and MPII16.keypoints[k] not in ("pelvis", "thorax"):
                right += np.hypot(*(xy[k] - (x, y))) <= 0.5 * 12
                total += 1
    assert found["pckh"]["0.5"]["mean"] == pytest.approx(100 * right / total)
    raw = labelled_samples(predictions.confidence["raw"].keypoint, predictions.correct[0.5])
    assert len(raw[1]) == total
    assert found["sources"]["raw"]["pck_keypoint"]["ause"] == pytest.approx(
        sparsification(*raw).ause
    )
    assert found["sources"]["raw"]["pck_keypoint"]["mean_pck"] == pytest.approx(right / total)


def test_without_head_boxes_the_size_of_a_head_is_neck_to_top(mpii):
    split = read_split(mpii, "train", MPII16)
    assert split.head_sizes == "upper neck to head top"
    for person in split.people:
        neck = person.keypoints[8]
        top = person.keypoints[9]
        expected = np.hypot(*(neck - top)[:2]) if neck[2] and top[2] else np.nan
        assert person.head_px == pytest.approx(expected, nan_ok=True)


def test_head_boxes_of_other_people_are_refused(mpii):
    write_mpii(mpii.parent / "other", "valid", count=5)
    (mpii.parent / "other" / "annot" / "gt_valid.mat").rename(mpii / "annot" / "gt_valid.mat")
    with pytest.raises(UserError, match="5 head boxes, expected 6"):
        read_split(mpii, "valid", MPII16)


@pytest.mark.slow
def test_a_head_can_be_calibrated_to_pck(mpii, tmp_path):
    """On the people it was trained on, a head that learns PCK states the share of right keypoints."""
    shares = {}
    for target in ("oks", "pck"):
        out = tmp_path / target
        options = (
            "--target",
            target,
            "--epochs",
            150,
            "--batch",
            12,
            "--augment",
            0,
            "--no-occlusion-test",
        )
        call(
            "train-ccnet",
            "--model",
            "toy-mpii",
            "--data",
            mpii,
            "--out",
            out,
            "--test",
            "train",
            *options,
        )
        assert about_of(load(out)).training["target"] == metrics(out)["target"] == target
        assert metrics(out)["test"]["split"] == "train"
        shares[target] = metrics(out)["test"]["sources"]["ccnet"]["pck_keypoint"]
    assert shares["pck"]["ece"] < 0.1
    assert shares["pck"]["ece"] < shares["oks"]["ece"] / 2
    assert shares["pck"]["mean_confidence"] == pytest.approx(shares["pck"]["mean_pck"], abs=0.05)


@pytest.mark.slow
def test_the_usual_splits_of_mpii_are_its_own(mpii, tmp_path):
    out = tmp_path / "out"
    call(
        "train-ccnet",
        "--model",
        "toy-mpii",
        "--data",
        mpii,
        "--out",
        out,
        "--epochs",
        1,
        "--no-occlusion-test",
    )
    assert about_of(load(out)).training["splits"] == ["train"]
    assert metrics(out)["test"]["split"] == "valid"


def test_pck_is_for_mpii_only(coco, tmp_path):
    with pytest.raises(UserError, match="--target pck is for MPII"):
        call(
            "train-ccnet",
            "--model",
            "toy",
            "--data",
            coco,
            "--out",
            tmp_path / "out",
            "--target",
            "pck",
        )
    with pytest.raises(UserError, match="unknown target 'mpjpe'"):
        call(
            "train-ccnet",
            "--model",
            "toy",
            "--data",
            coco,
            "--out",
            tmp_path / "out",
            "--target",
            "mpjpe",
        )


def test_wholebody_has_the_rows_of_the_paper(tmp_path, capsys):
    write_wholebody(tmp_path, "val2017")
    raw = evaluate(EvalCocoOptions(tmp_path, "toy-wholebody"))["sources"]["raw"]
    told = capsys.readouterr().out
    assert all(row in told for row in ("raw, by person", "raw, by part", "oracle, by part"))
    for parts in (raw["parts"], raw["parts_by_person"]):
        assert parts["hand"] == pytest.approx((parts["lefthand"] + parts["righthand"]) / 2)
        assert parts["wholebody"] == pytest.approx(raw["ap"])


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--confidence", "raw-heatmap"), "toy has one score"),
        (("--confidence", "closed-form-annotated", "--boxes", "yolox-tiny"), "--boxes gt"),
        (("--area-split", "train2017"), "no effect without --confidence closed-form-predicted"),
        (("--confidence", "closed-form-predicted", "--area-split", "nowhere"), "no annotations at"),
    ],
)
def test_options_that_cannot_have_an_effect_are_refused(coco, options, says):
    with pytest.raises(UserError, match=says):
        call("eval-coco", "--model", "toy", "--data", coco, *options)


def test_boxes_of_another_split_and_a_file_as_folder_are_told_before_any_work(
    coco, tmp_path, monkeypatch
):
    monkeypatch.setattr("fitmesh.coco.eval_coco.predict_split", None)  # the work
    boxes = [{"image_id": 99, "category_id": 1, "bbox": [0, 0, 9, 9], "score": 1.0}]
    (tmp_path / "boxes.json").write_text(json.dumps(boxes))
    with pytest.raises(UserError, match=r"boxes.json has no box in any of the 5 images"):
        run(EvalCocoOptions(coco, "toy", boxes=str(tmp_path / "boxes.json")))
    with pytest.raises(UserError, match=r"boxes.json is a file. --out takes a folder"):
        run(EvalCocoOptions(coco, "toy", out=tmp_path / "boxes.json"))


def test_a_checkpoint_of_another_family_is_told_before_the_data_are_read(tmp_path, monkeypatch):
    monkeypatch.undo()
    save_file({"conv1.weight": torch.zeros(2, 3)}, tmp_path / "wrong.safetensors")
    for command in (("eval-coco",), ("train-ccnet", "--out", tmp_path / "out")):
        options = ("--checkpoint", tmp_path / "wrong.safetensors", "--data", tmp_path / "nowhere")
        with pytest.raises(UserError, match=r"wrong.safetensors does not fit sbl-resnet50-256x192"):
            call(*command, "--model", "sbl-resnet50-256x192", *options)
    assert not (tmp_path / "out").exists()


def test_the_closed_form_takes_three_kinds_of_area(coco):
    for split in ("train2017", "val2017"):
        path = coco / "annotations" / f"person_keypoints_{split}.json"
        dataset = json.loads(path.read_text())
        for number, person in enumerate(dataset["annotations"]):
            person["area"] = 1000.0 + 100 * number
        path.write_text(json.dumps(dataset))
    kinds = ("closed-form", "closed-form-predicted", "closed-form-annotated")
    found = run(EvalCocoOptions(coco, "toy", confidence=kinds)).figures
    assert set(kinds) <= set(found)
    assert len({found[kind]["keypoint"]["mean_confidence"] for kind in kinds}) == 3
    (coco / "annotations" / "person_keypoints_train2017.json").unlink()
    with pytest.raises(UserError, match="has no train2017: pass --area-split"):
        run(EvalCocoOptions(coco, "toy", confidence=kinds))


def test_hands_of_wholebody_are_measured_with_the_embedded_network(
    tmp_path, shared, monkeypatch, capsys
):
    """A made-up file of one image, whose right hand is annotated where the network sees it and
    whose left is not.
    """
    elbow = (370.0, -95.0)
    wrist = (477.0, 132.0)
    rgb = next(iter(Video(shared / "data/hands/cam0_test.mp4").frames(Span(7.33)))).rgb
    (tmp_path / "val2017").mkdir()
    cv2.imwrite(str(tmp_path / "val2017" / "1.png"), rgb[:, :, ::-1])
    xy = np.full((1, 17, 2), 10.0)
    sure = np.zeros((1, 17))
    xy[:, 8] = elbow
    xy[:, 10] = wrist
    sure[:, [8, 10]] = 0.8
    keypoints = Keypoints(xy, sure, np.ones_like(sure), "raw")
    monkeypatch.setattr(eval_hands, "estimate_people", lambda *given: (given[-1], None))
    monkeypatch.setattr(eval_hands, "confidence_function", lambda *given: lambda seen: keypoints)
    arm = arms_of(
        replace(
            Found.in_frame(0, 0.0, np.array([[0.0, 0, 720, 720]]), np.ones(1)), keypoints=keypoints
        )
    )
    seen = hands_in_image(rgb, arm.rows(np.array([1])), np.full((1, 21, 2), np.nan)).xy_px[0]
    hand = np.column_stack([seen, np.full(21, 2)]).ravel().tolist()
    person = {
        "id": 1,
        "image_id": 1,
        "category_id": 1,
        "iscrowd": 0,
        "area": 3e5,
        "bbox": [0, 0, 720, 720],
        "num_keypoints": 1,
        "keypoints": [*[0] * 30, *wrist, 2, *[0] * 18],
        "foot_kpts": [0] * 18,
        "face_kpts": [0] * 204,
        "lefthand_kpts": [0] * 63,
        "righthand_kpts": hand,
    }
    content = {
        "images": [{"id": 1, "file_name": "1.png", "width": 720, "height": 720}],
        "annotations": [person],
        "categories": [{"id": 1, "name": "person"}],
    }
    (tmp_path / "annotations").mkdir()
    (tmp_path / "annotations" / "coco_wholebody_val_v1.0.json").write_text(json.dumps(content))
    measured = eval_hands.run_hands(
        EvalCocoOptions(tmp_path, "toy", hands=True, out=tmp_path / "out")
    )
    assert measured["righthand"]["found"] == measured["righthand"]["hands"] == 1
    assert measured["righthand"]["ap"] > 0.99
    assert measured["righthand"]["within_1_std"] == 1
    assert measured["lefthand"]["hands"] == 0
    assert "righthand" in capsys.readouterr().out
    assert metrics(tmp_path / "out")["hands"]["righthand"] == measured["righthand"]
