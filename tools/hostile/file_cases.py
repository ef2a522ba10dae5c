"""Damaged and hostile files for every loader."""

import pickle
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tools.hostile.inputs import Valid, pickled
from tools.hostile.mutations import damaged_bytes, damaged_json, damaged_npz
from tools.hostile.runner import Case, command

Loader = Callable[[Path], object]


def file_cases(valid: Valid, rng: np.random.Generator) -> Iterator[Case]:
    """Yield every loader with damaged files."""
    import ccnet
    import fitmesh
    import fitting
    from ccnet.data.datasets import read_split
    from eval3dpw.bodies import read_predictions
    from eval3dpw.captured.motion import load_motion
    from eval3dpw.sequences import read_sequence, read_spin_npz
    from fitmesh.options.record import read_config
    from fitmesh.schema import TRACKS, fit_schema, keypoints_schema
    from fitmesh.stages.keypoint_files import read_given
    from fitmesh.stages.people import read_keypoint_rows, read_tracks
    from fitting.init.lifter_network import load_lifter
    from fitting.solver.terms.pose_prior import read_mixture
    from pose2d.base.json_files import read_json
    from pose2d.detect.boxes import read_detections
    from pose2d.models.checkpoints import read_state
    from pose2d.skeletons import COCO17, MPII16
    from pose2d.video.images import read_image
    from pose2d.video.video_file import Video

    known_parts = {**fit_schema(), **keypoints_schema(), **TRACKS}
    required = {name for name, array in known_parts.items() if not array.optional}

    def binary(title: str, loader: Loader, name: str, data: bytes) -> Iterator[Case]:
        for label, content in damaged_bytes(data, rng):
            certain = label in ("empty", "noise", "text", "zeros") and (title, label) != (
                "config",
                "empty",
            )
            yield Case(f"{title}: {label}", load(loader, name, content), must_refuse=certain)

    def arrays(
        title: str, loader: Loader, name: str, content: dict[str, np.ndarray], strict: bool
    ) -> Iterator[Case]:
        for label, data, wrong in damaged_npz(content, rng):
            optional = label.removeprefix("without ").split(" ")[0] not in required
            yield Case(
                f"{title}: {label}",
                load(loader, name, data),
                must_refuse=wrong and strict and not optional,
            )

    def records(title: str, loader: Loader, name: str, content: Any) -> Iterator[Case]:
        for label, data in damaged_json(content, rng):
            yield Case(f"{title}: {label}", load(loader, name, data), must_refuse=False)

    yield from arrays(
        "fit.npz",
        lambda p: fitmesh.load(p.parent),
        "fit.npz",
        valid.arrays(valid.out / "fit.npz"),
        True,
    )
    inputs = valid.arrays(valid.out / "keypoints.npz")
    yield from arrays("keypoints.npz", read_keypoint_rows, "keypoints.npz", inputs, True)
    yield from arrays("--keypoints npz", read_given, "k.npz", inputs, True)
    observed = valid.arrays(valid.out / "tracks.npz")
    yield from arrays("tracks.npz", lambda p: read_tracks(p.parent), "tracks.npz", observed, True)
    predicted = {
        "sequence": np.array(["a", "a"]),
        "person": np.zeros(2, int),
        "frame": np.arange(2),
        "pose": np.zeros((2, 72)),
        "shape": np.zeros((2, 10)),
        "translation": np.zeros((2, 3)),
    }
    yield from arrays("predictions", read_predictions, "p.npz", predicted, False)
    spin = {
        "imgname": np.array(["imageFiles/a_00/image_00000.jpg"] * 2),
        "center": np.zeros((2, 2)),
        "scale": np.ones(2),
        "pose": np.zeros((2, 72)),
        "shape": np.zeros((2, 10)),
        "gender": np.array(["m", "m"]),
    }
    yield from arrays("SPIN's file", read_spin_npz, "s.npz", spin, False)
    body = fitting.load_body()
    yield from arrays(
        "motion", lambda p: load_motion(p, body, 30), "m.npz", valid.arrays(valid.motion), False
    )
    yield from binary(
        "body.npz", lambda p: fitting.load_body(p), "body.npz", valid.body.read_bytes()
    )
    yield from binary(
        "body.pkl",
        lambda p: fitting.load_body(p),
        "body.pkl",
        pickled({"v_template": np.zeros((9, 3))}),
    )
    yield from binary("pose prior", read_mixture, "gmm.pkl", pickled({"means": np.zeros((1, 69))}))
    yield from binary(
        "lifter",
        load_lifter,
        "lifter.npz",
        Path(str(fitting.__path__[0]), "data/lifter.npz").read_bytes(),
    )
    yield from binary("head", ccnet.load, "head.safetensors", valid.head.read_bytes())
    yield from binary("checkpoint npz", read_state, "c.npz", valid.body.read_bytes())
    yield from binary("checkpoint pth", read_state, "c.pth", pickled({"state_dict": 1}))
    yield from binary(
        "checkpoint safetensors", read_state, "c.safetensors", valid.head.read_bytes()
    )
    yield from binary("checkpoint onnx", read_state, "c.onnx", b"\x08\x07" + rng.bytes(400))
    yield from binary("video", _frames(Video), "v.mp4", valid.video.read_bytes())
    yield from binary("image", read_image, "i.png", valid.image.read_bytes())
    yield from binary("config", lambda p: read_config(p, ["start"]), "c.toml", b"start = 1.0\n")
    sequence = next((valid.threedpw / "sequenceFiles").rglob("*.pkl"))
    yield from binary("3DPW", read_sequence, "a.pkl", sequence.read_bytes())
    content = pickle.loads(sequence.read_bytes())  # our own file
    for key in content:
        for strange in (None, 3, "x", [None], [[]], np.full((2, 2), np.nan), {}, float("inf")):
            data = pickled({**content, key: strange})
            yield Case(
                f"3DPW: {key} is {str(strange)[:12]!r}",
                load(read_sequence, "a.pkl", data),
                must_refuse=False,
            )
        data = pickled({name: value for name, value in content.items() if name != key})
        yield Case(f"3DPW: without {key}", load(read_sequence, "a.pkl", data), must_refuse=False)
    yield from records("--keypoints COCO", read_given, "k.json", valid.json(valid.keypoints)[:3])
    person = {"person_id": [-1], "pose_keypoints_2d": [1.0] * 75}
    yield from records(
        "--keypoints OpenPose", read_given, "k.json", {"version": 1.3, "people": [person]}
    )
    boxes = [{"image_id": 0, "category_id": 1, "bbox": [1.0, 2.0, 30.0, 40.0], "score": 0.5}]
    yield from records("--detections", read_detections, "d.json", boxes)
    coco = valid.json(valid.coco / "annotations" / "person_keypoints_val2017.json")
    yield from records(
        "COCO",
        _data_set(
            valid.coco,
            "annotations/person_keypoints_val2017.json",
            lambda root: read_split(root, "val2017", COCO17),
        ),
        "a.json",
        coco,
    )
    mpii = valid.json(valid.mpii / "annot" / "valid.json")
    yield from records(
        "MPII",
        _data_set(valid.mpii, "annot/valid.json", lambda root: read_split(root, "valid", MPII16)),
        "a.json",
        mpii,
    )
    yield from records(
        "run.json", _with_run_json(valid.out), "run.json", valid.json(valid.out / "run.json")
    )
    yield from records(
        "head's record", _head_with_record(valid.head), "r.json", _record(valid.head)
    )
    yield from records("JSON", read_json, "x.json", {"a": [1, {"b": 2}]})


def again(
    out: Path, name: str, data: bytes, content: bytes, inputs: list[str]
) -> Callable[[], object]:
    def run() -> None:
        shutil.copytree(out, "out")
        Path("out", name).write_bytes(content)
        try:
            command("run", *inputs, "--out", "out")()
        except SystemExit as left:
            if left.code:
                raise
        again = Path("out", name).read_bytes()
        if name.endswith((".npz", ".glb", ".mp4")) and again != data:
            raise AssertionError(
                f"{name} is not what it was: {len(again)} bytes, {len(data)} before"
            )

    return run


def load(loader: Loader, name: str, content: bytes) -> Callable[[], object]:
    def run() -> object:
        Path(name).write_bytes(content)
        return loader(Path(name).resolve())

    return run


def _frames(video: Any) -> Loader:
    return lambda path: sum(1 for _ in video(path).frames())


def _data_set(root: Path, name: str, read: Loader) -> Loader:
    def run(path: Path) -> object:
        current = path.parent / "set"
        shutil.copytree(root, current)
        shutil.copy(path, current / name)
        return read(current)

    return run


def _with_run_json(out: Path) -> Loader:
    def run(path: Path) -> object:
        import fitmesh

        shutil.copy(out / "fit.npz", path.parent / "fit.npz")
        result = fitmesh.load(path.parent)
        return result.clip_path, dict(result.settings), sum(result.timings_s.values())

    return run


def _record(head: Path) -> Any:
    import json

    from safetensors import safe_open

    with safe_open(head, "pt") as file:
        return json.loads(file.metadata()["about"])


def _head_with_record(head: Path) -> Loader:
    def run(path: Path) -> object:
        from safetensors.torch import load_file, save_file

        import ccnet

        save_file(
            load_file(head), "changed.safetensors", {"about": path.read_text("utf-8", "replace")}
        )
        return ccnet.load(Path("changed.safetensors").resolve())

    return run
