"""Where a fit starts: the torso, the lifter, or an image regressor (SPIN, CLIFF)."""
