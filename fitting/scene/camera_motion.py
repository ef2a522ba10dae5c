"""How the camera moved during a shot: not at all, by turning and zooming on the spot, or by going
somewhere.

Corners of the background (outside people's boxes) are followed on a small grey image, from a key
frame to the current one directly, so that errors do not add up; a static shot keeps one key frame
for its whole length. Rotation and zoom are fitted first, robustly. What they leave is noise, things
that move by themselves, or parallax, which follows lines through one point of the image.
Translation itself is not estimated: from neighbouring frames it is mostly noise, and its length is
never observable.

A camera that turns by R and zooms by z moves every image point by the same homography, whatever the
scene's depth:

    x' ~ K_z R K^-1 x,      K_z = diag(z f, z f, 1)

Pixels are those of the small image, from its centre."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

import cv2
import numpy as np
from scipy.optimize import minimize_scalar
from scipy.spatial.transform import Rotation

from fitting.camera import focal_prior
from pose2d.base.table import Table, column, shared
from pose2d.video.frames import Frame

Kind = Literal["static", "rotating", "moving", "unknown"]

# Chosen on textured backgrounds seen through known cameras with noise, JPEG compression and moving
# people (tests/fitting/test_camera_motion.py); pixels are those of the small image.
SIDE_PX = 320  # longer side of the image that is looked at
STILL_STRIDE, TURNING_STRIDE = 5, 2  # every so-manyth frame is looked at
BOX_MARGIN = 0.08  # of a person's box on each side: hair, shadows, bags
STATIC_PX = 0.6  # a camera whose image moves less (0.13 degrees for a phone) stands still
PARALLAX_SHARE = 0.3  # of the corners that must have it
REST_PX, REST_SHARE = (
    0.6,
    0.25,
)  # corners that did not move: so many of them, and a camera that stood still still does
STATIC_SHARE = (
    0.35  # of the corners that are in place, at nearly all times, under a camera that stands still
)
LEAST_FOCAL_CHANGE = 0.03  # log: a smaller one is not worth measuring anew
LEAST_TURN, MOST_TURNS = (
    0.08,
    12,
)  # of the longer side that a turn must move the image; so many tell the focal length
# A camera that goes forwards looks like one that zooms; but of a zoom at most 6 % of the corners
# have parallax, in the worst tenth of the frames, and 18 % or more where depths differ by a sixth.
# One that goes sideways looks like one that turns behind a lens exp(SLIDE_LOG) times as long, which
# then explains the corners better (tests/.. as above).
LEAST_ZOOM = 0.08
ZOOMED_SHARE = 0.12
SLIDE_LOG = 2.0
SLIDES = 0.9
PARALLAX_ALONG = 0.8  # of its energy that must follow lines through one point; noise gives a half
_CALM = 8  # looks without motion, after which fewer are taken
_KEY_SHIFT = 0.22  # of the image's longer side, after which a new key frame is taken
CORNERS = 120  # followed at a time
LEAST_CORNERS = 12  # fewer, or all of them in one place, say nothing
LEAST_FOCAL_LOG_SIGMA, WORST_FOCAL_LOG_SIGMA = (
    0.03,
    0.15,
)  # of a focal length from turning: distortion, rolling shutter
NOISE_PX = 0.25  # of a followed corner, at least
PARALLAX_PX = 0.9  # residual displacement that counts as one
# robust scales, pixels
_WIDE_START = (8.0, 5.0, 3.0, 2.0, 1.5, 1.5, 1.2, 1.2)
_NEAR_START = (1.5, 1.2, 1.2)
_LK_STOP = (cv2.TERM_CRITERIA_EPS | cv2.TERM_CRITERIA_COUNT, 20, 0.02)


@dataclass(frozen=True)
class CameraMotion(Table):
    """The camera of one shot, over the F frames that were fed."""

    kind: Kind
    frames: np.ndarray = column((), "i", "frame numbers, increasing")
    # [F, 3, 3]
    first_from_camera: np.ndarray = column(
        (3, 3), "d", "a frame's camera -> the first frame's camera", finite=True
    )
    zoom: np.ndarray = column(
        (), "d", "focal length over the first frame's", low=1e-3, high=1e3, finite=True
    )
    focal_px: float = (
        shared()
    )  # of the first frame, full-frame pixels; angles were measured with it
    reason: str = shared()  # what the kind rests on, in words
    turning_focal_px: float = (
        math.nan
    )  # of the first frame, as the turning itself tells it; NaN: it does not
    turning_focal_log_sigma: float = math.inf
    vertical: np.ndarray | None = (
        None  # [3] against gravity in the first frame, as lines of the background show it
    )

    def turning(self, rows: np.ndarray) -> np.ndarray | None:
        """[T, 3, 3] from the cameras of some of the frames to the first; None: it does not turn, or
        nobody knows.
        """
        if self.kind in ("static", "unknown"):
            return None
        return self.first_from_camera[rows.clip(0, len(self.frames) - 1)]

    def zooming(self, rows: np.ndarray) -> np.ndarray | None:
        """[T] focal length over the first frame's; None: it stays the same. What looks like a zoom
        while the camera goes somewhere is its going."""
        if self.kind != "rotating" or np.ptp(self.zoom) < 1e-6:
            return None
        return self.zoom[rows.clip(0, len(self.frames) - 1)]

    def with_focal(self, focal_px: float) -> "CameraMotion":
        """The same image motion under another focal length: turns about x and y scale by old / new."""
        ratio = self.focal_px / focal_px
        vertical = None if self.vertical is None else under_focal(self.vertical, 1 / ratio)
        found = replace(self, focal_px=float(focal_px), vertical=vertical)
        if self.kind == "static" or ratio == 1:
            return found
        turned = with_scaled_turns(self.first_from_camera, 1 / ratio)
        return replace(found, first_from_camera=turned)


def unknown_motion(frames: np.ndarray, focal_px: float, reason: str) -> CameraMotion:
    """Of a camera that nobody looked at."""
    still = np.broadcast_to(np.eye(3), (len(frames), 3, 3)).copy()
    return CameraMotion("unknown", frames, still, np.ones(len(frames)), focal_px, reason)


def with_scaled_turns(first_from_camera: np.ndarray, focal_ratio: float) -> np.ndarray:
    """Rotations [F, 3, 3] as another focal length (new / old) would have measured them: turns about
    x and y shrink.
    """
    steps = first_from_camera[:-1].swapaxes(1, 2) @ first_from_camera[1:]
    scaled = (
        Rotation.from_matrix(steps).as_rotvec() / np.array([focal_ratio, focal_ratio, 1.0])
        if len(steps)
        else []
    )
    total = [first_from_camera[0]]
    for step in Rotation.from_rotvec(scaled).as_matrix() if len(steps) else []:
        total.append(total[-1] @ step)
    return np.stack(total)


# --- two images
# ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pose:
    first_from_camera: np.ndarray  # [3, 3]
    log_zoom: float


@dataclass(frozen=True)
class Key:
    """The frame that corners are followed from."""

    image: np.ndarray  # [h, w] uint8
    corners: np.ndarray  # [N, 2] small pixels from the image's centre
    pose: Pose


# What rotation and zoom leave: the share of corners with a residual, and that of its energy along
# lines through a point
NO_PARALLAX = (0.0, 0.0)


def shrunk(image: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """[h, w] grey levels of an image [H, W] or [H, W, 3] at another size (width, height)."""
    if image.shape[1::-1] != size:
        image = cv2.resize(image, size, interpolation=cv2.INTER_AREA)
    return (
        cv2.cvtColor(image, cv2.COLOR_RGB2GRAY) if image.ndim == 3 else np.ascontiguousarray(image)
    )


def moved_points(corners: np.ndarray, key: Pose, pose: Pose, focal: float) -> np.ndarray:
    """Where points [N, 2] of one frame should be at another pose, both in centred pixels."""
    relative = pose.first_from_camera.T @ key.first_from_camera
    rays = (
        np.concatenate((corners / (focal * math.exp(key.log_zoom)), np.ones((len(corners), 1))), 1)
        @ relative.T
    )
    return focal * math.exp(pose.log_zoom) * rays[:, :2] / np.maximum(rays[:, 2:], 0.05)


def followed(
    key: Key, guess: np.ndarray, small: np.ndarray, mask: np.ndarray, center: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Corners of the key frame that are found in the current one, outside people there too: both
    [M, 2], centred.
    """
    before = (key.corners + center).astype(np.float32)
    start = np.clip(guess + center, -20, np.array(small.shape[::-1]) + 20).astype(np.float32)
    after, status, error = cv2.calcOpticalFlowPyrLK(
        key.image,
        small,
        before,
        start,
        winSize=(15, 15),
        maxLevel=3,
        criteria=_LK_STOP,
        flags=cv2.OPTFLOW_USE_INITIAL_FLOW,
    )
    pixel = np.rint(after).astype(int)
    height, width = small.shape
    inside = ((pixel >= 0) & (pixel < (width, height))).all(1)
    free = mask[np.clip(pixel[:, 1], 0, height - 1), np.clip(pixel[:, 0], 0, width - 1)] > 0
    found = (status[:, 0] == 1) & inside & free & (error[:, 0] < 30)
    return key.corners[found].astype(np.float64), after[found].astype(np.float64) - center


def fit_rotation(
    corners: np.ndarray, points: np.ndarray, key: Pose, pose: Pose, focal: float
) -> tuple[Pose, float]:
    """Rotation and zoom from the key frame by robust Gauss-Newton from a pose; and how many corners
    they explain.
    """
    jacobian = np.zeros((len(points), 2, 4))
    weight = np.ones(len(points))
    apart = np.linalg.norm(points - moved_points(corners, key, pose, focal), axis=1)
    for scale in (
        _NEAR_START if np.quantile(apart, 0.6) < 1.0 else _WIDE_START
    ):  # wide first draws far starts in
        seen = moved_points(corners, key, pose, focal)
        residual = points - seen
        weight = (scale**2 / (scale**2 + np.sum(residual**2, 1))) ** 2  # Geman-McClure
        f = focal * math.exp(pose.log_zoom)
        u = seen[:, 0]
        v = seen[:, 1]
        jacobian[:, 0] = np.stack((-u * v / f, f + u * u / f, -v, u), -1)
        jacobian[:, 1] = np.stack((-f - v * v / f, u * v / f, u, v), -1)
        weighted = jacobian * weight[:, None, None]
        normal = np.einsum("nki,nkj->ij", weighted, jacobian) + np.diag([1e-6, 1e-6, 1e-6, 1e-3])
        step = np.linalg.solve(normal, np.einsum("nki,nk->i", weighted, residual))
        turned = pose.first_from_camera @ Rotation.from_rotvec(-step[:3]).as_matrix()
        pose = Pose(turned, pose.log_zoom + float(step[3]))
    return pose, float(weight.sum())


def measure_parallax(points: np.ndarray, residual: np.ndarray, focal: float) -> tuple[float, float]:
    """Share of corners that rotation does not explain, and how much of their motion follows lines
    through one point. A camera that goes by t moves the image of a point at (u, v) along (f t_x - u
    t_z, f t_y - v t_z), whatever its depth, so n . t = 0 with n = (-f r_v, f r_u, u r_v - v
    r_u)."""
    length = np.linalg.norm(residual, axis=1)
    moved = (length > PARALLAX_PX) & (length < 40)
    share = float(moved.mean())
    if moved.sum() < LEAST_CORNERS:
        return share, 0.0
    r = residual[moved]
    p = points[moved]
    unit = r / length[moved, None]
    n = np.stack(
        (-focal * unit[:, 1], focal * unit[:, 0], p[:, 0] * unit[:, 1] - p[:, 1] * unit[:, 0]), -1
    )
    weight = np.ones(len(n))
    along = np.zeros(len(n))
    for _ in range(6):
        _, vectors = np.linalg.eigh((n * weight[:, None]).T @ n)
        t = vectors[:, 0]
        line = np.stack((focal * t[0] - p[:, 0] * t[2], focal * t[1] - p[:, 1] * t[2]), -1)
        size = np.maximum(np.linalg.norm(line, axis=1), 1e-9)
        along = (np.sum(unit * line, 1) / size) ** 2
        weight = 1 / np.maximum(size, 1e-6) ** 2 / (0.1 + 1 - along)
    energy = np.minimum(length[moved], 6.0) ** 2
    return share, float(energy @ along / energy.sum())


def shift_px(a: Pose, b: Pose, focal: float, size: tuple[int, int]) -> float:
    """How far the image moves between two poses, small pixels: root mean square over a grid."""
    grid = np.stack(np.meshgrid(*(np.linspace(-0.4, 0.4, 3) * side for side in size)), -1).reshape(
        -1, 2
    )
    return float(np.sqrt(np.mean(np.sum((moved_points(grid, a, b, focal) - grid) ** 2, 1))))


# Of straight lines: least length, of the image's longer side; how far from the image's own
# vertical; std of where they point; share of their length that must meet in one point, the most
# that may meet in another, and how far that is.
LINE_SHARE = 0.05
STEEP_DEG = 25.0
LINE_DEG = 1.0
LEAST_MET = 0.5
MOST_ELSEWHERE = 0.8
ELSEWHERE_DEG = 6.0
LEAST_LINES, LINES_PX = (
    8,
    640,
)  # so many, and the longer side of the image that they are looked for in


def vertical_direction(
    image: np.ndarray, boxes_px: np.ndarray, focal_px: float
) -> np.ndarray | None:
    """[3] the direction against gravity in the camera, as door frames, walls and posts show it:
    where most of the long steep lines outside the boxes [P, 4] meet. None: too few do, or they meet
    in two places."""
    scale = min(1.0, LINES_PX / max(image.shape[:2]))
    size = round(image.shape[1] * scale), round(image.shape[0] * scale)
    found = cv2.createLineSegmentDetector().detect(shrunk(image, size))[0]
    lines = np.zeros((0, 2, 2)) if found is None else found.reshape(-1, 2, 2).astype(float)
    middle = lines.mean(1)
    along = lines[:, 1] - lines[:, 0]
    length = np.linalg.norm(along, axis=1)
    steep = np.degrees(np.arctan2(np.abs(along[:, 0]), np.abs(along[:, 1]))) < STEEP_DEG
    inside = (middle[:, None] > boxes_px[:, :2] * scale) & (
        middle[:, None] < boxes_px[:, 2:] * scale
    )
    kept = steep & (length > LINE_SHARE * max(size)) & ~inside.all(-1).any(1)
    if kept.sum() < LEAST_LINES:
        return None
    along = along[kept] / length[kept, None]
    length = length[kept]
    middle = (middle[kept] - (np.array(size) - 1) / 2) / (focal_px * scale)
    pitch, roll = np.radians(np.meshgrid(np.arange(-30.0, 46.0), np.arange(-12.0, 13.0))).reshape(
        2, -1
    )
    up = np.stack((np.sin(roll) * np.cos(pitch), -np.cos(roll) * np.cos(pitch), -np.sin(pitch)), 1)
    to = (
        up[:, None, :2] - up[:, None, 2:] * middle
    )  # [directions, lines, 2] from each line's middle to where all meet
    sine = (to[..., 0] * along[:, 1] - to[..., 1] * along[:, 0]) / np.maximum(
        np.linalg.norm(to, axis=-1), 1e-9
    )
    met = np.exp(-((sine / math.radians(LINE_DEG)) ** 2) / 2) @ length / length.sum()
    best = up[met.argmax()]
    elsewhere = met[up @ best < math.cos(math.radians(ELSEWHERE_DEG))].max()
    return best if met.max() > LEAST_MET and elsewhere < MOST_ELSEWHERE * met.max() else None


def under_focal(direction: np.ndarray, ratio: float) -> np.ndarray:
    """[3] a vanishing direction as another focal length (new / old) shows it: its place in the
    image stays.
    """
    other = direction / np.array([ratio, ratio, 1.0])
    return other / np.linalg.norm(other)


@dataclass(frozen=True)
class Turn:
    """Corners of a key frame and where they were when the camera had turned far."""

    corners: np.ndarray  # [N, 2]
    points: np.ndarray  # [N, 2]
    key: Pose
    pose: Pose


def focal_from_turns(turns: list[Turn], focal: float) -> tuple[float, float] | None:
    """The focal length that explains the turns best, over `focal`, as a logarithm with its
    deviation; None: any does. A camera that pans by d moves a point at x focal lengths from the
    axis by d (1 + x^2) focal lengths: how much faster the edges move than the middle tells how wide
    the lens is."""
    wide = np.linspace(-0.9, 0.9, 10)
    fine = 0.05
    costs = [turns_cost(turns, focal, value) for value in wide]
    best = int(np.argmin(costs))
    if best in (0, len(wide) - 1):
        return None
    found = minimize_scalar(
        lambda value: turns_cost(turns, focal, value),
        bounds=(wide[best - 1], wide[best + 1]),
        method="bounded",
        options={"xatol": 2e-3},
    )
    around = [turns_cost(turns, focal, found.x + step) for step in (-fine, 0.0, fine)]
    curvature = (around[0] - 2 * around[1] + around[2]) / fine**2
    if not np.isfinite(curvature) or curvature <= 0:
        return None
    sigma = math.hypot(curvature**-0.5, LEAST_FOCAL_LOG_SIGMA)
    return (float(found.x), sigma) if sigma < WORST_FOCAL_LOG_SIGMA else None


def turns_cost(turns: list[Turn], focal: float, log_ratio: float) -> float:
    """-log likelihood of all turns, each with the rotation and zoom that suit this focal length
    best.
    """
    ratio = math.exp(log_ratio)
    total = 0.0
    for turn in turns:
        turned = Rotation.from_matrix(
            turn.key.first_from_camera.T @ turn.pose.first_from_camera
        ).as_rotvec()
        start = Rotation.from_rotvec(turned * np.array([1 / ratio, 1 / ratio, 1.0])).as_matrix()
        start_pose = Pose(turn.key.first_from_camera @ start, turn.pose.log_zoom)
        pose, _ = fit_rotation(turn.corners, turn.points, turn.key, start_pose, focal * ratio)
        squared = np.sum(
            (turn.points - moved_points(turn.corners, turn.key, pose, focal * ratio)) ** 2, 1
        )
        # Neighbouring corners err alike (compression blocks, rolling shutter): a quarter of them
        # count.
        total += float(np.sum(squared / (1 + squared))) / (8 * NOISE_PX**2)
    return total


# --- a shot
# ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Looked:
    """What one looked-at frame told."""

    frame: int
    pose: Pose
    parallax: tuple[float, float]  # as NO_PARALLAX
    corners: int  # that were followed; 0: none, and the pose is a guess
    still: bool = False  # enough corners are where they were
    at_rest: float = 1.0  # share of corners that are where they were in the shot's first image


class CameraMotionEstimator:
    """Feed the frames of one shot in order, then `finish`. Memory: one small image and a few
    numbers a frame.
    """

    def __init__(self, size_px: tuple[int, int], focal_px: float) -> None:
        """size_px: (width, height) of the full frame that boxes are given in; focal_px: known or
        assumed.
        """
        self._scale = min(1.0, SIDE_PX / max(size_px))
        self._small = (
            max(8, round(size_px[0] * self._scale)),
            max(8, round(size_px[1] * self._scale)),
        )
        self._center = (np.array(self._small) - 1) / 2
        self._focal = focal_px * self._scale
        self._focal_px = float(focal_px)
        self._key: Key | None = None
        self._image = np.zeros((0, 0), np.uint8)  # that was looked at last
        self._looked: list[_Looked] = []
        self._frames: list[int] = []
        self._calm = _CALM  # frames looked at in a row without motion
        self._turns: list[Turn] = []  # the farthest from each key frame
        self._next_turn = (
            LEAST_TURN  # so far the image must move before the focal length is looked at again
        )

    def wants(self, frame: int) -> bool:
        """Whether `feed` would look at this frame's image."""
        stride = TURNING_STRIDE if self._calm < _CALM else STILL_STRIDE
        return not self._looked or frame - self._looked[-1].frame >= stride

    def feed(
        self, frame: int, image: np.ndarray | None, boxes_px: np.ndarray | Sequence[Sequence[float]]
    ) -> None:
        """image [h, w] or [h, w, 3] uint8, the whole frame at any size (may be None when not
        `wants`); boxes_px [P, 4] x1, y1, x2, y2."""
        if self._frames and frame <= self._frames[-1]:
            raise ValueError(f"frames must come in order: {frame} after {self._frames[-1]}")
        self._frames.append(frame)
        if image is None or not self.wants(frame):
            return
        small = shrunk(image, self._small)
        mask = self._background(np.asarray(boxes_px, np.float64).reshape(-1, 4))
        if self._key is None:
            pose = Pose(np.eye(3), 0.0)
            self._key = self._new_key(small, mask, pose)
            self._image = small
            self._looked.append(_Looked(frame, pose, NO_PARALLAX, len(self._key.corners)))
            return
        self._look(frame, small, mask)

    def finish(self, frames: np.ndarray | None = None) -> CameraMotion:
        """The camera of these frames, or of all that were fed so far: in between looks evenly,
        before the first and after the last as there."""
        frames = np.array(self._frames, int) if frames is None else frames
        found = _summary(frames, self._looked, self._focal, self._focal_px, self._small)
        turns = self._turns
        if found.kind != "rotating" or not turns:
            return found
        here, far = (
            turns_cost(turns[:MOST_TURNS], self._focal, value) for value in (0.0, SLIDE_LOG)
        )
        if far < SLIDES * here:  # all of the image moves alike, as under no lens that turns
            still = unknown_motion(
                found.frames, self._focal_px, "the image slides instead of turning"
            )
            return replace(still, kind="moving")
        told = focal_from_turns(turns[:MOST_TURNS], self._focal)
        if told is None:
            return found
        return replace(
            found,
            turning_focal_px=self._focal_px * math.exp(told[0]),
            turning_focal_log_sigma=told[1],
        )

    # --- one frame
    # ------------------------------------------------------------------------------------------------

    def _look(self, frame: int, small: np.ndarray, mask: np.ndarray) -> None:
        start = self._looked[-1].pose
        looked = self._against(start, frame, small, mask)
        if looked is None:  # the key frame may be too far away
            self._key = self._new_key(self._image, mask, start)
            looked = self._against(start, frame, small, mask)
        lost = looked is None
        looked = looked or _Looked(
            frame, start, NO_PARALLAX, 0
        )  # nothing to follow: the pose is kept
        if lost or self._worn(looked):
            anew = self._new_key(small, mask, looked.pose)
            if len(anew.corners) >= LEAST_CORNERS:
                self._key = anew
        self._image = small
        step = shift_px(start, looked.pose, self._focal, self._small)
        self._calm = self._calm + 1 if step < STATIC_PX else 0
        self._looked.append(looked)
        self._refocus()

    def _against(
        self, start: Pose, frame: int, small: np.ndarray, mask: np.ndarray
    ) -> _Looked | None:
        """From the key frame's corners; None: too few are found."""
        assert self._key is not None
        key = self._key
        if len(key.corners) < LEAST_CORNERS:
            return None
        guess = moved_points(key.corners, key.pose, start, self._focal)
        corners, points = followed(key, guess, small, mask, self._center)
        if len(corners) < LEAST_CORNERS:
            return None
        # Whatever walks past a camera that stood still, corners at rest say that it still does: no
        # turning camera leaves a quarter of them in place.
        at_rest = (
            np.linalg.norm(points - moved_points(corners, key.pose, start, self._focal), axis=1)
            < REST_PX
        )
        still = (
            self._calm >= _CALM
            and at_rest.sum() >= LEAST_CORNERS
            and bool(at_rest.mean() >= REST_SHARE)
        )
        used = at_rest if still else np.ones(len(points), bool)
        pose, explained = fit_rotation(corners[used], points[used], key.pose, start, self._focal)
        if explained < 6 or not np.isfinite(pose.first_from_camera).all() or abs(pose.log_zoom) > 3:
            return None
        residual = points - moved_points(corners, key.pose, pose, self._focal)
        parallax = measure_parallax(points, residual, self._focal)
        self._remember(Turn(corners, points, key.pose, pose))
        from_first = key.pose.log_zoom == 0.0 and bool(
            (key.pose.first_from_camera == np.eye(3)).all()
        )
        in_place = (
            float((np.linalg.norm(points - corners, axis=1) < REST_PX).mean())
            if from_first
            else 0.0
        )
        return _Looked(frame, pose, parallax, len(corners), still, in_place)

    def _remember(self, turn: Turn) -> None:
        """The last turn from each key frame, of at most MOST_TURNS."""
        if shift_px(turn.key, turn.pose, self._focal, self._small) < LEAST_TURN * max(self._small):
            return
        if self._turns and self._turns[-1].key is turn.key:
            self._turns.pop()
        self._turns.append(turn)
        if len(self._turns) > 2 * MOST_TURNS:
            self._turns = self._turns[::2]

    def _refocus(self) -> None:
        """Take the focal length that turns so far tell. Under a wrong one, a camera that pans seems
        to go somewhere. What was measured under the old one is turned by the new one's angles, and
        its parallax is forgotten."""
        if not self._turns:
            return
        size = max(self._small)
        farthest = (
            shift_px(self._turns[-1].key, self._turns[-1].pose, self._focal, self._small) / size
        )
        if farthest < self._next_turn:
            return
        self._next_turn = (
            max(2 * farthest, 2 * self._next_turn) if farthest < _KEY_SHIFT else math.inf
        )
        told = focal_from_turns(self._turns[-MOST_TURNS:], self._focal)
        if told is None or abs(told[0]) < LEAST_FOCAL_CHANGE:
            return
        ratio = math.exp(told[0])
        old = [look.pose for look in self._looked]
        places = with_scaled_turns(np.stack([pose.first_from_camera for pose in old]), ratio)
        new = {id(a): replace(a, first_from_camera=b) for a, b in zip(old, places, strict=True)}
        self._looked = [
            replace(look, pose=new[id(look.pose)], parallax=NO_PARALLAX) for look in self._looked
        ]
        assert self._key is not None
        self._key = replace(self._key, pose=new[id(self._key.pose)])
        self._turns = []
        self._focal, self._focal_px = self._focal * ratio, self._focal_px * ratio

    def _worn(self, looked: _Looked) -> bool:
        """Whether the key frame shows too little of what is seen now. While the camera stands still
        it never does: corners that people hide come back, and new ones would be found on people."""
        assert self._key is not None
        if looked.still:
            return False
        few = looked.corners < 0.5 * len(self._key.corners)
        moved = shift_px(self._key.pose, looked.pose, self._focal, self._small) > _KEY_SHIFT * max(
            self._small
        )
        zoomed = abs(looked.pose.log_zoom - self._key.pose.log_zoom) > 0.15
        return few or moved or zoomed

    def _new_key(self, small: np.ndarray, mask: np.ndarray, pose: Pose) -> Key:
        spacing = max(4, round(math.sqrt(self._small[0] * self._small[1] / CORNERS) / 2))
        found = cv2.goodFeaturesToTrack(small, CORNERS, 0.01, spacing, mask=mask, blockSize=5)
        points = np.zeros((0, 2)) if found is None else found[:, 0] - self._center
        return Key(small, points.astype(np.float32), pose)

    def _background(self, boxes_px: np.ndarray) -> np.ndarray:
        """[h, w] 255 outside people and away from the border."""
        width, height = self._small
        mask = np.zeros((height, width), np.uint8)
        mask[3:-3, 3:-3] = 255
        for x1, y1, x2, y2 in boxes_px[np.isfinite(boxes_px).all(1)] * self._scale:
            dx = BOX_MARGIN * max(x2 - x1, 0)
            dy = BOX_MARGIN * max(y2 - y1, 0)
            left = max(0, math.floor(x1 - dx))
            top = max(0, math.floor(y1 - dy))
            mask[top : max(0, math.ceil(y2 + dy)), left : max(0, math.ceil(x2 + dx))] = 0
        return mask


def _summary(
    frames: np.ndarray, looked: list[_Looked], focal: float, focal_px: float, size: tuple[int, int]
) -> CameraMotion:
    known = [look for look in looked if look.corners > 0]
    kind, reason = _kind(looked, known, focal, size)
    if kind in ("static", "unknown"):
        return replace(unknown_motion(frames, focal_px, reason), kind=kind)
    at = np.array([look.frame for look in looked], float)
    rotations = Rotation.from_matrix(np.stack([look.pose.first_from_camera for look in looked]))
    steps = (rotations[:-1].inv() * rotations[1:]).as_rotvec()
    place = np.clip(np.searchsorted(at, frames, side="right") - 1, 0, len(at) - 2)
    part = np.clip((frames - at[place]) / (at[place + 1] - at[place]), 0, 1)
    turned = (rotations[place] * Rotation.from_rotvec(steps[place] * part[:, None])).as_matrix()
    log_zoom = np.interp(frames, at, [look.pose.log_zoom for look in looked])
    return CameraMotion(kind, frames, turned, np.exp(log_zoom), focal_px, reason)


def _kind(
    looked: list[_Looked], known: list[_Looked], focal: float, size: tuple[int, int]
) -> tuple[Kind, str]:
    if len(known) < 2 or len(known) < 0.5 * len(looked):
        if len(looked) == 1 and looked[0].corners >= LEAST_CORNERS:
            return "static", "one frame was looked at"
        return (
            "unknown",
            f"the background shows corners in {len(known)} of {len(looked)} frames looked at",
        )
    shift = np.array([shift_px(known[0].pose, look.pose, focal, size) for look in known])
    parallax = np.array([look.parallax for look in known[1:]])
    telling = (parallax[:, 0] >= PARALLAX_SHARE) & (parallax[:, 1] >= PARALLAX_ALONG)
    share = float(np.quantile(parallax[:, 0], 0.9))
    # People whom nobody boxed, trees and water move corners, but a camera that moves leaves none in
    # place for long.
    in_place = float(np.quantile([look.at_rest for look in known], 0.05))
    if in_place >= STATIC_SHARE:
        return (
            "static",
            f"at least {100 * in_place:.0f} % of the background's corners stay in place",
        )
    if np.quantile(shift, 0.95) < STATIC_PX:
        return "static", f"the background moves by less than {STATIC_PX} pixels of {max(size)}"
    if telling.mean() >= 0.2:
        return (
            "moving",
            f"rotation and zoom leave parallax in {100 * telling.mean():.0f} % of the frames looked at",
        )
    zooms = np.array([look.pose.log_zoom for look in known])
    if np.ptp(zooms) > LEAST_ZOOM and share > ZOOMED_SHARE:
        return "moving", f"what looks like a zoom by {np.exp(np.ptp(zooms)):.2f} leaves parallax"
    turn = max(
        np.degrees(np.linalg.norm(Rotation.from_matrix(k.pose.first_from_camera).as_rotvec()))
        for k in known
    )
    return (
        "rotating",
        f"the camera turns by up to {turn:.1f} degrees and zooms by {np.exp(np.ptp(zooms)):.2f}",
    )


# What `tracks.npz` has of the camera: per shot, and per frame.
ARRAYS = (
    "camera_kind",
    "camera_reason",
    "camera_focal_px",
    "camera_first_from_frame",
    "camera_zoom",
    "camera_turning_focal_px",
    "camera_turning_focal_log_std",
)


class BackgroundMotion:
    """One estimator a shot. Angles are measured under a focal length from the prior or from the
    turning itself; `CameraMotion.with_focal` mends them once it is known better."""

    def __init__(self, size_px: tuple[int, int]) -> None:
        self._size = size_px
        self._focal = focal_prior(size_px).focal_px
        self._shots: list[tuple[int, CameraMotionEstimator]] = []
        self._vertical: dict[int, np.ndarray | None] = {}  # by first frame, under that focal length
        self._last = -1

    def cut(self, frame: int) -> None:
        """A shot begins with this frame."""
        self._shots.append((frame, CameraMotionEstimator(self._size, self._focal)))

    def add(self, frame: Frame, boxes_px: np.ndarray) -> None:
        """The next frame, with boxes [P, 4]; frames may be left out, and one that was seen before
        is ignored.
        """
        if frame.index <= self._last:
            return
        if not self._shots:
            self.cut(frame.index)
        self._last = frame.index
        first, estimator = self._shots[-1]
        if first not in self._vertical:
            self._vertical[first] = vertical_direction(frame.rgb, boxes_px, self._focal)
        estimator.feed(frame.index, frame.rgb, boxes_px)

    def arrays(self, frames: np.ndarray, shot_first_frame: np.ndarray) -> Mapping[str, Any]:
        """For `tracks.npz`: per shot [S] and per frame [F]. A shot whose begin was not told in time
        is "unknown".
        """
        told = dict(self._shots)
        motions = []
        ends = [*shot_first_frame[1:].tolist(), np.inf]
        for first, end in zip(shot_first_frame.tolist(), ends, strict=True):
            numbers = frames[(frames >= first) & (frames < end)]
            motion = unknown_motion(numbers, self._focal, "the background was not looked at")
            if first in told and not any(first < other < end for other in told):
                motion = told[first].finish(numbers)
                vertical = self._vertical.get(first)
                if vertical is not None:
                    motion = replace(
                        motion, vertical=under_focal(vertical, motion.focal_px / self._focal)
                    )
            motions.append(motion)

        def joined(name: str, empty: np.ndarray) -> np.ndarray:
            return np.concatenate([empty, *(getattr(m, name) for m in motions)]).astype(np.float32)

        return {
            "camera_kind": np.array([m.kind for m in motions], np.str_),
            "camera_reason": np.array([m.reason for m in motions], np.str_),
            "camera_focal_px": np.array([m.focal_px for m in motions], np.float64),
            "camera_first_from_frame": joined("first_from_camera", np.zeros((0, 3, 3))),
            "camera_zoom": joined("zoom", np.zeros(0)),
            "camera_turning_focal_px": np.array([m.turning_focal_px for m in motions], np.float64),
            "camera_turning_focal_log_std": np.array(
                [m.turning_focal_log_sigma for m in motions], np.float64
            ),
            "camera_vertical": np.array(
                [np.full(3, np.nan) if m.vertical is None else m.vertical for m in motions],
                np.float64,
            ).reshape(-1, 3),
        }


def read_motion(arrays: Mapping[str, np.ndarray], shot: int) -> CameraMotion | None:
    """One shot's from the arrays of `tracks.npz`; None where they have none."""
    if any(name not in arrays for name in ARRAYS):
        return None
    firsts = arrays["shot_first_frame"]
    end = firsts[shot + 1] if shot + 1 < len(firsts) else np.inf
    here = (arrays["frame"] >= firsts[shot]) & (arrays["frame"] < end)
    vertical = (
        arrays["camera_vertical"][shot] if "camera_vertical" in arrays else np.full(3, np.nan)
    )
    return CameraMotion(
        kind=cast(Kind, str(arrays["camera_kind"][shot])),
        frames=arrays["frame"][here],
        first_from_camera=arrays["camera_first_from_frame"][here].astype(np.float64),
        zoom=arrays["camera_zoom"][here].astype(np.float64),
        focal_px=float(arrays["camera_focal_px"][shot]),
        reason=str(arrays["camera_reason"][shot]),
        turning_focal_px=float(arrays["camera_turning_focal_px"][shot]),
        turning_focal_log_sigma=float(arrays["camera_turning_focal_log_std"][shot]),
        vertical=vertical if np.isfinite(vertical).all() else None,
    )
