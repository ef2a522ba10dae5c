"""Crop real people, as the embedded 2D network reads them, for the image network.

    python -m training.real_crops coco --photos train2017 \\
        --annotations person_keypoints_train2017.json --out crops/real_00000.npz
    python -m training.real_crops measured --videos cam01.mp4 .. --cameras Calib.toml \\
        --truth truth.trc --out crops/measured.npz

`coco` takes people with annotated keypoints, whose body no one knows. `measured` takes videos of
one person whose joints were measured in 3D; nothing is learned from it. Images may be stored
smaller or squashed (tools/coco_subset.py): they are brought to the listed size.
"""

import argparse
import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import cv2
import numpy as np
import torch

from fitting.body.rotations import rotation_matrices
from fitting.camera import Camera
from pose2d.base.errors import UserError
from pose2d.base.toml_files import parse_toml
from pose2d.models.loading import load as load_model
from pose2d.video.video_file import Video
from training.crops.renderer import RenderedPerson
from training.crops.shards import ShardWriter
from training.image.real_people import MARKED

POSE_MODEL = "rtmpose-s-halpe26"
LEAST_MARKED = 8  # annotated keypoints of a person
LEAST_HEIGHT_PX = 100.0  # of a person's box
MEASURED_NAMES = tuple(
    f"{side}{joint}"
    for joint in ("Shoulder", "Elbow", "Wrist", "Hip", "Knee", "Ankle")
    for side in ("L", "R")
)
BOX_MARGIN = 0.15  # around measured joints, for head, hands and feet


def annotated_people(photos: Path, annotations: Path, seed: int) -> Iterator[RenderedPerson]:
    """Yield COCO's people with enough annotated keypoints, in random order."""
    listing = json.loads(annotations.read_text())
    images = {image["id"]: image for image in listing["images"]}
    people = [
        person
        for person in listing["annotations"]
        if person["num_keypoints"] >= LEAST_MARKED
        and person["bbox"][3] >= LEAST_HEIGHT_PX
        and not person["iscrowd"]
    ]
    for index in np.random.default_rng(seed).permutation(len(people)):
        person = people[index]
        image = images[person["image_id"]]
        size = (image["width"], image["height"])
        path = photos / image["file_name"]
        pixels = cv2.imread(str(path))
        if pixels is None:
            raise UserError(f"{path} cannot be read as an image.")
        pixels = cv2.resize(pixels, size, interpolation=cv2.INTER_CUBIC)
        camera = Camera.default(size)
        marks = np.array(person["keypoints"], np.float64).reshape(MARKED, 3)
        rays = (marks[:, :2] - camera.center_px) / camera.focal_px
        truth = {
            "marked_rays": torch.from_numpy(rays).float(),
            "mark_weight": torch.from_numpy((marks[:, 2] > 0).astype(np.float32)),
        }
        x, y, width, height = person["bbox"]
        box = np.array([x, y, x + width, y + height])
        rgb = cv2.cvtColor(pixels, cv2.COLOR_BGR2RGB)
        yield RenderedPerson(rgb, np.zeros(2), box, camera, truth)


def measured_people(
    videos: list[Path], cameras: Path, truth: Path, step: int
) -> Iterator[RenderedPerson]:
    """Yield the person of every `step`-th frame with the measured joints in each camera."""
    world_m = read_trc(truth)
    tables = parse_toml(cameras.read_text(), cameras, "Expected a calibration of Pose2Sim.")
    calibration = [value for value in tables.values() if "matrix" in value]
    if len(calibration) != len(videos):
        raise UserError(
            f"{cameras} has {len(calibration)} cameras for {len(videos)} videos; give the videos "
            "in the order of its cameras."
        )
    for path, view in zip(videos, calibration, strict=True):
        turn = rotation_matrices(torch.tensor(view["rotation"])[None])[0].double().numpy()
        points_m = world_m @ turn.T + np.array(view["translation"])
        matrix = np.array(view["matrix"])
        projected = points_m @ matrix.T
        points_px = projected[..., :2] / projected[..., 2:]
        for frame in islice(Video(path).frames(), 0, len(world_m), step):
            height, width = frame.rgb.shape[:2]
            camera = Camera(
                (matrix[0, 0], matrix[1, 1]), (matrix[0, 2], matrix[1, 2]), (width, height)
            )
            low = points_px[frame.index].min(0)
            high = points_px[frame.index].max(0)
            margin = BOX_MARGIN * (high - low).max()
            box = np.concatenate((low - margin, high + margin))
            joints = {"points_m": torch.from_numpy(points_m[frame.index]).float()}
            yield RenderedPerson(frame.rgb, np.zeros(2), box, camera, joints)


def read_trc(path: Path) -> np.ndarray:
    """Return measured joints [T, 12, 3] in metres, in the calibration's world with z up."""
    lines = path.read_text().splitlines()
    names = [name for name in lines[3].split("\t")[2:] if name]
    rows = [line.split("\t")[2 : 2 + 3 * len(names)] for line in lines[5:] if line.strip()]
    points = np.array(rows, np.float64).reshape(-1, len(names), 3)
    ordered = points[:, [names.index(name) for name in MEASURED_NAMES]]
    return ordered[..., [2, 0, 1]]  # a .trc has y up


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    kinds = parser.add_subparsers(dest="kind", required=True)
    coco = kinds.add_parser("coco", help="annotated people of photographs")
    coco.add_argument("--photos", type=Path, required=True, help="folder of COCO's images")
    coco.add_argument("--annotations", type=Path, required=True)
    coco.add_argument("--count", type=int, default=10_000, help="people at most")
    coco.add_argument("--seed", type=int, default=0)
    measured = kinds.add_parser("measured", help="videos with joints measured in 3D")
    measured.add_argument("--videos", type=Path, nargs="+", required=True)
    measured.add_argument("--cameras", type=Path, required=True, help="Pose2Sim's Calib.toml")
    measured.add_argument("--truth", type=Path, required=True, help=".trc of the joints")
    measured.add_argument("--step", type=int, default=1, help="take every n-th frame")
    for kind in (coco, measured):
        kind.add_argument("--out", type=Path, required=True, help="file to write (.npz)")
    options = parser.parse_args()
    torch.set_num_threads(1)
    writer = ShardWriter(load_model(POSE_MODEL), POSE_MODEL)
    if options.kind == "coco":
        people = annotated_people(options.photos, options.annotations, options.seed)
        count = options.count
    else:
        people = measured_people(options.videos, options.cameras, options.truth, options.step)
        count = 10**9
    writer.write(options.out, people, count)


if __name__ == "__main__":
    main()
