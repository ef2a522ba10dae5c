"""The start of a fit without a guess: the torso says where the body is and how it is turned.

Seen from afar a bone's image is as long as the bone, times pixels per metre, times the cosine of its tilt out of
the image. The least shortened bones give the scale, hence the distance; the torso's direction gives the roll; how
much shoulders and hips are shortened gives the turn about the spine, and how much the torso is, the lean - both up to
a sign, which a single image does not show. Each combination of signs is a start of its own.
"""

import itertools
from dataclasses import replace

import torch
from torch import Tensor

from fitting.body import Body, BodyParams
from fitting.body.kinematics import about_axis, matrix_to_axis_angle, rotation_matrices, shortest_turn
from fitting.solver.levenberg_marquardt import Problem, solve_frames
from fitting.solver.terms.priors import LikelyPose
from fitting.solver.unknowns import BODY_JOINTS, LEAF_JOINTS, BodyJacobian, State, join

_ACROSS = ((5, 6), (11, 12))
_ALONG = ((5, 11), (6, 12))
_LIMBS = ((5, 7), (7, 9), (6, 8), (8, 10), (11, 13), (13, 15), (12, 14), (14, 16))
_SEGMENTS = (*_ACROSS, *_ALONG, *_LIMBS)
_LEAST_SHORTENED = 3  # so many of the least shortened bones give the scale
AMBIGUOUS_RAD = 0.15  # a torso turned or leaning by less gets no mirrored start
START_ITERATIONS = 3  # of each candidate, enough to tell them apart; bench/fit.py measures error and speed
SIGNS = tuple(itertools.product((1, -1), repeat=2))  # turn, lean


def torso_start_candidates(problem: Problem) -> tuple[State, Tensor]:
    """Starts with a shape per frame (zero), and which frame [n] each is for; the first T are for frames 0 .. T - 1.

    A frame whose torso is not shortened gets no second start.
    """
    seen = problem.seen
    xy = (seen.xy_px - seen.center_px[:, None]) / seen.focal_px[:, None]
    used = seen.used
    pose = problem.term(LikelyPose).prior.average()
    template = problem.jacobian.place(_upright(problem, pose), derivatives=False)
    a, b = torch.tensor(_SEGMENTS).T
    size = (template.keypoints[0, a] - template.keypoints[0, b]).norm(dim=-1)  # [n] metres, of segments on the body
    scale = _scale(xy, used, size)  # [T] image units at z = 1 per metre: one over the distance
    roll = _roll(xy, used)
    turn = _shortened(xy, used, _ACROSS, size[:2] * scale[:, None], roll, axis=0).acos()
    lean = _shortened(xy, used, _ALONG, size[2:4] * scale[:, None], roll, axis=1).acos()
    starts, frame_of = [], []
    for turn_sign, lean_sign in SIGNS:
        differs = ((turn > AMBIGUOUS_RAD) | (turn_sign > 0)) & ((lean > AMBIGUOUS_RAD) | (lean_sign > 0))
        tilted = about_axis(2, roll) @ about_axis(0, torch.full_like(roll, torch.pi) + lean_sign * lean)
        root = tilted @ about_axis(1, turn_sign * turn)
        state = replace(_upright(problem, pose), root=root)
        starts.append(_placed(problem, state, xy, 1 / scale).frames(differs))
        frame_of.append(differs.nonzero().squeeze(1))
    return join(starts), torch.cat(frame_of)


def best_torso_start(problem: Problem, iterations: int = START_ITERATIONS) -> State:
    """The best candidate of each frame after a few steps each.

    They are compared with the mean shape and the prior as one Gaussian: a component chosen too early is never left.
    """
    mean_body = replace(problem, jacobian=BodyJacobian(problem.jacobian.body, 0))
    mean_body = mean_body.having(problem.term(LikelyPose).in_doubt())
    starts, frame = torso_start_candidates(mean_body)
    screened = solve_frames(mean_body.frames(frame), starts, iterations)
    order = torch.argsort(screened.cost, descending=True)  # the last one written to a frame is its best
    best = torch.empty(len(problem), dtype=torch.long)
    for start in order.tolist():
        best[frame[start]] = start
    state = screened.state.frames(best)
    return replace(state, shape=state.shape.new_zeros(len(problem), problem.jacobian.shape_size))


def _upright(problem: Problem, pose: Tensor) -> State:
    frames, kind = len(problem), problem.seen.xy_px.dtype
    theta = torch.zeros(frames, 24, 3, dtype=kind)
    theta[:, BODY_JOINTS] = pose.unflatten(0, (-1, 3))
    theta[:, LEAF_JOINTS] = problem.term(LikelyPose).prior.leaves(pose[None])
    root = torch.eye(3, dtype=kind).expand(frames, 3, 3)
    return State(
        root, theta, torch.zeros(frames, 3, dtype=kind), torch.zeros(frames, problem.jacobian.shape_size, dtype=kind)
    )


def _scale(xy: Tensor, used: Tensor, size: Tensor) -> Tensor:
    a, b = torch.tensor(_SEGMENTS).T
    both = used[:, a] & used[:, b]
    ratio = torch.where(both, (xy[:, a] - xy[:, b]).norm(dim=-1) / size, 0)
    top = ratio.topk(_LEAST_SHORTENED, dim=1).values
    mean = top.sum(1) / (top > 0).sum(1).clamp(min=1)
    # Without a single whole bone: the extent of what there is, taken for half a body.
    away = (xy - _mean(xy, used)[:, None]).norm(dim=-1)
    extent = (away * used).sum(1) / used.sum(1).clamp(min=1)
    return torch.where(mean > 0, mean, extent / 0.5).clamp(min=1e-3)


def _mean(values: Tensor, used: Tensor) -> Tensor:
    return (values * used[..., None]).sum(1) / used.sum(1).clamp(min=1)[:, None]


def _roll(xy: Tensor, used: Tensor) -> Tensor:
    """By how much the torso leans in the image; 0 is upright, or not visible. Radians, clockwise."""

    def middle(points: tuple[int, ...]) -> tuple[Tensor, Tensor]:
        return _mean(xy[:, points], used[:, points]), used[:, points].any(1)

    shoulders, upper = middle((5, 6))
    hips, lower = middle((11, 12))
    head, seen_head = middle((0, 1, 2, 3, 4))
    top = torch.where(upper[:, None], shoulders, head)
    visible = (upper | seen_head) & lower
    up = torch.where(visible[:, None], top - hips, xy.new_tensor([0.0, -1.0]))
    return torch.atan2(up[:, 0], -up[:, 1])


def _shortened(
    xy: Tensor, used: Tensor, segments: tuple[tuple[int, int], ...], size: Tensor, roll: Tensor, axis: int
) -> Tensor:
    """Mean signed length of segments along the torso's own axis in the image, over their unshortened length [T, n]; 1
    where none is seen."""
    a, b = torch.tensor(segments).T
    both = used[:, a] & used[:, b]
    way = xy[:, a] - xy[:, b]
    cosine, sine = roll.cos()[:, None], roll.sin()[:, None]
    along = cosine * way[..., 0] + sine * way[..., 1] if axis == 0 else sine * way[..., 0] - cosine * way[..., 1]
    ratio = (along / size * both).sum(1) / both.sum(1).clamp(min=1)
    return torch.where(both.any(1), ratio, 1.0).clamp(-1, 1)


def _placed(problem: Problem, state: State, xy: Tensor, distance: Tensor) -> State:
    """Put the body at a distance so that its keypoints lie, on average, where they are seen."""
    used = problem.seen.used
    points = problem.jacobian.place(state, derivatives=False).keypoints
    middle = _mean(points, used)
    # The whole body must be in front of the camera.
    nearest = (points[..., 2] - middle[:, None, 2]).amin(1)
    distance = torch.maximum(distance, 0.3 - nearest)
    shift = torch.cat((_mean(xy, used) * distance[:, None], distance[:, None]), -1) - middle
    return replace(state, translation=shift)


LEGS = ((1, 4), (2, 5))  # hips and knees


def mirrored_legs(params: BodyParams, body: Body) -> BodyParams:
    """Thighs mirrored in depth at their hips; shanks and feet keep their directions.

    In an image, a straight leg that leans away from the camera looks like a bent one whose knee comes forward: the
    thigh's depth has two signs, and between them lies a straight leg that fits worse, so no search gets from one to the
    other. Where a fitted body would fall over, this start is solved as well, and the likelier of both is kept.
    """
    rotation = rotation_matrices(params.pose)
    shape = torch.nn.functional.pad(params.shape, (0, body.shape_size - params.shape.shape[-1]))
    placed = body.placement(rotation, shape)
    for hip, knee in LEGS:
        thigh = placed.joints[:, knee] - placed.joints[:, hip]
        ray = torch.nn.functional.normalize(placed.joints[:, hip] + params.translation, dim=-1)
        other = thigh - 2 * (thigh * ray).sum(-1, keepdim=True) * ray
        turned = shortest_turn(thigh, other) @ placed.rotation[:, hip]
        rotation[:, hip] = placed.rotation[:, 0].mT @ turned
        rotation[:, knee] = turned.mT @ placed.rotation[:, knee]
    return replace(params, pose=matrix_to_axis_angle(rotation))
