"""`fitmesh body`: check a body file, and draw it."""

from dataclasses import dataclass
from pathlib import Path

from fitmesh.options.record import command, option


@dataclass(frozen=True)
class BodyOptions:
    """Which body."""

    body_model: Path | None = option(
        None, "SMPL, SMPL-H or SMPL-X file, or a folder of them; without it the embedded open body."
    )
    gender: str = option("neutral", "Which file of a folder: neutral, male or female.")
    out: Path | None = option(None, "Write an image of the body, front and back, to this PNG.")


@command(BodyOptions)
def body(asked: BodyOptions) -> None:
    """Check a body file: load it, say what it holds, and draw it when asked to."""
    from rich.console import Console

    import fitting

    loaded = fitting.load_body(asked.body_model, asked.gender)
    rest = loaded(loaded.v_template.new_zeros(1, 24, 3), vertices=True)
    assert rest.vertices is not None
    low, high = rest.vertices[0].amin(0), rest.vertices[0].amax(0)
    console = Console()
    console.print(f"[bold]{loaded.name}[/bold] body from {asked.body_model or 'the package'}", highlight=False)
    console.print(
        f"{len(loaded.v_template):,} vertices, {len(loaded.faces):,} faces, {rest.joints.shape[1]} joints, "
        f"{loaded.shape_size} shape directions, {high[1] - low[1]:.2f} m tall",
        highlight=False,
    )
    if (out := asked.out) is None:
        return
    import cv2
    import torch

    from fitting.camera import Camera
    from fitting.render.draw import Mesh, render
    from pose2d.base.errors import UserError
    from pose2d.base.files import atomic_file

    if out.suffix.lower() != ".png":
        raise UserError(f"the image {out} must end in .png.")
    # At rest, facing the camera and turned away from it
    pose = loaded.v_template.new_zeros(2, 24, 3)
    pose[0, 0, 0] = torch.pi  # the body's y points up and z to its front; the camera's down and away
    pose[1, 0, 2] = torch.pi  # the same, rotated by 180 degrees about the vertical
    place = loaded.v_template.new_tensor([[-1.0, 0, 5], [1.0, 0, 5]])
    vertices = loaded(pose, translation=place, vertices=True).vertices
    assert vertices is not None
    vertices[..., 1] -= (vertices[..., 1].amin(1) + vertices[..., 1].amax(1))[:, None] / 2  # centre it upright
    image = render([Mesh(v, loaded.faces) for v in vertices], Camera.from_focal(1100, (1000, 620)))
    encoded, png = cv2.imencode(".png", cv2.cvtColor(image, cv2.COLOR_RGB2BGR))
    assert encoded
    with atomic_file(out) as temporary:
        temporary.write_bytes(png.tobytes())
    console.print(f"wrote {out}", highlight=False)
