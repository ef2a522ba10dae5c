"""Render people and read their keypoints, to measure where a network puts them on the body."""

from dataclasses import dataclass, replace
from pathlib import Path

import cv2
import numpy as np
import torch

from eval3dpw.synth.motion import load_clips
from eval3dpw.synth.plans import draw_plan
from eval3dpw.synth.rendering import seen_by
from eval3dpw.synth.scripted import walk_about
from eval3dpw.synth.sensors import exposure_gain, sensor_image
from eval3dpw.synth.sequence import exposed_light
from eval3dpw.synth.stage import Stage
from fitting.body import Body
from fitting.body.kinematics import JOINT_NAMES
from fitting.body.rotations import rotation_matrices
from pose2d.skeletons import HALPE26

SEED = 2601
SIZE = (720, 720)
FRAMES = 4  # of each sequence, spread over 40
BOX_SCALE = 1.25
INPUT = (192, 256)
LEAST_SCORE = 0.3  # the network says itself that it does not see the others
NAMES = HALPE26.keypoints
MIRROR = HALPE26.flip_order
# Which bone each offset turns with, and how deep (metres) a visible keypoint may lie under the
# surface before it.
BONES = {
    "nose": ("head", 0.06),
    "eye": ("head", 0.05),
    "ear": ("head", 0.08),
    "shoulder": ("collar", 0.17),
    "elbow": ("shoulder", 0.12),
    "wrist": ("elbow", 0.10),
    "hip": ("pelvis", 0.24),
    "knee": ("hip", 0.16),
    "ankle": ("knee", 0.14),
    "head_top": ("head", 0.08),
    "neck": ("spine3", 0.15),
    "pelvis": ("pelvis", 0.24),
    "big_toe": ("foot", 0.06),
    "small_toe": ("foot", 0.06),
    "heel": ("ankle", 0.07),
}


@dataclass(frozen=True)
class Observations:
    """N rendered people."""

    sequence: np.ndarray  # [N]
    rotation_cam: np.ndarray  # [N, 24, 3, 3] of the bones in the camera frame
    points_cam: np.ndarray  # [N, 26, 3] metres
    in_view: np.ndarray  # [N, 26] bool
    projected_px: np.ndarray  # [N, 26, 2]
    found_px: np.ndarray  # [N, 26, 2] the network's
    score: np.ndarray  # [N, 26]
    focal_px: np.ndarray  # [N]


def render(folder: Path, body: Body, motion: Path | None, sequences: int) -> None:
    """Images and truth of every sequence, each written once."""
    clips = load_clips(body, "test" if motion is None else "train", motion)
    for number in range(sequences):
        path = folder / f"{number:03d}.npz"
        if path.is_file():
            continue
        drawn = replace(
            draw_plan(SEED, number), people=1, bystanders=0, occlusion="none", camera="orbit"
        )
        rendered = walk_about(
            Stage(drawn, body, {"any": clips}, SIZE, 40, drawn.rng("script"), [0]), tall=0.78
        )
        person = rendered.people[0]
        posed = rendered.posed()
        rng = drawn.rng("sensor")
        frames = np.linspace(0, rendered.frames - 1, FRAMES).astype(int)
        images = []
        depths = []
        transforms = []
        for frame in frames:
            light = exposed_light(rendered, posed, int(frame))
            image = sensor_image(rendered.sensor, light, exposure_gain(rendered.sensor, light), rng)
            transform = rendered.path.world_to_cam(float(frame))
            buffer = seen_by(
                rendered.mesh.vertices_m([posed[0][frame]]),
                rendered.mesh.faces,
                rendered.camera,
                transform,
            )
            images.append(image)
            depths.append(
                np.where(
                    rendered.mesh.owner(buffer) == -2,
                    np.inf,
                    1 / np.maximum(buffer.inverse_depth, 1e-6),
                )
            )
            transforms.append(transform)
        np.savez_compressed(
            path,
            images=np.stack(images),
            surface_m=np.stack(depths).astype(np.float16),
            world_to_cam=np.stack(transforms),
            box_vertices_m=np.stack([posed[0][frame] for frame in frames]),
            pose=person.pose[frames].numpy(),
            shape=person.shape.numpy(),
            translation=person.translation[frames].numpy(),
            focal_px=rendered.camera.focal_px[0],
        )
        print(f"rendered {number + 1} of {sequences}", flush=True)


def detect(folder: Path, onnx: Path) -> None:
    """The network's keypoints beside every rendered sequence."""
    network = None
    for path in sorted(folder.glob("[0-9]*.npz")):
        found_path = folder / f"found_{path.name}"
        if found_path.is_file():
            continue
        network = network or _Network(onnx)
        with np.load(path) as file:
            results = []
            for frame, transform in enumerate(file["world_to_cam"]):
                outline = _project(
                    file["box_vertices_m"][frame], transform, float(file["focal_px"])
                )[1]
                results.append(
                    network(file["images"][frame], np.array([outline.min(0), outline.max(0)]))
                )
        xy, score, full = (np.stack([np.asarray(row[k]) for row in results]) for k in range(3))
        np.savez(found_path, xy_px=xy, score=score, whole=full)


def observe(folder: Path, body: Body, regressor: np.ndarray) -> Observations:
    """`regressor` [26, V] says where the body's keypoints are among its posed vertices."""
    rows: dict[str, list[np.ndarray]] = {field: [] for field in Observations.__dataclass_fields__}
    for number, found_path in enumerate(sorted(folder.glob("found_*.npz"))):
        with (
            np.load(folder / found_path.name.removeprefix("found_")) as file,
            np.load(found_path) as result,
        ):
            shape = np.pad(file["shape"], (0, body.shape_size - len(file["shape"])))
            out = body(file["pose"], shape, file["translation"], vertices=True)
            assert out.vertices is not None
            placed = body.placement(
                rotation_matrices(torch.from_numpy(file["pose"])), torch.from_numpy(shape)
            )
            points = regressor @ out.vertices.numpy()
            focal = float(file["focal_px"])
            surface = file["surface_m"].astype(float)
            for frame, transform in enumerate(file["world_to_cam"]):
                if not result["whole"][frame]:
                    continue
                in_cam, pixels = _project(points[frame], transform, focal)
                rows["sequence"].append(np.array(number))
                rows["rotation_cam"].append(transform[:3, :3] @ placed.rotation[frame].numpy())
                rows["points_cam"].append(in_cam)
                rows["in_view"].append(_in_view(surface[frame], pixels, in_cam[:, 2]))
                rows["projected_px"].append(pixels)
                rows["found_px"].append(result["xy_px"][frame])
                rows["score"].append(result["score"][frame])
                rows["focal_px"].append(np.array(focal))
    return Observations(**{field: np.stack(values) for field, values in rows.items()})


def _project(
    points_m: np.ndarray, world_to_cam: np.ndarray, focal_px: float
) -> tuple[np.ndarray, np.ndarray]:
    """World points [n, 3] -> camera frame [n, 3] and pixels [n, 2]."""
    in_cam = points_m @ world_to_cam[:3, :3].T + world_to_cam[:3, 3]
    return in_cam, in_cam[:, :2] / in_cam[:, 2:] * focal_px + np.array(SIZE) / 2


class _Network:
    def __init__(self, onnx: Path) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self._session = onnxruntime.InferenceSession(
            str(onnx), options, providers=["CPUExecutionProvider"]
        )

    def __call__(self, image: np.ndarray, box: np.ndarray) -> tuple[np.ndarray, np.ndarray, bool]:
        """Keypoints [26, 2] px and scores [26] of an RGB image and a box [[x1, y1], [x2, y2]];
        whether it is inside.

        The image and its mirror image are averaged, so that no preference for a side remains.
        """
        center = box.mean(0)
        wide, high = (box[1] - box[0]) * BOX_SCALE
        scale = max(wide / INPUT[0], high / INPUT[1])
        into = np.column_stack([np.eye(2) / scale, np.array(INPUT) / 2 - center / scale])
        shrunk = cv2.GaussianBlur(image, (0, 0), 0.4 * scale) if scale > 1.3 else image
        crop = cv2.warpAffine(shrunk, into, INPUT, flags=cv2.INTER_LINEAR)
        batch = np.stack([crop, crop[:, ::-1]]).astype(np.float32)
        batch = (batch - (123.675, 116.28, 103.53)) / (58.395, 57.12, 57.375)
        x, y = self._session.run(None, {"input": batch.transpose(0, 3, 1, 2).astype(np.float32)})
        score = np.minimum(x.max(-1), y.max(-1)).clip(0, 1)
        xy = np.stack([_peak(x), _peak(y)], -1)
        xy[1, :, 0] = INPUT[0] - 1 - xy[1, :, 0]
        xy[1] = xy[1][MIRROR]
        score[1] = score[1][MIRROR]
        return (
            (xy.mean(0) - np.array(INPUT) / 2) * scale + center,
            score.min(0),
            bool((box >= 0).all() and (box < SIZE).all()),
        )


def _peak(simcc: np.ndarray) -> np.ndarray:
    """Position in input pixels: the middle of mass within six bins of the maximum; two bins a
    pixel.
    """
    peak = simcc.argmax(-1)
    bins = np.arange(simcc.shape[-1])
    near = np.abs(bins - peak[..., None]) <= 6
    mass = np.where(near, simcc.clip(0), 0)
    return (mass * bins).sum(-1) / np.maximum(mass.sum(-1), 1e-9) / 2


def kind_of(name: str) -> str:
    return name.removeprefix("left_").removeprefix("right_")


def bone(number: int) -> int:
    """The joint that a keypoint's offset turns with."""
    name = NAMES[number]
    joint = BONES[kind_of(name)][0]
    side = name.split("_")[0]
    return JOINT_NAMES.index(f"{side}_{joint}" if f"{side}_{joint}" in JOINT_NAMES else joint)


def _in_view(surface_m: np.ndarray, pixels: np.ndarray, depth_m: np.ndarray) -> np.ndarray:
    x, y = np.round(pixels).astype(int).clip(0, np.array(SIZE) - 1).T
    allowed = np.array([BONES[kind_of(name)][1] for name in NAMES])
    return surface_m[y, x] > depth_m - allowed
