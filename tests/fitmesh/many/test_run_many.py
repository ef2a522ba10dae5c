"""Many clips: one folder each, one broken clip does not end the rest, and nothing is done twice."""

import csv
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import fitmesh as package
from fitmesh.many import batch, clip
from fitmesh.stages import settings as stage_settings
from pose2d.base.errors import UserError
from pose2d.base.folder_lock import folder_lock
from tests.fitmesh.conftest import Fitmesh
from tests.fitmesh.many.conftest import LIGHT, LIGHT_OPTIONS, RESULTS

ROOT = Path(__file__).parents[3]


def rows(out: Path) -> dict[str, dict[str, str]]:
    with (out / "summary.csv").open() as file:
        return {row["folder"]: row for row in csv.DictReader(file)}


@pytest.fixture(scope="module")
def done(clips: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run over all three clips."""
    out = tmp_path_factory.mktemp("done")
    statuses = package.run_many(str(clips / "*.m*"), out, **LIGHT)
    assert [(status.name, status.state) for status in statuses] == [
        ("a", "done"),
        ("b", "done"),
        ("c", "failed"),
    ]
    return out


def test_every_clip_has_a_folder_and_a_row(done: Path) -> None:
    for name in ("a", "b"):
        assert all(
            (done / name / file).stat().st_size for file in (*RESULTS, "report.html", "status.json")
        )
    table = rows(done)
    assert [row["state"] for row in table.values()] == ["done", "done", "failed"]
    assert table["a"]["frames"] == "3"
    assert "c.mp4" in table["c"]["error"]
    assert int(table["a"]["memory_mb"]) > 50
    assert "Traceback" not in (done / "summary.csv").read_text()


def test_the_page_shows_every_clip_and_loads_nothing_but_overlays(done: Path) -> None:
    page = (done / "index.html").read_text()
    assert 'src="a/overlay.mp4#t=1"' in page
    assert 'href="b/report.html"' in page
    assert page.index("failed") < page.index(
        'src="a/overlay.mp4#t=1"'
    )  # what went wrong comes first
    assert "script" not in page.replace("script-src", "")


def test_a_second_run_makes_nothing_and_keeps_what_it_knew(done: Path, clips: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in done.rglob("*") if path.name in RESULTS}
    first = rows(done)
    statuses = package.run_many(str(clips / "*.m*"), done, **LIGHT)
    assert [status.state for status in statuses] == ["kept", "kept", "failed"]
    assert [status.made for status in statuses] == [(), (), ()]
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert [row["seconds"] for row in rows(done).values()][:2] == [
        row["seconds"] for row in first.values()
    ][:2]


def test_a_broken_clip_is_tried_again_when_it_is_asked_for_or_has_changed(
    done: Path, clips: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = []
    opened = clip.open_clip
    monkeypatch.setattr(
        clip, "open_clip", lambda path: tried.append(Path(path).name) or opened(path)
    )
    for _ in range(2):
        *_, broken = package.run_many(str(clips / "*.m*"), done, **LIGHT)
        assert broken.error.count("(as before; not tried again without --retry-failed)") == 1
    assert "c.mp4" not in tried
    *_, broken = package.run_many(str(clips / "*.m*"), done, retry_failed=True, **LIGHT)
    assert (tried.count("c.mp4"), "as before" in broken.error) == (1, False)
    before = (clips / "c.mp4").read_bytes()
    try:
        (clips / "c.mp4").write_bytes(before + b"?")
        package.run_many(str(clips / "*.m*"), done, **LIGHT)
    finally:
        (clips / "c.mp4").write_bytes(before)
    assert tried.count("c.mp4") == 2


def test_the_results_are_those_of_a_run_alone(done: Path, clips: Path, tmp_path: Path) -> None:
    package.run(clips / "a.mp4", tmp_path, **LIGHT)
    for name in RESULTS:
        assert (tmp_path / name).read_bytes() == (done / "a" / name).read_bytes(), name


def test_networks_are_loaded_once(
    clips: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = []
    load = stage_settings.load_pose_model
    monkeypatch.setattr(
        stage_settings,
        "load_pose_model",
        lambda name, checkpoint: loaded.append(name) or load(name, checkpoint),
    )
    clip._loader.cache_clear()
    package.run_many([clips / "a.mp4", clips / "b.mov"], tmp_path, **LIGHT)
    assert loaded == ["movenet-lightning"]


def test_shards_share_the_clips_and_the_last_one_sees_all(clips: Path, tmp_path: Path) -> None:
    first = package.run_many(str(clips / "*.m*"), tmp_path, shard="1/2", **LIGHT)
    assert [status.name for status in first] == ["a", "c"]
    assert [row["state"] for row in rows(tmp_path).values()] == ["done", "waiting", "failed"]
    second = package.run_many(str(clips / "*.m*"), tmp_path, shard="2/2", **LIGHT)
    assert [status.name for status in second] == ["b"]
    assert [row["state"] for row in rows(tmp_path).values()] == ["done", "done", "failed"]


def test_a_clip_that_another_run_holds_is_done_last(
    clips: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = folder_lock(tmp_path / "a")
    held.__enter__()
    monkeypatch.setattr(batch.time, "sleep", lambda seconds: held.__exit__(None, None, None))
    ended = []
    package.run_many(
        [clips / "a.mp4", clips / "b.mov"],
        tmp_path,
        progress=lambda s: ended.append(s.name),
        **LIGHT,
    )
    assert ended == ["b", "a"]


def test_a_full_disk_fails_one_clip_in_words(
    clips: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_stages = clip.run_stages

    def full(job):  # type: ignore[no-untyped-def]
        if job.out.name == "a":
            (tmp_path / "a").mkdir()
            raise OSError(28, "No space left on device", str(job.out / "fit.npz"))
        return run_stages(job)

    monkeypatch.setattr(clip, "run_stages", full)
    failed, done = package.run_many([clips / "a.mp4", clips / "b.mov"], tmp_path, **LIGHT)
    assert (failed.state, done.state) == ("failed", "done")
    assert failed.error == f"{tmp_path / 'a' / 'fit.npz'}: No space left on device."


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"weighting": "heavy"}, "unknown weighting"),
        ({"keypoints": "k.json", "whole_image": False}, "keypoints belongs to one clip"),
        ({"detections": "boxes.json", "whole_image": False}, "detections belongs to one clip"),
        ({"height_m": {2: 1.2}}, "height_m of single people"),
        ({"shard": "4/3"}, "shard must read like 3/20"),
        ({"jobs": 0}, "jobs must be .*got 0"),
    ],
)
def test_mistakes_are_found_before_any_clip_is_begun(
    clips: Path, tmp_path: Path, options: dict[str, object], words: str
) -> None:
    with pytest.raises(UserError, match=words):
        package.run_many(
            [clips / "a.mp4", clips / "b.mov"], tmp_path / "out", **{**LIGHT, **options}
        )
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--videos", "CLIPS/*.avi"), "no video matches --videos"),
        (("--video", "CLIPS/a.mp4", "--jobs", "2"), "--jobs is for many videos"),
        (("--video", "CLIPS/a.mp4", "--shard", "1/2"), "--shard is for many videos"),
        (("--videos", "CLIPS/*.mp4", "--image", "x.png"), "--image is for one clip"),
        (("--videos", "CLIPS/*.mp4", "--fps", "3"), "--fps is for one clip"),
        (
            ("--videos", "CLIPS/*.mp4", "--jobs", "2", "--ray", "auto"),
            "--jobs and --ray",
        ),
        (("--image", "x.png", "--out", "memory://x"), "--image is for one clip"),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    fitmesh: Fitmesh, clips: Path, tmp_path: Path, arguments: tuple[str, ...], words: str
) -> None:
    given = [word.replace("CLIPS", str(clips)) for word in arguments]
    assert fitmesh("run", "--out", tmp_path / "out", *given) == 2
    assert words in fitmesh.said
    assert not (tmp_path / "out").exists()


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "fitmesh", "run", *map(str, arguments), *LIGHT_OPTIONS, "--json"]


@pytest.mark.slow
def test_killed_workers_and_drivers_cost_one_clip_each(clips: Path, tmp_path: Path) -> None:
    """A worker is killed in the first run, the driver in the second; the third finds what is left."""
    everything = command("--videos", clips / "[ab].m*", "--out", tmp_path, "--jobs", 2)
    first = subprocess.Popen(everything, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    killed = False
    states = {}
    assert first.stdout is not None
    for line in first.stdout:
        news = json.loads(line)
        if news["event"] == "stage" and not killed:
            workers = subprocess.run(
                ["pgrep", "-P", str(first.pid)], capture_output=True, text=True
            ).stdout.split()
            holder = int((tmp_path / news["name"] / ".fitmesh.lock").read_text().split()[1])
            assert str(holder) in workers
            os.kill(holder, signal.SIGKILL)
            killed = True
        if news["event"] == "ended":
            states[news["name"]] = news["state"]
    assert first.wait() == 0
    assert states == {"a": "done", "b": "done"}
    again = subprocess.run(everything, cwd=ROOT, capture_output=True, text=True, timeout=300)
    ended = [
        news for news in map(json.loads, again.stdout.splitlines()) if news["event"] == "ended"
    ]
    assert [news["state"] for news in ended] == ["kept", "kept"]
    package.run(clips / "a.mp4", tmp_path / "alone", **LIGHT)
    for name in RESULTS:
        assert (tmp_path / "alone" / name).read_bytes() == (tmp_path / "a" / name).read_bytes(), (
            name
        )


@pytest.mark.slow
def test_the_exit_code_says_that_a_clip_failed(clips: Path, tmp_path: Path) -> None:
    ended = subprocess.run(
        [
            word
            for word in command("--videos", clips / "*.m*", "--out", tmp_path)
            if word != "--json"
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ended.returncode == 3
    assert "2 of 3 clips done, 1 failed" in ended.stderr
    assert "Traceback" not in ended.stderr
