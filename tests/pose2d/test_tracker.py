from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pose2d.detect.detector import DetectorOptions
from pose2d.detect.multipose import MultiPose
from pose2d.tracking.tracker import Tracker, TrackerOptions, assign
from pose2d.types import NOBODY, Detections
from pose2d.video.frames import Span
from pose2d.video.video_file import Video
from tests.walkers import tracks_of

Walk = Callable[
    [float], tuple[float, float] | None
]  # centre at a time, or None when not in the image
WIDTH, HEIGHT = 60.0, 160.0
IMAGE_WH = (1000, 600)


def box(centre: tuple[float, float], width: float = WIDTH, height: float = HEIGHT) -> np.ndarray:
    x, y = centre
    return np.array([x - width / 2, y - height / 2, x + width / 2, y + height / 2])


def updated(tracker: Tracker, time_s: float, seen: Detections) -> Detections:
    return replace(seen, identity=tracker.update(time_s, seen))


def confirmed(tracker: Tracker, rows: list[Detections]) -> list[Detections]:
    """The rows of each confirmed track."""
    return [
        track
        for track in tracks_of(Detections.concat(rows))
        if int(track.identity[0]) in tracker.confirmed()
    ]


class Scene:
    """People on given paths, seen by a detector that jitters, misses and shuffles."""

    def __init__(
        self, *paths: Walk, rate: float = 30.0, seconds: float = 4.0, seed: int = 0
    ) -> None:
        self.paths = paths
        self.rate = rate
        self.frames = round(seconds * rate)
        self.random = np.random.default_rng(seed)
        self.missed: Callable[[int, float], bool] = lambda person, time: False
        self.score: Callable[[int, float], float] = lambda person, time: 0.8
        self.extra: Callable[[float], list[tuple[np.ndarray, float]]] = lambda time: []
        self.truth: dict[tuple[int, tuple[float, ...]], int] = {}  # (frame, box) -> person

    def track(self, options: TrackerOptions | None = None) -> list[Detections]:
        tracker = Tracker(IMAGE_WH, options)
        rows = []
        for frame in range(self.frames):
            time = frame / self.rate
            seen = []
            for person, path in enumerate(self.paths):
                centre = path(time)
                if centre is None or self.missed(person, time):
                    continue
                found = box(centre) + self.random.normal(0, 3, 4)  # 3 pixels on every side
                seen.append((found, self.score(person, time)))
                self.truth[frame, tuple(found)] = person
            seen += self.extra(time)
            self.random.shuffle(seen)
            boxes = np.reshape([b for b, _ in seen], (-1, 4))
            scores = np.array([s for _, s in seen])
            rows.append(updated(tracker, time, Detections.in_frame(frame, time, boxes, scores)))
        return confirmed(tracker, rows)

    def people_of(self, track: Detections) -> set[int]:
        rows = zip(track.frame.tolist(), track.box_px, strict=True)
        return {self.truth.get((frame, tuple(found)), -1) for frame, found in rows}


def walk(
    x0: float, y0: float, vx: float, vy: float = 0.0, start: float = 0.0, end: float = np.inf
) -> Walk:
    return lambda t: (x0 + vx * (t - start), y0 + vy * (t - start)) if start <= t < end else None


def one_identity_each(scene: Scene, tracks: list[Detections]) -> bool:
    return sorted(map(sorted, (scene.people_of(t) for t in tracks))) == [
        [p] for p in range(len(scene.paths))
    ]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("rate", [5.0, 25.0, 60.0])
def test_people_who_cross_keep_their_identities(seed: int, rate: float) -> None:
    scene = Scene(walk(100, 200, 120), walk(600, 210, -120), rate=rate, seed=seed)
    assert one_identity_each(scene, scene.track())


@pytest.mark.parametrize("seed", range(5))
def test_one_who_is_hidden_behind_another_while_crossing_comes_out_as_the_same_person(
    seed: int,
) -> None:
    scene = Scene(walk(100, 200, 120), walk(600, 210, -120), seed=seed)
    scene.missed = lambda person, t: person == 1 and abs(t - 500 / 240) < 0.25
    assert one_identity_each(scene, scene.track())


@pytest.mark.parametrize("seed", range(3))
def test_a_gap_shorter_than_the_limit_is_survived_and_stays_a_gap(seed: int) -> None:
    scene = Scene(walk(100, 200, 100), seed=seed)
    scene.missed = lambda person, t: 1.5 <= t < 2.5
    (track,) = scene.track(TrackerOptions(gap_s=1.5))
    times = track.frame / 30
    assert len(track.frame) == 90
    assert not ((times >= 1.5) & (times < 2.5)).any()


def test_a_gap_longer_than_the_limit_makes_somebody_new() -> None:
    scene = Scene(walk(100, 200, 0))
    scene.missed = lambda person, t: 1.0 <= t < 3.0
    assert len(scene.track(TrackerOptions(gap_s=1.5))) == 2


def test_one_leaves_and_another_comes_where_they_left() -> None:
    """The second walks in from the same side, against the way the first walked out."""
    scene = Scene(walk(650, 200, 250, end=1.2), walk(970, 200, -150, start=2.0))
    tracks = scene.track()
    assert one_identity_each(scene, tracks)
    assert [t.identity[0] for t in tracks] == [0, 1]


def test_a_far_jump_is_somebody_else() -> None:
    scene = Scene(walk(100, 200, 0, end=2.0), walk(900, 200, 0, start=2.0))
    assert one_identity_each(scene, scene.track())


def test_a_jump_through_the_air_is_followed() -> None:
    """Up at 3 body heights a second and down by gravity, half of it unseen."""
    scene = Scene(lambda t: (100 + 200 * t, 400 - 500 * t + 450 * t * t), seconds=1.2)
    scene.missed = lambda person, t: 0.3 < t < 0.7
    assert one_identity_each(scene, scene.track())


def test_doubtful_boxes_continue_a_person_but_start_nobody() -> None:
    scene = Scene(walk(100, 200, 60), walk(700, 200, 0))
    scene.score = lambda person, t: 0.25 if person == 1 or t > 1 else 0.8
    (track,) = scene.track()
    assert scene.people_of(track) == {0}
    assert len(track.frame) == scene.frames


def test_furniture_where_a_person_appears_does_not_make_them_appear_sooner() -> None:
    """A table is found now and then, never surely; then somebody stands there and hides it."""
    scene = Scene(walk(500, 200, 0, start=2.0))
    table = box((490, 245), 36, 28)
    scene.extra = lambda t: [(table, 0.5 if t % 0.2 < 0.1 else 0.3)] if t < 2 else []
    (track,) = scene.track()
    assert scene.people_of(track) == {0}
    assert track.frame[0] == 60


def test_furniture_does_not_tie_one_who_left_to_the_next_who_comes() -> None:
    scene = Scene(walk(500, 200, 0, end=1.5), walk(520, 210, 0, start=4.5), seconds=6.0)
    table = box((490, 245), 36, 28)
    scene.extra = lambda t: [(table, 0.5 if t % 0.2 < 0.1 else 0.3)] if 1.5 <= t < 4.5 else []
    tracks = scene.track()
    assert [scene.people_of(track) & {0, 1} for track in tracks] == [{0}, {1}]


def test_a_lower_bar_for_people_than_for_boxes_is_allowed() -> None:
    scene = Scene(walk(100, 200, 60))
    scene.score = lambda person, t: 0.35
    (track,) = scene.track(TrackerOptions(sure_score=0.1))
    assert len(track.frame) == scene.frames


def test_a_second_box_on_the_same_person_starts_nobody() -> None:
    scene = Scene(walk(100, 200, 60))
    scene.extra = lambda t: [(box((102 + 60 * t, 205), 56, 150), 0.5)]
    assert len(scene.track()) == 1


def test_a_flicker_is_not_a_person_but_one_frame_may_be_all_there_is() -> None:
    scene = Scene(walk(100, 200, 60))
    scene.extra = lambda t: [(box((500, 200)), 0.9)] if t == 1.0 else []
    assert len(scene.track()) == 1
    assert len(Scene(walk(100, 200, 0), seconds=1 / 30).track()) == 1


def followed(seconds: float) -> Tracker:
    """A tracker that has seen one person walk at 60 px/s."""
    tracker = Tracker(IMAGE_WH)
    for frame in range(round(30 * seconds)):
        time_s = frame / 30
        place = box((100 + 60 * time_s, 200))[None]
        tracker.update(time_s, Detections.in_frame(frame, time_s, place, np.array([0.8])))
    return tracker


def test_a_person_without_a_box_is_expected_where_they_walked_to() -> None:
    nobody = Detections.in_frame(33, 1.1, np.zeros((0, 4)), np.zeros(0))
    track, expected_px = followed(1.0).unmatched(1.1, nobody, longest_s=0.5)
    assert track.tolist() == [0]
    np.testing.assert_allclose(expected_px[0], box((166, 200)), atol=4)


def test_asking_where_people_are_expected_changes_nothing() -> None:
    asked = followed(1.0)
    one = Detections.in_frame(30, 1.0, box((160, 200))[None], np.array([0.8]))
    for _ in range(3):
        track, _ = asked.unmatched(1.0, one, longest_s=0.5)
        assert len(track) == 0
    later = Detections.in_frame(31, 31 / 30, box((162, 200))[None], np.array([0.8]))
    assert asked.update(1.0, one).tolist() == followed(1.0).update(1.0, one).tolist()
    assert asked.update(31 / 30, later).tolist() == [0]


def test_a_person_who_is_lost_for_long_is_not_expected() -> None:
    nobody = Detections.in_frame(60, 2.0, np.zeros((0, 4)), np.zeros(0))
    track, _ = followed(1.0).unmatched(2.0, nobody, longest_s=0.5)
    assert len(track) == 0


def test_a_box_at_an_expected_place_starts_no_track() -> None:
    tracker = Tracker(IMAGE_WH)
    rows = Detections.in_frame(0, 0.0, box((500, 200))[None], np.array([0.9]))
    assert tracker.update(0.0, replace(rows, identity=np.array([7]))).tolist() == [NOBODY]


def test_nobody_is_an_empty_list() -> None:
    assert Scene().track() == []


def test_boxes_come_out_exactly_as_they_went_in() -> None:
    scene = Scene(walk(100, 200, 120), walk(600, 210, -120))
    tracks = scene.track()
    kept = {(int(f), tuple(b)) for t in tracks for f, b in zip(t.frame, t.box_px, strict=True)}
    assert kept == set(scene.truth)
    assert all((np.diff(t.frame) > 0).all() for t in tracks)


def test_sizes_do_not_matter_only_proportions() -> None:
    def tracks(zoom: float) -> list[tuple[int, ...]]:
        scene = Scene(walk(100, 200, 120), walk(600, 210, -120), rate=10, seed=3)
        tracker = Tracker((round(1000 * zoom), round(600 * zoom)))
        rows = []
        for frame in range(scene.frames):
            boxes = np.stack([box(p(frame / 10) or (0, 0)) for p in scene.paths]) * zoom
            rows.append(
                updated(
                    tracker,
                    frame / 10,
                    Detections.in_frame(frame, frame / 10, boxes, np.full(2, 0.8)),
                )
            )
        return [tuple((t.box_px[:, 0] / zoom).round(3)) for t in confirmed(tracker, rows)]

    assert tracks(1) == tracks(20)


def test_assignment_takes_the_best_total_and_never_a_pair_over_the_limit() -> None:
    cost = np.array([[1.0, 2.0], [1.5, 9.0]])
    assert sorted(assign(cost, 5.0)) == [(0, 1), (1, 0)]
    assert assign(np.array([[7.0]]), 5.0) == []
    assert assign(np.zeros((0, 3)), 5.0) == []
    assert assign(np.zeros((3, 0)), 5.0) == []


def found_in(video: Path, size: int, span: Span) -> list[Detections]:
    clip = Video(video)
    options = TrackerOptions()
    detector = MultiPose(DetectorOptions(long_side=size, score_threshold=options.doubtful_score))
    tracker = Tracker((clip.info.width_px, clip.info.height_px), options)
    rows = []
    for frame in clip.frames(span):
        boxes = detector.detect(frame.rgb)
        seen = Detections.in_frame(frame.index, float(frame.time_s), boxes.boxes_px, boxes.scores)
        rows.append(updated(tracker, float(frame.time_s), seen))
    return confirmed(tracker, rows)


@pytest.mark.slow
def test_two_people_in_the_park_are_two_identities_from_end_to_end(shared: Path) -> None:
    """One walks from right to left below, one stands on a roof above and jumps off it into the sun."""
    man, woman = found_in(shared / "data" / "videos" / "park_two_people.mp4", 512, Span(every=3))
    assert man.frame[0] == 0
    assert man.frame[-1] > 215
    assert woman.frame[0] <= 45
    assert 190 < woman.frame[-1] < 215
    centre_x = (woman.box_px[:, 0] + woman.box_px[:, 2]) / 2
    bottom = woman.box_px[:, 3]
    assert (np.diff(centre_x) < 40).all()
    assert (bottom[woman.frame < 195] > 900).all()
    assert (man.box_px[man.frame < 150, 3] < 600).all()
    assert man.box_px[-1, 0] > 1300


@pytest.mark.slow
def test_people_who_come_one_by_one_share_no_identity(shared: Path) -> None:
    """The first two of them, who stand still for long at a table that looks a little like a person."""
    video = shared / "data" / "videos" / "one_by_one.mp4"
    tracks = found_in(video, 512, Span(start_s=5, end_s=24.5, every=2)) + found_in(
        video, 512, Span(42, 54, every=2)
    )
    visits = ((55, 215), (222, 245), (420, 460), (500, 540))  # read off the video
    assert len(tracks) == 4
    for track, (first, last) in zip(tracks, visits, strict=True):
        assert first - 2 <= track.frame[0]
        assert track.frame[-1] <= last
        assert len(track.frame) > 0.6 * (last - first) / 2
