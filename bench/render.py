"""Claim: the z-buffer in numba draws a body of 13.6k faces over a 1280x720 photograph in at most 15
ms on one thread.

    python bench/render.py [--frames 30]

Every renderer gets new vertices each frame, computes normals and light (the same code for all),
draws the body over a photograph and hands back uint8 RGB. Renderers that are not installed are
listed as such. Rounds are interleaved, so that a busy machine is busy for all. CPU time counts all
threads: software OpenGL uses every core.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.lib.claim import Console, claim
from fitting import Camera, load_body
from fitting.render import Mesh, render
from fitting.render.screen import project_triangles
from fitting.render.shading import PALETTE, shade, vertex_normals
from fitting.render.with_pytorch3d import explain_unavailable

os.environ.setdefault("PYOPENGL_PLATFORM", "egl")  # pyrender without a display
SIZE = (1280, 720)
TOO_SLOW_S = (
    20.0  # a renderer that takes longer for its first frame is measured by that frame alone
)
CAMERA = Camera.default(SIZE)
Draw = Callable[[np.ndarray], np.ndarray]  # vertices [V, 3] in the camera frame -> [H, W, 3] uint8
BODY = load_body()
FACES = BODY.faces.numpy().astype(np.int32)
PHOTO = np.random.default_rng(0).integers(0, 256, (SIZE[1], SIZE[0], 3)).astype(np.uint8)


def vertices_of_frame(frame: int) -> np.ndarray:
    """The body turning in front of the camera, 680 px tall."""
    pose = torch.zeros(1, 24, 3)
    pose[0, 0, 1] = 0.1 * frame
    vertices = BODY(pose, vertices=True).vertices
    assert vertices is not None
    return vertices[0].numpy() * (1, -1, -1) + (0, -0.13, 3.75)


def lit(vertices: np.ndarray) -> np.ndarray:
    return shade(vertex_normals(vertices, FACES), PALETTE[0])


def ours() -> Draw:
    return lambda vertices: render([Mesh(vertices, FACES)], CAMERA, PHOTO, alpha=1)


def ours_without_smooth_outlines() -> Draw:
    return lambda vertices: render([Mesh(vertices, FACES)], CAMERA, PHOTO, alpha=1, antialias=False)


def pytorch3d() -> Draw:
    if why := explain_unavailable():
        raise ImportError(why)
    return lambda vertices: render(
        [Mesh(vertices, FACES)], CAMERA, PHOTO, alpha=1, antialias=False, backend="pytorch3d"
    )


def numpy_z_buffer() -> Draw:
    """Faces in bins of like size, all pixels of all boxes of a bin at once; the nearest wins by
    being written last.
    """

    def draw(vertices: np.ndarray) -> np.ndarray:
        colors = lit(vertices)
        screen = project_triangles(vertices, FACES, CAMERA)
        # [F, 3, 2], [F, 3]
        xy = screen.xy_px[FACES]
        inverse = screen.inverse_depth[FACES]
        (ax, ay), (bx, by), (cx, cy) = (xy[:, i].T for i in range(3))
        area = (bx - ax) * (cy - ay) - (cx - ax) * (by - ay)
        low = np.maximum(np.ceil(xy.min(axis=1)), 0).astype(int)
        high = np.minimum(np.floor(xy.max(axis=1)), np.array(SIZE) - 1).astype(int)
        extent = (high - low).max(axis=1) + 1
        visible = (area < 0) & (high >= low).all(axis=1)
        pixels = []
        owners = []
        weights = []
        for size in 2 ** np.arange(12):
            f = np.flatnonzero(visible & (extent > size // 2) & (extent <= size))
            x = low[f, 0, None, None] + np.arange(size)
            y = low[f, 1, None, None] + np.arange(size)[:, None]
            x, y = np.broadcast_arrays(x, y)
            corner = [
                (u[f, None, None] - x, v[f, None, None] - y)
                for u, v in ((ax, ay), (bx, by), (cx, cy))
            ]
            w = np.stack(
                [
                    p[0] * q[1] - q[0] * p[1]
                    for p, q in zip(corner[1:] + corner[:1], corner[2:] + corner[:2], strict=True)
                ],
                axis=-1,
            )
            inside = (w <= 0).all(axis=-1) & (x < SIZE[0]) & (y < SIZE[1])
            pixels.append(y[inside] * SIZE[0] + x[inside])
            owners.append(np.broadcast_to(f[:, None, None], inside.shape)[inside])
            weights.append(w[inside])
        pixel = np.concatenate(pixels)
        owner = np.concatenate(owners)
        weight = np.concatenate(weights) / area[owner, None] * inverse[owner]
        order = np.argsort(weight.sum(axis=1))
        winner = np.full(SIZE[0] * SIZE[1], -1)
        winner[pixel[order]] = order
        best = winner[winner >= 0]
        weight = weight[best] / weight[best].sum(axis=1, keepdims=True)
        image = PHOTO.copy()
        image.reshape(-1, 3)[pixel[best]] = (
            np.einsum("pi,pic->pc", weight, colors[FACES[owner[best]]]) + 0.5
        )
        return image

    return draw


def opengl_projection(near: float = 0.05, far: float = 50.0) -> np.ndarray:
    """Camera frame (y down, z forward) -> clip space, with pixel centres at whole numbers. Row
    vectors.
    """
    fx, fy = CAMERA.focal_px
    cx, cy = CAMERA.center_px
    width, height = SIZE
    return np.array(
        [
            [2 * fx / width, 0, 2 * (cx + 0.5) / width - 1, 0],
            [0, -2 * fy / height, 1 - 2 * (cy + 0.5) / height, 0],
            [0, 0, (far + near) / (far - near), -2 * far * near / (far - near)],
            [0, 0, 1, 0],
        ]
    ).T


def moderngl(samples: int = 0) -> Draw:
    import moderngl as gl  # type: ignore[import-not-found]

    context = gl.create_standalone_context(backend="egl")
    body_shader = context.program(
        vertex_shader="""#version 330
        uniform mat4 projection; in vec3 position; in vec3 color; out vec3 shown;
        void main() { gl_Position = projection * vec4(position, 1.0); shown = color; }""",
        fragment_shader="""#version 330
        in vec3 shown; out vec4 pixel; void main() { pixel = vec4(shown / 255.0, 1.0); }""",
    )
    photo_shader = context.program(
        vertex_shader="""#version 330
        in vec2 place; out vec2 uv;
        void main() { gl_Position = vec4(place, 0.0, 1.0); uv = vec2(0.5 + 0.5 * place.x, 0.5 - 0.5 * place.y); }""",
        fragment_shader="""#version 330
        uniform sampler2D photo; in vec2 uv; out vec4 pixel; void main() { pixel = texture(photo, uv); }""",
    )
    target = context.simple_framebuffer(SIZE)
    drawn = context.simple_framebuffer(SIZE, samples=samples) if samples else target
    photo = context.texture(SIZE, 3)
    quad = context.buffer(np.array([-1, -1, 1, -1, -1, 1, 1, 1], "f4").tobytes())
    corners = context.buffer(reserve=len(BODY.v_template) * 24, dynamic=True)
    faces = context.buffer(FACES.tobytes())
    photo_array = context.vertex_array(photo_shader, [(quad, "2f", "place")])
    body_array = context.vertex_array(body_shader, [(corners, "3f 3f", "position", "color")], faces)
    body_shader["projection"].write(opengl_projection().astype("f4").tobytes())

    def draw(vertices: np.ndarray) -> np.ndarray:
        corner_values = np.concatenate((vertices, lit(vertices)), axis=1).astype("f4").tobytes()
        with context:  # others draw with OpenGL in this process, too
            corners.write(corner_values)
            photo.write(PHOTO)
            drawn.use()
            drawn.clear()
            context.disable(gl.DEPTH_TEST | gl.CULL_FACE)
            photo.use()
            photo_array.render(gl.TRIANGLE_STRIP)
            context.enable(gl.DEPTH_TEST | gl.CULL_FACE)
            body_array.render()
            if samples:
                context.copy_framebuffer(target, drawn)
            return (
                np.frombuffer(target.read(components=3), np.uint8)
                .reshape(SIZE[1], SIZE[0], 3)[::-1]
                .copy()
            )

    return draw


def moderngl_four_samples() -> Draw:
    return moderngl(samples=4)


def pyrender() -> Draw:
    import pyrender as pr  # type: ignore[import-not-found]
    import trimesh

    renderer = pr.OffscreenRenderer(*SIZE)
    fx, fy = CAMERA.focal_px
    cx, cy = CAMERA.center_px

    def draw(vertices: np.ndarray) -> np.ndarray:
        scene = pr.Scene(ambient_light=(1, 1, 1))
        scene.add(pr.IntrinsicsCamera(fx, fy, cx + 0.5, cy + 0.5, 0.05, 50))
        mesh = trimesh.Trimesh(
            vertices * (1, -1, -1),
            FACES,
            vertex_colors=lit(vertices).astype(np.uint8),
            process=False,
        )
        scene.add(pr.Mesh.from_trimesh(mesh))
        color, depth = renderer.render(scene, flags=pr.RenderFlags.FLAT)
        return np.where((depth > 0)[..., None], color, PHOTO)

    return draw


RENDERERS: dict[str, Callable[[], Draw]] = {
    "numba, smooth outlines (default)": ours,
    "numba": ours_without_smooth_outlines,
    "numpy": numpy_z_buffer,
    "moderngl": moderngl,
    "moderngl, 4 samples": moderngl_four_samples,
    "pyrender, 4 samples": pyrender,
    "pytorch3d": pytorch3d,
}


def main() -> None:
    parser = argparse.ArgumentParser(description="ms per frame of the renderers, side by side")
    parser.add_argument("--frames", type=int, default=30)
    parser.add_argument("--alone", choices=RENDERERS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.alone:
        print(json.dumps(alone(arguments.alone)))
        return

    frames = [vertices_of_frame(i) for i in range(arguments.frames)]
    draws: dict[str, Draw] = {}
    images: dict[str, np.ndarray] = {}
    missing: dict[str, str] = {}
    wall: dict[str, list[float]] = {}
    cpu: dict[str, list[float]] = {}
    for name, build in RENDERERS.items():
        try:
            draws[name] = build()
            images[name], *first = timed(draws[name], frames[0])  # compiles, fills caches
        except Exception as error:
            missing[name] = str(error).splitlines()[0]
            continue
        wall[name], cpu[name] = ([first[0]], [first[1]]) if first[0] > TOO_SLOW_S else ([], [])
    for vertices in frames:
        for name in images:
            if max(wall[name], default=0) < TOO_SLOW_S:
                _, seconds, spent = timed(draws[name], vertices)
                wall[name].append(seconds)
                cpu[name].append(spent)

    plain = images["numba"].astype(int)
    covered = (plain != PHOTO).any(axis=-1).sum()
    table = Table(
        title=f"{SIZE[0]}x{SIZE[1]}, {len(FACES)} faces, {covered} pixels covered, {len(frames)} frames"
    )
    for column in (
        "renderer",
        "ms wall (median)",
        "(least)",
        "ms CPU",
        "ratio",
        "memory MB",
        "other pixels",
    ):
        table.add_column(column, justify="left" if column == "renderer" else "right")
    base = float(np.median(cpu["numba, smooth outlines (default)"]))
    for name in RENDERERS:
        if name in missing:
            table.add_row(name, "-")
            continue
        second = (np.abs(images[name].astype(int) - plain).max(axis=-1) > 8).mean()
        table.add_row(
            name,
            f"{1e3 * np.median(wall[name]):.1f}",
            f"{1e3 * min(wall[name]):.1f}",
            f"{1e3 * np.median(cpu[name]):.1f}",
            f"{np.median(cpu[name]) / base:.1f}x",
            f"{in_own_process(name)['peak_mb']:.0f}",
            f"{100 * second:.2f} %",
        )
    console = Console(width=max(120, Console().width))
    console.print(table)
    for name, why in missing.items():
        console.print(f"{name}: not measured: {why}", markup=False)
    with tempfile.TemporaryDirectory() as folder:
        cold, warm = (
            in_own_process("numba, smooth outlines (default)", NUMBA_CACHE_DIR=folder)
            for _ in range(2)
        )
    console.print(
        f"first frame of numba: {cold['first_s']:.1f} s ({cold['first_cpu_s']:.1f} s CPU) when it must compile, "
        f"{warm['first_s']:.2f} s ({warm['first_cpu_s']:.2f} s CPU) from its cache."
    )
    console.print(
        "ratio: CPU time against the default. memory: peak while drawing, above the loaded body."
    )
    console.print(
        "other pixels: share that differs from `numba` by more than 8 of 255 (outlines, samples)."
    )


def timed(draw: Draw, vertices: np.ndarray) -> tuple[np.ndarray, float, float]:
    """The image, seconds on the wall, seconds of CPU."""
    start = time.perf_counter()
    spent = time.process_time()
    image = draw(vertices)
    return image, time.perf_counter() - start, time.process_time() - spent


def peak_mb(reset: bool = False) -> float:
    """The most memory this process has held since the last reset (Linux)."""
    if reset:
        Path("/proc/self/clear_refs").write_text("5")
    line = next(
        line
        for line in Path("/proc/self/status").read_text().splitlines()
        if line.startswith("VmHWM")
    )
    return int(line.split()[1]) / 1024


def alone(name: str) -> dict[str, float]:
    """First frame and memory of one renderer in a process of its own."""
    vertices = vertices_of_frame(0)
    before = peak_mb(reset=True)
    start = time.perf_counter()
    spent = time.process_time()
    RENDERERS[name]()(vertices)
    first = time.perf_counter() - start
    first_cpu = time.process_time() - spent
    return {"first_s": first, "first_cpu_s": first_cpu, "peak_mb": peak_mb() - before}


def in_own_process(name: str, **environment: str) -> dict[str, float]:
    command = [sys.executable, __file__, "--alone", name]
    answer = subprocess.run(
        command, env=os.environ | environment, capture_output=True, text=True, check=True
    )
    return json.loads(answer.stdout.splitlines()[-1])


if __name__ == "__main__":
    claim(main)
