"""Where RTMPose-s puts its 26 keypoints, and where the open body has them: the systematic
difference, in millimetres.

    python bench/keypoint_offsets.py --onnx rtmpose_s_halpe26_256x192.onnx --motion clips_30fps.npz --work FOLDER

People of many shapes, in clothes and shoes, are rendered in poses of the CMU motion capture, from
all sides and nobody in their way. For a keypoint on a bone with rotation G_i in image i, the
network's position is modelled as the projection of

    q_i + G_i o,    one o for all images, along the axes of the rest pose (x to the left, y up, z to the front),

left and right being mirror images. o is found by robust least squares on half of the sequences, and
the remaining errors are measured on the other half. An o that stays is a different definition of
the keypoint; what is left after it is the network's noise. Only keypoints that are in view are
counted. docs/body.md has the table.
"""

import argparse
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import cv2
import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from rich.table import Table

from bench.lib.claim import Console, claim
from eval3dpw.synth.motion import load_clips
from eval3dpw.synth.plans import draw_plan
from eval3dpw.synth.rendering import seen_by
from eval3dpw.synth.scripted import walk_about
from eval3dpw.synth.sensors import exposure_gain, sensor_image
from eval3dpw.synth.sequence import exposed_light
from eval3dpw.synth.stage import Stage
from fitting.body import Body
from fitting.body.kinematics import JOINT_NAMES
from fitting.body.load import load_body
from fitting.body.open_body import OPEN_BODY
from fitting.body.rotations import rotation_matrices

SEED = 2601
SIZE = (720, 720)
FRAMES = 4  # of each sequence, spread over 40
BOX_SCALE = 1.25
INPUT = (192, 256)
LEAST_SCORE = 0.3  # the network says itself that it does not see the others
CAUCHY_MM = 25.0  # distance at which a keypoint counts half
NAMES = (
    "nose",
    "left_eye",
    "right_eye",
    "left_ear",
    "right_ear",
    "left_shoulder",
    "right_shoulder",
    "left_elbow",
    "right_elbow",
    "left_wrist",
    "right_wrist",
    "left_hip",
    "right_hip",
    "left_knee",
    "right_knee",
    "left_ankle",
    "right_ankle",
    "head_top",
    "neck",
    "pelvis",
    "left_big_toe",
    "right_big_toe",
    "left_small_toe",
    "right_small_toe",
    "left_heel",
    "right_heel",
)
MIRROR = [
    0,
    2,
    1,
    4,
    3,
    6,
    5,
    8,
    7,
    10,
    9,
    12,
    11,
    14,
    13,
    16,
    15,
    17,
    18,
    19,
    21,
    20,
    23,
    22,
    25,
    24,
]
# Which bone each offset turns with, and how deep (metres) a visible keypoint may lie under the
# surface before it.
_BONES = {
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
        made = walk_about(
            Stage(drawn, body, {"any": clips}, SIZE, 40, drawn.rng("script"), [0]), tall=0.78
        )
        person = made.people[0]
        posed = made.posed()
        rng = drawn.rng("sensor")
        frames = np.linspace(0, made.frames - 1, FRAMES).astype(int)
        images = []
        depths = []
        transforms = []
        for frame in frames:
            light = exposed_light(made, posed, int(frame))
            image = sensor_image(made.sensor, light, exposure_gain(made.sensor, light), rng)
            transform = made.path.world_to_cam(float(frame))
            buffer = seen_by(
                made.mesh.vertices_m([posed[0][frame]]), made.mesh.faces, made.camera, transform
            )
            images.append(image)
            depths.append(
                np.where(
                    made.mesh.owner(buffer) == -2,
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
            focal_px=made.camera.focal_px[0],
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
            found = []
            for frame, transform in enumerate(file["world_to_cam"]):
                outline = _project(
                    file["box_vertices_m"][frame], transform, float(file["focal_px"])
                )[1]
                found.append(
                    network(file["images"][frame], np.array([outline.min(0), outline.max(0)]))
                )
        xy, score, whole = (np.stack([np.asarray(row[k]) for row in found]) for k in range(3))
        np.savez(found_path, xy_px=xy, score=score, whole=whole)


def observe(folder: Path, body: Body, regressor: np.ndarray) -> Observations:
    """`regressor` [26, V] says where the body's keypoints are among its posed vertices."""
    rows: dict[str, list[np.ndarray]] = {field: [] for field in Observations.__dataclass_fields__}
    for number, found_path in enumerate(sorted(folder.glob("found_*.npz"))):
        with (
            np.load(folder / found_path.name.removeprefix("found_")) as file,
            np.load(found_path) as found,
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
                if not found["whole"][frame]:
                    continue
                in_cam, pixels = _project(points[frame], transform, focal)
                rows["sequence"].append(np.array(number))
                rows["rotation_cam"].append(transform[:3, :3] @ placed.rotation[frame].numpy())
                rows["points_cam"].append(in_cam)
                rows["in_view"].append(_in_view(surface[frame], pixels, in_cam[:, 2]))
                rows["projected_px"].append(pixels)
                rows["found_px"].append(found["xy_px"][frame])
                rows["score"].append(found["score"][frame])
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
    joint = _BONES[kind_of(name)][0]
    side = name.split("_")[0]
    return JOINT_NAMES.index(f"{side}_{joint}" if f"{side}_{joint}" in JOINT_NAMES else joint)


def _in_view(surface_m: np.ndarray, pixels: np.ndarray, depth_m: np.ndarray) -> np.ndarray:
    x, y = np.round(pixels).astype(int).clip(0, np.array(SIZE) - 1).T
    allowed = np.array([_BONES[kind_of(name)][1] for name in NAMES])
    return surface_m[y, x] > depth_m - allowed


@dataclass(frozen=True)
class Offset:
    """One kind of keypoint, both sides together, as on the left side of the body."""

    count: int  # keypoints in view
    offset_mm: np.ndarray  # [3] to the left (outwards), up, to the front
    deviation_mm: np.ndarray  # [3] standard deviation of that, by resampling sequences
    # distance in the image plane between the body's point and the network's, on the test half
    median_mm: float
    explained_mm: float  # the same after adding the offset


def offset(seen: Observations, numbers: list[int], carried_by: list[int]) -> Offset:
    design = []
    target = []
    group = []
    for number, joint in zip(numbers, carried_by, strict=True):
        use = seen.in_view[:, number] & (seen.score[:, number] > LEAST_SCORE)
        point = seen.points_cam[use, number]
        to_plane = np.zeros(
            (len(point), 2, 3)
        )  # derivative of the projection, in metres at the point's depth
        to_plane[:, 0, 0] = to_plane[:, 1, 1] = 1
        to_plane[:, :, 2] = -point[:, :2] / point[:, 2:]
        matrix = to_plane @ seen.rotation_cam[use, joint]
        if NAMES[number].startswith("right"):
            matrix = matrix * (-1, 1, 1)
        design.append(matrix)
        scale = 1000 * point[:, 2] / seen.focal_px[use]
        target.append(
            (seen.found_px[use, number] - seen.projected_px[use, number]) * scale[:, None]
        )
        group.append(seen.sequence[use])
    a = np.concatenate(design)
    b = np.concatenate(target)
    sequences = np.concatenate(group)
    free = np.ones(3, bool)
    if len(numbers) == 1:
        free[0] = False  # in the body's plane of symmetry
    train = sequences % 2 == 0
    found = robust_offset(a[train], b[train], free)
    rng = np.random.default_rng(0)
    again = []
    for _ in range(60):
        drawn = rng.choice(np.unique(sequences), len(np.unique(sequences)))
        rows = np.concatenate([np.flatnonzero(sequences == s) for s in drawn])
        again.append(robust_offset(a[rows], b[rows], free))
    test = ~train
    return Offset(
        len(b),
        robust_offset(a, b, free),
        np.std(again, 0),
        float(np.median(np.linalg.norm(b[test], axis=1))),
        float(np.median(np.linalg.norm(b[test] - a[test] @ found, axis=1))),
    )


def robust_offset(a: np.ndarray, b: np.ndarray, free: np.ndarray) -> np.ndarray:
    """Least squares with a Cauchy weight on each keypoint's distance."""
    offset = np.zeros(3)
    for _ in range(30):
        weight = 1 / (1 + (np.linalg.norm(b - a @ offset, axis=1) / CAUCHY_MM) ** 2)
        rows = a[:, :, free]
        normal = np.einsum("n,nri,nrj->ij", weight, rows, rows) + 1e-9 * np.eye(free.sum())
        offset[free] = np.linalg.solve(normal, np.einsum("n,nri,nr->i", weight, rows, b))
    return offset


def tips(body: Body) -> np.ndarray:
    """[26, V] what anatomy would choose: tips of toes and heels, the crown, the middle of the
    shoulders and hips.
    """
    with np.load(OPEN_BODY) as file:
        rows = file["J_regressor_halpe26"].copy()
    rows[17:] = 0
    for number, name in ((17, "headtop"), *zip(range(20, 26), _FOOT_PICKS, strict=True)):
        rows[number, body.vertex_picks[name]] = 1
    rows[18], rows[19] = (rows[5] + rows[6]) / 2, (rows[11] + rows[12]) / 2
    return rows


_FOOT_PICKS = ("LBigToe", "RBigToe", "LSmallToe", "RSmallToe", "LHeel", "RHeel")


def table(seen: Observations, title: str) -> Table:
    columns = (
        "keypoint",
        "bone",
        "n",
        "out, up, front (mm)",
        "+-",
        "median error (mm)",
        "with the offset",
    )
    shown = Table(*columns, title=title)
    for kind in dict.fromkeys(kind_of(name) for name in NAMES):
        numbers = [number for number, name in enumerate(NAMES) if kind_of(name) == kind]
        found = offset(seen, numbers, [bone(number) for number in numbers])
        place, spread = (
            ", ".join(f"{v:.0f}" for v in values)
            for values in (found.offset_mm, found.deviation_mm)
        )
        errors = f"{found.median_mm:.0f}", f"{found.explained_mm:.0f}"
        shown.add_row(
            kind.replace("_", " "), _BONES[kind][0], str(found.count), place, spread, *errors
        )
    return shown


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--onnx", type=Path, required=True, help="rtmpose_s_halpe26_256x192.onnx")
    parser.add_argument(
        "--motion", type=Path, help="CMU clips at 30 frames/s; the embedded ones unless given"
    )
    parser.add_argument("--sequences", type=int, default=70, help="four images each")
    parser.add_argument(
        "--work", type=Path, required=True, help="folder for rendered images; what is there is kept"
    )
    options = parser.parse_args()
    torch.set_num_threads(1)
    options.work.mkdir(parents=True, exist_ok=True)
    body = load_body()
    render(options.work, body, options.motion, options.sequences)
    detect(options.work, options.onnx)
    with np.load(OPEN_BODY) as file:
        embedded = file["J_regressor_halpe26"]
    for words, regressor in (("tips and middles", tips(body)), ("J_regressor_halpe26", embedded)):
        seen = observe(options.work, body, regressor)
        title = f"{words}: {len(seen.sequence)} images of {len(np.unique(seen.sequence))} people"
        Console().print(table(seen, title))


if __name__ == "__main__":
    claim(main)
