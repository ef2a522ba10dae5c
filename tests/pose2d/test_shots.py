"""Cuts are found, and nothing else is taken for one."""

import itertools
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import cv2
import numpy as np
import pytest

from pose2d.video.frames import Frame
from pose2d.video.shots import CutKind, ShotMarker, new_structure, shrink, thumbnail
from pose2d.video.video_file import Video


def scene(seed: int) -> np.ndarray:
    """A wide image of discs that hide each other (dead leaves), whose statistics are those of
    photos, [200, 400, 3].
    """
    random = np.random.default_rng(seed)
    image = np.zeros((200, 400, 3), np.uint8)
    for radius in np.sort(random.pareto(1.5, 700) * 5 + 5)[::-1]:
        x = random.integers(0, 400)
        y = random.integers(0, 200)
        colour = random.normal(127, 50, 3).clip(0, 255).tolist()
        cv2.circle(image, (int(x), int(y)), int(min(radius, 150)), colour, -1, cv2.LINE_AA)
    return image


def shot(seed: int, count: int, step_px: float = 2.0) -> np.ndarray:
    """A camera panning over a scene, [count, 90, 160, 3]."""
    wide = scene(seed)
    xs = np.abs((np.arange(count) * step_px) % 440 - 220).astype(int)
    return np.stack([wide[50:140, x : x + 160] for x in xs])


def cuts_of(frames: np.ndarray, fps: float = 25.0) -> dict[int, CutKind]:
    marker = ShotMarker()
    list(marker.mark(Frame(i, Fraction(i) / Fraction(fps), rgb) for i, rgb in enumerate(frames)))
    return dict(sorted(marker.cuts.items()))


def starts_of(frames: np.ndarray, fps: float = 25.0) -> list[int]:
    return list(cuts_of(frames, fps))


@pytest.mark.parametrize("fps", [5.0, 25.0, 240.0])
def test_joined_shots_are_cut_where_they_were_joined(fps: float) -> None:
    frames = np.concatenate([shot(seed, 20 + seed) for seed in range(5)])
    assert starts_of(frames, fps) == [20, 41, 63, 86]


def test_a_pan_up_to_an_eighth_of_the_image_a_frame_is_no_cut() -> None:
    assert starts_of(shot(1, 60, step_px=18)) == []


def test_a_whip_pan_faster_than_any_match_is_no_cut() -> None:
    wide = np.concatenate([scene(seed) for seed in range(4)], 1)
    x = np.concatenate([np.zeros(10), np.arange(0, 1200, 70), np.full(10, 1190)]).astype(int)
    assert starts_of(np.stack([wide[50:140, a : a + 160] for a in x])) == []


def test_flicker_and_exposure_are_no_cut() -> None:
    random = np.random.default_rng(0)
    gain = np.exp(random.normal(0, 0.25, 60))[:, None, None, None]
    assert starts_of((shot(1, 60) * gain).clip(0, 255).astype(np.uint8)) == []


@pytest.mark.parametrize("length", [1, 2, 3])
def test_a_flash_is_no_cut(length: int) -> None:
    frames = shot(1, 60)
    frames[20 : 20 + length] = 255
    frames[40 : 40 + length] = (0.25 * frames[40 : 40 + length] + 230).clip(0, 255)
    assert starts_of(frames) == []


def test_one_strange_frame_is_no_cut() -> None:
    frames = shot(1, 40)
    frames[20] = shot(2, 1)[0]
    assert starts_of(frames) == []


def test_black_and_frozen_frames_and_a_single_frame_are_no_cut() -> None:
    assert starts_of(np.zeros((50, 90, 160, 3), np.uint8)) == []
    assert starts_of(np.repeat(shot(1, 1), 50, 0)) == []
    assert starts_of(shot(1, 1)) == []
    assert cuts_of(np.zeros((0, 90, 160, 3), np.uint8)) == {}


def test_black_between_two_shots_is_a_fade_where_the_new_shot_appears() -> None:
    black = np.zeros((12, 90, 160, 3), np.uint8)
    assert cuts_of(np.concatenate([shot(1, 30), black, shot(2, 30)])) == {42: "fade"}


def test_a_shot_that_returns_from_black_goes_on() -> None:
    frames = shot(1, 60, step_px=0)
    frames[20:40] = 0
    assert starts_of(frames) == []


def test_a_dissolve_is_one_cut_near_its_middle() -> None:
    a = shot(1, 40, step_px=0.2).astype(float)
    b = shot(2, 40, step_px=0.2).astype(float)
    share = np.linspace(0, 1, 14)[1:-1, None, None, None]
    blend = (1 - share) * a[28:] + share * b[:12]
    ((frame, kind),) = cuts_of(np.concatenate([a[:28], blend, b[12:]]).astype(np.uint8)).items()
    assert kind == "dissolve"
    assert 31 <= frame <= 37


def test_a_cut_between_upright_videos_shown_with_bars_is_found() -> None:
    frames = np.concatenate([shot(1, 30), shot(2, 30)])
    frames[:, :, :56], frames[:, :, 104:] = 0, 0
    assert starts_of(frames) == [30]


def test_a_dark_video_is_cut_alike() -> None:
    noise = np.random.default_rng(0).normal(0, 5, (60, 90, 160, 3))
    dark = (
        (0.12 * (np.concatenate([shot(1, 30), shot(2, 30)]) + noise)).clip(0, 255).astype(np.uint8)
    )
    assert starts_of(dark) == [30]


def test_a_cut_every_two_frames_is_found_and_memory_stays_bounded() -> None:
    frames = np.concatenate([shot(seed, 2) for seed in range(40)])
    assert starts_of(frames) == list(range(2, 80, 2))
    marker = ShotMarker()
    list(
        marker.mark(
            Frame(number, Fraction(number, 1000), frames[number % 80]) for number in range(2000)
        )
    )
    assert len(marker._recent) <= 50


def marked(frames: np.ndarray, fps: float = 25.0) -> tuple[list[int], list[int], ShotMarker, int]:
    """Numbers of the frames as they come out, those that begin a shot, the marker, and the most
    frames that waited.
    """
    held = most = 0

    def source() -> Iterator[Frame]:
        nonlocal held
        for number, rgb in enumerate(frames):
            held += 1
            yield Frame(number, Fraction(number / fps), rgb)

    marker = ShotMarker()
    out = []
    starts = []
    for frame, starts_shot in marker.mark(source()):
        most = max(most, held)
        held -= 1
        out.append(frame.index)
        starts += [frame.index] if starts_shot else []
    return out, starts, marker, most


def test_marked_frames_keep_their_order_and_know_the_cut_and_wait_only_after_a_sudden_change() -> (
    None
):
    frames = np.concatenate([shot(seed, 25) for seed in range(3)])
    out, starts, marker, most = marked(frames)
    assert out == list(range(75))
    assert starts == [0, 25, 50]
    assert marker.late == []
    assert most <= 8
    assert marked(shot(1, 40))[3] == 1


def test_a_dissolve_is_known_late_and_no_image_waits_for_it() -> None:
    a = shot(1, 40, step_px=0.2).astype(float)
    b = shot(2, 40, step_px=0.2).astype(float)
    share = np.linspace(0, 1, 14)[1:-1, None, None, None]
    frames = np.concatenate([a[:28], (1 - share) * a[28:] + share * b[:12], b[12:]]).astype(
        np.uint8
    )
    _, starts, marker, most = marked(frames)
    assert starts == [0]
    assert len(marker.late) == 1
    assert 31 <= marker.late[0] <= 37
    assert most <= 8


def test_new_structure_is_none_for_a_moved_and_brightened_image_and_most_for_another() -> None:
    first, moved, other = (
        thumbnail(image) for image in (shot(1, 2, 8)[0], shot(1, 2, 8)[1], shot(2, 1)[0])
    )
    assert new_structure(first, 0.5 * moved + 30) < 0.1
    assert new_structure(first, other) > 0.3


def test_no_cut_is_invented_in_the_shared_videos_and_every_join_of_two_is_found(
    shared: Path,
) -> None:
    def small(path: Path, frames: int) -> np.ndarray:
        return np.stack([shrink(f.rgb) for f in itertools.islice(Video(path).frames(), frames)])

    clips = [small(path, 120) for path in sorted((shared / "data" / "videos").iterdir())]
    for clip in clips:
        assert starts_of(clip, 15.0) == []
    for a, b in itertools.permutations(clips, 2):
        assert starts_of(np.concatenate([a[-15:], b[:15]])) == [min(15, len(a))]
