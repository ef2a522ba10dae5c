"""Who comes out of an encounter as whom: exact paths, looks and an exchange that the tracker made."""

import numpy as np

from pose2d.detect.appearance import PARTS, SIZE, Appearances
from pose2d.detect.jumps import TrackPath
from pose2d.detect.stitch import StitchOptions, chains, link, pieces_of, stitched
from pose2d.detect.untangle import UntangleOptions, untangled

OPTIONS, WH = StitchOptions(), (1000, 600)
FPS, BODY = 25.0, 210.0
Person = tuple[np.ndarray, float]  # x at each frame, shade of the clothes


def look(shade: np.ndarray, weight: float = 0.8) -> Appearances:
    colours = np.zeros((len(shade), len(PARTS), SIZE)) + np.array([45.0, 50, 55, 0, 0, 0, 0, 0, 0])
    colours[..., [0, 1, 2, 6, 7, 8]] += shade[:, None, None]
    return Appearances(colours, np.full((len(shade), len(PARTS)), weight))


def path(x: np.ndarray, shade: np.ndarray, frames: np.ndarray) -> TrackPath:
    centre = np.stack([x, np.full(len(x), 300.0)], 1)
    everywhere = np.ones(len(x), bool)
    return TrackPath(frames / FPS, centre, np.full(len(x), BODY), everywhere, look(shade), everywhere)


def crossing(exchanged: bool, shades: tuple[float, float], frames: int = 100) -> tuple[dict[int, TrackPath], dict]:
    """Two people walk through each other; the tracker exchanges them in the middle, or not."""
    t = np.arange(frames)
    xs = 200 + 6.0 * t, 800 - 6.0 * t
    half = t < frames // 2
    paths, covered = {}, {}
    for track, (own, other) in enumerate(((0, 1), (1, 0))):
        later = other if exchanged else own
        x = np.where(half, xs[own], xs[later])
        paths[track] = path(x, np.where(half, shades[own], shades[later]), t)
        covered[track] = np.clip(1 - np.abs(xs[0] - xs[1]) / 100, 0, 1)
    return paths, covered


def result(paths: dict[int, TrackPath], covered: dict) -> tuple[dict[int, np.ndarray], int]:
    pieces = pieces_of(paths, covered, OPTIONS)
    after, doubts = link(pieces, WH, OPTIONS)
    return stitched(paths, pieces, after, OPTIONS), len(doubts)


def test_people_who_kept_their_identities_keep_them() -> None:
    for shades in ((0.0, 40.0), (0.0, 0.0)):
        chain, _ = result(*crossing(exchanged=False, shades=shades))
        assert [len(set(c.tolist())) for c in chain.values()] == [1, 1]
        assert chain[0][0] != chain[1][0]


def test_an_exchange_is_undone_where_the_two_were_nearest() -> None:
    chain, doubts = result(*crossing(exchanged=True, shades=(0.0, 40.0)))
    assert chain[0][0] == chain[1][-1] != chain[1][0] == chain[0][-1]
    changes = [np.flatnonzero(np.diff(c)) for c in chain.values()]
    assert all(len(change) == 1 and abs(change[0] - 49) <= 1 for change in changes)
    assert doubts == 0


def test_two_in_one_uniform_who_meet_and_part_may_have_been_exchanged() -> None:
    """They walk up to each other, stand, and walk back, or through: nobody can tell."""
    t = np.arange(150)
    away = np.clip(np.abs(t - 75) * 6.0 - 150, 0, None)
    covered = np.clip(1 - away / 60, 0, 1)
    paths = {0: path(500 - away, np.zeros(150), t), 1: path(520 + away, np.zeros(150), t)}
    _, doubts = result(paths, {0: covered, 1: covered})
    assert doubts == 1


def test_somebody_hidden_for_three_seconds_comes_out_as_the_same_person_and_another_does_not() -> None:
    t = np.arange(150)
    for shade, same in ((0.0, True), (40.0, False)):
        paths = {
            0: path(200 + 4.0 * t[:40], np.zeros(40), t[:40]),
            1: path(200 + 4.0 * t[110:], np.full(40, shade), t[110:]),
        }
        chain, _ = result(paths, {0: np.zeros(40), 1: np.zeros(40)})
        assert (chain[0][0] == chain[1][0]) is np.bool_(same)


def test_links_may_go_over_many_pieces() -> None:
    assert chains(np.array([2, -1, 3, -1])).tolist() == [0, 1, 0, 0]
    assert chains(np.zeros(0, np.int64)).tolist() == []


def test_somebody_who_is_never_alone_is_one_piece() -> None:
    t = np.arange(50)
    paths = {0: path(300.0 + 0 * t, np.zeros(50), t)}
    pieces = pieces_of(paths, {0: np.ones(50)}, OPTIONS)
    assert (pieces.first.tolist(), pieces.last.tolist()) == ([0], [49])


def test_boxes_that_went_to_the_wrong_track_for_a_moment_while_people_overlapped_go_back() -> None:
    frame = np.repeat(np.arange(60), 2)
    x = np.stack([200 + 10.0 * np.arange(60), 790 - 10.0 * np.arange(60)], 1).reshape(-1)
    height = np.tile([300.0, 240.0], 60)
    boxes = np.stack([x - 50, 400 - height, x + 50, np.full(120, 400.0)], 1)
    truth = np.tile([0, 1], 60)
    alone = np.repeat(np.abs(np.arange(60) - 29.5) > 6, 2)
    track = truth.copy()
    track[54:60] = 1 - track[54:60]
    seen = np.ones(120, bool)
    seen[55] = seen[57] = False  # and meanwhile one of them was not seen at all
    where = frame[seen], frame[seen] / FPS, boxes[seen], alone[seen]
    np.testing.assert_array_equal(untangled(track[seen], *where, UntangleOptions()), truth[seen])


def test_without_anybody_who_overlaps_nothing_changes() -> None:
    track, frame = np.array([0, 1, 0, 1]), np.array([0, 0, 1, 1])
    boxes = np.array([[0, 0, 10, 30], [50, 0, 60, 30]] * 2, float)
    same = untangled(track, frame, frame / FPS, boxes, np.ones(4, bool), UntangleOptions())
    np.testing.assert_array_equal(same, track)
