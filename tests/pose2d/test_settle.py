"""A whole video looked at again: who was not there, who was there twice, and what is said about it."""

import numpy as np

from bench.lib.identity_scenes import pose_of
from pose2d.events import Event
from pose2d.tracking.appearance import no_appearance
from pose2d.tracking.identity import IdentityOptions, Settled, settle
from pose2d.types import Detections, Keypoints

WH = (1000, 600)
FPS = 25.0
FAR = pose_of(np.array([700.0, 300]), 300, 0.0, 1.0)


def person(x: float, height: float = 300.0, y: float = 300.0) -> np.ndarray:
    return pose_of(np.array([x, y]), height, 1.0, 1.0)


def settled(
    poses: dict[int, dict[int, np.ndarray]], cuts: tuple[int, ...] = (), relink: bool = False
) -> Settled:
    """poses: of each track by frame."""
    rows = [
        (track, frame, pose) for track, frames in poses.items() for frame, pose in frames.items()
    ]
    xy = np.array([pose for _, _, pose in rows]).reshape(-1, 17, 2)
    boxes = np.concatenate([xy.min(1) - 15, xy.max(1) + 15], 1)
    frame = np.array([f for _, f, _ in rows])
    keypoints = Keypoints(xy, np.full(xy.shape[:2], 0.8), np.ones(xy.shape[:2]), "ccnet")
    track = np.array([t for t, _, _ in rows])
    seen = Detections(
        frame,
        track,
        boxes,
        np.ones(len(rows)),
        keypoints,
        time_s=frame / FPS,
        appearance=no_appearance(len(rows)),
    )
    starts = np.array([0, *cuts])
    last = np.array([*(cut - 1 for cut in cuts), frame.max(initial=0)]) / FPS
    return settle(seen, starts, last, WH, IdentityOptions(relink=relink))


def test_a_track_lies_within_one_shot_and_somebody_after_a_cut_is_somebody_new() -> None:
    found = settled({0: {n: person(300) for n in range(40)}}, cuts=(15, 30))
    assert [set(part.tolist()) for part in np.split(found.identity, [15, 30])] == [{1}, {2}, {3}]
    assert found.same_as == {1: 1, 2: 2, 3: 3}


def test_identities_are_counted_in_order_of_appearance() -> None:
    found = settled({5: {n: person(300) for n in range(10, 40)}, 9: dict.fromkeys(range(40), FAR)})
    assert set(found.identity[:30].tolist()) == {2}
    assert set(found.identity[30:].tolist()) == {1}


def test_nobody_is_nobody() -> None:
    found = settled({})
    assert len(found.identity) == 0
    assert found.events == []


def test_an_event_survives_being_written_as_a_line() -> None:
    event = Event(1.25, 3, "swap", "person 3 and person 4 may have been exchanged | here")
    assert Event.from_arrays(Event.stack([event]).to_arrays()).each() == [event]


def test_five_hundred_people_in_a_frame_end_and_stay_five_hundred() -> None:
    places = [(40 + 38 * (n % 25), 20 + 28 * (n // 25)) for n in range(500)]
    poses = {
        n: {f: pose_of(np.array([x + f, y]), 40.0, 1.0, 1.0) for f in range(4)}
        for n, (x, y) in enumerate(places)
    }
    found = settled(poses)
    assert len(set(found.identity.tolist()) - {-1}) == 500
