"""Calibrated confidence from penultimate features, and its proof on COCO."""

from ccnet.heads.files import check_fits, load
from ccnet.heads.head import Head, flip_average
from ccnet.losses import person_confidence

__all__ = ["Head", "check_fits", "flip_average", "load", "person_confidence"]
