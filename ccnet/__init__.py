"""Calibrated confidence from penultimate features, and its proof on COCO."""
