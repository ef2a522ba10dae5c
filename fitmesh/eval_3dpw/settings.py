"""Everything `fitmesh eval-3dpw` can be told, and the rows of its table."""

from dataclasses import dataclass
from pathlib import Path

from fitmesh.confidence import CALIBRATED
from fitting.init import regressors
from fitting.keypoints.weights import GATE, WEIGHTINGS, Weighting
from fitting.optimise import INITIALISERS
from fitting.solver.terms.reprojection import ROBUST_SCALE
from pose2d.base.errors import UserError
from pose2d.types import ConfidenceSource

FOR_CALIBRATED: tuple[Weighting, ...] = ("precision", "likelihood")  # these turn an expected OKS into pixels
STORED = "poses2d"  # in the place of a pose model: the keypoints that 3DPW's own files hold
FPS = 30.0  # of 3DPW's videos


@dataclass(frozen=True)
class Row:
    """One way to weight keypoints: a row of the table."""

    source: ConfidenceSource
    weighting: Weighting
    gate: float = GATE
    start_source: ConfidenceSource | None = None  # whose confidence the initialiser reads; None: one start for all rows
    robust_sigmas: float = ROBUST_SCALE  # so many sigmas away a keypoint counts half of its square
    sigma_scale: float = 1.0  # on the pixel error that a weight stands for: how hard the data pull beside the priors

    @property
    def key(self) -> str:
        """A name for files and tables."""
        threshold = f" {self.gate:g}" if self.weighting == "gate" else ""
        scale = f" x{self.sigma_scale:g}" if self.sigma_scale != 1 else ""
        robust = f" c{self.robust_sigmas:g}" if self.robust_sigmas != ROBUST_SCALE else ""
        start = f" from {self.start_source}" if self.start_source else ""
        return f"{self.source} {self.weighting}{threshold}{scale}{robust}{start}"


@dataclass(frozen=True)
class EvalSettings:
    """What to measure, and how."""

    data: Path  # 3DPW's folder, or SPIN's 3dpw_test.npz
    body_model: Path | None = None  # None: the open body, for sets made by `fitmesh synth`
    regressor: Path | None = None  # J_regressor_h36m.npy; the open body has its own
    split: str = "test"
    sequences: tuple[str, ...] = ()  # empty: all
    every: int = 1  # use every n-th frame
    init: str = "lifter"
    checkpoint: Path | None = None  # of the network that `init` names
    pose_model: str = "rtmpose-s-halpe26"
    pose_checkpoint: Path | None = None
    ccnet: Path | None = None  # a calibration head other than the embedded one
    confidence: tuple[ConfidenceSource, ...] = ("raw", "ccnet")
    weighting: tuple[Weighting, ...] = ("confidence", "likelihood")
    single_frames: bool = False  # every frame for itself, as SMPLify does
    protocol: str = "spin"
    device: str = "cpu"  # where the networks run
    predictions: Path | None = None  # bodies found elsewhere: score these and nothing else
    named_rows: tuple[tuple[str, Row], ...] = ()  # label and row; empty: every source under every weighting

    def rows(self) -> dict[str, Row]:
        """By label. Confidence that is not calibrated states no pixels: no `precision` row, if there is another."""
        if self.named_rows:
            return dict(self.named_rows)
        rows: dict[str, Row] = {}
        for source in self.confidence:
            name = "CCNet" if source == "ccnet" else source
            for weighting in self._possible(source) or ["confidence"]:
                rows[f"+ {name} {weighting}"] = Row(source, weighting)
        return rows

    def _possible(self, source: ConfidenceSource) -> list[Weighting]:
        """The weightings asked for that a source can have."""
        return [w for w in self.weighting if w not in FOR_CALIBRATED or source in CALIBRATED]

    @property
    def replaced(self) -> list[ConfidenceSource]:
        """Sources that can have none of the weightings asked for, and get a row weighted by `confidence` instead."""
        return [] if self.named_rows else [source for source in self.confidence if not self._possible(source)]

    def start_label(self, source: ConfidenceSource | None) -> str:
        return f"start ({self.init}, {source})" if source else f"start ({self.init})"

    @property
    def needs_images(self) -> bool:
        return self.predictions is None and (self.pose_model != STORED or self.init in regressors.NAMES)

    def check(self) -> None:
        """Find now what would otherwise be found after an hour's work."""
        if self.every < 1:
            raise UserError(f"--every must be 1 or more, got {self.every}.")
        for option, given in (("--confidence", self.confidence), ("--weighting", self.weighting)):
            if not given and not self.named_rows:
                raise UserError(f"{option} names nothing: give at least one.")
        names = ("none", *INITIALISERS, *regressors.NAMES)
        if self.init not in names:
            raise UserError(f"unknown initialiser {self.init!r}: choose {', '.join(names)}.")
        if self.init in regressors.NAMES and self.checkpoint is None:
            raise UserError(f"--init {self.init} needs its network's weights: --checkpoint (docs/initialisers.md).")
        if self.init not in regressors.NAMES and self.checkpoint is not None:
            raise UserError(f"--checkpoint has no effect with --init {self.init}: leave it out.")
        wrong = [w for w in self.weighting if w not in WEIGHTINGS]
        if wrong:
            raise UserError(f"unknown weighting {wrong[0]!r}: choose {', '.join(WEIGHTINGS)}.")
        if self.confidence and len(self.replaced) == len(self.confidence):
            raise UserError(
                f"--weighting {','.join(self.weighting)} needs calibrated confidence (ccnet, closed-form), which "
                f"{' and '.join(self.confidence)} is not: add --weighting confidence, or another --confidence."
            )
        if self.pose_model == STORED and any(source not in ("raw", "ones") for source in self.confidence):
            raise UserError(f"--pose-model {STORED} knows only its own confidence: pass --confidence raw.")
