"""Embedded files are verified by their SHA-256 when they are loaded."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import ccnet
import pose2d
from eval3dpw.synth.motion import load_clips
from fitting import stated
from fitting.body.load import load_body
from fitting.body.open_body import OPEN_HANDS, _open_fingers
from fitting.init.lifter_network import load_lifter
from fitting.solver.terms.pose_prior import read_mixture
from pose2d import hands, masks
from pose2d.base import embedded
from pose2d.base.errors import UserError
from pose2d.detect.yolox import load_yolox
from pose2d.tracking import appearance


@pytest.fixture
def digests(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """The listed digests, to be changed; nothing counts as verified before and after."""
    listed = dict(embedded._read_digests())
    monkeypatch.setattr(embedded, "_read_digests", lambda: listed)
    embedded.check_embedded.cache_clear()
    yield listed
    embedded.check_embedded.cache_clear()


def load_open_hands() -> object:
    body = load_body()
    return _open_fingers(body.v_template, body.shapedirs, body.weights)


LOADERS: dict[str, Callable[[], object]] = {
    "pose2d/weights/rtmpose_s_halpe26_fp16.npz": lambda: pose2d.load("rtmpose-s-halpe26"),
    "pose2d/graphs/rtmpose_s_halpe26.onnx": lambda: pose2d.load("rtmpose-s-halpe26"),
    "pose2d/weights/movenet_lightning_fp16.npz": lambda: pose2d.load("movenet-lightning"),
    "pose2d/weights/yolox_tiny_humanart_fp16.npz": load_yolox,
    "pose2d/weights/hand_landmarks_fp16.npz": hands.network.__wrapped__,
    "pose2d/weights/hand_error.json": hands._constants.__wrapped__,
    "pose2d/weights/person_mask_fp16.npz": masks.network.__wrapped__,
    "pose2d/weights/appearance.npz": appearance._model.__wrapped__,
    "ccnet/weights/rtmpose-s-halpe26.safetensors": lambda: ccnet.load("rtmpose-s-halpe26"),
    "fitting/data/open_body.npz": load_body,
    "fitting/data/open_hands.npz": load_open_hands,
    "fitting/data/lifter.npz": load_lifter.__wrapped__,
    "fitting/data/pose_prior.npz": read_mixture,
    "fitting/data/stated_errors.json": stated.stated_errors.__wrapped__,
    "eval3dpw/synth/data/held_out_motion.npz": lambda: load_clips(load_body(), "test"),
}


@pytest.mark.parametrize("name", LOADERS)
def test_a_changed_file_is_refused_when_it_is_loaded(digests: dict[str, str], name: str) -> None:
    digests[name] = "0" * 64
    with pytest.raises(UserError, match=r"damaged.*SHA-256") as refused:
        LOADERS[name]()
    assert refused.value.file is not None
    assert refused.value.file.endswith(Path(name).name)


def test_one_flipped_bit_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, digests: dict[str, str]
) -> None:
    name = "fitting/data/open_hands.npz"
    copy = tmp_path / name
    copy.parent.mkdir(parents=True)
    content = bytearray(OPEN_HANDS.read_bytes())
    monkeypatch.setattr(embedded, "ROOT", tmp_path)
    copy.write_bytes(content)
    assert embedded.check_embedded(copy) == copy
    content[len(content) // 2] ^= 1
    copy.write_bytes(content)
    embedded.check_embedded.cache_clear()
    with pytest.raises(UserError, match=r"open_hands\.npz is damaged"):
        embedded.check_embedded(copy)


def test_a_file_is_read_once_in_a_process(
    monkeypatch: pytest.MonkeyPatch, digests: dict[str, str]
) -> None:
    asked = []
    monkeypatch.setattr(
        embedded,
        "file_sha256",
        lambda path: asked.append(path) or digests["fitting/data/lifter.npz"],
    )
    path = embedded.ROOT / "fitting/data/lifter.npz"
    assert embedded.check_embedded(path) == embedded.check_embedded(path) == path
    assert asked == [path]


def test_a_file_that_is_not_listed_is_refused(digests: dict[str, str]) -> None:
    del digests["fitting/data/lifter.npz"]
    with pytest.raises(UserError, match="not in the list"):
        load_lifter.__wrapped__()


@pytest.mark.parametrize("content", ["", "[]", "{", '{"a": 1}', '{"a": {}}'])
def test_a_damaged_list_is_refused_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str
) -> None:
    monkeypatch.setattr(embedded, "LIST", tmp_path / "embedded.json")
    (tmp_path / "embedded.json").write_text(content)
    with pytest.raises(UserError, match="Reinstall fitmesh"):
        embedded._read_digests.__wrapped__()


def test_every_file_with_weights_is_listed() -> None:
    listed = json.loads(embedded.LIST.read_text())
    folders = ("pose2d/weights", "pose2d/graphs", "ccnet/weights", "fitting/data")
    shipped = {
        path.relative_to(embedded.ROOT).as_posix()
        for folder in folders
        for path in (embedded.ROOT / folder).iterdir()
        if path.suffix in (".npz", ".onnx", ".safetensors", ".json")
    }
    assert shipped <= set(listed)
