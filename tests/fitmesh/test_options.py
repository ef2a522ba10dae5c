"""Options have limits, all of them; signals and errors end in words."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
import typer

import fitmesh as package
from fitmesh.options.record import check_ranges, command, function, option
from fitmesh.ui import trouble
from pose2d.base.errors import Range, UserError
from tests.fitmesh.conftest import Fitmesh

ROOT = Path(__file__).parents[2]


def test_a_number_without_limits_is_a_mistake_in_the_command() -> None:
    @dataclass(frozen=True)
    class Options:
        count: int = option(1)

    with pytest.raises(TypeError, match="count is a number without a Range"):
        command(Options)(print)


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), -float("inf"), -1.0, 11.0, 10**400, True, 2.5]
)
def test_a_range_holds_finite_numbers_only(value: float) -> None:
    limits = Range(0, 10, multiple=2)
    assert limits.problem(value)
    assert not limits.problem(4)
    with pytest.raises(UserError, match="--size"):
        limits.check("--size", value)


@pytest.mark.parametrize(
    "options",
    [
        {"start_s": float("nan")},
        {"end_s": float("inf")},
        {"every": 0},
        {"detector_size": 31},
        {"min_score": float("nan")},
        {"focal_px": float("inf")},
        {"threads": 10**9},
        {"max_people": -1},
        {"fov_deg": 0.0},
    ],
)
def test_the_function_has_the_limits_of_the_command(
    tmp_path: Path, options: dict[str, float]
) -> None:
    with pytest.raises(UserError):
        package.run(tmp_path / "missing.mp4", tmp_path / "out", **options)  # type: ignore[arg-type]
    assert not (tmp_path / "out").exists()


def test_config_values_are_checked_like_options(fitmesh: Fitmesh, tmp_path: Path) -> None:
    for text in (
        'every = "x"',
        "every = true",
        "fps = nan",
        "video = 3",
        'out = ""',
        "threads = 1.5",
    ):
        (tmp_path / "c.toml").write_text(text)
        assert fitmesh("run", "--config", tmp_path / "c.toml", "--out", tmp_path / "o") == 2, (
            text,
            fitmesh.said,
        )
        assert "Traceback" not in fitmesh.said


def test_an_unforeseen_error_is_two_lines_and_a_log_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(trouble.tempfile, "gettempdir", lambda: str(tmp_path))
    with pytest.raises(KeyError) as raised:
        {}["absent"]
    assert trouble.exit_code_of(raised.value) == 1
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert "KeyError" in lines[0]
    (log,) = tmp_path.glob("fitmesh-*.log")
    assert str(log) in lines[1]
    assert "Traceback" in log.read_text()


def test_too_little_memory_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert trouble.exit_code_of(MemoryError()) == 1
    assert (
        trouble.exit_code_of(RuntimeError("DefaultCPUAllocator: can't allocate memory: 8 TB")) == 1
    )
    assert capsys.readouterr().err.count("not enough memory") == 2


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_a_signal_during_the_imports_ends_in_words(number: int, code: int, tmp_path: Path) -> None:
    """As soon as the program itself runs; what Python does before that is not ours."""
    script = (
        "import os, signal\n"
        # whoever starts the tests may ignore it
        f"signal.signal({int(number)}, signal.default_int_handler)\n"
        "import sys; from fitmesh.ui.trouble import install; install(); print('up', flush=True); import time\n"
        "from fitmesh import cli; import torch; time.sleep(30)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    time.sleep(0.1)
    process.send_signal(number)
    _, said = process.communicate(timeout=30)
    assert (process.returncode, said) == (
        code,
        "Stopped. What is finished is kept; the same command goes on from there.\n",
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_a_signal_during_a_run_leaves_no_temporary_file(
    number: int, code: int, walk: tuple[str | Path, ...], tmp_path: Path
) -> None:
    reset = f"import signal; signal.signal({int(number)}, signal.default_int_handler); "
    command = [
        sys.executable,
        "-c",
        reset + "from fitmesh.cli import main; main()",
        "run",
        *map(str, walk),
    ]
    process = subprocess.Popen(
        [*command, "--out", str(tmp_path / "out"), "--json"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert process.stdout is not None
    for line in process.stdout:
        if '"stage": "overlay"' in line:
            break
    process.send_signal(number)
    out, said = process.communicate(timeout=60)
    assert process.returncode == code, said
    assert "stopped" in out.lower()
    assert "Traceback" not in said
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert not {name for name in names if name.startswith(".") and name != ".cache_keys"}


def test_a_flag_is_shown_as_a_flag_and_takes_no_value(
    fitmesh: Fitmesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert fitmesh("run", "--help") == 0
    (line,) = [line for line in fitmesh.out.splitlines() if "--relink" in line]
    assert "bool" not in line


def test_one_record_makes_the_command_line_and_the_function() -> None:
    """Names, defaults, limits and several values, by either way into the same record."""

    @dataclass(frozen=True)
    class Options:
        data: Path = option(..., "Where.")
        rate_hz: float = option(2.0, "How often.", limits=Range(0, 10), name="rate")
        names: tuple[str, ...] = option(("a", "b"), commas=True)
        parts: tuple[str, ...] = option(())
        plain: bool = option(True)

    heard: list[Options] = []

    def work(asked: Options) -> int:
        heard.append(asked)
        return len(heard)

    app = typer.Typer()
    app.command()(command(Options)(work))  # type: ignore[arg-type]
    app(["--data", "x"], standalone_mode=False)
    app(
        [
            "--data",
            "x",
            "--rate",
            "3",
            "--names",
            "c, d",
            "--parts",
            "p",
            "--parts",
            "q",
            "--no-plain",
        ],
        standalone_mode=False,
    )
    assert heard == [Options(Path("x")), Options(Path("x"), 3.0, ("c", "d"), ("p", "q"), False)]
    assert function(Options)(work)(Path("x"), rate_hz=5.0) == 3
    with pytest.raises(UserError, match=r"--rate .*between 0 and 10; got 11"):
        check_ranges(Options(Path("x"), rate_hz=11.0))
    with pytest.raises(TypeError, match=r"work\(\) got an unexpected keyword argument 'rate'"):
        function(Options)(work)(Path("x"), rate=5.0)  # type: ignore[call-arg]
    assert "rate_hz: How often." in (function(Options)(work).__doc__ or "")
