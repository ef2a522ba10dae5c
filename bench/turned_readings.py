"""Are people who lie or stand on their hands read better in turned crops, and others not worse?

    python -m training.rendered_crops .. --held-out --shards 1 --count 2000 --out CROPS
    python bench/turned_readings.py CROPS/held_out_00000.npz [--upright 300]

People are grouped by how far the true torso is turned from upright in the image. Printed are, with
the first reading and with second readings, the share of keypoints in the image within NEAR
sqrt(area) of the truth (PCK), the mean stated and true OKS of the 17 keypoints of the body, and how
many second readings a person takes. All people beyond 60 degrees count, and as many upright ones as
asked for. Crops are stored at the network's size, so turned crops miss what the stored one does not
show: the figures are a lower bound.
"""

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
import torch
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.lib.claim import Console, claim
from ccnet.confidence import confidence_function
from fitting.body.load import load_body
from fitting.body.rotations import quaternion_to_axis_angle
from pose2d.crops import estimate_people
from pose2d.models.loading import load
from pose2d.readings import KeypointReader, expected_oks
from pose2d.skeletons import COCO17, HALPE26
from pose2d.types import AREA_OF_BOX, Keypoints, keypoint_oks, l_squared

POSE_MODEL = "rtmpose-s-halpe26"
NEAR = 0.1  # of sqrt(area)
GROUPS = {
    "upright, to 60": (0, 60),
    "lying, 60 to 120": (60, 120),
    "inverted, 120 to 180": (120, 181),
}
SEED = 0


@dataclass(frozen=True)
class People:
    """N rendered people in crops."""

    images: list[np.ndarray]
    boxes_px: np.ndarray  # [N, 4]
    xy_px: np.ndarray  # [N, 26, 2] truth
    area_px2: np.ndarray  # [N]
    turned_deg: np.ndarray  # [N] of the torso from upright


def load_people(path: Path, upright: int) -> People:
    """Return people beyond 60 degrees and some upright ones, with everything in crop pixels."""
    with np.load(path) as file:
        arrays = dict(file)
    turn = torch.from_numpy(arrays["turn"]).float()
    with torch.inference_mode():
        body = load_body()(
            quaternion_to_axis_angle(turn), torch.from_numpy(arrays["shape"]).float()
        )
    from_pelvis = (body.keypoints - body.joints[:, :1]).numpy()
    placed = from_pelvis + arrays["pelvis_m"][:, None]
    rays = placed[..., :2] / placed[..., 2:]
    in_image = rays * arrays["focal_px"][:, None, None] + (arrays["image_wh"][:, None] - 1) / 2
    affine = arrays["crop_from_image"].astype(np.float64)

    def in_crop(xy_px: np.ndarray) -> np.ndarray:
        return np.einsum("nij,nkj->nki", affine[:, :, :2], xy_px) + affine[:, None, :, 2]

    xy_px = in_crop(in_image)
    boxes_px = in_crop(arrays["box_px"].reshape(-1, 2, 2).astype(np.float64)).reshape(-1, 4)
    name = HALPE26.keypoints.index
    torso = xy_px[:, name("neck")] - xy_px[:, name("pelvis")]
    turned = np.abs(np.degrees(np.arctan2(torso[:, 0], -torso[:, 1])))
    standing = np.flatnonzero(turned < 60)
    chosen = np.random.default_rng(SEED).permutation(standing)[:upright]
    rows = np.concatenate([np.flatnonzero(turned >= 60), chosen])
    start = arrays["jpeg_start"]
    jpeg = arrays["jpeg"]
    images = []
    for row in rows:
        image = cv2.imdecode(jpeg[start[row] : start[row + 1]], cv2.IMREAD_COLOR)
        assert image is not None
        images.append(image[..., ::-1].copy())
    area = AREA_OF_BOX * (boxes_px[:, 2:] - boxes_px[:, :2]).prod(1)
    return People(images, boxes_px[rows], xy_px[rows], area[rows], turned[rows])


def cells(people: People, keypoints: Keypoints, rows: np.ndarray) -> list[str]:
    """Return PCK, stated OKS and true OKS of the people at these rows."""
    size = np.array(people.images[0].shape[1::-1])
    is_inside = ((people.xy_px >= 0) & (people.xy_px < size)).all(-1)
    squared = np.square(keypoints.xy_px.numpy() - people.xy_px).sum(-1)
    is_near: np.ndarray = np.asarray(squared < NEAR**2 * people.area_px2[:, None])
    oks = np.asarray(keypoint_oks(squared, l_squared(people.area_px2, HALPE26))) * is_inside
    pck = is_near[rows][is_inside[rows]].mean()
    true_oks = oks[rows, : COCO17.size].mean()
    return [f"{pck:.3f}", f"{expected_oks(keypoints)[rows].mean():.3f}", f"{true_oks:.3f}"]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("shard", type=Path)
    parser.add_argument("--upright", type=int, default=300, help="upright people to read")
    arguments = parser.parse_args()
    people = load_people(arguments.shard, arguments.upright)
    model = load(POSE_MODEL)
    confidence = confidence_function("ccnet", POSE_MODEL, model, None)
    reader = KeypointReader(model, confidence)
    first = []
    best = []
    extra = []
    with torch.inference_mode():
        for image, box in zip(people.images, people.boxes_px, strict=True):
            before = reader.second_readings
            first.append(confidence(estimate_people(model, [image], box[None])[1]))
            best.append(reader([image], box[None])[1])
            extra.append(reader.second_readings - before)
    table = Table("torso, degrees", "people", "PCK", "stated OKS", "true OKS")
    for name in ("PCK twice", "stated OKS", "true OKS", "second readings"):
        table.add_column(name)
    for name, (low, high) in GROUPS.items():
        rows = (people.turned_deg >= low) & (people.turned_deg < high)
        once = cells(people, Keypoints.concat(first), rows)
        twice = cells(people, Keypoints.concat(best), rows)
        table.add_row(name, str(rows.sum()), *once, *twice, f"{np.mean(np.array(extra)[rows]):.2f}")
    Console(width=130).print(table)


if __name__ == "__main__":
    claim(main)
