"""Tracks solved in pieces: one shape, no seams, honest spread."""

import torch

import fitting
from fitting.long_track import _pieces, fit_track
from pose2d.types import Keypoints
from tests.walkers import walker

SIZE = (1280, 960)


def seen(frames: int) -> Keypoints:
    xy_px = torch.from_numpy(walker(frames, SIZE, -0.5).keypoints_px)
    noise = torch.randn(xy_px.shape, generator=torch.Generator().manual_seed(0))
    everywhere = torch.ones(frames, 17)
    return Keypoints(xy_px + 2 * noise, 0.95 * everywhere, everywhere, "ccnet", torch.full((frames,), 5e4))


def test_pieces_fit_as_well_as_the_whole_and_meet_without_a_seam() -> None:
    known, camera, body = seen(100), fitting.Camera.default(SIZE), fitting.load_body()
    whole = fitting.fit(known, camera, body, "none", fps=25)
    pieces = fit_track(known, camera, body, "none", "precision", 25, piece=40, overlap=8)
    assert pieces.params.shape.shape == whole.params.shape.shape == (10,)
    assert pieces.params.pose.shape == (100, 24, 3)
    assert float(pieces.reprojection_px.nanmean()) < 1.1 * float(whole.reprojection_px.nanmean())
    joints = [body.at(fit.params).joints for fit in (whole, pieces)]
    relative = [j - j[:, :1] for j in joints]
    assert float((relative[0] - relative[1]).norm(dim=-1).mean()) < 0.03
    step = [j.diff(dim=0).norm(dim=-1).amax(1) for j in joints]
    assert float(step[1].max()) < 1.5 * float(step[0].max()) + 0.005
    assert pieces.joint_std_mm is not None
    assert whole.joint_std_mm is not None
    ratio = pieces.joint_std_mm.mean() / whole.joint_std_mm.mean()
    assert 0.5 < float(ratio) < 2


def test_a_short_track_is_solved_as_ever() -> None:
    known, camera, body = seen(5), fitting.Camera.default(SIZE), fitting.load_body()
    whole = fitting.fit(known, camera, body, "none", fps=25)
    same = fit_track(known, camera, body, "none", "precision", 25)
    torch.testing.assert_close(same.params.pose, whole.params.pose, rtol=0, atol=0)


def test_a_stretch_where_nothing_was_seen_joins_its_neighbour() -> None:
    shown = torch.ones(100, dtype=torch.bool)
    shown[30:72] = False
    assert [(p.start, p.stop) for p in _pieces(shown, 25)] == [(0, 25), (25, 50), (50, 75), (75, 100)]
    shown[25:75] = False
    assert [(p.start, p.stop) for p in _pieces(shown, 25)] == [(0, 25), (25, 100)]
    shown[50:] = False
    shown[:20] = False
    assert [(p.start, p.stop) for p in _pieces(shown, 25)] == [(0, 100)]
