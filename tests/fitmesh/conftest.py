"""`fitmesh` in this process, and a small video of people whose bodies are known."""

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fitmesh import cli
from tests.videos import write_video
from tests.walkers import coco_results, walker, write_json

FRAMES = 12
SIZE = (160, 120)
BROWSER_FLAGS = (
    "--no-sandbox",
    "--use-gl=angle",
    "--use-angle=swiftshader",
    "--enable-unsafe-swiftshader",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


class Fitmesh:
    """The command in this process: exit code, and what it said."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch, self._capsys = monkeypatch, capsys
        self.out = self.said = ""

    def __call__(self, *arguments: str | Path) -> int:
        self._monkeypatch.setattr(sys, "argv", ["fitmesh", *map(str, arguments)])
        with pytest.raises(SystemExit) as left:
            cli.main()
        captured = self._capsys.readouterr()
        self.out = captured.out
        self.said = captured.out + captured.err
        return int(left.value.code or 0)

    def stages_made(self) -> list[str]:
        """In order, as the lines of the last run tell."""
        names = {"people": "people", "fit": "fit", "overlay": "overlay"}
        names |= {
            "scene.glb": "glb",
            "csv": "csv",
            "bvh": "bvh",
            "obj": "obj",
            "json": "json",
            "report": "report",
        }
        lines = [line.split() for line in self.said.splitlines()]
        return [names[w[0]] for w in lines if w and w[0] in names and "in" in w and "kept" not in w]


@pytest.fixture
def fitmesh(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Fitmesh:
    return Fitmesh(monkeypatch, capsys)


@pytest.fixture
def fitmesh_command(fitmesh: Fitmesh) -> Fitmesh:
    """The same under another name, for tests that also import the package."""
    return fitmesh


@pytest.fixture
def no_exports(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make no exports by default, for tests of other stages."""
    monkeypatch.setattr("fitmesh.stages.pipeline.ALWAYS", ())


@pytest.fixture(scope="session")
def walk(tmp_path_factory: pytest.TempPathFactory) -> tuple[str | Path, ...]:
    """Arguments of a run over two people walking, whose keypoints are given: no network has to
    look.
    """
    folder = tmp_path_factory.mktemp("walk")
    video = write_video(folder / "walk.mp4", [40 * i for i in range(FRAMES)], SIZE, sound="aac")
    people = [walker(FRAMES, SIZE), walker(FRAMES, SIZE, start_x_m=-0.9)]
    return "--video", video, "--keypoints", write_json(folder / "walk.json", coco_results(people))


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="needs the package playwright")
    found = next(
        filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
    )
    if found is None:
        pytest.skip("needs chromium or chrome on the PATH")
    with playwright.sync_playwright() as running:
        try:
            opened = running.chromium.launch(executable_path=found, args=list(BROWSER_FLAGS))
        except playwright.Error as error:
            pytest.skip(f"{found} does not start: {str(error).splitlines()[0]}")
        yield opened
        opened.close()
