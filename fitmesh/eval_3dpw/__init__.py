"""The steps of `fitmesh eval-3dpw`: images and truth -> keypoints -> fits -> errors -> a table."""
