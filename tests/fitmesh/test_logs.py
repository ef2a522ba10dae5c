"""Library code logs and never prints; commands show it."""

import ast
import logging
from pathlib import Path

import pytest

import fitmesh as package
from tests.fitmesh.conftest import Fitmesh
from tests.imports import ROOT

LIBRARIES = ("pose2d", "ccnet", "fitting", "eval3dpw")


@pytest.fixture(autouse=True)
def _loggers_as_before() -> None:
    before = [
        (log := logging.getLogger(name), log.level, log.propagate)
        for name in ("fitmesh", *LIBRARIES)
    ]
    yield
    for log, level, propagate in before:
        log.setLevel(level)
        log.propagate = propagate
        log.handlers.clear()


def test_library_code_does_not_print() -> None:
    printing = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for library in LIBRARIES
        for path in sorted((ROOT / library).rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "print"
    ]
    assert printing == []


def test_the_python_function_logs_its_stages_and_prints_nothing(
    walk: tuple,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    options = dict(zip(walk[::2], walk[1::2], strict=True))
    with caplog.at_level(logging.INFO, "fitmesh"):
        package.run(options["--video"], tmp_path, keypoints=options["--keypoints"])
    said = [record.getMessage().split()[0] for record in caplog.records if record.name == "fitmesh"]
    assert [word for word in said if word in ("people", "fit", "overlay")] == [
        "people",
        "fit",
        "overlay",
    ]
    assert capsys.readouterr() == ("", "")


def test_a_command_shows_a_warning_once_and_more_if_asked(fitmesh: Fitmesh) -> None:
    assert fitmesh("--log-level", "debug", "models") == 0
    logging.getLogger("pose2d.models.loading").debug("loaded")
    assert fitmesh("models") == 0
    logging.getLogger("pose2d.models.loading").debug("not shown")
    logging.getLogger("fitting.track").warning("this is strange")
    said = fitmesh._capsys.readouterr().err
    assert said == "Warning: this is strange\n"


def test_an_unknown_level_is_refused(fitmesh: Fitmesh) -> None:
    assert fitmesh("--log-level", "loud", "models") == 2
    assert "debug, info, warning, error" in fitmesh.said
