"""Drawing people onto an image, as meshes or as 2D skeletons, with confidence as colour.

A mesh has the colour of the identity; where nothing was observed it is pale grey and more
transparent. A keypoint's colour runs from red (confidence 0) over yellow to green (1). In a
skeleton, a bone is as opaque as the lower confidence of its two ends; left limbs are orange and
right limbs blue."""

import colorsys
from collections.abc import Sequence
from functools import cache

import cv2
import numpy as np

from fitmesh.exports.scene import observed_surface
from fitmesh.person import Person
from fitmesh.result import Result
from fitting.camera import Camera
from fitting.camera.pinhole import resize_px
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
PALE = 0.82  # grey of a surface that was not observed
PALE_OPACITY = 0.5  # its opacity relative to an observed surface
WORST_SCALE_MM = 400.0  # error of a frame's worst joint at the red end of the bar under the video
# Blue, green, yellow, red: as in the viewer's colours.js.
_RAMP = np.array([(0x35, 0x66, 0xC9), (0x2F, 0xAE, 0x9A), (0xF2, 0xC5, 0x3D), (0xD7, 0x35, 0x2B)])
_UNKNOWN = "#9a9ea8"


def worst_colours(worst_error_mm: np.ndarray) -> list[str]:
    """Return CSS colours [T]: blue where no joint is far off, red where one is, grey where it is
    not known.
    """
    place = np.clip(np.nan_to_num(worst_error_mm) / WORST_SCALE_MM, 0, 1) * (len(_RAMP) - 1)
    channels = [np.interp(place, np.arange(len(_RAMP)), channel) for channel in _RAMP.T]
    colours = np.stack(channels, -1).round().astype(int).tolist()
    is_known = np.isfinite(worst_error_mm)
    return [
        "#{:02x}{:02x}{:02x}".format(*colour) if has_error else _UNKNOWN
        for colour, has_error in zip(colours, is_known, strict=True)
    ]


def identity_colour(identity: int) -> RGB:
    """Return the colour of a person. Consecutive numbers are far apart in hue (golden ratio), and
    no two are equal.
    """
    hue = (0.92 + 0.618034 * (identity - 1)) % 1
    red, green, blue = colorsys.hsv_to_rgb(hue, 0.65, 1.0)
    return round(255 * red), round(255 * green), round(255 * blue)


def confidence_colour(confidence: float) -> RGB:
    """Return red at 0, yellow at 1/2, green at 1."""
    confidence = min(max(confidence, 0.0), 1.0)
    return round(255 * min(1.0, 2 - 2 * confidence)), round(220 * min(1.0, 2 * confidence)), 40


def draw_meshes(
    rgb: np.ndarray, result: Result, camera: Camera, rows: Sequence[tuple[Person, int]]
) -> None:
    """Draw the meshes, keypoints and numbers of people in their rows of a frame into `rgb` [H, W,
    3], in place; nearer people hide farther ones.

    camera: of the frame, at the size of `rgb`.
    """
    ratio = camera.size[0] / result.size[0]
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
        keypoints_px = resize_px(person.keypoints_px[row], ratio)
        _draw_joints(rgb, keypoints_px, confidence, _line_width(rgb) / 2)
    corners = {}
    for (person, _), mesh in zip(rows, meshes, strict=True):
        corner = _upper_left(np.asarray(mesh.vertices_cam), camera)
        if corner is not None:
            corners[person.identity] = corner
    _draw_tags(rgb, corners)


def draw_boxes(rgb: np.ndarray, boxes_px: dict[int, np.ndarray]) -> None:
    """Draw boxes with numbers (identity -> x1, y1, x2, y2) into `rgb` [H, W, 3], in place."""
    width = max(1, _line_width(rgb) // 2)
    corners = {}
    for identity, box in boxes_px.items():
        x1, y1, x2, y2 = (round(float(v)) for v in box)
        cv2.rectangle(rgb, (x1, y1), (x2, y2), identity_colour(identity), width, cv2.LINE_AA)
        corners[identity] = (x1, y1)
    _draw_tags(rgb, corners)


def draw_skeleton(
    rgb: np.ndarray,
    xy_px: np.ndarray,
    confidence: np.ndarray,
    skeleton: Skeleton,
    identity: int,
    person_px: float,
) -> None:
    """Draw keypoints [K, 2] with confidence [K] in 0..1 into `rgb`, in place. person_px: the
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
    """Draw a dot in the colour of its confidence at every finite keypoint."""
    radius = width * 0.9 + 0.6
    for point, value in zip(xy_px, confidence, strict=True):
        if np.isfinite(point).all():
            _mark(rgb, point[None], confidence_colour(float(value)), _opacity(value), radius)


def draw_hands(rgb: np.ndarray, hands: HandKeypoints, row: int, ratio: float = 1.0) -> None:
    """Draw the fingers of a person's left and right hand, fainter where the error is larger.

    ratio: of the image's size to that of the video.
    """
    for hand, colour in enumerate((LEFT, RIGHT)):
        presence = hands.presence[row, hand]
        size_px = ratio * float(hands.size_px[row, hand])
        if not presence:
            continue
        width = max(1, min(2 * _line_width(rgb), round(size_px / 60)))
        # An error of a tenth of the hand's length hides the pose of a finger.
        relative_std = ratio * hands.std_px[row, hand] / max(size_px, 1)
        sure = presence * np.clip(1 - 10 * relative_std, 0, 1)
        points = resize_px(hands.xy_px[row, hand], ratio)
        for a, b in HAND_BONES:
            _mark(rgb, points[[a, b]], colour, _opacity(min(sure[a], sure[b])), width)
        if size_px > DOTS_PX:
            _draw_joints(rgb, points, sure, width / 2)


def draw_legend(rgb: np.ndarray, source: str) -> None:
    """Draw what the colours mean and where the confidence comes from, at the lower left."""
    size = _text_size(rgb) * 0.8
    (_, height), _ = cv2.getTextSize("Ag", FONT, size, 1)
    x = height
    y = rgb.shape[0] - height
    gap = height // 2
    ramp = 6 * height
    pale = round(255 * PALE)
    confidences = tuple(confidence_colour(i / (ramp - 1)) for i in range(ramp))
    entries = (
        ("not observed", ((pale, pale, pale),) * height),
        (f"{source} confidence 0 to 1", confidences),
    )
    for text, colours in entries:
        (width, _), _ = cv2.getTextSize(text, FONT, size, 1)
        if x + len(colours) + gap + width > rgb.shape[1]:
            return
        rgb[y - height : y, x : x + len(colours)] = colours
        x += len(colours) + gap
        for dx, dy in ((-1, 0), (1, 0), (0, -1), (0, 1)):  # a halo: a thicker font would be wider
            cv2.putText(rgb, text, (x + dx, y + dy), FONT, size, HALO, 1, cv2.LINE_AA)
        cv2.putText(rgb, text, (x, y), FONT, size, (255, 255, 255), 1, cv2.LINE_AA)
        x += width + 2 * gap


def surface_colour(identity: int, observed: np.ndarray) -> np.ndarray:
    """Return colours [V, 3] in 0..1 of a surface of which a share [V] was observed."""
    own = np.array(identity_colour(identity)) / 255
    return PALE + observed[:, None] * (own - PALE)


def _upper_left(vertices_m: np.ndarray, camera: Camera) -> tuple[int, int] | None:
    """Return the upper left corner of a projected mesh, pixels; None if all of it is behind the
    camera.
    """
    in_front = vertices_m[vertices_m[:, 2] > 0.05]
    if not len(in_front):
        return None
    fx, fy = camera.focal_px
    cx, cy = camera.center_px
    left, top = (in_front[:, :2] / in_front[:, 2:]).min(0).tolist()
    return round(min(max(left * fx + cx, -1e6), 1e6)), round(min(max(top * fy + cy, -1e6), 1e6))


def _draw_tags(rgb: np.ndarray, corners: dict[int, tuple[int, int]]) -> None:
    """Draw people's numbers over the corners x, y of their boxes, each to the right of tags that it
    would cover.
    """
    drawn: list[tuple[int, int, int]] = []  # left, right, top of the tags so far
    size = _text_size(rgb)
    for identity, (x, y) in corners.items():
        (width, height), _ = cv2.getTextSize(str(identity), FONT, size, 1)
        pad = max(2, height // 3)
        tag_width = width + 2 * pad
        tag_height = height + 2 * pad
        # Above the box, or inside it at the image's upper edge.
        top = min(max(0, y - tag_height), rgb.shape[0] - tag_height)
        left = min(max(0, x), rgb.shape[1] - tag_width)
        for other_left, other_right, other_top in sorted(drawn):
            if abs(other_top - top) < tag_height and other_left - tag_width < left < other_right:
                left = other_right
        end = (left + tag_width, top + tag_height)
        cv2.rectangle(rgb, (left, top), end, identity_colour(identity), cv2.FILLED)
        origin = (left + pad, top + pad + height)
        cv2.putText(rgb, str(identity), origin, FONT, size, HALO, 1, cv2.LINE_AA)
        drawn.append((left, left + tag_width, top))


def _mark(rgb: np.ndarray, points_px: np.ndarray, colour: RGB, opacity: float, size: float) -> None:
    """Draw a bone between two points [2, 2], `size` wide, or a dot of this radius at one [1, 2],
    with a halo.
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
    part = rgb[top:bottom, left:right]  # a view of the pixels that it may change
    painted = part.copy()

    def fixed_point(pixels: float) -> int:
        """Return pixels in cv2's fractions of a pixel."""
        return round(min(max(pixels, -1e4), 1e4) * 2**SUBPIXEL)

    ends = [(fixed_point(x - left), fixed_point(y - top)) for x, y in zip(xs, ys, strict=True)]
    for halo_px, paint in ((1, HALO), (0, colour)):
        if len(ends) == 2:
            line_px = round(size) + 2 * halo_px
            cv2.line(painted, ends[0], ends[1], paint, line_px, cv2.LINE_AA, SUBPIXEL)
        else:
            radius = round((size + halo_px) * 2**SUBPIXEL)
            cv2.circle(painted, ends[0], radius, paint, cv2.FILLED, cv2.LINE_AA, SUBPIXEL)
    cv2.addWeighted(painted, opacity, part, 1 - opacity, 0, dst=part)


def _opacity(confidence: float) -> float:
    return LOWEST_OPACITY + (1 - LOWEST_OPACITY) * min(max(float(confidence), 0.0), 1.0)


def _line_width(rgb: np.ndarray) -> int:
    return max(1, round(max(rgb.shape[:2]) / 400))


def _text_size(rgb: np.ndarray) -> float:
    return min(max(max(rgb.shape[:2]) / 1800, 0.35), 2.0)


@cache
def _sides(skeleton: Skeleton) -> tuple[RGB | None, ...]:
    """Return the colour of limbs at each keypoint; None for head and trunk."""
    trunk = ("nose", "eye", "ear", "face", "neck", "head", "pelvis", "thorax")
    colours: list[RGB | None] = []
    for name in skeleton.keypoints:
        side = None if any(word in name for word in trunk) else name.split("_")[0]
        colours.append({"left": LEFT, "right": RIGHT}.get(side or ""))
    return tuple(colours)
