"""Events, steps, cycles, squats and jumps of motions that are known exactly."""

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fitmesh.exports import EXPORTERS
from fitmesh.exports.report.gait_section import gait_section
from fitmesh.gait.cycles import cycle_times, normalize_cycles
from fitmesh.gait.events import find_gait_events
from fitmesh.gait.motion import BodyMotion, forward_and_left, walking_velocity
from fitmesh.gait.movements import find_jumps, find_squats
from fitmesh.gait.steps import find_steps, summarize_steps
from fitmesh.result import Result
from fitmesh.ui.events import Reporter
from tests.fitmesh.walkers import in_world, walkers

QUIET = Reporter(lambda event: None)
FPS = 60
STRIDE_S = 1.1
SWING_S = 0.42
SPEED_M_S = 1.2
WIDTH_M = 0.12
TOES_M = np.array([0, 0, 0.2])  # in front of the heels
STRIKES_S = {0: np.arange(0.3, 6, STRIDE_S), 1: np.arange(0.3 + STRIDE_S / 2, 6, STRIDE_S)}


def still(seconds: float = 4.0) -> BodyMotion:
    """Return a person who stands."""
    time_s = np.arange(0, seconds, 1 / FPS)
    count = len(time_s)
    feet = np.zeros((count, 2, 3))
    feet[:, 0, 0] = WIDTH_M / 2
    feet[:, 1, 0] = -WIDTH_M / 2
    pelvis = np.zeros((count, 3))
    pelvis[:, 1] = 0.95
    return BodyMotion(
        time_s,
        pelvis,
        feet,
        feet + TOES_M,
        np.zeros((count, 2)),
        np.full((count, 2), 0.02),
        np.full((count, 2), 0.2),
    )


def walk(heading_deg: float = 0.0) -> BodyMotion:
    """Return a person who walks along +z turned by the heading, each foot at rest but in swings."""
    motion = still(5.5)
    pelvis = motion.pelvis_m.copy()
    pelvis[:, 2] = SPEED_M_S * motion.time_s
    heels = motion.heels_m.copy()
    knees = np.zeros((len(pelvis), 2))
    for side, strikes_s in STRIKES_S.items():
        for strike_s in [strikes_s[0] - STRIDE_S, *strikes_s, strikes_s[-1] + STRIDE_S]:
            phase = np.clip((motion.time_s - strike_s + SWING_S) / SWING_S, 0, 1)
            # Feet of people who walk land at some 0.5 m/s.
            moved = phase - 0.85 * np.sin(2 * np.pi * phase) / (2 * np.pi)
            lands_m = SPEED_M_S * strike_s + 0.30
            begin_m = lands_m - SPEED_M_S * STRIDE_S
            rows = motion.time_s >= strike_s - STRIDE_S
            heels[rows, side, 2] = (begin_m + moved * (lands_m - begin_m))[rows]
            knees[:, side] += 60 * np.sin(np.pi * phase) ** 2
    turn = np.radians(heading_deg)
    rotation = np.array(
        [[np.cos(turn), 0, np.sin(turn)], [0, 1, 0], [-np.sin(turn), 0, np.cos(turn)]]
    )
    toes = heels + TOES_M
    return replace(
        motion,
        pelvis_m=pelvis @ rotation.T,
        heels_m=heels @ rotation.T,
        toes_m=toes @ rotation.T,
        knee_flexion_deg=knees,
    )


@pytest.mark.parametrize("heading_deg", [0, 90, 200])
def test_strikes_and_toe_offs_are_found_whatever_the_heading(heading_deg: float) -> None:
    events = find_gait_events(walk(heading_deg))
    for side, strikes_s in STRIKES_S.items():
        for kind, exact_s in (("foot_strike", strikes_s), ("toe_off", strikes_s - SWING_S)):
            own = [e for e in events if e.kind == kind and e.side == side]
            assert len(own) >= 4
            for event in own:
                nearest = exact_s[np.abs(exact_s - event.time_s).argmin()]
                # A foot passes the pelvis' speed a little before it lands, and after it leaves.
                assert abs(event.time_s - nearest) < 0.05
                assert 0.02 <= event.std_s < 0.1


def test_steps_have_the_length_width_and_times_of_the_walk() -> None:
    motion = walk(30)
    steps = find_steps(motion, find_gait_events(motion))
    assert len(steps) >= 7
    assert {step.side for step in steps} == {0, 1}
    summary = summarize_steps(steps)
    assert summary["step_time_s"][0] == pytest.approx(STRIDE_S / 2, abs=0.01)
    assert summary["cadence_per_min"][0] == pytest.approx(120 / STRIDE_S, rel=0.02)
    assert summary["speed_m_s"][0] == pytest.approx(SPEED_M_S, rel=0.02)
    assert summary["step_length_m"][0] == pytest.approx(SPEED_M_S * STRIDE_S / 2, rel=0.05)
    assert summary["step_width_m"][0] == pytest.approx(WIDTH_M, abs=0.01)
    assert summary["stride_length_m"][0] == pytest.approx(SPEED_M_S * STRIDE_S, rel=0.03)
    assert summary["stride_time_s"][0] == pytest.approx(STRIDE_S, abs=0.01)
    support_s = summary["single_support_s"][0] + summary["double_support_s"][0]
    assert support_s == pytest.approx(STRIDE_S / 2, abs=0.01)
    assert summary["single_support_s"][0] == pytest.approx(SWING_S, abs=0.11)


def test_a_person_who_stands_has_no_steps() -> None:
    motion = still()
    assert find_gait_events(motion) == []
    assert np.isnan(forward_and_left(walking_velocity(motion))[0]).all()
    assert find_squats(motion) == []
    assert find_jumps(motion) == []


def test_cycles_go_from_strike_to_strike_and_have_a_spread() -> None:
    motion = walk()
    events = find_gait_events(motion)
    angles = {
        "left_knee_flexion": motion.knee_flexion_deg[:, 0],
        "right_knee_flexion": motion.knee_flexion_deg[:, 1],
    }
    std = {name: np.full(len(motion.time_s), 3.0) for name in angles}
    cycles = normalize_cycles(motion.time_s, angles, std, events)
    for side, name in enumerate(angles):
        one = cycles[name]
        assert one.values.shape == (len(cycle_times(events, side)), 101)
        swing_middle = 100 * (1 - SWING_S / 2 / STRIDE_S)
        assert abs(int(one.mean.argmax()) - swing_middle) <= 6
        assert one.mean.max() == pytest.approx(60, abs=3)
        assert one.spread.max() < 3
        np.testing.assert_allclose(one.mean_std, 3)


def test_a_squat_has_its_lowest_point_depth_and_knees() -> None:
    motion = still()
    bend = np.exp(-0.5 * ((motion.time_s - 2.0) / 0.3) ** 2)
    pelvis = motion.pelvis_m.copy()
    pelvis[:, 1] -= 0.4 * bend
    knees = np.stack([100 * bend, 100 * bend], -1)
    (squat,) = find_squats(replace(motion, pelvis_m=pelvis, knee_flexion_deg=knees))
    assert squat.time_s == pytest.approx(2.0, abs=0.02)
    assert squat.depth_m == pytest.approx(0.4, abs=0.01)
    assert squat.knee_flexion_deg == pytest.approx(100, abs=1)


@pytest.mark.parametrize("flight_s", [0.3, 0.45, 0.6])
def test_a_jump_has_the_flight_time_and_height_of_free_fall(flight_s: float) -> None:
    motion = still()
    since_s = motion.time_s - 1.513
    lift_m = np.where(
        (since_s > 0) & (since_s < flight_s), 9.81 / 2 * since_s * (flight_s - since_s), 0
    )
    up = lift_m[:, None] * [0, 1, 0]
    jumping = replace(
        motion,
        pelvis_m=motion.pelvis_m + up,
        heels_m=motion.heels_m + up[:, None],
        toes_m=motion.toes_m + up[:, None],
    )
    (jump,) = find_jumps(jumping)
    assert jump.flight_s == pytest.approx(flight_s, abs=0.02)
    assert jump.height_m == pytest.approx(9.81 * flight_s**2 / 8, rel=0.1)
    assert abs(jump.height_m - 9.81 * flight_s**2 / 8) < 3 * jump.height_std_m
    assert find_squats(jumping) == []


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Result:
    return in_world(walkers(tmp_path_factory.mktemp("gait"), frames=150), pan_deg=15)


def test_tables_have_the_documented_columns(result: Result, tmp_path: Path) -> None:
    files = EXPORTERS["gait"].write(result, tmp_path, QUIET)
    page = (Path(__file__).parents[2] / "docs" / "biomechanics.md").read_text()
    assert len(files) == 6
    for file in files:
        with (tmp_path / file).open() as lines:
            header, *rows = csv.reader(lines)
        assert all(len(row) == len(header) for row in rows)
        for column in header:
            assert f"`{column}`" in page, f"{file}: docs/biomechanics.md does not name {column}"


def test_the_report_shows_a_walk_only_where_there_is_one(result: Result) -> None:
    section = gait_section(result, result.people[0])
    assert "Walking" in section
    assert "Knee flexion" in section
    short = replace(result, people=[result.people[0].rows(slice(0, 5))])
    assert gait_section(short, short.people[0]) == ""
