"""Everyone's tracks in several cameras: of each camera alone, and of all on one clock."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from fitmesh.stages.people import SeenPeople
from fitmesh.stages.settings import Job
from fitmesh.tracks import edited_keypoints
from fitting.body import Body
from fitting.body.fingers import WRISTS
from fitting.camera import Camera
from fitting.fits import OtherView, TrackFit
from fitting.hands import fit_hands
from fitting.keypoints.hands import observe_hands
from fitting.rig.association import Track
from fitting.rig.offsets import Offset
from fitting.rig.rig import Rig
from fitting.rig.sights import Sight, find_neighbours
from fitting.rig.views import move_params, resample_keypoints
from pose2d.types import Detections, HandKeypoints

SHORTEST_TRACK = 5  # rows: shorter tracks say nothing of geometry
_HAND_ARRAYS = ("pose_rad", "std_deg", "seen", "wrist_rad", "point_std_mm")


@dataclass(frozen=True)
class CameraTracks:
    """What one camera's network found."""

    job: Job
    tracks: SeenPeople
    people: dict[int, Detections]  # long tracks; after `join_people`, all people

    @classmethod
    def of(cls, job: Job) -> "CameraTracks":
        """Return the tracks of a camera whose people stage is done."""
        tracks = edited_keypoints(job.out)
        people = {i: rows for i, rows in tracks.people.items() if len(rows) >= SHORTEST_TRACK}
        return cls(job, tracks, people)

    def sights(self, camera: Camera) -> list[Sight]:
        """Return the rays of every track."""
        return [Sight.of(rows.points, self.time_s(i), camera) for i, rows in self.people.items()]

    def time_s(self, identity: int) -> np.ndarray:
        """Return the times [N] of a person's rows on the camera's clock."""
        return self.tracks.times(self.people[identity].frame)

    def by_person(self, people: Mapping[int, Sequence[int]], no_rows: Detections) -> "CameraTracks":
        """Return the tracks joined by person; where two overlap, the earlier track's rows count.

        people: this camera's identities of each person; no_rows: the empty table of a person whom
        this camera does not see.
        """
        joined: dict[int, Detections] = {}
        for identity, own in people.items():
            tracks = sorted((self.people[i] for i in own), key=lambda rows: int(rows.frame[0]))
            rows = Detections.concat([no_rows, *tracks])
            joined[identity] = rows.rows(np.unique(rows.frame, return_index=True)[1])
        same_as = {identity: identity for identity in people}
        seen = replace(self.tracks, same_as=same_as, shot_first_frame=np.zeros(1))
        return replace(self, people=joined, tracks=seen)


def sights_of(cameras: Sequence[CameraTracks], rig: Rig) -> list[list[Sight]]:
    """Return the rays of every track of every camera."""
    return [own.sights(placed.camera) for own, placed in zip(cameras, rig.cameras, strict=True)]


def join_people(
    cameras: Sequence[CameraTracks], groups: Sequence[Sequence[Track]]
) -> list[CameraTracks]:
    """Return the tracks of every camera under common identities.

    People have the first camera's identities; people whom it does not see get numbers after those.
    """
    identities = [list(camera.people) for camera in cameras]
    next_free = max([0, *cameras[0].tracks.people]) + 1
    people: dict[int, list[list[int]]] = {}  # identities in each camera
    for group in groups:
        tracks = [
            [identities[camera][n] for camera, n in group if camera == number]
            for number in range(len(cameras))
        ]
        people[min(tracks[0], default=next_free)] = tracks
        if not tracks[0]:
            next_free += 1
    people = dict(sorted(people.items()))
    tables = [rows for camera in cameras for rows in camera.people.values()]
    no_rows = tables[0].rows(slice(0)) if tables else Detections.empty()
    return [
        camera.by_person({i: tracks[number] for i, tracks in people.items()}, no_rows)
        for number, camera in enumerate(cameras)
    ]


@dataclass(frozen=True)
class SyncedTracks:
    """What all cameras saw, where they stand, and when they started."""

    cameras: list[CameraTracks]  # all with the same people
    rig: Rig
    offsets: list[Offset]

    def frames(self, identity: int) -> np.ndarray:
        """Return the first camera's frames while any camera sees the person."""
        first = self.cameras[0].tracks
        times = np.concatenate(
            [self.time_s(number, identity) for number in range(len(self.cameras))]
        )
        half_s = 0.5 / first.fps
        is_visible = (first.time_s >= times.min() - half_s) & (first.time_s <= times.max() + half_s)
        return first.frames[is_visible]

    def time_s(self, number: int, identity: int) -> np.ndarray:
        """Return the times [N] of a person's rows in a camera, on the first camera's clock."""
        return self.cameras[number].time_s(identity) + self.offsets[number].seconds

    def to_camera(self, number: int, base: int = 0) -> np.ndarray:
        """Return the transformation [4, 4] from one camera's frame to another's."""
        matrix = np.eye(4)
        matrix[:3, :3], matrix[:3, 3] = self.rig.relative(number, base)
        return matrix

    def views(self, identity: int) -> list[OtherView]:
        """Return a person's keypoints at the first camera's frames, as each camera sees them.

        The first camera's view comes first, also where it does not see the person.
        """
        want_s = self.cameras[0].tracks.times(self.frames(identity))
        views = []
        for number, camera in enumerate(self.cameras):
            points = camera.people[identity].points
            if len(points):
                points = resample_keypoints(points, self.time_s(number, identity), want_s)
            elif number == 0:
                points = points.scatter([], len(want_s))
            else:
                continue
            rotation, offset_m = self.rig.relative(number)
            views.append(
                OtherView(
                    points,
                    self.rig.cameras[number].camera,
                    torch.from_numpy(rotation).float(),
                    torch.from_numpy(offset_m).float(),
                )
            )
        return views

    def with_fingers(self, identity: int, track: TrackFit, body: Body) -> TrackFit:
        """Return the track with each hand from the camera that shows it longest and largest."""
        first = self.cameras[0].tracks
        params = track.fit.params
        best = None
        most_shown = np.zeros(2)
        for number, camera_tracks in enumerate(self.cameras):
            hands = camera_tracks.people[identity].hands
            if hands is None or not len(hands):
                continue
            camera = self.rig.cameras[number].camera
            camera_params = move_params(params, self.to_camera(number), body)
            hands = self._hands_at(hands, number, identity, track)
            wrists = camera.project(body.at(camera_params).joints[:, list(WRISTS)]).numpy()
            same_side = np.nansum(np.abs(hands.xy_px[:, :, 0] - wrists), (1, 2))
            other_side = np.nansum(np.abs(hands.xy_px[:, :, 0] - wrists[:, ::-1]), (1, 2))
            hands = hands.swap_sides(other_side < same_side)  # the network exchanged the arms
            hand_fit = fit_hands(
                observe_hands(hands, camera, body),
                camera_params,
                camera,
                body,
                first.fps,
                track.present.astype(int),
            )
            shown = (hands.presence * hands.size_px).sum(0)
            best = best or hand_fit
            for side in np.flatnonzero(shown > most_shown):
                for name in _HAND_ARRAYS:
                    target = np.array_split(getattr(best, name), 2, axis=1)[side]
                    target[:] = np.array_split(getattr(hand_fit, name), 2, axis=1)[side]
            most_shown = np.maximum(most_shown, shown)
        if best is None:
            return track
        pose = params.pose.clone()
        pose[:, list(WRISTS)] = torch.from_numpy(best.wrist_rad)
        params = replace(params, pose=pose, hands=torch.from_numpy(best.pose_rad))
        return replace(track, fit=replace(track.fit, params=params), hands=best)

    def _hands_at(
        self, hands: HandKeypoints, number: int, identity: int, track: TrackFit
    ) -> HandKeypoints:
        """Return a camera's hands at the frames of a track."""
        track_s = self.cameras[0].tracks.times(track.frame)
        before, after, share = find_neighbours(self.time_s(number, identity), track_s)
        is_near = np.flatnonzero(share >= 0)
        nearest = np.where(share < 0.5, before, after)[is_near]
        return hands.rows(nearest).scatter(is_near, len(track))
