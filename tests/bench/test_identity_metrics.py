"""IDF1, switches and HOTA: exact on small cases, and equal to TrackEval on random ones."""

import numpy as np
import pytest

from bench.lib.identity_metrics import FrameBoxes, identity_scores

HERE = np.array([0.0, 0, 10, 20])
THERE = np.array([50.0, 0, 60, 20])


def frame(**boxes: np.ndarray) -> FrameBoxes:
    """Boxes by identity: frame(_0=box, _3=box)."""
    return FrameBoxes(
        np.array([int(name[1:]) for name in boxes], int), np.reshape(list(boxes.values()), (-1, 4))
    )


def test_the_truth_itself_is_perfect() -> None:
    truth = [frame(_0=HERE, _1=THERE)] * 5
    scores = identity_scores(truth, [frame(_1=HERE, _0=THERE)] * 5)
    assert (scores.idf1, scores.switches, scores.false_tracks, scores.missed) == (1, 0, 0, 0)
    assert scores.hota == pytest.approx(1)


def test_two_people_who_trade_identities_halfway_are_two_switches_and_half_an_idf1() -> None:
    truth = [frame(_0=HERE, _1=THERE)] * 10
    found = [frame(_0=HERE, _1=THERE)] * 5 + [frame(_1=HERE, _0=THERE)] * 5
    scores = identity_scores(truth, found)
    assert (scores.idf1, scores.switches) == (0.5, 2)
    assert scores.detection_accuracy == pytest.approx(1)
    assert scores.association_accuracy == pytest.approx(1 / 3)


def test_a_return_under_a_new_identity_after_a_gap_is_one_switch() -> None:
    truth = [frame(_0=HERE)] * 10
    found = [frame(_0=HERE)] * 4 + [frame()] * 2 + [frame(_1=HERE)] * 4
    scores = identity_scores(truth, found)
    assert (scores.switches, scores.missed) == (1, 0.2)
    assert scores.idf1 == pytest.approx(2 * 4 / 18)


def test_a_track_on_nobody_is_false() -> None:
    scores = identity_scores([frame(_0=HERE)] * 3, [frame(_0=HERE, _1=THERE)] * 3)
    assert scores.false_tracks == 1


def test_nobody_true_and_nobody_found_is_no_error() -> None:
    assert identity_scores([frame()] * 2, [frame()] * 2).switches == 0


def random_frames(
    random: np.random.Generator, people: int, count: int
) -> tuple[list[FrameBoxes], list[FrameBoxes]]:
    place = random.uniform(0, 300, (people, 2))
    name = random.permutation(people + 3)[:people]
    truth = []
    found = []
    for _ in range(count):
        place = place + random.normal(0, 6, place.shape)
        boxes = np.concatenate([place, place + np.array([30, 60])], 1)
        if random.random() < 0.1:  # two people trade identities
            i, j = random.choice(people, 2, replace=False)
            name[[i, j]] = name[[j, i]]
        here = random.random(people) < 0.9
        kept = random.random(people) < 0.85
        truth.append(FrameBoxes(np.flatnonzero(here), boxes[here]))
        found.append(
            FrameBoxes(name[kept].copy(), (boxes + random.normal(0, 4, boxes.shape))[kept])
        )
    return truth, found


# Switches, IDF1, HOTA and AssA by TrackEval 1.3.0. It needs an OpenCV with windows beside ours, so
# it is no dependency.
TRACKEVAL = {
    0: (12, 0.4953271028, 0.3303632249, 0.1891027000),
    1: (8, 0.6498422713, 0.4164522753, 0.3060879543),
    2: (10, 0.6405228758, 0.4219773594, 0.3298880270),
    3: (14, 0.4944881890, 0.3273883219, 0.1892718695),
    4: (10, 0.6215780998, 0.4022933245, 0.2976769972),
    5: (12, 0.6445497630, 0.4229196941, 0.3259990545),
}


@pytest.mark.parametrize("seed", TRACKEVAL)
def test_figures_equal_trackeval_on_random_tracks(seed: int) -> None:
    scores = identity_scores(*random_frames(np.random.default_rng(seed), 6, 60))
    found = scores.switches, scores.idf1, scores.hota, scores.association_accuracy
    assert found == pytest.approx(TRACKEVAL[seed], abs=1e-9)
