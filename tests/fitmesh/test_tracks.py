"""`fitmesh tracks`: edits survive the next run, and nonsense is refused before anything is written."""

import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import fitmesh as package
from fitmesh.result import EDITS_FILE
from fitmesh.stages.people import SeenPeople, read_keypoints, read_tracks
from fitmesh.tracks import (
    Drop,
    Edit,
    Merge,
    Split,
    apply_edits,
    edit_tracks,
    edited_keypoints,
    edited_tracks,
    list_tracks,
)
from pose2d.base.errors import UserError
from pose2d.events import Event
from pose2d.types import OUTLINE_POINTS, Detections, HandKeypoints, Outlines
from tests.fitmesh.conftest import FRAMES, SIZE, Fitmesh
from tests.videos import write_video
from tests.walkers import coco_results, tracks_of, walker, write_json

pytestmark = pytest.mark.usefixtures("no_exports")
BROKEN = 5  # the second walker's identity changes here, from 2 to 3


@pytest.fixture
def arguments(tmp_path: Path) -> tuple[str | Path, ...]:
    """A run of two people, one of whom was taken for two."""
    people = [walker(FRAMES, SIZE, -0.6), walker(FRAMES, SIZE, 0.5)]
    entries = coco_results(people)
    for entry in entries:
        if entry["track_id"] == 2 and entry["image_id"] >= BROKEN:
            entry["track_id"] = 3
    video = write_video(tmp_path / "video.mp4", [40 * i for i in range(FRAMES)], SIZE)
    keypoints = write_json(tmp_path / "k.json", entries)
    return "run", "--video", video, "--keypoints", keypoints, "--out", tmp_path / "out"


@pytest.fixture
def out(fitmesh: Fitmesh, arguments: tuple[str | Path, ...], tmp_path: Path) -> Path:
    assert fitmesh(*arguments) == 0, fitmesh.said
    return tmp_path / "out"


def people_of(folder: Path) -> dict[int, list[int]]:
    return {person.identity: person.frame.tolist() for person in package.load(folder).people}


def test_a_merge_is_kept_by_the_next_run_which_makes_only_the_rest(
    fitmesh: Fitmesh, arguments: tuple[str | Path, ...], out: Path
) -> None:
    found = [(out / name).read_bytes() for name in ("tracks.npz", "keypoints.npz")]
    assert fitmesh("tracks", out, "--merge", "2,3") == 0, fitmesh.said
    assert "person 2: 12 frames, 0.00 to 0.44 s" in fitmesh.out
    assert "edit 1: merge 2, 3" in fitmesh.out
    assert fitmesh(*arguments) == 0
    assert fitmesh.stages_made() == ["fit", "overlay"]
    assert people_of(out) == {1: list(range(FRAMES)), 2: list(range(FRAMES))}
    assert fitmesh(*arguments) == 0
    assert fitmesh.stages_made() == []
    assert [(out / name).read_bytes() for name in ("tracks.npz", "keypoints.npz")] == found


def test_a_merged_person_has_the_rows_of_both_in_order(out: Path) -> None:
    before = read_keypoints(out)
    edit_tracks(out, merge=[(3, 2)])
    after = edited_keypoints(out)
    assert sorted(after.people) == [1, 3]
    np.testing.assert_array_equal(after.people[3].frame, np.arange(FRAMES))
    expected = np.concatenate([before.people[2].xy_px, before.people[3].xy_px])
    np.testing.assert_array_equal(after.people[3].xy_px, expected)
    raw = [before.people[i].points.raw for i in (2, 3)]
    np.testing.assert_array_equal(after.people[3].points.raw, np.concatenate(raw))
    (track,) = [track for track in tracks_of(edited_tracks(out).rows) if track.identity[0] == 3]
    np.testing.assert_array_equal(track.box_px, after.people[3].box_px)


def with_hands(out: Path) -> HandKeypoints:
    """A hand of every row in the file of a run, each at another place."""
    arrays = dict(np.load(out / "keypoints.npz"))
    hands = HandKeypoints.unseen(len(arrays["row_frame"]))
    hands = replace(
        hands, xy_px=np.arange(hands.xy_px.size, dtype=np.float32).reshape(hands.xy_px.shape)
    )
    np.savez(out / "keypoints.npz", **arrays | hands.to_arrays())
    return hands


def test_a_merged_person_has_the_hands_of_both_in_order(out: Path) -> None:
    with_hands(out)
    before = read_keypoints(out).people
    edit_tracks(out, merge=[(3, 2)])
    merged, *parts = (
        rows.hands for rows in (edited_keypoints(out).people[3], before[2], before[3])
    )
    assert merged is not None
    np.testing.assert_array_equal(
        merged.xy_px, np.concatenate([part.xy_px for part in parts if part is not None])
    )
    assert not merged.presence.any()


def test_outlines_stay_with_their_frames_through_a_merge(out: Path) -> None:
    arrays = dict(np.load(out / "keypoints.npz"))
    rows = np.arange(0, len(arrays["row_frame"]), 2)
    points = np.repeat(rows.astype(np.float32), OUTLINE_POINTS * 2).reshape(-1, OUTLINE_POINTS, 2)
    np.savez(
        out / "keypoints.npz", **arrays | Outlines(rows, points, np.zeros_like(points)).to_arrays()
    )
    edit_tracks(out, merge=[(3, 2)])
    after = edited_keypoints(out)
    for identity, person in after.people.items():
        outlines = after.outlines_of(identity)
        assert outlines is not None
        were = outlines.xy_px[:, 0, 0].astype(int)  # rows in the file
        np.testing.assert_array_equal(person.frame[outlines.row], arrays["row_frame"][were])
    assert after.outlines is not None
    assert len(after.outlines) == len(rows)


def test_a_file_of_an_older_version_has_no_hands(out: Path) -> None:
    arrays = {
        name: value
        for name, value in np.load(out / "keypoints.npz").items()
        if "_hand_" not in name
    }
    np.savez(out / "keypoints.npz", **arrays)
    assert read_keypoints(out).rows.hands is None
    assert edited_keypoints(out).rows.hands is None


def test_a_file_with_half_of_its_hands_is_refused(out: Path) -> None:
    with_hands(out)
    arrays = dict(np.load(out / "keypoints.npz"))
    del arrays["row_hand_std_px"]
    np.savez(out / "keypoints.npz", **arrays)
    with pytest.raises(UserError, match="lacks row_hand_std_px"):
        read_keypoints(out)


def test_a_split_gives_the_later_frames_a_new_number(
    fitmesh: Fitmesh, arguments: tuple[str | Path, ...], out: Path
) -> None:
    assert fitmesh("tracks", out, "--split", "1@0.2s") == 0, fitmesh.said
    assert "split 1 at 0.2 s, then 4" in fitmesh.out
    assert fitmesh(*arguments) == 0
    assert people_of(out) == {
        1: [0, 1, 2, 3, 4],
        2: [0, 1, 2, 3, 4],
        3: list(range(5, 12)),
        4: list(range(5, 12)),
    }


def test_edits_of_one_command_follow_each_other_and_a_crossing_is_corrected(out: Path) -> None:
    """1 and 2 changed places at 0.2 s: split, then put the right halves together."""
    people = edit_tracks(out, split=[(1, 0.2)])
    assert [person.identity for person in people] == [1, 2, 3, 4]
    people = edit_tracks(out, merge=[(1, 3), (2, 4)], drop=[2])
    assert [(p.identity, p.frames, round(p.start_s, 2), round(p.end_s, 2)) for p in people] == [
        (1, 12, 0.0, 0.44)
    ]


def test_undo_takes_back_one_edit_and_clear_all(
    fitmesh: Fitmesh, arguments: tuple[str | Path, ...], out: Path
) -> None:
    edit_tracks(out, merge=[(2, 3)], drop=[1])
    assert fitmesh("tracks", out, "--undo") == 0
    assert [person.identity for person in list_tracks(out)] == [1, 2]
    assert "edit 1: merge 2, 3" in fitmesh.out
    assert "edit 2" not in fitmesh.out
    assert fitmesh("tracks", out, "--clear") == 0
    assert not (out / EDITS_FILE).exists()
    assert fitmesh(*arguments) == 0
    assert sorted(people_of(out)) == [1, 2, 3]
    assert fitmesh("tracks", out, "--undo") == 2
    assert "0 edits" in fitmesh.said


def test_everyone_may_be_dropped(
    fitmesh: Fitmesh, arguments: tuple[str | Path, ...], out: Path
) -> None:
    assert fitmesh("tracks", out, "--drop", "1,2", "--drop", "3") == 0, fitmesh.said
    assert "no people" in fitmesh.out
    assert fitmesh(*arguments) == 0
    assert people_of(out) == {}


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--merge", "2,9"), "person 9 does not exist: the tracks have 1, 2, 3"),
        (("--merge", "1,2"), "both are visible in 5 frames, first at 0.00 s"),
        (("--merge", "2"), "two or more different people"),
        (("--merge", "2,2"), "two or more different people"),
        (("--merge", "two,3"), "--merge must be numbers of people"),
        (("--split", "1@9s"), "is visible from 0.00 to 0.44 s"),
        (("--split", "1@0"), "leaves nothing on one side"),
        (("--split", "7@0.2"), "person 7 does not exist"),
        (("--split", "1"), "such as 2@4.5s"),
        (("--split", "1@nan"), "such as 2@4.5s"),
        (("--drop", "-4"), "--drop must be numbers"),
        (("--drop", "8"), "person 8 does not exist"),
        (("--drop", "1", "--undo"), "--undo, --clear, --list"),
        (("--merge", "2,3", "--drop", "3"), "person 3 does not exist: the tracks have 1, 2"),
    ],
)
def test_nonsense_is_refused_before_anything_is_written(
    fitmesh: Fitmesh, out: Path, options: tuple[str, ...], says: str
) -> None:
    edit_tracks(out, drop=[])
    assert fitmesh("tracks", out, *options) == 2
    assert says in " ".join(fitmesh.said.split())
    assert not (out / EDITS_FILE).exists()


def test_edits_of_other_tracks_are_refused_not_guessed(
    fitmesh: Fitmesh, arguments: tuple[str | Path, ...], out: Path
) -> None:
    edit_tracks(out, merge=[(2, 3)])
    keypoints = Path(str(arguments[4]))
    entries = [entry for entry in json.loads(keypoints.read_text()) if entry["track_id"] != 3]
    write_json(keypoints, entries)
    assert fitmesh(*arguments) == 2
    assert "were made for other tracks" in " ".join(fitmesh.said.split())
    assert len(tracks_of(read_tracks(out).rows)) == 2
    assert fitmesh("tracks", out, "--clear") == 0
    assert fitmesh(*arguments) == 0
    assert sorted(people_of(out)) == [1, 2]


@pytest.mark.parametrize(
    "content", ["", "[]", '{"tracks": "x"}', '{"tracks": "x", "edits": [{"jump": 3}]}']
)
def test_a_damaged_file_of_edits_is_named(out: Path, content: str) -> None:
    (out / EDITS_FILE).write_text(content)
    with pytest.raises(UserError, match=EDITS_FILE):
        list_tracks(out)


def test_a_folder_without_tracks_is_named(fitmesh: Fitmesh, tmp_path: Path) -> None:
    assert fitmesh("tracks", tmp_path) == 2
    assert "tracks.npz" in " ".join(fitmesh.said.split())


def tracks_with_a_cut() -> SeenPeople:
    """Person 1 before the cut at frame 6, 2 after it, 3 and 4 one after the other in the first
    shot.
    """
    spans = {1: range(6), 2: range(6, 12), 3: range(3), 4: range(4, 6)}
    who = np.repeat(list(spans), list(map(len, spans.values())))
    rows = Detections(
        np.concatenate(list(spans.values())),
        who,
        np.tile([0.0, 0.0, 9.0, 9.0], (len(who), 1)),
        who / 10,
    )
    return SeenPeople(
        width_px=64,
        height_px=48,
        rate=Fraction(10),
        frames=np.arange(12),
        time_s=np.arange(12) / 10,
        rows=rows,
        shot_first_frame=np.array([0, 6]),
        same_as={who: who for who in spans},
        events=[
            Event(0.2, 3, "lost", "gone"),
            Event(0.45, 4, "swap", "with 1"),
            Event(1.1, 2, "lost", "gone"),
        ],
        warnings=[],
    )


def edited(*edits: Edit) -> SeenPeople:
    tracks = tracks_with_a_cut()
    return apply_edits(tracks, edits)


def test_nobody_is_followed_over_a_cut() -> None:
    """Merged people of different shots stay two, and are said to be the same; within a shot they
    become one.
    """
    after = edited(Merge((2, 1)))
    assert {
        track.identity[0]: track.frame.tolist()
        for track in tracks_of(after.rows)
        if track.identity[0] < 3
    } == {
        1: [0, 1, 2, 3, 4, 5],
        2: [6, 7, 8, 9, 10, 11],
    }
    assert after.same_as == {1: 1, 2: 1, 3: 3, 4: 4}
    after = edited(Merge((3, 4, 2)))
    assert [(track.identity[0], len(track)) for track in tracks_of(after.rows)] == [
        (1, 6),
        (2, 6),
        (3, 5),
    ]
    assert after.same_as == {1: 1, 2: 3, 3: 3}
    assert edited(Merge((3, 4, 2)), Drop(3)).same_as == {1: 1, 2: 2}
    assert edited(Merge((2, 1)), Split(2, 0.8, 5)).same_as == {1: 1, 2: 1, 3: 3, 4: 4, 5: 5}


def test_events_follow_the_people_they_are_about() -> None:
    assert [(e.identity, e.kind) for e in edited().events] == [
        (3, "lost"),
        (4, "swap"),
        (2, "lost"),
    ]
    after = edited(Merge((3, 4)), Drop(2))
    assert [(e.identity, e.kind) for e in after.events] == [
        (3, "swap")
    ]  # not lost any more; 2 is nobody's business
    scores = after.rows.score[after.rows.identity == 3]
    np.testing.assert_allclose(scores, [0.3, 0.3, 0.3, 0.4, 0.4])


def test_what_to_check_is_listed_with_its_time(fitmesh: Fitmesh, out: Path) -> None:
    with np.load(out / "tracks.npz") as file:
        arrays = dict(file)
    events = [
        Event(0.16, 2, "lost", "was not found again"),
        Event(0.08, 1, "swap", "may be 2 from here on"),
    ]
    arrays |= Event.stack(events).to_arrays()
    np.savez(out / "tracks.npz", **arrays)
    assert fitmesh("tracks", out) == 0, fitmesh.said
    lines = [line for line in fitmesh.out.splitlines() if line.startswith("check")]
    assert lines == [
        "check 0.08 s: person 1, swap: may be 2 from here on",
        "check 0.16 s: person 2, lost: was not found again",
    ]
    assert fitmesh("tracks", out, "--merge", "2,3") == 0
    assert "lost" not in fitmesh.out
