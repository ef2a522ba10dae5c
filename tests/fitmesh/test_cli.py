"""The command line: help, version, completion, and wrong arguments."""

import subprocess
import sys

import pytest

import fitmesh
import pose2d


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "fitmesh.cli", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        env={"PATH": "/usr/bin:/bin", "COLUMNS": "200"},
    )


def test_version_is_the_package_version():
    assert run("--version").stdout.strip() == f"fitmesh {fitmesh.__version__}"


def test_help_names_every_command():
    from fitmesh.cli import COMMANDS

    text = run("--help").stdout
    for name in COMMANDS:
        assert name in text


def test_help_does_not_wait_for_torch():
    code = "import sys; import fitmesh.cli; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


def test_models_lists_every_name_under_its_origin_and_licence():
    result = run("models")
    assert result.returncode == 0
    heading = ""
    seen = set()
    for line in result.stdout.splitlines():
        if not line.startswith("  "):
            heading = line
        elif (name := line.split()[0]) in pose2d.cards():
            card = pose2d.card(name)
            assert card.licence in heading
            assert card.source in heading
            assert heading.startswith("embedded" if card.embedded else "needs a checkpoint")
            seen.add(name)
    assert seen == set(pose2d.names())


@pytest.mark.parametrize("arguments", [("no-such-command",), ("--no-such-option",)])
def test_a_mistyped_command_exits_with_2_and_no_traceback(arguments):
    result = run(*arguments)
    assert result.returncode == 2
    assert "Traceback" not in result.stderr


def test_an_unknown_model_name_suggests_a_valid_one():
    with pytest.raises(pose2d.UserError, match="movenet-thunder"):
        pose2d.load("movenet-thonder")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("view", "nope"), "nope is not a folder of results"),
        (("run", "--video", "nope.mp4", "--out", "out"), "no video at nope.mp4"),
        (("run", "--videos", "nope/*.mp4", "--out", "out"), "no video matches"),
        (("run", "--images", "nope", "--out", "out"), "nope is not a folder"),
        (("run", "--video", "nope.mp4", "--export", "bad", "--out", "out"), "--export has bad"),
        (
            ("run", "--video", "nope.mp4", "--rig", "bad", "--out", "out"),
            "--rig must be one of smpl",
        ),
    ],
)
def test_a_wrong_path_or_name_is_refused_before_torch_is_loaded(arguments, said, tmp_path):
    """Loading it takes seconds; who mistyped is answered in half of one."""
    code = (
        "import sys, atexit; atexit.register(lambda: print('torch' in sys.modules))\n"
        "from fitmesh.cli import main; main()"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ended.returncode == 2
    assert said in ended.stderr
    assert ended.stdout.strip() == "False"
