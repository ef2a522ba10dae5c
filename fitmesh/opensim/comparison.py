"""Our angles beside those of OpenSim's inverse kinematics on the same markers: a table and plots."""

from dataclasses import dataclass
from html import escape

import numpy as np

from fitmesh.exports.report.plots import Line, Times, plot
from fitmesh.exports.report.style import styled_page
from fitmesh.opensim.coordinates import POSITIONS
from fitmesh.opensim.setup_files import PersonFiles
from fitmesh.opensim.tables import read_table
from fitmesh.opensim.tools import MarkerErrors
from pose2d.base.files import atomic_file

# In the order of the page; {} is a side. Others that both have follow in the table only.
_PLOTTED = (
    ("Pelvis tilt", "pelvis_tilt"),
    ("Pelvis list", "pelvis_list"),
    ("Hip flexion", "hip_flexion_{}"),
    ("Hip adduction", "hip_adduction_{}"),
    ("Hip rotation", "hip_rotation_{}"),
    ("Knee angle", "knee_angle_{}"),
    ("Ankle angle", "ankle_angle_{}"),
    ("Back extension", "L5_S1_Flex_Ext"),
    ("Arm flexion", "arm_flex_{}"),
    ("Elbow flexion", "elbow_flex_{}"),
)
_SAME_TIME_S = 1e-3


@dataclass(frozen=True)
class CoordinateComparison:
    """Compare one coordinate over the frames that both motions have."""

    name: str
    time_s: np.ndarray  # [T]
    ours_deg: np.ndarray  # [T]
    opensim_deg: np.ndarray  # [T]

    @property
    def offset_deg(self) -> float:
        """Return the mean of ours minus OpenSim's: neutral poses differ."""
        return float(np.mean(self.difference_deg))

    @property
    def rms_deg(self) -> float:
        """Return the root mean square of the difference."""
        return float(np.sqrt(np.mean(np.square(self.difference_deg))))

    @property
    def rms_without_offset_deg(self) -> float:
        """Return the root mean square of the difference without its mean."""
        return float(np.std(self.difference_deg))

    @property
    def range_deg(self) -> float:
        """Return how far OpenSim's coordinate moves."""
        return float(np.ptp(self.opensim_deg))

    @property
    def correlation(self) -> float:
        """Return the correlation over time; NaN where one of them does not move."""
        if min(np.std(self.ours_deg), np.std(self.opensim_deg)) < 1e-6:
            return float("nan")
        return float(np.corrcoef(self.ours_deg, self.opensim_deg)[0, 1])

    @property
    def difference_deg(self) -> np.ndarray:
        """Return ours minus OpenSim's [T], the shorter way around."""
        return (self.ours_deg - self.opensim_deg + 180) % 360 - 180


def compare(files: PersonFiles) -> list[CoordinateComparison]:
    """Return the comparison of every angle that both motions have."""
    our_time_s, ours = read_table(files.our_motion)
    their_time_s, theirs = read_table(files.motion)
    nearest = np.abs(our_time_s[:, None] - their_time_s).argmin(1)
    is_same = np.abs(our_time_s - their_time_s[nearest]) < _SAME_TIME_S
    rows = np.flatnonzero(is_same)
    return [
        CoordinateComparison(name, our_time_s[rows], ours[name][rows], theirs[name][nearest[rows]])
        for name in ours
        if name in theirs and name not in POSITIONS
    ]


def write_page(
    files: PersonFiles, comparisons: list[CoordinateComparison], errors: MarkerErrors
) -> None:
    """Write the comparison of a segment as a page."""
    by_name = {comparison.name: comparison for comparison in comparisons}
    plots = []
    for title, pattern in _PLOTTED:
        sides = (("left", "l"), ("right", "r")) if "{}" in pattern else (("one", ""),)
        for colour, letter in sides:
            comparison = by_name.get(pattern.format(letter))
            if comparison is not None:
                side = "" if colour == "one" else f", {colour}"
                plots.append(_plot(f"{title}{side}", comparison, colour))
    content = (
        f"<h1>{escape(files.name)}: fitmesh and OpenSim</h1>"
        "<p>Both follow the same fitted body: fitmesh's angles are those of the body, OpenSim's "
        "come from its own model, scaled to the body's markers. Dotted: OpenSim. Neutral poses "
        "differ, so compare changes.</p>"
        f"<p>OpenSim's markers: root mean square {errors.rms_mm:.0f} mm, at most "
        f"{errors.largest_mm:.0f} mm.</p>"
        f'<div class="card plots">{"".join(plots)}</div>{_table(comparisons)}'
    )
    with atomic_file(files.comparison) as temporary:
        page = styled_page(f"{files.name} · fitmesh and OpenSim", content)
        temporary.write_text(page, encoding="utf-8")


def _plot(title: str, comparison: CoordinateComparison, colour: str) -> str:
    """Return the plot of one coordinate."""
    never = np.zeros(len(comparison.time_s), np.bool_)
    lines = [
        Line("fitmesh", comparison.ours_deg, colour),
        Line("OpenSim", comparison.opensim_deg, f"{colour} inferred"),
    ]
    return plot(Times(comparison.time_s, never, never), title, "°", lines)


def _table(comparisons: list[CoordinateComparison]) -> str:
    """Return the table of all coordinates."""
    rows = "".join(
        f"<tr><th>{escape(one.name)}</th><td>{one.offset_deg:+.1f}</td><td>{one.rms_deg:.1f}</td>"
        f"<td>{one.rms_without_offset_deg:.1f}</td><td>{one.range_deg:.0f}</td>"
        f"<td>{_correlation(one)}</td></tr>"
        for one in comparisons
    )
    return (
        '<h2>Differences in degrees, ours minus OpenSim\'s</h2><div class="card scroll"><table>'
        "<tr><th>coordinate</th><th>mean</th><th>RMS</th><th>RMS without mean</th>"
        f"<th>range of motion</th><th>correlation</th></tr>{rows}</table></div>"
    )


def _correlation(comparison: CoordinateComparison) -> str:
    value = comparison.correlation
    return f"{value:.2f}" if np.isfinite(value) else "-"
