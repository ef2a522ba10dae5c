"""What bench/world.py found, in groups of shots and as medians."""

import numpy as np

from bench.lib.world_scenes import ShotTruth


def medians(rows: dict[str, list[dict[str, float]]]) -> dict[str, list[str]]:
    """Each figure's median over shots, by column; shares are means."""
    names = list(dict.fromkeys(name for result in rows.values() for row in result for name in row))
    table = {}
    for name in names:
        cells = []
        for result in rows.values():
            values = np.array([row.get(name, np.nan) for row in result])
            values = values[np.isfinite(values)]
            middle = np.mean if name.endswith(("known, %", "right, %")) else np.median
            cells.append(f"{middle(values):.1f}" if len(values) else "")
        table[name] = cells
    return table


def groups(shots: list[ShotTruth]) -> dict[str, list[int]]:
    """Shots by what their targets are stated for."""
    every = list(enumerate(shots))
    results = {
        "all": [n for n, _ in every],
        "somebody walks": [n for n, s in every if s.kind == "walking"],
        "people stand": [n for n, s in every if s.kind == "standing"],
        "jumping, sitting, steps": [
            n for n, s in every if s.kind in ("jumping", "sitting", "stairs")
        ],
        "two or more people": [n for n, s in every if len(s.people) > 1],
        "static camera": [n for n, s in every if s.camera_kind == "static"],
        "panning camera": [n for n, s in every if s.camera_kind == "pan"],
        "camera in a hand": [n for n, s in every if s.camera_kind == "hand"],
    }
    return {name: index for name, index in results.items() if index}
