"""What sequences show: people who walk about; who cross, embrace, hide and come back, with and
without cuts; who are on a floor.

A script stages people, things around them and a camera that records them. A sequence has one or
more shots: at a cut another camera shows another place, with all or some of the same people in the
same clothes."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from eval3dpw.synth import staging, surroundings
from eval3dpw.synth.clothed_people import ClothedBody, Outfit, clothed_body, draw_outfit
from eval3dpw.synth.motion import FPS, Clip, Kind
from eval3dpw.synth.rendering import build_scene_mesh
from eval3dpw.synth.sequence import Shot
from eval3dpw.synth.staging import (
    CameraKind,
    CameraPath,
    SyntheticPerson,
    draw_shape,
    heading,
    staged_person,
)
from eval3dpw.synth.surroundings import OCCLUSION_LEVELS, SCENE_KINDS, OcclusionLevel, Solid
from fitting.body import Body
from fitting.body.kinematics import axis_angle_to_quaternion, quaternion_to_axis_angle
from fitting.camera import Camera

SceneScript = Literal["crossing", "embrace", "behind", "cuts", "world"]
SCRIPTS: tuple[SceneScript, ...] = ("crossing", "embrace", "behind", "cuts", "world")
# Sequences of each script, in turn: how many people, and whether they wear the same clothes.
_CASTS: dict[SceneScript, tuple[tuple[int, bool], ...]] = {
    "crossing": ((2, False), (4, False), (3, True), (6, False)),
    "embrace": ((2, False), (3, True)),
    "behind": ((2, False), (4, False), (3, True)),
    "cuts": ((3, False), (4, True), (2, False)),
    "world": ((1, False),),
}
_SECONDS: dict[SceneScript, float] = {
    "crossing": 6.0,
    "embrace": 6.5,
    "behind": 7.0,
    "cuts": 7.5,
    "world": 4.5,
}
# What rendered worlds show, in turn: kind, people, a child among them, camera, focal length over
# the diagonal.
WORLDS: tuple[tuple[Kind, int, bool, CameraKind, float], ...] = (
    ("walking", 1, False, "static", 0.62),
    ("walking", 3, True, "static", 0.95),
    ("jumping", 1, False, "static", 0.72),
    ("sitting", 2, False, "static", 0.80),
    ("walking", 2, True, "pan", 1.25),
    ("stairs", 1, False, "static", 0.66),
    ("standing", 2, True, "hand", 0.58),
    ("walking", 4, True, "hand", 1.05),
)
_COMPANY: dict[Kind, Kind] = {"sitting": "standing", "stairs": "walking"}
_ARMS = [16, 17, 18, 19]  # left and right shoulder, left and right elbow
# Of people who walk about, in turn.
CAMERAS: tuple[CameraKind, ...] = ("static", "hand", "pan", "orbit", "hand", "dolly")
CAMERA_NAMES: dict[CameraKind, str] = {
    "static": "fixed"
}  # in the names of sequences, where they are others
BYSTANDER_SHARE: dict[OcclusionLevel, float] = {
    "none": 0.25,
    "some": 0.4,
    "heavy": 0.5,
}  # of sequences with one
_APART_M = 0.6
_FROM_CAMERA_M = 2.2
_FARTHEST_M = 14.0


@dataclass(frozen=True)
class Plan:
    """One sequence: drawn from the seed and its number alone."""

    name: str
    seed: tuple[int, int]  # of everything that is drawn later
    people: int
    script: SceneScript | None = None  # None: people walk about
    turn: int = 0  # how many sequences of this script come before
    uniforms: bool = False
    kind: Kind = "walking"  # of motion, where there is a script
    camera: CameraKind = "static"  # of people who walk about
    occlusion: OcclusionLevel = "none"
    bystanders: int = 0  # in the images, but not in the truth

    @property
    def fps(self) -> int:
        return FPS if self.script in (None, "world") else FPS // 2

    def rng(self, what: str) -> np.random.Generator:
        """A generator for one part, so that a change of one part leaves the others as they were.
        The names are part of the seed: another name makes other images."""
        return np.random.default_rng([*self.seed, *what.encode()])

    def outfit(self, identity: int) -> Outfit:
        """Uniforms differ in skin and hair alone."""
        own = draw_outfit(self.rng(f"looks {identity}"))
        if not self.uniforms:
            return own
        return replace(
            draw_outfit(self.rng("looks 0")),
            skin=own.skin,
            hair=own.hair,
            hair_thickness_m=own.hair_thickness_m,
            hair_falls_to_m=own.hair_falls_to_m,
            beard=own.beard,
        )

    def dressed(
        self, people: Sequence[SyntheticPerson], identities: Sequence[int], body: Body
    ) -> list[ClothedBody]:
        """In clothes that are the same in every shot."""
        each = zip(people, identities, strict=True)
        return [
            clothed_body(body, p.shape, self.outfit(n), self.rng(f"cloth {n}")) for p, n in each
        ]


def draw_plan(seed: int, number: int, scripts: Sequence[SceneScript] = ()) -> Plan:
    """scripts: in turn; none: people walk about."""
    if not scripts:
        count = 2 if number % 5 in (1, 3) else 1
        camera = CAMERAS[(number // 2 + number) % len(CAMERAS)]
        level = OCCLUSION_LEVELS[number % len(OCCLUSION_LEVELS)]
        place = SCENE_KINDS[(number + seed) % len(SCENE_KINDS)]
        kind = CAMERA_NAMES.get(camera, camera)
        bystanders = int(np.random.default_rng([seed, number]).random() < BYSTANDER_SHARE[level])
        name = f"synth_{number:03d}_{place}_{count}p_{kind}_{level}"
        return Plan(
            name, (seed, number), count, camera=camera, occlusion=level, bystanders=bystanders
        )
    script = scripts[number % len(scripts)]
    turn = number // len(scripts)
    count, uniforms = _CASTS[script][(turn + seed) % len(_CASTS[script])]
    motion: Kind = "walking"
    if script == "world":
        motion, count, *_ = WORLDS[turn % len(WORLDS)]
    looks = "_uniforms" if uniforms else ""
    name = f"{script}_{number:03d}_{motion + '_' if script == 'world' else ''}{count}p{looks}"
    return Plan(name, (seed, number), count, script, turn, uniforms, motion)


@dataclass(frozen=True)
class Stage:
    """What every script works with."""

    plan: Plan
    body: Body
    clips: Mapping[str, Sequence[Clip]]  # by kind; without a script all of them are under "any"
    size: tuple[int, int]  # of the images
    frames: int  # of the shot, at most
    rng: np.random.Generator
    who: list[int]  # identities of the people
    number: int = 0  # of the shot

    def shape(self, identity: int) -> Tensor:
        return draw_shape(self.plan.rng(f"shape {identity}"))

    def walking_clip(self) -> Clip:
        clips = self.clips["walking"]
        return clips[int(self.rng.integers(len(clips)))]

    def walker(self, identity: int, direction: float) -> SyntheticPerson:
        """Somebody who walks along `direction` (radians, x = sin) and, when the clip ends,
        backwards again.
        """
        clip = self.walking_clip()
        fps = self.plan.fps
        clip = clip.mirrored() if self.rng.random() < 0.5 else clip
        rows = staging.there_and_back(len(clip.pose), self.frames * (FPS // fps))[:: FPS // fps]
        yaw = direction - heading(clip.root_m)
        return staged_person(self.body, clip, rows, self.shape(identity), 1.0, yaw, fps)

    def close_up(
        self,
        people: list[SyntheticPerson],
        kind: CameraKind,
        azimuth: float,
        tall: float,
        height_m: float,
        aim_m: float = 0.9,
        everybody: bool = False,
    ) -> tuple[Camera, CameraPath]:
        """As near as a person in front is so tall, of the image's height. everybody: and as far as
        shows nearly all of the walks; otherwise people may walk out of the image and in again."""
        size = self.size
        rng = self.rng
        camera = Camera.from_focal(rng.uniform(0.65, 1.1) * math.hypot(*size), size)
        pelvises = np.stack([p.joints[:, 0].double().numpy() for p in people], 1)
        centers = pelvises.mean(1)
        towards = np.array([math.sin(azimuth), 0, math.cos(azimuth)])
        nearest = float(((pelvises - (centers.min(0) + centers.max(0)) / 2) @ towards).max())
        distance = nearest + camera.focal_px[1] * 1.7 / (tall * size[1])
        roll = rng.normal(0, 1)
        seed = int(rng.integers(2**31))
        while True:
            pitch = math.degrees(math.atan2(height_m - aim_m, distance))
            view = staging.StagedView(azimuth, distance, height_m, pitch, roll)
            path = staging.camera_path(
                view, kind, centers, self.plan.fps, np.random.default_rng(seed)
            )
            x, _, z = np.moveaxis(path.in_camera(pelvises), -1, 0)
            inside = np.abs(x) * camera.focal_px[0] < 0.40 * size[0] * np.maximum(z, 0.1)
            if not everybody or inside.mean() >= 0.95 or distance > _FARTHEST_M:
                return camera, path
            distance *= 1.1

    def film(
        self,
        people: list[SyntheticPerson],
        camera: Camera,
        kind: CameraKind,
        path: CameraPath,
        objects: Sequence[Solid] = (),
        bystanders: Sequence[SyntheticPerson] = (),
    ) -> Shot:
        """In a place that is built around the people, with what may hide them."""
        plan = self.plan
        rng = self.plan.rng(f"scene {self.number}")
        place = SCENE_KINDS[(sum(plan.seed) + self.number) % len(SCENE_KINDS)]
        everyone = [*people, *bystanders]
        area = surroundings.ClearArea(
            np.concatenate([p.path for p in everyone]), path.positions_m[:, ::2]
        )
        around = surroundings.build_scene(place, area, rng)
        keypoints = torch.stack([person.keypoints[::5, :17] for person in people], 1).numpy()
        views = path.camera_from_world[::5]
        hiding = surroundings.place_occluders(
            plan.occlusion, area, keypoints, views, camera, place, rng
        )
        around.solids.extend([*objects, *hiding])
        clothed = plan.dressed(
            everyone, [*self.who, *range(plan.people, plan.people + len(bystanders))], self.body
        )
        mesh = build_scene_mesh(clothed, around, rng)
        sensor = staging.draw_sensor(plan.rng(f"sensor {self.number}"), self.size[0])
        return Shot(
            people,
            self.who,
            list(bystanders),
            clothed,
            camera,
            kind,
            path,
            place,
            mesh,
            sensor,
            (*plan.seed, self.number),
        )


def build_shots(
    plan: Plan,
    body: Body,
    clips: Mapping[str, Sequence[Clip]],
    size: tuple[int, int],
    frames: int | None = None,
) -> list[Shot]:
    """frames: of the whole sequence; None: as the script has it."""
    if frames is None:
        assert plan.script is not None
        frames = round(_SECONDS[plan.script] * plan.fps)
    # With cuts three shots; from the second on somebody may be missing, and is back later.
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
        who = list(range(plan.people))
        if number == 1 and plan.people > 2:
            who.pop(int(rng.integers(len(who))))
        shots.append(script(Stage(plan, body, clips, size, length, rng, who, number)))
    return shots


def walk_about(on: Stage, tall: float | None = None) -> Shot:
    """One or two people do what was captured, together or past each other. tall: of the image's
    height.
    """
    plan = on.plan
    rng = on.rng
    clips = on.clips["any"]
    # Clips in random order, so that they all come before one is seen again.
    order = np.random.default_rng([plan.seed[0], len(clips)]).permutation(len(clips))
    chosen = [clips[order[(2 * plan.seed[1] + n) % len(clips)]] for n in on.who]
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
    """A camera at +z that looks along -z at people who walk to the left and right, so lanes are
    depths.
    """
    rng = on.rng
    camera, path = on.close_up(
        people, kind, rng.normal(0, 0.12), rng.uniform(0.6, 0.9), rng.uniform(1.1, 1.9)
    )
    return on.film(people, camera, kind, path, objects)


def _crossing(on: Stage) -> Shot:
    """People walk past each other across the view, each in a lane of their own, close behind one
    another.
    """
    rng = on.rng
    people = []
    for identity, lane in zip(on.who, rng.permutation(len(on.who)), strict=True):
        walker = on.walker(
            identity, (math.pi / 2 if lane % 2 else -math.pi / 2) + rng.normal(0, 0.15)
        )
        lane_m = (lane - (len(on.who) - 1) / 2) * rng.uniform(0.55, 0.8)
        people.append(walker.moved_to(rng.uniform(-0.6, 0.6), -lane_m))
    kinds: tuple[CameraKind, ...] = ("static", "pan", "hand")
    return _lanes(on, kinds[int(rng.integers(3))], people)


def _behind(on: Stage) -> Shot:
    """People walk behind something high and wide in the middle and come out, on the other side or
    on the same.
    """
    rng = on.rng
    people = []
    for lane, identity in enumerate(on.who):
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
    what = str(rng.choice(["posters", "painted", "concrete", "planks"]))
    wall = surroundings.box((wide, 2.3, 0.25), what).moved((rng.uniform(-0.2, 0.2), 0, front + 0.2))
    return _lanes(on, "static", people, [wall])


def _embrace(on: Stage) -> Shot:
    """Two walk up to each other, hold each other for two seconds and part; anybody else walks past
    behind or before.
    """
    rng = on.rng
    fps = on.plan.fps
    step = FPS // on.plan.fps
    frames = on.frames
    people = []
    for identity, sign in zip(on.who, (1, -1), strict=False):
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
    for number, identity in enumerate(on.who[2:]):
        walker = on.walker(identity, math.pi / 2 if number % 2 else -math.pi / 2)
        people.append(walker.moved_to(0.0, float(rng.choice((-1, 1))) * 0.9))
    return _lanes(on, "static" if rng.random() < 0.6 else "hand", people)


def _arms_around(pose: Tensor, share: Tensor) -> Tensor:
    """Both arms reach forward by a share [T] of the way, elbows bent inwards."""
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
    """People on one floor, with boxes to sit on and steps where they take them, all of them in
    view.
    """
    kind, count, child, camera_kind, share = WORLDS[on.plan.turn % len(WORLDS)]
    kinds: list[Kind] = [kind, *[_COMPANY.get(kind, kind)] * (count - 1)]
    camera = Camera.from_focal(share * math.hypot(*on.size), on.size)
    rng = on.rng
    fps = on.plan.fps
    path = None
    people = []
    while path is None:
        chosen = [on.clips[of][int(rng.integers(len(on.clips[of])))] for of in kinds]
        sizes = [
            staging.draw_size(rng, child=child and place == count - 1) for place in range(count)
        ]
        people = staging.stage(on.body, chosen, list(kinds), sizes, on.frames, fps, rng)
        tries = (
            staging.framed(people, camera, camera_kind, fps, rng, least_tall=0.3) for _ in range(6)
        )
        path = next((one for one in tries if one is not None), None)
    objects: list[Solid] = []
    for person, of in zip(people, kinds, strict=True):
        objects += _seat(person) if of == "sitting" else _steps(person) if of == "stairs" else []
    return on.film(people, camera, camera_kind, path, objects)


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
            spot = foot[frame].mean(0)[::2]
            high = float(sole[frame])
            if all(np.linalg.norm(spot - s) > 0.3 or abs(high - h) > 0.06 for s, h in tops):
                tops.append((spot, high))
                blocks.append(
                    surroundings.box((0.42, high, 0.42), "concrete").moved((spot[0], 0, spot[1]))
                )
    return blocks
