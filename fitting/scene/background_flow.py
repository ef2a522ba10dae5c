"""How corners of the background move between two images of one shot: rotation and zoom, and what they leave.

A camera that turns by R and zooms by z moves every image point by the same homography, whatever the scene's depth:

    x' ~ K_z R K^-1 x,      K_z = diag(z f, z f, 1)

Pixels are those of a small image, from its centre."""

import math
from dataclasses import dataclass

import cv2
import numpy as np
from scipy.optimize import least_squares, minimize_scalar
from scipy.spatial.transform import Rotation

# Chosen on textured backgrounds seen through known cameras with noise, JPEG compression and moving people
# (tests/fitting/test_camera_motion.py).
CORNERS = 120  # followed at a time
LEAST_CORNERS = 12  # fewer, or all of them in one place, say nothing
LEAST_FOCAL_LOG_SIGMA, WORST_FOCAL_LOG_SIGMA = 0.03, 0.15  # of a focal length from turning: distortion, rolling shutter
NOISE_PX = 0.25  # of a followed corner, at least
PARALLAX_PX = 0.9  # residual displacement that counts as one
_WIDE_START, _NEAR_START = (8.0, 5.0, 3.0, 2.0, 1.5, 1.5, 1.2, 1.2), (1.5, 1.2, 1.2)  # robust scales, pixels
_LK_STOP = (cv2.TERM_CRITERIA_EPS | cv2.TERM_CRITERIA_COUNT, 20, 0.02)


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


@dataclass(frozen=True)
class Parallax:
    """What rotation and zoom leave."""

    share: float  # of corners with a residual
    along: float  # share of the residual's energy along lines through one point
    direction: np.ndarray  # [3] unit, where the camera goes, up to sign


NO_PARALLAX = Parallax(0.0, 0.0, np.array([1.0, 0.0, 0.0]))


def shrunk(grey: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    if grey.ndim == 3:
        grey = cv2.cvtColor(grey, cv2.COLOR_RGB2GRAY)
    if grey.shape[::-1] != size:
        grey = cv2.resize(grey, size, interpolation=cv2.INTER_AREA)
    return np.ascontiguousarray(grey)


def turned_points(points: np.ndarray, cur_from_key: np.ndarray, focal_key: float, focal_cur: float) -> np.ndarray:
    """Centred pixels [N, 2] of the key frame -> [N, 3] directions in the current camera, scaled to its pixels."""
    rays = np.concatenate((points / focal_key, np.ones((len(points), 1))), 1) @ cur_from_key.T
    return rays * np.array([focal_cur, focal_cur, 1.0])


def moved_points(corners: np.ndarray, key: Pose, pose: Pose, focal: float) -> np.ndarray:
    """Where the key frame's corners should be at another pose, centred pixels [N, 2]."""
    relative = pose.first_from_camera.T @ key.first_from_camera
    y = turned_points(corners, relative, focal * math.exp(key.log_zoom), focal * math.exp(pose.log_zoom))
    return y[:, :2] / np.maximum(y[:, 2:], 0.05)


def followed(
    key: Key, guess: np.ndarray, small: np.ndarray, mask: np.ndarray, center: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Corners of the key frame that are found in the current one, outside people there too: both [M, 2], centred."""
    before = (key.corners + center).astype(np.float32)
    start = np.clip(guess + center, -20, np.array(small.shape[::-1]) + 20).astype(np.float32)
    after, status, error = cv2.calcOpticalFlowPyrLK(
        key.image, small, before, start, winSize=(15, 15), maxLevel=3, criteria=_LK_STOP,
        flags=cv2.OPTFLOW_USE_INITIAL_FLOW,
    )  # fmt: skip
    pixel = np.rint(after).astype(int)
    height, width = small.shape
    inside = ((pixel >= 0) & (pixel < (width, height))).all(1)
    free = mask[np.clip(pixel[:, 1], 0, height - 1), np.clip(pixel[:, 0], 0, width - 1)] > 0
    found = (status[:, 0] == 1) & inside & free & (error[:, 0] < 30)
    return key.corners[found].astype(np.float64), after[found].astype(np.float64) - center


def fit_rotation(corners: np.ndarray, points: np.ndarray, key: Pose, start: Pose, focal: float) -> Pose | None:
    """Rotation and zoom from the key frame by robust Gauss-Newton. From where the camera was last, and from the median
    flow; the latter must explain clearly more corners, so that a crowd that walks one way does not turn a camera that
    stands still."""
    focal_key = focal * math.exp(key.log_zoom)
    relative = start.first_from_camera.T @ key.first_from_camera
    y = turned_points(corners, relative, focal_key, focal * math.exp(start.log_zoom))
    shift = np.median(points - y[:, :2] / np.maximum(y[:, 2:], 0.05), axis=0)
    starts = [(relative, start.log_zoom)]
    if np.linalg.norm(shift) > 1.5:
        by_flow = Rotation.from_rotvec([-shift[1] / focal, shift[0] / focal, 0.0]).as_matrix()
        starts.append((by_flow @ relative, start.log_zoom))
    best: tuple[float, np.ndarray, float] | None = None
    for rotation, log_zoom in starts:
        fitted = _gauss_newton(corners, points, rotation, log_zoom, focal_key, focal)
        if best is None or fitted[0] > 1.5 * best[0]:
            best = fitted
    assert best is not None
    explained, rotation, log_zoom = best
    if explained < 6 or not np.isfinite(rotation).all() or abs(log_zoom) > 3:
        return None
    return Pose(key.first_from_camera @ rotation.T, log_zoom)


def _gauss_newton(
    corners: np.ndarray, points: np.ndarray, rotation: np.ndarray, log_zoom: float, focal_key: float, focal: float
) -> tuple[float, np.ndarray, float]:
    """Sum of weights, rotation, log zoom."""
    jacobian, weight = np.zeros((len(points), 2, 4)), np.ones(len(points))
    y = turned_points(corners, rotation, focal_key, focal * math.exp(log_zoom))
    apart = np.linalg.norm(points - y[:, :2] / np.maximum(y[:, 2:], 0.05), axis=1)
    for scale in _NEAR_START if np.quantile(apart, 0.6) < 1.0 else _WIDE_START:  # wide first draws far starts in
        y = turned_points(corners, rotation, focal_key, focal * math.exp(log_zoom))
        depth = np.maximum(y[:, 2], 0.05)
        seen = y[:, :2] / depth[:, None]
        residual = points - seen
        weight = (scale**2 / (scale**2 + np.sum(residual**2, 1))) ** 2  # Geman-McClure
        f = focal * math.exp(log_zoom)
        u, v = seen[:, 0], seen[:, 1]
        jacobian[:, 0] = np.stack((-u * v / f, f + u * u / f, -v, u), -1)
        jacobian[:, 1] = np.stack((-f - v * v / f, u * v / f, u, v), -1)
        weighted = jacobian * weight[:, None, None]
        normal = np.einsum("nki,nkj->ij", weighted, jacobian) + np.diag([1e-6, 1e-6, 1e-6, 1e-3])
        step = np.linalg.solve(normal, np.einsum("nki,nk->i", weighted, residual))
        rotation = Rotation.from_rotvec(step[:3]).as_matrix() @ rotation
        log_zoom = log_zoom + float(step[3])
    return float(weight.sum()), rotation, log_zoom


def measure_parallax(points: np.ndarray, residual: np.ndarray, focal: float) -> Parallax:
    """Share of corners that rotation does not explain, and how much of their motion follows lines through one point. A
    camera that goes by t moves the image of a point at (u, v) along (f t_x - u t_z, f t_y - v t_z), whatever its depth,
    so n . t = 0 with n = (-f r_v, f r_u, u r_v - v r_u)."""
    length = np.linalg.norm(residual, axis=1)
    moved = (length > PARALLAX_PX) & (length < 40)
    share = float(moved.mean())
    if moved.sum() < LEAST_CORNERS:
        return Parallax(share, 0.0, NO_PARALLAX.direction)
    r, p = residual[moved], points[moved]
    unit = r / length[moved, None]
    n = np.stack((-focal * unit[:, 1], focal * unit[:, 0], p[:, 0] * unit[:, 1] - p[:, 1] * unit[:, 0]), -1)
    weight = np.ones(len(n))
    along, t = np.zeros(len(n)), NO_PARALLAX.direction
    for _ in range(6):
        _, vectors = np.linalg.eigh((n * weight[:, None]).T @ n)
        t = vectors[:, 0]
        line = np.stack((focal * t[0] - p[:, 0] * t[2], focal * t[1] - p[:, 1] * t[2]), -1)
        size = np.maximum(np.linalg.norm(line, axis=1), 1e-9)
        along = (np.sum(unit * line, 1) / size) ** 2
        weight = 1 / np.maximum(size, 1e-6) ** 2 / (0.1 + 1 - along)
    energy = np.minimum(length[moved], 6.0) ** 2
    return Parallax(share, float(energy @ along / energy.sum()), t)


def fit_with_translation(
    corners: np.ndarray, points: np.ndarray, key: Pose, start: Pose, focal: float, directions: list[np.ndarray]
) -> tuple[Pose, np.ndarray]:
    """The rotation when the camera goes somewhere as well: corners need only lie on their epipolar lines. x'^T [t]x R x
    = 0 in Sampson's form, robustly, over R and the direction of t. Going forward and zooming in look alike, so the zoom
    stays what it was at the key frame."""
    f = focal * math.exp(key.log_zoom)
    before = np.concatenate((corners / f, np.ones((len(corners), 1))), 1)
    after = np.concatenate((points / f, np.ones((len(points), 1))), 1)
    base = start.first_from_camera.T @ key.first_from_camera

    def residuals(state: np.ndarray) -> np.ndarray:
        turned = before @ (Rotation.from_rotvec(state[:3]).as_matrix() @ base).T
        t = state[3:] / max(np.linalg.norm(state[3:]), 1e-9)
        line = np.cross(t, turned)  # E x
        other = np.cross(after, t)  # E^T x' in the turned frame, whose length in the image plane is what counts
        distance = np.sum(after * line, 1)
        size = np.sqrt(line[:, 0] ** 2 + line[:, 1] ** 2 + other[:, 0] ** 2 + other[:, 1] ** 2)
        # The last number keeps t of unit length; rotation is held weakly where the start put it.
        tail = [np.linalg.norm(state[3:]) - 1, *(state[:3] / np.radians(15.0))]
        return np.concatenate((f * distance / np.maximum(size, 1e-9) / NOISE_PX, tail))

    best = None
    for t in directions:
        found = least_squares(residuals, np.array([0, 0, 0, *t]), loss="soft_l1", f_scale=2.0, max_nfev=10)
        if best is None or found.cost < best.cost:
            best = found
    assert best is not None
    rotation = Rotation.from_rotvec(best.x[:3]).as_matrix() @ base
    return Pose(key.first_from_camera @ rotation.T, key.log_zoom), best.x[3:] / np.linalg.norm(best.x[3:])


def shift_px(a: Pose, b: Pose, focal: float, size: tuple[int, int]) -> float:
    """How far the image moves between two poses, small pixels: root mean square over a grid."""
    grid = np.stack(np.meshgrid(*(np.linspace(-0.4, 0.4, 3) * side for side in size)), -1).reshape(-1, 2)
    relative = b.first_from_camera.T @ a.first_from_camera
    y = turned_points(grid, relative, focal * math.exp(a.log_zoom), focal * math.exp(b.log_zoom))
    return float(np.sqrt(np.mean(np.sum((y[:, :2] / np.maximum(y[:, 2:], 0.05) - grid) ** 2, 1))))


# Of straight lines: least length, of the image's longer side; how far from the image's own vertical; std of where they
# point; share of their length that must meet in one point, the most that may meet in another, and how far that is.
LINE_SHARE, STEEP_DEG, LINE_DEG, LEAST_MET, MOST_ELSEWHERE, ELSEWHERE_DEG = 0.05, 25.0, 1.0, 0.5, 0.8, 6.0
LEAST_LINES, LINES_PX = 8, 640  # so many, and the longer side of the image that they are looked for in


def vertical_direction(image: np.ndarray, boxes_px: np.ndarray, focal_px: float) -> np.ndarray | None:
    """[3] the direction against gravity in the camera, as door frames, walls and posts show it: where most of the long
    steep lines outside the boxes [P, 4] meet. None: too few do, or they meet in two places."""
    scale = min(1.0, LINES_PX / max(image.shape[:2]))
    size = round(image.shape[1] * scale), round(image.shape[0] * scale)
    found = cv2.createLineSegmentDetector().detect(shrunk(image, size))[0]
    lines = np.zeros((0, 2, 2)) if found is None else found.reshape(-1, 2, 2).astype(float)
    middle, along = lines.mean(1), lines[:, 1] - lines[:, 0]
    length = np.linalg.norm(along, axis=1)
    steep = np.degrees(np.arctan2(np.abs(along[:, 0]), np.abs(along[:, 1]))) < STEEP_DEG
    inside = (middle[:, None] > boxes_px[:, :2] * scale) & (middle[:, None] < boxes_px[:, 2:] * scale)
    kept = steep & (length > LINE_SHARE * max(size)) & ~inside.all(-1).any(1)
    if kept.sum() < LEAST_LINES:
        return None
    along, length = along[kept] / length[kept, None], length[kept]
    middle = (middle[kept] - (np.array(size) - 1) / 2) / (focal_px * scale)
    pitch, roll = np.radians(np.meshgrid(np.arange(-30.0, 46.0), np.arange(-12.0, 13.0))).reshape(2, -1)
    up = np.stack((np.sin(roll) * np.cos(pitch), -np.cos(roll) * np.cos(pitch), -np.sin(pitch)), 1)
    to = up[:, None, :2] - up[:, None, 2:] * middle  # [directions, lines, 2] from each line's middle to where all meet
    sine = (to[..., 0] * along[:, 1] - to[..., 1] * along[:, 0]) / np.maximum(np.linalg.norm(to, axis=-1), 1e-9)
    met = np.exp(-((sine / math.radians(LINE_DEG)) ** 2) / 2) @ length / length.sum()
    best = up[met.argmax()]
    elsewhere = met[up @ best < math.cos(math.radians(ELSEWHERE_DEG))].max()
    return best if met.max() > LEAST_MET and elsewhere < MOST_ELSEWHERE * met.max() else None


def under_focal(direction: np.ndarray, ratio: float) -> np.ndarray:
    """[3] a vanishing direction as another focal length (new / old) shows it: its place in the image stays."""
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
    """The focal length that explains the turns best, over `focal`, as a logarithm with its deviation; None: any does. A
    camera that pans by d moves a point at x focal lengths from the axis by d (1 + x^2) focal lengths: how much faster
    the edges move than the middle tells how wide the lens is."""
    wide, fine = np.linspace(-0.9, 0.9, 10), 0.05
    costs = [turns_cost(turns, focal, value) for value in wide]
    best = int(np.argmin(costs))
    if best in (0, len(wide) - 1):
        return None
    found = minimize_scalar(
        lambda value: turns_cost(turns, focal, value), bounds=(wide[best - 1], wide[best + 1]), method="bounded",
        options={"xatol": 2e-3},
    )  # fmt: skip
    around = [turns_cost(turns, focal, found.x + step) for step in (-fine, 0.0, fine)]
    curvature = (around[0] - 2 * around[1] + around[2]) / fine**2
    if not np.isfinite(curvature) or curvature <= 0:
        return None
    sigma = math.hypot(curvature**-0.5, LEAST_FOCAL_LOG_SIGMA)
    return (float(found.x), sigma) if sigma < WORST_FOCAL_LOG_SIGMA else None


def turns_cost(turns: list[Turn], focal: float, log_ratio: float) -> float:
    """-log likelihood of all turns, each with the rotation and zoom that suit this focal length best."""
    ratio, total = math.exp(log_ratio), 0.0
    for turn in turns:
        relative = Rotation.from_matrix(turn.pose.first_from_camera.T @ turn.key.first_from_camera).as_rotvec()
        start = Rotation.from_rotvec(relative * np.array([1 / ratio, 1 / ratio, 1.0])).as_matrix()
        focal_key, focal_now = focal * ratio * math.exp(turn.key.log_zoom), focal * ratio
        _, rotation, log_zoom = _gauss_newton(
            turn.corners, turn.points, start, turn.pose.log_zoom, focal_key, focal_now
        )
        y = turned_points(turn.corners, rotation, focal_key, focal_now * math.exp(log_zoom))
        squared = np.sum((turn.points - y[:, :2] / np.maximum(y[:, 2:], 0.05)) ** 2, 1)
        # Neighbouring corners err alike (compression blocks, rolling shutter): a quarter of them count.
        total += float(np.sum(squared / (1 + squared))) / (8 * NOISE_PX**2)
    return total
