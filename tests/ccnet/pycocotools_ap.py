"""The ten keypoint numbers by pycocotools from parsed JSON, without any of our reading of it."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ccnet.coco_ap.average_precision import coco_index, run_pycocotools
from pose2d.skeletons import COCO17


def pycocotools_ap_of_coco(
    dataset: Mapping[str, Any],
    results: Sequence[Mapping[str, Any]],
    sigmas: Sequence[float] | np.ndarray = COCO17.oks_sigma,
) -> np.ndarray:
    """[10]. The JSON is copied first, since pycocotools writes into what it is given."""

    def index() -> tuple[Any, Any]:
        truth = coco_index({**dataset, "annotations": [dict(a) for a in dataset["annotations"]]})
        # loadRes looks at the first result, so it cannot load none
        found = (
            truth.loadRes([dict(r) for r in results])
            if results
            else coco_index({**dataset, "annotations": []})
        )
        return truth, found

    return run_pycocotools(index, sigmas).stats
