"""How sure is a difference in AP? Images drawn again and again with replacement, the same draw for every source."""

from collections.abc import Mapping

import numpy as np

from ccnet.coco_ap.average_precision import curves, mean_of_defined
from ccnet.coco_ap.matching import Matches
from pose2d.base.resampling import Interval, draws, interval


def bootstrap_ap(sources: Mapping[str, Matches], resamples: int = 1000, seed: int = 0) -> dict[str, np.ndarray]:
    """AP of every confidence source: first on all images, then on each resample, [1 + resamples].

    Matching never looks beyond one image, so a resample only changes how often each image counts. All sources must
    come from the same ground truth; a difference or ratio of the arrays is then paired.
    """
    images = {matches.positives.shape[1] for matches in sources.values()}
    if len(images) != 1:
        raise ValueError(f"the sources cover different numbers of images: {sorted(images)}")
    (count,) = images
    weights = draws(count, resamples, seed)
    everyone = {name: _all_sizes(matches) for name, matches in sources.items()}
    return {
        name: np.array([mean_of_defined(curves(matches, weight).precision) for weight in weights])
        for name, matches in everyone.items()
    }


def paired_difference(better: Matches, worse: Matches, resamples: int = 1000, seed: int = 0) -> Interval:
    """AP of one confidence source minus that of another, with its 95 % interval."""
    ap = bootstrap_ap({"better": better, "worse": worse}, resamples, seed)
    return interval(ap["better"] - ap["worse"])


def _all_sizes(matches: Matches) -> Matches:
    return Matches(matches.score, matches.image, np.ascontiguousarray(matches.outcome[:1]), matches.positives[:1])
