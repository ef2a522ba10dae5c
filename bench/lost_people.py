"""Where are visible people lost: in the detector, in suppression, in reading or in tracking?

    fitmesh synth --scenes crossing,embrace,behind,cuts --seconds 12 --size 512x288 --seed 5 --out SYNTH
    python bench/lost_people.py --rendered SYNTH
    python bench/lost_people.py --videos VIDEO [VIDEO ..]

Rendered people know who is visible: a person is expected in every frame in which at least
LEAST_SEEN of the body is visible, and observed where a row of the result has an OKS of at least
SAME_POSE with the visible keypoints. A frame that is not observed is lost at the first step that
has nothing for the person:

detector     no candidate of at least the detector's threshold lies on the visible person
suppression  a candidate did, but none that is left after suppression
reading      a box is left, but the keypoints that are read in it are another person's or wrong
tracking     the keypoints were right in that frame, but the result has no such row

Real videos have no truth. Printed are the frames between a person's first and last row that have no
row, how many of them have a candidate near the place between both ends, and frames after the last
row of a person who did not leave the image. The last column is the share of crops that were made at
predicted places, among all crops.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from rich.table import Table
from scipy.optimize import linear_sum_assignment

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.lib.claim import Console, claim
from bench.lib.identity_metrics import FrameBoxes, IdentityScores, identity_scores
from fitmesh.inputs import open_clip
from fitmesh.stages import people
from fitmesh.stages.settings import Job, RunSettings
from fitmesh.ui.events import Reporter
from pose2d.detect.boxes import iou, non_maximum_suppression
from pose2d.people import PeopleFinder
from pose2d.skeletons import HALPE26
from pose2d.tracking.identity import People
from pose2d.tracking.tracker import Tracker
from pose2d.types import Keypoints, keypoint_oks, l_squared
from pose2d.video.frames import Clip
from pose2d.video.images import ImageFolder

LEAST_SEEN = 0.3  # share of a person that must be visible to be expected
SAME_POSE = 0.5  # least OKS with the visible keypoints
SEEN = 3  # state of a keypoint that nothing hides (eval3dpw/synth/sequence.py)
FEWEST_KEYPOINTS = 4  # that must be visible, so that the OKS means something
SAME_IOU = 0.4  # of a candidate with the box around the visible keypoints
MARGIN = 0.15  # of that box beyond the keypoints, in its diagonal
STEPS = ("detector", "suppression", "reading", "tracking")


@dataclass(frozen=True)
class Visible:
    """The people who are expected in one frame."""

    person: np.ndarray  # [P]
    xy_px: np.ndarray  # [P, 26, 2]
    is_seen: np.ndarray  # [P, 26] bool
    area_px2: np.ndarray  # [P]

    @property
    def boxes_px(self) -> np.ndarray:
        """The boxes around the visible keypoints, with a margin, [P, 4]."""
        points = np.where(self.is_seen[..., None], self.xy_px, np.nan)
        low = np.nanmin(points, 1)
        high = np.nanmax(points, 1)
        margin = MARGIN * np.linalg.norm(high - low, axis=1, keepdims=True)
        return np.concatenate([low - margin, high + margin], 1)

    def matches(self, oks: np.ndarray) -> np.ndarray:
        """Return which people [P] have a row of their own, for `oks` [P, rows]."""
        matched = np.zeros(len(self.person), bool)
        rows, columns = linear_sum_assignment(-np.where(oks >= SAME_POSE, oks, 0))
        matched[rows] = oks[rows, columns] >= SAME_POSE
        return matched

    def oks(self, xy_px: np.ndarray) -> np.ndarray:
        """Return the OKS of each person with rows [R, 26, 2], over visible keypoints, [P, R]."""
        squared = np.square(xy_px[None] - self.xy_px[:, None]).sum(-1)
        values = keypoint_oks(squared, l_squared(self.area_px2, HALPE26)[:, None])
        weight = self.is_seen[:, None].astype(float)
        return np.asarray((np.nan_to_num(values) * weight).sum(-1) / weight.sum(-1))


def visible_people(truth: dict[str, np.ndarray]) -> list[Visible]:
    """Return the people who are expected in each frame of a rendered sequence."""
    is_seen = truth["halpe_visibility"] == SEEN
    is_visible = truth["seen_px2"] > LEAST_SEEN * np.maximum(truth["area_px2"], 1)
    is_visible &= truth["in_shot"] & (is_seen.sum(-1) >= FEWEST_KEYPOINTS)
    frames = []
    for number in range(is_visible.shape[1]):
        person = np.flatnonzero(is_visible[:, number])
        frames.append(
            Visible(
                person,
                truth["halpe_px"][person, number],
                is_seen[person, number],
                truth["area_px2"][person, number],
            )
        )
    return frames


def find_people(clip: Clip) -> tuple[People, float, float]:
    """Return the people of a clip as `fitmesh run` finds them, the share of crops that were made
    where tracks expect people, and processor seconds.
    """
    with tempfile.TemporaryDirectory() as folder, torch.inference_mode():
        job = Job(clip, RunSettings(threads=1), Path(folder), Reporter())
        estimate = people._estimate(job)
        crops = 0

        def counted(
            images: Sequence[np.ndarray], boxes_px: np.ndarray
        ) -> tuple[np.ndarray, Keypoints]:
            nonlocal crops
            crops += len(boxes_px)
            return estimate(images, boxes_px)

        finder = PeopleFinder(people._detect(job), counted)
        size = (clip.info.width_px, clip.info.height_px)
        tracker = Tracker(size, job.settings.tracker)
        start = time.process_time()
        found = finder.find(clip.frames(), float(clip.info.rate), tracker)
        return found, finder.expected_crops / max(crops, 1), time.process_time() - start


def candidates_of(job: Job, image: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return candidate boxes [M, 4], their scores [M] and the rows that suppression keeps."""
    detector = job.loader.detector
    options = detector.options
    pixels, scale = detector.prepare(image, options.long_side)
    boxes, scores = detector.candidates(torch.from_numpy(pixels))
    likely = scores >= options.score_threshold
    boxes_px = boxes[likely].double().numpy() / scale
    score = scores[likely].numpy()
    return boxes_px, score, non_maximum_suppression(boxes_px, score, options.nms_iou)


def one_to_one(true_px: np.ndarray, boxes_px: np.ndarray) -> np.ndarray:
    """Return which true boxes [P, 4] have a box of their own [P]."""
    matched = np.zeros(len(true_px), bool)
    overlap = np.where(iou(true_px, boxes_px) >= SAME_IOU, iou(true_px, boxes_px), 0)
    rows, columns = linear_sum_assignment(-overlap)
    matched[rows] = overlap[rows, columns] > 0
    return matched


@dataclass(frozen=True)
class Losses:
    """What happened to the people of one rendered sequence."""

    expected: int  # person-frames
    lost: dict[str, int]  # by step
    wrong: int  # rows without a person of their own
    idf1: float
    switches: int
    extra: float  # share of crops made where tracks expect people
    seconds: float  # of processor time


def lost_at(folder: Path, name: str) -> Losses:
    """Return what happens to the people of a rendered sequence."""
    with np.load(folder / "synthFiles" / f"{name}.npz") as file:
        arrays = dict(file)
    truth = visible_people(arrays)
    clip = ImageFolder(folder / "imageFiles" / name)
    found, extra, seconds = find_people(clip)
    rows = found.detections
    scores = scores_of(arrays, found)
    lost = dict.fromkeys(STEPS, 0)
    expected = 0
    wrong = 0
    with tempfile.TemporaryDirectory() as out, torch.inference_mode():
        job = Job(clip, RunSettings(threads=1), Path(out), Reporter())
        estimate = people._estimate(job)
        for frame, visible in zip(clip.frames(), truth, strict=True):
            expected += len(visible.person)
            result_xy = rows.xy_px[rows.frame == frame.index]
            oks = visible.oks(result_xy)
            observed = visible.matches(oks)
            wrong += len(result_xy) - int(observed.sum())
            if observed.all():
                continue
            boxes_px, _, kept = candidates_of(job, frame.rgb)
            has_candidate = one_to_one(visible.boxes_px, boxes_px)
            has_box = one_to_one(visible.boxes_px, boxes_px[kept])
            _, points = estimate([frame.rgb] * len(kept), boxes_px[kept])
            is_read = visible.matches(visible.oks(points.xy_px.numpy().astype(float)))
            for place in np.flatnonzero(~observed):
                step = (
                    "tracking"
                    if is_read[place]
                    else "reading"
                    if has_box[place]
                    else "suppression"
                    if has_candidate[place]
                    else "detector"
                )
                lost[step] += 1
    return Losses(expected, lost, wrong, scores.idf1, scores.switches, extra, seconds)


def scores_of(truth: dict[str, np.ndarray], found: People) -> IdentityScores:
    """Return how well identities hold; a person in another shot counts as another one."""
    rows = found.detections
    visible = truth["seen_px2"] > LEAST_SEEN * np.maximum(truth["area_px2"], 1)
    starts = truth["shot_first_frame"]
    true_boxes = []
    found_boxes = []
    for number in range(visible.shape[1]):
        shot = int(np.searchsorted(starts, number, side="right")) - 1
        person = np.flatnonzero(visible[:, number])
        boxes_px = truth["boxes_px"][person, number]
        true_boxes.append(FrameBoxes(person + len(visible) * shot, boxes_px))
        current = rows.frame == number
        found_boxes.append(FrameBoxes(rows.identity[current], rows.box_px[current]))
    return identity_scores(true_boxes, found_boxes)


def gaps(clip: Clip) -> list[str]:
    """Return the table's row of a real video."""
    found, extra, seconds = find_people(clip)
    rows = found.detections
    size = np.array([clip.info.width_px, clip.info.height_px])
    last_frame = int(found.frames[-1])
    missing: dict[int, list[np.ndarray]] = {}
    after = 0
    for person in rows.people().values():
        frames = np.arange(person.frame[0], person.frame[-1] + 1)
        boxes = np.stack([np.interp(frames, person.frame, side) for side in person.box_px.T], 1)
        for place in np.flatnonzero(~np.isin(frames, person.frame)):
            missing.setdefault(int(frames[place]), []).append(boxes[place])
        last = person.box_px[-1]
        is_inside = (last[:2] > 0.03 * size).all() and (last[2:] < 0.97 * size).all()
        after += (last_frame - int(person.frame[-1])) * bool(is_inside)
    near = 0
    with tempfile.TemporaryDirectory() as out, torch.inference_mode():
        job = Job(clip, RunSettings(threads=1), Path(out), Reporter())
        for frame in clip.frames():
            places = missing.get(frame.index)
            if places:
                boxes_px, _, _ = candidates_of(job, frame.rgb)
                near += int(one_to_one(np.array(places), boxes_px).sum())
    total = sum(map(len, missing.values()))
    name = clip.path.parent.name if clip.path.stem == "clip" else clip.path.stem
    cells = (len(found.frames), len(found.same_as), len(rows), total, near, after)
    return [name, *map(str, cells), f"{extra:.1%}", f"{seconds:.1f}"]


def on_rendered(folder: Path, names: list[str]) -> None:
    """Print where rendered people are lost."""
    columns = ("rendered", "expected", "lost", *STEPS, "wrong rows", "switches")
    table = Table(*columns, "IDF1", "extra crops", "s")
    everything = []
    for path in sorted((folder / "synthFiles").glob("*.npz")):
        if names and path.stem.split("_")[0] not in names:
            continue
        losses = lost_at(folder, path.stem)
        everything.append(losses)
        table.add_row(path.stem, *_cells([losses]))
    table.add_row("all", *_cells(everything))
    Console(width=140).print(table)


def _cells(parts: list[Losses]) -> list[str]:
    """Return the table's cells of one or more sequences."""
    lost = [sum(part.lost[step] for part in parts) for step in STEPS]
    counts = [sum(part.expected for part in parts), sum(lost), *lost]
    counts += [sum(part.wrong for part in parts), sum(part.switches for part in parts)]
    idf1 = float(np.mean([part.idf1 for part in parts]))
    extra = float(np.mean([part.extra for part in parts]))
    seconds = sum(part.seconds for part in parts)
    return [*map(str, counts), f"{idf1:.3f}", f"{extra:.1%}", f"{seconds:.0f}"]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rendered", type=Path, help="made by `fitmesh synth --scenes`")
    parser.add_argument("--scripts", nargs="*", default=[], help="only these scripts")
    parser.add_argument("--videos", type=Path, nargs="*", default=[])
    arguments = parser.parse_args()
    if arguments.rendered:
        on_rendered(arguments.rendered, arguments.scripts)
    if arguments.videos:
        columns = ("video", "frames", "people", "rows", "gaps", "with a candidate", "after")
        table = Table(*columns, "extra crops", "s")
        for video in arguments.videos:
            table.add_row(*gaps(open_clip(video)))
        Console(width=140).print(table)


if __name__ == "__main__":
    claim(main)
