"""Several cameras: how far off bodies, offsets and cameras are, of rendered people through the
network.

    python bench/cameras.py DIR [--make 5] [--rigs r1 r2]

DIR holds rigs of four cameras around people of captured motion (the test subjects), rendered as
videos, with their truth; --make renders so many first (bench/lib/rigs.py). Every row is `fitmesh
run --together` over some of the cameras: calibrated; with a noisy calibration (0.5 degrees, 1 % of
the distance, 0.5 % of the focal length); with clocks that differ; and without any calibration
(`--cameras auto`, lenses not known). People are looked for once a camera. MPJPE is with pelvises
together, PA-MPJPE after a similarity alignment of each frame; coverage is the share of joints whose
error along an axis lies within the stated deviation (68 % would be right), of joints relative to
the pelvis.

With --simulated N instead of DIR: offsets and placed cameras of N simulated rigs, whose keypoints
have the errors that they state.
"""

import argparse
import json
import shutil
import sys
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import combinations
from pathlib import Path

import numpy as np
import torch
from rich.table import Table
from scipy.spatial.transform import Rotation

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import fitmesh
import fitting
from bench.lib.claim import Console, claim
from bench.lib.rigs import placed_around, render, simulate
from bench.lib.simulation import Noise
from eval3dpw.scoring import pa_mpjpe_mm
from fitmesh.stages.people import KEYPOINTS_FILE, TRACKS_FILE
from fitting.camera.focal import focal_from_user
from fitting.rig.calibration import read_rig, write_rig
from fitting.rig.from_people import place_cameras
from fitting.rig.lifted import Lifted, Recorded
from fitting.rig.offsets import SyncedCamera, find_offset
from fitting.rig.rig import Rig
from fitting.rig.sights import Sight
from pose2d.base.errors import UserError

SIZE = (640, 360)
# Azimuths of the cameras, the clip of captured motion, people, and what each clock lacks to the
# first.
RIGS: dict[str, tuple[list[float], int, int, list[float] | None]] = {
    "r1": ([0, 90, 180, -90], 3, 1, None),
    "r2": ([0, 75, 150, -100], 6, 1, None),
    "r3": ([0, 110, 60, -80], 12, 1, [0.0, 0.137, -0.22, 0.31]),
    "r4": ([0, 90, -70, 160], 20, 2, None),
    "r5": ([0, 70, 120, -90], 27, 1, None),
}
FRAMES, PAIRS = 45, 2


@dataclass(frozen=True)
class Answer:
    """Hold the figures of one run."""

    mpjpe_mm: float
    pa_mm: float
    absolute_mm: float
    coverage: float
    std_mm: float
    offset_ms: list[float]
    turn_deg: list[float]
    place: list[float]  # of the way to another camera, as a share of it, after a scale for all


def rigs_of(folder: Path) -> Rig:
    names = sorted(path.stem for path in folder.glob("cam*.mp4"))
    return read_rig(folder / "rig.toml", names, [SIZE] * len(names))


def noisy_rig(rig: Rig, rng: np.random.Generator) -> Rig:
    cameras = []
    for rig_camera in rig.cameras:
        turn = Rotation.from_rotvec(np.radians(0.5) * rng.normal(0, 1, 3) / np.sqrt(3)).as_matrix()
        away = 0.01 * np.linalg.norm(rig_camera.position_m) * rng.normal(0, 1, 3) / np.sqrt(3)
        focal = float(rig_camera.camera.focal_px[0] * np.exp(0.005 * rng.normal()))
        camera = replace(rig_camera.camera, focal_px=(focal, focal))
        cameras.append(
            replace(
                rig_camera,
                camera=camera,
                rotation=turn @ rig_camera.rotation,
                translation_m=rig_camera.translation_m + away,
            )
        )
    return replace(rig, cameras=tuple(cameras))


def run(
    folder: Path, observed: Path, cameras: Sequence[int], inputs: Path | str | None, sync: str
) -> fitmesh.Result:
    """One run over some cameras, with people that were looked for before (`seen`)."""
    with tempfile.TemporaryDirectory() as text:
        out = Path(text)
        videos = [folder / f"cam{n + 1}.mp4" for n in cameras]
        for number, video in enumerate(videos):
            target = out if number == 0 else out / "cameras" / video.stem
            target.mkdir(parents=True, exist_ok=True)
            for name in (TRACKS_FILE, KEYPOINTS_FILE):
                shutil.copy(observed / video.stem / name, target / name)
        if len(videos) == 1:
            return fitmesh.run(
                videos[0],
                out,
                outputs=("fit",),
                focal_px=rigs_of(folder).cameras[0].camera.focal_px[0],
            )
        return fitmesh.run(videos, out, cameras=inputs, sync=sync, outputs=("fit",))


def look_for_people(folder: Path, observed: Path) -> None:
    for video in sorted(folder.glob("cam*.mp4")):
        if not (observed / video.stem / KEYPOINTS_FILE).is_file():
            fitmesh.run(video, observed / video.stem, outputs=("fit",))


def measured(result: fitmesh.Result, folder: Path, cameras: Sequence[int]) -> Answer:
    rig = rigs_of(folder)
    truth = np.load(folder / "truth.npz")
    base = rig.cameras[cameras[0]]
    offsets = truth["offset_s"]
    errors: dict[str, list[np.ndarray]] = {
        name: [] for name in ("mpjpe", "pa", "absolute", "inside", "std")
    }
    for person in result.people:
        place = np.clip(
            person.frame + 30.0 * offsets[cameras[0]], 0, truth["joints_m"].shape[1] - 1
        )
        low = place.astype(int)
        share = (place - place.astype(int))[:, None, None]
        exact = [
            j[low] + share * (j[np.minimum(low + 1, len(j) - 1)] - j[low])
            for j in truth["joints_m"]
        ]
        own = [joints @ base.rotation.T + base.translation_m for joints in exact]
        joints = min(own, key=lambda j: float(np.linalg.norm(person.joints_m - j, axis=-1).mean()))
        relative = (person.joints_m - person.joints_m[:, :1]) - (joints - joints[:, :1])
        errors["mpjpe"].append(1000 * np.linalg.norm(relative, axis=-1))
        errors["absolute"].append(1000 * np.linalg.norm(person.joints_m - joints, axis=-1))
        errors["pa"].append(
            pa_mpjpe_mm(
                torch.from_numpy(person.joints_m).double(), torch.from_numpy(joints)
            ).numpy()
        )
        # The stated length of the deviation; each axis by itself has a third of its square.
        axis = person.joint_std_relative_mm[:, 1:, None] / np.sqrt(3)
        errors["inside"].append(np.abs(1000 * relative[:, 1:]) < axis)
        errors["std"].append(person.joint_std_relative_mm[:, 1:])
    means = {
        name: float(np.mean(np.concatenate([v.ravel() for v in values])))
        for name, values in errors.items()
    }
    answer = Answer(
        means["mpjpe"], means["pa"], means["absolute"], means["inside"], means["std"], [], [], []
    )
    ways = []
    for number, view in zip(cameras[1:], result.views[1:], strict=True):
        answer.offset_ms.append(1000 * (view.offset_s - (offsets[number] - offsets[cameras[0]])))
        rotation, offset = rig.relative(number, cameras[0])
        turn = Rotation.from_matrix(view.from_camera[:3, :3] @ rotation.T)
        answer.turn_deg.append(float(np.degrees(turn.magnitude())))
        ways.append((view.from_camera[:3, 3], offset))
    scale = sum(float(a @ b) for a, b in ways) / max(sum(float(a @ a) for a, _ in ways), 1e-9)
    answer.place.extend(float(np.linalg.norm(scale * a - b) / np.linalg.norm(b)) for a, b in ways)
    return answer


def choices(rig: Rig) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Names of rows, and cameras: of those two that are 60 to 120 degrees apart the first pairs."""
    yield "1", (0,)
    axes = [camera.rotation[2] for camera in rig.cameras]
    angles = {
        (a, b): np.degrees(np.arccos(axes[a] @ axes[b]))
        for a, b in combinations(range(len(rig)), 2)
    }
    yield from [("2", pair) for pair, angle in angles.items() if 60 <= angle <= 120][:PAIRS]
    yield "3", (0, 1, 2)
    yield "4", (0, 1, 2, 3)


def measure(folder: Path) -> None:
    """All runs of one rig, into its answers.json: number of cameras, how they are known, and the
    answer or None.
    """
    answers: list[tuple[str, str, dict[str, object] | None]] = []
    observed = folder / "people"
    rig = rigs_of(folder)
    look_for_people(folder, observed)
    write_rig(folder / "noisy.toml", noisy_rig(rig, np.random.default_rng(0)))
    late = bool(np.load(folder / "truth.npz")["offset_s"].any())
    for count, cameras in choices(rig):
        ways: dict[str, Path | str | None] = {"calibrated": folder / "rig.toml", "auto": "auto"}
        if count in ("2", "4"):
            ways["noisy"] = folder / "noisy.toml"
        for mode, inputs in (ways if count != "1" else {"one camera": None}).items():
            named = ("clocks differ, " if late and count != "1" else "") + mode
            try:
                result = run(
                    folder, observed, cameras, inputs, "auto" if late or mode == "auto" else "start"
                )
                answers.append((count, named, asdict(measured(result, folder, cameras))))
            except UserError as error:
                warnings.warn(f"{folder.name} {cameras} {mode}: {error}", stacklevel=1)
                answers.append((count, named, None))
    (folder / "answers.json").write_text(json.dumps(answers))


def rendered(folders: Sequence[Path], console: Console) -> None:
    rows: dict[tuple[str, str], list[Answer]] = {}
    refused: dict[tuple[str, str], int] = {}
    for folder in folders:
        for count, mode, answer in json.loads((folder / "answers.json").read_text()):
            rows.setdefault((count, mode), []).extend([] if answer is None else [Answer(**answer)])
            refused[count, mode] = refused.get((count, mode), 0) + (answer is None)
    table = Table(
        "cameras",
        "calibration",
        "runs",
        "MPJPE mm",
        "PA-MPJPE mm",
        "camera frame mm",
        "stated mm",
        "coverage",
        "offset ms",
        "cameras deg",
        "cameras %",
        "refused",
        title="Rendered people through the network",
    )
    for (count, mode), answers in sorted(rows.items()):
        if not answers:
            table.add_row(count, mode, "0", *["-"] * 8, str(refused.get((count, mode), 0)))
            continue
        mean = {
            name: float(np.mean([getattr(a, name) for a in answers]))
            for name in ("mpjpe_mm", "pa_mm", "absolute_mm", "std_mm", "coverage")
        }
        offset, turn, place = (
            np.array([v for a in answers for v in getattr(a, n)])
            for n in ("offset_ms", "turn_deg", "place")
        )
        table.add_row(
            count,
            mode,
            str(len(answers)),
            f"{mean['mpjpe_mm']:.1f}",
            f"{mean['pa_mm']:.1f}",
            f"{mean['absolute_mm']:.0f}",
            f"{mean['std_mm']:.0f}",
            f"{100 * mean['coverage']:.0f} %",
            f"{np.abs(offset).mean():.1f}" if "differ" in mode or mode == "auto" else "-",
            f"{turn.mean():.1f}" if len(turn) else "-",
            f"{100 * place.mean():.1f}" if len(place) else "-",
            str(refused.get((count, mode), 0)),
        )
    console.print(table)


def simulated(number: int, console: Console) -> None:
    body = fitting.load_body()
    rng = np.random.default_rng(0)
    noise = Noise(confidence=(0.85, 0.98), mixtures=True)
    offset = []
    z = []
    turn = []
    turn_z = []
    refused = 0
    for seed in range(number):
        away = float(rng.uniform(-0.5, 0.5))
        azimuth = float(rng.uniform(60, 120))
        rig = placed_around([0, azimuth])
        sim = simulate(
            rig,
            body,
            100 + seed,
            frames=120,
            people=1 + seed % 3,
            offsets_s=[0.0, away],
            noise=noise,
        )
        tracks = [
            [Sight.of(points, time, placed.camera) for points in own]
            for own, time, placed in zip(sim.keypoints, sim.time_s, rig.cameras, strict=True)
        ]
        result = find_offset([SyncedCamera(tracks[0], 0.0, rig.relative(1))], tracks[1], 1 / 30)
        if result.is_estimated:
            offset.append(1000 * (result.seconds - away))
            z.append(offset[-1] / 1000 / result.std_s)
        cameras = [c.camera for c in rig.cameras]
        lifted = [
            [Lifted.of(points, time, camera, body, 30.0) for points in own]
            for own, time, camera in zip(sim.keypoints, sim.time_s, cameras, strict=True)
        ]
        focals = [focal_from_user(c.mean_focal_px, c.size) for c in cameras]
        try:
            placed = place_cameras(
                Recorded(["a", "b"], cameras, focals, lifted, [0.0, None], [1 / 30] * 2)
            )
        except UserError:
            refused += 1
            continue
        missed = Rotation.from_matrix(placed.rig.relative(1)[0] @ rig.relative(1)[0].T).magnitude()
        turn.append(np.degrees(missed))
        turn_z.append(turn[-1] / placed.turn_std_deg[0])
    table = Table(
        "what",
        "runs",
        "median error",
        "within 10 ms or 5 deg",
        "error over stated",
        "refused",
        title="Simulated keypoints, two cameras, 4 s",
    )
    for label, errors, unit, near, over, none in (
        ("offset, calibrated", np.abs(offset), "ms", 10, z, number - len(offset)),
        ("cameras placed by people", np.array(turn), "deg", 5, turn_z, refused),
    ):
        ratio = np.sqrt(np.mean(np.square(over)))
        share = f"{100 * (errors < near).mean():.0f} %"
        table.add_row(
            label,
            str(len(errors)),
            f"{np.median(errors):.1f} {unit}",
            share,
            f"{ratio:.2f}",
            str(none),
        )
    console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, nargs="?", help="rendered rigs")
    parser.add_argument("--make", type=int, default=0, help="render so many rigs first")
    parser.add_argument(
        "--rigs", nargs="*", help="measure these again; the others as they were measured before"
    )
    parser.add_argument("--simulated", type=int, default=0, help="so many simulated rigs instead")
    options = parser.parse_args()
    console = Console()
    torch.set_num_threads(1)
    if options.simulated:
        simulated(options.simulated, console)
        return
    if options.folder is None:
        parser.error("give a folder, or --simulated N")
    body = fitting.load_body()
    for seed, (name, (azimuths, clip, people, offsets)) in enumerate(
        list(RIGS.items())[: options.make], 1
    ):
        if not (options.folder / name / "truth.npz").is_file():
            rig = placed_around(azimuths, size=SIZE, distance_m=4.2)
            render(
                options.folder / name,
                rig,
                body,
                seed,
                people=people,
                frames=FRAMES,
                clip=clip,
                offsets_s=offsets,
            )
    folders = [
        options.folder / name for name in RIGS if (options.folder / name / "truth.npz").is_file()
    ]
    for folder in folders:
        if folder.name in (options.rigs or ()) or not (folder / "answers.json").is_file():
            measure(folder)
    rendered(folders, console)


if __name__ == "__main__":
    claim(main)
