"""`fitmesh.run` and `fitmesh run` are the same thing."""

import inspect
from pathlib import Path

import numpy as np
import pytest

import fitmesh
from fitmesh.commands.run import run as command
from pose2d.base.errors import DataError, OptionError, ResourceError, UserError
from tests.fitmesh.conftest import Fitmesh

# The command's name for an option of the function, where they differ.
RENAMED = {
    "start_s": "start",
    "end_s": "end",
    "focal_px": "focal",
    "fov_deg": "fov",
    "exports": "export",
    "outputs": "only",
    "height_m": "height",
    "weight_kg": "weight",
    "overlay_px": "overlay_size",
}


def test_the_command_and_the_function_have_the_same_options_and_defaults() -> None:
    options = {name: p.default for name, p in inspect.signature(fitmesh.run).parameters.items()}
    given = {name: p.default for name, p in inspect.signature(command).parameters.items()}
    for name in ("video", "out", "frames", "progress"):
        del options[name]
    for name in (
        "clip",
        "video",
        "videos",
        "images",
        "image",
        "together",
        "jobs",
        "shard",
        "ray",
        "retry_failed",
        "out",
        "quiet",
        "json",
        "config",
    ):
        del given[name]
    assert {RENAMED.get(name, name): default or None for name, default in options.items()} == {
        name: default or None for name, default in given.items()
    }


def test_the_function_leaves_what_the_command_leaves(
    fitmesh_command: Fitmesh, walk: tuple[str | Path, ...], tmp_path: Path
) -> None:
    assert fitmesh_command("run", *walk, "--out", tmp_path / "command") == 0
    options = dict(zip(walk[::2], walk[1::2], strict=True))
    heard: list[fitmesh.Progress] = []
    result = fitmesh.run(
        options["--video"],
        tmp_path / "function",
        keypoints=options["--keypoints"],
        progress=heard.append,
    )
    for name in ("tracks.npz", "keypoints.npz", "fit.npz", "overlay.mp4", "scene.glb"):
        assert (tmp_path / "function" / name).read_bytes() == (
            tmp_path / "command" / name
        ).read_bytes(), name
    assert {step.stage for step in heard} >= {"people", "fit", "overlay"}
    fits = [step for step in heard if step.stage == "fit"]
    assert fits[-1].done == fits[-1].total == sum(map(len, result.people))
    assert np.isfinite(result.people[0].joints_m).all()


def test_a_mistake_is_a_user_error(tmp_path: Path) -> None:
    with pytest.raises(fitmesh.UserError, match="no video"):
        fitmesh.run(tmp_path / "absent.mp4", tmp_path / "out")


def test_tab_completion_shows_the_public_names() -> None:
    assert {"run", "load", "Result", "Person", "UserError"} <= set(dir(fitmesh))


def test_an_error_of_the_function_names_its_argument(tmp_path: Path) -> None:
    with pytest.raises(fitmesh.UserError) as caught:
        fitmesh.run("clip.mp4", tmp_path, end_s=-1)
    assert str(caught.value).startswith("end_s ")
    assert caught.value.facts()["code"] == "option"
    assert caught.value.option == "end_s"


def test_errors_tell_programs_what_kind_of_mistake_it_is() -> None:
    assert UserError("x.mp4 is empty", file="x.mp4").facts() == {
        "text": "x.mp4 is empty",
        "code": "input",
        "file": "x.mp4",
        "option": None,
    }
    assert OptionError("unknown --init 'x'").option == "init"
    codes = {kind.code for kind in (UserError, OptionError, DataError, ResourceError)}
    assert codes == {"input", "option", "data", "resource"}
