"""Captured motion on the body's 24 joints: read by `fitmesh synth`, benches and training."""
