"""`--keypoints`: people that another program found."""

import json
from pathlib import Path

import numpy as np
import pytest

from fitmesh.stages.keypoint_files import read_given
from fitmesh.stages.people import read_keypoint_rows, read_keypoints, read_tracks
from pose2d.base.errors import UserError
from pose2d.keypoint_layouts import BODY_25B, MEDIAPIPE33
from pose2d.skeletons import COCO17, HALPE26, WHOLEBODY133, Skeleton
from tests.fitmesh.conftest import FRAMES, SIZE, Fitmesh
from tests.walkers import coco_results, walker, write_json

BODY_25 = [
    "nose",
    "neck",
    "right_shoulder",
    "right_elbow",
    "right_wrist",
    "left_shoulder",
    "left_elbow",
    "left_wrist",
    "mid_hip",
    "right_hip",
    "right_knee",
    "right_ankle",
    "left_hip",
    "left_knee",
    "left_ankle",
    "right_eye",
    "left_eye",
    "right_ear",
    "left_ear",
    "left_big_toe",
    "left_small_toe",
    "left_heel",
    "right_big_toe",
    "right_small_toe",
    "right_heel",
]
COCO_18 = [*BODY_25[:8], *BODY_25[9:15], *BODY_25[15:19]]


@pytest.fixture
def people() -> list:
    return [walker(FRAMES, SIZE), walker(FRAMES, SIZE, start_x_m=-0.9)]


def test_people_without_names_are_followed(
    fitmesh: Fitmesh, walk: tuple[str | Path, ...], people: list, tmp_path: Path, no_exports: None
) -> None:
    entries = coco_results(people, named=False)
    entries = [entries[i] for i in np.random.default_rng(0).permutation(len(entries))]
    given = write_json(tmp_path / "k.json", entries)
    assert fitmesh("run", "--video", walk[1], "--keypoints", given, "--out", tmp_path) == 0
    read = read_keypoints(tmp_path)
    assert len(read.people) == 2
    found = sorted((person.xy_px for person in read.people.values()), key=lambda xy: -xy[0, 0, 0])
    for xy_px, truth in zip(found, people, strict=True):
        np.testing.assert_allclose(xy_px[:, :17], truth.keypoints_px, atol=1e-3)


def test_keypoints_of_an_earlier_run_give_the_same_fit(
    fitmesh: Fitmesh, walk: tuple[str | Path, ...], tmp_path: Path, no_exports: None
) -> None:
    assert fitmesh("run", *walk, "--out", tmp_path / "a") == 0
    again = ("--video", walk[1], "--keypoints", tmp_path / "a" / "keypoints.npz")
    assert fitmesh("run", *again, "--out", tmp_path / "b") == 0, fitmesh.said
    with np.load(tmp_path / "a" / "fit.npz") as a, np.load(tmp_path / "b" / "fit.npz") as b:
        for name in a.files:
            if name != "cache_key":
                np.testing.assert_array_equal(a[name], b[name], err_msg=name)


@pytest.mark.parametrize("per_axis", [True, False])
def test_the_stated_error_is_read_back_as_it_was_written(tmp_path: Path, per_axis: bool) -> None:
    random = np.random.default_rng(0)
    rows = {name: random.random((2, 17), np.float32) for name in ("raw", "confidence", "presence")}
    rows |= {
        f"error_{name}": 0.1 + random.random((2, 17, 3), np.float32) for name in ("weight", "sigma")
    }
    if per_axis:
        rows["error_log_ratio"] = random.normal(size=(2, 17)).astype(np.float32)
    rows |= {
        "xy_px": 100 * random.random((2, 17, 2), np.float32),
        "box_px": np.tile([0.0, 0, 100, 100], (2, 1)),
    }
    rows |= {"area_px2": np.full(2, 5e3), "frame": np.arange(2)}
    names = {"pose_model": "rtmpose-s-halpe26", "skeleton": "coco17", "source": "ccnet"}
    arrays = {**names, "identity": np.array([1]), "first_row": np.array([0, 2])}
    np.savez(
        tmp_path / "keypoints.npz",
        **arrays,
        **{f"row_{name}": value for name, value in rows.items()},
    )
    read = read_keypoint_rows(tmp_path / "keypoints.npz")[0].points.error
    given = read_given(tmp_path / "keypoints.npz").rows.points.error
    assert read is not None
    assert given is not None
    assert (read.log_ratio is not None) == (given.log_ratio is not None) == per_axis
    for name in given.to_arrays("error_"):
        np.testing.assert_array_equal(getattr(read, name.removeprefix("error_")), rows[name])
        np.testing.assert_array_equal(
            getattr(given, name.removeprefix("error_"))[:, :17], rows[name]
        )
    if per_axis:
        assert not given.log_ratio[:, 17:].any(), "keypoints that are not there state no ratio"


def test_a_confidence_that_given_keypoints_do_not_bring_is_refused(
    fitmesh: Fitmesh, walk: tuple[str | Path, ...], people: list, tmp_path: Path
) -> None:
    given = write_json(tmp_path / "k.json", coco_results(people, named=True))
    run = (
        "run",
        "--video",
        walk[1],
        "--keypoints",
        given,
        "--out",
        tmp_path / "out",
        "--confidence",
    )
    assert fitmesh(*run, "ccnet") == 2
    assert "--confidence ccnet has no effect with --keypoints" in fitmesh.said
    assert "brings its own (raw)" in fitmesh.said
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("names", [BODY_25, COCO_18])
def test_openpose_files_are_read_by_name(tmp_path: Path, names: list[str]) -> None:
    for frame in (3, 4):
        flat = [value for i in range(len(names)) for value in (100 + i, 200 + frame, 0.5)]
        content = {"people": [{"person_id": [-1], "pose_keypoints_2d": flat}]}
        write_json(tmp_path / f"clip_{frame:012d}_keypoints.json", content)
    given = read_given(tmp_path)
    assert given.rows.frame.tolist() == [3, 4]
    assert not given.named
    expected = [100 + names.index(name) for name in COCO17.keypoints]
    np.testing.assert_array_equal(given.rows.xy_px[0, :17, 0], expected)
    np.testing.assert_array_equal(given.rows.xy_px[:, 0, 1], [203, 204])
    assert (given.rows.points.confidence[:, :17] == 0.5).all()
    feet = given.rows.points.presence[
        :, 20:
    ]  # BODY_25 has feet, the model with 18 keypoints has not
    assert (feet == (1 if len(names) == 25 else 0)).all()


def test_body_25b_is_read_in_its_own_order_with_its_feet(tmp_path: Path) -> None:
    flat = [value for i in range(25) for value in (100 + i, 200, 0.5)]
    write_json(
        tmp_path / "clip_0_keypoints.json",
        {"people": [{"person_id": [-1], "pose_keypoints_2d": flat}]},
    )
    given = read_given(tmp_path, "body_25b")
    present = given.rows.points.presence[0] > 0
    expected = [100 + BODY_25B.index(name) for name in HALPE26.keypoints if name in BODY_25B]
    np.testing.assert_array_equal(given.rows.xy_px[0, present, 0], expected)
    assert present[20:].all()


@pytest.mark.parametrize("skeleton", [HALPE26, WHOLEBODY133])
def test_layouts_with_feet_keep_them(tmp_path: Path, skeleton: Skeleton) -> None:
    flat = [value for i in range(skeleton.size) for value in (10.0 * i, 5.0, 0.5)]
    given = read_given(
        write_json(tmp_path / "k.json", [{"image_id": 0, "keypoints": flat, "score": 1.0}])
    )
    expected = [10.0 * skeleton.keypoints.index(name) for name in HALPE26.keypoints[20:]]
    np.testing.assert_array_equal(given.rows.xy_px[0, 20:, 0], expected)
    assert (given.rows.points.presence[0, 20:] > 0).all()


def test_labelled_data_count_as_seen_where_labelled(tmp_path: Path) -> None:
    points = [[10.0 * i, 5.0, i % 3] for i in range(17)]
    annotation = {"image_id": 7, "keypoints": [value for point in points for value in point]}
    given = read_given(write_json(tmp_path / "a.json", {"annotations": [annotation]}))
    assert (
        given.rows.points.confidence[0].tolist()
        == [float(i % 3 > 0) for i in range(17)] + [0.0] * 9
    )
    assert given.rows.frame.tolist() == [7]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "is not JSON"),
        ("3", "is a number, not a list"),
        ('[{"image_id": 0}]', r'\[0\] has no "keypoints"'),
        ('[{"image_id": 0, "keypoints": [1, 2, 3]}]', "has 3 numbers; expected 51 or 78 or 399"),
        ('{"people": [{}]}', r'people\[0\] has no "pose_keypoints_2d"'),
    ],
)
def test_what_is_no_keypoint_file_is_refused(tmp_path: Path, content: str, words: str) -> None:
    (tmp_path / "k.json").write_text(content)
    with pytest.raises(UserError, match=words):
        read_given(tmp_path / "k.json")


def test_contradictions_are_refused(tmp_path: Path, people: list) -> None:
    entries = coco_results(people[:1])
    with pytest.raises(UserError, match="person 1 twice in frame 0"):
        read_given(write_json(tmp_path / "twice.json", [*entries, entries[0]]))
    nameless = {key: value for key, value in entries[0].items() if key != "track_id"}
    with pytest.raises(UserError, match="identity for some people"):
        read_given(write_json(tmp_path / "some.json", [*entries, nameless]))
    np.savez(tmp_path / "other.npz", x=1)
    with pytest.raises(UserError, match=r"is not a keypoints\.npz"):
        read_given(tmp_path / "other.npz")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=r"ends in _keypoints\.json"):
        read_given(tmp_path / "empty")


def test_frames_beyond_the_video_are_noticed(
    fitmesh: Fitmesh, walk: tuple[str | Path, ...], people: list, tmp_path: Path
) -> None:
    entries = [{**entry, "image_id": entry["image_id"] + 1000} for entry in coco_results(people)]
    given = write_json(tmp_path / "k.json", entries)
    assert fitmesh("run", "--video", walk[1], "--keypoints", given, "--out", tmp_path / "out") == 2
    assert "frames 1000 to 1011, none of which is read from" in fitmesh.said


def test_nobody_in_the_file_is_nobody_in_the_video(
    fitmesh: Fitmesh, walk: tuple[str | Path, ...], tmp_path: Path, no_exports: None
) -> None:
    given = write_json(tmp_path / "k.json", [])
    assert fitmesh("run", "--video", walk[1], "--keypoints", given, "--out", tmp_path) == 0, (
        fitmesh.said
    )
    assert "no people were found" in fitmesh.said
    assert len(read_tracks(tmp_path).rows) == 0
    assert json.loads((tmp_path / "run.json").read_text())["settings"]["keypoints"].endswith(
        "k.json"
    )


def of_names(names: list[str], xy: np.ndarray) -> np.ndarray:
    """[26, 2] in Halpe's order, NaN where there is no such keypoint."""
    return np.array(
        [xy[names.index(name)] if name in names else [np.nan, np.nan] for name in HALPE26.keypoints]
    )


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("wrapped", [True, False])
def test_mmpose_predictions_are_read_an_entry_a_frame(
    tmp_path: Path, first: int, wrapped: bool
) -> None:
    xy = np.random.default_rng(0).uniform(50, 400, (3, 17, 2))
    person = [
        {"keypoints": one.tolist(), "keypoint_scores": [0.5] * 17, "bbox": [[0, 0, 9, 9]]}
        for one in xy
    ]
    frames = [{"frame_id": first + n, "instances": [person[n]] if n != 1 else []} for n in range(3)]
    content = {"meta_info": {}, "instance_info": frames} if wrapped else frames
    given = read_given(write_json(tmp_path / "k.json", content))
    assert given.rows.frame.tolist() == [0, 2]
    np.testing.assert_allclose(given.rows.xy_px[:, :17], xy[[0, 2]], rtol=1e-6)
    assert (given.rows.points.confidence[:, :17] == 0.5).all()
    assert not given.named


@pytest.mark.parametrize("tasks", [True, False])
def test_mediapipe_landmarks_are_scaled_to_the_image(tmp_path: Path, tasks: bool) -> None:
    xy = np.random.default_rng(0).uniform(0.1, 0.9, (33, 2))
    marks = [{"x": x, "y": y, "z": 0.0, "visibility": 0.75} for x, y in xy.tolist()]
    frames = [
        {"pose_landmarks": [marks] if tasks else {"landmark": marks}},
        {"pose_landmarks": [] if tasks else None},
    ]
    given = read_given(write_json(tmp_path / "k.json", [*frames, frames[0]]), size=(640, 360))
    assert given.rows.frame.tolist() == [0, 2]
    expected = of_names(list(MEDIAPIPE33), xy * (640, 360))
    np.testing.assert_allclose(given.rows.xy_px[0], expected, rtol=1e-6)
    feet = [HALPE26.keypoints.index(name) for name in ("left_heel", "right_big_toe")]
    assert (given.rows.points.presence[0, feet] == 1).all()


@pytest.mark.parametrize(
    ("count", "people", "numbers"), [(17, 0, 3), (26, 2, 2), (33, 0, 3), (133, 1, 3)]
)
def test_arrays_are_read(tmp_path: Path, count: int, people: int, numbers: int) -> None:
    shape = (4, people, count) if people else (4, count)
    values = np.random.default_rng(0).uniform(50, 400, (*shape, numbers))
    if numbers == 3:
        values[..., 2] = 0.5
    values[1] = np.nan
    np.save(tmp_path / "k.npy", values)
    given = read_given(tmp_path / "k.npy")
    each = max(people, 1)
    assert given.rows.frame.tolist() == np.repeat([0, 2, 3], each).tolist()
    assert given.named
    assert given.rows.identity.tolist() == [*range(each)] * 3
    assert (given.rows.points.confidence[:, 0] == (0.5 if numbers == 3 else 1)).all()
    first = values[0, 0] if people else values[0]
    np.testing.assert_allclose(given.rows.xy_px[0, 0], first[0, :2], rtol=1e-6)


def test_an_array_of_another_shape_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "k.npy", np.ones((4, 18, 3)))
    with pytest.raises(UserError, match=r"expected \[T, K, 3\] or \[T, P, K, 3\]"):
        read_given(tmp_path / "k.npy")


def test_shares_of_the_image_are_refused_in_words(tmp_path: Path) -> None:
    np.save(tmp_path / "k.npy", np.random.default_rng(0).uniform(0, 1, (4, 17, 3)))
    with pytest.raises(UserError, match="Multiply x by the image's width and y by its height"):
        read_given(tmp_path / "k.npy")
