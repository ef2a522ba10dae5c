"""People on an image, as meshes or as 2D skeletons, with what was observed and how confident it is.

A mesh has the colour of the identity; where nothing was observed it is pale grey and the image
shines through. A keypoint's colour runs from red (confidence 0) over yellow to green (1). In a
skeleton, a bone is as opaque as the lower confidence of its two ends; left limbs are orange and
right limbs blue."""

import colorsys
from collections.abc import Sequence
from functools import cache

import cv2
import numpy as np

from fitmesh.exports.scene import observed_surface
from fitmesh.result import Person, Result
from fitting.camera import Camera
from fitting.render.draw import Mesh, render_onto
from pose2d.hands import HAND_BONES
from pose2d.skeletons import Skeleton
from pose2d.types import HandKeypoints

RGB = tuple[int, int, int]
LEFT: RGB = (255, 140, 0)
RIGHT: RGB = (30, 150, 255)
HALO: RGB = (0, 0, 0)
LOWEST_OPACITY = 0.08  # at confidence 0: still visible
SUBPIXEL = 4  # cv2 draws at fractions of 1 / 2^SUBPIXEL pixels
FONT = cv2.FONT_HERSHEY_DUPLEX
MESH_OPACITY = 0.7
MESH_SOFTNESS = 16  # smoothing rounds: an overlay shows the pose, not the anatomy of the body model
DOTS_PX = 80.0  # on a smaller hand 21 dots would hide it
PALE = 0.82  # grey of a surface of which nothing was observed ..
PALE_OPACITY = 0.5  # .. and how opaque it is beside one that was


WORST_SCALE_MM = 400.0  # of a frame's worst joint: the red end of the bar under the video
_RAMP = np.array(
    [(0x35, 0x66, 0xC9), (0x2F, 0xAE, 0x9A), (0xF2, 0xC5, 0x3D), (0xD7, 0x35, 0x2B)]
)  # as the page's


def worst_colours(worst_error_mm: np.ndarray) -> list[str]:
    """[T] of CSS: blue where no joint is far off, red where one is, grey where nothing is known."""
    place = np.clip(np.nan_to_num(worst_error_mm) / WORST_SCALE_MM, 0, 1) * (len(_RAMP) - 1)
    rgb = (
        np.stack([np.interp(place, np.arange(len(_RAMP)), channel) for channel in _RAMP.T], -1)
        .round()
        .astype(int)
    )
    known = np.isfinite(worst_error_mm)
    return [
        "#{:02x}{:02x}{:02x}".format(*c) if k else "#9a9ea8"
        for c, k in zip(rgb.tolist(), known, strict=True)
    ]


def identity_colour(identity: int) -> RGB:
    """A colour for a person; consecutive numbers are far apart in hue (golden ratio), and no two
    are equal.
    """
    hue = (0.92 + 0.618034 * (identity - 1)) % 1
    red, green, blue = colorsys.hsv_to_rgb(hue, 0.65, 1.0)
    return round(255 * red), round(255 * green), round(255 * blue)


def confidence_colour(confidence: float) -> RGB:
    """Red at 0, yellow at 1/2, green at 1."""
    confidence = min(max(confidence, 0.0), 1.0)
    return round(255 * min(1.0, 2 - 2 * confidence)), round(220 * min(1.0, 2 * confidence)), 40


def draw_meshes(
    rgb: np.ndarray, result: Result, frame: int, rows: Sequence[tuple[Person, int]]
) -> None:
    """The mesh, keypoints and number of people in their rows of a frame, into `rgb` [H, W, 3] in
    place; nearer people hide farther ones."""
    camera = result.camera_at(frame)
    meshes = []
    for person, row in rows:
        observed = observed_surface(result.body, person.joint_observed[row : row + 1])
        colour = surface_colour(person.identity, observed)
        opaque = PALE_OPACITY + (1 - PALE_OPACITY) * observed
        meshes.append(
            Mesh(result.vertices(person, row), result.body.faces, colour, MESH_SOFTNESS, opaque)
        )
    render_onto(rgb, meshes, camera, alpha=MESH_OPACITY)
    for person, row in rows:  # small dots, so that the mesh below stays visible
        confidence = person.confidence[row] * person.presence[row]
        _draw_joints(rgb, person.keypoints_px[row], confidence, _line_width(rgb) / 2)
    corners = [_upper_left(np.asarray(mesh.vertices_cam), camera) for mesh in meshes]
    _tags(
        rgb,
        {
            person.identity: at
            for (person, _), at in zip(rows, corners, strict=True)
            if at is not None
        },
    )


def draw_boxes(rgb: np.ndarray, boxes_px: dict[int, np.ndarray]) -> None:
    """Boxes with numbers (identity -> x1, y1, x2, y2), into `rgb` [H, W, 3] in place."""
    width = max(1, _line_width(rgb) // 2)
    for identity, box in boxes_px.items():
        x1, y1, x2, y2 = (round(float(v)) for v in box)
        cv2.rectangle(rgb, (x1, y1), (x2, y2), identity_colour(identity), width, cv2.LINE_AA)
    _tags(
        rgb,
        {
            identity: (round(float(box[0])), round(float(box[1])))
            for identity, box in boxes_px.items()
        },
    )


def draw_skeleton(
    rgb: np.ndarray,
    xy_px: np.ndarray,
    confidence: np.ndarray,
    skeleton: Skeleton,
    identity: int,
    person_px: float,
) -> None:
    """Keypoints [K, 2] with confidence [K] in 0..1, into `rgb` in place; `person_px` is the
    person's height.
    """
    width = max(1, min(2 * _line_width(rgb), round(person_px / 60)))
    sides = _sides(skeleton)
    for a, b in skeleton.edges:
        if np.isfinite(xy_px[[a, b]]).all():
            side = sides[a] if sides[a] == sides[b] else None
            opacity = _opacity(min(confidence[a], confidence[b]))
            _mark(rgb, xy_px[[a, b]], side or identity_colour(identity), opacity, width)
    _draw_joints(rgb, xy_px, confidence, width)


def _draw_joints(rgb: np.ndarray, xy_px: np.ndarray, confidence: np.ndarray, width: float) -> None:
    for point, value in zip(xy_px, confidence, strict=True):
        if np.isfinite(point).all():
            _mark(
                rgb,
                point[None],
                confidence_colour(float(value)),
                _opacity(value),
                width * 0.9 + 0.6,
            )


def draw_hands(rgb: np.ndarray, hands: HandKeypoints, row: int) -> None:
    """Fingers of a person's left and right hand, fainter where a keypoint is stated to be less
    exact.
    """
    for hand, colour in enumerate((LEFT, RIGHT)):
        presence = hands.presence[row, hand]
        size_px = float(hands.size_px[row, hand])
        if not presence:
            continue
        width = max(1, min(2 * _line_width(rgb), round(size_px / 60)))
        # A keypoint that is off by a tenth of the hand's length says little of a finger.
        sure = presence * np.clip(1 - 10 * hands.std_px[row, hand] / max(size_px, 1), 0, 1)
        points = hands.xy_px[row, hand]
        for a, b in HAND_BONES:
            _mark(rgb, points[[a, b]], colour, _opacity(min(sure[a], sure[b])), width)
        if size_px > DOTS_PX:
            _draw_joints(rgb, points, sure, width / 2)


def draw_legend(rgb: np.ndarray, source: str) -> None:
    """What the colours mean and where the confidence comes from, at the lower left."""
    size = _text_size(rgb) * 0.8
    (_, height), _ = cv2.getTextSize("Ag", FONT, size, 1)
    x = height
    y = rgb.shape[0] - height
    gap = height // 2
    ramp = 6 * height
    pale = round(255 * PALE)
    entries = (
        ("not observed", ((pale, pale, pale),) * height),
        (
            f"{source} confidence 0 to 1",
            tuple(confidence_colour(i / (ramp - 1)) for i in range(ramp)),
        ),
    )
    for text, colours in entries:
        (width, _), _ = cv2.getTextSize(text, FONT, size, 1)
        if x + len(colours) + gap + width > rgb.shape[1]:
            return
        rgb[y - height : y, x : x + len(colours)] = colours
        x += len(colours) + gap
        for dx, dy in (
            (-1, 0),
            (1, 0),
            (0, -1),
            (0, 1),
        ):  # a halo; a thicker font would also be wider
            cv2.putText(rgb, text, (x + dx, y + dy), FONT, size, HALO, 1, cv2.LINE_AA)
        cv2.putText(rgb, text, (x, y), FONT, size, (255, 255, 255), 1, cv2.LINE_AA)
        x += width + 2 * gap


def surface_colour(identity: int, observed: np.ndarray) -> np.ndarray:
    """[V, 3] in 0..1 of a surface of which a share [V] was observed."""
    own = np.array(identity_colour(identity)) / 255
    return PALE + observed[:, None] * (own - PALE)


def _upper_left(vertices_m: np.ndarray, camera: Camera) -> tuple[int, int] | None:
    """Pixel x, y of a projected mesh's bounding box; None when all of it is behind the camera."""
    seen = vertices_m[vertices_m[:, 2] > 0.05]
    if not len(seen):
        return None
    fx, fy = camera.focal_px
    cx, cy = camera.center_px
    left, top = (seen[:, :2] / seen[:, 2:]).min(0).tolist()
    return round(min(max(left * fx + cx, -1e6), 1e6)), round(min(max(top * fy + cy, -1e6), 1e6))


def _tags(rgb: np.ndarray, corners: dict[int, tuple[int, int]]) -> None:
    """People's numbers over the corners x, y of their boxes, each to the right of tags that are
    there already.
    """
    taken: list[tuple[int, int, int]] = []  # left, right, top of the tags so far
    size = _text_size(rgb)
    for identity, (x, y) in corners.items():
        (width, height), _ = cv2.getTextSize(str(identity), FONT, size, 1)
        pad = max(2, height // 3)
        wide = width + 2 * pad
        high = height + 2 * pad
        top = min(
            max(0, y - high), rgb.shape[0] - high
        )  # above the box, or inside it at the image's upper edge
        left = min(max(0, x), rgb.shape[1] - wide)
        for other_left, other_right, other_top in sorted(taken):
            if abs(other_top - top) < high and other_left - wide < left < other_right:
                left = other_right
        cv2.rectangle(
            rgb, (left, top), (left + wide, top + high), identity_colour(identity), cv2.FILLED
        )
        cv2.putText(
            rgb, str(identity), (left + pad, top + pad + height), FONT, size, HALO, 1, cv2.LINE_AA
        )
        taken.append((left, left + wide, top))


def _mark(rgb: np.ndarray, points_px: np.ndarray, colour: RGB, opacity: float, size: float) -> None:
    """A bone between two points [2, 2], `size` wide, or a dot of this radius at one [1, 2], with a
    halo.
    """
    height, width = rgb.shape[:2]
    xs, ys = points_px.T.tolist()
    margin = int(size) + 3
    left = int(max(0, min(xs) - margin))
    top = int(max(0, min(ys) - margin))
    right = int(min(width, max(xs) + margin + 2))
    bottom = int(min(height, max(ys) + margin + 2))
    if right <= left or bottom <= top:
        return
    part = rgb[top:bottom, left:right]  # what it may touch; a view
    painted = part.copy()
    at = [  # in cv2's fractions of a pixel
        (
            round(min(max(x - left, -1e4), 1e4) * 2**SUBPIXEL),
            round(min(max(y - top, -1e4), 1e4) * 2**SUBPIXEL),
        )
        for x, y in zip(xs, ys, strict=True)
    ]
    for wider, paint in ((1, HALO), (0, colour)):
        if len(at) == 2:
            cv2.line(painted, at[0], at[1], paint, round(size) + 2 * wider, cv2.LINE_AA, SUBPIXEL)
        else:
            cv2.circle(
                painted,
                at[0],
                round((size + wider) * 2**SUBPIXEL),
                paint,
                cv2.FILLED,
                cv2.LINE_AA,
                SUBPIXEL,
            )
    cv2.addWeighted(painted, opacity, part, 1 - opacity, 0, dst=part)


def _opacity(confidence: float) -> float:
    return LOWEST_OPACITY + (1 - LOWEST_OPACITY) * min(max(float(confidence), 0.0), 1.0)


def _line_width(rgb: np.ndarray) -> int:
    return max(1, round(max(rgb.shape[:2]) / 400))


def _text_size(rgb: np.ndarray) -> float:
    return min(max(max(rgb.shape[:2]) / 1800, 0.35), 2.0)


@cache
def _sides(skeleton: Skeleton) -> tuple[RGB | None, ...]:
    """The colour of limbs at each keypoint. Head and trunk have no side here: shoulders and hips
    belong to both.
    """
    trunk = ("nose", "eye", "ear", "face", "neck", "head", "pelvis", "thorax")
    colours: list[RGB | None] = []
    for name in skeleton.keypoints:
        side = None if any(word in name for word in trunk) else name.split("_")[0]
        colours.append({"left": LEFT, "right": RIGHT}.get(side or ""))
    return tuple(colours)
