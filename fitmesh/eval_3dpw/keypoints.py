"""Find keypoints in images with the confidence of every source, cached in
`keypoints/SEQUENCE.npz`."""

import hashlib
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

import pose2d
from ccnet.confidence import confidence_function, head_digest
from eval3dpw.bodies import BodySet
from eval3dpw.sequences import TruthTrack, camera_params
from fitmesh.eval_3dpw.eval_settings import EvalSettings
from fitmesh.eval_3dpw.sequences import EvalSequence
from fitmesh.ui.events import Tick
from fitting.camera import Camera
from pose2d.base.caching import CacheKey, code_digest, content_digest, read_npz, write_npz
from pose2d.base.errors import UserError
from pose2d.base.threads import torch_threads
from pose2d.crops import estimate_people
from pose2d.keypoint_layouts import OPENPOSE18_TO_COCO17
from pose2d.models.registry import module_of
from pose2d.skeletons import BY_NAME, COCO17
from pose2d.types import AREA_OF_BOX, ConfidenceSource, Keypoints, keypoint_oks, l_squared
from pose2d.video.images import read_image

LEAST_BOX_PX = 8  # people who are smaller inside the image are skipped


@dataclass(frozen=True)
class PersonKeypoints:
    """One person's keypoints over T frames, with the confidence of each source."""

    frame: np.ndarray  # [T]
    boxes_px: np.ndarray  # [T, 4]; NaN: not inside the image
    readable: np.ndarray  # [T] false: the image could not be read
    by_source: Mapping[ConfidenceSource, Keypoints]  # [T]; NaN where the person was skipped

    @property
    def detected(self) -> np.ndarray:
        """Return [T]: whether keypoints were estimated in the frame."""
        return self.readable & np.isfinite(self.boxes_px).all(1)

    @property
    def xy_px(self) -> np.ndarray:
        """Return the keypoints [T, K, 2], which are the same for all sources."""
        return next(iter(self.by_source.values())).xy_px.numpy()

    @property
    def area_px2(self) -> np.ndarray:
        """Return the person's area [T], from the box; 0 where there is none."""
        return AREA_OF_BOX * np.nan_to_num(self.boxes_px[:, 2:] - self.boxes_px[:, :2]).prod(1)

    def keypoints(self, source: ConfidenceSource) -> Keypoints:
        """Return the keypoints of the detected frames with the confidence of a source."""
        rows = np.flatnonzero(self.detected)
        area_px2 = torch.from_numpy(self.area_px2[rows])
        return replace(self.by_source[source].rows(rows), area_px2=area_px2)


def true_boxes(
    track: TruthTrack, bodies: BodySet, size: tuple[int, int], camera_matrix: np.ndarray
) -> np.ndarray:
    """Return boxes [T, 4] around the true mesh inside the image, as COCO's people have them; NaN
    where it is outside.
    """
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
    """Return the true keypoints [T, 17, 2]; NaN behind the camera."""
    body = bodies.load(track.gender)
    return camera.project(body.at(camera_params(track, body)).keypoints[:, :17]).double().numpy()


def true_oks(
    track: TruthTrack, person: PersonKeypoints, camera: Camera, bodies: BodySet
) -> np.ndarray:
    """Return [2, T, 17]: the true OKS of each keypoint, and whether it is inside the image."""
    exact = true_keypoints_px(track, camera, bodies)
    # NaN, behind the camera, is not inside.
    inside = ((exact >= 0) & (exact <= np.array(camera.size) - 1)).all(-1)
    l2 = l_squared(person.area_px2, COCO17)
    with np.errstate(divide="ignore", invalid="ignore"):
        oks = keypoint_oks(((person.xy_px[:, :17] - exact) ** 2).sum(-1), l2)
    defined = inside & np.isfinite(oks)
    return np.stack([np.where(defined, oks, 0.0), defined])


class KeypointEstimator:
    """The network and the sources of confidence, loaded once."""

    def __init__(self, settings: EvalSettings) -> None:
        self.model = pose2d.load(settings.pose_model, settings.pose_checkpoint).to(settings.device)
        self.workers = torch.get_num_threads() if settings.device == "cpu" else 1
        self.confidence = {
            source: confidence_function(
                source,
                settings.pose_model,
                self.model,
                settings.ccnet if source == "ccnet" else None,
            )
            for source in settings.confidence  # "oracle": ones, replaced by the truth later
        }

    def estimate(
        self, sequence: EvalSequence, bodies: BodySet, tick: Tick
    ) -> list[PersonKeypoints]:
        """Return the keypoints of all people in a sequence, in the boxes of the true meshes. Each
        image is opened once.
        """
        size = sequence.camera.size
        matrix = sequence.camera.intrinsics
        boxes_px = np.concatenate(
            [true_boxes(track, bodies, size, matrix) for track in sequence.tracks]
        )
        frame = np.concatenate([track.frame for track in sequence.tracks])
        readable = np.ones(len(frame), np.bool_)
        order = [np.zeros(0, np.int64)]
        lengths = {"keypoints": self.model.skeleton.size}
        parts = {
            source: [Keypoints.empty(lengths, source=source, skeleton=self.model.skeleton)]
            for source in self.confidence
        }

        @torch.inference_mode()
        def estimate_image(
            number: int,
        ) -> tuple[np.ndarray, np.ndarray, dict[ConfidenceSource, Keypoints]] | None:
            """Return the rows of the people in an image, their boxes as used, and their keypoints;
            None if it cannot be read.
            """
            try:
                image = read_image(sequence.image(number))
            except UserError:
                return None
            rows = np.flatnonzero((frame == number) & np.isfinite(boxes_px).all(1))
            boxes, estimate = estimate_people(self.model, [image] * len(rows), boxes_px[rows])
            by_source = {source: apply(estimate) for source, apply in self.confidence.items()}
            return rows, boxes, by_source

        numbers = np.unique(frame).tolist()
        # As in a run: images in parallel, each with one thread; one worker keeps a GPU busy.
        with ThreadPoolExecutor(self.workers) as pool, torch_threads(1):
            for number, people_here in zip(numbers, pool.map(estimate_image, numbers), strict=True):
                tick(int((frame == number).sum()))
                if people_here is None:
                    readable[frame == number] = False
                    continue
                rows, boxes, by_source = people_here
                boxes_px[rows] = boxes
                order.append(rows)
                for source, points in by_source.items():
                    parts[source].append(points)
        place = np.concatenate(order)
        everyone = {
            source: Keypoints.concat(images[1:] or images).scatter(place, len(frame))
            for source, images in parts.items()
        }
        people = []
        ends = np.cumsum([0, *map(len, sequence.tracks)])
        for track, span in zip(sequence.tracks, map(slice, ends[:-1], ends[1:]), strict=True):
            own = {source: points.rows(span) for source, points in everyone.items()}
            person = PersonKeypoints(track.frame, boxes_px[span], readable[span], own)
            if "oracle" in own:
                truth = torch.zeros(2, len(track), self.model.skeleton.size)
                oks = true_oks(track, person, sequence.camera, bodies)
                truth[:, :, : COCO17.size] = torch.from_numpy(oks)
                own["oracle"] = replace(own["oracle"], confidence=truth[0], presence=truth[1])
            people.append(person)
        return people


def stored_keypoints(
    sequence: EvalSequence, bodies: BodySet, settings: EvalSettings
) -> list[PersonKeypoints]:
    """Return the keypoints in 3DPW's own files."""
    people = []
    for track in sequence.tracks:
        if track.poses2d_px is None:
            raise UserError(
                f"{settings.data} holds no keypoints: --keypoints-from poses2d needs 3DPW's "
                "sequenceFiles.",
                file=settings.data,
            )
        points = track.poses2d_px[:, OPENPOSE18_TO_COCO17]
        visible = points[..., 2] > 0
        score = {"raw": np.clip(points[..., 2], 0, 1), "ones": visible}
        xy = torch.from_numpy(np.where(visible[..., None], points[..., :2], np.nan)).float()
        boxes_px = true_boxes(track, bodies, sequence.camera.size, sequence.camera.intrinsics)
        presence = torch.from_numpy(visible).float()
        own = {
            s: Keypoints(xy, torch.from_numpy(score[s]).float(), presence, s)
            for s in settings.confidence
        }
        people.append(PersonKeypoints(track.frame, boxes_px, np.ones(len(track), bool), own))
    return people


def cache_key(sequence: EvalSequence, settings: EvalSettings, bodies: BodySet) -> CacheKey:
    """Return the cache key of a sequence's keypoints."""
    # Images by their names and sizes: reading them all would take as long as the keypoints.
    images = hashlib.sha256()
    files = hashlib.sha256()
    for path in (
        sequence.image(number) for track in sequence.tracks for number in track.frame.tolist()
    ):
        text = f"{path.name} {path.stat().st_size if path.is_file() else -1};"
        images.update(text.encode("utf-8", "surrogateescape"))
    for gender in sorted({track.gender for track in sequence.tracks} | {"neutral"}):
        body = bodies.load(gender)
        for tensor in (body.v_template, body.shapedirs, body.J_regressor, body.weights):
            files.update(tensor.contiguous().numpy().tobytes())
    inputs = {"truth": sequence.digest, "images": images.hexdigest(), "bodies": files.hexdigest()}
    code = ["pose2d.crops", "fitmesh.eval_3dpw.keypoints"]
    if settings.pose_checkpoint is not None:
        inputs["pose_checkpoint"] = content_digest([settings.pose_checkpoint])
    if settings.has_network:
        code += ["pose2d.models.loading", module_of(settings.pose_model)]
        for source in settings.confidence:
            head = settings.ccnet if source == "ccnet" else None
            if digest := head_digest(source, settings.pose_model, head):
                inputs[source] = digest
    return CacheKey(
        stage="eval-3dpw keypoints",
        settings={
            "pose_model": settings.keypoints_by,
            "confidence": list(settings.confidence),
            "every": settings.every,
        },
        inputs=inputs,
        code=code_digest(*code),
    )


_ROWS = ("frame", "boxes_px", "readable")


def write(path: Path, key: CacheKey, sequence: EvalSequence, people: list[PersonKeypoints]) -> None:
    """Write the keypoints of a sequence."""
    skeleton = next(iter(people[0].by_source.values())).skeleton.name
    arrays: dict[str, np.ndarray | str] = {"skeleton": skeleton}
    for track, person in zip(sequence.tracks, people, strict=True):
        arrays |= {f"{track.person}.{name}": getattr(person, name) for name in _ROWS}
        for source, points in person.by_source.items():
            arrays |= points.to_arrays(f"{track.person}.{source}.")
    write_npz(path, key, arrays)


def read(
    path: Path, sequence: EvalSequence, sources: Sequence[ConfidenceSource]
) -> list[PersonKeypoints]:
    """Read the keypoints of a sequence."""
    arrays = read_npz(path)
    people = []
    skeleton = BY_NAME[str(arrays["skeleton"])]
    for track in sequence.tracks:
        own = {
            source: Keypoints.from_arrays(
                arrays, f"{track.person}.{source}.", source=source, skeleton=skeleton
            )
            for source in sources
        }
        rows = {name: arrays[f"{track.person}.{name}"] for name in _ROWS}
        people.append(PersonKeypoints(**rows, by_source=own))
    return people
