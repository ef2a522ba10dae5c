"""The network that reads a crop's pixels besides its keypoints, and its training."""
