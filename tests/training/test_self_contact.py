"""Poses with self-contact: the hands touch what they should, within the joints' limits."""

import numpy as np
import pytest
import torch

from eval3dpw.synth.motion import load_clips
from fitting.body.load import load_body
from fitting.body.rotations import rotation_matrices
from training.motion.self_contact import KINDS, contact_motion, draw_problem, solve
from training.motion.surface_points import CONTACTS, HAND_PLACES, PLACES_M, TOUCHED, SurfacePoints


@pytest.fixture(scope="module")
def surface():
    return SurfacePoints(load_body())


@pytest.fixture(scope="module")
def captured(surface):
    clips = load_clips(surface.body, "test")
    return torch.cat([clip.pose[::40] for clip in clips[:12]])


def test_named_points_lie_where_their_places_say(surface):
    body = surface.body
    shape = torch.zeros(1, body.shape_size)
    placement = body.placement(rotation_matrices(torch.zeros(1, 24, 3)), shape)
    points = surface.place(placement, shape)[0]
    for name, place in PLACES_M.items():
        off = (points[surface.number(f"left {name}")] - torch.tensor(place)).norm()
        assert off < 0.045, name


def test_nothing_touches_in_a_t_pose(surface):
    body = surface.body
    shape = torch.zeros(1, body.shape_size)
    placement = body.placement(rotation_matrices(torch.zeros(1, 24, 3)), shape)
    contacts = surface.hand_contacts(placement, shape)
    assert contacts.shape == (1, 2 * len(TOUCHED))
    assert not contacts.any()
    assert len(CONTACTS) == 2 * len(TOUCHED) + 2


@pytest.mark.parametrize(("kind", "part"), [("face", "head"), ("hip", "hip"), ("knee", "leg")])
def test_hands_meet_their_targets(surface, captured, kind, part):
    rng = np.random.default_rng(1)
    problem = draw_problem(KINDS[kind], 16, surface, rng)
    start = torch.zeros(16, 13, 3)
    pose, good = solve(captured[:16], problem, surface, start)
    assert good.float().mean() > 0.5
    body = surface.body
    shape = torch.zeros(16, body.shape_size)
    contacts = surface.hand_contacts(body.placement(rotation_matrices(pose), shape), shape)
    touching = contacts[:, [TOUCHED.index(part), len(TOUCHED) + TOUCHED.index(part)]].any(1)
    if kind == "hip":  # a pocket is on the thigh, the lower back on the trunk
        touching |= contacts.any(1)
    assert touching[good].float().mean() > 0.8


def test_hands_are_drawn_on_the_right_side(surface):
    problem = draw_problem(KINDS["other arm"], 20, surface, np.random.default_rng(0))
    for first, second in zip(problem.first.flatten(), problem.second.flatten(), strict=True):
        hand, target = surface.names[int(first)], surface.names[int(second)]
        assert hand.split()[0] != target.split()[0]
        assert hand.split(maxsplit=1)[1] in HAND_PLACES


@pytest.mark.slow
def test_every_kind_has_its_share(surface, captured):
    motion = contact_motion(captured, surface.body, 60, seed=0)
    assert set(motion.clip_description) == set(KINDS)
    assert len(motion.pose) == len(motion.clip_name)
    assert torch.isfinite(motion.pose).all()
