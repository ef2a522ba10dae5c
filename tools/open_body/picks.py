"""Named vertices: nose, eyes, ears, fingertips, toes, heels, top of the head."""

from collections.abc import Iterable

import numpy as np

from tools.open_body.assets import Assets
from tools.open_body.phenotype import Macro, Phenotypes
from tools.open_body.skeleton import NUMBER


def pick(
    assets: Assets,
    phenotypes: Phenotypes,
    template: np.ndarray,  # [v, 3]
    weights: np.ndarray,  # [v, 24]
    stays: np.ndarray,  # [v] their numbers among the kept vertices
    mirror: np.ndarray,  # [v]
    observed: np.ndarray,  # [v] skin that is well visible
    eyes: np.ndarray,  # [v] eyeballs
) -> dict[str, int]:
    """Vertex numbers by the names that the `smplx` package uses, and `headtop`."""
    original = assets.kept[stays]

    def of(mask: np.ndarray) -> np.ndarray:
        return np.nonzero(mask)[0]

    def nearest(candidates: np.ndarray, place: np.ndarray, vertices: np.ndarray) -> int:
        return int(candidates[np.argmin(np.linalg.norm(vertices[candidates] - place, axis=1))])

    def furthest(candidates: np.ndarray, axis: int, sign: int = 1) -> int:
        return int(candidates[np.argmax(sign * template[candidates, axis])])

    head = weights[:, NUMBER["head"]] > 0.9
    left = template[:, 0] > 0
    picks = {
        "nose": furthest(of(head & (np.abs(template[:, 0]) < 0.004) & observed), axis=2),
        "leye": furthest(of(eyes & left), axis=2),
        "headtop": furthest(of(head), axis=1),
    }
    ear = of((_moved_by_ear_targets(assets)[original] > 0.02) & left & observed)
    centre = template[ear].mean(0)
    centre[0] = np.percentile(template[ear, 0], 60)
    picks["lear"] = nearest(ear, centre, template)

    # MakeHuman marks the ends of fingers and toes by cubes around them; look for the skin there in
    # its own pose.
    standing = phenotypes.vertices(Macro())
    for name, cube in _cubes():
        place = standing[assets.group_vertices(cube)].mean(0)
        picks[name] = nearest(of(observed), place, standing[original])
    sole = template[:, 1] < template[:, 1].min() + 0.035
    picks["LHeel"] = furthest(of((weights[:, NUMBER["left_ankle"]] > 0.7) & sole), axis=2, sign=-1)

    for name in list(picks):
        if name[0] in "lL":
            picks[("r" if name[0] == "l" else "R") + name[1:]] = int(mirror[picks[name]])
    return picks


def _cubes() -> Iterable[tuple[str, str]]:
    for number, finger in enumerate(("thumb", "index", "middle", "ring", "pinky"), 1):
        yield f"l{finger}", f"joint-l-finger-{number}-4"
    yield "LBigToe", "joint-l-toe-1-3"
    yield "LSmallToe", "joint-l-toe-5-4"


def _moved_by_ear_targets(assets: Assets) -> np.ndarray:
    """Return how far the left ear's scale targets move each vertex of the base mesh, [19158]."""
    moved = np.zeros(len(assets.vertices))
    for direction in ("", "-depth", "-vert"):
        for amount in ("decr", "incr"):
            name = f"ears/l-ear-scale{direction}-{amount}"
            moved += np.linalg.norm(assets.target(name), axis=1)
    return moved
