"""Check the installation (`fitmesh doctor`) and body files (`fitmesh body`).

This module imports nothing heavy: doctor must also answer where an import fails.
"""

import hashlib
import importlib
import importlib.util
import json
import platform
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal

import typer

from fitmesh.options.record import command, option
from fitmesh.version import __version__
from pose2d.base.threads import cores

ROOT = Path(__file__).parents[2]  # the folder that holds the packages, installed or not
EMBEDDED = ROOT / "pose2d" / "embedded.json"  # made by tools/embedded_digests.py
PACKAGES = ("fitmesh", "pose2d", "ccnet", "fitting", "eval3dpw")  # that fitmesh installs
OLDEST_PYTHON = (3, 10)
REINSTALL = "pip install --force-reinstall --no-deps fitmesh"

CPU_TORCH = "For CPUs alone: pip install --force-reinstall torch --index-url https://download.pytorch.org/whl/cpu"
COLOURS = {"ok": "green", "missing": "yellow", "broken": "red"}
# Required libraries: the name to install, the name to import. pyproject.toml has the versions.
NEEDED = (
    ("torch", "torch"),
    ("numpy", "numpy"),
    ("scipy", "scipy"),
    ("opencv-python-headless", "cv2"),
    ("pillow", "PIL"),
    ("av", "av"),
    ("numba", "numba"),
    ("onnxruntime", "onnxruntime"),
    ("protobuf", "google.protobuf"),
    ("safetensors", "safetensors"),
    ("threadpoolctl", "threadpoolctl"),
    ("typer", "typer"),
    ("rich", "rich"),
)
# Optional libraries: name, import, purpose, how to install.
OPTIONAL = (
    # The first two are installed with fitmesh, but most commands work without (THIRD_PARTY.md).
    ("smplx", "smplx", "SMPL, SMPL-H and SMPL-X files", "pip install smplx"),
    (
        "pycocotools",
        "pycocotools",
        "`fitmesh eval-coco --evaluator pycocotools`",
        "pip install pycocotools",
    ),
    (
        "matplotlib",
        "matplotlib",
        "plots of eval-coco, train-ccnet and paper",
        'pip install "fitmesh[plots]"',
    ),
    ("huggingface_hub", "huggingface_hub", "`fitmesh models get`", 'pip install "fitmesh[hub]"'),
    (
        "fsspec",
        "fsspec",
        "videos and results under s3://, gs://, ..",
        'pip install "fitmesh[remote]"',
    ),
    ("ezc3d", "ezc3d", "`fitmesh run --export c3d`", 'pip install "fitmesh[c3d]"'),
    ("opensim", "opensim", "`fitmesh opensim`", 'pip install "fitmesh[opensim]"'),
    ("ray", "ray", "`fitmesh run --ray`: many machines", 'pip install "fitmesh[ray]"'),
    ("pytorch3d", "pytorch3d", "drawing on a GPU", "see docs/install.md"),
)


@dataclass(frozen=True)
class Check:
    """Hold the result of one check."""

    part: str  # program, embedded, machine or optional
    name: str
    state: Literal["ok", "missing", "broken"]
    about: str  # a version, a device, or what is wrong
    fix: str = ""  # what to do, where something is missing or broken
    needed: bool = True  # without it, fitmesh does not work

    @property
    def failed(self) -> bool:
        return self.needed and self.state != "ok"


@dataclass(frozen=True)
class DoctorOptions:
    """Hold the options of `fitmesh doctor`."""

    json: bool = option(False, "One JSON object on stdout.")


@command(DoctorOptions)
def doctor(asked: DoctorOptions) -> None:
    """Check the installation: libraries, embedded files (by digest), devices, optional parts.

    Names a remedy for everything that is missing or broken. Exits with 1 if fitmesh cannot run.
    """
    checks: list[Check] = []
    say: Callable[[str], None] = (lambda text: None) if asked.json else typer.echo
    say(typer.style(f"fitmesh {__version__}", bold=True))
    for check in examine():  # shown as they come: the first import of torch takes seconds
        if not checks or check.part != checks[-1].part:
            say(typer.style(f"\n{check.part.capitalize()}", bold=True))
        say(
            f"  {typer.style(f'{check.state:<7}', COLOURS[check.state])} {check.name:<24}{check.about}"
        )
        if check.state != "ok":
            say(f"{'':<34}-> {check.fix}")
        checks.append(check)
    broken = [check.name for check in checks if check.failed]
    say(
        typer.style(
            f"\nFix first: {', '.join(broken)}." if broken else "\nEverything works.",
            "red" if broken else "green",
        )
    )
    if asked.json:
        facts = {
            "fitmesh": __version__,
            "sound": not broken,
            "checks": [asdict(check) for check in checks],
        }
        typer.echo(json.dumps(facts, indent=1))
    if broken:
        raise typer.Exit(1)


def examine() -> Iterator[Check]:
    """Yield all checks, one after another; none of them raises."""
    is_supported = sys.version_info >= OLDEST_PYTHON
    description = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    fix = "" if is_supported else "install Python 3.10 to 3.13"
    yield Check("program", "python", "ok" if is_supported else "broken", description, fix)
    for package, module in NEEDED:
        yield _library(
            "program", package, module, "", f"pip install --force-reinstall {package}", needed=True
        )
    yield from own_packages()
    yield from embedded()
    yield Check("machine", "processor cores", "ok", f"{cores()}, the default of --threads")
    for check in (_torch_device, _video_encoder):
        try:
            yield check()
        except Exception as error:
            name = check.__name__.strip("_").replace("_", " ")
            yield Check(
                "machine",
                name,
                "broken",
                _first_line(error),
                "see the libraries above",
                needed=False,
            )
    for name, module, purpose, how in OPTIONAL:
        yield _library("optional", name, module, purpose, how, needed=False)
    yield Check(
        "optional",
        "SMPL, SMPL-H, SMPL-X",
        "missing",
        "bodies of their owners; the open body is used without them",
        "register at smpl.is.tue.mpg.de or smpl-x.is.tue.mpg.de, then --body-model FILE (chumpy is not needed)",
        False,
    )


def _library(part: str, package: str, module: str, purpose: str, how: str, needed: bool) -> Check:
    """Check a library by importing it, since an installed package may fail to load."""
    try:
        importlib.import_module(module)
        if module == "pytorch3d":  # its Python part alone draws nothing
            importlib.import_module("pytorch3d._C")
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and error.name and module.startswith(error.name):
            return Check(
                part,
                package,
                "missing",
                f"for {purpose}" if purpose else "not installed",
                how,
                needed,
            )
        return Check(part, package, "broken", f"does not load: {_first_line(error)}", how, needed)
    try:
        return Check(part, package, "ok", version(package))
    except PackageNotFoundError:
        return Check(part, package, "ok", "version not known")


def own_packages() -> Iterator[Check]:
    """Check that no other project's package is imported in place of one of fitmesh's.

    `fitting` and `ccnet` are also names of unrelated projects on PyPI.
    """
    for name in PACKAGES:
        foreign = _find_foreign_package(name)
        about = f"{ROOT / name}"
        fix = ""
        if foreign:
            about = f"{foreign} is not fitmesh's package of this name ({about})"
            fix = (
                f"pip uninstall {name}, then {REINSTALL}; a folder or file {name} beside your script "
                "needs another name"
            )
        yield Check("program", f"package {name}", "broken" if foreign else "ok", about, fix)
    for name in PACKAGES[1:]:
        try:
            found = version(name)
        except PackageNotFoundError:
            continue
        yield Check(
            "program",
            f"distribution {name}",
            "broken",
            f"{name} {found} is installed, another project that brings a package of the same name",
            f"pip uninstall {name}, then {REINSTALL}",
        )


def _find_foreign_package(name: str) -> str:
    """Return where Python finds a package if that is not beside fitmesh; empty: it is ours."""
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError) as error:
        return _first_line(error)
    if spec is None:
        return "nothing that Python finds"
    own = (ROOT / name / "__init__.py").resolve()
    return "" if spec.origin and Path(spec.origin).resolve() == own else str(spec.origin)


def embedded() -> Iterator[Check]:
    """Check that the embedded networks, heads, bodies and priors are the published files."""
    try:
        wanted: dict[str, Any] = json.loads(EMBEDDED.read_text("utf-8"))
    except (OSError, ValueError) as error:
        yield Check("embedded", "list of files", "broken", _first_line(error), REINSTALL)
        return
    for name, facts in wanted.items():
        try:
            data = (ROOT / name).read_bytes()
            is_sound = hashlib.sha256(data).hexdigest() == facts["sha256"]
            about = (
                f"{name}, {len(data) / 1e6:.1f} MB"
                if is_sound
                else f"{name} is not the published file"
            )
        except OSError as error:
            is_sound = False
            about = f"{name}: {error.strerror or error}"
        yield Check(
            "embedded",
            facts["what"],
            "ok" if is_sound else "broken",
            about,
            "" if is_sound else REINSTALL,
        )


def _torch_device() -> Check:
    """Check which devices torch can use."""
    import torch

    gpus = [f"cuda:{i} ({torch.cuda.get_device_name(i)})" for i in range(torch.cuda.device_count())]
    about = "cpu; no GPU that torch can use (torch is built for CPUs)"
    if gpus and torch.cuda.is_available():
        about = f"cpu, {', '.join(gpus)}: --device cuda uses the first"
    elif torch.version.cuda:
        about = f"cpu; torch is built for CUDA {torch.version.cuda}, but finds no GPU. {CPU_TORCH}"
    return Check("machine", "device", "ok", about)


def _video_encoder() -> Check:
    """Check that H.264 can be written."""
    import av

    if "libx264" in av.codecs_available:
        return Check("machine", "video encoder", "ok", "H.264 (libx264)")
    return Check(
        "machine",
        "video encoder",
        "broken",
        "PyAV lacks libx264",
        "pip install --force-reinstall av",
    )


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [""])[0][:200] or type(error).__name__


@dataclass(frozen=True)
class BodyOptions:
    """Hold the options of `fitmesh body`."""

    body_model: Path | None = option(
        None, "SMPL, SMPL-H or SMPL-X file, or a folder of them. Default: the embedded open body."
    )
    gender: str = option("neutral", "Which file of a folder: neutral, male or female.")
    out: Path | None = option(None, "Write an image of the body, front and back, to this PNG.")


@command(BodyOptions)
def body(asked: BodyOptions) -> None:
    """Check a body file: load it, print what it holds, and draw it if --out is given."""
    from rich.console import Console

    import fitting

    loaded = fitting.load_body(asked.body_model, asked.gender)
    rest = loaded(loaded.v_template.new_zeros(1, 24, 3), vertices=True)
    assert rest.vertices is not None
    low = rest.vertices[0].amin(0)
    high = rest.vertices[0].amax(0)
    console = Console()
    console.print(
        f"[bold]{loaded.name}[/bold] body from {asked.body_model or 'the package'}", highlight=False
    )
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
    # The body's y axis points up and its z axis to the front; the camera's point down and away.
    pose[0, 0, 0] = torch.pi
    pose[1, 0, 2] = torch.pi  # the same, rotated by 180 degrees about the vertical
    place = loaded.v_template.new_tensor([[-1.0, 0, 5], [1.0, 0, 5]])
    vertices = loaded(pose, translation=place, vertices=True).vertices
    assert vertices is not None
    middle = (vertices[..., 1].amin(1) + vertices[..., 1].amax(1)) / 2
    vertices[..., 1] -= middle[:, None]
    image = render([Mesh(v, loaded.faces) for v in vertices], Camera.from_focal(1100, (1000, 620)))
    encoded, png = cv2.imencode(".png", cv2.cvtColor(image, cv2.COLOR_RGB2BGR))
    assert encoded
    with atomic_file(out) as temporary:
        temporary.write_bytes(png.tobytes())
    console.print(f"wrote {out}", highlight=False)
