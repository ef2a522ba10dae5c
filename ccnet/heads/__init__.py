"""Calibration heads: frozen features -> expected OKS and presence of every keypoint."""
