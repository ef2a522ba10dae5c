"""Where a fit starts: the lifter, or an image regressor (SPIN, CLIFF)."""
