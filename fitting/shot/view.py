"""The camera of a shot: its lens, how it turns and zooms, and pixels as one focal length shows
them.

A zooming camera is fitted as if it had the first frame's focal length throughout: `undo_zoom`
scales keypoints before the fit, `zoom_keypoints` scales them back after it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from fitting.body import Body
from fitting.camera import Camera
from fitting.camera.focal import GIVEN_LOG_SIGMA, FocalEstimate, combine_focal_estimates
from fitting.shot.types import SceneOptions, ShotPerson
from pose2d.types import Keypoints
from pose2d.video.camera_motion.motion import CameraMotion


@dataclass(frozen=True)
class ShotView:
    """What everyone in a shot shares: the camera under one focal length, how it moves, the body
    model, and the frames.
    """

    camera: Camera  # of the first frame
    focal: FocalEstimate
    motion: CameraMotion | None  # None: was not looked for
    body: Body
    first_frame: int
    every: int
    fps: float
    has_several_cameras: bool  # so that lens and distances are known
    options: SceneOptions

    def rows(self, frame: np.ndarray) -> np.ndarray:
        """Return the places of frame numbers among the shot's frames."""
        return (frame - self.first_frame) // self.every

    def rotation_to_first(self, frame: np.ndarray) -> np.ndarray | None:
        """Return the camera's rotation [T, 3, 3] from these frames to the first; None: it does not
        turn, or that is not known.
        """
        return None if self.motion is None else self.motion.turning(self.rows(frame))

    def zoom(self, frame: np.ndarray) -> np.ndarray | None:
        """Return the focal length [T] divided by the first frame's; None: it does not change."""
        return None if self.motion is None else self.motion.zooming(self.rows(frame))

    def scale_pixels(self, xy_px: np.ndarray, factor: np.ndarray) -> np.ndarray:
        """Return pixels [T, .., 2] as focal lengths `factor` [T] times as long would show them."""
        center = np.array(self.camera.center_px, np.float32)
        factor = factor.astype(np.float32).reshape(-1, *(1,) * (xy_px.ndim - 1))
        return center + (xy_px - center) * factor

    def with_focal(self, focal: FocalEstimate) -> "ShotView":
        """Return the same image under another focal length."""
        ratio = focal.focal_px / self.focal.focal_px
        focal_px = (self.camera.focal_px[0] * ratio, self.camera.focal_px[1] * ratio)
        motion = None if self.motion is None else self.motion.with_focal(focal.focal_px)
        camera = replace(self.camera, focal_px=focal_px)
        return replace(self, camera=camera, focal=focal, motion=motion)

    @property
    def stays_in_place(self) -> bool:
        """Return whether the camera stays where it is; it may turn. Under a camera that travels, no
        foot is known to rest, and no floor to stay.
        """
        return self.motion is None or self.motion.kind != "moving"


def view_shot(
    people: Sequence[ShotPerson],
    camera: Camera,
    focal: FocalEstimate,
    motion: CameraMotion | None,
    body: Body,
    *,
    fps: float,
    every: int,
    options: SceneOptions,
) -> ShotView:
    """Return the view that everyone shares, its focal length refined by the camera's rotation."""
    if motion is not None:
        first_frame = int(motion.frames[0])
    else:
        first_frame = min((int(person.frame[0]) for person in people), default=0)
    several = any(person.other_views for person in people)
    view = ShotView(camera, focal, motion, body, first_frame, every, fps, several, options)
    return _refine_focal_by_rotation(view)


def _refine_focal_by_rotation(view: ShotView) -> ShotView:
    """Return the view with what the rotation of its camera says of the focal length, unless that
    length is stated.
    """
    if view.motion is None:
        return view
    from_rotation = FocalEstimate(
        view.motion.turning_focal_px, view.motion.turning_focal_log_sigma, "the camera's turning"
    )
    is_stated = view.focal.log_sigma <= GIVEN_LOG_SIGMA
    if is_stated or not math.isfinite(from_rotation.log_sigma):
        return view
    return view.with_focal(combine_focal_estimates([view.focal, from_rotation]))


def zoom_keypoints(keypoints: Keypoints, view: ShotView, factor: np.ndarray) -> Keypoints:
    """Return keypoints as focal lengths `factor` [T] times as long would show them."""
    area_px2 = keypoints.area_px2
    if area_px2 is not None:
        area_px2 = area_px2 * torch.from_numpy(factor).float().square()
    xy_px = torch.from_numpy(view.scale_pixels(keypoints.xy_px.numpy(), factor))
    return replace(keypoints, xy_px=xy_px, area_px2=area_px2)


def undo_zoom(person: ShotPerson, view: ShotView) -> ShotPerson:
    """Return a person as the first frame's focal length would show it."""
    zoom = view.zoom(person.frame)
    if zoom is None:
        return person
    hands = person.hands
    outlines = person.outlines
    if hands is not None:
        std_px = hands.std_px / zoom.astype(np.float32)[:, None, None]
        hands = replace(hands, xy_px=view.scale_pixels(hands.xy_px, 1 / zoom), std_px=std_px)
    if outlines is not None:
        xy_px = view.scale_pixels(outlines.xy_px, 1 / zoom[outlines.row])
        outlines = replace(outlines, xy_px=xy_px)
    keypoints = zoom_keypoints(person.keypoints, view, 1 / zoom)
    return replace(person, keypoints=keypoints, hands=hands, outlines=outlines)
