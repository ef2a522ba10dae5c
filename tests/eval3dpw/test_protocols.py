"""Each protocol's alignment, by bodies with errors computed by hand."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import eval3dpw
from eval3dpw.bodies import Bodies, body_set
from eval3dpw.scoring import PROTOCOLS
from eval3dpw.sequences import TruthTrack
from pose2d.base.errors import UserError
from pose2d.base.resampling import RESAMPLES, clustered_means, draws, interval


@pytest.fixture
def truth() -> Bodies:
    generator = torch.Generator().manual_seed(0)

    def points(count: int) -> torch.Tensor:
        return torch.randn(5, count, 3, generator=generator, dtype=torch.float64)

    joints = points(14)
    return Bodies(
        joints,
        joints[:, 2:4].mean(1) + 0.01,
        points(30),
        points(24),
        points(1)[:, 0],
        torch.zeros(5, dtype=torch.long),
        torch.arange(5),
    )


@pytest.mark.parametrize("name", ["spin", "vibe", "wham", "challenge"])
def test_the_truth_itself_has_no_error(truth, name) -> None:
    report = eval3dpw.evaluate(truth, truth, protocol=name)
    assert (report.frames, report.mpjpe_mm) == (5, 0)
    assert report.pa_mpjpe_mm < 1e-9
    assert report.acceleration_mm == 0
    assert report.mve_mm is None if name == "challenge" else report.mve_mm == 0


def moved(bodies: Bodies, away: float) -> Bodies:
    shift = {
        name: getattr(bodies, name) + away
        for name in ("joints", "pelvis", "vertices", "kinematic", "translation")
    }
    return replace(bodies, **shift)


@pytest.mark.parametrize("name", ["spin", "vibe", "wham", "challenge"])
def test_the_position_of_the_body_is_no_error(truth, name) -> None:
    report = eval3dpw.evaluate(moved(truth, 0.7), truth, protocol=name)
    assert report.mpjpe_mm < 1e-9
    assert not report.mve_mm or report.mve_mm < 1e-9


def test_spin_aligns_joints_and_mesh_at_the_pelvis(truth) -> None:
    off = replace(truth, pelvis=truth.pelvis + torch.tensor([0.03, 0.0, 0.04]))  # 50 mm
    report = eval3dpw.evaluate(off, truth, "spin")
    assert report.mpjpe_mm == pytest.approx(50)
    assert report.mve_mm == pytest.approx(50)
    assert report.pa_mpjpe_mm < 1e-9
    assert eval3dpw.evaluate(off, truth, "wham").mpjpe_mm == 0


def test_wham_aligns_joints_and_mesh_at_the_mid_hips(truth) -> None:
    joints = truth.joints.clone()
    joints[:, 2:4, 0] += (
        0.014  # both hips: the root moves 14 mm, so the other 12 joints are 14 mm off
    )
    report = eval3dpw.evaluate(replace(truth, joints=joints), truth, "wham")
    assert report.mpjpe_mm == pytest.approx(14 * 12 / 14)
    assert report.mve_mm == pytest.approx(14)


def test_vibe_leaves_meshes_where_the_body_model_put_them(truth) -> None:
    joints = truth.joints.clone()
    joints[:, 2:4, 0] += 0.014
    off = replace(
        truth, joints=joints, translation=truth.translation + torch.tensor([0.0, 0.02, 0.0])
    )
    report = eval3dpw.evaluate(off, truth, "vibe")
    assert report.mpjpe_mm == pytest.approx(14 * 12 / 14)
    assert report.mve_mm == pytest.approx(20)


def test_the_challenge_takes_24_joints_from_the_first(truth) -> None:
    kinematic = truth.kinematic.clone()
    kinematic[:, 0, 1] += 0.024
    report = eval3dpw.evaluate(replace(truth, kinematic=kinematic), truth, "challenge")
    assert report.mpjpe_mm == pytest.approx(24 * 23 / 24)


def test_acceleration_counts_even_frames_of_one_track_only(truth) -> None:
    joints = truth.joints.clone()
    joints[2] += 0.001 * torch.tensor(
        [0.0, 0.0, 1.0]
    )  # with the root still: one frame jumps by 1 mm
    off = replace(truth, joints=joints)
    report = eval3dpw.evaluate(off, truth, "spin")
    np.testing.assert_allclose(
        report.per_frame.acceleration_mm, [np.nan, 1, 2, 1, np.nan], atol=1e-9
    )
    gap = replace(truth, frame=torch.tensor([0, 1, 2, 4, 5]))
    report = eval3dpw.evaluate(off, gap, "spin")
    np.testing.assert_allclose(
        report.per_frame.acceleration_mm, [np.nan, 1, np.nan, np.nan, np.nan], atol=1e-9
    )
    two = replace(truth, track=torch.tensor([0, 0, 1, 1, 1]), frame=torch.tensor([0, 1, 0, 1, 2]))
    report = eval3dpw.evaluate(off, two, "spin")
    np.testing.assert_allclose(
        report.per_frame.acceleration_mm, [np.nan, np.nan, np.nan, 1, np.nan], atol=1e-9
    )


def test_what_a_protocol_lacks_is_named(truth) -> None:
    with pytest.raises(UserError, match="spin needs `pelvis`, which the prediction"):
        eval3dpw.evaluate(replace(truth, pelvis=None), truth, "spin")
    with pytest.raises(UserError, match="unknown protocol 'pare'"):
        eval3dpw.evaluate(truth, truth, "pare")
    with pytest.raises(UserError, match=r"joints of the prediction have size \[4, 14, 3\]"):
        eval3dpw.evaluate(truth.rows(slice(4)), truth, "spin")
    with pytest.raises(UserError, match="not finite"):
        eval3dpw.evaluate(replace(truth, joints=truth.joints * torch.nan), truth, "spin")


def track(valid: list[int], confidences: list[list[float]]) -> TruthTrack:
    count = len(valid)
    poses2d = np.zeros((count, 18, 3))
    poses2d[..., 2] = confidences
    return TruthTrack(
        "s",
        0,
        "male",
        np.arange(count),
        np.zeros(10),
        np.zeros((count, 24, 3)),
        np.zeros((count, 3)),
        np.tile(np.eye(4), (count, 1, 1)),
        np.array(valid, bool),
        np.eye(3),
        poses2d,
    )


def test_each_protocol_has_its_own_frames() -> None:
    seen7 = [0.4] * 7 + [0.2] * 11
    seen6 = [0.4] * 6 + [0.2] * 12
    unseen = [0.0] * 18
    frames = track([1, 1, 1, 0], [seen7, seen6, unseen, seen7])
    counts = {name: protocol.counts(frames).tolist() for name, protocol in PROTOCOLS.items()}
    assert counts["spin"] == counts["wham"] == [True, True, True, False]
    assert counts["vibe"] == [True, False, False, False]
    assert counts["challenge"] == [True, True, False, False]
    assert PROTOCOLS["vibe"].truth_body == "neutral"


def test_the_open_body_has_its_own_regressor(tmp_path) -> None:
    bodies = body_set(None, None)
    placed = bodies.place(
        eval3dpw.bodies.BodyParams(torch.zeros(2, 24, 3), torch.zeros(10), torch.zeros(2, 3))
    )
    assert placed.joints.shape == (2, 14, 3)
    hips = placed.joints[0, 2:4]
    assert abs(float(hips[0, 0] + hips[1, 0])) < 1e-5  # a left and a right one
    assert float((hips.mean(0) - placed.pelvis[0]).norm()) < 0.01
    with pytest.raises(UserError, match="Leave it out"):
        body_set(None, tmp_path / "J_regressor_h36m.npy")


def test_resampling_draws_the_same_sequences_for_every_row() -> None:
    sequence = np.repeat([0, 1, 2], [10, 20, 30])
    rng = np.random.default_rng(1)
    raw = rng.normal(50, 5, 60) + 10 * sequence
    counts = draws(3, RESAMPLES)
    gain = interval(
        clustered_means(raw - 2, sequence, counts) - clustered_means(raw, sequence, counts)
    )
    assert gain.value == pytest.approx(-2)
    assert (gain.low, gain.high) == (pytest.approx(-2), pytest.approx(-2))
    assert gain.low > 0 or gain.high < 0
    alone = interval(clustered_means(raw, sequence, counts))
    assert alone.value == pytest.approx(raw.mean())
    assert alone.low < raw.mean() < alone.high
