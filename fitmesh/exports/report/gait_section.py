"""The report's part about a person's walking, squats and jumps."""

from collections.abc import Sequence

import numpy as np

from fitmesh.exports.report.plots import Line, Times, plot
from fitmesh.exports.scene import scene_frame
from fitmesh.gait.cycles import PERCENT, Cycles
from fitmesh.gait.people import Movement, join_cycles, movements
from fitmesh.gait.steps import Step, summarize_steps
from fitmesh.person import Person
from fitmesh.result import Result
from fitmesh.ui.trouble import count

# Title and angle; {} is a side, left and right in one plot.
_PLOTS = (
    ("Hip flexion", "{}_hip_flexion"),
    ("Knee flexion", "{}_knee_flexion"),
    ("Ankle dorsiflexion", "{}_ankle_dorsiflexion"),
    ("Hip abduction", "{}_hip_abduction"),
    ("Pelvis tilt forward", "pelvis_tilt_forward"),
    ("Trunk flexion", "trunk_flexion"),
)
_NUMBERS = {
    "step_time_s": ("step time", "s", 2),
    "step_length_m": ("step length", "m", 2),
    "step_width_m": ("step width", "m", 2),
    "cadence_per_min": ("cadence", "steps/min", 0),
    "speed_m_s": ("speed", "m/s", 2),
    "double_support_s": ("double support", "s", 2),
    "single_support_s": ("single support", "s", 2),
    "stride_time_s": ("stride time", "s", 2),
    "stride_length_m": ("stride length", "m", 2),
}


def gait_section(result: Result, person: Person) -> str:
    """Return steps, mean cycles, squats and jumps of a person; nothing if there are none."""
    found = list(movements(result, scene_frame(result), person))
    steps = [step for movement in found for step in movement.steps]
    parts = []
    if steps:
        parts.append(f"<h3>Walking: {count(len(steps), 'steps')}</h3>{_table(steps)}")
    cycles = join_cycles([movement.cycles for movement in found])
    if cycles:
        parts.append(
            '<p class="soft">Angles from one strike of a foot to its next, in percent; the band is '
            f"one standard deviation of the cycles.</p>{_cycle_plots(cycles)}"
        )
    parts += _other_movements(found)
    return "".join(parts)


def _table(steps: Sequence[Step]) -> str:
    """Return the means of all steps' numbers, of both feet and of each."""
    columns = {
        side: summarize_steps([s for s in steps if side in ("both", s.side_name)])
        for side in ("both", "left", "right")
    }
    rows = ""
    for name, (title, unit, digits) in _NUMBERS.items():
        cells = ""
        for summary in columns.values():
            mean, spread, _ = summary[name]
            text = f"{mean:.{digits}f}" if np.isfinite(mean) else "-"
            text += f" ± {spread:.{digits}f}" if np.isfinite(spread) else ""
            cells += f"<td>{text}</td>"
        rows += f"<tr><th>{title}, {unit}</th>{cells}</tr>"
    head = "".join(f"<th>{side}</th>" for side in columns)
    return f'<div class="card scroll"><table><tr><th></th>{head}</tr>{rows}</table></div>'


def _cycle_plots(cycles: dict[str, Cycles]) -> str:
    """Return the plots of mean cycles."""
    plots = ""
    never = np.zeros(len(PERCENT), np.bool_)
    times = Times(PERCENT.astype(float), never, never, "%")
    for title, pattern in _PLOTS:
        if "{}" not in pattern:
            if pattern in cycles:
                one = cycles[pattern]
                plots += plot(times, title, "°", [Line("", one.mean, "one")], _band(one))
            continue
        by_side = {
            side: cycles[name]
            for side in ("left", "right")
            if (name := pattern.format(side)) in cycles
        }
        lines = [
            Line(f"{side}, {count(len(one.values), 'cycles')}", one.mean, side)
            for side, one in by_side.items()
        ]
        if lines:
            bands = [_band(one) for one in by_side.values()]
            plots += plot(times, title, "°", lines, bands[0], more_bands=bands[1:])
    return f'<div class="card plots">{plots}</div>'


def _band(cycles: Cycles) -> tuple[np.ndarray, np.ndarray]:
    """Return the curves one spread below and above the mean; NaN with one cycle."""
    return cycles.mean - cycles.spread, cycles.mean + cycles.spread


def _other_movements(found: Sequence[Movement]) -> list[str]:
    """Return a list of squats and one of jumps."""
    squats = [
        f"{squat.time_s:.2f} s: {100 * squat.depth_m:.0f} cm deep, knees bent "
        f"{squat.knee_flexion_deg:.0f}°"
        for movement in found
        for squat in movement.squats
    ]
    jumps = [
        f"{jump.take_off_s:.2f} s: {jump.flight_s:.2f} s in the air, "
        f"{100 * jump.height_m:.0f} ± {100 * jump.height_std_m:.0f} cm high"
        for movement in found
        for jump in movement.jumps
    ]
    parts = []
    for name, texts in (("squats", squats), ("jumps", jumps)):
        if texts:
            items = "".join(f"<li>{text}</li>" for text in texts)
            parts.append(f'<h3>{count(len(texts), name)}</h3><ul class="events">{items}</ul>')
    return parts
