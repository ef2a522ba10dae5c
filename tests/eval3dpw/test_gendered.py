"""SMPL's files: the truth uses the body of its gender, the prediction the neutral one."""

from pathlib import Path

import numpy as np
import pytest

from eval3dpw.bodies import body_set
from eval3dpw.sequences import camera_params, read_sequence, read_spin_npz
from fitmesh.eval_3dpw import pipeline
from fitmesh.eval_3dpw.eval_settings import EvalSettings
from fitmesh.ui.events import Reporter
from fitting.body.open_body import OPEN_BODY
from pose2d.base.errors import UserError
from tests.eval3dpw import tiny_3dpw

VERTICES, EXTRA = 6890, 90
QUIET = Reporter()


@pytest.fixture(scope="module")
def smpl(tmp_path_factory) -> Path:
    """The open body under SMPL's vertex count and names; men are 10 % larger."""
    folder = tmp_path_factory.mktemp("smpl")
    with np.load(OPEN_BODY) as file:
        arrays = {
            name: file[name]
            for name in ("v_template", "shapedirs", "posedirs", "weights", "kintree_table", "f")
        }
        regressors = {name: file[name] for name in ("J_regressor", "J_regressor_h36m17")}
    arrays = {
        name: value if name in ("kintree_table", "f") else np.concatenate([value, value[-EXTRA:]])
        for name, value in arrays.items()
    }
    arrays["shapedirs"] = arrays["shapedirs"][:, :, :10]
    padded = {name: np.pad(value, ((0, 0), (0, EXTRA))) for name, value in regressors.items()}
    for gender, size in (("NEUTRAL", 1.0), ("MALE", 1.1), ("FEMALE", 1.0)):
        larger = {
            **arrays,
            "v_template": size * arrays["v_template"],
            "J_regressor": padded["J_regressor"],
        }
        np.savez(folder / f"SMPL_{gender}.npz", **larger)
    np.save(folder / "J_regressor_h36m.npy", padded["J_regressor_h36m17"])
    return folder


def predictions(data: Path, smpl: Path, out: Path) -> Path:
    """The true parameters, offered as a prediction."""
    (track,) = read_sequence(data / "sequenceFiles" / "test" / "one_00.pkl").people
    params = camera_params(track, body_set(smpl, smpl / "J_regressor_h36m.npy").load("neutral"))
    count = len(track)
    np.savez(
        out,
        sequence=np.full(count, "one_00"),
        person=np.zeros(count, int),
        frame=track.frame,
        pose=params.pose,
        shape=params.shape.expand(count, -1),
        translation=params.translation,
    )
    return out


def mve(data: Path, smpl: Path, file: Path, protocol: str) -> float:
    settings = EvalSettings(
        data, smpl, smpl / "J_regressor_h36m.npy", predictions=file, protocol=protocol
    )
    (score,) = pipeline.run(settings, file.parent / "out", QUIET).scores.rows.values()
    return float(score["mve_mm"].mean())


def test_a_mans_true_mesh_is_a_mans_except_for_vibe(tmp_path: Path, smpl: Path) -> None:
    data = tiny_3dpw.write(tmp_path / "data", {"one_00": 1})
    file = predictions(data, smpl, tmp_path / "true.npz")
    assert mve(data, smpl, file, "vibe") < 0.01
    assert 30 < mve(data, smpl, file, "spin") < 60  # a tenth of the mean distance from the pelvis
    assert 30 < mve(data, smpl, file, "wham") < 60


def test_a_womans_true_mesh_is_a_womans(tmp_path: Path, smpl: Path) -> None:
    data = tiny_3dpw.write(
        tmp_path / "data", {"one_00": 1}, lambda name, content: content.update(genders=["f"])
    )
    assert mve(data, smpl, predictions(data, smpl, tmp_path / "true.npz"), "spin") < 0.01


def test_smpl_without_the_regressor_names_the_file(tmp_path: Path, smpl: Path) -> None:
    data = tiny_3dpw.write(tmp_path / "data", {"one_00": 1})
    with pytest.raises(UserError, match=r"J_regressor_h36m\.npy .*not shipped.*--regressor"):
        pipeline.run(EvalSettings(data, smpl), tmp_path / "out", QUIET)


def test_spins_file_is_enough_to_fit_and_measure(tmp_path: Path, smpl: Path) -> None:
    data = tiny_3dpw.write(tmp_path / "data", {"one_00": 1})
    (track,) = read_sequence(data / "sequenceFiles" / "test" / "one_00.pkl").people
    params = camera_params(track, body_set(smpl, smpl / "J_regressor_h36m.npy").load("male"))
    count = len(track)
    np.savez(
        data / "3dpw_test.npz",
        imgname=[f"imageFiles/one_00/image_{n:05d}.jpg" for n in track.frame],
        center=np.tile([80.0, 62.0], (count, 1)),
        scale=np.full(count, 90 * 1.2 / 200),
        pose=params.pose.flatten(1),
        shape=params.shape.expand(count, -1),
        gender=np.full(count, "m"),
    )
    assert len(read_spin_npz(data / "3dpw_test.npz")) == 1
    settings = EvalSettings(
        data / "3dpw_test.npz",
        smpl,
        smpl / "J_regressor_h36m.npy",
        pose_model="movenet-lightning",
        confidence=("ccnet",),
        weighting=("precision",),
    )
    outcome = pipeline.run(settings, tmp_path / "out", QUIET)
    assert (outcome.scores.names, len(outcome.scores)) == (("one_00",), count)
    assert outcome.scores.rows["+ CCNet precision"]["pa_mpjpe_mm"].mean() < 150
