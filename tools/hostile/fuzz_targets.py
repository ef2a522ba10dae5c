"""Readers to fuzz: a valid file, random damage to it, and how it is read."""

import json
import shutil
import struct
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tools.hostile import rigs
from tools.hostile.answers import FACTS, draw_plugin_answer, read_hub_answer, read_plugin_answer
from tools.hostile.inputs import Valid
from tools.hostile.mutations import STRANGE, _places, _remove, _set, npz_bytes

Random = np.random.Generator
NUMBERS = (np.nan, np.inf, -np.inf, 0.0, -0.0, -1.0, 1e-30, 1e30, -1e30, 1.5, 2.0**31, 2.0**63)
TYPES = ("f2", "f4", "f8", "f16", "c8", ">f4", "i1", "u2", "i4", "u8", ">i8", "?", "U0", "U3", "S2")


@dataclass(frozen=True)
class Target:
    """One reader, or several of one kind of file."""

    draw: Callable[[Random], tuple[str, bytes]]  # the file's name and its damaged content
    read: Callable[[Path], object]


def changed_bytes(data: bytes, rng: Random) -> bytes:
    """Some of: bytes set, a number of four or eight bytes set, a piece left out, doubled, or moved."""
    changed = bytearray(data)
    for _ in range(int(rng.integers(1, 6))):
        index = int(rng.integers(len(changed) + 1))
        length = int(rng.integers(1, 64))
        mode = int(rng.integers(5))
        if mode == 0:
            changed[index : index + 1] = rng.bytes(1)
        elif mode == 1:
            number = int(rng.choice([0, 1, 7, 8, 0x7F, 0x80, 0xFF, 2**31 - 1, 2**31, 2**32 - 1]))
            changed[index : index + 4] = struct.pack(">I" if rng.random() < 0.5 else "<I", number)
        elif mode == 2:
            del changed[index : index + length]
        elif mode == 3:
            changed[index:index] = changed[index : index + length]
        else:
            changed[index:index] = rng.bytes(length)
    return bytes(changed)


def changed_json(value: Any, rng: Random) -> bytes:
    full = json.dumps(value).encode()
    value = json.loads(full)
    for _ in range(int(rng.integers(1, 4))):
        try:
            places = list(_places(value))
        except RecursionError:  # one of STRANGE is nested deeply; enough has been changed
            break
        place = places[int(rng.integers(len(places)))]
        if rng.random() < 0.2 and place:
            _remove(value, place)
        else:
            _set(value, place, STRANGE[int(rng.integers(len(STRANGE)))])
    try:
        text = json.dumps(value).encode()
    except (ValueError, RecursionError):  # something strange was put into itself
        return changed_bytes(full, rng)
    return changed_bytes(text, rng) if rng.random() < 0.2 else text


def changed_npz(arrays: dict[str, np.ndarray], rng: Random) -> bytes:
    """Return arrays that are typed correctly mixed with nonsense; sometimes the bytes of the file
    are damaged too.
    """
    content = dict(arrays)
    for _ in range(int(rng.integers(1, 4))):
        name = list(content)[int(rng.integers(len(content)))]
        value = content[name]
        mode = int(rng.integers(8))
        if mode == 0:
            del content[name]
        elif mode == 1:
            content["row_x" if rng.random() < 0.5 else f"{name}_x"] = value
        elif mode == 2:
            value = value.copy()
            if value.size and value.dtype.kind in "fiu":
                number = NUMBERS[int(rng.integers(len(NUMBERS)))]
                with np.errstate(all="ignore"):
                    part = slice(None) if rng.random() < 0.3 else int(rng.integers(value.size))
                    value.reshape(-1)[part] = np.array(number).astype(value.dtype)
            content[name] = value
        elif mode == 3 and value.dtype.kind in "fiub":
            with np.errstate(all="ignore"):
                content[name] = value.astype(TYPES[int(rng.integers(len(TYPES)))])
        elif mode == 4 and value.ndim:
            content[name] = value[: int(rng.integers(len(value) + 1))]
        elif mode == 5 and value.dtype.kind in "iu":
            content[name] = (value.astype(np.int64) + rng.integers(-3, 4)).astype(value.dtype)
        elif mode == 6 and value.ndim:
            content[name] = rng.permutation(value) if rng.random() < 0.5 else value[..., None]
        elif value.dtype.kind == "f":
            content[name] = (value * float(rng.choice([-1, 1e-9, 1e3, 1e9, 1e38]))).astype(
                value.dtype
            )
        if not content:
            break
    with np.errstate(all="ignore"):
        data = npz_bytes(content)
    return changed_bytes(data, rng) if rng.random() < 0.1 else data


def npz_target(valid: Valid) -> Target:
    import fitmesh
    from fitmesh.exports.csv_json import write_csv, write_json
    from fitmesh.stages.keypoint_files import read_given
    from fitmesh.stages.people import read_keypoints, read_tracks
    from fitmesh.tracks import edited_keypoints, edited_tracks
    from fitmesh.ui.events import Reporter
    from fitting.body.load import load_body

    names = ("fit.npz", "tracks.npz", "keypoints.npz", "body.npz")
    seeds = {
        name: valid.arrays(valid.body if name == "body.npz" else valid.out / name) for name in names
    }

    def draw(rng: Random) -> tuple[str, bytes]:
        name = names[int(rng.choice(4, p=(0.4, 0.27, 0.27, 0.06)))]
        return name, changed_npz(seeds[name], rng)

    def read(path: Path) -> None:
        for name in names[:3]:
            if path.name != name:
                shutil.copy(valid.out / name, path.parent / name)
        if path.name == "body.npz":
            load_body(path)
        elif path.name == "fit.npz":
            result = fitmesh.load(path.parent)
            for person in result.people:
                result.vertices(person, 0)
                result.camera_at(int(person.frame[0]))
            quiet = Reporter(lambda event: None)
            write_csv(result, path.parent, quiet)
            write_json(result, path.parent, quiet)
        else:
            read_tracks(path.parent)
            read_keypoints(path.parent)
            edited_tracks(path.parent)
            edited_keypoints(path.parent)
            if path.name == "keypoints.npz":
                read_given(path)

    return Target(draw, read)


def json_target(valid: Valid) -> Target:
    from fitmesh.manifest import Manifest
    from fitmesh.many.status import ClipStatus
    from fitmesh.stages.keypoint_files import read_given
    from fitmesh.stages.scene import _read_intrinsics, read_floor
    from pose2d.detect.boxes import read_detections

    person = {"person_id": [-1], "pose_keypoints_2d": [1.0] * 75}
    seeds: dict[str, tuple[Any, Callable[[Path], object]]] = {
        "coco.json": (valid.json(valid.keypoints)[:3], read_given),
        "openpose.json": ({"version": 1.3, "people": [person, person]}, read_given),
        "boxes.json": (
            [{"image_id": 0, "category_id": 1, "bbox": [1, 2, 3, 4], "score": 0.5}],
            read_detections,
        ),
        "floor.json": ({"up": [0.0, -1.0, 0.1], "camera_height_m": 1.5}, read_floor),
        "lens.json": (
            {"matrix": [[900.0, 0, 80], [0, 900.0, 60], [0, 0, 1]], "distortion": [0.1, 0, 0, 0]},
            lambda path: _read_intrinsics(path, (160, 120)),
        ),
        "run.json": (
            valid.json(valid.out / "run.json"),
            lambda path: Manifest.read(path.parent).is_whole(),
        ),
        "fitmesh_status.json": (
            {"name": "a", "source": "a.mp4", "state": "done", "people": 1, "warnings": ["x"]},
            lambda path: (
                ClipStatus.from_json(json.loads(path.read_bytes())) if _is_object(path) else None
            ),
        ),
    }

    def draw(rng: Random) -> tuple[str, bytes]:
        name = list(seeds)[int(rng.integers(len(seeds)))]
        return name, changed_json(seeds[name][0], rng)

    return Target(draw, lambda path: seeds[path.name][1](path))


def _is_object(path: Path) -> bool:
    try:
        return isinstance(json.loads(path.read_bytes()), dict)
    except (ValueError, RecursionError):
        return False


def mp4_target(valid: Valid) -> Target:
    from pose2d.video.lens_metadata import read_lens_metadata
    from pose2d.video.video_file import Video

    def box(kind: bytes, *content: bytes) -> bytes:
        body = b"".join(content)
        return struct.pack(">I", 8 + len(body)) + kind + body

    name = b"com.apple.quicktime.camera.focal_length.35mm_equivalent"
    value = struct.pack(">I", 26)
    keys = box(b"keys", bytes(4), struct.pack(">I", 1), box(b"mdta", name))
    item = struct.pack(">II", 24 + len(value), 1) + box(b"data", struct.pack(">II", 67, 0), value)
    meta = box(b"meta", box(b"hdlr", bytes(24)), keys, box(b"ilst", item))
    xmp = box(b"XMP_", b'<x FocalLengthIn35mmFilm="26/1">')
    file = box(b"ftyp", b"isom" * 2) + box(b"moov", box(b"trak", meta), box(b"udta", meta, xmp))
    video = valid.video.read_bytes()

    def draw(rng: Random) -> tuple[str, bytes]:
        if rng.random() < 0.8:
            return "atoms.mp4", changed_bytes(file, rng)
        head = video[:200]
        tail = video[video.find(b"moov") - 4 :]
        middle = video[200 : len(video) - len(tail)]
        return "video.mp4", changed_bytes(head, rng) + middle + changed_bytes(tail, rng)

    def read(path: Path) -> None:
        read_lens_metadata(path, (160, 120))  # never raises
        if path.name == "video.mp4":
            for number, _ in enumerate(Video(path).frames()):
                if number > 3:
                    break

    return Target(draw, read)


def onnx_target(valid: Valid) -> Target:
    from pose2d.base.onnx_weights import ordered_weights, read_onnx

    def varint(value: int) -> bytes:
        return bytes([value | 0x80 if value > 0x7F else value]) + (
            varint(value >> 7) if value > 0x7F else b""
        )

    def part(number: int, content: bytes | int) -> bytes:
        if isinstance(content, int):
            return varint(number << 3) + varint(content)
        return varint(number << 3 | 2) + varint(len(content)) + content

    beside = {b"location": b"data.bin", b"offset": b"0", b"length": b"16"}
    entries = b"".join(part(13, part(1, key) + part(2, value)) for key, value in beside.items())
    tensors = [
        part(1, 2) + part(1, 2) + part(2, 1) + part(8, b"w") + part(9, bytes(16)),
        part(1, bytes([2, 2])) + part(2, 1) + part(8, b"v") + entries,
        part(1, 3) + part(2, 7) + part(7, bytes([1, 2, 3])) + part(8, b"n"),
        part(1, 2) + part(2, 10) + part(5, bytes([1, 2])) + part(8, b"h"),
    ]
    nodes = [
        part(1, b"x") + part(1, b"w") + part(2, b"y") + part(4, b"Conv"),
        part(1, b"y") + part(1, b"v") + part(2, b"z"),
    ]
    constant = part(2, b"c") + part(4, b"Constant") + part(5, part(5, tensors[0]))
    graph = b"".join(part(1, node) for node in (*nodes, constant)) + b"".join(
        part(5, tensor) for tensor in tensors
    )
    file = part(1, 8) + part(7, graph + part(12, part(1, b"z")))

    def read(path: Path) -> None:
        (path.parent / "data.bin").write_bytes(bytes(64))
        ordered_weights(read_onnx(path))

    return Target(lambda rng: ("a.onnx", changed_bytes(file, rng)), read)


def edits_target(valid: Valid) -> Target:
    from fitmesh.result import EDITS_FILE
    from fitmesh.stages.people import read_tracks
    from fitmesh.tracks import Drop, Merge, Split, edited_keypoints, edited_tracks, write_edits

    tracks = read_tracks(valid.out)
    folder = Path(tempfile.mkdtemp())
    write_edits(folder, tracks, [Split(1, float(tracks.time_s[5]), 3), Merge((1, 3)), Drop(2)])
    seed = json.loads((folder / EDITS_FILE).read_text())
    shutil.rmtree(folder)

    def draw(rng: Random) -> tuple[str, bytes]:
        content: Any = {"tracks": seed["tracks"], "edits": []}
        for _ in range(int(rng.integers(1, 6))):
            identity = rng.integers(0, 5, 3).tolist()
            split = {
                "split": identity[0],
                "time_s": float(rng.choice(tracks.time_s)),
                "new": identity[1],
            }
            content["edits"].append(
                [{"merge": identity[: int(rng.integers(4))]}, split, {"drop": identity[0]}][
                    int(rng.integers(3))
                ]
            )
        return EDITS_FILE, json.dumps(content).encode() if rng.random() < 0.5 else changed_json(
            seed, rng
        )

    def read(path: Path) -> None:
        for name in ("tracks.npz", "keypoints.npz"):
            shutil.copy(valid.out / name, path.parent / name)
        rows = edited_tracks(path.parent).rows
        tracks = [
            np.sort(rows.frame[rows.identity == identity]) for identity in np.unique(rows.identity)
        ]
        for frames in (
            *tracks,
            *(person.frame for person in edited_keypoints(path.parent).people.values()),
        ):
            if (np.diff(frames) <= 0).any():
                raise AssertionError("a person is twice in a frame")

    return Target(draw, read)


def lists_target(valid: Valid) -> Target:
    from fitmesh.many.sources import find_clips

    seed = b"\xef\xbb\xbf# clips\na.mp4\n../b.mp4\n...mp4\n.fitmesh.lock.mp4\n/x/a.mp4\nc d.mov\n\xc3\xa9.mp4\n"

    def read(path: Path) -> None:
        for clip in find_clips([], [str(path)], str(path.parent / "out")).clips:
            if clip.name.startswith(".") or "/" in clip.name or not clip.name:
                raise AssertionError(f"the folder {clip.name!r} for {clip.source!r}")

    return Target(lambda rng: ("clips.txt", changed_bytes(seed, rng)), read)


def rig_target(valid: Valid) -> Target:
    """Return a target that reads damaged calibration files of several cameras."""
    from fitting.rig.calibration import read_rig

    texts = {"rig.toml": rigs.toml().encode(), "rig.yml": rigs.YAML.encode()}

    def draw(rng: Random) -> tuple[str, bytes]:
        name = ("rig.toml", "rig.yml", "rig.json")[int(rng.integers(3))]
        if name == "rig.json":
            return name, changed_json({"cameras": rigs.cameras()}, rng)
        return name, changed_bytes(texts[name], rng)

    return Target(draw, lambda path: read_rig(path, rigs.NAMES, rigs.SIZES))


def plugin_target(valid: Valid) -> Target:
    """Return a target of random answers of a plug-in's network."""

    def draw(rng: Random) -> tuple[str, bytes]:
        return "answer.json", json.dumps(draw_plugin_answer(rng)).encode()

    return Target(draw, read_plugin_answer)


def hub_target(valid: Valid) -> Target:
    """Return a target of damaged answers of the Hugging Face hub."""
    return Target(lambda rng: ("answer.json", changed_json(FACTS, rng)), read_hub_answer)


TARGETS: dict[str, Callable[[Valid], Target]] = {
    "rig": rig_target,
    "plugin": plugin_target,
    "hub": hub_target,
    "npz": npz_target,
    "json": json_target,
    "mp4": mp4_target,
    "onnx": onnx_target,
    "edits": edits_target,
    "lists": lists_target,
}
