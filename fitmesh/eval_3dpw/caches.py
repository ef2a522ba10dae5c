"""What each sequence leaves in the output folder, and from what it was made: an interrupted run goes on from there."""

import hashlib
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from types import ModuleType

import numpy as np
import torch

import eval3dpw
import fitting
from eval3dpw.bodies import BodySet
from fitmesh import confidence as trust
from fitmesh.eval_3dpw.keypoints import Read
from fitmesh.eval_3dpw.sequences import Work
from fitmesh.eval_3dpw.settings import STORED, EvalSettings
from fitting.body import BodyParams
from fitting.init.guess import Guess
from pose2d.base.caching import CacheKey, content_digest, read_npz, write_npz
from pose2d.estimate import BATCH
from pose2d.skeletons import BY_NAME


def keypoints_key(work: Work, settings: EvalSettings, bodies: BodySet) -> CacheKey:
    inputs = {"truth": work.digest, "images": _images_digest(work), "bodies": _bodies_digest(work, bodies)}
    if settings.pose_checkpoint is not None:
        inputs["pose_checkpoint"] = content_digest([settings.pose_checkpoint])
    if settings.pose_model != STORED:
        for source in settings.confidence:
            head = settings.ccnet if source == "ccnet" else None
            if found := trust.digest(source, settings.pose_model, head):
                inputs[source] = found
    return CacheKey(
        "eval-3dpw keypoints",
        {"pose_model": settings.pose_model, "confidence": list(settings.confidence), "every": settings.every,
         "batch": BATCH},
        inputs,
    )  # fmt: skip


def fit_key(keypoints: CacheKey, settings: EvalSettings, row: str) -> CacheKey:
    """Of one row's fits, or of a start."""
    inputs = {"keypoints": keypoints.digest, "fitting": code_digest(fitting)}
    if settings.checkpoint is not None:
        inputs["checkpoint"] = content_digest([settings.checkpoint])
    return CacheKey(
        "eval-3dpw fit",
        {"row": row, "init": settings.init, "single_frames": settings.single_frames},
        inputs,
    )


def score_key(fits: CacheKey, settings: EvalSettings, bodies: BodySet) -> CacheKey:
    regressor = hashlib.sha256(bodies.regressor.numpy().tobytes()).hexdigest()
    inputs = {"fits": fits.digest, "regressor": regressor, "eval3dpw": code_digest(eval3dpw)}
    return CacheKey("eval-3dpw score", {"protocol": settings.protocol}, inputs)


def write_reads(path: Path, cache_key: CacheKey, work: Work, reads: Iterable[Read]) -> None:
    arrays: dict[str, np.ndarray | str] = {}
    for track, read in zip(work.tracks, reads, strict=True):
        one = {
            "frame": read.frame, "boxes_px": read.boxes_px, "readable": read.readable, "xy_px": read.xy_px,
            **{f"confidence.{source}": value for source, value in read.confidence.items()},
            **{f"presence.{source}": value for source, value in read.presence.items()},
        }  # fmt: skip
        arrays |= {f"{track.person}.{name}": value for name, value in one.items()}
        arrays["skeleton"] = read.skeleton.name
    write_npz(path, cache_key, arrays)


def read_reads(path: Path, work: Work) -> list[Read]:
    arrays = read_npz(path)

    def read(person: int) -> Read:
        mine = {name.removeprefix(f"{person}."): v for name, v in arrays.items() if name.startswith(f"{person}.")}

        def by_source(kind: str) -> dict[str, np.ndarray]:
            return {name.removeprefix(kind): value for name, value in mine.items() if name.startswith(kind)}

        return Read(
            mine["frame"], mine["boxes_px"], mine["readable"], mine["xy_px"], by_source("confidence."),
            by_source("presence."), BY_NAME[str(arrays["skeleton"])],
        )  # fmt: skip

    return [read(track.person) for track in work.tracks]


def write_fits(path: Path, cache_key: CacheKey, fits: Mapping[int, BodyParams]) -> None:
    """By person; a person who could not be fitted is not there."""
    arrays = {}
    for person, params in fits.items():
        for name in ("pose", "shape", "translation"):
            arrays[f"{person}.{name}"] = getattr(params, name).numpy()
    write_npz(path, cache_key, arrays)


def read_fits(path: Path) -> dict[int, BodyParams]:
    arrays = read_npz(path)
    people = sorted({int(name.split(".")[0]) for name in arrays if name != "cache_key"})
    return {
        person: BodyParams(
            *(torch.from_numpy(arrays[f"{person}.{name}"]) for name in ("pose", "shape", "translation"))
        )
        for person in people
    }  # fmt: skip


def write_starts(path: Path, cache_key: CacheKey, starts: Mapping[int, Guess]) -> None:
    arrays: dict[str, torch.Tensor] = {}
    for person, guess in starts.items():
        params = guess.params
        arrays |= {
            f"{person}.pose": params.pose, f"{person}.shape": params.shape, f"{person}.translation": params.translation,
            f"{person}.turn_rad": guess.turn_rad, f"{person}.distance": guess.distance,
            f"{person}.shape_spread": torch.tensor(guess.shape),
        }  # fmt: skip
    write_npz(path, cache_key, {name: value.numpy() for name, value in arrays.items()})


def read_starts(path: Path) -> dict[int, Guess]:
    arrays = read_npz(path)

    def tensor(person: int, name: str) -> torch.Tensor:
        return torch.from_numpy(arrays[f"{person}.{name}"])

    return {
        person: Guess(
            params, tensor(person, "turn_rad"), tensor(person, "distance"), float(tensor(person, "shape_spread"))
        )
        for person, params in read_fits(path).items()
    }


def read_score(path: Path) -> dict[str, np.ndarray]:
    return {name: value for name, value in read_npz(path).items() if name != "cache_key"}


@cache
def code_digest(package: ModuleType) -> str:
    """Of a package's code and data: what a result depends on besides its settings."""
    root = Path(str(package.__file__)).parent
    files = [path for path in sorted(root.rglob("*")) if path.suffix in (".py", ".npz", ".safetensors")]
    return content_digest(path for path in files if "synth" not in path.parts)


def _images_digest(work: Work) -> str:
    """Of the names and sizes of the images in use; reading them all would take as long as the keypoints."""
    digest = hashlib.sha256()
    for track in work.tracks:
        for number in track.frame.tolist():
            path = work.image(number)
            digest.update(f"{path.name} {path.stat().st_size if path.is_file() else -1};".encode())
    return digest.hexdigest()


def _bodies_digest(work: Work, bodies: BodySet) -> str:
    digest = hashlib.sha256()
    for gender in sorted({track.gender for track in work.tracks} | {"neutral"}):
        body = bodies.load(gender)
        for tensor in (body.v_template, body.shapedirs, body.J_regressor, body.weights):
            digest.update(tensor.contiguous().numpy().tobytes())
    return digest.hexdigest()
