"""Another body that explains a frame's keypoints about as well as the one that was found. One image
leaves signs of depth open: whether the torso is turned to one side or the other, whether it leans
towards the camera or away, whether thighs and upper arms come forward. No search gets from one to
the other, so each is a start of its own. They are solved frame by frame, a few frames a second, and
the likeliest that ends elsewhere is kept with how much more it costs. `fitting.stated` knows from
held-out people what that says of its probability, and states errors that cover both. A body that
faces the other way, as if the network had exchanged all sides, is no such start: it costs as little
nearly always, and was nearer to the truth in 2 % of rendered frames."""

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from fitting.body import Body, BodyParams
from fitting.body.kinematics import matrix_to_axis_angle, rotation_matrices, shortest_turn
from fitting.camera import Camera
from fitting.fits import Fit, FitOptions, SecondMode, nearest
from fitting.optimise import ROUGH_TOLERANCE, FitInput, make_problem, with_shape
from fitting.solver.levenberg_marquardt import solve_frames
from fitting.solver.unknowns import to_params
from fitting.stated import COUNTED

MODES_FPS = (
    3.0  # so many frames a second: closer ones err alike (`optimise.INDEPENDENT_FRAMES_PER_SECOND`)
)
SCREENED, SOLVED = 3, 12  # steps of every start, and of the likeliest
CLOSE = 25.0  # nats. Of rendered people with more, none was nearer to the second mode
APART_M = 0.1  # a mode has a joint so far from the first, relative to the pelvis
# hips and knees; shoulders and elbows
LEGS = ((1, 4), (2, 5))
ARMS = ((16, 18), (17, 19))


def _reflected(vector: Tensor, ray: Tensor) -> Tensor:
    """Vectors [T, 3] with the other sign along rays [T, 3]."""
    return vector - 2 * (vector * ray).sum(-1, keepdim=True) * ray


def mirrored_limbs(
    params: BodyParams, body: Body, limbs: tuple[tuple[int, int], ...] = LEGS
) -> BodyParams:
    """Thighs (or upper arms) mirrored in depth at their joints; what hangs on them keeps its
    directions.

    In an image, a straight leg that leans away from the camera looks like a bent one whose knee
    comes forward: the thigh's depth has two signs, and between them lies a straight leg that fits
    worse, so no search gets from one to the other.
    """
    rotation = rotation_matrices(params.pose)
    shape = torch.nn.functional.pad(params.shape, (0, body.shape_size - params.shape.shape[-1]))
    placed = body.placement(rotation, shape)
    for joint, end in limbs:
        bone = placed.joints[:, end] - placed.joints[:, joint]
        ray = torch.nn.functional.normalize(placed.joints[:, joint] + params.translation, dim=-1)
        before = placed.rotation[:, joint]
        turned = shortest_turn(bone, _reflected(bone, ray)) @ before
        rotation[:, joint] = rotation[:, joint] @ before.mT @ turned
        rotation[:, end] = turned.mT @ placed.rotation[:, end]
    return replace(params, pose=matrix_to_axis_angle(rotation))


def mirrored_starts(params: BodyParams, body: Body) -> list[BodyParams]:
    """Of bodies [T]: turned, leaning, both; arms, legs."""
    root = rotation_matrices(params.pose[:, 0])
    ray = torch.nn.functional.normalize(params.translation, dim=-1)
    found = []
    for turn, lean in ((True, False), (False, True), (True, True)):
        across = root[:, :, 0]
        up = root[:, :, 1]
        up = _reflected(up, ray) if lean else up
        across = _reflected(across, ray) if turn else across
        across = torch.nn.functional.normalize(
            across - (across * up).sum(-1, keepdim=True) * up, dim=-1
        )
        turned = matrix_to_axis_angle(torch.stack((across, up, torch.linalg.cross(across, up)), -1))
        found.append(replace(params, pose=torch.cat((turned[:, None], params.pose[:, 1:]), 1)))
    return found + [mirrored_limbs(params, body, limbs) for limbs in (ARMS, LEGS)]


def second_modes(
    given: FitInput, found: Fit, fps: float, camera: Camera, body: Body, options: FitOptions
) -> SecondMode:
    """Of the T frames that a fit was made from; fps: of those that it solved. In frames between
    those that are looked at, the second body differs from the first as it does in the nearest of
    them."""
    rows = np.flatnonzero(found.used.any(1).numpy())[:: max(1, round(fps / MODES_FPS))]
    modes = _of_frames(
        given.rows(torch.from_numpy(rows)), found.params.rows(rows), camera, body, options
    )
    if modes is None:
        return SecondMode.empty().scatter(slice(0), len(found))
    near = nearest(rows, np.arange(len(found)))
    there = np.flatnonzero(np.isfinite(modes.extra_cost[near]))
    near, first, key = near[there], found.params.rows(there), found.params.rows(rows[near[there]])
    turned = (
        rotation_matrices(torch.from_numpy(modes.pose_rad[near])) @ rotation_matrices(key.pose).mT
    )
    modes = replace(
        modes.rows(near),
        pose_rad=matrix_to_axis_angle(turned @ rotation_matrices(first.pose)).numpy(),
        translation_m=modes.translation_m[near] + (first.translation - key.translation).numpy(),
    )
    return modes.scatter(there, len(found))


def _of_frames(
    given: FitInput, first: BodyParams, camera: Camera, body: Body, options: FitOptions
) -> SecondMode | None:
    """Of T frames by themselves; None: none has any. first [T]: the bodies that were found, whose
    shape stays.
    """
    if not len(given):
        return None
    frames = len(given)
    fixed = with_shape(body, first.shape)
    first = replace(first, shape=first.shape[:0], hands=None)
    starts = [first, *mirrored_starts(first, fixed)]
    every = torch.arange(frames).repeat(len(starts))
    params = BodyParams.concat(starts)
    keypoints = given.keypoints.rows(every)
    # Each stays as close to its start as the fit to its guess.
    guess = replace(given.guess.rows(every), params=params)
    scene = given.scene and replace(given.scene.frames(every), contact=None)
    problem, near, _ = make_problem(FitInput(keypoints, guess, scene), [camera], fixed, options)

    def apart(params: BodyParams, count: int) -> Tensor:
        """[count - 1, n] whether bodies are apart from the first n of count times n."""
        joints = fixed.at(params).joints
        joints = (joints[:, COUNTED] - joints[:, :1]).unflatten(0, (count, -1))
        return (joints[1:] - joints[:1]).norm(dim=-1).amax(-1) > APART_M

    rough = solve_frames(problem, near, SCREENED, ROUGH_TOLERANCE)
    cost = rough.cost.unflatten(0, (len(starts), frames))
    extra_cost, best = torch.where(
        apart(to_params(rough.state), len(starts)), cost[1:] - cost[0], torch.inf
    ).min(0)
    close = (extra_cost < CLOSE).nonzero().flatten()
    if not len(close):
        return None
    index = torch.cat((close, (1 + best[close]) * frames + close))
    solved = solve_frames(problem.frames(index), rough.state.rows(index), SOLVED)
    params = to_params(solved.state)
    cost = solved.cost.unflatten(0, (2, len(close)))
    extra_cost = cost[1] - cost[0]
    kept = (apart(params, 2)[0] & (extra_cost < CLOSE)).nonzero().flatten()
    params = params.rows(len(close) + kept)
    modes = SecondMode(
        np.zeros(len(kept), np.float32),
        params.pose.numpy(),
        params.translation.numpy(),
        extra_cost[kept].numpy(),
    )
    return modes.scatter(close[kept].numpy(), frames)
