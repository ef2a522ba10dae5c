"""Hostile files end in words: a corpus of small ones, and a part of tools/hostile_sweep.py."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
import pytest

import ccnet
import fitmesh
from ccnet.data.datasets import read_split
from fitmesh.many.sources import find_clips
from fitmesh.stages.keypoint_files import read_given
from pose2d.base.arrays import read_npz
from pose2d.base.errors import UserError
from pose2d.base.onnx_weights import read_onnx
from pose2d.detect.boxes import read_detections
from pose2d.skeletons import COCO17, MPII16
from pose2d.video.images import read_image
from tools.hostile.cases import option_cases
from tools.hostile.mutations import damaged_json, damaged_npz
from tools.hostile.runner import Case, _judge

CORPUS = Path(__file__).parent / "data" / "hostile"
FILES = sorted(path for path in CORPUS.iterdir() if path.suffix != ".md")


def _data_set(folder: Path, annotations: Path, kind: str) -> object:
    """The annotations in a data set that is right otherwise."""
    images, name = ("val2017", "annotations/person_keypoints_val2017.json")
    if kind == "mpii":
        images, name = ("images", "annot/valid.json")
    (folder / images).mkdir()
    (folder / name).parent.mkdir()
    cv2.imwrite(str(folder / images / "a.jpg"), np.zeros((64, 64, 3), np.uint8))
    shutil.copy(annotations, folder / name)
    return read_split(
        folder,
        Path(name).stem.removeprefix("person_keypoints_"),
        MPII16 if kind == "mpii" else COCO17,
    )


LOADERS: dict[str, Callable[[Path, Path], object]] = {
    "npz": lambda path, _: read_npz(path, "Expected arrays."),
    "keypoints": lambda path, _: read_given(path),
    "detections": lambda path, _: read_detections(path),
    "image": lambda path, _: read_image(path),
    "onnx": lambda path, _: read_onnx(path),
    "clips": lambda path, folder: find_clips([], [str(path)], str(folder)),
    "head": lambda path, _: ccnet.load(path),
    "coco": lambda path, folder: _data_set(folder, path, "coco"),
    "mpii": lambda path, folder: _data_set(folder, path, "mpii"),
}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_file_of_the_corpus_is_refused_by_name(path: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError) as refused:
        LOADERS[path.name.split("-")[0]](path, tmp_path)
    assert path.name in str(refused.value) or tmp_path.name in str(refused.value)
    assert len(str(refused.value)) < 1000


def test_the_corpus_holds_every_kind() -> None:
    assert {path.name.split("-")[0] for path in FILES} == set(LOADERS)


@pytest.mark.parametrize("number", range(0, 200, 9))
def test_a_bad_option_is_refused_before_any_work(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    case = list(option_cases(None))[number]  # type: ignore[arg-type]  # no valid file is needed
    with pytest.raises(SystemExit) as left:
        case.run()
    said = "".join(capfd.readouterr())
    assert _judge(case, int(left.value.code or 0), said) == "fine", (case.name, said)


def test_damaged_arrays_are_refused_or_read_as_they_were_written(tmp_path: Path) -> None:
    arrays = {
        "points": np.arange(60, dtype=np.float32).reshape(5, 4, 3),
        "name": np.array("walk"),
        "n": np.arange(3),
    }
    rng = np.random.default_rng(3)
    refused = 0
    for what, content, _ in damaged_npz(arrays, rng):
        if what.startswith(("points", "name", "n ", "without")) and "header" not in what:
            continue  # another content, not a damaged one
        path = tmp_path / "a.npz"
        path.write_bytes(content)
        try:
            found = read_npz(path, "")
        except UserError:
            refused += 1
            continue
        for name, value in found.items():
            np.testing.assert_array_equal(value, arrays[name], what)
    assert refused > 20


def test_strange_run_json_does_not_stop_a_result_from_being_read(result_folder: Path) -> None:
    good = json.loads((result_folder / "run.json").read_text())
    for what, content in damaged_json(good, np.random.default_rng(1), 12):
        (result_folder / "run.json").write_bytes(content)
        loaded = fitmesh.load(result_folder)
        assert sum(loaded.timings_s.values()) >= 0, what


@pytest.fixture
def result_folder(tmp_path: Path) -> Path:
    from tests.videos import write_video
    from tests.walkers import coco_results, walker, write_json

    video = write_video(tmp_path / "v.mp4", [0, 40, 80], (160, 120))
    given = write_json(tmp_path / "k.json", coco_results([walker(3)]))
    fitmesh.run(video, tmp_path / "out", keypoints=given)
    return tmp_path / "out"


def test_an_unforeseen_error_is_counted_as_a_failure() -> None:
    """The sweep itself can fail."""
    case = Case("", lambda: None)
    assert (
        _judge(case, 1, "Error: something went wrong inside fitmesh (KeyError: 'a').")
        == "traceback"
    )
    assert _judge(case, 0, "") == "wrong success"
    assert _judge(case, None, "") == "hang"
    assert _judge(case, -9, "") == "memory"
    assert _judge(case, 2, "Error: no.") == "fine"
