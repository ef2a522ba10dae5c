"""Cases of what describes a scene or computes in it: calibrations, floors, lenses, plug-ins, the hub.

Also options whose values contradict each other, and folders, links and locked files in place of
files.
"""

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tools.hostile import rigs
from tools.hostile.answers import (
    FACTS,
    draw_plugin_answer,
    plugin_answers,
    read_hub_answer,
    read_plugin_answer,
)
from tools.hostile.file_cases import load
from tools.hostile.inputs import Valid
from tools.hostile.mutations import damaged_bytes, damaged_json
from tools.hostile.runner import Case, command

# Source of a plug-in that must be refused; each is a file of its own.
PLUGINS = {
    "empty": "",
    "exit": "import sys; sys.exit(0)",
    "raise": "raise RuntimeError('a mistake')",
    "syntax": "def (",
    "null": "x = '\0'",
    "nothing registered": "import pose2d",
    "not a card": "import pose2d; pose2d.register(3)",
    "a card of None": "import pose2d; pose2d.register(pose2d.ModelCard(*[None] * 4))",
    "build is text": "import pose2d; pose2d.register(pose2d.ModelCard('a', 'b', pose2d.COCO17, (9, 9)))",
    "huge input": "import pose2d; pose2d.register(pose2d.ModelCard('a', int, pose2d.COCO17, (-9, 0)))",
    "our name": "import pose2d; pose2d.register(pose2d.ModelCard('movenet-thunder', int, pose2d.COCO17, (9, 9)))",
}
# Values of an option of `run` beside a right video and keypoints that must be refused.
BAD_VALUES = {
    "--weight": ("0:80", ":80", "-1:80", "1:nan", "1:80,1:81", "1:1e9", "a:80", "1" * 400 + ":80"),
    "--height": ("0:1.8", ":1.8", "1:inf", "1:1.8,1:1.9", "1e400"),
    "--sync": ("1e308,-1e308", "0,0.1", "start"),
    "--jobs": ("2",),
    "--shard": ("1/2",),
    "--ray": ("auto",),
    "--cameras": ("rig.toml", "auto"),
    "--camera-names": ("a,b",),
}
FILE_OPTIONS = (
    "--keypoints",
    "--floor",
    "--intrinsics",
    "--checkpoint",
    "--ccnet",
    "--init-checkpoint",
    "--body-model",
    "--detections",
    "--plugin",
    "--config",
    "--video",
    "--videos",
)


def scene_cases(valid: Valid, rng: np.random.Generator) -> Iterator[Case]:
    yield from _calibrations(rng)
    yield from _floors_and_lenses(rng)
    yield from _plugins(valid)
    yield from _answers(rng)
    yield from _values(valid)
    yield from _places(valid)


def _calibrations(rng: np.random.Generator) -> Iterator[Case]:
    from fitting.rig.calibration import read_rig

    def read(path: Path) -> object:
        return read_rig(path, rigs.NAMES, rigs.SIZES)

    for name, content in rigs.odd_rigs():
        yield Case(f"calibration {name}", load(read, name, content), must_refuse=False)
    for label, content in damaged_json({"cameras": rigs.cameras()}, rng):
        yield Case(f"calibration: {label}", load(read, "rig.json", content), must_refuse=False)
    for name, text in (("rig.toml", rigs.toml()), ("rig.yml", rigs.YAML)):
        for label, content in damaged_bytes(text.encode(), rng):
            must_refuse = label in ("empty", "noise", "zeros")
            yield Case(f"calibration {name}: {label}", load(read, name, content), must_refuse)


def _floors_and_lenses(rng: np.random.Generator) -> Iterator[Case]:
    from fitmesh.stages.scene import _read_intrinsics, read_floor

    lens = {"matrix": [[900.0, 0, 80], [0, 900.0, 60], [0, 0, 1]], "distortion": [0.1, 0, 0, 0]}
    records: tuple[tuple[str, Any, Callable[[Path], object]], ...] = (
        ("floor", {"up": [0.0, -1.0, 0.1], "camera_height_m": 1.5}, read_floor),
        ("lens", lens, lambda path: _read_intrinsics(path, (160, 120))),
    )
    for title, content, reader in records:
        for label, data in damaged_json(content, rng):
            yield Case(f"{title}: {label}", load(reader, "x.json", data), must_refuse=False)
    for up in ([1e300] * 3, [0, -1e300, 0], [0, 0, 0], [1e-300, 0, 0], [10**400, 0, 0]):
        content = json.dumps({"up": up}).encode()
        yield Case(f"floor with up {str(up)[:20]}", load(read_floor, "x.json", content))


def _plugins(valid: Valid) -> Iterator[Case]:
    def run(source: str, name: str) -> Callable[[], object]:
        def work() -> None:
            Path(name).write_text(source)
            command("run", "--video", valid.video, "--plugin", name, "--out", "out")()

        return work

    for title, source in PLUGINS.items():
        yield Case(f"plug-in: {title}", run(source, "hostile_plugin.py"))
    for name in ("a.b.py", "numpy.py", "plugin.txt", "a b.py", "\n.py"):
        yield Case(f"plug-in called {name!r}", run("import pose2d", name))


def _answers(rng: np.random.Generator) -> Iterator[Case]:
    drawn = [draw_plugin_answer(rng) for _ in range(60)]
    for answer in (*plugin_answers(), *drawn):
        title = " ".join(str(value) for value in answer.values())
        content = json.dumps(answer).encode()
        yield Case(f"plug-in's {title}", load(read_plugin_answer, "x.json", content), False)
    for label, content in damaged_json(FACTS, rng):
        yield Case(f"hub's answer: {label}", load(read_hub_answer, "x.json", content), False)


def _values(valid: Valid) -> Iterator[Case]:
    arguments = ["--video", str(valid.video), "--keypoints", str(valid.keypoints), "--out", "out"]
    for option, values in BAD_VALUES.items():
        for value in values:
            yield Case(
                f"run {option} {value[:16]}", command("run", *arguments, f"{option}={value}")
            )
    second = ["--video", str(valid.image), "--together"]
    for option, value in (("--jobs", "2"), ("--shard", "1/2"), ("--sync", "0,nan")):
        together = command("run", *arguments, *second, f"{option}={value}")
        yield Case(f"run --together {option}", together)


def _places(valid: Valid) -> Iterator[Case]:
    """A folder, a link to itself, a link to nothing and an empty file where a file is expected."""

    def folder(name: str) -> None:
        Path(name).mkdir()

    def loop(name: str) -> None:
        Path(name).symlink_to(name)

    def dangling(name: str) -> None:
        Path(name).symlink_to("gone")

    def empty(name: str) -> None:
        Path(name).touch()

    def run(make: Callable[[str], None], option: str, name: str) -> Callable[[], object]:
        base = [] if option.startswith("--video") else ["--video", str(valid.video)]

        def work() -> None:
            make(name)
            command("run", *base, option, os.fspath(Path(name)), "--out", "out")()

        return work

    for option in FILE_OPTIONS:
        suffix = {"--plugin": ".py", "--config": ".toml", "--videos": ".txt"}.get(option, ".json")
        for make in (folder, loop, dangling, empty):
            is_fine = option == "--config" and make is empty  # no options are no mistake
            name = f"x\n{suffix}"
            yield Case(f"run {option} of {make.__name__}", run(make, option, name), not is_fine)
