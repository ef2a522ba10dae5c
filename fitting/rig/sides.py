"""Left and right of limbs, repaired by the rays of several cameras.

Seen from the back, a network may confidently take a person for seen from the front.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations, product

import numpy as np

from fitting.fits import OtherView
from fitting.keypoints.side_swap import reorder_keypoints
from fitting.rig.epipolar import FAR, Pose, squared_residual
from fitting.rig.offsets import INDEPENDENT_PER_SECOND
from fitting.rig.sights import Sight
from pose2d.skeletons import HALPE26

_LEGS = (11, 12, 13, 14, 15, 16, 20, 21, 22, 23, 24, 25)  # of Halpe's keypoints
_ARMS_AND_FACE = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10)
# Sides are exchanged where squared residuals fall by this much for each keypoint, frame and camera.
# With a smaller value, people seen from the side, whose sides lie close together, are exchanged for
# nothing.
EXCHANGE_GAIN = 0.75
MOTION_PER_SECOND = 0.4  # of keypoints, as tangents: 1.6 m/s at 4 m
MOST_CAMERAS = 8  # of which all combinations are tried


def exchange_sides(views: Sequence[OtherView], fps: float) -> list[OtherView]:
    """Return the views with left and right of limbs exchanged where rays meet better so.

    For each limb, all combinations of exchanging it in some of the cameras are compared over all
    frames (Viterbi). Exchanging costs more in cameras that are confident, and keypoints of each
    camera continue from where they were in the frame before.
    """
    views = list(views)
    count = len(views)
    if not 2 <= count <= MOST_CAMERAS or any(v.keypoints.skeleton.size != 26 for v in views):
        return views
    frames = np.arange(len(views[0].keypoints), dtype=float)
    sights = [Sight.of(view.keypoints, frames, view.camera) for view in views]
    flip = np.asarray(HALPE26.flip_order)
    correlated = max(1.0, fps / INDEPENDENT_PER_SECOND)
    combos = np.array(list(product((False, True), repeat=count)))  # [W, V]
    order = np.tile(np.arange(26), (count, len(frames), 1))
    # Over the whole person and time: of two cameras the same one is wrong about arms and legs.
    confidence = np.array(
        [float((view.keypoints.confidence * view.keypoints.presence).mean()) for view in views]
    )
    for limb in (list(_LEGS), list(_ARMS_AND_FACE)):
        exchange_cost = EXCHANGE_GAIN * len(limb) * (count - 1) * (combos @ confidence)
        cost = np.repeat(exchange_cost[:, None], len(frames), 1)  # [W, T]
        jump = np.zeros((count, len(frames) - 1))  # cost of an exchange between two frames
        for is_exchanged, rows in ((False, np.array(limb)), (True, flip[limb])):
            for a, b in combinations(range(count), 2):
                first = sights[a].rays[:, limb], sights[a].sigma[:, limb]
                second = sights[b].rays[:, rows], sights[b].sigma[:, rows]
                squared = squared_residual(first, second, _pose_between(views[a], views[b]))
                differs = combos[:, a] != combos[:, b]
                cost += np.outer(differs == is_exchanged, np.nan_to_num(squared).sum(1))
            for number, sight in enumerate(sights):
                moved = np.square(sight.rays[1:, rows] - sight.rays[:-1, limb]).sum(-1)
                variance = 2 * np.square(sight.sigma[:-1, limb]) + np.square(
                    MOTION_PER_SECOND / fps
                )
                limited = np.nan_to_num(np.minimum(moved / variance, FAR)).sum(1)
                jump[number] += limited if is_exchanged else -limited
        path = _cheapest_path(cost / correlated, (combos[:, None] != combos) @ jump)
        exchanged = combos[path].T  # [V, T]
        for number in range(count):
            order[number][np.ix_(exchanged[number], limb)] = flip[limb]
    return [
        replace(view, keypoints=reorder_keypoints(view.keypoints, rows))
        for view, rows in zip(views, order, strict=True)
    ]


def _pose_between(first: OtherView, second: OtherView) -> Pose:
    rotation = (second.rotation @ first.rotation.mT).double().numpy()
    offset_m = second.offset_m.double().numpy() - rotation @ first.offset_m.double().numpy()
    return rotation, offset_m


def _cheapest_path(cost: np.ndarray, jump: np.ndarray) -> np.ndarray:
    """Return the cheapest path [T] through W states (Viterbi).

    cost [W, T] is that of each state, jump [W, W, T - 1] that of a change between frames.
    """
    total = cost[:, 0]
    predecessors = []
    for frame_cost, between in zip(cost.T[1:], np.moveaxis(jump, -1, 0), strict=True):
        through = total[:, None] + between
        predecessors.append(through.argmin(0))
        total = through.min(0) + frame_cost
    path = [int(total.argmin())]
    for before in reversed(predecessors):
        path.append(int(before[path[-1]]))
    return np.array(path[::-1])
