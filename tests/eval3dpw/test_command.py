"""`fitmesh eval-3dpw` from a folder to its table."""

import csv
import json
import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from typer.testing import CliRunner

from eval3dpw.bodies import H36M_14, _read_regressor, body_set
from eval3dpw.sequences import camera_params, image_path
from fitmesh.cli import app
from fitmesh.eval_3dpw import fits, pipeline
from fitmesh.eval_3dpw.eval_settings import EvalSettings, Row
from fitmesh.eval_3dpw.keypoints import KeypointEstimator
from fitmesh.eval_3dpw.sequences import eval_sequences
from fitmesh.ui.events import Reporter
from fitting.body.load import load_body
from pose2d.base.errors import UserError
from pose2d.skeletons import COCO17
from tests.eval3dpw import tiny_3dpw

QUIET = Reporter()
WRONG = "weights of another network"  # a file that the test makes


def stored(data: Path, **others) -> EvalSettings:
    """Exact keypoints from the data: fast, and the truth can be found."""
    return EvalSettings(data, keypoints_from="poses2d", confidence=("raw",), **others)


def test_exact_keypoints_give_the_table_with_counts(tmp_path: Path) -> None:
    data = tiny_3dpw.write(tmp_path / "data")
    out = tmp_path / "out"
    arguments = [
        "--data",
        data,
        "--keypoints-from",
        "poses2d",
        "--confidence",
        "raw",
        "--out",
        out,
        "--quiet",
    ]
    result = CliRunner().invoke(app, ["eval-3dpw", *map(str, arguments)], catch_exceptions=False)
    assert result.exit_code == 0
    assert "18 person-frames in 2 sequences" in " ".join(result.output.split())
    found = json.loads((out / "eval-3dpw.json").read_text())
    assert (found["person_frames"], found["sequences"], found["left_out"]) == (18, 2, [])
    row = found["rows"]["+ raw confidence"]
    assert row["mean"]["pa_mpjpe_mm"]["value"] < 80
    with (out / "eval-3dpw.csv").open() as file:
        lines = [line for line in csv.DictReader(file) if line["row"] == "+ raw confidence"]
    assert [line["sequence"] for line in lines] == ["one_00", "two_00", "all"]
    mean = sum(float(line["mpjpe_mm"]) * int(line["person_frames"]) for line in lines[:2]) / 18
    assert float(lines[2]["mpjpe_mm"]) == pytest.approx(mean, abs=1e-3)


def test_the_network_and_ccnet_read_the_images(tmp_path: Path) -> None:
    data = tiny_3dpw.write(tmp_path / "data", {"one_00": 1})
    out = tmp_path / "out"
    settings = EvalSettings(data, pose_model="movenet-lightning")
    outcome = pipeline.run(settings, out, QUIET)
    assert list(outcome.scores.rows) == [
        "start (lifter)",
        "+ raw confidence",
        "+ CCNet confidence",
        "+ CCNet likelihood",
    ]
    assert len(outcome.scores) == tiny_3dpw.FRAMES
    assert all(score["pa_mpjpe_mm"].mean() < 100 for score in outcome.scores.rows.values())


def test_rows_share_a_start_and_stay_there_if_they_trust_nothing(tmp_path: Path) -> None:
    data = tiny_3dpw.write(tmp_path / "data", {"one_00": 1})
    rows = (("raw", Row("raw", "confidence")), ("nothing", Row("raw", "gate", gate=0.95)))
    outcome = pipeline.run(stored(data, init="lifter", named_rows=rows), tmp_path / "out", QUIET)
    scores = outcome.scores.rows
    assert list(scores) == ["start (lifter)", "raw", "nothing"]
    np.testing.assert_array_equal(scores["nothing"]["mve_mm"], scores["start (lifter)"]["mve_mm"])
    assert scores["raw"]["mve_mm"].mean() != scores["nothing"]["mve_mm"].mean()
    assert outcome.base == "raw"


def test_the_oracle_is_the_true_oks(tmp_path: Path) -> None:
    data = tiny_3dpw.write(tmp_path / "data", {"one_00": 1})
    settings = EvalSettings(data, pose_model="movenet-lightning", confidence=("oracle",))
    (sequence,) = eval_sequences(settings, [])
    (found,) = KeypointEstimator(settings).estimate(sequence, body_set(), lambda count: None)
    body = load_body()
    track = sequence.tracks[0]
    true = sequence.camera.project(body.at(camera_params(track, body)).keypoints[:, :17]).numpy()
    away2 = ((found.xy_px - true) ** 2).sum(-1)
    l2 = (2 * np.array(COCO17.oks_sigma)) ** 2 * found.area_px2[:, None]
    np.testing.assert_allclose(
        found.by_source["oracle"].confidence, np.exp(-away2 / 2 / l2), atol=1e-4
    )
    assert (found.by_source["oracle"].presence == 1).all()


def test_bad_sequences_are_counted_and_the_rest_goes_on(tmp_path: Path) -> None:
    def damage(name: str, content: dict) -> None:
        if name == "blind_00":
            content["campose_valid"] = [np.zeros(tiny_3dpw.FRAMES)]
        if name == "lens_00":
            content["cam_intrinsics"] = np.zeros((3, 3))
        if name == "half_00":
            content["campose_valid"] = [np.array([1, 1, 0, 0, 1, 1])]

    names = ("good_00", "blind_00", "lens_00", "half_00", "broken_00", "evil_00")
    data = tiny_3dpw.write(tmp_path / "data", dict.fromkeys(names, 1), damage)
    files = data / "sequenceFiles" / "test"
    (files / "broken_00.pkl").write_bytes((files / "broken_00.pkl").read_bytes()[:500])
    (files / "evil_00.pkl").write_bytes(pickle.dumps({"poses": _Runs()}))
    outcome = pipeline.run(stored(data), tmp_path / "out", QUIET)
    assert outcome.scores.names == ("good_00", "half_00")
    assert len(outcome.scores) == 6 + 4
    why = {one.sequence: (one.why, one.frames, one.whole) for one in outcome.skipped}
    assert why["blind_00"] == ("no frame has a valid camera", 6, True)
    assert why["lens_00"] == ("no valid camera intrinsics", 6, True)
    assert why["half_00"] == ("no valid camera", 2, False)
    assert "not a readable pickle" in why["broken_00"][0]
    assert "was refused" in why["evil_00"][0]


class _Runs:
    def __reduce__(self):
        return (print, ("code ran",))


def test_missing_and_broken_images_are_counted(tmp_path: Path) -> None:
    data = tiny_3dpw.write(tmp_path / "data", {"one_00": 1})
    image_path(data, "one_00", 1).unlink()
    image_path(data, "one_00", 4).write_bytes(b"no image")
    settings = EvalSettings(
        data, pose_model="movenet-lightning", confidence=("raw",), weighting=("ones",)
    )
    outcome = pipeline.run(settings, tmp_path / "out", QUIET)
    assert next(iter(outcome.scores.rows.values()))["frame"].tolist() == [0, 2, 3, 5]
    assert {(one.why, one.frames) for one in outcome.skipped} == {
        ("image missing", 1),
        ("image unreadable", 1),
    }


def test_a_person_of_whom_nothing_was_seen_is_left_out_and_counted(tmp_path: Path) -> None:
    def hide(name: str, content: dict) -> None:
        content["poses2d"][1][:, 2] = 0

    data = tiny_3dpw.write(tmp_path / "data", {"two_00": 2}, hide)
    outcome = pipeline.run(stored(data), tmp_path / "out", QUIET)
    assert next(iter(outcome.scores.rows.values()))["person"].tolist() == [0] * 6
    ((why, frames),) = ((one.why, one.frames) for one in outcome.skipped)
    assert frames == 6
    assert "no frame has 4 keypoints with a confidence of" in why


def test_when_nothing_is_left_it_says_why(tmp_path: Path) -> None:
    blind = tiny_3dpw.write(
        tmp_path / "data",
        {"one_00": 1},
        lambda name, content: content.update(campose_valid=[np.zeros(6)]),
    )
    with pytest.raises(UserError, match="could be measured: no frame has a valid camera"):
        pipeline.run(stored(blind), tmp_path / "out", QUIET)


def test_a_second_run_makes_nothing_anew_and_a_changed_one_only_what_changed(
    tmp_path: Path, monkeypatch
) -> None:
    data = tiny_3dpw.write(tmp_path / "data", {"one_00": 1})
    out = tmp_path / "out"
    first = pipeline.run(stored(data), out, QUIET)
    monkeypatch.setattr(pipeline, "stored_keypoints", _must_not_run)
    monkeypatch.setattr(fits, "fit_person", _must_not_run)
    second = pipeline.run(stored(data), out, QUIET)
    label = "+ raw confidence"
    np.testing.assert_array_equal(
        first.scores.rows[label]["mpjpe_mm"], second.scores.rows[label]["mpjpe_mm"]
    )
    other = pipeline.run(
        stored(data, protocol="challenge"), out, QUIET
    )  # another score of the same fits
    assert not np.array_equal(
        first.scores.rows[label]["mpjpe_mm"], other.scores.rows[label]["mpjpe_mm"]
    )
    with pytest.raises(AssertionError, match="ran again"):
        pipeline.run(stored(data, weighting=("squared",)), out, QUIET)


def _must_not_run(*_: object) -> None:
    raise AssertionError("ran again")


def test_every_second_frame_of_one_sequence(tmp_path: Path) -> None:
    data = tiny_3dpw.write(tmp_path / "data")
    outcome = pipeline.run(stored(data, sequences=("two_00",), every=2), tmp_path / "out", QUIET)
    assert outcome.scores.names == ("two_00",)
    _, score = outcome.scores.rows.values()  # after the start
    assert score["frame"].tolist() == [0, 2, 4, 0, 2, 4]


def test_what_a_run_found_can_be_scored_again_as_predictions(tmp_path: Path) -> None:
    data = tiny_3dpw.write(tmp_path / "data", {"one_00": 1})
    out = tmp_path / "out"
    first = pipeline.run(stored(data), out, QUIET)
    (file,) = (path for path in (out / "predictions").glob("*.npz") if "start" not in path.name)
    again = pipeline.run(EvalSettings(data, predictions=file), out, QUIET)
    _, a = first.scores.rows.values()
    (b,) = again.scores.rows.values()
    np.testing.assert_allclose(a["mve_mm"], b["mve_mm"], atol=1e-3)


def test_the_truth_as_predictions_has_no_error_and_missing_ones_are_counted(tmp_path: Path) -> None:
    data = tiny_3dpw.write(tmp_path / "data", {"one_00": 1})
    actor = tiny_3dpw.actor(0)
    mesh = tiny_3dpw.true_mesh(actor)
    joints = body_set(None, None).regressor @ mesh
    np.savez(
        tmp_path / "found.npz",
        sequence=np.full(5, "one_00"),
        person=np.zeros(5, int),
        frame=np.arange(5),
        joints=joints[:5, H36M_14],
        pelvis=joints[:5, 0],
        vertices=mesh[:5],
    )
    outcome = pipeline.run(
        EvalSettings(data, predictions=tmp_path / "found.npz"), tmp_path / "out", QUIET
    )
    (score,) = outcome.scores.rows.values()
    assert len(score["frame"]) == 5
    assert max(score["mpjpe_mm"].max(), score["mve_mm"].max()) < 0.05
    assert [(one.why, one.frames) for one in outcome.skipped] == [("no prediction", 1)]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"init": "spin"}, "needs its network's weights"),
        ({"init": "magic"}, "unknown initialiser 'magic'"),
        ({"weighting": ("half",)}, "unknown weighting 'half'"),
        ({"every": 0}, "--every must be between 1 and"),
        ({"keypoints_from": "poses2d"}, "has its own confidence only"),
        ({"protocol": "pare"}, "unknown protocol 'pare'"),
        ({"split": "train"}, "has no split 'train'"),
        (
            {"confidence": ("raw",), "weighting": ("precision",)},
            "precision needs calibrated confidence",
        ),
        ({"confidence": ("raw", "raw-heatmap")}, "one score"),
        (
            {
                "pose_model": "sbl-resnet50-256x192",
                "confidence": ("raw",),
                "pose_checkpoint": WRONG,
            },
            "does not fit",
        ),
        ({"init": "spin", "checkpoint": WRONG}, "does not fit"),
        ({"ccnet": WRONG}, "not a calibration head"),
    ],
)
def test_a_mistake_in_the_settings_is_told_before_any_work(tmp_path: Path, settings, words) -> None:
    data = tiny_3dpw.write(tmp_path / "data", {"one_00": 1})
    save_file({"conv1.weight": torch.zeros(2, 3)}, tmp_path / "wrong.safetensors")
    settings = {
        key: tmp_path / "wrong.safetensors" if value == WRONG else value
        for key, value in settings.items()
    }
    with pytest.raises(UserError, match=words):
        pipeline.run(EvalSettings(data, **settings), tmp_path / "out", QUIET)
    assert not (tmp_path / "out").exists()


def test_a_source_that_cannot_have_the_weighting_is_weighted_otherwise_and_that_is_said(
    capsys, tmp_path
) -> None:
    settings = EvalSettings(tmp_path, confidence=("raw", "ccnet"), weighting=("precision",))
    settings.check()
    assert list(settings.rows()) == ["+ raw confidence", "+ CCNet precision"]
    assert settings.replaced == ["raw"]
    data = tiny_3dpw.write(tmp_path / "data", {"one_00": 1})
    pipeline.run(
        replace(settings, data=data, pose_model="movenet-lightning"), tmp_path / "out", QUIET
    )
    assert (
        "raw is not calibrated, so it is weighted by `confidence`, not by precision"
        in capsys.readouterr().err
    )


def test_a_body_without_joints_of_its_own_asks_for_the_regressor_by_name(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"J_regressor_h36m\.npy .*not shipped.*--regressor"):
        _read_regressor(None, load_body())
    np.save(tmp_path / "wrong.npy", np.zeros((17, 5)))
    with pytest.raises(UserError, match=r"wrong\.npy holds float64 \[17, 5\]"):
        _read_regressor(tmp_path / "wrong.npy", load_body())
