"""`fitmesh run`: what it leaves, what it repeats and what it says when something is wrong."""

import json
import shutil
from pathlib import Path

import cv2
import numpy as np
import pytest

import fitmesh as package
from fitmesh.stages import people
from fitmesh.stages.people import read_keypoints, read_tracks
from fitmesh.stages.settings import RunSettings
from pose2d.video.frames import Span
from pose2d.video.video_file import Video
from tests.fitmesh.conftest import Fitmesh
from tests.videos import image, write_sound, write_video
from tests.walkers import tracks_of

EXAMPLE = Path(__file__).parents[2] / "examples" / "park.mp4"
TIMES_MS = [0, 40, 80, 120, 160, 200]
LIGHT = ("--whole-image", "--pose-model", "movenet-lightning")  # no detector, the small network

pytestmark = pytest.mark.usefixtures("no_exports")


@pytest.fixture(scope="module")
def video(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_video(tmp_path_factory.mktemp("video") / "video.mp4", TIMES_MS, sound="aac")


def contents(path: Path) -> dict[str, np.ndarray]:
    with np.load(path, allow_pickle=False) as file:
        return {key: file[key] for key in file.files}


def test_the_example_clip_has_two_people_with_skeletons(fitmesh: Fitmesh, tmp_path: Path) -> None:
    code = fitmesh(
        "run",
        "--video",
        EXAMPLE,
        "--out",
        tmp_path,
        "--start",
        "1.3",
        "--every",
        "9",
        "--confidence",
        "raw",
    )
    assert code == 0, fitmesh.said
    seen = read_tracks(tmp_path)
    read = read_keypoints(tmp_path)
    assert seen.frames.tolist() == list(range(39, 120, 9))
    assert [len(track) for track in tracks_of(seen.rows)] == [9, 9]
    assert read.rows.points.source == "raw"
    for track in tracks_of(seen.rows):
        person = read.people[track.identity[0]].points
        np.testing.assert_array_equal(read.people[track.identity[0]].frame, track.frame)
        assert person.xy_px.shape == (9, 26, 2)
        assert 0.3 < float(person.confidence.mean()) < 1
        x1, y1, x2, y2 = track.box_px.T
        x = person.xy_px.numpy()[..., 0].T
        y = person.xy_px.numpy()[..., 1].T
        margin = 0.2 * (y2 - y1)
        assert (
            (x > x1 - margin) & (x < x2 + margin) & (y > y1 - margin) & (y < y2 + margin)
        ).mean() > 0.95
    assert Video(tmp_path / "overlay.mp4").info.rate == Video(EXAMPLE).info.rate / 9
    for person in package.load(tmp_path).people:
        assert len(person) == 9
        assert person.observed.all()
        assert (
            person.reprojection_px[person.confident].mean()
            < 0.03 * (person.box_px[:, 3] - person.box_px[:, 1]).mean()
        )
        assert (
            person.joints_m[:, [7, 8], 1] > person.joints_m[:, [15], 1]
        ).all()  # heads are above feet
    assert "raw" in fitmesh.said
    assert "\x1b" not in fitmesh.said


def test_the_overlay_keeps_times_size_and_sound(
    fitmesh: Fitmesh, video: Path, tmp_path: Path
) -> None:
    assert fitmesh("run", "--video", video, "--out", tmp_path, *LIGHT) == 0
    source = Video(video)
    result = Video(tmp_path / "overlay.mp4")
    assert [f.time_s for f in result.frames()] == [f.time_s for f in source.frames()]
    assert (result.info.width_px, result.info.height_px, result.info.has_audio) == (64, 48, True)


def test_what_is_there_and_matches_is_kept_and_a_changed_setting_redoes_what_it_touches(
    fitmesh: Fitmesh, video: Path, tmp_path: Path
) -> None:
    command = ("run", "--video", video, "--out", tmp_path, *LIGHT)
    assert fitmesh(*command, "--confidence", "raw") == 0
    assert fitmesh.stages_made() == ["people", "fit", "overlay"]
    fitmesh(*command, "--confidence", "raw")
    assert fitmesh.stages_made() == []
    fitmesh(*command, "--confidence", "ones")
    assert fitmesh.stages_made() == ["people", "fit", "overlay"]
    fitmesh(*command, "--confidence", "ones", "--every", "2")
    assert fitmesh.stages_made() == ["people", "fit", "overlay"]
    (tmp_path / "overlay.mp4").unlink()
    fitmesh(*command, "--confidence", "ones", "--every", "2")
    assert fitmesh.stages_made() == ["overlay"]
    whole = (tmp_path / "keypoints.npz").read_bytes()
    (tmp_path / "keypoints.npz").write_bytes(whole[: len(whole) // 2])
    fitmesh(*command, "--confidence", "ones", "--every", "2")
    assert fitmesh.stages_made() == ["people"]
    assert (tmp_path / "keypoints.npz").read_bytes() == whole
    fitmesh(*command, "--confidence", "ones", "--every", "2", "--overwrite")
    assert fitmesh.stages_made() == ["people", "fit", "overlay"]


def test_another_video_under_the_same_name_is_noticed(
    fitmesh: Fitmesh, video: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "video.mp4"
    shutil.copy(video, copy)
    fitmesh("run", "--video", copy, "--out", tmp_path / "out", *LIGHT)
    shutil.copy(video, copy)  # a newer date, the same content
    fitmesh("run", "--video", copy, "--out", tmp_path / "out", *LIGHT)
    assert fitmesh.stages_made() == []
    write_video(copy, TIMES_MS[:-1])
    fitmesh("run", "--video", copy, "--out", tmp_path / "out", *LIGHT)
    assert fitmesh.stages_made() == ["people", "fit", "overlay"]


def test_batching_over_frames_changes_no_keypoint(fitmesh: Fitmesh, tmp_path: Path) -> None:
    import pose2d
    from pose2d.crops import estimate

    boxes = [(i, x) for i in range(5) for x in (10.0 * i, 500.0 - 20 * i, 900.0)]
    entries = [
        {"image_id": i, "category_id": 1, "bbox": [x, 300, 150, 400], "score": 0.9}
        for i, x in boxes
    ]
    (tmp_path / "boxes.json").write_text(json.dumps(entries))
    given = ("--video", EXAMPLE, "--end", "0.16", "--detections", tmp_path / "boxes.json")
    code = fitmesh(
        "run", *given, "--out", tmp_path, "--pose-model", "movenet-lightning", "--confidence", "raw"
    )
    assert code == 0, fitmesh.said
    read = read_keypoints(tmp_path)
    model = pose2d.load("movenet-lightning")
    frames = {frame.index: frame.rgb for frame in Video(EXAMPLE).frames(Span(end_s=0.16))}
    assert len(read.rows) == 15
    for person in read.people.values():
        for row, (frame, box) in enumerate(zip(person.frame, person.box_px, strict=True)):
            alone = estimate(model, frames[int(frame)], box[None])
            np.testing.assert_allclose(person.xy_px[row], alone.xy_px[0], atol=0.01)
            np.testing.assert_allclose(person.points.confidence[row], alone.score[0], atol=1e-4)


@pytest.fixture
def head_file(tmp_path: Path) -> Path:
    """A calibration head for the small network that has learnt nothing yet."""
    import pose2d
    from ccnet.heads.files import save
    from ccnet.heads.kinds import build

    model = pose2d.load("movenet-lightning")
    head = build(model, "conv")
    save(head, tmp_path / "head.safetensors", model, "movenet-lightning")
    return tmp_path / "head.safetensors"


def test_a_calibration_head_judges_the_same_keypoints(
    fitmesh: Fitmesh, video: Path, tmp_path: Path, head_file: Path
) -> None:
    command = ("run", "--video", video, "--out", tmp_path / "out", *LIGHT)
    assert fitmesh(*command, "--ccnet", head_file) == 0, fitmesh.said
    assert "movenet-lightning with ccnet confidence" in fitmesh.said
    calibrated = contents(tmp_path / "out" / "keypoints.npz")
    fitmesh(*command, "--confidence", "raw")
    raw = contents(tmp_path / "out" / "keypoints.npz")
    np.testing.assert_array_equal(raw["row_xy_px"], calibrated["row_xy_px"])
    np.testing.assert_array_equal(raw["row_confidence"], calibrated["row_raw"])
    assert (str(raw["source"]), str(calibrated["source"])) == ("raw", "ccnet")
    assert np.abs(calibrated["row_confidence"] - raw["row_confidence"]).max() > 0.01
    assert (raw["row_presence"] == 1).all()
    assert (calibrated["row_presence"] < 1).all()


def test_a_head_for_another_network_is_refused_before_the_work_begins(
    fitmesh: Fitmesh, video: Path, tmp_path: Path, head_file: Path
) -> None:
    assert fitmesh("run", "--video", video, "--out", tmp_path / "out", "--ccnet", head_file) == 2
    assert "trained for movenet-lightning, not for rtmpose-s-halpe26" in fitmesh.said
    assert not (tmp_path / "out").exists()


def test_the_closed_form_is_a_confidence_of_its_own(
    fitmesh: Fitmesh, video: Path, tmp_path: Path
) -> None:
    assert (
        fitmesh("run", "--video", video, "--out", tmp_path, *LIGHT, "--confidence", "closed-form")
        == 0
    ), fitmesh.said
    found = contents(tmp_path / "keypoints.npz")
    assert str(found["source"]) == "closed-form"
    assert ((found["row_confidence"] > 0) & (found["row_confidence"] <= 1)).all()
    assert np.abs(found["row_confidence"] - found["row_raw"]).max() > 0.01


def test_nobody_in_the_video_is_said_and_leaves_whole_files(
    fitmesh: Fitmesh, video: Path, tmp_path: Path
) -> None:
    assert fitmesh("run", "--video", video, "--out", tmp_path, "--quiet") == 0
    assert "no people were found in 6 frames" in fitmesh.said
    assert tracks_of(read_tracks(tmp_path).rows) == []
    assert read_keypoints(tmp_path).people == {}
    assert Video(tmp_path / "overlay.mp4").info.frames == 6


def test_one_frame_and_one_image_are_enough(fitmesh: Fitmesh, tmp_path: Path) -> None:
    one = write_video(tmp_path / "one.mp4", [0])
    cv2.imwrite(str(tmp_path / "one.png"), image(0, 63, 47))
    for option, path in (("--video", one), ("--image", tmp_path / "one.png")):
        assert fitmesh("run", option, path, "--out", tmp_path / path.suffix[1:], *LIGHT) == 0, (
            fitmesh.said
        )
        assert Video(tmp_path / path.suffix[1:] / "overlay.mp4").info.frames == 1
        assert len(read_keypoints(tmp_path / path.suffix[1:]).people) == 1


def test_a_folder_of_images_takes_a_rate(fitmesh: Fitmesh, tmp_path: Path) -> None:
    folder = tmp_path / "images"
    folder.mkdir()
    for number in range(4):
        cv2.imwrite(str(folder / f"{number}.png"), image(number))
    assert (
        fitmesh("run", "--images", folder, "--fps", "12.5", "--out", tmp_path / "out", *LIGHT) == 0
    )
    assert float(Video(tmp_path / "out" / "overlay.mp4").info.rate) == 12.5


def test_a_cut_video_is_used_as_far_as_it_goes_and_said(fitmesh: Fitmesh, tmp_path: Path) -> None:
    whole = write_video(
        tmp_path / "a.mp4", list(range(0, 3200, 40)), options={"movflags": "+faststart"}
    ).read_bytes()
    (tmp_path / "b.mp4").write_bytes(whole[: len(whole) * 6 // 10])
    assert (
        fitmesh("run", "--video", tmp_path / "b.mp4", "--out", tmp_path / "out", "--quiet", *LIGHT)
        == 0
    )
    assert "Warning" in fitmesh.said
    assert "b.mp4" in fitmesh.said
    fitmesh("run", "--video", tmp_path / "b.mp4", "--out", tmp_path / "out", "--quiet", *LIGHT)
    assert "Warning" in fitmesh.said  # also when every stage was kept


def test_only_the_people_seen_longest_are_kept(
    fitmesh: Fitmesh, video: Path, tmp_path: Path
) -> None:
    entries = [
        {"image_id": i, "category_id": 1, "bbox": [x, 5, 8, 30], "score": 0.9}
        for i in range(6)
        for x in ((5, 40) if i < 4 else (40,))
    ]
    (tmp_path / "boxes.json").write_text(json.dumps(entries))
    given = (
        "--video",
        video,
        "--detections",
        tmp_path / "boxes.json",
        "--pose-model",
        "movenet-lightning",
    )
    fitmesh("run", *given, "--out", tmp_path, "--max-people", "1")
    (track,) = tracks_of(read_tracks(tmp_path).rows)
    assert len(track) == 6


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "--images or --image; got none"),
        (("--video", "VIDEO", "--image", "VIDEO"), "got --video and --image"),
        (("--video", "missing.mp4"), "no video at missing.mp4"),
        (("--video", "WORDS"), "is not a video"),
        (("--video", "SOUND"), "holds only sound"),
        (("--images", "VIDEO"), "is not a folder"),
        (("--image", "WORDS"), "is not an image"),
        (("--video", "VIDEO", "--start", "50"), "before --start 50 s"),
        (("--video", "VIDEO", "--start", "2", "--end", "1"), "must come after --start"),
        (("--video", "VIDEO", "--every", "0"), "between 1 and 1000000; got 0"),
        (("--video", "VIDEO", "--max-people", "0"), "between 1 and 1000000; got 0"),
        (("--video", "VIDEO", "--fps", "10"), "--fps is only for"),
        (("--video", "VIDEO", "--pose-model", "movenet-thonder"), "movenet-thunder"),
        (("--video", "VIDEO", "--checkpoint", "nowhere.pth"), "no checkpoint at nowhere.pth"),
        (("--video", "VIDEO", "--confidence", "blind"), "--confidence must be one of ccnet"),
        (("--video", "VIDEO", "--ccnet", "nowhere.safetensors"), "nowhere.safetensors"),
        (("--video", "VIDEO", "--ccnet", "WORDS"), "is not a safetensors file"),
        (("--video", "VIDEO", "--detections", "nowhere.json"), "nowhere.json"),
        (("--video", "VIDEO", "--detections", "WORDS"), "is not JSON"),
        (("--video", "VIDEO", "--detector-size", "100"), "multiple of 32"),
    ],
)
def test_a_mistake_is_one_sentence_exit_code_2_and_no_file(
    fitmesh: Fitmesh, video: Path, tmp_path: Path, arguments: tuple[str, ...], words: str
) -> None:
    (tmp_path / "words.txt").write_text("only words " * 100)
    write_sound(tmp_path / "sound.m4a")
    stand_ins = {"VIDEO": video, "WORDS": tmp_path / "words.txt", "SOUND": tmp_path / "sound.m4a"}
    out = tmp_path / "out"
    assert fitmesh("run", "--out", out, *(stand_ins.get(a, a) for a in arguments)) == 2
    assert words in fitmesh.said
    assert "Traceback" not in fitmesh.said
    assert not out.exists() or list(out.iterdir()) == []


def test_an_output_that_cannot_be_written_is_found_before_the_work_begins(
    fitmesh: Fitmesh, video: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setattr(people, "make", None)
    assert fitmesh("run", "--video", video, "--out", tmp_path / "file") == 2
    assert "is a file" in fitmesh.said
    assert fitmesh("run", "--video", video, "--out", tmp_path / "file" / "below") == 2
    assert "cannot write" in fitmesh.said


def test_a_stage_that_fails_halfway_leaves_no_file(fitmesh: Fitmesh, tmp_path: Path) -> None:
    folder = tmp_path / "images"
    folder.mkdir()
    for number in range(3):
        cv2.imwrite(str(folder / f"{number}.png"), image(number, 64 if number < 2 else 32))
    assert fitmesh("run", "--images", folder, "--out", tmp_path / "out", *LIGHT) == 2
    assert "2.png is 32x48 pixels" in fitmesh.said
    assert list((tmp_path / "out").iterdir()) == []


def test_the_overlay_remembers_its_key(fitmesh: Fitmesh, video: Path, tmp_path: Path) -> None:
    fitmesh("run", "--video", video, "--out", tmp_path, *LIGHT)
    note = json.loads((tmp_path / ".cache_keys" / "overlay.json").read_text())
    assert json.loads(note["cache_key"])["stage"] == "overlay"
    assert note["bytes"] == {"overlay.mp4": (tmp_path / "overlay.mp4").stat().st_size}
    assert json.loads(str(contents(tmp_path / "tracks.npz")["cache_key"]))["stage"] == "people"
    assert RunSettings().overwrite is False
