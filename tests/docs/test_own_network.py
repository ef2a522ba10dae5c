"""docs/own-network.md as its reader goes through it: the file, the commands, the Python block."""

import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import pose2d
from fitmesh.cli import app
from pose2d.base.caching import code_digest
from pose2d.base.errors import UserError
from pose2d.models import registry
from tests.ccnet.toy import write_coco
from tests.docs.pages import read_page

PAGE = read_page("docs/own-network.md")
CODE = [block.code for block in PAGE.blocks if block.language == "python"]
CLIP = Path(__file__).parents[2] / "examples" / "park.mp4"
SHORT = ("--end", "0.1", "--max-people", "1", "--floor", "off")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Where the reader works: my_network.py, its weights, data and a clip; nothing of it stays
    registered.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(registry, "_registered", {})
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in ("my_network", "my_layers"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    (tmp_path / "my_network.py").write_text(CODE[0])
    (tmp_path / "clip.mp4").symlink_to(CLIP)
    write_coco(tmp_path / "coco", "train2017", count=4)
    write_coco(tmp_path / "coco", "val2017", count=3, seed=1)
    yield tmp_path
    sys.modules.pop("my_network", None)
    sys.modules.pop("my_layers", None)
    code_digest.cache_clear()
    registry.code_files.cache_clear()


@pytest.fixture
def weights(folder):
    registry.use_plugin("my_network.py")
    torch.save(sys.modules["my_network"].MyNetwork().state_dict(), "my_network.pth")


def call(line: str, *more: str) -> str:
    result = CliRunner().invoke(app, [*shlex.split(line)[1:], *more])
    if result.exception is not None:
        raise result.exception
    return result.output


def test_the_network_is_twenty_lines():
    assert len([line for line in CODE[0].splitlines() if line.strip()]) <= 20


@pytest.mark.slow
def test_the_commands_and_the_python_block_of_the_page(folder, weights):
    lines = [
        line
        for block in PAGE.blocks
        for line in block.code.splitlines()
        if line.startswith("fitmesh ")
    ]
    for line in lines:
        line = line.replace("my_network.py ", f"{folder}/my_network.py ")
        command = line.split()[1]
        said = call(
            line,
            *{"run": SHORT, "train-ccnet": ("--epochs", "1", "--no-occlusion-test")}.get(
                command, ()
            ),
        )
    assert "my-network with ccnet" in said or Path("out/keypoints.npz").is_file()
    with np.load("out/keypoints.npz") as arrays:
        assert str(arrays["pose_model"]) == "my-network"
        assert str(arrays["source"]) == "ccnet"
    code = CODE[1].replace('"out", ', '"out", end_s=0.1, max_people=1, floor="off", ')
    exec(compile(code, "docs/own-network.md", "exec"), {"__name__": "__main__"})


def test_a_plugin_without_a_network_is_refused(folder):
    Path("empty_file.py").write_text("x = 1\n")
    with pytest.raises(UserError, match="registers no network"):
        registry.use_plugin("empty_file.py")
    Path("broken_file.py").write_text("import no_such_module_at_all\n")
    with pytest.raises(UserError, match=r"does not run: ModuleNotFoundError"):
        registry.use_plugin("broken_file.py")
    Path("torch.py").write_text(CODE[0])
    with pytest.raises(UserError, match="another name"):
        registry.use_plugin("torch.py")
    with pytest.raises(UserError, match=r"expected a Python file"):
        registry.use_plugin("missing.py")


def test_a_shipped_name_cannot_be_taken(folder):
    with pytest.raises(UserError, match="ships with fitmesh"):
        pose2d.register(
            pose2d.ModelCard("movenet-thunder", pose2d.HeatmapModel, pose2d.COCO17, (96, 128))
        )


def test_the_card_must_agree_with_the_network(folder, weights):
    card = pose2d.card("my-network")
    pose2d.register(pose2d.ModelCard("other-size", card.build, card.skeleton, (192, 256)))
    with pytest.raises(UserError, match="differ in input_wh"):
        pose2d.load("other-size", "my_network.pth")


def test_weights_must_be_given(folder, weights):
    with pytest.raises(UserError, match="ships no weights: pass a checkpoint"):
        pose2d.load("my-network")


def digest() -> str:
    code_digest.cache_clear()
    registry.code_files.cache_clear()
    sys.modules.pop("my_network", None)
    sys.modules.pop("my_layers", None)
    registry._registered.clear()
    from pose2d.base import caching

    caching._parse_file.cache_clear()
    registry.use_plugin("my_network.py")
    return code_digest(registry.module_of("my-network"))


def test_cache_keys_follow_the_code_of_the_network_and_of_what_it_imports_beside_it(folder):
    first = digest()
    assert digest() == first
    file = Path("my_network.py")
    layers = Path("my_layers.py")
    file.write_text(f"# a comment\n{CODE[0]}")
    assert digest() == first
    layers.write_text("WIDTH = 32\n")
    file.write_text(f"import my_layers\n{CODE[0]}")
    with_layers = digest()
    assert with_layers != first
    layers.write_text("WIDTH = 64\n")
    assert digest() != with_layers


def test_a_network_that_was_typed_in_is_refused_in_words(folder):
    script = f"{CODE[0]}\nfrom pose2d.models.registry import module_of\nmodule_of('my-network')\n"
    ended = subprocess.run([sys.executable, "-"], input=script, text=True, capture_output=True)
    assert "was typed in" in ended.stderr
    Path("script.py").write_text(script + "print(module_of('my-network'))\n")
    ended = subprocess.run([sys.executable, "script.py"], text=True, capture_output=True)
    assert ended.stdout.strip() == "__main__", ended.stderr


def test_an_entry_point_makes_a_name_known(folder, monkeypatch):
    package = folder / "my_package-1.0.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: my-package\nVersion: 1.0\n")
    (package / "entry_points.txt").write_text("[fitmesh.models]\nmy-network = my_network:CARD\n")
    Path("my_network.py").write_text(CODE[0].replace("pose2d.register(", "CARD = (", 1))
    monkeypatch.syspath_prepend(str(folder))
    registry._installed.cache_clear()
    assert pose2d.card("my-network").input_wh == (96, 128)
    assert "my-network" in pose2d.names()
    registry._installed.cache_clear()


@pytest.mark.slow
def test_worker_processes_know_a_plugin(folder, weights):
    shared = f"--plugin {folder}/my_network.py --pose-model my-network --checkpoint my_network.pth --only people"
    call(
        f"fitmesh run --videos clip.mp4 --out many --jobs 1 {shared}",
        "--end",
        "0.1",
        "--whole-image",
    )
    with np.load(next(Path("many").glob("*/keypoints.npz"))) as arrays:
        assert str(arrays["pose_model"]) == "my-network"
