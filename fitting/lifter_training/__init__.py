"""Training of the lifter: motion capture, cameras, keypoint noise, losses. Never imported by inference."""
