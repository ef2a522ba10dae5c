"""How a run can be told things, and how it tells: configuration, JSON log, lens, devices."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

import fitmesh as package
from tests.fitmesh.conftest import Fitmesh


def test_a_configuration_gives_options_and_the_command_line_wins(
    fitmesh: Fitmesh, walk: tuple[str | Path, ...], tmp_path: Path, no_exports: None
) -> None:
    config = tmp_path / "run.toml"
    config.write_text(
        f'video = "{walk[1]}"\nkeypoints = "{walk[3]}"\nout = "{tmp_path / "out"}"\n'
        'init = "lifter"\nmax-people = 1\nfocal = 300\nweighting = "squared"\nexport = ["csv"]\n'
    )
    assert fitmesh("run", "--config", config, "--focal", "250") == 0, fitmesh.said
    result = package.load(tmp_path / "out")
    assert len(result.people) == 1
    assert result.camera.focal_px == (250, 250)
    assert result.weighting == "squared"
    assert (tmp_path / "out" / "motion.csv").is_file()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("max_poeple = 1", "unknown option 'max_poeple': did you mean max-people?"),
        ("video = ", "is not TOML"),
        ("[fit]\nfocal = 3", "unknown option 'fit'"),
        ("[focal]\npx = 3", "has a table [focal]"),
    ],
)
def test_a_mistake_in_the_configuration_is_named(
    fitmesh: Fitmesh, tmp_path: Path, text: str, words: str
) -> None:
    (tmp_path / "run.toml").write_text(text)
    assert fitmesh("run", "--config", tmp_path / "run.toml", "--out", tmp_path / "out") == 2
    assert words in fitmesh.said
    assert "Traceback" not in fitmesh.said
    assert not (tmp_path / "out").exists()


def test_the_json_log_is_one_object_a_line(
    fitmesh: Fitmesh, walk: tuple[str | Path, ...], tmp_path: Path, no_exports: None
) -> None:
    assert fitmesh("run", *walk, "--out", tmp_path, "--json") == 0
    news = [json.loads(line) for line in fitmesh.said.splitlines()]
    done = [entry["stage"] for entry in news if entry.get("state") == "done"]
    assert done == ["people", "fit", "overlay"]
    assert [entry["identity"] for entry in news if entry["event"] == "person"] == [1, 2]
    assert news[-1]["event"] == "result"
    assert str(tmp_path / "fit.npz") in news[-1]["files"]
    fitmesh("run", *walk, "--out", tmp_path, "--json")
    assert [
        e["stage"] for e in map(json.loads, fitmesh.out.splitlines()) if e.get("state") == "kept"
    ] == done


def test_an_error_is_in_the_json_log_too(fitmesh: Fitmesh, tmp_path: Path) -> None:
    assert fitmesh("run", "--video", "nowhere.mp4", "--out", tmp_path, "--json") == 2
    assert [json.loads(line)["event"] for line in fitmesh.out.splitlines()] == ["error"]


def test_quiet_says_nothing(
    fitmesh: Fitmesh, walk: tuple[str | Path, ...], tmp_path: Path, no_exports: None
) -> None:
    assert fitmesh("run", *walk, "--out", tmp_path, "--quiet") == 0
    assert fitmesh.said == ""


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--focal", "500", "--fov", "50"), "say the same thing in two ways"),
        (("--fov", "190"), "between 0.1 and 175; got 190"),
        (("--focal", "-1"), "between 1 and 1000000; got -1"),
        (("--body-model", "nowhere.pkl"), "no body file or folder nowhere.pkl"),
        (("--weighting", "heavy"), "unknown --weighting 'heavy'"),
        (("--init", "magic"), "unknown --init 'magic'"),
        (("--init", "cliff"), "pass --init-checkpoint"),
        (("--init", "spin", "--init-checkpoint", "nowhere.pt"), "nowhere.pt"),
        (("--init-checkpoint", "nowhere.pt"), "has no effect with --init lifter"),
        (("--export", "dae"), "--export has dae"),
        (("--device", "cuda:99"), "--device cuda:99 cannot be used"),
        (("--device", "toaster"), "unknown --device toaster: choose cpu"),
        (("--device", "mps"), "--device mps cannot be used: torch"),
        (("--only", "scene"), "unknown --only scene: choose people or fit"),
        (("--only", "people", "--export", "bvh"), "stops before there is anything to --export"),
        (
            ("--relink", "true"),
            "'true' is not an input",
        ),
        (("--quiet", "--json"), "--quiet and --json"),
        (("--ccnet", "head.safetensors"), "--ccnet has no effect with --keypoints"),
    ],
)
def test_a_mistake_is_found_before_the_work_begins(
    fitmesh: Fitmesh,
    walk: tuple[str | Path, ...],
    tmp_path: Path,
    arguments: tuple[str, ...],
    words: str,
) -> None:
    given = walk[:4] if "--init" in arguments else walk
    assert fitmesh("run", *given, "--out", tmp_path / "out", *arguments) == 2
    assert words in fitmesh.said
    assert "Traceback" not in fitmesh.said
    assert not (tmp_path / "out").exists()


def test_a_checkpoint_of_another_network_is_told_before_any_stage(
    fitmesh: Fitmesh, walk: tuple[str | Path, ...], tmp_path: Path
) -> None:
    save_file({"conv1.weight": torch.zeros(2, 3)}, tmp_path / "wrong.safetensors")
    options = (
        "--pose-model",
        "sbl-resnet50-256x192",
        "--checkpoint",
        tmp_path / "wrong.safetensors",
    )
    assert fitmesh("run", "--video", walk[1], *options, "--out", tmp_path / "out") == 2
    assert "wrong.safetensors does not fit sbl-resnet50-256x192" in fitmesh.said
    assert (
        fitmesh(
            "run",
            "--video",
            walk[1],
            "--ccnet",
            tmp_path / "wrong.safetensors",
            "--out",
            tmp_path / "out",
        )
        == 2
    )
    assert "is not a calibration head" in fitmesh.said
    assert (
        fitmesh("run", "--video", walk[1], "--confidence", "raw-heatmap", "--out", tmp_path / "out")
        == 2
    )
    assert "rtmpose-s-halpe26 has one score" in fitmesh.said
    assert not (tmp_path / "out").exists()
