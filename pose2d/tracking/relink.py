"""Which tracks of other shots, or after a long absence, are the same person."""

import numpy as np

from pose2d.tracking.appearance import log_likelihood_ratio
from pose2d.types import Appearance

# Least log-likelihood ratio at which two tracks are one person, chosen by bench/identity.py.
RELINK_RATIO = 4.0
_NEVER_SAME = 1e9  # a distance so large that no mean with it is near


def relink(
    appearance: Appearance, first_s: np.ndarray, last_s: np.ndarray, least_ratio: float
) -> np.ndarray:
    """Return the number of each track's person [N], from the appearance of N tracks and the times
    at which they begin and end.

    Tracks that exist at the same time are different people. Of the others, the two groups most
    alike are joined first, by the mean ratio between their members, as long as that stays above
    `least_ratio`."""
    from scipy.cluster.hierarchy import fcluster, linkage  # a third of a second, needed only here

    if len(appearance) < 2:
        return np.arange(len(appearance))
    distance = -log_likelihood_ratio(appearance, appearance)
    is_concurrent = (first_s[:, None] <= last_s) & (first_s <= last_s[:, None])
    distance[is_concurrent] = _NEVER_SAME
    pairs = distance[np.triu_indices(len(appearance), 1)]
    # `linkage` expects distances from 0.
    tree = linkage(pairs - pairs.min(), "average")
    return fcluster(tree, -least_ratio - pairs.min(), "distance") - 1
