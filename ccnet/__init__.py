"""Calibrated confidence from penultimate features; its training, and its evaluation on COCO."""

from typing import TYPE_CHECKING

from pose2d.base.errors import lazy_names

if TYPE_CHECKING:
    from ccnet.heads.files import check_fits, embedded, load
    from ccnet.heads.head import CalibrationHead, flip_average, person_confidence

__all__ = ["CalibrationHead", "check_fits", "embedded", "flip_average", "load", "person_confidence"]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        **dict.fromkeys(("check_fits", "embedded", "load"), "ccnet.heads.files"),
        **dict.fromkeys(
            ("CalibrationHead", "flip_average", "person_confidence"), "ccnet.heads.head"
        ),
    },
)
