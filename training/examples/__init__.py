"""Examples that the lifter learns from: simulated keypoints and rendered crops."""
