"""From a track's keypoints to a body: gaps, side swaps, starts; long tracks in windows with one
shape and no seam.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch

import fitting
from fitting.fits import FitInput
from fitting.init.lifter import guess_from_keypoints
from fitting.keypoints.usable import TooFewKeypoints, check_body_keypoints
from fitting.track import fit_track, prepare_track
from fitting.windows import _split_windows, fit_windows
from pose2d.base.errors import UserError
from pose2d.types import Keypoints
from tests.walkers import walker

SIZE = (1280, 960)


def seen(frames: int) -> Keypoints:
    xy_px = torch.from_numpy(walker(frames, SIZE, -0.5).keypoints_px)
    noise = torch.randn(xy_px.shape, generator=torch.Generator().manual_seed(0))
    everywhere = torch.ones(frames, 17)
    return Keypoints(
        xy_px + 2 * noise, 0.95 * everywhere, everywhere, "ccnet", torch.full((frames,), 5e4)
    )


def test_pieces_fit_as_well_as_the_whole_and_meet_without_a_seam() -> None:
    known = seen(100)
    camera = fitting.Camera.default(SIZE)
    body = fitting.load_body()
    whole = fitting.fit(known, camera, body, fps=25)
    usable = torch.ones(100, dtype=torch.bool)
    guess = guess_from_keypoints(known, [camera], body, 25)
    windows = fit_windows(
        FitInput(check_body_keypoints(known), guess), usable, camera, body, 25, sizes=(40, 8)
    )
    assert windows.params.shape.shape == whole.params.shape.shape == (10,)
    assert windows.params.pose.shape == (100, 24, 3)
    assert float(windows.reprojection_px.nanmean()) < 1.1 * float(whole.reprojection_px.nanmean())
    joints = [body.at(fit.params).joints for fit in (whole, windows)]
    relative = [j - j[:, :1] for j in joints]
    assert float((relative[0] - relative[1]).norm(dim=-1).mean()) < 0.03
    step = [j.diff(dim=0).norm(dim=-1).amax(1) for j in joints]
    assert float(step[1].max()) < 1.5 * float(step[0].max()) + 0.005
    assert windows.joint_std_mm is not None
    assert whole.joint_std_mm is not None
    ratio = windows.joint_std_mm.mean() / whole.joint_std_mm.mean()
    assert 0.5 < float(ratio) < 2


def test_a_short_track_is_solved_as_ever() -> None:
    known = seen(5)
    camera = fitting.Camera.default(SIZE)
    body = fitting.load_body()
    whole = fitting.fit(known, camera, body, fps=25)
    same = fit_track(known, np.arange(5), camera, body, fps=25)
    torch.testing.assert_close(same.fit.params.pose, whole.params.pose, rtol=0, atol=0)


def test_a_segment_where_nothing_was_seen_joins_its_neighbour() -> None:
    shown = torch.ones(100, dtype=torch.bool)
    shown[30:72] = False
    assert [(p.start, p.stop) for p in _split_windows(shown, 25)] == [
        (0, 25),
        (25, 50),
        (50, 75),
        (75, 100),
    ]
    shown[25:75] = False
    assert [(p.start, p.stop) for p in _split_windows(shown, 25)] == [(0, 25), (25, 100)]
    shown[50:] = False
    shown[:20] = False
    assert [(p.start, p.stop) for p in _split_windows(shown, 25)] == [(0, 100)]


def test_gaps_lie_on_the_grid_and_are_filled() -> None:
    given = seen(12)
    camera = fitting.Camera.default(SIZE)
    kept = np.array([0, 1, 2, 3, 7, 8, 9, 10, 11])
    found = fit_track(given.rows(kept), 100 + 2 * kept, camera, fps=25, every=2)
    np.testing.assert_array_equal(found.frame, np.arange(100, 124, 2))
    np.testing.assert_array_equal(found.detected, np.isin(np.arange(12), kept))
    np.testing.assert_array_equal(found.fit.observed.numpy(), found.detected)
    np.testing.assert_array_equal(
        np.isnan(found.keypoints.xy_px.numpy()).all((1, 2)), ~found.detected
    )
    assert not found.keypoints.presence[~found.detected].any()
    assert not found.joint_observed[~found.detected].any()
    assert found.joint_observed[found.detected].all()
    np.testing.assert_array_equal(found.index(np.array([102, 114])), [1, 7])
    with pytest.raises(KeyError):
        found.index(np.array([103]))


def test_rows_without_a_finite_pixel_are_gaps() -> None:
    given = seen(9)
    camera = fitting.Camera.default(SIZE)
    blank = given.xy_px.clone()
    blank[4] = torch.nan
    holes = fit_track(replace(given, xy_px=blank), np.arange(9), camera)
    left_out = np.delete(np.arange(9), 4)
    gaps = fit_track(given.rows(left_out), left_out, camera)
    assert not holes.detected[4]
    torch.testing.assert_close(holes.fit.params.pose, gaps.fit.params.pose, rtol=0, atol=0)


def test_a_shared_start_gives_what_the_initialiser_by_name_gives() -> None:
    given = seen(20)
    camera = fitting.Camera.default(SIZE)
    frame = np.delete(np.arange(22), [5, 6])
    start = prepare_track(given, frame, camera, fitting.load_body(), "lifter", fps=25).guess
    assert len(start) == 22
    by_name = fit_track(given, frame, camera, fps=25)
    shared = fit_track(given, frame, camera, init=start, fps=25)
    torch.testing.assert_close(shared.fit.params.pose, by_name.fit.params.pose, rtol=0, atol=0)
    per_row = fit_track(
        given, frame, camera, init=start.rows(np.flatnonzero(by_name.detected)), fps=25
    )
    nearest = start.rows(np.array([0, 1, 2, 3, 4, 4, 7, *range(7, 22)]))
    expected = fit_track(given, frame, camera, init=nearest, fps=25)
    torch.testing.assert_close(per_row.fit.params.pose, expected.fit.params.pose, rtol=0, atol=0)


def test_side_swaps_are_repaired() -> None:
    given = seen(30)
    camera = fitting.Camera.default(SIZE)
    xy_px = given.xy_px.clone()
    pair = [13, 14, 15, 16]  # knees and ankles
    xy_px[12, pair] = given.xy_px[12, [14, 13, 16, 15]]
    flickering = replace(given, xy_px=xy_px)
    apart = bool(((given.xy_px[12, 13] - given.xy_px[12, 14]).norm() > 20).item())
    assert apart, "the legs must be apart for a swap to be seen"
    repaired = fit_track(flickering, np.arange(30), camera)
    np.testing.assert_array_equal(np.flatnonzero(repaired.swapped.any(1)), [12])
    np.testing.assert_array_equal(np.flatnonzero(repaired.swapped[12, :17]), pair)
    torch.testing.assert_close(repaired.keypoints.xy_px[:, :17], given.xy_px.float())


def test_nothing_to_fit_and_frame_numbers_off_the_grid_are_named() -> None:
    given = seen(4)
    camera = fitting.Camera.default(SIZE)
    nobody = replace(given, presence=torch.zeros(4, 17))
    with pytest.raises(TooFewKeypoints, match="no frame has 4 keypoints"):
        fit_track(nobody, np.arange(4), camera)
    for frame, every in (([0, 1, 1, 2], 1), ([0, 2, 3, 4], 2), ([3, 2, 1, 0], 1)):
        with pytest.raises(UserError, match="increase by multiples of every"):
            fit_track(given, np.array(frame), camera, every=every)
    with pytest.raises(UserError, match="4 rows of keypoints"):
        fit_track(given, np.arange(3), camera)


def test_a_long_absence_has_no_body_and_is_not_solved(monkeypatch: pytest.MonkeyPatch) -> None:
    import fitting.windows

    solved: list[int] = []
    fit = fitting.windows.fit_jointly

    def counted(given: FitInput, *args: object) -> "fitting.Fit":
        solved.append(len(given))
        return fit(given, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(fitting.windows, "fit_jointly", counted)
    given = seen(40)
    camera = fitting.Camera.default(SIZE)
    body = fitting.load_body()
    frame = np.concatenate([np.arange(20), np.arange(920, 940)])  # away for 30 s
    found = fit_track(given, frame, camera, body, fps=30)
    assert solved == [40]
    assert len(found.frame) == 940
    np.testing.assert_array_equal(found.frame[found.present], frame)
    assert not found.fit.observed[~found.present].any()
    assert not found.joint_observed[~found.present].any()
    assert torch.isfinite(found.fit.params.pose).all()
    assert torch.isnan(found.fit.reprojection_px[~found.present]).all()
    assert found.fit.joint_std_mm is not None
    assert torch.isfinite(found.fit.joint_std_mm[found.present]).all()


def test_segments_share_a_shape_and_no_motion() -> None:
    """Whoever comes back elsewhere is not pulled towards where the person was."""
    given = seen(40)
    camera = fitting.Camera.default(SIZE)
    body = fitting.load_body()
    moved = given.xy_px.clone()
    moved[20:, :, 0] += 250
    there = replace(given, xy_px=moved)
    frame = np.concatenate([np.arange(20), np.arange(60, 80)])
    apart = fit_track(there, frame, camera, body, fps=25)
    assert apart.fit.params.shape.shape == (10,)
    ends = apart.present.nonzero()[0][[19, 20]]
    joints = body.at(apart.fit.params).joints
    gone_m = float((joints[ends[1], 0] - joints[ends[0], 0]).norm())
    assert gone_m > 0.6  # 250 px at 5 m
    error_px = apart.fit.reprojection_px[apart.present].nanmean(1)
    assert float(error_px[18:22].max()) < 1.3 * float(error_px.mean())
    coupled = fitting.fit(there, camera, body, fps=25)  # as if there had been no time in between
    assert float(coupled.reprojection_px[18:22].nanmean()) > 1.5 * float(error_px[18:22].mean())


def test_side_swaps_are_repaired_in_each_segment_by_itself() -> None:
    """After an absence the first label counts: no motion says that the sides were exchanged."""
    given = seen(40)
    camera = fitting.Camera.default(SIZE)
    pair = [13, 14, 15, 16]
    xy_px = given.xy_px.clone()
    xy_px[20:, pair] = given.xy_px[20:, [14, 13, 16, 15]]
    flipped = replace(given, xy_px=xy_px)
    apart = fit_track(flipped, np.concatenate([np.arange(20), np.arange(60, 80)]), camera, fps=25)
    assert not apart.swapped.any()
    together = fit_track(flipped, np.arange(40), camera, fps=25)
    assert together.swapped.any()


def test_a_shared_start_has_a_row_for_absences_too() -> None:
    given = seen(20)
    camera = fitting.Camera.default(SIZE)
    frame = np.concatenate([np.arange(10), np.arange(60, 70)])
    start = prepare_track(given, frame, camera, fitting.load_body(), "lifter", fps=25).guess
    assert len(start) == 70
    by_name, shared = (
        fit_track(given, frame, camera, init=init, fps=25) for init in ("lifter", start)
    )
    torch.testing.assert_close(shared.fit.params.pose, by_name.fit.params.pose, rtol=0, atol=0)
