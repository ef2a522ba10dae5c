"""One pass over a video: who is found must not depend on how seldom the detector looks, nor on the
threads.
"""

from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np
import pytest

from pose2d.detect.boxes import Boxes
from pose2d.people import PeopleFinder
from pose2d.tracking.identity import People
from pose2d.tracking.tracker import Tracker
from pose2d.types import Keypoints
from pose2d.video.frames import Frame
from tests.walkers import tracks_of

FPS = 30.0
SIZE = (640, 480)
Scene = Callable[[int], list[tuple[float, float]]]  # frame number -> centres of the people in it


def box(x: float, y: float) -> np.ndarray:
    return np.array([x - 30, y - 80, x + 30, y + 80])


def view(seed: int) -> np.ndarray:
    """An image [480, 640, 3] unlike those of other seeds."""
    blocks = np.random.default_rng(seed).integers(30, 226, (12, 16, 3), dtype=np.uint8)
    return blocks.repeat(40, 0).repeat(40, 1)


def find(
    scene: Scene,
    frames: int = 61,
    workers: int = 1,
    every_frame: bool = False,
    cuts: Sequence[int] = (),
) -> tuple[People, list[int]]:
    """Everyone, and the frames that the detector looked at. Keypoints say where the box was and in
    which frame.
    """
    looked: list[int] = []

    def detect(frame: Frame) -> Boxes:
        looked.append(frame.index)
        boxes = np.array([box(*centre) for centre in scene(frame.index)]).reshape(-1, 4)
        return Boxes(boxes, np.full(len(boxes), 0.9))

    def estimate(
        images: Sequence[np.ndarray], boxes_px: np.ndarray
    ) -> tuple[np.ndarray, Keypoints]:
        number = np.array([int(image[0, 0, 0]) for image in images]).reshape(-1, 1)
        centre = (boxes_px[:, :2] + boxes_px[:, 2:]) / 2
        sure = np.ones((len(boxes_px), 1))
        return boxes_px, Keypoints(centre[:, None], sure, sure, "ccnet", raw=number)

    views = (
        [view(shot) for shot in range(len(cuts) + 1)]
        if cuts
        else [np.zeros((480, 640, 3), np.uint8)]
    )
    clip = []
    for i in range(frames):
        rgb = views[sum(i >= cut for cut in cuts)].copy()
        rgb[0, 0] = i
        clip.append(Frame(i, Fraction(i, 30), rgb))
    finder = PeopleFinder(detect, estimate, every_frame, by_boxes=True)
    return finder.find(clip, FPS, Tracker(SIZE), workers), sorted(looked)


def walking(frame: int) -> list[tuple[float, float]]:
    return [(100.0 + 4 * frame, 240.0), (500.0, 240.0)]


def test_where_nothing_happens_the_detector_looks_twice_a_second() -> None:
    found, looked = find(lambda frame: [(100.0 + 0.5 * frame, 240.0), (500.0, 240.0)])
    assert looked == [0, 15, 30, 45, 60]
    assert [len(track.frame) for track in tracks_of(found.detections)] == [61, 61]


def test_where_people_move_the_detector_looks_every_sixth_of_a_second() -> None:
    found, looked = find(walking)
    assert looked == list(range(0, 61, 5))
    np.testing.assert_array_equal(np.flatnonzero(found.detected), looked)
    assert [len(track.frame) for track in tracks_of(found.detections)] == [61, 61]


def test_boxes_and_keypoints_in_between_belong_to_their_frames() -> None:
    found, _ = find(walking)
    for track, rows in zip(
        tracks_of(found.detections), (slice(0, 61), slice(61, 122)), strict=True
    ):
        np.testing.assert_array_equal(track.frame, np.arange(61))
        np.testing.assert_array_equal(found.detections.keypoints.raw[:, 0][rows], np.arange(61))
        moves = track.box_px[:, 0].std() > 1
        expected = 100.0 + 4 * np.arange(61) if moves else np.full(61, 500.0)
        np.testing.assert_allclose(
            found.detections.keypoints.xy_px[:, 0][rows, 0], expected, atol=1e-9
        )


@pytest.mark.parametrize("workers", [1, 3])
def test_threads_do_not_change_the_result(workers: int) -> None:
    one, _ = find(walking)
    other, _ = find(walking, workers=workers)
    for a, b in zip(tracks_of(one.detections), tracks_of(other.detections), strict=True):
        assert a.box_px.tobytes() == b.box_px.tobytes()
    for name, values in one.detections.to_arrays().items():
        np.testing.assert_array_equal(values, other.detections.to_arrays()[name])


def test_somebody_who_comes_or_goes_is_followed_frame_by_frame() -> None:
    def comes(frame: int) -> list[tuple[float, float]]:
        return [(100.0, 240.0), *([(400.0, 240.0)] if 17 <= frame < 43 else [])]

    found, looked = find(comes)
    lengths = {len(track.frame): track for track in tracks_of(found.detections)}
    np.testing.assert_array_equal(lengths[26].frame, np.arange(17, 43))
    assert {16, 17, 18, 19, 41, 42, 43, 44} <= set(looked)


def test_people_close_to_each_other_are_looked_at_in_every_frame() -> None:
    def cross(frame: int) -> list[tuple[float, float]]:
        return [(100.0 + 4 * frame, 240.0), (340.0 - 4 * frame, 240.0)]

    _, looked = find(cross)
    assert set(range(24, 36)) <= set(looked)
    assert not {2, 3, 57, 58} & set(looked)


def test_given_boxes_are_used_in_every_frame() -> None:
    _, looked = find(walking, every_frame=True)
    assert looked == list(range(61))


def test_an_empty_video_and_one_without_people_have_nobody() -> None:
    assert tracks_of(find(walking, frames=0)[0].detections) == []
    found, looked = find(lambda frame: [])
    assert tracks_of(found.detections) == []
    assert looked == [0, 15, 30, 45, 60]


def test_large_images_make_intervals_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pose2d.people.HELD_BYTES", 11 * 480 * 640 * 3)
    _, looked = find(lambda frame: [(500.0, 240.0)])
    assert looked == [0, 10, 20, 30, 40, 50, 60]


def test_an_error_in_a_worker_is_raised_here() -> None:
    def broken(frame: int) -> list[tuple[float, float]]:
        raise ValueError("the network failed")

    with pytest.raises(ValueError, match="the network failed"):
        find(broken, workers=2)


def test_at_a_cut_tracks_end_and_the_detector_looks_at_the_first_frame_of_the_shot() -> None:
    found, looked = find(lambda frame: [(500.0, 240.0)], cuts=(22, 40))
    assert found.shot_first_frame.tolist() == [0, 22, 40]
    assert [(t.frame[0], t.frame[-1]) for t in tracks_of(found.detections)] == [
        (0, 21),
        (22, 39),
        (40, 60),
    ]
    assert [len(t.frame) for t in tracks_of(found.detections)] == [22, 18, 21]
    assert [t.identity[0] for t in tracks_of(found.detections)] == [1, 2, 3]
    assert {0, 21, 22, 39, 40, 60} <= set(looked)
    assert len(looked) < 15
    assert found.same_as == {1: 1, 2: 2, 3: 3}


def test_no_box_is_interpolated_over_a_cut() -> None:
    found, _ = find(lambda frame: [(300.0 if frame < 22 else 330.0, 240.0)], cuts=(22,))
    for track, x in zip(tracks_of(found.detections), (300.0, 330.0), strict=True):
        np.testing.assert_array_equal(track.box_px[:, 0], x - 30)


def test_a_cut_every_two_frames_ends_and_finds_everybody() -> None:
    found, _ = find(lambda frame: [(500.0, 240.0)], frames=30, cuts=tuple(range(2, 30, 2)))
    assert found.shot_first_frame.tolist() == list(range(0, 30, 2))
    assert [t.frame.tolist() for t in tracks_of(found.detections)] == [
        [n, n + 1] for n in range(0, 30, 2)
    ]


def test_one_frame_is_one_shot() -> None:
    found, looked = find(lambda frame: [(500.0, 240.0)], frames=1)
    assert (found.shot_first_frame.tolist(), looked) == ([0], [0])
    assert len(tracks_of(found.detections)) == 1


def test_whoever_is_not_seen_again_in_the_middle_of_the_image_is_lost_and_who_walks_out_is_not() -> (
    None
):
    lost, _ = find(lambda frame: [(320.0, 240.0)] if frame < 30 else [])
    assert [(event.kind, event.identity) for event in lost.events] == [("lost", 1)]
    assert lost.events[0].time_s == pytest.approx(29 / 30)
    left, _ = find(lambda frame: [(320.0 + 10 * frame, 240.0)] if frame < 30 else [])
    assert left.events == []


LAYOUT = np.random.default_rng(3).uniform(-1, 1, (17, 2)) * (25, 70)  # of a body in its box


def find_with_poses(
    scene: Scene, seen: Callable[[int, int], bool], frames: int = 46
) -> tuple[People, PeopleFinder]:
    """Find people whom the detector sees only where `seen` (frame, person) says so. The pose
    network reads the person nearest to the middle of a box, and believes a person within 25 px.
    """

    def detect(frame: Frame) -> Boxes:
        people = enumerate(scene(frame.index))
        boxes = [box(*centre) for n, centre in people if seen(frame.index, n)]
        return Boxes(np.reshape(boxes, (-1, 4)), np.full(len(boxes), 0.9))

    def estimate(
        images: Sequence[np.ndarray], boxes_px: np.ndarray
    ) -> tuple[np.ndarray, Keypoints]:
        xy_px = np.zeros((len(boxes_px), 17, 2))
        sure = np.zeros((len(boxes_px), 17))
        for row, (image, place) in enumerate(zip(images, boxes_px, strict=True)):
            middle = (place[:2] + place[2:]) / 2
            centres = np.array(scene(int(image[0, 0, 0])))
            distance = np.linalg.norm(centres - middle, axis=1)
            xy_px[row] = centres[distance.argmin()] + LAYOUT
            sure[row] = 0.9 if distance.min() < 25 else 0.1
        return boxes_px, Keypoints(xy_px, sure, np.ones_like(sure), "ccnet", raw=sure)

    clip = []
    for number in range(frames):
        rgb = np.zeros((480, 640, 3), np.uint8)
        rgb[0, 0] = number
        clip.append(Frame(number, Fraction(number, 30), rgb))
    finder = PeopleFinder(detect, estimate)
    return finder.find(clip, FPS, Tracker(SIZE)), finder


def test_a_person_whom_the_detector_loses_is_read_where_the_track_expects_them() -> None:
    found, finder = find_with_poses(walking, lambda frame, n: n == 1 or not 12 <= frame < 30)
    assert [len(track.frame) for track in tracks_of(found.detections)] == [46, 46]
    assert finder.expected_crops > 0


def test_a_person_who_has_gone_is_not_read_at_an_empty_place() -> None:
    def goes(frame: int) -> list[tuple[float, float]]:
        return [(500.0, 240.0), *([(150.0, 240.0)] if frame < 15 else [])]

    found, _ = find_with_poses(goes, lambda frame, n: True)
    assert sorted(len(track.frame) for track in tracks_of(found.detections)) == [15, 46]


def test_the_keypoints_of_a_neighbour_are_not_taken_for_a_lost_person() -> None:
    """One person goes while another stands so near that a box at the old place shows the other."""

    def near(frame: int) -> list[tuple[float, float]]:
        return [(300.0, 240.0), *([(320.0, 240.0)] if frame < 15 else [])]

    found, finder = find_with_poses(near, lambda frame, n: True)
    assert finder.expected_crops > 0
    assert sorted(len(track.frame) for track in tracks_of(found.detections)) == [15, 46]


def test_where_nobody_is_lost_no_crop_is_made_at_an_expected_place() -> None:
    _, finder = find_with_poses(walking, lambda frame, n: True)
    assert finder.expected_crops == 0
