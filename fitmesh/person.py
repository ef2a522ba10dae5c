"""Define the tables of a result: shots, cameras and people with their rows per frame."""

from dataclasses import dataclass

import numpy as np

from pose2d.base.columns import column
from pose2d.base.errors import UserError
from pose2d.base.table import Table

# Largest values that fit.npz may hold; anything beyond is damage.
MOST_RAD = 100.0
FAR_M = 1e6
FAR_PX = 1e7


@dataclass(frozen=True)
class Shot(Table):
    """Describe the frames between two cuts: one camera, one world frame.

    Every person belongs to one shot.
    """

    PREFIX = "shot_"
    first_frame: int = column((), "i", "number of its first frame", low=0)
    camera: str = column((), "U", "how it moves: static, rotating, moving or unknown")
    # [3]; None: not known
    up_cam: np.ndarray | None = column(
        (3,), "f", "against gravity, in its first camera", low=-2, high=2, fill=np.nan
    )
    up_std_deg: float = column((), "f", "std of that; NaN: not known", unit="deg", low=0)
    floor_known: bool = column((), "b", "false: the world's y = 0 is the lowest foot")
    camera_height_m: float = column(
        (),
        "f",
        "of its first camera above the floor; NaN: not known",
        unit="m",
        low=-FAR_M,
        high=FAR_M,
    )
    focal_px: float = column(
        (), "d", "along x, of its first frame", unit="px", low=1e-3, high=FAR_PX, finite=True
    )
    focal_log_std: float = column((), "d", "std of log(focal_px); NaN: not known", low=0)
    focal_source: str = column((), "U", "where the focal length comes from")
    scene: str = column(
        (), "U", "gravity, floor and contacts: used, softened, dropped or not known", default=str
    )
    scene_reason: str = column(
        (), "U", "what they rest on, or why not, and whom they do not suit", default=str
    )


@dataclass(frozen=True)
class View(Table):
    """Describe one of several cameras; its own keypoints and overlay are in cameras/NAME."""

    PREFIX = "view_"
    name: str = column((), "U", "of the camera")
    # [4, 4] x_view = R x + t
    from_camera: np.ndarray = column(
        (4, 4), "d", "from this result's camera frame", unit="m", finite=True
    )
    focal_px: np.ndarray = column(
        (2,), "d", "along x, along y", unit="px", low=1e-3, high=FAR_PX, finite=True
    )
    center_px: np.ndarray = column(
        (2,), "d", "principal point", unit="px", low=-FAR_PX, high=FAR_PX, finite=True
    )
    size_px: np.ndarray = column(
        (2,), "i", "width, height of its images", unit="px", low=1, high=FAR_PX
    )
    offset_s: float = column(
        (), "d", "what its clock lacks to the first camera's", unit="s", finite=True
    )
    offset_std_s: float = column((), "d", "std of that; 0: stated, NaN: not known", unit="s", low=0)


@dataclass(frozen=True)
class Person(Table):
    """Hold one identity over the T frames of one shot in which the person is present.

    A person is present in frames that show it, and in gaps of up to half a second, which are filled
    in. `frame` may have gaps: no row means that the person is absent. Camera frame: x right, y down, z
    forward. World frame: metres, y up, floor at 0, the shot's first camera above the origin looking
    along -z (`fitting.camera`). Pixels: x right, y down, (0, 0) is the top left pixel's centre.
    Keypoints in Halpe-26's order (COCO's 17 first), joints in SMPL's (`fitting.body.kinematics`).
    Columns that are equal for all rows have one entry per person in fit.npz; docs/run.md describes
    all of them.
    """

    identity: int = column((), "i", "the person's number", each="people")
    frame: np.ndarray = column((), "i", "frame number in the clip", low=0)
    time_s: np.ndarray = column((), "d", "when each is shown", unit="s", in_files=False)
    observed: np.ndarray = column(
        (), "b", "false: too little was seen, filled in from the frames around"
    )
    # [T, 24, 3] each joint relative to its parent; joint 0 turns the body
    pose_rad: np.ndarray = column(
        (24, 3), "f", "axis-angle", unit="rad", finite=True, low=-MOST_RAD, high=MOST_RAD
    )
    translation_m: np.ndarray = column(
        (3,), "f", "added to every point", unit="m", finite=True, low=-FAR_M, high=FAR_M
    )
    shape: np.ndarray = column(
        ("directions",),
        "f",
        "in standard deviations",
        each="people",
        finite=True,
        low=-1e3,
        high=1e3,
    )
    joints_m: np.ndarray = column(
        (24, 3), "f", "camera frame", unit="m", finite=True, low=-FAR_M, high=FAR_M
    )
    # [T, 24] length of the standard deviations along x, y, z
    joint_std_mm: np.ndarray = column((24,), "f", "error to expect; NaN: unknown", unit="mm", low=0)
    joint_std_relative_mm: np.ndarray = column(
        (24,), "f", "the same relative to the pelvis", unit="mm", low=0
    )
    joint_observed: np.ndarray = column(
        (24,), "b", "a confident keypoint lies at the joint or farther out on its limb"
    )
    # [T, 26]
    keypoint_observed: np.ndarray = column(
        (26,), "f", "probability that it is near the truth", low=0, high=1
    )
    keypoints_px: np.ndarray = column(
        (26, 2),
        "f",
        "as the 2D network saw them; NaN: no detection",
        unit="px",
        low=-FAR_PX,
        high=FAR_PX,
    )
    swapped: np.ndarray = column(
        (26,), "b", "the network had called it by the name of the other side"
    )
    confidence: np.ndarray = column((26,), "f", "from `source`", low=0, high=1)
    presence: np.ndarray = column(
        (26,), "f", "probability that the keypoint is in the image", low=0, high=1
    )
    raw: np.ndarray = column((26,), "f", "the 2D network's own confidence")
    used: np.ndarray = column((26,), "b", "keypoints that pulled on the body")
    # [T, 26] of the body's keypoint
    reprojection_px: np.ndarray = column(
        (26,), "f", "distance to the seen one; NaN: it did not pull", unit="px", low=0
    )
    box_px: np.ndarray = column(
        (4,), "f", "x1, y1, x2, y2; NaN: no detection", unit="px", low=-FAR_PX, high=FAR_PX
    )
    converged: np.ndarray = column((), "b", "the search converged")
    stopped: str = column((), "U", "why the search ended", each="people")
    shot: int = column((), "i", "number of its shot", each="people", low=0)
    same_as: int = column(
        (), "i", "the earliest identity of the same person, or its own", each="people"
    )
    size: float = column(
        (), "f", "multiplies the posed body", each="people", finite=True, low=1e-3, high=1e3
    )
    height_m: float = column(
        (), "f", "standing, with its size", unit="m", each="people", finite=True, low=0, high=1e3
    )
    # [T, 4] left heel, left toes, right heel, right toes
    contact: np.ndarray = column((4,), "f", "probability that heels and toes stand", low=0, high=1)
    # [T, 24, 3] x right, y down, z along the optical axis: 68 % of errors are below
    joint_std_axes_mm: np.ndarray = column(
        (24, 3), "f", "std relative to the pelvis along the camera's axes", unit="mm", low=0
    )
    pose_std_deg: np.ndarray = column((24,), "f", "std of joints' rotations", unit="deg", low=0)
    # [T] of its joints relative to the pelvis (`reliable`)
    worst_error_mm: np.ndarray = column(
        (), "f", "median of the largest joint error; NaN: unknown", unit="mm", low=0
    )
    height_std_m: float = column(
        (), "f", "std of that; NaN: unknown", unit="m", each="people", default=lambda: np.nan
    )
    shape_covariance: np.ndarray = column(
        ("fitted", "fitted"),
        "f",
        "of the shape's first directions; NaN: unknown",
        each="people",
        default=lambda: np.full((10, 10), np.nan),
    )
    # [R] of hips and knees along their bones (`fitting.body.reading`)
    reading: np.ndarray = column(
        ("readings",),
        "f",
        "where keypoints are read, in standard deviations from most people; NaN: on the body",
        each="people",
        low=-1e3,
        high=1e3,
        optional=True,
        default=lambda: np.full(2, np.nan, np.float32),
    )
    scene_used: bool = column(
        (), "b", "gravity and floor pulled on the body", each="people", default=bool
    )
    masks: int = column(
        (),
        "i",
        "masks that the shape was found from; 0: keypoints only",
        each="people",
        default=int,
    )
    # [T, 30, 3] SMPL-H's joints, zeros: flat hands; a hand that is not seen relaxes. None: hands
    # were not looked for
    hand_pose_rad: np.ndarray | None = column(
        (30, 3),
        "f",
        "axis-angle of finger joints",
        unit="rad",
        finite=True,
        low=-MOST_RAD,
        high=MOST_RAD,
        optional=True,
    )
    hand_std_deg: np.ndarray | None = column(
        (30,), "f", "std of their rotations", unit="deg", low=0, optional=True
    )
    hand_seen: np.ndarray | None = column(
        (2,), "b", "the left, the right hand is seen", optional=True
    )  # [T, 2]
    # [T, 4, 4] of its frames; None: gravity is not known
    world_from_camera: np.ndarray | None = column(
        (4, 4), "f", "to the world frame", optional=True, in_files=False
    )

    @property
    def confident(self) -> np.ndarray:
        """Return [T, 26] bool: keypoints with weight that are probably close to the truth."""
        from fitting.keypoints.observed import OBSERVED_PROBABILITY

        return self.used & (self.keypoint_observed >= OBSERVED_PROBABILITY)

    def reliable(self, limit_mm: float = 50.0) -> np.ndarray:
        """Return [T] the probability that no joint is off by more than limit_mm.

        Errors are relative to the pelvis, without hands. The probability is 0 in frames that were
        filled in, and NaN where it is not known.
        """
        from fitting.stated import probability_within

        if not limit_mm > 0:
            raise UserError(f"reliable() needs a limit above 0 mm; got {limit_mm}.")
        return np.where(self.observed, probability_within(self.worst_error_mm, limit_mm), 0.0)

    def bounds_mm(self, level: float = 0.95) -> np.ndarray:
        """Return [T, 24, 3] mm: the bound on a joint's error that a share `level` of errors keeps.

        Errors are along the camera's axes and relative to the pelvis; NaN where they are not known.
        """
        from fitting.stated import level_factor

        if not 0 < level < 1:
            raise UserError(f"bounds_mm() needs a level between 0 and 1; got {level}.")
        return self.joint_std_axes_mm * level_factor(level, self.joint_observed, self.scene_used)

    def speeds_m_s(self) -> tuple[np.ndarray, np.ndarray]:
        """Return [T, 24] speeds of the joints and [T, 24] their standard deviations, m/s.

        Speeds are in the world frame where it is known, else in the camera frame; NaN beside
        absences.
        """
        from fitting.stated import speed_std_m_s

        joints = self.joints_m if self.joints_world_m is None else self.joints_world_m
        speed = np.full(joints.shape[:2], np.nan)
        if len(self) > 2:
            step = np.diff(self.frame)
            even = np.flatnonzero(step[1:] == step[:-1]) + 1
            apart_s = (self.time_s[even + 1] - self.time_s[even - 1])[:, None]
            speed[even] = np.linalg.norm(joints[even + 1] - joints[even - 1], axis=-1) / apart_s
        return speed, speed_std_m_s(self.joint_std_relative_mm, self.joint_observed)

    @property
    def joints_world_m(self) -> np.ndarray | None:
        """Return [T, 24, 3] metres in the world frame, or None if there is none."""
        from fitting.camera.world import points_to_world

        if self.world_from_camera is None:
            return None
        return points_to_world(self.joints_m, self.world_from_camera).astype(np.float32)
