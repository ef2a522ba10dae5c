"""Draw people over a photograph, without a display, a GPU or a system library."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from torch import Tensor

from fitting.camera import Camera
from fitting.render.paint import paint
from fitting.render.screen import Screen, join_screens, project_triangles
from fitting.render.shading import PALETTE, shade, soften_normals, vertex_normals
from fitting.render.with_pytorch3d import paint_by_pytorch3d
from pose2d.base.errors import UserError

Color = tuple[float, float, float]
Window = tuple[int, int, int, int]  # left, top, right, bottom; the last two exclusive
ALPHA = 0.9  # a person over a photograph: the image shines through a little
PAPER = 245  # grey of the background when there is no photograph


@dataclass(frozen=True)
class Mesh:
    """One person's surface."""

    # [V, 3] metres in the camera frame: x right, y down, z forward
    vertices_cam: Tensor | np.ndarray
    faces: Tensor | np.ndarray  # [F, 3] vertex numbers, counter-clockwise from outside
    # red, green, blue 0..1 of all [3] or each [V, 3]; None: the next colour of the palette
    color: Color | Tensor | np.ndarray | None = None
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
    """Draw people over a photograph [H, W, 3] uint8 RGB (light grey when None) and return a new
    image.

    Nearer people hide farther ones; `alpha` mixes the visible person with the photograph, not with
    people behind. Surfaces closer to the camera than 5 cm are cut away.
    """
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
    """Draw people into an image [H, W, 3] uint8 RGB of the camera's size, in place."""
    if not 0 <= alpha <= 1:
        raise UserError(f"alpha must lie between 0 and 1, got {alpha}.")
    if backend not in ("numba", "pytorch3d"):
        raise UserError(f"unknown renderer {backend!r}: choose numba or pytorch3d.")
    projected = [
        _project_and_light(mesh, number, camera, alpha) for number, mesh in enumerate(meshes)
    ]
    for group in _groups([screen.window(*camera.size) for screen, _ in projected]):
        screen = join_screens([projected[number][0] for number in group])
        colors = np.concatenate([projected[number][1] for number in group])
        if backend == "numba":
            paint(image, screen, colors, antialias=antialias)
        else:
            paint_by_pytorch3d(image, screen, colors, antialias=antialias)


def _project_and_light(
    mesh: Mesh, number: int, camera: Camera, alpha: float
) -> tuple[Screen, np.ndarray]:
    """Return a mesh in the image, and its vertices there [V', 4]: lit colours 0..255 times opacity,
    and the opacity.
    """
    vertices, faces, color = _check_mesh(mesh, number)
    normals = soften_normals(vertex_normals(vertices, faces), faces, mesh.softness)
    screen = project_triangles(vertices, faces, camera)
    opacity = np.full((len(vertices), 1), alpha, np.float32)
    if mesh.opacity is not None:
        opacity *= _array(mesh.opacity).astype(np.float32).reshape(-1, 1)
    lit = np.concatenate((shade(normals, color) * opacity, opacity), 1)
    return screen, np.ascontiguousarray(
        screen.interpolate(lit, faces)
    )  # one layout in memory: compiled once


def _groups(windows: Sequence[Window]) -> list[list[int]]:
    """Group people who may touch each other in the image, by their windows; each group is painted
    separately.
    """
    groups: list[tuple[list[int], Window]] = []
    for number, window in enumerate(windows):
        members = [number]
        while touching := [
            group for group in groups if _overlap(group[1], window)
        ]:  # a grown window may touch more
            groups = [group for group in groups if group not in touching]
            members += [member for other_members, _ in touching for member in other_members]
            left, top, right, bottom = zip(
                window, *(other_window for _, other_window in touching), strict=True
            )
            window = min(left), min(top), max(right), max(bottom)
        groups.append((sorted(members), window))
    return [members for members, _ in groups]


def _overlap(a: Window, b: Window) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def _check_mesh(mesh: Mesh, number: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return vertices, faces and colours of the right shape and type; raise UserError naming the
    mesh otherwise.
    """
    vertices = _array(mesh.vertices_cam).astype(np.float64)
    faces = _array(mesh.faces)
    color = PALETTE[number % len(PALETTE)] if mesh.color is None else _array(mesh.color)
    if vertices.ndim != 2 or vertices.shape[1] != 3 or not np.isfinite(vertices).all():
        raise UserError(
            f"mesh {number}: vertices must be finite numbers [V, 3], got {list(vertices.shape)}."
        )
    if faces.ndim != 2 or faces.shape[1] != 3 or not np.issubdtype(faces.dtype, np.integer):
        raise UserError(
            f"mesh {number}: faces must be whole numbers [F, 3], "
            f"got {faces.dtype} {list(faces.shape)}."
        )
    if faces.size and not 0 <= faces.min() <= faces.max() < len(vertices):
        raise UserError(
            f"mesh {number}: faces must refer to vertices 0 to {len(vertices) - 1}; "
            f"got {faces.min()} to {faces.max()}."
        )
    count = len(vertices)
    opacity = np.ones(len(vertices)) if mesh.opacity is None else _array(mesh.opacity)
    for name, values, sizes in (
        ("colours", color, ((3,), (count, 3))),
        ("opacity", opacity, ((count,),)),
    ):
        if values.shape not in sizes or not ((values >= 0) & (values <= 1)).all():
            expected = " or ".join(str(list(size)) for size in sizes)
            raise UserError(
                f"mesh {number}: {name} must lie between 0 and 1 and have size {expected}; "
                f"got size {list(values.shape)}."
            )
    return vertices, faces.astype(np.int32), np.broadcast_to(color, vertices.shape)


def _array(values: Tensor | np.ndarray | Color) -> np.ndarray:
    return values.detach().cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)
