"""`fitmesh models get`: what is shown, asked and refused."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import pose2d
from pose2d import hub
from tests.fitmesh.conftest import Fitmesh
from tests.pose2d.hub_server import FakeHub, serving


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    pytest.importorskip("huggingface_hub")
    monkeypatch.setenv("FITMESH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(
        pose2d, "load", lambda name, path: None, raising=False
    )  # weights as small as this fit nothing
    with serving(FakeHub(b"weights" * 1000)) as fake:
        monkeypatch.setenv("HF_ENDPOINT", fake.address)
        yield fake


def test_facts_come_before_the_question_and_no_means_no(
    fitmesh: Fitmesh, served: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("typer.confirm", lambda question, default: False)
    assert fitmesh("models", "get", "vitpose-b") == 1
    assert "apache-2.0" in fitmesh.out
    assert hub.look_up("vitpose-b").sha256 in fitmesh.out
    assert hub.cached("vitpose-b") is None


def test_a_fetched_file_comes_with_the_command_to_use_it_and_is_fetched_once(
    fitmesh: Fitmesh, served: FakeHub
) -> None:
    assert fitmesh("models", "get", "vitpose-b", "--yes") == 0
    kept = hub.cached("vitpose-b")
    assert kept is not None
    assert "fitmesh run --video clip.mp4 --out out/ --pose-model vitpose-b\n" in fitmesh.out
    assert str(kept[0]) in fitmesh.out
    served.asked.clear()
    assert fitmesh("models", "get", "vitpose-b") == 0
    assert served.asked == []


@pytest.mark.parametrize(
    "name", ["sbl-resnet50-256x192", "hrnet-w32-256x192", "spin", "cliff-hr48", "vitpose-b-mpii"]
)
def test_what_is_only_on_drives_says_where_and_what_to_click(fitmesh: Fitmesh, name: str) -> None:
    assert fitmesh("models", "get", name) == 2
    assert "github.com/" in fitmesh.said
    assert "checkpoint" in fitmesh.said


def test_an_embedded_model_needs_no_fetching(fitmesh: Fitmesh) -> None:
    assert fitmesh("models", "get", "movenet-thunder") == 0
    assert "ships with the package" in fitmesh.out
