"""Calibrated confidence from penultimate features; its training, and its evaluation on COCO."""

from typing import TYPE_CHECKING

from pose2d.base.lazy import lazy_names

if TYPE_CHECKING:
    from ccnet.heads.files import check_fits, load
    from ccnet.heads.head import Head, flip_average
    from ccnet.losses import person_confidence

__all__ = ["Head", "check_fits", "flip_average", "load", "person_confidence"]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        **dict.fromkeys(("check_fits", "load"), "ccnet.heads.files"),
        **dict.fromkeys(("Head", "flip_average"), "ccnet.heads.head"),
        "person_confidence": "ccnet.losses",
    },
)
