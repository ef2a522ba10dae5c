"""Images are written whole, in both formats, and hold the lines they should."""

from pathlib import Path

import numpy as np
import pytest

from ccnet import plots
from ccnet.coco_ap.average_precision import evaluate_coco
from ccnet.metrics import reliability, sparsification
from ccnet.occlusion import OcclusionCurves
from pose2d.base.errors import UserError
from tests.ccnet.coco_cases import random_case


def _draw(folder: Path, suffix: str) -> dict[str, Path]:
    rng = np.random.default_rng(0)
    oks = rng.beta(4, 2, 500)
    sources = {"raw": 0.6 * oks, "ccnet": np.clip(oks + rng.normal(0, 0.1, 500), 0, 1)}
    paths = {
        name: folder / f"{name}{suffix}"
        for name in ("reliability", "pr", "density", "sparsification", "occlusion")
    }
    bins = {name: reliability(confidence, oks) for name, confidence in sources.items()}
    plots.reliability_diagram(paths["reliability"], {"keypoint": bins, "person": bins})
    found = evaluate_coco(*random_case(0))
    plots.precision_recall(paths["pr"], {"raw": found, "ccnet": found, "oracle": found})
    plots.confidence_vs_oks(
        paths["density"], {name: (confidence, oks) for name, confidence in sources.items()}
    )
    plots.sparsification_curve(
        paths["sparsification"],
        {name: sparsification(confidence, oks) for name, confidence in sources.items()},
    )
    size = np.linspace(0, 1, 5)
    confidence = 0.8 - 0.5 * size
    curves = OcclusionCurves(size, 0.9 - 0.7 * size, {"raw": confidence, "ccnet": confidence}, 12)
    plots.occlusion_curve_plot(paths["occlusion"], curves, "right_wrist")
    return paths


def test_svg_images_name_every_source_and_number(tmp_path: Path) -> None:
    text = {name: path.read_text() for name, path in _draw(tmp_path, ".svg").items()}
    assert all("raw score" in image and "CCNet" in image for image in text.values())
    assert "ECE 0." in text["reliability"]
    assert "Keypoint level" in text["reliability"]
    assert "Person level" in text["reliability"]
    assert "oracle (true OKS)" in text["pr"]
    assert "Pearson 1.00" in text["density"]
    assert "AUSE" in text["sparsification"]
    assert "random order" in text["sparsification"]
    assert "Hiding the right wrist" in text["occlusion"]
    assert "true OKS" in text["occlusion"]


def test_the_same_figures_give_the_same_svg(tmp_path: Path) -> None:
    first = _draw(tmp_path / "a", ".svg")
    second = _draw(tmp_path / "b", ".svg")
    assert all(first[name].read_bytes() == second[name].read_bytes() for name in first)


def test_png_images_are_pngs_and_nothing_else_is_left_behind(tmp_path: Path) -> None:
    paths = _draw(tmp_path, ".png")
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in paths.values())
    assert sorted(tmp_path.iterdir()) == sorted(paths.values())


def test_a_folder_that_cannot_be_written_to_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UserError, match="cannot write"):
        plots.precision_recall(tmp_path / "file" / "x.svg", {"raw": evaluate_coco(*random_case(0))})
