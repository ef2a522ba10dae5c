"""The same person in another shot, or after a long absence, by appearance alone."""

import numpy as np

from pose2d.tracking.appearance import Appearances, log_likelihood_ratio

RELINK_RATIO = 4.0  # least log-likelihood ratio at which two tracks are one person; bench/identity.py


def relink(looks: Appearances, first_s: np.ndarray, last_s: np.ndarray, least_ratio: float) -> np.ndarray:
    """One number for each person, [N], from the appearances of N tracks and the times they begin and end.

    Tracks that are seen at the same time are different people. Of the others, the two groups most alike are joined
    first, by the mean ratio between their members, as long as that stays above `least_ratio`.
    """
    count = len(looks)
    person = np.arange(count)
    if count < 2:
        return person
    ratio = log_likelihood_ratio(looks, looks)
    apart = (first_s[:, None] <= last_s) & (first_s <= last_s[:, None])
    np.fill_diagonal(apart, False)
    size = np.ones(count)
    alive = np.ones(count, bool)
    np.fill_diagonal(ratio, -np.inf)
    ratio[apart] = -np.inf
    while True:
        a, b = np.unravel_index(int(ratio.argmax()), ratio.shape)
        if ratio[a, b] < least_ratio:
            break
        merged = (size[a] * ratio[a] + size[b] * ratio[b]) / (size[a] + size[b])
        merged[apart[a] | apart[b]] = -np.inf
        merged[~alive] = merged[a] = merged[b] = -np.inf
        apart[a] |= apart[b]
        apart[:, a] |= apart[:, b]
        ratio[a], ratio[:, a] = merged, merged
        ratio[b], ratio[:, b] = -np.inf, -np.inf
        size[a] += size[b]
        alive[b] = False
        person[person == b] = a
    return np.unique(person, return_inverse=True)[1]
