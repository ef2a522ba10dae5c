"""High-speed video: the fit does not depend on how many frames a second has."""

import numpy as np
import pytest
import torch

import fitting
from fitting.grid import FASTEST_FPS
from fitting.track import fit_track
from pose2d.skeletons import COCO17
from pose2d.types import Keypoints
from tests.walkers import walker


@pytest.mark.parametrize("fps", [480.0, 960.0, 10_000.0])
def test_a_walk_at_many_frames_a_second_is_found(fps: float) -> None:
    frames = 24
    size = (640, 480)
    still = torch.from_numpy(walker(1, size).keypoints_px).float()
    drift_px = (
        150 / fps * torch.arange(frames)
    )  # a walk across the image; within so few frames no limb moves
    xy = still + torch.stack((drift_px, torch.zeros(frames)), -1)[:, None]
    points = Keypoints(
        xy,
        torch.full(xy.shape[:2], 0.95),
        torch.ones(xy.shape[:2]),
        "ccnet",
        torch.full((frames,), 2e4),
        COCO17,
    )
    found = fit_track(points, np.arange(frames), fitting.Camera.default(size), fps=fps)
    fit = found.fit
    for values in (fit.params.pose, fit.params.translation, fit.params.shape):
        assert bool(torch.isfinite(values).all())
    seen = fitting.Camera.default(size).project(
        fitting.load_body().at(fit.params).keypoints[:, :17]
    )
    assert (
        float((seen - xy).norm(dim=-1).mean()) < 4
    )  # one frame alone is 2.1 px off: the prior pulls too
    assert fit.joint_std_mm is not None
    assert fit.joint_std_mm.shape == (frames, 24, 3)
    assert bool(torch.isfinite(fit.joint_std_mm).all())
    stride = int(np.ceil(fps / FASTEST_FPS))
    pulled = fit.used.any(1)
    assert bool(pulled[::stride].all())
    assert int(pulled.sum()) == len(range(0, frames, stride))
    assert bool(fit.observed.all())


@pytest.mark.parametrize("far", [1e30, -1e30, float("inf"), float("nan"), 1e7])
def test_keypoints_out_of_this_world_do_not_count(far: float) -> None:
    person = walker(3)
    xy = torch.from_numpy(person.keypoints_px).float()
    xy[1, 9] = far
    points = Keypoints(
        xy,
        torch.full(xy.shape[:2], 0.9),
        torch.ones(xy.shape[:2]),
        "raw",
        torch.full((3,), 3000.0),
        COCO17,
    )
    found = fitting.fit(points, fitting.Camera.default((160, 120)), weighting="confidence")
    assert not bool(found.used[1, 9])
    assert bool(torch.isfinite(found.params.pose).all())
    assert float(found.reprojection_px[found.used].max()) < 5
