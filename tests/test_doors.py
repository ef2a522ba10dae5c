"""Where things come in or go out: what is written, how large things may be, what may be read, and
what is said.
"""

import errno
import io
import json
import os
import signal
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest

import fitmesh
from fitmesh.manifest import Manifest
from fitmesh.many.sources import find_clips, folder_names
from fitmesh.many.status import ClipStatus
from fitmesh.many.summary import check_out, csv_table, html_page
from fitmesh.options.record import read_config
from fitmesh.stages.scene import read_floor
from fitmesh.ui.trouble import describe_error
from fitting.body.load import load_body
from fitting.body.open_body import OPEN_BODY
from pose2d import hub
from pose2d.base import unpickle
from pose2d.base.arrays import read_npz
from pose2d.base.errors import UserError
from pose2d.base.files import atomic_file, atomic_folder, file_sha256
from pose2d.base.folder_lock import FILE as LOCK
from pose2d.base.folder_lock import folder_lock
from pose2d.base.onnx_weights import read_onnx
from pose2d.detect.boxes import read_detections
from pose2d.video.video_file import Video
from tests.videos import write_video
from tests.walkers import coco_results, walker, write_json


@pytest.fixture(autouse=True)
def in_time() -> Iterator[None]:
    """A reader that waits for a pipe would wait for ever."""

    def late(*_: object) -> None:
        raise AssertionError("it hangs")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(120)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


# --- What is written
# ------------------------------------------------------------------------------------------------


def test_no_clip_has_a_folder_above_or_beside_the_results() -> None:
    names = folder_names(
        [
            "/a/...mp4",
            "/a/..mp4",
            "/a/.fitmesh.lock.mp4",
            "/a/.x.mp4",
            "/a/x.mp4",
            "s3://b/...mp4",
            "/.c/x.mp4",
            "/",
        ]
    )
    assert len(set(names)) == 8
    assert all(name and not name.startswith(".") and "/" not in name for name in names), names


@pytest.mark.parametrize("link", [os.symlink, os.link])
def test_a_lock_that_is_a_link_is_refused_and_its_target_left_alone(
    link: Callable[..., None], tmp_path: Path
) -> None:
    mine = tmp_path / "mine.txt"
    out = tmp_path / "out"
    mine.write_text("precious")
    out.mkdir()
    link(mine, out / LOCK)
    with pytest.raises(UserError, match="Remove it"), folder_lock(out):
        pass
    assert mine.read_text() == "precious"


def test_nothing_leaves_a_folder_that_is_held_through_a_link(tmp_path: Path) -> None:
    out = tmp_path / "out"
    elsewhere = tmp_path / "elsewhere"
    for folder in (out, elsewhere):
        folder.mkdir()
    (out / ".cache_keys").symlink_to(elsewhere)
    with folder_lock(out):
        with (
            pytest.raises(UserError, match="is a link"),
            atomic_file(out / ".cache_keys" / "glb.json"),
        ):
            pass
        with pytest.raises(UserError, match="is a link"), atomic_folder(out / ".cache_keys"):
            pass
    assert not list(elsewhere.iterdir())


def test_a_file_that_is_a_link_is_replaced_and_not_written_through(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("precious")
    (tmp_path / "fit.npz").symlink_to(tmp_path / "mine")
    with atomic_file(tmp_path / "fit.npz") as temporary:
        temporary.write_text("new")
    assert (tmp_path / "mine").read_text() == "precious"


def test_an_input_is_never_written_over(tmp_path: Path) -> None:
    (tmp_path / "overlay.mp4").touch()
    (tmp_path / "other.mp4").symlink_to(tmp_path / "overlay.mp4")
    for name in ("overlay.mp4", "other.mp4"):
        for overwrite in (False, True):
            with pytest.raises(UserError, match="is an input of this run"):
                Manifest.read(tmp_path).claim(["overlay.mp4"], [tmp_path / name], overwrite)


@pytest.fixture
def clip(tmp_path: Path) -> tuple[Path, Path]:
    video = write_video(tmp_path / "v.mp4", [0, 40, 80], (160, 120))
    return video, write_json(tmp_path / "k.json", coco_results([walker(3)]))


def test_what_a_user_put_into_the_folder_stays_unless_told_otherwise(
    clip: tuple[Path, Path], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    video, keypoints = clip
    out.mkdir()
    (out / "report.html").write_text("mine")
    with pytest.raises(UserError, match=r"holds report.html, which fitmesh has not written"):
        fitmesh.run(video, out, keypoints=keypoints)
    assert sorted(path.name for path in out.iterdir()) == ["report.html"]
    fitmesh.run(video, out, keypoints=keypoints, overwrite=True)
    assert (out / "report.html").read_text() != "mine"
    for name in ("overlay.mp4", "keypoints.npz"):
        arguments: dict[str, Any] = (
            {"keypoints": out / name} if name.endswith("npz") else {"keypoints": keypoints}
        )
        with pytest.raises(UserError, match="is an input of this run"):
            fitmesh.run(out / name if name.endswith("mp4") else video, out, **arguments)


# --- Sizes
# ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["npz-text-of-no-letters.npz", "npz-float128.npz"])
def test_arrays_of_no_size_or_of_odd_numbers_are_refused(name: str) -> None:
    with pytest.raises(UserError, match="a holds"):
        read_npz(Path(__file__).parent / "data" / "hostile" / name, "")


def test_a_frame_that_grows_in_the_middle_of_a_video_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "grows.h264"
    parts = []
    for size in ((64, 48), (2560, 2560), (64, 48)):
        with av.open(str(tmp_path / "part.h264"), "w") as container:
            stream = container.add_stream("libx264", rate=30, options={"preset": "ultrafast"})
            stream.width, stream.height, stream.pix_fmt = *size, "yuv420p"  # type: ignore[misc]
            frame = av.VideoFrame.from_ndarray(
                np.zeros((size[1], size[0], 3), np.uint8), format="rgb24"
            )
            container.mux(stream.encode(frame.reformat(format="yuv420p")))
            container.mux(stream.encode(None))
        parts.append((tmp_path / "part.h264").read_bytes())
    path.write_bytes(b"".join(parts))
    video = Video(path)
    assert {frame.rgb.shape for frame in video.frames()} == {(48, 64, 3)}
    assert "damaged packets" in " ".join(video.warnings)


def _part(number: int, content: bytes | int) -> bytes:
    if isinstance(content, int):
        return bytes([number << 3, content])
    assert len(content) < 1 << 14
    return bytes([number << 3 | 2, len(content) & 0x7F | 0x80, len(content) >> 7]) + content


def _onnx(path: Path, *tensors: bytes) -> Path:
    path.write_bytes(_part(7, b"".join(_part(5, tensor) for tensor in tensors)))
    return path


def _external(**entries: str) -> bytes:
    described = b"".join(
        _part(13, _part(1, k.encode()) + _part(2, v.encode())) for k, v in entries.items()
    )
    return _part(1, 100) + _part(2, 1) + _part(8, b"w") + described


def test_tensors_beside_an_onnx_file_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(bytes(400))
    with pytest.raises(UserError, match="lies in another file"):
        read_onnx(_onnx(tmp_path / "a.onnx", _external(location="data", offset="0", length="400")))
    with pytest.raises(UserError, match="of shape"):
        read_onnx(
            _onnx(
                tmp_path / "a.onnx",
                _part(1, 1) * 100 + _part(2, 1) + _part(9, bytes(4)) + _part(8, b"w"),
            )
        )


class _Answer(io.BytesIO):
    status = 206


@pytest.mark.parametrize(
    ("sizes", "words"), [((2000,), "not the published"), ((3, 0), "broke off after")]
)
def test_a_download_ends(
    sizes: tuple[int, ...], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def answer(*_: object, **__: object) -> _Answer:
        asked.append(sizes[len(asked) % len(sizes)])
        return _Answer(bytes(asked[-1]))

    monkeypatch.setenv("FITMESH_CACHE", str(tmp_path))
    monkeypatch.setattr(urllib.request, "urlopen", answer)
    came: list[int] = []
    with pytest.raises(UserError, match=words):
        hub.fetch(
            hub.Offer("m", "r", "1", "f", "https://x", 1000, "0" * 64, "apache-2.0"), came.append
        )
    assert len(asked) <= 50
    assert sum(came) <= 1001


# --- Only regular files, bounded time
# -------------------------------------------------------------------------------

READERS: dict[str, Callable[[Path], object]] = {
    "a.npz": lambda path: read_npz(path, ""),
    "floor.json": read_floor,
    "boxes.json": read_detections,
    "c.toml": lambda path: read_config(path, []),
    "clips.txt": lambda path: find_clips([], [str(path)], "out"),
    "b.pkl": unpickle.load,
    "m.onnx": read_onnx,
    "any": file_sha256,
    "v.mp4": Video,
    "body.npz": load_body,
}


@pytest.mark.parametrize("name", READERS)
def test_a_pipe_or_a_device_is_refused_at_once(name: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / name)
    with pytest.raises(UserError):
        READERS[name](tmp_path / name)
    (tmp_path / name).unlink()
    (tmp_path / name).symlink_to("/dev/zero")
    with pytest.raises(UserError):
        READERS[name](tmp_path / name)


def test_links_that_lead_in_circles_do_not_keep_a_pattern_from_ending(tmp_path: Path) -> None:
    (tmp_path / "in" / ".hidden").mkdir(parents=True)
    for name in ("a.mp4", "in/b.mp4", "in/.hidden/c.mp4"):
        (tmp_path / name).touch()
    for name in ("one", "two", "in/three"):
        (tmp_path / name).symlink_to(tmp_path)
    found = find_clips([], [f"{tmp_path}/**/*.mp4"], str(tmp_path / "out")).clips
    assert [Path(clip.source).relative_to(tmp_path).as_posix() for clip in found] == [
        "a.mp4",
        "in/b.mp4",
    ]


def test_a_list_with_nul_is_refused(tmp_path: Path) -> None:
    (tmp_path / "clips.txt").write_bytes(b"a\0.mp4\n")
    with pytest.raises(UserError, match="NUL"):
        find_clips([], [str(tmp_path / "clips.txt")], "out")


# --- Words for nonsense
# ---------------------------------------------------------------------------------------------

BODIES: dict[str, Callable[[dict[str, np.ndarray]], dict[str, Any]]] = {
    "a scalar template": lambda a: {"v_template": np.float32(1)},
    "few picks": lambda a: {"vertex_picks": a["vertex_picks"][:1]},
    "5 joints": lambda a: {
        "J_regressor": a["J_regressor"][:5],
        "kintree_table": a["kintree_table"][:, :5],
        "weights": a["weights"][:, :5],
        "posedirs": a["posedirs"][..., :36],
    },
    "no regressor": lambda a: {"J_regressor_halpe26": None},
    "a vertex without weight": lambda a: {
        "weights": np.concatenate([0 * a["weights"][:1], a["weights"][1:]])
    },
}


@pytest.mark.parametrize("what", BODIES)
def test_a_body_file_that_makes_no_sense_is_refused_in_words(what: str, tmp_path: Path) -> None:
    with np.load(OPEN_BODY) as file:
        arrays = {name: file[name] for name in file.files}
    changed = {**arrays, **BODIES[what](arrays)}
    np.savez(
        tmp_path / "body.npz",
        **{name: value for name, value in changed.items() if value is not None},
    )
    with pytest.raises(UserError, match=r"body\.npz"):
        load_body(tmp_path / "body.npz")


def test_a_full_disk_and_a_lack_of_memory_are_told_in_words() -> None:
    for error in (
        OSError(errno.ENOSPC, "No space left on device"),
        MemoryError(),
        ImportError("failed to map segment"),
    ):
        assert "something went wrong" not in " ".join(describe_error(error)[0])


def test_arrays_that_are_there_and_nonsense_are_refused(
    clip: tuple[Path, Path], tmp_path: Path
) -> None:
    from fitmesh.tracks import edited_keypoints

    out = tmp_path / "out"
    fitmesh.run(clip[0], out, keypoints=clip[1])

    def change(file: str, **changes: Any) -> None:
        with np.load(out / file) as stored:
            arrays = {name: stored[name] for name in stored.files}
        good = (out / file).read_bytes()
        np.savez(out / file, **{**arrays, **{name: make(arrays) for name, make in changes.items()}})
        try:
            fitmesh.load(out)
            edited_keypoints(out)
        finally:
            (out / file).write_bytes(good)

    change(
        "fit.npz",
        row_x=lambda a: np.zeros(2),
        row_confidence=lambda a: (a["row_confidence"] > 0).astype(np.uint8),
    )
    for file, changes in {
        "keypoints.npz": {"row_frame": lambda a: a["row_frame"] + 1},
        "tracks.npz": {"row_frame": lambda a: a["row_frame"] + 7},
        "fit.npz": {"frame_focal_px": lambda a: a["frame_focal_px"] * np.nan},
    }.items():
        with pytest.raises(UserError):
            change(file, **changes)
    for name, value in {
        "row_pose_rad": 1e9,
        "row_joint_std_mm": -1,
        "row_keypoints_px": np.inf,
    }.items():
        with pytest.raises(UserError, match=name):
            change(
                "fit.npz", **{name: lambda a, name=name, value=value: np.full_like(a[name], value)}
            )


# --- No silent yes
# --------------------------------------------------------------------------------------------------


def test_what_is_no_video_is_refused(tmp_path: Path) -> None:
    (tmp_path / "art.ans").write_text("\x1b[31mhello\n" * 200)
    (tmp_path / "v.mp4").write_text("ffconcat version 1.0\nfile x.mp4\n")
    for name in ("art.ans", "v.mp4"):
        with pytest.raises(UserError, match="is not a video"):
            Video(tmp_path / name)


@pytest.mark.parametrize("name", ["summary.csv", "index.html"])
def test_a_users_own_summary_over_many_clips_stays_unless_told_otherwise(
    name: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_text("mine")
    with pytest.raises(UserError, match=rf"{name} was not written by fitmesh.*--overwrite"):
        check_out(str(tmp_path))
    check_out(str(tmp_path), overwrite=True)
    (tmp_path / "summary.csv").write_text(csv_table([]))
    (tmp_path / "index.html").write_text(html_page([]))
    check_out(str(tmp_path))


def test_formulas_do_not_reach_a_spreadsheet() -> None:
    text = csv_table([ClipStatus("a", "=1+1.mp4", "failed", error="@x", worker="-y")])
    assert text.splitlines()[1].startswith("'=1+1.mp4,a,failed")
    assert text.rstrip().endswith("'@x,'-y")


def test_edits_that_contradict_each_other_are_refused_when_they_are_made() -> None:
    from fractions import Fraction

    from fitmesh.stages.people import SeenPeople
    from fitmesh.tracks import Merge, Split, identities_after
    from pose2d.types import Detections

    frame = np.concatenate([np.arange(first, first + 5) for first in (0, 0, 10)])
    who = np.repeat([1, 2, 3], 5)
    rows = Detections(frame, who, np.zeros((15, 4)), np.ones(15))
    tracks = SeenPeople(
        64,
        48,
        Fraction(10),
        np.arange(20),
        np.arange(20) / 10,
        rows,
        np.array([0, 10]),
        {1: 1, 2: 2, 3: 3},
        [],
        [],
    )
    identities_after(tracks, [Merge((1, 3))])
    with pytest.raises(UserError, match="cannot be merged"):
        identities_after(tracks, [Merge((1, 3)), Merge((2, 3))])
    with pytest.raises(UserError, match="who exists already"):
        identities_after(tracks, [Split(1, 0.2, 2)])
    assert identities_after(tracks, [Split(1, 0.2, 4), Merge((1, 4))]).next_identity() == 5


def test_options_without_effect_are_told(
    clip: tuple[Path, Path], tmp_path: Path, caplog: Any
) -> None:
    floor = write_json(tmp_path / "floor.json", {"camera_height_m": 1.5})
    nobody = write_json(tmp_path / "nobody.json", [])
    fitmesh.run(
        clip[0],
        tmp_path / "out",
        keypoints=nobody,
        keypoint_layout="body_25b",
        height_m={99: 1.8},
        floor=floor,
    )
    for words in (
        "--keypoint-layout has no effect",
        "--height of person 99 has no effect",
        "--floor has no effect",
    ):
        assert words in caplog.text
    assert json.loads((tmp_path / "out" / "run.json").read_text())["entries"]


def test_links_that_lead_to_themselves_are_refused_in_words(tmp_path: Path) -> None:
    from fitmesh.inputs import open_clip
    from pose2d.models.registry import use_plugin

    for name in ("clip.mp4", "plugin.py", "out"):
        (tmp_path / name).symlink_to(name)
    with pytest.raises(UserError, match=r"plugin\.py"):
        use_plugin(tmp_path / "plugin.py")
    with pytest.raises(UserError, match=r"clip\.mp4"):
        open_clip(tmp_path / "clip.mp4")
    with pytest.raises(UserError, match="out"):
        fitmesh.run(write_video(tmp_path / "a.mp4", [0, 33]), tmp_path / "out", end_s=0.01)
    clips = find_clips([], [str(tmp_path / "*.mp4")], str(tmp_path / "results")).clips
    assert "a" in {clip.name for clip in clips}
