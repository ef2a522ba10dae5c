"""Everything `fitmesh eval-3dpw` can be told, and the rows of its table."""

from dataclasses import dataclass

from fitmesh.options.measure import Eval3dpwOptions
from fitmesh.options.record import check_ranges
from fitting.init import REGRESSORS
from fitting.keypoints.weights import CALIBRATED, GATE, WEIGHTINGS, Weighting
from fitting.solver.terms.reprojection import ROBUST_SCALE
from pose2d.base.errors import UserError
from pose2d.types import ConfidenceSource

FOR_CALIBRATED: tuple[Weighting, ...] = (
    "precision",
    "likelihood",
)  # these turn an expected OKS into pixels
KEYPOINTS_FROM = ("network", "poses2d")
FPS = 30.0  # of 3DPW's videos


@dataclass(frozen=True)
class Row:
    """One way to weight keypoints: a row of the table."""

    source: ConfidenceSource
    weighting: Weighting
    gate: float = GATE
    start_source: ConfidenceSource | None = (
        None  # whose confidence the initialiser reads; None: one start for all rows
    )
    robust_sigmas: float = ROBUST_SCALE  # so many sigmas away a keypoint counts half of its square
    sigma_scale: float = (
        1.0  # on the pixel error that a weight stands for: how hard the data pull beside the priors
    )

    @property
    def key(self) -> str:
        """A name for files and tables."""
        threshold = f" {self.gate:g}" if self.weighting == "gate" else ""
        scale = f" x{self.sigma_scale:g}" if self.sigma_scale != 1 else ""
        robust = f" c{self.robust_sigmas:g}" if self.robust_sigmas != ROBUST_SCALE else ""
        start = f" from {self.start_source}" if self.start_source else ""
        return f"{self.source} {self.weighting}{threshold}{scale}{robust}{start}"


@dataclass(frozen=True)
class EvalSettings(Eval3dpwOptions):
    confidence: tuple[ConfidenceSource, ...] = Eval3dpwOptions.confidence  # type: ignore[assignment]
    weighting: tuple[Weighting, ...] = Eval3dpwOptions.weighting  # type: ignore[assignment]
    device: str = "cpu"  # where the networks run
    named_rows: tuple[
        tuple[str, Row], ...
    ] = ()  # label and row; empty: every source under every weighting

    def rows(self) -> dict[str, Row]:
        """By label. Confidence that is not calibrated states no pixels: no `precision` row, if
        there is another.
        """
        if self.named_rows:
            return dict(self.named_rows)
        rows: dict[str, Row] = {}
        for source in self.confidence:
            name = "CCNet" if source == "ccnet" else source
            for weighting in self._possible(source) or ["confidence"]:
                rows[f"+ {name} {weighting}"] = Row(source, weighting)
        return rows

    def _possible(self, source: ConfidenceSource) -> list[Weighting]:
        return [w for w in self.weighting if w not in FOR_CALIBRATED or source in CALIBRATED]

    @property
    def replaced(self) -> list[ConfidenceSource]:
        """Sources that can have none of the weightings asked for, and get a row weighted by
        `confidence` instead.
        """
        return (
            []
            if self.named_rows
            else [source for source in self.confidence if not self._possible(source)]
        )

    def start_label(self, source: ConfidenceSource | None) -> str:
        return f"start ({self.init}, {source})" if source else f"start ({self.init})"

    @property
    def has_network(self) -> bool:
        """Otherwise keypoints are those in 3DPW's own files."""
        return self.keypoints_from == "network"

    @property
    def keypoints_by(self) -> str:
        return self.pose_model if self.has_network else self.keypoints_from

    @property
    def needs_images(self) -> bool:
        return self.predictions is None and (self.has_network or self.init in REGRESSORS)

    def check(self) -> None:
        """Find now what would otherwise be found after an hour's work."""
        check_ranges(self)
        if self.keypoints_from not in KEYPOINTS_FROM:
            raise UserError(
                f"unknown --keypoints-from {self.keypoints_from!r}: choose {', '.join(KEYPOINTS_FROM)}."
            )
        for option, given in (("--confidence", self.confidence), ("--weighting", self.weighting)):
            if not given and not self.named_rows:
                raise UserError(f"{option} names nothing: give at least one.")
        names = ("lifter", *REGRESSORS)
        if self.init not in names:
            raise UserError(f"unknown initialiser {self.init!r}: choose {', '.join(names)}.")
        if self.init in REGRESSORS and self.checkpoint is None:
            raise UserError(
                f"--init {self.init} needs its network's weights: --checkpoint (docs/initialisers.md)."
            )
        if self.init not in REGRESSORS and self.checkpoint is not None:
            raise UserError(f"--checkpoint has no effect with --init {self.init}: leave it out.")
        if wrong := [w for w in self.weighting if w not in WEIGHTINGS]:
            raise UserError(f"unknown weighting {wrong[0]!r}: choose {', '.join(WEIGHTINGS)}.")
        if self.confidence and len(self.replaced) == len(self.confidence):
            raise UserError(
                f"--weighting {','.join(self.weighting)} needs calibrated confidence (ccnet, closed-form), which "
                f"{' and '.join(self.confidence)} is not: add --weighting confidence, or another --confidence."
            )
        if not self.has_network and any(
            source not in ("raw", "ones") for source in self.confidence
        ):
            raise UserError(
                "--keypoints-from poses2d knows only its own confidence: pass --confidence raw."
            )
