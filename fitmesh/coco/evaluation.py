"""What `eval-coco` and `train-ccnet` say of one split: the figures, the plots, the occlusion test, `metrics.json`."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ccnet.comparison import ComparisonTable, draw_occlusion
from ccnet.data.datasets import Split
from ccnet.heads.files import about_of
from ccnet.heads.head import CalibrationHead
from ccnet.occlusion import SIZES, occlude_wrists, people_to_occlude
from fitmesh.ui.events import Reporter
from fitmesh.version import __version__
from pose2d.base.caching import weights_digest
from pose2d.base.files import atomic_file, plain_value
from pose2d.models.base import PoseModel

METRICS_FILE = "metrics.json"


@dataclass(frozen=True)
class Evaluation:
    """One model on one split."""

    split: str
    people: int
    table: ComparisonTable  # the figures of every confidence source
    about: Mapping[str, Any]  # what was measured: model, weights, head, versions (`describe`), boxes, flip test
    head_sizes: str = ""  # MPII: where the head sizes of PCKh come from
    occlusion: Mapping[str, Any] = field(default_factory=dict)  # empty: not asked for, or nobody's wrist is in view

    def as_dict(self) -> dict[str, Any]:
        """The content of metrics.json."""
        found = {"split": self.split, "people": self.people, **self.table.as_dict()}
        more = {"head_sizes": self.head_sizes, "occlusion": dict(self.occlusion)}
        return {**self.about, **found, **{name: value for name, value in more.items() if value}}


def describe(name: str, checkpoint: Path | None, model: PoseModel, head: CalibrationHead | None) -> dict[str, Any]:
    """What a figure rests on. Digests are of the weights as loaded, whatever file they came from."""
    about = about_of(head) if head is not None else None
    training = about.training if about else {}
    return {
        "model": name,
        "checkpoint": None if checkpoint is None else str(checkpoint),
        "checkpoint_digest": weights_digest(model.state_dict()),
        "head": about and about.kind,
        "head_digest": head and weights_digest(head.state_dict()),
        "loss": training.get("loss"),
        "seed": training.get("seed"),
        "target": training.get("target", "oks") if about else None,
        "versions": {"fitmesh": __version__, "torch": torch.__version__, "numpy": np.__version__},
    }


def with_occlusion_test(
    found: Evaluation,
    split: Split,
    model: PoseModel,
    head: CalibrationHead | None,
    folder: Path,  # for the plot
    reporter: Reporter,
) -> Evaluation:
    """The evaluation with the occlusion test, which runs the network for every patch size again."""
    chosen = people_to_occlude(model, split.people)
    with reporter.stage("occlusion test", len(chosen) * len(SIZES), "crops") as step:
        curves = occlude_wrists(model, head, chosen, step)
    return replace(found, occlusion=draw_occlusion(folder, curves))


def write_metrics(folder: Path, content: Mapping[str, Any]) -> None:
    with atomic_file(folder / METRICS_FILE) as path:
        path.write_text(json.dumps(plain_value(content), indent=1) + "\n")
