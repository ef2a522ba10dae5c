"""Finish fits: at the person's size, with palms and fingers, and with less confidence in keypoints
that lie behind other people.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import torch

from fitting.body import BodyOutput, BodyParams
from fitting.body.fingers import WRISTS
from fitting.fits import TrackFit
from fitting.hands import fit_hands, lay_palms_flat
from fitting.keypoints.after_fit import inflate_variance
from fitting.keypoints.hands import HandObservations, observe_hands
from fitting.keypoints.hidden import FittedBody, find_hidden_keypoints
from fitting.keypoints.observed import observed_joints
from fitting.keypoints.usable import TooFewKeypoints
from fitting.scene.ground import GroundAnswer
from fitting.shot.types import SceneDecision, ShotFit
from fitting.shot.view import ShotView, zoom_keypoints
from fitting.solver.terms.contact import FEET
from fitting.track import Track
from pose2d.base.table import blocks, join_rows

LEVEL_UP = np.array([0.0, -1.0, 0.0])  # up of a camera held level, where gravity is not known


@dataclass
class FinishedPeople:
    """The fits of a shot as they are finished, by identity."""

    view: ShotView
    answer: GroundAnswer
    fits: dict[int, TrackFit] = field(default_factory=dict)  # pixels as without zoom
    bodies: dict[int, FittedBody] = field(default_factory=dict)  # what may hide other people
    masks: dict[int, int] = field(default_factory=dict)

    def add(self, identity: int, track: Track, track_fit: TrackFit, size: float) -> None:
        """Add a person whose fit has size 1."""
        self.bodies[identity] = _place_body(track_fit, size, self.view)
        self.fits[identity] = _finish_person(track, track_fit, size, self.view, self._up)
        self.masks[identity] = 0 if track.shape is None else track.shape.masks

    @property
    def _up(self) -> np.ndarray:
        """Return up [3] in the axes of the shot's first camera."""
        return LEVEL_UP if self.answer.ground is None else self.answer.ground.up_cam

    def collect(
        self,
        left_out: dict[int, TooFewKeypoints],
        decisions: Mapping[int, SceneDecision] | None = None,
    ) -> ShotFit:
        """Return the shot, with less confidence in keypoints that lie behind other people."""
        view = self.view
        people: dict[int, TrackFit] = {}
        for identity in list(self.fits):
            inflation = self._hidden_variance(identity)
            track_fit = self.fits.pop(identity)  # of long videos, fits are most of what is held
            people[identity] = _as_recorded(track_fit, view, inflation)
        return ShotFit(
            people,
            left_out,
            view.camera,
            view.focal,
            view.motion,
            self.answer.ground,
            self.answer.reason,
            decisions=dict(decisions or {}),
            warnings=self.answer.warnings,
            masks=self.masks,
        )

    def _hidden_variance(self, identity: int) -> torch.Tensor | None:
        """Return the variance inflation [T, 26] of a person's keypoints by other people in front;
        None: there is no other person.
        """
        if len(self.bodies) < 2:
            return None
        return find_hidden_keypoints(self.bodies, identity, self.view.camera).inflation


def _place_body(track_fit: TrackFit, size: float, view: ShotView) -> FittedBody:
    """Return a person's joints and keypoints in metres, at the person's size."""
    params = track_fit.fit.params

    def place_block(block: slice) -> BodyOutput:
        placed = view.body.at(params.rows(block))
        return BodyOutput(size * placed.joints, size * placed.keypoints)

    placed = join_rows(map(place_block, blocks(len(params))), len(params))
    return FittedBody(track_fit.frame, track_fit.present, track_fit.keypoints, placed)


def _finish_person(
    track: Track, track_fit: TrackFit, size: float, view: ShotView, up: np.ndarray
) -> TrackFit:
    """Return a fit of size 1 at the person's size, with flat palms of people on their hands, and
    with fingers where hands were looked for. up [3]: in the axes of the first camera.
    """
    hands = None if track.hands is None else observe_hands(track.hands, view.camera, view.body)

    def finish_block(block: slice) -> TrackFit:
        part = _scale_fit(track_fit.rows(block), size, view)
        params = lay_palms_flat(part.fit.params, view.body, _up_in_frames(up, part.frame, view))
        part = replace(part, fit=replace(part.fit, params=params))
        if hands is None:
            return part
        return _fit_fingers(part, hands.rows(block), track.grid.segment[block], view)

    return join_rows(map(finish_block, blocks(len(track_fit))), len(track_fit))


def _up_in_frames(up: np.ndarray, frame: np.ndarray, view: ShotView) -> torch.Tensor:
    """Return up [T, 3] in the camera of each frame."""
    rotation = view.rotation_to_first(frame)
    if rotation is None:
        up_cam = np.broadcast_to(up, (len(frame), 3))
    else:
        up_cam = np.einsum("tij,i->tj", rotation, up)
    return torch.tensor(up_cam, dtype=torch.float32)


def _scale_fit(track_fit: TrackFit, size: float, view: ShotView) -> TrackFit:
    """Return a fit of size 1 at this size, with the lens's uncertainty in the depth."""
    fit = track_fit.fit
    translation = size * fit.params.translation
    params = replace(fit.params, translation=translation, size=torch.tensor(float(size)))
    fit = replace(fit, params=params)
    if fit.joint_std_mm is not None and fit.joint_std_relative_mm is not None:
        std_mm = size * fit.joint_std_mm
        lens_std_mm = _lens_std_mm(params, view)
        depth_std_mm = torch.hypot(std_mm[..., 2], lens_std_mm)
        std_mm = torch.cat((std_mm[..., :2], depth_std_mm[..., None]), -1)
        relative_mm = size * fit.joint_std_relative_mm
        fit = replace(fit, joint_std_mm=std_mm, joint_std_relative_mm=relative_mm)
    contact = track_fit.contact
    if contact is None:
        contact = np.zeros((len(track_fit), len(FEET)), np.float32)
    worst_mm = track_fit.worst_error_mm
    if worst_mm is not None:
        worst_mm = np.float32(size) * worst_mm
    return replace(track_fit, fit=fit, contact=contact, worst_error_mm=worst_mm)


def _lens_std_mm(params: BodyParams, view: ShotView) -> torch.Tensor:
    """Return the deviation [T, 1] of the depth that the lens leaves open, in millimetres."""
    log_sigma = 0.0 if view.has_several_cameras else view.focal.log_sigma
    return 1000 * log_sigma * params.translation[:, None, 2]


def _fit_fingers(
    track_fit: TrackFit, hands: HandObservations, segment: np.ndarray, view: ShotView
) -> TrackFit:
    """Return the fit with fingers, and with wrists as the palms show them."""
    params = track_fit.fit.params
    hand_fit = fit_hands(hands, params, view.camera, view.body, view.fps, segment)
    pose = params.pose.clone()
    pose[:, list(WRISTS)] = torch.from_numpy(hand_fit.wrist_rad)
    params = replace(params, pose=pose, hands=torch.from_numpy(hand_fit.pose_rad))
    return replace(track_fit, fit=replace(track_fit.fit, params=params), hands=hand_fit)


def _as_recorded(track_fit: TrackFit, view: ShotView, inflation: torch.Tensor | None) -> TrackFit:
    """Return a fit with pixels as they were recorded, and with the variance of keypoints inflated
    [T, 26] where other people are in front.
    """

    def finish_block(block: slice) -> TrackFit:
        part = track_fit.rows(block)
        if inflation is not None:
            keypoints = inflate_variance(part.keypoints, inflation[block])
            observed = part.joint_observed & observed_joints(keypoints, view.camera.size)
            part = replace(part, keypoints=keypoints, joint_observed=observed)
        zoom = view.zoom(part.frame)
        if zoom is not None:
            factor = torch.from_numpy(zoom).float()[:, None]
            fit = replace(part.fit, reprojection_px=part.fit.reprojection_px * factor)
            part = replace(part, keypoints=zoom_keypoints(part.keypoints, view, zoom), fit=fit)
        return part

    return join_rows(map(finish_block, blocks(len(track_fit))), len(track_fit))
