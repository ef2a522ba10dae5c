"""Images -> keypoints, and what every asked source says of them. Stored keypoints are read the same way."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import torch

import pose2d
from eval3dpw.bodies import BodySet
from eval3dpw.tracks import TruthTrack, camera_params
from fitmesh import confidence as trust
from fitmesh.eval_3dpw.sequences import Work
from fitmesh.eval_3dpw.settings import STORED, EvalSettings
from fitting.camera import Camera
from pose2d.base.errors import UserError
from pose2d.estimate import estimate_frames
from pose2d.io.images import read_image
from pose2d.oks import AREA_OF_BOX, keypoint_oks, l_squared
from pose2d.skeletons import COCO17, Skeleton
from pose2d.types import ConfidenceSource, Keypoints

LEAST_BOX_PX = 8  # a person of whom less is inside the image is not read
# OpenPose's 18 (nose, neck, right arm, left arm, right leg, left leg, eyes, ears) in COCO's order
OPENPOSE18_TO_COCO17 = (0, 15, 14, 17, 16, 5, 2, 6, 3, 7, 4, 11, 8, 12, 9, 13, 10)


@dataclass(frozen=True)
class Read:
    """One person's keypoints over T frames, and how far each source trusts them."""

    frame: np.ndarray  # [T]
    boxes_px: np.ndarray  # [T, 4]; NaN: not inside the image
    readable: np.ndarray  # [T] false: the image could not be read
    xy_px: np.ndarray  # [T, K, 2]; NaN: not read
    confidence: Mapping[str, np.ndarray]  # [T, K] by source
    presence: Mapping[str, np.ndarray]  # [T, K] by source
    skeleton: Skeleton = COCO17

    @property
    def area_px2(self) -> np.ndarray:
        """[T] the person's, from the box; 0 where there is none."""
        return AREA_OF_BOX * np.nan_to_num(self.boxes_px[:, 2:] - self.boxes_px[:, :2]).prod(1)

    def keypoints(self, source: ConfidenceSource) -> Keypoints:
        return Keypoints(
            xy_px=torch.from_numpy(self.xy_px).float(),
            confidence=torch.from_numpy(self.confidence[source]).float().clamp(0, 1),
            presence=torch.from_numpy(self.presence[source]).float().clamp(0, 1),
            source=source,
            area_px2=torch.from_numpy(self.area_px2).float(),
            skeleton=self.skeleton,
        )


def true_boxes(track: TruthTrack, bodies: BodySet, size: tuple[int, int], camera_matrix: np.ndarray) -> np.ndarray:
    """Boxes [T, 4] around the true mesh inside the image, as COCO's people have them; NaN where it is not there."""
    if track.boxes_px is not None:
        corners = track.boxes_px
    else:
        body = bodies.load(track.gender)
        params = camera_params(track, body)
        vertices = body.at(params, vertices=True).vertices
        assert vertices is not None
        projected = vertices @ torch.as_tensor(camera_matrix, dtype=vertices.dtype).T
        front = projected[..., 2:] > 0.05
        xy = projected[..., :2] / projected[..., 2:].clamp(min=0.05)
        low = torch.where(front, xy, torch.inf).amin(1)
        high = torch.where(front, xy, -torch.inf).amax(1)
        corners = torch.cat((low, high), 1).double().numpy()
    limit = np.array([*size, *size], np.float64) - 1
    boxes = np.clip(corners, 0, limit)
    inside = ((boxes[:, 2:] - boxes[:, :2]) >= LEAST_BOX_PX).all(1)
    return np.where(inside[:, None], boxes, np.nan)


def true_keypoints_px(track: TruthTrack, camera: Camera, bodies: BodySet) -> np.ndarray:
    """[T, 17, 2]; NaN behind the camera."""
    body = bodies.load(track.gender)
    return camera.project(body.at(camera_params(track, body)).keypoints).double().numpy()


def true_oks(track: TruthTrack, read: Read, camera: Camera, bodies: BodySet) -> tuple[np.ndarray, np.ndarray]:
    """What each keypoint's OKS really is, and whether it is inside the image, both [T, 17]."""
    exact = true_keypoints_px(track, camera, bodies)
    inside = ((exact >= 0) & (exact <= np.array(camera.size) - 1)).all(-1)  # NaN, behind the camera, is not
    l2 = l_squared(read.area_px2, COCO17)
    with np.errstate(divide="ignore", invalid="ignore"):
        oks = keypoint_oks(((read.xy_px[:, :17] - exact) ** 2).sum(-1), l2)
    known = inside & np.isfinite(oks)
    return np.where(known, oks, 0.0), known.astype(np.float64)


class Reader:
    """The network and everyone who judges it, loaded once."""

    def __init__(self, settings: EvalSettings) -> None:
        self.sources = settings.confidence
        self.model = pose2d.load(settings.pose_model, settings.pose_checkpoint)
        self.judges = {
            source: trust.judge(source, settings.pose_model, self.model, settings.ccnet if source == "ccnet" else None)
            for source in self.sources
            if source != "oracle"
        }

    @torch.inference_mode()
    def read(self, work: Work, bodies: BodySet, tick: Callable[[int], None]) -> list[Read]:
        """Everyone in a sequence; each image is opened once."""
        boxes = [true_boxes(track, bodies, work.camera.size, work.camera.intrinsics) for track in work.tracks]
        count = self.model.skeleton.size
        found = [
            Read(
                frame=track.frame,
                boxes_px=boxes_px,
                readable=np.ones(len(track), bool),
                xy_px=np.full((len(track), count, 2), np.nan),
                confidence={source: np.zeros((len(track), count)) for source in self.sources},
                presence={source: np.zeros((len(track), count)) for source in self.sources},
                skeleton=self.model.skeleton,
            )
            for track, boxes_px in zip(work.tracks, boxes, strict=True)
        ]
        row_frame = np.concatenate([track.frame for track in work.tracks])
        row_person = np.concatenate([np.full(len(track), person) for person, track in enumerate(work.tracks)])
        row_time = np.concatenate([np.arange(len(track)) for track in work.tracks])

        def frames() -> Iterator[tuple[int, np.ndarray]]:
            for number in np.unique(row_frame).tolist():
                rows = np.flatnonzero(row_frame == number)
                try:
                    yield number, read_image(work.image(number))
                except UserError:
                    for row in rows:
                        found[row_person[row]].readable[row_time[row]] = False
                tick(len(rows))

        for rows, said in estimate_frames(self.model, frames(), row_frame, np.concatenate(boxes)):
            opinions = {
                source: judge(said.features, said.score, said.sigma_px, said.crop_area_px2)
                for source, judge in self.judges.items()
            }
            for n, (person, time) in enumerate(zip(row_person[rows], row_time[rows], strict=True)):
                found[person].xy_px[time] = said.xy_px[n].numpy()
                for source, (confidence, presence) in opinions.items():
                    found[person].confidence[source][time] = confidence[n].numpy()
                    found[person].presence[source][time] = presence[n].numpy()
        if "oracle" in self.sources:
            for track, read in zip(work.tracks, found, strict=True):
                read.confidence["oracle"][:], read.presence["oracle"][:] = true_oks(track, read, work.camera, bodies)
        return found


def stored(work: Work, bodies: BodySet, settings: EvalSettings) -> list[Read]:
    """The keypoints in 3DPW's own files."""
    found = []
    for track in work.tracks:
        if track.poses2d_px is None:
            raise UserError(f"{settings.data} holds no keypoints: --pose-model {STORED} needs 3DPW's sequenceFiles.")
        points = track.poses2d_px[:, OPENPOSE18_TO_COCO17]
        seen = points[..., 2] > 0
        score = {"raw": np.clip(points[..., 2], 0, 1), "ones": seen.astype(np.float64)}
        found.append(
            Read(
                frame=track.frame,
                boxes_px=true_boxes(track, bodies, work.camera.size, work.camera.intrinsics),
                readable=np.ones(len(track), bool),
                xy_px=np.where(seen[..., None], points[..., :2], np.nan),
                confidence={source: score[source] for source in settings.confidence},
                presence={source: seen.astype(np.float64) for source in settings.confidence},
            )
        )
    return found
