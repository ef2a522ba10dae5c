"""Object storage: complete when the status is there, and calls that fail are repeated."""

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import fitmesh as package
from fitmesh.many import store
from pose2d.base.errors import UserError
from tests.fitmesh.many.conftest import LIGHT, RESULTS

fsspec = pytest.importorskip("fsspec", reason="needs the package fsspec")
from fsspec.implementations.memory import MemoryFileSystem  # noqa: E402


class FailingStore(MemoryFileSystem):  # type: ignore[misc]
    """A store in memory some of whose calls fail."""

    protocol = "failing"
    store: dict[str, Any] = {}  # noqa: RUF012  # as its parent has it
    pseudo_dirs = [""]  # noqa: RUF012
    share = 0.0
    calls = failures = 0
    random = random.Random(0)

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return super()._strip_protocol(path.replace("failing://", "memory://"))

    @classmethod
    def maybe_fail(cls) -> None:
        cls.calls += 1
        if cls.random.random() < cls.share:
            cls.failures += 1
            raise ConnectionResetError("the store hung up")

    def _open(self, *arguments: Any, **options: Any) -> Any:
        self.maybe_fail()
        return super()._open(*arguments, **options)

    def cat_file(self, *arguments: Any, **options: Any) -> bytes:
        self.maybe_fail()
        return super().cat_file(*arguments, **options)

    def pipe_file(self, *arguments: Any, **options: Any) -> None:
        self.maybe_fail()
        super().pipe_file(*arguments, **options)

    def info(self, *arguments: Any, **options: Any) -> dict[str, Any]:
        self.maybe_fail()
        return super().info(*arguments, **options)

    def find(self, *arguments: Any, **options: Any) -> Any:
        self.maybe_fail()
        return super().find(*arguments, **options)


@pytest.fixture
def bucket(clips: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """failing://bucket/in has the clips."""
    fsspec.register_implementation("failing", FailingStore, clobber=True)
    monkeypatch.setattr(store, "FIRST_PAUSE_S", 0.001)
    FailingStore.share = FailingStore.calls = FailingStore.failures = 0
    FailingStore.store.clear()
    files = fsspec.filesystem("failing")
    for path in clips.iterdir():
        files.pipe_file(f"/bucket/in/{path.name}", path.read_bytes())
    yield files
    FailingStore.share = 0


def run(**options: Any) -> list[package.ClipStatus]:
    return package.run_many(
        "failing://bucket/in/*.m*", "failing://bucket/out", **{**LIGHT, **options}
    )


def test_results_in_a_store_are_those_of_a_folder_though_one_call_in_five_fails(
    bucket: Any, clips: Path, tmp_path: Path
) -> None:
    FailingStore.share = 0.2
    assert [status.state for status in run()] == ["done", "done", "failed"]
    assert FailingStore.failures > 3
    FailingStore.share = 0
    package.run(clips / "a.mp4", tmp_path, **LIGHT)
    for name in RESULTS[:-1]:
        assert bucket.cat_file(f"/bucket/out/a/{name}") == (tmp_path / name).read_bytes(), name
    assert b"a/overlay.mp4" in bucket.cat_file("/bucket/out/index.html")
    assert bucket.cat_file("/bucket/out/summary.csv").count(b"\n") == 4
    assert json.loads(bucket.cat_file("/bucket/out/c/status.json"))["state"] == "failed"
    assert not bucket.exists("/bucket/out/.fitmesh_probe")


def test_what_is_complete_is_not_fetched_again_and_what_is_not_is_made_again(bucket: Any) -> None:
    run()
    FailingStore.calls = 0
    assert [status.state for status in run()] == ["kept", "kept", "failed"]
    assert FailingStore.calls < 30
    bucket.rm_file("/bucket/out/a/status.json")  # as when the upload was interrupted
    assert [status.state for status in run()][:2] == ["done", "kept"]
    changed = run(exports=("csv",))
    assert [status.made for status in changed][:2] == [
        ("csv",),
        ("csv",),
    ]  # stages that are still valid are fetched


def test_the_status_is_written_last_and_removed_first(
    bucket: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a.txt", "status.json", "z.txt"):
        (tmp_path / name).write_text(name)
    store.put_folder(tmp_path, "failing://bucket/folder")
    order: list[str] = []
    monkeypatch.setattr(
        FailingStore, "pipe_file", lambda self, path, value, **_: order.append(path.split("/")[-1])
    )
    monkeypatch.setattr(FailingStore, "rm_file", lambda self, path: order.append("removed"))
    store.put_folder(tmp_path, "failing://bucket/folder")
    assert order == ["removed", "a.txt", "z.txt", "status.json"]


def test_a_store_that_never_answers_fails_the_clip_in_words(
    bucket: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: Any, path: str, *_: Any, **__: Any) -> None:
        raise TimeoutError("no answer")

    monkeypatch.setattr(FailingStore, "get_file", broken)
    statuses = run()
    assert {status.state for status in statuses} == {"failed"}
    assert "bucket/in/a.mp4, tried 6 times: TimeoutError: no answer" in statuses[0].error


def test_scratch_is_cleared(bucket: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    run()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("nosuch://bucket/*.mp4", "nosuch://bucket/\\*.mp4 cannot be opened"),
        ("failing://bucket/none/*.mp4", "no video matches"),
        ("failing://bucket/none.txt", "cannot read failing://bucket/none.txt: there is nothing"),
    ],
)
def test_mistakes_are_named(bucket: Any, tmp_path: Path, url: str, words: str) -> None:
    with pytest.raises(UserError, match=words):
        package.run_many(url, tmp_path, **LIGHT)
