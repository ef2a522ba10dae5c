"""The occlusion test as the commands show it: an image, and its figures."""

from pathlib import Path
from typing import Any

from ccnet.data.datasets import Split
from ccnet.heads.head import Head
from ccnet.hidden_wrist import KEYPOINT, as_record, hide_wrists
from ccnet.plots import occlusion_curve_plot
from pose2d.models.base import PoseModel


def show_occlusion(model: PoseModel, head: Head | None, split: Split, folder: Path) -> dict[str, Any]:
    """Draw occlusion.png into `folder`, if the split has wrists to hide; the figures for metrics.json."""
    curves = hide_wrists(model, head, split.people)
    if curves:
        occlusion_curve_plot(folder / "occlusion.png", curves, KEYPOINT)
    return as_record(curves)
