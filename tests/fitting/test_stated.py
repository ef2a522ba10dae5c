"""What is stated is what happens, and what cannot be known is not stated."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from bench.lib.stated_people import NEUTRAL
from eval3dpw import stated as measures
from eval3dpw.stated import Stated
from fitting import stated
from fitting.body.load import load_body
from fitting.camera import Camera
from fitting.fits import TrackFit
from fitting.stated import COUNTED, calibrate, level_factor, probability_within
from fitting.track import fit_track
from pose2d.types import Keypoints
from tests.walkers import walker


@pytest.fixture(scope="module")
def raw() -> TrackFit:
    """A fit whose deviations are those of Gauss-Newton."""
    xy_px = torch.from_numpy(walker(12, (1280, 960), -0.5).keypoints_px)
    ones = torch.ones(12, 17)
    keypoints = Keypoints(xy_px, 0.95 * ones, ones, "ccnet", torch.full((12,), 5e4))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stated, "stated_errors", lambda: NEUTRAL)
        return fit_track(keypoints, np.arange(12), Camera.default((1280, 960)), fps=30.0)


def test_a_hidden_joint_is_stated_to_be_further_off_than_the_same_joint_seen(raw: TrackFit) -> None:
    seen = replace(raw, joint_observed=np.ones_like(raw.joint_observed))
    hidden = replace(raw, joint_observed=np.zeros_like(raw.joint_observed))
    a, b = (
        calibrate(one, None, load_body(), False, 30.0).fit.joint_std_relative_mm
        for one in (seen, hidden)
    )
    assert a is not None
    assert b is not None
    assert float(b[:, COUNTED].norm(dim=-1).mean()) > float(a[:, COUNTED].norm(dim=-1).mean())


def test_deviations_are_wider_than_gauss_newton_and_finite(raw: TrackFit) -> None:
    found = calibrate(raw, None, load_body(), False, 30.0)
    std = found.fit.joint_std_relative_mm
    before = raw.fit.joint_std_relative_mm
    assert std is not None
    assert before is not None
    assert torch.isfinite(std).all()
    assert float((std / before)[:, COUNTED].median()) > 1
    assert found.worst_error_mm is not None
    assert (found.worst_error_mm > std[:, COUNTED].norm(dim=-1).numpy().mean(1)).all()


def test_an_exponent_below_one_draws_deviations_towards_the_reference(raw: TrackFit) -> None:
    table = replace(NEUTRAL, exponent=np.full((2, 2), 0.5), reference_mm=np.full((2, 2), 40.0))
    found = calibrate(raw, None, load_body(), False, 30.0, table).fit
    for std, before in (
        (found.joint_std_mm, raw.fit.joint_std_mm),
        (found.joint_std_relative_mm, raw.fit.joint_std_relative_mm),
    ):
        assert std is not None
        assert before is not None
        torch.testing.assert_close(std, (40 * before).sqrt())


def test_a_fit_that_states_nothing_still_states_nothing(raw: TrackFit) -> None:
    silent = replace(raw, fit=replace(raw.fit, joint_std_mm=None, joint_std_relative_mm=None))
    assert calibrate(silent, None, load_body(), False, 30.0) is silent


def test_the_probability_of_being_within_a_limit_grows_with_the_limit_and_is_half_at_the_median() -> (
    None
):
    worst = np.array([80.0, 200.0])
    chance = [probability_within(worst, limit) for limit in (50.0, 100.0, 200.0, 400.0)]
    assert (np.diff(chance, axis=0) > 0).all()
    assert probability_within(worst, 200.0)[1] == pytest.approx(0.5)


def test_one_deviation_holds_68_percent_and_the_factor_of_a_level_grows_with_it() -> None:
    seen = np.ones((1, 24), bool)
    assert level_factor(stated.ONE_STD, seen, False) == pytest.approx(1.0)
    assert (level_factor(0.95, seen, False) > 1.5).all()
    assert (level_factor(0.5, seen, False) < 0.75).all()


def test_more_frames_a_second_do_not_make_a_joint_better_known(raw: TrackFit) -> None:
    slow, fast = (
        calibrate(raw, None, load_body(), False, fps).fit.joint_std_relative_mm
        for fps in (15.0, 60.0)
    )
    assert slow is not None
    assert fast is not None
    assert bool((fast[:, COUNTED] > slow[:, COUNTED]).all())


# The measures.


def _drawn(frames: int = 4000) -> tuple[np.ndarray, Stated]:
    """Errors that are exactly as stated: t with four degrees of freedom."""
    rng = np.random.default_rng(3)
    std = rng.uniform(10, 200, (frames, 24, 1)) * np.ones(3)
    factor = measures.t.ppf((1 + stated.ONE_STD) / 2, 4)
    error = std / factor * rng.standard_t(4, std.shape)
    widening = np.full(std.shape, measures.t.ppf(0.975, 4) / factor)
    worst = np.linalg.norm(error[:, COUNTED], axis=-1).max(1)
    return error, Stated(std, widening, rng.random((frames, 24)) < 0.5, worst)


def test_errors_that_are_as_stated_are_covered_as_stated_at_every_level() -> None:
    error, said = _drawn()
    found = measures.figures(error, said)
    for level in measures.LEVELS:
        assert found[f"inside_{100 * level:.0f}"] == pytest.approx(level, abs=0.01)
    assert {"seen", "hidden", "knee", "along the line of sight"} <= set(measures.rows(error, said))
    assert found["spearman"] > 0.4
    assert found["best_risk_coverage_mm"] < found["risk_coverage_mm"]


def test_stating_half_of_the_error_covers_less_and_costs_likelihood() -> None:
    error, said = _drawn()
    half = replace(said, std_mm=said.std_mm / 2)
    a = measures.figures(error, said)
    b = measures.figures(error, half)
    assert b["inside_68"] < 0.5 < a["inside_68"]
    assert b["nats"] > a["nats"] + 0.1


def test_a_perfect_order_has_auc_one_and_no_order_one_half() -> None:
    wrong = np.array([False, True, False, True])
    assert measures.roc_auc(wrong, np.array([1.0, 3.0, 2.0, 4.0])) == 1
    assert measures.roc_auc(wrong, np.ones(4)) == 0.5
    assert np.isnan(measures.roc_auc(np.zeros(4, bool), np.ones(4)))


def test_calibration_error_is_the_distance_of_stated_and_true_shares() -> None:
    chance = np.full(1000, 0.8)
    right = np.arange(1000) % 10 < 6
    assert measures.calibration_error(chance, right) == pytest.approx(0.2)
