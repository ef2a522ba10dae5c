"""Script sequences: people who walk about, cross, embrace, hide and come back, or share a floor.

A sequence has one or more shots. At a cut another camera shows another place, with all or some of
the same people in the same clothes.
"""

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from eval3dpw.synth import camera_paths, solids, staging
from eval3dpw.synth.camera_paths import CameraKind
from eval3dpw.synth.motion import FPS, Clip, Kind
from eval3dpw.synth.plans import WORLDS, Plan, SceneScript
from eval3dpw.synth.sequence import Shot
from eval3dpw.synth.solids import Solid
from eval3dpw.synth.stage import Stage
from eval3dpw.synth.staging import SyntheticPerson, heading, staged_person
from fitting.body import Body
from fitting.body.rotations import axis_angle_to_quaternion, quaternion_to_axis_angle
from fitting.camera import Camera

_SECONDS: dict[SceneScript, float] = {
    "crossing": 6.0,
    "embrace": 6.5,
    "behind": 7.0,
    "cuts": 7.5,
    "world": 4.5,
}
_COMPANY: dict[Kind, Kind] = {"sitting": "standing", "stairs": "walking"}
_ARMS = [16, 17, 18, 19]  # left and right shoulder, left and right elbow
_APART_M = 0.6
_FROM_CAMERA_M = 2.2


def build_shots(
    plan: Plan,
    body: Body,
    clips: Mapping[str, Sequence[Clip]],
    size: tuple[int, int],
    frames: int | None = None,
) -> list[Shot]:
    """Build the shots of a sequence.

    frames: of the whole sequence; None: as long as the script says.
    """
    if frames is None:
        assert plan.script is not None
        frames = round(_SECONDS[plan.script] * plan.fps)
    # With cuts three shots; in the second one person may be missing, and is back later.
    scripts: dict[SceneScript | None, tuple[Callable[[Stage], Shot], ...]] = {
        None: (walk_about,),
        "crossing": (_crossing,),
        "embrace": (_embrace,),
        "behind": (_behind,),
        "cuts": (_crossing, _behind, _crossing),
        "world": (_world,),
    }
    chosen = scripts[plan.script]
    rng = plan.rng("script")
    shots = []
    parts = np.diff(np.linspace(0, frames, len(chosen) + 1).round().astype(int)).tolist()
    for number, (script, length) in enumerate(zip(chosen, parts, strict=True)):
        identities = list(range(plan.people))
        if number == 1 and plan.people > 2:
            identities.pop(int(rng.integers(len(identities))))
        shots.append(script(Stage(plan, body, clips, size, length, rng, identities, number)))
    return shots


def walk_about(on: Stage, tall: float | None = None) -> Shot:
    """Show one or two people doing what was captured, together or past each other.

    tall: height of a person as a share of the image's height; drawn unless it is set.
    """
    plan = on.plan
    rng = on.rng
    clips = on.clips["any"]
    # Clips in random order, so that they all come before one is seen again.
    order = np.random.default_rng([plan.seed[0], len(clips)]).permutation(len(clips))
    chosen = [clips[order[(2 * plan.seed[1] + n) % len(clips)]] for n in on.identities]
    chosen = [clip.mirrored() if rng.random() < 0.5 else clip for clip in chosen]
    count = min(on.frames, *(len(clip.pose) for clip in chosen))
    azimuth = rng.uniform(-np.pi, np.pi)
    cross = len(chosen) > 1 and rng.random() < 0.6
    people = list[SyntheticPerson]()
    for n, clip in enumerate(chosen):
        rows = int(rng.integers(len(clip.pose) - count + 1)) + np.arange(count)
        across = (
            azimuth
            + (np.pi / 2 if n else -np.pi / 2)
            + rng.normal(0, 0.35)
            - heading(clip.root_m[rows])
        )
        yaw = across if cross else rng.uniform(-np.pi, np.pi)
        person = staged_person(on.body, clip, rows, on.shape(n), 1.0, yaw)
        people.append(
            staging.apart(person, [(p.path, _APART_M) for p in people], rng) if people else person
        )
    close = rng.random() < 0.15  # the upper body alone
    share = rng.uniform(1.0, 1.35) if close else math.exp(rng.uniform(math.log(0.42), 0.0))
    aim = rng.uniform(1.1, 1.3) if close else rng.uniform(0.8, 1.05)
    height = float(np.clip(rng.normal(1.5, 0.45), 0.6, 2.8))
    camera, path = on.close_up(
        people, plan.camera, azimuth, tall or share, height, 0.9 if tall else aim, True
    )
    bystanders: list[SyntheticPerson] = []
    for n in range(plan.bystanders):
        clip = clips[int(rng.integers(len(clips)))]
        rows = np.minimum(
            np.arange(count), len(clip.pose) - 1
        )  # a shorter clip ends standing still
        shape = on.shape(plan.people + n)
        person = staged_person(on.body, clip, rows, shape, 1.0, rng.uniform(-np.pi, np.pi))
        near = [(p.path, _APART_M) for p in (*people, *bystanders)]
        bystanders.append(
            staging.apart(person, [*near, (path.positions_m[:, ::2], _FROM_CAMERA_M)], rng)
        )
    return on.film(people, camera, plan.camera, path, bystanders=bystanders)


def _lanes(
    on: Stage, kind: CameraKind, people: list[SyntheticPerson], objects: Sequence[Solid] = ()
) -> Shot:
    """Record people who walk to the left and right from +z, looking along -z, so that lanes are
    depths.
    """
    rng = on.rng
    camera, path = on.close_up(
        people, kind, rng.normal(0, 0.12), rng.uniform(0.6, 0.9), rng.uniform(1.1, 1.9)
    )
    return on.film(people, camera, kind, path, objects)


def _crossing(on: Stage) -> Shot:
    """Let people walk past each other across the view, each in a lane, close behind one another."""
    rng = on.rng
    people = []
    for identity, lane in zip(on.identities, rng.permutation(len(on.identities)), strict=True):
        walker = on.walker(
            identity, (math.pi / 2 if lane % 2 else -math.pi / 2) + rng.normal(0, 0.15)
        )
        lane_m = (lane - (len(on.identities) - 1) / 2) * rng.uniform(0.55, 0.8)
        people.append(walker.moved_to(rng.uniform(-0.6, 0.6), -lane_m))
    kinds: tuple[CameraKind, ...] = ("static", "pan", "hand")
    return _lanes(on, kinds[int(rng.integers(3))], people)


def _behind(on: Stage) -> Shot:
    """Let people walk behind a high and wide wall in the middle and come out on either side."""
    rng = on.rng
    people = []
    for lane, identity in enumerate(on.identities):
        walker = on.walker(
            identity, (math.pi / 2 if lane % 2 else -math.pi / 2) + rng.normal(0, 0.1)
        )
        back = -0.75 * lane - 0.3 * float(np.ptp(walker.path[:, 1]))
        people.append(walker.moved_to(rng.uniform(-0.5, 0.5), back))
    front = max(float(p.path[:, 1].max()) for p in people) + 0.4
    walked = float(np.mean([np.ptp(p.path[:, 0]) for p in people]))
    wide = float(
        np.clip(rng.uniform(0.25, 0.4) * walked, 0.45, 1.3)
    )  # hides people for a part of their way
    texture = str(rng.choice(["posters", "painted", "concrete", "planks"]))
    wall = solids.box((wide, 2.3, 0.25), texture).moved((rng.uniform(-0.2, 0.2), 0, front + 0.2))
    return _lanes(on, "static", people, [wall])


def _embrace(on: Stage) -> Shot:
    """Let two people walk up to each other, hold each other for two seconds and part.

    The other people walk past behind or before them.
    """
    rng = on.rng
    fps = on.plan.fps
    step = FPS // on.plan.fps
    frames = on.frames
    people = []
    for identity, sign in zip(on.identities, (1, -1), strict=False):
        clip = on.walking_clip()
        coming = min(round(2.1 * fps), (len(clip.pose) - 1) // step)
        hold = round(rng.uniform(1.8, 2.2) * fps)
        rows = (
            np.concatenate((np.arange(coming), np.full(hold, coming), np.arange(coming, -1, -1)))
            * step
        )
        rows = np.pad(rows, (0, max(0, frames - len(rows))), mode="edge")[:frames]
        since = np.clip((np.arange(frames) - coming + 0.35 * fps) / (0.5 * fps), 0, 1)
        until = np.clip((coming + hold + 0.25 * fps - np.arange(frames)) / (0.5 * fps), 0, 1)
        pose = _arms_around(clip.pose[rows], torch.from_numpy(np.minimum(since, until)).float())
        yaw = sign * math.pi / 2 - heading(clip.root_m)
        walker = staged_person(on.body, clip, rows, on.shape(identity), 1.0, yaw, fps, pose=pose)
        met = walker.path[min(coming + hold // 2, frames - 1)]
        people.append(
            walker.moved_to(float(-0.14 * sign - met[0]), float(rng.normal(0, 0.04) - met[1]))
        )
    for number, identity in enumerate(on.identities[2:]):
        walker = on.walker(identity, math.pi / 2 if number % 2 else -math.pi / 2)
        people.append(walker.moved_to(0.0, float(rng.choice((-1, 1))) * 0.9))
    return _lanes(on, "static" if rng.random() < 0.6 else "hand", people)


def _arms_around(pose: Tensor, share: Tensor) -> Tensor:
    """Reach forward with both arms by a share [T] of the way, elbows bent inwards."""
    target = pose.clone()
    target[:, _ARMS] = torch.tensor(
        [[0.0, -1.25, -0.15], [0.0, 1.25, 0.15], [0.0, -0.9, 0.0], [0.0, 0.9, 0.0]]
    )
    a = axis_angle_to_quaternion(pose)
    b = axis_angle_to_quaternion(target)
    b = torch.where((a * b).sum(-1, keepdim=True) < 0, -b, b)
    return quaternion_to_axis_angle(
        torch.nn.functional.normalize(torch.lerp(a, b, share[:, None, None]), dim=-1)
    )


def _world(on: Stage) -> Shot:
    """Show people on one floor, all in view, with boxes to sit on and steps where they take
    them.
    """
    kind, count, child, camera_kind, share = WORLDS[on.plan.turn % len(WORLDS)]
    kinds: list[Kind] = [kind, *[_COMPANY.get(kind, kind)] * (count - 1)]
    camera = Camera.from_focal(share * math.hypot(*on.size), on.size)
    rng = on.rng
    fps = on.plan.fps
    path = None
    people = []
    while path is None:
        chosen = [
            on.clips[person_kind][int(rng.integers(len(on.clips[person_kind])))]
            for person_kind in kinds
        ]
        sizes = [
            staging.draw_size(rng, child=child and place == count - 1) for place in range(count)
        ]
        people = staging.stage(on.body, chosen, list(kinds), sizes, on.frames, fps, rng)
        tries = (
            camera_paths.framed(people, camera, camera_kind, fps, rng, least_tall=0.3)
            for _ in range(6)
        )
        path = next((framed_path for framed_path in tries if framed_path is not None), None)
    objects: list[Solid] = []
    for person, person_kind in zip(people, kinds, strict=True):
        objects += (
            _seat(person)
            if person_kind == "sitting"
            else _steps(person)
            if person_kind == "stairs"
            else []
        )
    return on.film(people, camera, camera_kind, path, objects)


def _seat(person: SyntheticPerson) -> list[Solid]:
    """Build a box under the lowest place of the pelvis."""
    pelvis = person.joints[:, 0].double().numpy()
    sits = pelvis[:, 1] < np.quantile(pelvis[:, 1], 0.25) + 0.04
    spot = np.median(pelvis[sits], axis=0)
    forward = (person.joints[sits][:, (4, 5)].mean(1) - person.joints[sits][:, 0]).mean(0).numpy()
    forward = forward * (1, 0, 1) / max(float(np.linalg.norm(forward[::2])), 1e-6)
    high = float(pelvis[sits, 1].min()) - 0.105 * person.size
    box = solids.box((0.5, high, 0.42), "planks")
    back = spot - 0.06 * forward
    return [box.moved((back[0], 0, back[2]), float(np.arctan2(forward[0], forward[2])))]


def _steps(person: SyntheticPerson) -> list[Solid]:
    """Build a block under every place where a foot rests above the floor."""
    feet = person.keypoints[:, (20, 21, 24, 25)].double().numpy()  # big toes, heels
    blocks: list[Solid] = []
    tops: list[tuple[np.ndarray, float]] = []
    for side in (0, 1):
        foot = feet[:, (side, side + 2)]
        sole = foot[..., 1].min(1) - 0.02 * person.size
        speed = np.linalg.norm(np.gradient(foot.mean(1), axis=0), axis=1)
        for frame in np.flatnonzero((speed < 0.008) & (sole > 0.07)):
            spot = foot[frame].mean(0)[::2]
            high = float(sole[frame])
            if all(np.linalg.norm(spot - s) > 0.3 or abs(high - h) > 0.06 for s, h in tops):
                tops.append((spot, high))
                blocks.append(
                    solids.box((0.42, high, 0.42), "concrete").moved((spot[0], 0, spot[1]))
                )
    return blocks
