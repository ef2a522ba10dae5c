"""Are cuts found, and none invented? Our detector, and PySceneDetect's where installed, on the same
small frames.

    python bench/tuning/shots.py --videos DIR [--coco DIR]

DIR holds whole shots (no cut in any of them). Each is altered (flicker, shake, flashes, darkness,
low quality, bars, fewer frames a second) and must stay one shot; joined pieces must show every join
and nothing else. With --coco, single images become shots with simulated camera motion, and pairs of
them cuts: many more of both.
"""

import argparse
import io
import sys
import time
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path

import av
import cv2
import numpy as np
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench.lib.claim import Console, claim
from bench.lib.identity_scenes import find_cuts
from pose2d.video.shots import new_structure, thumbnail
from pose2d.video.video_file import Video

WH = (128, 72)
LONGEST = 240  # frames of a clip that are altered; as it is, the whole clip is read
Frames = np.ndarray  # [T, H, W, 3] uint8
Finder = Callable[
    [Frames, float], list[int]
]  # frames and frames per second -> first frames of new shots


def ours(frames: Frames, fps: float) -> list[int]:
    return find_cuts((i, i / fps, rgb) for i, rgb in enumerate(frames))


def pyscenedetect(name: str) -> Finder:
    import scenedetect  # type: ignore[import-not-found]
    from scenedetect.detectors import AdaptiveDetector, ContentDetector  # type: ignore[import-not-found]

    kinds = {"ContentDetector": ContentDetector, "AdaptiveDetector": AdaptiveDetector}

    def find(frames: Frames, fps: float) -> list[int]:
        detector = kinds[name](min_scene_len=2)
        cuts = []
        for i, rgb in enumerate(frames):
            cuts += detector.process_frame(scenedetect.FrameTimecode(i, fps=fps), rgb[:, :, ::-1])
        return sorted({int(cut.frame_num) for cut in cuts} - {0})

    return find


def compressed(frames: Frames, fps: float, quality: str) -> Frames:
    """Through libx264 at this constant rate factor (0..51, 51 worst), or through a gif."""
    target = io.BytesIO()
    gif = quality == "gif"
    with av.open(target, "w", format="gif" if gif else "mp4") as container:
        stream = container.add_stream(
            "gif" if gif else "libx264", rate=Fraction(fps).limit_denominator(1000)
        )
        stream.width = frames.shape[2]
        stream.height = frames.shape[1]
        stream.pix_fmt = "rgb8" if gif else "yuv420p"
        if not gif:
            stream.options = {
                "crf": quality,
                "preset": "veryfast",
                "g": "12",
            }  # keyframes often: their pulses show
        for rgb in frames:
            container.mux(
                stream.encode(
                    av.VideoFrame.from_ndarray(rgb, "rgb24").reformat(format=stream.pix_fmt)
                )
            )
        container.mux(stream.encode(None))
    target.seek(0)
    with av.open(target) as container:
        return np.stack([frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)])


def shaken(frames: Frames, share: float, random: np.random.Generator) -> Frames:
    """Each frame shifted by a random step of up to `share` of the width, and turned a little."""
    height, width = frames.shape[1:3]
    shift = np.cumsum(random.normal(0, share / 2, (len(frames), 2)).clip(-share, share), 0) * width
    limit = 0.15 * width
    shift = limit * np.sin(shift / limit)
    out = []
    for rgb, (dx, dy) in zip(frames, shift, strict=True):
        turn = cv2.getRotationMatrix2D((width / 2, height / 2), float(random.normal(0, 1)), 1.35)
        turn[:, 2] += dx, dy
        out.append(cv2.warpAffine(rgb, turn, (width, height), borderMode=cv2.BORDER_REFLECT))
    return np.stack(out)


def toned(frames: Frames, gain: np.ndarray | float, offset: np.ndarray | float = 0.0) -> Frames:
    gain, offset = (np.broadcast_to(x, len(frames))[:, None, None, None] for x in (gain, offset))
    return (frames * gain + offset).clip(0, 255).astype(np.uint8)


def flashed(frames: Frames, random: np.random.Generator) -> Frames:
    """Photographers: single and double frames that are white but for a quarter of their contrast."""
    gain = np.ones(len(frames))
    offset = np.zeros(len(frames))
    for start in range(5, len(frames) - 5, 13):
        length = random.integers(1, 3)
        gain[start : start + length], offset[start : start + length] = 0.25, 230
    return toned(frames, gain, offset)


def barred(frames: Frames) -> Frames:
    """The middle of the image between black bars, as an upright video is shown on a wide screen."""
    out = np.zeros_like(frames)
    width = frames.shape[2]
    out[:, :, round(0.34 * width) : round(0.66 * width)] = frames[
        :, :, round(0.34 * width) : round(0.66 * width)
    ]
    return out


def alterations(
    frames: Frames, fps: float, random: np.random.Generator
) -> Iterator[tuple[str, Frames, float]]:
    count = len(frames)
    noise = random.normal(0, 6, (8, *frames.shape[1:]))
    yield "as it is", frames, fps
    yield "every 2nd frame", frames[::2], fps / 2
    yield "frozen, twice each", np.repeat(frames, 2, 0), 2 * fps
    yield (
        "flicker",
        toned(frames, np.exp(random.normal(0, 0.2, count)), random.normal(0, 10, count)),
        fps,
    )
    yield "flashes", flashed(frames, random), fps
    yield "shake", shaken(frames, 0.06, random), fps
    yield "dark and noisy", toned(frames + noise[np.arange(count) % 8], 0.12), fps
    yield "bars", barred(frames), fps
    yield "h264 crf 45", compressed(frames, fps, "45"), fps
    yield "h264 crf 45, dark", compressed(toned(frames, 0.2), fps, "45"), fps
    yield "gif", compressed(frames, fps, "gif"), fps


def joined(
    clips: dict[str, tuple[Frames, float]], random: np.random.Generator, longest: int
) -> tuple[Frames, list]:
    """Random pieces of random clips end to end, no clip again within three; and the frames where
    they were joined.
    """
    names = list(clips)
    pieces = []
    last = [""]
    while len(pieces) < 30:
        name = str(random.choice([n for n in names if n not in last[-2:]]))
        frames = clips[name][0]
        length = min(int(random.integers(2, longest + 1)), len(frames))
        start = int(random.integers(0, len(frames) - length + 1))
        pieces.append(frames[start : start + length])
        last.append(name)
    return np.concatenate(pieces), np.cumsum([len(piece) for piece in pieces])[:-1].tolist()


def dissolved(
    a: Frames, b: Frames, length: int, through_black: bool
) -> tuple[Frames, tuple[int, int]]:
    """The end of `a` blended into the start of `b`; and where the blend begins and ends."""
    share = np.linspace(0, 1, length + 2)[1:-1]
    count = len(a) - length
    if through_black:
        half = toned(a[-length:], 1 - share), toned(b[:length], share)
        middle = np.concatenate([half[0], half[1]])
    else:
        middle = toned(a[-length:], 1 - share) + toned(b[:length], share)
    return np.concatenate([a[:count], middle, b[length:]]), (count, count + len(middle))


def matched(result: list[int], truth: list[int]) -> tuple[int, int, int]:
    """Found, missed and invented cuts, to one frame."""
    hits = sum(any(abs(cut - f) <= 1 for f in result) for cut in truth)
    invented = sum(all(abs(cut - f) > 1 for cut in truth) for f in result)
    return hits, len(truth) - hits, invented


def coco_scores(
    folder: Path, random: np.random.Generator, count: int = 1000
) -> dict[str, np.ndarray]:
    """`new_structure` of simulated camera motion and exposure within an image, and between images."""
    paths = sorted(folder.glob("*.jpg"))
    images = [
        cv2.imread(str(paths[i]))[:, :, ::-1]
        for i in random.choice(len(paths), min(count, len(paths)), False)
    ]

    def view(image: np.ndarray, x: float, y: float, zoom: float) -> np.ndarray:
        height, width = image.shape[:2]
        affine = np.array(
            [[zoom, 0, width / 2 - zoom * x * width], [0, zoom, height / 2 - zoom * y * height]]
        )
        moved = cv2.warpAffine(
            np.ascontiguousarray(image), affine, (width, height), borderMode=cv2.BORDER_REFLECT
        )
        return thumbnail(moved)

    rows: dict[str, list[float]] = {"moved": [], "other image": [], "other half": [], "closer": []}
    for index, image in enumerate(images):
        x, y, zoom = *random.uniform(0.4, 0.6, 2), random.uniform(1.2, 2)
        dx, dy = random.normal(0, 0.04, 2).clip(-0.1, 0.1) / zoom
        after = view(image, x + dx, y + dy, zoom * np.exp(random.normal(0, 0.03)))
        after = (
            (np.exp(random.normal(0, 0.25)) * after + random.normal(0, 8))
            .clip(0, 255)
            .astype(np.float32)
        )
        rows["moved"].append(new_structure(view(image, x, y, zoom), after))
        rows["other image"].append(new_structure(thumbnail(images[index - 1]), thumbnail(image)))
        rows["other half"].append(
            new_structure(view(image, 0.25, 0.5, 2), view(image, 0.75, 0.5, 2))
        )
        rows["closer"].append(new_structure(view(image, 0.5, 0.5, 1), view(image, 0.5, 0.45, 2.2)))
    return {name: np.array(values) for name, values in rows.items()}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--videos", type=Path, required=True)
    parser.add_argument("--coco", type=Path, help="a folder of jpg images")
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    cv2.setNumThreads(1)
    finders: dict[str, Finder] = {"ours": ours}
    try:
        finders |= {name: pyscenedetect(name) for name in ("ContentDetector", "AdaptiveDetector")}
    except ImportError:
        print("scenedetect is not installed: no comparison")
    clips = {
        path.stem: (
            np.stack(
                [
                    cv2.resize(frame.rgb, WH, interpolation=cv2.INTER_AREA)
                    for frame in Video(path).frames()
                ]
            ),
            float(Video(path).info.rate),
        )
        for path in sorted(arguments.videos.iterdir())
    }
    console = Console(width=130)
    groups: dict[str, list[tuple[Frames, float, list[int]]]] = {}
    for frames, fps in clips.values():
        groups.setdefault("whole shots, whole clips", []).append((frames, fps, []))
        for name, altered, rate in alterations(frames[:LONGEST], fps, np.random.default_rng(0)):
            groups.setdefault(f"whole shots, {name}", []).append((altered, rate, []))
    for seed in range(arguments.seeds):
        random = np.random.default_rng(seed)
        for longest in (40, 2):
            frames, truth = joined(clips, random, longest)
            for name, altered, rate in alterations(frames, 25.0, random):
                if name not in ("every 2nd frame", "frozen, twice each", "shake") and (
                    longest > 2 or name != "flashes"
                ):
                    group = (
                        f"joined, {'2 frames each' if longest == 2 else 'up to 40 frames'}, {name}"
                    )
                    groups.setdefault(group, []).append((altered, rate, truth))
    table = Table("group", "detector", "cuts", "found", "invented", "ms a frame")
    for group, cases in groups.items():
        for name, find in finders.items():
            start = time.process_time()
            results = [matched(find(frames, fps), truth) for frames, fps, truth in cases]
            cost = (time.process_time() - start) / sum(len(frames) for frames, _, _ in cases)
            hits, missed, invented = np.sum(results, 0)
            table.add_row(
                group, name, str(hits + missed), str(hits), str(invented), f"{1e3 * cost:.2f}"
            )
    console.print(table)

    soft = Table("transition", "frames", "detector", "found", "of", "invented")
    names = [name for name, (frames, _) in clips.items() if len(frames) >= 60]
    for through_black in (False, True):
        for length in (6, 12, 20):
            pairs = [(a, b) for a in names for b in names if a != b]
            dissolves = [
                dissolved(clips[a][0][:60], clips[b][0][:60], length, through_black)
                for a, b in pairs
            ]
            for name, find in finders.items():
                hits = invented = 0
                for frames, (first, end) in dissolves:
                    inside = [first - 1 <= cut <= end + 1 for cut in find(frames, 25.0)]
                    hits = hits + any(inside)
                    invented = invented + len(inside) - sum(inside[:1] if any(inside) else [])
                row = (
                    "fade through black" if through_black else "dissolve",
                    str(length),
                    name,
                    str(hits),
                )
                soft.add_row(*row, str(len(joined)), str(invented))
    console.print(soft)

    if arguments.coco:
        scores = Table("new_structure", "0.1 %", "1 %", "5 %", "median", "95 %", "99 %", "99.9 %")
        for name, values in coco_scores(arguments.coco, np.random.default_rng(0)).items():
            quantiles = np.quantile(values, [0.001, 0.01, 0.05, 0.5, 0.95, 0.99, 0.999])
            scores.add_row(name, *(f"{q:.3f}" for q in quantiles))
        console.print(scores)


if __name__ == "__main__":
    claim(main)
