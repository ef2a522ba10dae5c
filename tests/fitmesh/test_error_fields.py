"""Errors tell programs what kind they are, and which file or option is wrong."""

import errno
import json
from pathlib import Path

import pytest

import fitmesh
from fitmesh import cli
from fitmesh.ui.trouble import error_facts
from pose2d.base.errors import DataError, OptionError, ResourceError, UserError
from tests.videos import write_video
from tests.walkers import write_json


@pytest.fixture
def video(tmp_path: Path) -> Path:
    return write_video(tmp_path / "clip.mp4", [0, 33, 66])


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UserError("a"), "input"),
        (OptionError("--a"), "option"),
        (DataError("a"), "data"),
        (ResourceError("a"), "resource"),
        (MemoryError(), "resource"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), "resource"),
        (OSError(errno.ENOSPC, "No space left on device"), "resource"),
        (FileNotFoundError(errno.ENOENT, "No such file", "a.txt"), "input"),
        (RecursionError(), "input"),
        (ValueError("a mistake of ours"), "internal"),
    ],
)
def test_every_error_has_a_code(error: Exception, code: str) -> None:
    facts = error_facts(error)
    assert facts["code"] == code
    assert facts["text"]
    assert set(facts) == {"text", "code", "file", "option"}


@pytest.mark.parametrize(
    ("arguments", "code", "option", "file"),
    [
        ({"end_s": -1}, "option", "end_s", None),
        ({"fov_deg": 1000}, "option", "fov_deg", None),
        ({"exports": ("xyz",)}, "option", "exports", None),
        ({"weight_kg": "0:80"}, "option", "weight_kg", None),
        ({"hands": "three"}, "option", "hands", None),
        ({"keypoints": "broken.json"}, "input", None, "broken.json"),
        ({"floor": "broken.json"}, "input", None, "broken.json"),
        ({"intrinsics": "list.json"}, "input", None, "list.json"),
        ({"checkpoint": "gone.pth"}, "input", None, "gone.pth"),
        ({"body_model": "gone.pkl"}, "input", None, "gone.pkl"),
        ({"video": "gone.mp4"}, "input", None, "gone.mp4"),
    ],
)
def test_errors_name_the_argument_or_the_file(
    arguments: dict[str, object],
    code: str,
    option: str | None,
    file: str | None,
    video: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken.json").write_text("{")
    write_json(tmp_path / "list.json", [])
    with pytest.raises(fitmesh.UserError) as refused:
        fitmesh.run(**{"video": video, "out": "out", **arguments})  # type: ignore[arg-type]
    error = refused.value
    assert (error.code, error.option) == (code, option), str(error)
    assert (None if error.file is None else Path(error.file).name) == file, str(error)
    assert "--" not in str(error) or option is None


@pytest.mark.parametrize(
    ("failure", "code"), [(KeyboardInterrupt(), "cancelled"), (ValueError("a"), "internal")]
)
def test_events_tell_what_ended_a_run(
    failure: BaseException,
    code: str,
    video: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(*_: object) -> None:
        raise failure

    monkeypatch.setattr("fitmesh.stages.pipeline.run_stages", fail)
    arguments = ["run", "--video", video, "--out", tmp_path / "out", "--json"]
    monkeypatch.setattr("sys.argv", ["fitmesh", *map(str, arguments)])
    with pytest.raises(SystemExit):
        cli.main()
    event = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert event["code"] == code
    assert event["event"] == ("stopped" if code == "cancelled" else "error")
