"""Scripted scenes: people who cross, embrace, hide and come back, with and without cuts; and people on a floor.

Each script stages the people and the things around them; `build_shots` dresses and renders them. A sequence has one or
more shots: at a cut another camera shows another place, with all or some of the same people in the same clothes."""

import math
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from eval3dpw.synth import staging, surroundings
from eval3dpw.synth.clothed_people import Outfit, SyntheticPerson, clothed_body, draw_outfit, draw_shape, moved_to
from eval3dpw.synth.motion import FPS, Clip, Kind, mirrored
from eval3dpw.synth.rendering import build_scene_mesh
from eval3dpw.synth.sequence import ClipChoice, SequencePlan, SyntheticSequence
from eval3dpw.synth.staging import CameraView, draw_sensor
from eval3dpw.synth.surroundings import SCENE_KINDS, ClearArea, Solid, build_scene
from fitting.body import Body
from fitting.body.kinematics import axis_angle_to_quaternion, quaternion_to_axis_angle
from fitting.camera import Camera

SceneScript = Literal["crossing", "embrace", "behind", "cuts", "world"]
SCRIPTS: tuple[SceneScript, ...] = ("crossing", "embrace", "behind", "cuts", "world")
# Sequences of each script, in turn: how many people, and whether they wear the same clothes.
_CASTS: dict[SceneScript, tuple[tuple[int, bool], ...]] = {
    "crossing": ((2, False), (4, False), (3, True), (6, False)), "embrace": ((2, False), (3, True)),
    "behind": ((2, False), (4, False), (3, True)), "cuts": ((3, False), (4, True), (2, False)), "world": ((1, False),),
}  # fmt: skip
_SECONDS: dict[SceneScript, float] = {"crossing": 6.0, "embrace": 6.5, "behind": 7.0, "cuts": 7.5, "world": 4.5}
FRAME_RATE: dict[SceneScript, int] = {"crossing": 15, "embrace": 15, "behind": 15, "cuts": 15, "world": 30}
# What rendered worlds show, in turn: kind, people, a child among them, camera, focal length over the diagonal.
WORLDS: tuple[tuple[Kind, int, bool, staging.StagedCameraKind, float], ...] = (
    ("walking", 1, False, "static", 0.62), ("walking", 3, True, "static", 0.95), ("jumping", 1, False, "static", 0.72),
    ("sitting", 2, False, "static", 0.80), ("walking", 2, True, "pan", 1.25), ("stairs", 1, False, "static", 0.66),
    ("standing", 2, True, "hand", 0.58), ("walking", 4, True, "hand", 1.05),
)  # fmt: skip
_COMPANY: dict[Kind, Kind] = {"sitting": "standing", "stairs": "walking"}
_ARMS = [16, 17, 18, 19]  # left and right shoulder, left and right elbow


@dataclass(frozen=True)
class ScriptedPlan:
    """One scripted sequence: drawn from the seed and its number alone."""

    name: str
    script: SceneScript
    people: int
    uniforms: bool
    kind: Kind  # of motion
    turn: int  # how many sequences of this script come before
    fps: int
    seed: tuple[int, int]

    def rng(self, what: str) -> np.random.Generator:
        return np.random.default_rng([*self.seed, *what.encode()])


@dataclass(frozen=True)
class ScriptedShot:
    sequence: SyntheticSequence
    identities: list[int]  # of the people
    camera_kind: staging.StagedCameraKind
    has_steps: list[bool]  # of the people: their feet stand on steps


@dataclass(frozen=True)
class Staged:
    """What a script stages: people, the things around them, and a camera."""

    people: list[SyntheticPerson]
    objects: list[Solid]
    azimuth: float  # radians, from the people to the camera
    path: staging.RecordedPath
    camera: Camera
    camera_kind: staging.StagedCameraKind


@dataclass(frozen=True)
class Stage:
    """What every script works with."""

    plan: ScriptedPlan
    body: Body
    clips: dict[Kind, list[Clip]]
    size: tuple[int, int]  # of the images
    rng: np.random.Generator

    def walking_clip(self) -> Clip:
        clips = self.clips["walking"]
        return clips[int(self.rng.integers(len(clips)))]

    def walker(self, shape: Tensor, frames: int, heading: float) -> SyntheticPerson:
        """Somebody who walks along `heading` (radians, x = sin) and, when the clip ends, backwards again."""
        clip, fps = self.walking_clip(), self.plan.fps
        clip = mirrored(clip) if self.rng.random() < 0.5 else clip
        rows = staging.there_and_back(len(clip.pose), frames * (FPS // fps))[:: FPS // fps]
        return staging.staged_person(self.body, clip, rows, shape, 1.0, heading - _clip_heading(clip), fps)

    def close_up(self, people: list[SyntheticPerson], objects: list[Solid], kind: staging.StagedCameraKind) -> Staged:
        """A camera at +z, as near as shows the middle of the walks; people may walk out of the image and in again."""
        size, rng = self.size, self.rng
        camera = Camera.from_focal(rng.uniform(0.65, 1.1) * math.hypot(*size), size)
        centers = np.mean([p.joints[:, 0].double().numpy() for p in people], axis=0)
        nearest = max(float(p.path[:, 1].max()) for p in people) - float((centers.min(0) + centers.max(0))[2] / 2)
        tall = rng.uniform(0.6, 0.9)  # of the image's height, a person in the front lane
        distance = nearest + camera.focal_px[1] * 1.7 / (tall * size[1])
        height = rng.uniform(1.1, 1.9)
        pitch = math.degrees(math.atan2(height - 0.9, distance))
        view = staging.StagedView(rng.normal(0, 0.12), distance, height, pitch, rng.normal(0, 1))
        path = staging.camera_path(view, kind, centers, self.plan.fps, rng)
        return Staged(people, objects, view.azimuth, path, camera, kind)


def scripted_plan(seed: int, number: int, scripts: tuple[SceneScript, ...]) -> ScriptedPlan:
    script = scripts[number % len(scripts)]
    turn = number // len(scripts)
    count, uniforms = _CASTS[script][(turn + seed) % len(_CASTS[script])]
    kind: Kind = "walking"
    if script == "world":
        kind, count, *_ = WORLDS[turn % len(WORLDS)]
    looks = "_uniforms" if uniforms else ""
    name = f"{script}_{number:03d}_{kind + '_' if script == 'world' else ''}{count}p{looks}"
    return ScriptedPlan(name, script, count, uniforms, kind, turn, FRAME_RATE[script], (seed, number))


def build_shots(
    plan: ScriptedPlan, body: Body, clips: dict[Kind, list[Clip]], size: tuple[int, int], seconds: float | None = None
) -> list[ScriptedShot]:
    """seconds: of the whole sequence; None: as the script has it."""
    frames, everybody = round((seconds or _SECONDS[plan.script]) * plan.fps), list(range(plan.people))
    on = Stage(plan, body, clips, size, plan.rng("script"))
    shapes = [draw_shape(plan.rng(f"shape {n}")) for n in everybody]
    wardrobe = _outfits(plan)
    if plan.script == "world":
        staged, of = _world(on, frames)
        return [_filmed(on, 0, staged, everybody, wardrobe, [kind == "stairs" for kind in of])]
    scripts = {"crossing": (_crossing,), "embrace": (_embrace,), "behind": (_behind,)}
    # With cuts three shots; from the second on somebody may be missing, and is back later.
    chosen = scripts.get(plan.script, (_crossing, _behind, _crossing))
    parts, shots = np.diff(np.linspace(0, frames, len(chosen) + 1).round().astype(int)).tolist(), []
    for number, (script, length) in enumerate(zip(chosen, parts, strict=True)):
        who = everybody.copy()
        if number == 1 and plan.people > 2:
            who.pop(int(on.rng.integers(len(who))))
        shots.append((script(on, [shapes[n] for n in who], length), who))
    return [
        _filmed(on, number, staged, who, wardrobe, [False] * len(who)) for number, (staged, who) in enumerate(shots)
    ]


def _clip_heading(clip: Clip) -> float:
    went = (clip.root_m[-1] - clip.root_m[0])[::2]
    return float(torch.atan2(went[0], went[1]))


def _crossing(on: Stage, shapes: list[Tensor], frames: int) -> Staged:
    """People walk past each other across the view, each in a lane of their own, close behind one another. The camera
    stands at +z and looks along -z, so lanes are depths."""
    rng, people = on.rng, []
    order = rng.permutation(len(shapes))
    for lane, place in enumerate(order):
        heading = (math.pi / 2 if lane % 2 else -math.pi / 2) + rng.normal(0, 0.15)
        walker = on.walker(shapes[place], frames, heading)
        lane_m = (lane - (len(shapes) - 1) / 2) * rng.uniform(0.55, 0.8)
        people.append(moved_to(on.body, walker, rng.uniform(-0.6, 0.6), -lane_m))
    in_order = [people[int(np.flatnonzero(order == n)[0])] for n in range(len(shapes))]
    kind: staging.StagedCameraKind = ("static", "pan", "hand")[int(rng.integers(3))]
    return on.close_up(in_order, [], kind)


def _behind(on: Stage, shapes: list[Tensor], frames: int) -> Staged:
    """People walk behind something high and wide in the middle and come out, on the other side or on the same."""
    rng, people = on.rng, []
    for lane, shape in enumerate(shapes):
        heading = (math.pi / 2 if lane % 2 else -math.pi / 2) + rng.normal(0, 0.1)
        walker = on.walker(shape, frames, heading)
        back = -0.75 * lane - 0.3 * float(np.ptp(walker.path[:, 1]))
        people.append(moved_to(on.body, walker, rng.uniform(-0.5, 0.5), back))
    front = max(float(p.path[:, 1].max()) for p in people) + 0.4
    walked = float(np.mean([np.ptp(p.path[:, 0]) for p in people]))
    wide = float(np.clip(rng.uniform(0.25, 0.4) * walked, 0.45, 1.3))  # hides people for a part of their way
    what = str(rng.choice(["posters", "painted", "concrete", "planks"]))
    wall = surroundings.box((wide, 2.3, 0.25), what).moved((rng.uniform(-0.2, 0.2), 0, front + 0.2))
    return on.close_up(people, [wall], "static")


def _embrace(on: Stage, shapes: list[Tensor], frames: int) -> Staged:
    """Two walk up to each other, hold each other for two seconds and part; anybody else walks past behind or before."""
    rng, fps, step, people = on.rng, on.plan.fps, FPS // on.plan.fps, []
    for shape, sign in zip(shapes, (1, -1), strict=False):
        clip = on.walking_clip()
        coming = min(round(2.1 * fps), (len(clip.pose) - 1) // step)
        hold = round(rng.uniform(1.8, 2.2) * fps)
        rows = np.concatenate((np.arange(coming), np.full(hold, coming), np.arange(coming, -1, -1))) * step
        rows = np.pad(rows, (0, max(0, frames - len(rows))), mode="edge")[:frames]
        since = np.clip((np.arange(frames) - coming + 0.35 * fps) / (0.5 * fps), 0, 1)
        until = np.clip((coming + hold + 0.25 * fps - np.arange(frames)) / (0.5 * fps), 0, 1)
        pose = _arms_around(clip.pose[rows], torch.from_numpy(np.minimum(since, until)).float())
        yaw = sign * math.pi / 2 - _clip_heading(clip)
        walker = staging.staged_person(on.body, clip, rows, shape, 1.0, yaw, fps, pose=pose)
        met = walker.path[min(coming + hold // 2, frames - 1)]
        people.append(moved_to(on.body, walker, float(-0.14 * sign - met[0]), float(rng.normal(0, 0.04) - met[1])))
    for number, shape in enumerate(shapes[2:]):
        walker = on.walker(shape, frames, math.pi / 2 if number % 2 else -math.pi / 2)
        people.append(moved_to(on.body, walker, 0.0, float(rng.choice((-1, 1))) * 0.9))
    return on.close_up(people, [], "static" if rng.random() < 0.6 else "hand")


def _arms_around(pose: Tensor, share: Tensor) -> Tensor:
    """Both arms reach forward by a share [T] of the way, elbows bent inwards."""
    target = pose.clone()
    target[:, _ARMS] = torch.tensor([[0.0, -1.25, -0.15], [0.0, 1.25, 0.15], [0.0, -0.9, 0.0], [0.0, 0.9, 0.0]])
    a, b = axis_angle_to_quaternion(pose), axis_angle_to_quaternion(target)
    b = torch.where((a * b).sum(-1, keepdim=True) < 0, -b, b)
    return quaternion_to_axis_angle(torch.nn.functional.normalize(torch.lerp(a, b, share[:, None, None]), dim=-1))


def _world(on: Stage, frames: int) -> tuple[Staged, list[Kind]]:
    """People on one floor, with boxes to sit on and steps where they take them, all of them in view; what each does."""
    kind, count, child, camera_kind, share = WORLDS[on.plan.turn % len(WORLDS)]
    kinds: list[Kind] = [kind, *[_COMPANY.get(kind, kind)] * (count - 1)]
    camera, rng, fps = Camera.from_focal(share * math.hypot(*on.size), on.size), on.rng, on.plan.fps
    found, people = None, []
    while found is None:
        chosen = [on.clips[of][int(rng.integers(len(on.clips[of])))] for of in kinds]
        sizes = [staging.draw_size(rng, child=child and place == count - 1) for place in range(count)]
        people = staging.stage(on.body, chosen, list(kinds), sizes, frames, fps, rng)
        tries = (staging.framed(people, camera, camera_kind, fps, rng, least_tall=0.3) for _ in range(6))
        found = next((one for one in tries if one is not None), None)
    view, path = found
    objects: list[Solid] = []
    for person, of in zip(people, kinds, strict=True):
        objects += _seat(person) if of == "sitting" else _steps(person) if of == "stairs" else []
    return Staged(people, objects, view.azimuth, path, camera, camera_kind), kinds


def _seat(person: SyntheticPerson) -> list[Solid]:
    """A box under the lowest place of the pelvis."""
    pelvis = person.joints[:, 0].double().numpy()
    sits = pelvis[:, 1] < np.quantile(pelvis[:, 1], 0.25) + 0.04
    spot = np.median(pelvis[sits], axis=0)
    forward = (person.joints[sits][:, (4, 5)].mean(1) - person.joints[sits][:, 0]).mean(0).numpy()
    forward = forward * (1, 0, 1) / max(float(np.linalg.norm(forward[::2])), 1e-6)
    high = float(pelvis[sits, 1].min()) - 0.105 * person.size
    box = surroundings.box((0.5, high, 0.42), "planks")
    back = spot - 0.06 * forward
    return [box.moved((back[0], 0, back[2]), float(np.arctan2(forward[0], forward[2])))]


def _steps(person: SyntheticPerson) -> list[Solid]:
    """A block under every place where a foot rests above the floor."""
    feet = person.keypoints[:, (20, 21, 24, 25)].double().numpy()  # big toes, heels
    blocks: list[Solid] = []
    tops: list[tuple[np.ndarray, float]] = []
    for side in (0, 1):
        foot = feet[:, (side, side + 2)]
        sole = foot[..., 1].min(1) - 0.02 * person.size
        speed = np.linalg.norm(np.gradient(foot.mean(1), axis=0), axis=1)
        for frame in np.flatnonzero((speed < 0.008) & (sole > 0.07)):
            spot, high = foot[frame].mean(0)[::2], float(sole[frame])
            if all(np.linalg.norm(spot - s) > 0.3 or abs(high - h) > 0.06 for s, h in tops):
                tops.append((spot, high))
                blocks.append(surroundings.box((0.42, high, 0.42), "concrete").moved((spot[0], 0, spot[1])))
    return blocks


def _outfits(plan: ScriptedPlan) -> list[Outfit]:
    """One for each person; uniforms differ in skin and hair alone."""
    outfits = [draw_outfit(plan.rng(f"looks {n}")) for n in range(plan.people)]
    if not plan.uniforms:
        return outfits
    first = outfits[0]
    return [
        replace(first, skin=one.skin, hair=one.hair, hair_thickness_m=one.hair_thickness_m,
                hair_falls_to_m=one.hair_falls_to_m, beard=one.beard)
        for one in outfits
    ]  # fmt: skip


def _filmed(
    on: Stage, number: int, staged: Staged, identities: list[int], wardrobe: list[Outfit], has_steps: list[bool]
) -> ScriptedShot:
    plan, rng = on.plan, on.plan.rng(f"scene {number}")
    kind = SCENE_KINDS[(plan.seed[1] + number + plan.seed[0]) % len(SCENE_KINDS)]
    paths = np.concatenate([person.path for person in staged.people])
    around = build_scene(kind, ClearArea(paths, staged.path.positions_m[:, ::2], staged.azimuth), rng)
    around.solids.extend(staged.objects)
    clothed = [
        clothed_body(on.body, person.shape, wardrobe[identity], plan.rng(f"cloth {identity}"))  # alike in every shot
        for person, identity in zip(staged.people, identities, strict=True)
    ]
    shot_plan = SequencePlan(
        name=plan.name, people=tuple(ClipChoice(0, mirrored=False) for _ in staged.people), bystanders=(), scene=kind,
        occlusion="none", view=CameraView("fixed", staged.azimuth, 0.0, 0.0, 0.0, 0.0, 0.0),
        focal_px=staged.camera.focal_px[0], sensor=draw_sensor(plan.rng(f"sensor {number}"), on.size[0]),
        crossing=plan.script == "crossing", seed=(plan.seed[0], 1000 * plan.seed[1] + number),
    )  # fmt: skip
    mesh = build_scene_mesh(clothed, around, rng)
    sequence = SyntheticSequence(shot_plan, staged.people, [], clothed, staged.camera, staged.path, mesh)
    return ScriptedShot(sequence, identities, staged.camera_kind, has_steps)
