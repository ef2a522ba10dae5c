"""Which clips are done, under which names, by which shard."""

from pathlib import Path

import pytest

from fitmesh.many.sources import find_clips, folder_names, share_of
from pose2d.base.errors import UserError


@pytest.fixture
def clips(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("a/walk.mp4", "b/walk.mp4", "b/run.mov", "b/run.mp4", "jump.mp4", "notes.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def found(*videos: str, video: tuple[str, ...] = (), out: str = "out") -> dict[str, str]:
    return {clip.name: clip.source for clip in find_clips(video, videos, out).clips}


def test_a_folder_has_the_name_of_its_clip(clips: Path) -> None:
    assert found(video=("jump.mp4", "b/run.mov")) == {"jump": "jump.mp4", "run": "b/run.mov"}


def test_clips_of_one_name_get_the_names_of_their_folders_and_those_of_one_folder_their_suffix(
    clips: Path,
) -> None:
    assert found("**/*.m[op]?") == {
        "a-walk": "a/walk.mp4",
        "b-walk": "b/walk.mp4",
        "jump": "jump.mp4",
        "run-mov": "b/run.mov",
        "run-mp4": "b/run.mp4",
    }


def test_names_depend_on_the_clips_and_not_on_their_order() -> None:
    sources = [
        "/x/a/c.mp4",
        "/x/b/c.mp4",
        "/y/b/c.mp4",
        "/x/d.mp4",
        "/x/D.mp4",
        "/x/index.html.mp4",
    ]
    forward = dict(zip(sources, folder_names(sources), strict=True))
    backward = dict(zip(sources[::-1], folder_names(sources[::-1]), strict=True))
    assert forward == backward
    assert len({name.casefold() for name in forward.values()}) == len(sources)
    assert forward["/x/a/c.mp4"] == "a-c"
    assert forward["/x/b/c.mp4"] == "x-b-c"


def test_a_clip_that_is_given_twice_is_done_once(clips: Path) -> None:
    result = find_clips(["jump.mp4"], ["*.mp4", str(clips / "jump.mp4")], "out")
    assert [clip.source for clip in result.clips] == ["jump.mp4"]
    assert result.twice == ["jump.mp4", str(clips / "jump.mp4")]


def test_a_list_has_one_path_a_line(clips: Path) -> None:
    (clips / "list.txt").write_text("# mine\njump.mp4\n\n  a/walk.mp4  \ngone.mp4\n")
    assert list(found("list.txt").values()) == ["jump.mp4", "a/walk.mp4", "gone.mp4"]


def test_results_of_an_earlier_run_are_no_clips(clips: Path) -> None:
    (clips / "out" / "jump").mkdir(parents=True)
    (clips / "out" / "jump" / "overlay.mp4").write_bytes(b"")
    result = find_clips([], ["**/*.mp4"], "out")
    assert result.left_out == 1
    assert "out/jump/overlay.mp4" not in [clip.source for clip in result.clips]
    with pytest.raises(UserError, match="results of an earlier run"):
        find_clips([], ["out/**/*.mp4"], "out")


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("*.webm", "no video matches --videos '\\*.webm' in "),
        ("a", "a is a folder: .*--videos, 'a/\\*.mp4'"),
        ("absent.txt", "cannot read the list of videos absent.txt: No such file"),
        ("empty.txt", "the list of videos empty.txt is empty"),
        ("binary.txt", "binary.txt is not a list of videos"),
    ],
)
def test_a_mistake_is_named(clips: Path, pattern: str, words: str) -> None:
    (clips / "empty.txt").write_text("# nothing\n\n")
    (clips / "binary.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match=words):
        find_clips([], [pattern], "out")


def test_shards_together_are_everything_and_share_nothing() -> None:
    parts = [share_of(range(60), f"{k}/7") for k in range(1, 8)]
    assert sorted(n for part in parts for n in part) == list(range(60))
    assert parts[2][:2] == [2, 9]
    assert share_of(range(3), "9/20") == []
    assert share_of(range(3), None) == [0, 1, 2]


@pytest.mark.parametrize("text", ["0/4", "5/4", "1/0", "3", "a/b", "-1/4", "1/2/3", ""])
def test_a_shard_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(UserError, match="--shard must read like 3/20"):
        share_of([], text)
