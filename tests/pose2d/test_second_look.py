"""Who is who, looked at again: exact paths, clothes, and mistakes that a tracker made."""

from dataclasses import replace

import numpy as np

from pose2d.tracking.appearance import PARTS, SIZE
from pose2d.tracking.exchange import SecondLookOptions
from pose2d.tracking.second_look import Switch, look_again
from pose2d.types import Appearance, Detections

OPTIONS = SecondLookOptions()
WH = (1000, 600)
FPS = 25.0


def appearance(shade: np.ndarray, weight: float = 0.8) -> Appearance:
    colours = np.zeros((len(shade), len(PARTS), SIZE)) + np.array([45.0, 50, 55, 0, 0, 0, 0, 0, 0])
    colours[..., [0, 1, 2, 6, 7, 8]] += shade[:, None, None]
    return Appearance(colours, np.full((len(shade), len(PARTS)), weight))


def people(
    x: np.ndarray, shades: np.ndarray, track: np.ndarray, heights: np.ndarray | None = None
) -> Detections:
    """Places x [T, P] (NaN: not seen) and shades of clothes [P]; `track` [T, P] as the tracker has
    them.
    """
    frames, count = x.shape
    height = np.broadcast_to(np.full(count, 260.0) if heights is None else heights, x.shape)
    seen = np.isfinite(x)
    frame = np.broadcast_to(np.arange(frames)[:, None], x.shape)[seen]
    place = x[seen]
    tall = height[seen]
    boxes = np.stack([place - 50, 500 - tall, place + 50, np.full(len(place), 500.0)], 1)
    return Detections(
        frame,
        track[seen],
        boxes,
        np.ones(len(place)),
        time_s=frame / FPS,
        appearance=appearance(np.broadcast_to(shades, x.shape)[seen]),
    )


def crossing(frames: int = 100) -> np.ndarray:
    """Two people walk through each other: x [T, 2]."""
    t = np.arange(frames)
    return np.stack([200 + 6.0 * t, 803 - 6.0 * t], 1)


def result(
    seen: Detections, truth: np.ndarray, x: np.ndarray
) -> tuple[list[set[int]], list[Switch]]:
    """For each found track whom it shows."""
    track, candidates = look_again(seen, WH, OPTIONS)
    who = truth[np.isfinite(x)]
    return [set(who[track == n].tolist()) for n in np.unique(track[track >= 0])], candidates


def true_people(x: np.ndarray) -> np.ndarray:
    return np.broadcast_to(np.arange(x.shape[1]), x.shape)


def test_people_who_kept_their_identities_keep_them() -> None:
    x = crossing()
    seen = people(x, np.array([-12.0, 12.0]), true_people(x))
    track, candidates = look_again(seen, WH, OPTIONS)
    assert len(np.unique(track)) == 2
    assert not candidates
    np.testing.assert_array_equal(track == track[0], seen.identity == seen.identity[0])


def test_an_exchange_is_undone_and_no_box_is_lost() -> None:
    x = crossing()
    wrong = true_people(x).copy()
    wrong[48:] = wrong[48:, ::-1]
    found, _ = result(people(x, np.array([-12.0, 12.0]), wrong), true_people(x), x)
    assert found == [{0}, {1}]


def test_in_uniforms_people_who_walk_on_are_told_apart_by_their_motion() -> None:
    x = crossing()
    wrong = true_people(x).copy()
    wrong[50:] = wrong[50:, ::-1]
    found, _ = result(people(x, np.zeros(2), wrong), true_people(x), x)
    assert found == [{0}, {1}]


def test_two_in_one_uniform_who_stop_and_part_may_have_been_exchanged() -> None:
    t = np.arange(150)
    away = 6.0 * np.maximum(np.maximum(50 - t, t - 100), 1)
    x = np.stack([500 - away, 500 + away], 1)
    x[52:98, 1] = np.nan  # hidden meanwhile
    seen = people(x, np.zeros(2), true_people(x))
    assert len(look_again(seen, WH, OPTIONS)[1]) >= 1
    assert not look_again(people(x, np.array([-15.0, 15.0]), true_people(x)), WH, OPTIONS)[1]


def test_boxes_that_went_to_the_wrong_track_for_a_moment_while_people_overlapped_go_back() -> None:
    x = crossing(100)
    x[50, 0] = np.nan  # and meanwhile one of them was not seen
    wrong = true_people(x).copy()
    wrong[48:53] = wrong[48:53, ::-1]
    found, _ = result(people(x, np.zeros(2), wrong, np.array([300.0, 240.0])), true_people(x), x)
    assert found == [{0}, {1}]


def test_somebody_hidden_for_two_seconds_comes_out_as_the_same_person_and_another_does_not() -> (
    None
):
    x = np.full((130, 2), np.nan)
    x[:40, 0] = 300 + 4.0 * np.arange(40)
    x[90:, 0] = 300 + 4.0 * np.arange(90, 130)
    track = true_people(x).copy()
    track[90:] += 5
    same, _ = result(people(x, np.array([-12.0, 12.0]), track), true_people(x), x)
    assert same == [{0}]
    x[90:, 1] = x[90:, 0].copy()
    x[90:, 0] = np.nan
    other, _ = result(people(x, np.array([-14.0, 14.0]), track), true_people(x), x)
    assert other == [{0}, {1}]


def after_an_absence(box: list[float], shade: float, seconds: float, kept: bool) -> bool:
    """Whether somebody who stood and a box after so many seconds become one person; kept: the
    tracker says so.
    """
    frame = np.concatenate([np.arange(50), 50 + round(seconds * FPS) + np.arange(50)])
    later = np.arange(100) >= 50
    boxes = np.where(later[:, None], np.array(box), np.array([420.0, 50.0, 580.0, 500.0]))
    clothes = appearance(np.where(later, shade, 0.0))
    track = np.where(later & (not kept), 1, 0)
    again, _ = look_again(
        Detections(frame, track, boxes, np.ones(100), time_s=frame / FPS, appearance=clothes),
        WH,
        OPTIONS,
    )
    return bool(again[0] == again[-1])


def test_somebody_who_falls_keeps_the_number_and_a_far_bystander_does_not_get_it() -> None:
    fallen = [270.0, 400.0, 710.0, 540.0]
    bystander = [480.0, 160.0, 520.0, 270.0]
    for seconds in (0.5, 2.0):
        assert after_an_absence(fallen, 0.0, seconds, kept=False)
        assert not after_an_absence(fallen, 30.0, seconds, kept=False)  # other clothes
        assert not after_an_absence(bystander, 0.0, seconds, kept=True)


def test_three_who_were_hidden_together_come_out_as_themselves() -> None:
    t = np.arange(100.0)
    x = np.stack([250 + 5 * t, 300 + 5 * t, 350 + 5 * t], 1)
    x[(x > 450) & (x < 600)] = np.nan
    wrong = true_people(x).copy()
    wrong[50:] = np.roll(wrong[50:], 1, axis=1)
    found, _ = result(people(x, np.array([-20.0, 0.0, 20.0]), wrong), true_people(x), x)
    assert found == [{0}, {1}, {2}]


def test_nobody_and_one_box_change_nothing() -> None:
    nothing = replace(Detections.empty(), time_s=np.zeros(0), appearance=appearance(np.zeros(0)))
    assert look_again(nothing, WH, OPTIONS)[0].shape == (0,)
    one = people(np.array([[300.0]]), np.zeros(1), np.array([[7]]))
    assert look_again(one, WH, OPTIONS)[0].tolist() == [0]
