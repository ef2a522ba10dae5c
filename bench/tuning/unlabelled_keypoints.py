"""Claim: the stated error distributions hold for keypoints that no label trained: toes, heels, head
top, neck, pelvis.

    python bench/tuning/unlabelled_keypoints.py --choose synth_dev --choose-split validation --data synth_test [--every 5]

Rendered people, whose keypoints are known, read by the network and its head in the boxes of the
true meshes. Where the network puts a keypoint beside the body's own is a matter of definition, not
an error: as in bench/keypoint_offsets.py one offset along the bone's axes is found for each kind of
keypoint on the people of --choose and added to those of --data. For every kind: the mean stated and
the mean true OKS, the expected calibration error, and which share of the errors lies under the
stated 10, 50, 90 and 97 % quantiles. The last column is the factor on all sigmas that would have
been most likely on the people of --choose. COCO's keypoints are there for comparison: rendered
people are not those the head learnt from, and only what is worse than theirs is a matter of missing
labels.
"""

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import torch
from rich.table import Table
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import ccnet
import pose2d
from bench.keypoint_offsets import CAUCHY_MM, robust_offset
from bench.lib.claim import Console, claim
from bench.lib.offset_people import bone, kind_of
from ccnet.heads.simcc import STAND_IN, SimCCDistributionHead
from ccnet.metrics import reliability
from eval3dpw.bodies import body_set
from eval3dpw.sequences import camera_params
from eval3dpw.synth.dataset import truth_path
from eval3dpw.synth.sequence import BEHIND_SELF
from fitmesh.eval_3dpw.eval_settings import EvalSettings
from fitmesh.eval_3dpw.keypoints import true_boxes
from fitmesh.eval_3dpw.sequences import eval_sequences
from fitting.body.rotations import rotation_matrices
from pose2d.crops import estimate_people
from pose2d.skeletons import COCO17, HALPE26
from pose2d.types import AREA_OF_BOX, ErrorDistribution, l_squared
from pose2d.video.images import read_image

QUANTILES = (0.1, 0.5, 0.9, 0.97)
SCALES = np.geomspace(0.25, 4.0, 81)
KINDS = tuple(dict.fromkeys(kind_of(name) for name in HALPE26.keypoints))
NUMBERS = {
    kind: [i for i, name in enumerate(HALPE26.keypoints) if kind_of(name) == kind] for kind in KINDS
}
LABELLED = tuple(kind for kind in KINDS if NUMBERS[kind][0] < COCO17.size)


@dataclass(frozen=True)
class People:
    """N rendered people, their 26 keypoints and what the head says of them."""

    error_l: Tensor  # [N, 26, 2] from the body's keypoint to the network's, in units of l
    l_per_mm: Tensor  # [N, 26] one millimetre at the keypoint's depth, in units of l
    # [N, 26, 2, 3] offset along the bone's axes -> the image plane, millimetres to millimetres
    to_plane: Tensor
    counted: Tensor  # [N, 26] inside the image, and nothing but the own body before it
    weight: Tensor  # [N, 26, M]
    sigma: Tensor  # [N, 26, M]
    log_ratio: Tensor  # [N, 26]

    def moved(self, offset_mm: dict[str, np.ndarray]) -> Tensor:
        """Errors [N, 26, 2] in units of l, once every kind's offset belongs to the definition."""
        o = torch.zeros(HALPE26.size, 3)
        for kind, numbers in NUMBERS.items():
            o[numbers] = torch.from_numpy(offset_mm[kind]).float()
        shift = torch.einsum("nkij,kj->nki", self.to_plane, o) * self.l_per_mm[..., None]
        return self.error_l - shift


def read(data: Path, split: str, every: int, head_file: str) -> People:
    """Every so many frames of all sequences."""
    parts = list(_sequences(EvalSettings(data, split=split, every=every), head_file))
    return People(
        *(torch.cat([getattr(part, field.name) for part in parts]) for field in fields(People))
    )


@torch.inference_mode()
def _sequences(settings: EvalSettings, head_file: str) -> Iterator[People]:
    model = pose2d.load(settings.pose_model)
    head = ccnet.load(head_file)
    bodies = body_set(None)
    assert isinstance(head, SimCCDistributionHead)
    shown_by = [COCO17.keypoints.index(STAND_IN.get(name, name)) for name in HALPE26.keypoints]
    mirrored = torch.tensor(
        [[-1.0 if name.startswith("right") else 1.0, 1, 1] for name in HALPE26.keypoints]
    )
    for sequence in eval_sequences(settings, []):
        camera = sequence.camera
        for track in sequence.tracks:
            body = bodies.load(track.gender)
            params = camera_params(track, body)
            boxes_px = true_boxes(track, bodies, camera.size, camera.intrinsics)
            rows = np.flatnonzero(np.isfinite(boxes_px).all(1))
            if not len(rows):
                continue
            images = [read_image(sequence.image(int(frame))) for frame in track.frame[rows]]
            used_px, result = estimate_people(model, images, boxes_px[rows])
            distribution = head.distribution(result.features)
            points = body.at(params).keypoints[rows].double()
            shape = torch.nn.functional.pad(params.shape, (0, body.shape_size - len(params.shape)))
            turned = body.placement(rotation_matrices(params.pose), shape).rotation[rows].double()
            exact = camera.project(points).double()
            sides = used_px[:, 2:] - used_px[:, :2]
            l_px = l_squared(torch.from_numpy(AREA_OF_BOX * sides.prod(1)), HALPE26).sqrt()
            mm_px = camera.intrinsics[0, 0] / points[..., 2] / 1000
            to_plane = torch.zeros(*points.shape[:2], 2, 3, dtype=points.dtype)
            to_plane[..., 0, 0] = to_plane[..., 1, 1] = 1
            to_plane[..., 2] = -points[..., :2] / points[..., 2:]
            bones = turned[:, [bone(number) for number in range(HALPE26.size)]]
            with np.load(truth_path(settings.data, sequence.name)) as file:
                visible = (
                    file["visibility"][track.person, track.frame[rows]][:, shown_by] >= BEHIND_SELF
                )
            inside = ((exact >= 0) & (exact <= torch.tensor(camera.size) - 1.0)).all(-1)
            yield People(
                error_l=((result.xy_px - exact) / l_px[..., None]).float(),
                l_per_mm=(mm_px / l_px).float(),
                to_plane=(to_plane @ bones * mirrored[:, None]).float(),
                counted=inside & torch.from_numpy(visible),
                weight=distribution.weight,
                sigma=distribution.sigma,
                log_ratio=torch.zeros_like(distribution.sigma[..., 0])
                if distribution.log_ratio is None
                else distribution.log_ratio,
            )


def offsets(people: People) -> dict[str, np.ndarray]:
    """Millimetres along the bone's axes (out, up, front) by kind, by robust least squares."""
    results = {}
    for kind, numbers in NUMBERS.items():
        use = people.counted[:, numbers]
        target = (people.error_l / people.l_per_mm[..., None])[:, numbers][use].double().numpy()
        free = np.array(
            [len(numbers) > 1, True, True]
        )  # single keypoints lie in the body's plane of symmetry
        results[kind] = robust_offset(
            people.to_plane[:, numbers][use].double().numpy(), target, free
        )
    return results


def likeliest_scale(people: People, error_l: Tensor, kinds: tuple[str, ...]) -> float:
    """The factor on all sigmas of these kinds under which their errors are most likely."""
    numbers = [number for kind in kinds for number in NUMBERS[kind]]
    use = people.counted[:, numbers]
    weight, sigma, ratio, error = (
        values[:, numbers][use]
        for values in (people.weight, people.sigma, people.log_ratio, error_l)
    )
    likelihoods = [
        float(ErrorDistribution(weight, float(s) * sigma, ratio).log_likelihood(error).mean())
        for s in SCALES
    ]
    return float(SCALES[int(np.argmax(likelihoods))])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--choose", type=Path, required=True, help="a set made by `fitmesh synth`: offsets, factors"
    )
    parser.add_argument("--choose-split", default="validation")
    parser.add_argument("--data", type=Path, required=True, help="another one, to report on")
    parser.add_argument("--split", default="test")
    parser.add_argument("--every", type=int, default=5)
    parser.add_argument(
        "--head", default="rtmpose-s-halpe26", help="head file instead of the embedded one"
    )
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    first = read(chosen.choose, chosen.choose_split, chosen.every, chosen.head)
    second = read(chosen.data, chosen.split, chosen.every, chosen.head)
    offset_mm = offsets(first)
    error_first = first.moved(offset_mm)
    error = second.moved(offset_mm)
    d2 = error.square().sum(-1)
    distribution = ErrorDistribution(second.weight, second.sigma, second.log_ratio)
    confidence = distribution.expected_oks()
    likelihood = distribution.log_likelihood(error)
    below = distribution.cdf(d2)
    table = Table(
        "keypoints",
        "count",
        "offset, mm",
        "stated OKS",
        "true",
        "ECE",
        "log-l.",
        title=(
            f"{len(second.weight)} people of {chosen.data.name}; offsets (a keypoint counts half at {CAUCHY_MM:g} mm) "
            f"and factors from {len(first.weight)} of {chosen.choose.name}"
        ),
    )
    for q in QUANTILES:
        table.add_column(f"under {q:.0%}")
    table.add_column("sigma x")

    def row(name: str, kinds: tuple[str, ...]) -> None:
        numbers = [number for kind in kinds for number in NUMBERS[kind]]
        use = second.counted[:, numbers]
        said = confidence[:, numbers][use].double().numpy()
        true = torch.exp(-d2 / 2)[:, numbers][use].double().numpy()
        shares = (f"{float((below[:, numbers][use] < q).float().mean()):.1%}" for q in QUANTILES)
        place = ", ".join(f"{v:.0f}" for v in offset_mm[kinds[0]]) if len(kinds) == 1 else ""
        table.add_row(
            name,
            str(len(said)),
            place,
            f"{said.mean():.3f}",
            f"{true.mean():.3f}",
            f"{reliability(said, true).expected_error:.3f}",
            f"{float(likelihood[:, numbers][use].mean()):.2f}",
            *shares,
            f"{likeliest_scale(first, error_first, kinds):.2f}",
        )

    unlabelled = tuple(kind for kind in KINDS if kind not in LABELLED)
    row("with COCO labels", LABELLED)
    row("without", unlabelled)
    for kind in (*unlabelled, *LABELLED):
        row(kind.replace("_", " "), (kind,))
    Console(width=130).print(table)


if __name__ == "__main__":
    claim(main)
