"""2D keypoints before the fit: which are usable, how much each weighs, left-right swaps, gaps."""
