"""Fit the stated error and presence of hand keypoints."""
