"""The settings of `fitmesh eval-3dpw`, and the rows of its table."""

from dataclasses import dataclass
from typing import Any, cast

from fitmesh.options.measure import Eval3dpwOptions
from fitmesh.options.record import check_ranges
from fitting.init import REGRESSORS
from fitting.keypoints.weights import CALIBRATED, GATE, WEIGHTINGS, Weighting
from fitting.solver.terms.reprojection import ROBUST_SCALE
from pose2d.base.errors import OptionError, UserError
from pose2d.types import ConfidenceSource

# These turn an expected OKS into pixels.
FOR_CALIBRATED: tuple[Weighting, ...] = ("precision", "likelihood")
KEYPOINTS_FROM = ("network", "poses2d")
FPS = 30.0  # of 3DPW's videos


@dataclass(frozen=True)
class Row:
    """One way to weight keypoints: a row of the table."""

    source: ConfidenceSource
    weighting: Weighting
    gate: float = GATE
    # Source of the confidence that the initialiser reads; None: one start for all rows.
    start_source: ConfidenceSource | None = None
    robust_sigmas: float = ROBUST_SCALE  # at this many sigmas a keypoint counts half of its square
    # Factor on the pixel error that a weight stands for: how strong the data are beside the priors.
    sigma_scale: float = 1.0

    @property
    def key(self) -> str:
        """Return a name for files and tables."""
        threshold = f" {self.gate:g}" if self.weighting == "gate" else ""
        scale = f" x{self.sigma_scale:g}" if self.sigma_scale != 1 else ""
        robust = f" c{self.robust_sigmas:g}" if self.robust_sigmas != ROBUST_SCALE else ""
        start = f" from {self.start_source}" if self.start_source else ""
        return f"{self.source} {self.weighting}{threshold}{scale}{robust}{start}"


@dataclass(frozen=True)
class EvalSettings(Eval3dpwOptions):
    """The options of the command with the types and defaults that the pipeline needs."""

    # The options hold plain strings, which `check` compares with the allowed ones.
    confidence: tuple[ConfidenceSource, ...] = cast(Any, Eval3dpwOptions.confidence)
    weighting: tuple[Weighting, ...] = cast(Any, Eval3dpwOptions.weighting)
    device: str = "cpu"  # where the networks run
    # Label and row; empty: every source under every weighting.
    named_rows: tuple[tuple[str, Row], ...] = ()

    def rows(self) -> dict[str, Row]:
        """Return the rows by label. Confidence that is not calibrated does not give pixels, so it
        has no row under `precision` and `likelihood`, unless there is no other.
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
        """Return the sources that fit none of the weightings; they get a row weighted by
        `confidence` instead.
        """
        if self.named_rows:
            return []
        return [source for source in self.confidence if not self._possible(source)]

    def start_label(self, source: ConfidenceSource | None) -> str:
        """Return the label of the row without a fit."""
        return f"start ({self.init}, {source})" if source else f"start ({self.init})"

    @property
    def has_network(self) -> bool:
        """Return whether a network finds the keypoints; else they come from 3DPW's own files."""
        return self.keypoints_from == "network"

    @property
    def keypoints_by(self) -> str:
        """Return the name of what finds the keypoints."""
        return self.pose_model if self.has_network else self.keypoints_from

    @property
    def needs_images(self) -> bool:
        """Return whether any step reads images."""
        return self.predictions is None and (self.has_network or self.init in REGRESSORS)

    def check(self) -> None:
        """Raise UserError for settings that do not fit each other, before any work is done."""
        check_ranges(self)
        if self.keypoints_from not in KEYPOINTS_FROM:
            raise OptionError(
                f"--keypoints-from must be {' or '.join(KEYPOINTS_FROM)}; got "
                f"{self.keypoints_from!r}."
            )
        for name, values in (("--confidence", self.confidence), ("--weighting", self.weighting)):
            if not values and not self.named_rows:
                raise UserError(f"{name} is empty: give at least one value.")
        names = ("lifter", *REGRESSORS)
        if self.init not in names:
            raise UserError(f"unknown initialiser {self.init!r}: choose {', '.join(names)}.")
        if self.init in REGRESSORS and self.checkpoint is None:
            raise OptionError(
                f"--init {self.init} needs its network's weights: pass --checkpoint "
                "(docs/initialisers.md)."
            )
        if self.init not in REGRESSORS and self.checkpoint is not None:
            raise OptionError(f"--checkpoint has no effect with --init {self.init}: leave it out.")
        if wrong := [w for w in self.weighting if w not in WEIGHTINGS]:
            raise UserError(f"unknown weighting {wrong[0]!r}: choose {', '.join(WEIGHTINGS)}.")
        if self.confidence and len(self.replaced) == len(self.confidence):
            raise OptionError(
                f"--weighting {','.join(self.weighting)} needs calibrated confidence (ccnet, "
                f"closed-form), which {' and '.join(self.confidence)} is not: add --weighting "
                "confidence, or another --confidence."
            )
        of_files = all(source in ("raw", "ones") for source in self.confidence)
        if not self.has_network and not of_files:
            raise OptionError(
                "--keypoints-from poses2d has its own confidence only: pass --confidence raw."
            )
