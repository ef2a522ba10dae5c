"""People over a photograph, without a display, a GPU or a system library.

The same image through PyTorch3D, for those who have a build whose compiled part loads; worth it on
a GPU.

`pip install` of a PyTorch3D wheel built for another torch or for CUDA gives its Python part only:
transforms and meshes import, the rasteriser does not. `problem` says which of these is the case.

Lights hang at the camera (x right, y down, z forward), so a body looks the same wherever it walks.
Colours are made linear, lit, and encoded again, so that light adds up as it does in the world."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from fitting.camera import Camera
from fitting.render.raster import Screen, compiled, joined, paint, project_triangles
from pose2d.base.errors import UserError

# Told apart by people with any colour vision, and light enough to show the shading.
PALETTE = np.array(
    [
        (0.47, 0.67, 0.93),  # sky
        (0.96, 0.60, 0.45),  # coral
        (0.55, 0.80, 0.60),  # leaf
        (0.95, 0.80, 0.45),  # sand
        (0.73, 0.62, 0.90),  # lilac
        (0.40, 0.76, 0.78),  # lagoon
        (0.93, 0.62, 0.76),  # rose
        (0.76, 0.72, 0.66),  # stone
    ]
)

_GAMMA = 2.2
_SKY, _GROUND = 0.30, 0.10  # light from above and from below
_LAMPS = (  # towards the lamp, strength
    ((-0.60, -0.75, -0.65), 0.80),  # key, over the left shoulder
    ((0.85, 0.05, -0.55), 0.20),  # fill, from the right
    ((0.35, -0.45, 0.80), 0.30),  # rim, from behind: draws the outline
)


def shade(normals: np.ndarray, colors: np.ndarray) -> np.ndarray:
    """Unit normals [V, 3] in the camera frame, surface colours [V, 3] or [3] 0..1 -> lit colours
    [V, 3] 0..255.
    """
    upward = (1 - normals[:, 1]) / 2
    light = _GROUND + (_SKY - _GROUND) * upward
    for towards, strength in _LAMPS:
        direction = np.asarray(towards, np.float32) / np.float32(np.linalg.norm(towards))
        light = light + strength * np.maximum(normals @ direction, 0)
    linear = np.asarray(colors, np.float32) ** _GAMMA * light[:, None]
    return (255 * np.clip(linear, 0, 1) ** (1 / _GAMMA)).astype(np.float32)


def vertex_normals(vertices: np.ndarray, faces: np.ndarray) -> np.ndarray:
    """[V, 3] and [F, 3] counter-clockwise -> unit normals [V, 3] float32: face normals weighted by
    area.
    """
    sums = np.zeros((len(vertices), 3))
    normals = np.empty((len(vertices), 3), np.float32)
    _vertex_normals(vertices, faces, sums, normals)
    return normals


@compiled
def _vertex_normals(
    vertices: np.ndarray, faces: np.ndarray, sums: np.ndarray, normals: np.ndarray
) -> None:
    for f in range(faces.shape[0]):
        a = faces[f, 0]
        b = faces[f, 1]
        c = faces[f, 2]
        ax = vertices[a, 0]
        ay = vertices[a, 1]
        az = vertices[a, 2]
        ux = vertices[b, 0] - ax
        uy = vertices[b, 1] - ay
        uz = vertices[b, 2] - az
        vx = vertices[c, 0] - ax
        vy = vertices[c, 1] - ay
        vz = vertices[c, 2] - az
        x = uy * vz - uz * vy
        y = uz * vx - ux * vz
        z = ux * vy - uy * vx
        for corner in (a, b, c):
            sums[corner, 0] += x
            sums[corner, 1] += y
            sums[corner, 2] += z
    for i in range(sums.shape[0]):
        x = sums[i, 0]
        y = sums[i, 1]
        z = sums[i, 2]
        length = math.sqrt(x * x + y * y + z * z)
        length = length if length > 0 else 1.0
        normals[i, 0] = x / length
        normals[i, 1] = y / length
        normals[i, 2] = z / length


def softened(normals: np.ndarray, faces: np.ndarray, rounds: int) -> np.ndarray:
    """Unit normals [V, 3] averaged with their neighbours' so many times: light that runs over small
    detail. Each round, a vertex with n neighbours takes 1 + n times its own normal and twice each
    of theirs."""
    if not faces.size:
        return normals
    first = np.zeros(len(normals) + 1, np.uint32)
    neighbour = np.empty(faces.size, np.uint32)
    _neighbours(faces, first, np.empty_like(first), neighbour)
    for _ in range(rounds):
        before = normals
        normals = np.empty_like(normals)
        _soften(before, first, neighbour, normals)
    return normals


@compiled
def _soften(
    normals: np.ndarray, first: np.ndarray, neighbour: np.ndarray, smoothed: np.ndarray
) -> None:
    # a plain 2 would make it float64
    one = np.float32(1)
    two = np.float32(2)
    for i in range(normals.shape[0]):
        x = np.float32(0)
        y = np.float32(0)
        z = np.float32(0)
        for e in range(first[i], first[i + 1]):
            j = neighbour[e]
            x = x + normals[j, 0]
            y = y + normals[j, 1]
            z = z + normals[j, 2]
        own = one + np.float32(first[i + 1] - first[i])
        x = two * x + own * normals[i, 0]
        y = two * y + own * normals[i, 1]
        z = two * z + own * normals[i, 2]
        scale = one / np.sqrt(max(x * x + y * y + z * z, np.float32(1e-30)))
        smoothed[i, 0] = x * scale
        smoothed[i, 1] = y * scale
        smoothed[i, 2] = z * scale


@compiled
def _neighbours(
    faces: np.ndarray, first: np.ndarray, place: np.ndarray, neighbour: np.ndarray
) -> None:
    """Fill first [V + 1] (zeros before) and neighbour [3 F]: those of vertex i are
    neighbour[first[i] : first[i + 1]]. A face names of each corner the next one. Around a vertex of
    a closed surface these are all its neighbours. Unsigned numbers: no index counts from the
    end."""
    for f in range(faces.shape[0]):
        for k in range(3):
            first[faces[f, k] + 1] += 1
    for i in range(first.shape[0] - 1):
        first[i + 1] += first[i]
        place[i] = first[i]
    for f in range(faces.shape[0]):
        for k in range(3):
            corner = faces[f, k]
            neighbour[place[corner]] = faces[f, (k + 1) % 3]
            place[corner] += 1


Color = tuple[float, float, float]
Window = tuple[int, int, int, int]  # left, top, right, bottom; the last two exclusive
ALPHA = 0.9  # a person over a photograph: the image shines through a little
PAPER = 245  # grey of the background when there is no photograph


@dataclass(frozen=True)
class Mesh:
    """One person's surface."""

    vertices_cam: (
        Tensor | np.ndarray
    )  # [V, 3] metres in the camera frame: x right, y down, z forward
    faces: Tensor | np.ndarray  # [F, 3] vertex numbers, counter-clockwise from outside
    color: Color | Tensor | np.ndarray | None = (
        None  # red, green, blue 0..1 of all [3] or each [V, 3]; None: by turn
    )
    # rounds in which light is shared with neighbouring vertices; hides small detail of the skin
    softness: int = 0
    opacity: Tensor | np.ndarray | None = None  # [V] 0..1, times `alpha`; None: 1


def render(
    meshes: Sequence[Mesh],
    camera: Camera,
    background: np.ndarray | None = None,
    *,
    alpha: float = ALPHA,
    antialias: bool = True,
    backend: Literal["numba", "pytorch3d"] = "numba",
) -> np.ndarray:
    """Draw people over a photograph [H, W, 3] uint8 RGB (light grey when None); the photograph
    stays as it is. Who is nearer hides who is farther; `alpha` mixes the person seen with the
    photograph, not with whoever stands behind. What comes closer to the camera than 5 cm is cut
    away. Returns [H, W, 3] uint8 RGB."""
    width, height = camera.size
    if background is None:
        image = np.full((height, width, 3), PAPER, np.uint8)
    elif background.dtype != np.uint8 or background.shape != (height, width, 3):
        raise UserError(
            f"the background must be uint8 RGB of the camera's size [{height}, {width}, 3], "
            f"got {background.dtype} {list(background.shape)}."
        )
    else:
        image = np.ascontiguousarray(background).copy()
    render_onto(image, meshes, camera, alpha=alpha, antialias=antialias, backend=backend)
    return image


def render_onto(
    image: np.ndarray,
    meshes: Sequence[Mesh],
    camera: Camera,
    *,
    alpha: float = ALPHA,
    antialias: bool = True,
    backend: Literal["numba", "pytorch3d"] = "numba",
) -> None:
    """The same into an image [H, W, 3] uint8 RGB of the camera's size itself."""
    if not 0 <= alpha <= 1:
        raise UserError(f"alpha must lie between 0 and 1, got {alpha}.")
    if backend not in ("numba", "pytorch3d"):
        raise UserError(f"unknown renderer {backend!r}: choose numba or pytorch3d.")
    shown = [_shown(mesh, number, camera, alpha) for number, mesh in enumerate(meshes)]
    for together in _groups([screen.window(*camera.size) for screen, _ in shown]):
        screen = joined([shown[number][0] for number in together])
        colors = np.concatenate([shown[number][1] for number in together])
        if backend == "numba":
            paint(image, screen, colors, antialias=antialias)
        else:
            paint_by_pytorch3d(image, screen, colors, antialias=antialias)


def _shown(mesh: Mesh, number: int, camera: Camera, alpha: float) -> tuple[Screen, np.ndarray]:
    """A mesh in the image, and its vertices there [V', 4]: lit colours 0..255 times opacity, and
    the opacity.
    """
    vertices, faces, color = _checked(mesh, number)
    normals = softened(vertex_normals(vertices, faces), faces, mesh.softness)
    screen = project_triangles(vertices, faces, camera)
    opacity = np.full((len(vertices), 1), alpha, np.float32)
    if mesh.opacity is not None:
        opacity *= _array(mesh.opacity).astype(np.float32).reshape(-1, 1)
    lit = np.concatenate((shade(normals, color) * opacity, opacity), 1)
    return screen, np.ascontiguousarray(
        screen.interpolate(lit, faces)
    )  # one layout in memory: compiled once


def _groups(windows: Sequence[Window]) -> list[list[int]]:
    """People who may touch each other in the image, by their windows: each group is painted by
    itself.
    """
    groups: list[tuple[list[int], Window]] = []
    for number, window in enumerate(windows):
        members = [number]
        while touching := [
            group for group in groups if _overlap(group[1], window)
        ]:  # a grown window may touch more
            groups = [group for group in groups if group not in touching]
            members += [member for others, _ in touching for member in others]
            left, top, right, bottom = zip(window, *(other for _, other in touching), strict=True)
            window = min(left), min(top), max(right), max(bottom)
        groups.append((sorted(members), window))
    return [members for members, _ in groups]


def _overlap(a: Window, b: Window) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def _checked(mesh: Mesh, number: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Arrays of the right shape and type, or words that say which mesh is wrong and how."""
    vertices = _array(mesh.vertices_cam).astype(np.float64)
    faces = _array(mesh.faces)
    color = PALETTE[number % len(PALETTE)] if mesh.color is None else _array(mesh.color)
    if vertices.ndim != 2 or vertices.shape[1] != 3 or not np.isfinite(vertices).all():
        raise UserError(
            f"mesh {number}: vertices must be finite numbers [V, 3], got {list(vertices.shape)}."
        )
    if faces.ndim != 2 or faces.shape[1] != 3 or not np.issubdtype(faces.dtype, np.integer):
        raise UserError(
            f"mesh {number}: faces must be whole numbers [F, 3], got {faces.dtype} {list(faces.shape)}."
        )
    if faces.size and not 0 <= faces.min() <= faces.max() < len(vertices):
        raise UserError(
            f"mesh {number}: faces speak of vertices beyond the {len(vertices)} there are."
        )
    count = len(vertices)
    opacity = np.ones(len(vertices)) if mesh.opacity is None else _array(mesh.opacity)
    for what, values, sizes in (
        ("colours", color, ((3,), (count, 3))),
        ("opacity", opacity, ((count,),)),
    ):
        if values.shape not in sizes or not ((values >= 0) & (values <= 1)).all():
            expected = " or ".join(str(list(size)) for size in sizes)
            raise UserError(
                f"mesh {number}: {what} must lie between 0 and 1, {expected}; got {list(values.shape)}."
            )
    return vertices, faces.astype(np.int32), np.broadcast_to(color, vertices.shape)


def _array(values: Tensor | np.ndarray | Color) -> np.ndarray:
    return values.detach().cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)


_GRID = 2  # samples along each side of a pixel, everywhere


def problem() -> str | None:
    """Why PyTorch3D cannot draw here, in words; None when it can."""
    try:
        import pytorch3d  # noqa: F401
    except ImportError:
        return "PyTorch3D is not installed (pip install 'fitmesh[pytorch3d]')"
    try:
        from pytorch3d import _C  # noqa: F401
    except ImportError as error:
        return (
            f"PyTorch3D is installed, but its compiled part does not load with torch {torch.__version__} ({error}); "
            "install a build made for this torch"
        )
    return None


def paint_by_pytorch3d(
    image: np.ndarray, screen: Screen, colors: np.ndarray, *, antialias: bool = True
) -> None:
    """Blend triangles into `image` [H, W, 3] uint8, in place; colors [V', 4] as in `raster.paint`."""
    if why := problem():
        raise UserError(f"{why}. The renderer `numba` needs nothing of the kind.")
    from pytorch3d.renderer.mesh.rasterize_meshes import rasterize_meshes
    from pytorch3d.structures import Meshes

    device = "cuda" if torch.cuda.is_available() else "cpu"
    height, width = image.shape[:2]
    grid = _GRID if antialias else 1
    usable = np.isfinite(screen.xy_px[screen.faces]).all(axis=(1, 2))
    faces = torch.from_numpy(screen.faces[usable]).long().to(device)
    # PyTorch3D's axes: x left, y up, -1..1 along the shorter side, z in metres. It puts pixel
    # centres at half numbers.
    xy = (np.array((width, height)) - 2 * (screen.xy_px + 0.5)) / min(width, height)
    points = np.nan_to_num(np.concatenate((xy, 1 / screen.inverse_depth[:, None]), axis=1))
    vertices = torch.from_numpy(points).float().to(device)
    triangle, _, weights, _ = rasterize_meshes(
        Meshes([vertices], [faces]),
        image_size=(height * grid, width * grid),
        faces_per_pixel=1,
        perspective_correct=True,
        cull_backfaces=True,
    )
    # [H g, W g], [H g, W g, 3]
    triangle = triangle[0, ..., 0]
    weights = weights[0, ..., 0, :]
    corner_colors = torch.from_numpy(colors).to(device)[
        faces[triangle.clamp(min=0)]
    ]  # [H g, W g, 3, 4]
    color = torch.einsum("hwi,hwic->hwc", weights, corner_colors)
    drawn = color * (triangle >= 0).float()[..., None]
    over = (
        drawn.unflatten(1, (-1, grid)).unflatten(0, (-1, grid)).mean(dim=(1, 3))
    )  # of grid x grid samples, [H, W, 4]
    through = torch.from_numpy(image).to(device) * (1 - over[..., 3:])
    image[:] = (through + over[..., :3] + 0.5).clamp(0, 255).byte().cpu().numpy()
