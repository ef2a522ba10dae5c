"""The weightings that are compared, and the ways to fit that they are compared in."""

from dataclasses import dataclass, replace

from fitmesh.eval_3dpw.eval_settings import Row
from fitting.solver.terms.reprojection import ROBUST_SCALE

RAW = "raw"
CCNET = "CCNet"
CCNET_PRECISION = "CCNet precision"
CCNET_LIKELIHOOD = "CCNet likelihood"
ROWS = {
    "ones": Row("ones", "ones"),
    RAW: Row("raw", "confidence"),
    "raw squared": Row("raw", "squared"),
    "raw, gate 0.3": Row("raw", "gate", 0.3),
    "raw, gate 0.5": Row("raw", "gate", 0.5),
    "raw, gate 0.7": Row("raw", "gate", 0.7),
    "closed form": Row("closed-form", "confidence"),
    "closed form precision": Row("closed-form", "precision"),
    CCNET: Row("ccnet", "confidence"),
    "CCNet squared": Row("ccnet", "squared"),
    CCNET_PRECISION: Row("ccnet", "precision"),
    CCNET_LIKELIHOOD: Row("ccnet", "likelihood"),
    "oracle": Row("oracle", "confidence"),
    "oracle precision": Row("oracle", "precision"),
}


@dataclass(frozen=True)
class Mode:
    """A way to fit."""

    single_frames: bool
    robust_sigmas: float = ROBUST_SCALE
    rows: tuple[str, ...] = tuple(ROWS)
    own_start: bool = (
        False  # the lifter is fed with the row's own confidence, not with CCNet's for all
    )

    def row(self, name: str, sigma_scale: float) -> Row:
        row = replace(ROWS[name], robust_sigmas=self.robust_sigmas, sigma_scale=sigma_scale)
        return replace(row, start_source=row.source) if self.own_start else row


SINGLE, TIME = "single frames", "with time"
HARDLY_ROBUST = "single frames, hardly robust"
OWN_SINGLE, OWN_TIME = (
    "single frames, each from its own start",
    "with time, each from its own start",
)
_OWN_ROWS = ("ones", RAW, "raw squared", CCNET, "CCNet squared", CCNET_PRECISION, CCNET_LIKELIHOOD)
MODES = {
    SINGLE: Mode(single_frames=True),
    TIME: Mode(single_frames=False),
    # SMPLify and SPIN halve a keypoint at 100 pixels of a 224-pixel crop, about 30 of the reference
    # sigmas.
    HARDLY_ROBUST: Mode(
        True,
        30.0,
        (RAW, "raw squared", CCNET, "CCNet squared", CCNET_PRECISION, "oracle precision"),
    ),
    OWN_SINGLE: Mode(single_frames=True, rows=_OWN_ROWS, own_start=True),
    OWN_TIME: Mode(single_frames=False, rows=_OWN_ROWS, own_start=True),
}
SCALES_OF = {OWN_SINGLE: SINGLE, OWN_TIME: TIME}  # whose scales a mode uses, if not its own
