"""The road of `fitmesh eval-3dpw`: pictures and truth -> keypoints -> fits -> errors -> a table."""
