"""Small valid files of every kind that a command or a loader reads."""

import json
import pickle
import shutil
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Valid:
    """A folder of valid files."""

    folder: Path
    video: Path  # 12 frames of 160 x 120
    keypoints: Path  # COCO results of a walker in it
    image: Path
    coco: Path  # a data set of two images
    mpii: Path
    threedpw: Path
    out: Path  # what `fitmesh run` left of the video
    head: Path
    body: Path
    motion: Path

    def json(self, path: Path) -> Any:
        return json.loads(path.read_text())

    def arrays(self, path: Path) -> dict[str, np.ndarray]:
        with np.load(path) as file:
            return {name: file[name] for name in file.files}


def make_valid(folder: Path) -> Valid:
    """Make valid inputs. It takes some seconds, since a run over twelve frames is among them."""
    import cv2

    import fitmesh
    from tests.eval3dpw import tiny_3dpw
    from tests.videos import image, write_video
    from tests.walkers import coco_results, walker, write_json

    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    video = write_video(folder / "walk.mp4", [40 * i for i in range(12)], (160, 120), sound="aac")
    keypoints = write_json(
        folder / "walk.json", coco_results([walker(12), walker(12, start_x_m=-0.9)])
    )
    still = folder / "image.png"
    cv2.imwrite(str(still), image(3, 160, 120))
    fitmesh.run(video, folder / "out", keypoints=keypoints, threads=1)
    tiny_3dpw.write(folder / "3dpw", {"one_00": 1})
    head = folder / "head.safetensors"
    head.write_bytes((files("ccnet") / "weights" / "rtmpose-s-halpe26.safetensors").read_bytes())
    body = folder / "body.npz"
    body.write_bytes((files("fitting") / "data" / "open_body.npz").read_bytes())
    return Valid(
        folder,
        video,
        keypoints,
        still,
        _coco(folder / "coco"),
        _mpii(folder / "mpii"),
        folder / "3dpw",
        folder / "out",
        head,
        body,
        _motion(folder / "motion.npz"),
    )


def _coco(root: Path) -> Path:
    import cv2

    from tests.walkers import walker

    (root / "val2017").mkdir(parents=True, exist_ok=True)
    (root / "annotations").mkdir(exist_ok=True)
    images = []
    annotations = []
    for number in (1, 2):
        name = f"{number:012d}.jpg"
        cv2.imwrite(str(root / "val2017" / name), np.full((120, 160, 3), 60 * number, np.uint8))
        images.append({"id": number, "file_name": name, "width": 160, "height": 120})
        points = np.concatenate([walker(1).keypoints_px[0], np.full((17, 1), 2.0)], 1)
        low = points[:, :2].min(0)
        high = points[:, :2].max(0)
        annotations.append(
            {
                "id": number,
                "image_id": number,
                "category_id": 1,
                "iscrowd": 0,
                "num_keypoints": 17,
                "bbox": [*low.tolist(), *(high - low).tolist()],
                "area": float((high - low).prod()),
                "keypoints": points.ravel().tolist(),
            }
        )
    data = {
        "images": images,
        "annotations": annotations,
        "categories": [{"id": 1, "name": "person"}],
    }
    (root / "annotations" / "person_keypoints_val2017.json").write_text(json.dumps(data))
    return root


def _mpii(root: Path) -> Path:
    import cv2

    (root / "images").mkdir(parents=True, exist_ok=True)
    (root / "annot").mkdir(exist_ok=True)
    cv2.imwrite(str(root / "images" / "a.jpg"), np.full((120, 160, 3), 90, np.uint8))
    rng = np.random.default_rng(0)
    person = {
        "image": "a.jpg",
        "center": [80.0, 60.0],
        "scale": 0.5,
        "joints_vis": [1] * 16,
        "joints": rng.uniform(10, 110, (16, 2)).tolist(),
    }
    (root / "annot" / "valid.json").write_text(json.dumps([person]))
    return root


def _motion(path: Path) -> Path:
    """Write a file of CMU clips with the right skeleton and no motion."""
    from eval3dpw.captured.motion import CMU_JOINTS, FAR_END

    names = list(dict.fromkeys([*CMU_JOINTS, *(theirs for theirs, _ in FAR_END.values())]))
    frames = 100
    np.savez(
        path,
        joint=np.array(names),
        parent=np.array([-1] + [0] * (len(names) - 1)),
        offset=np.tile(np.array([[0.0, -1.0, 0.1]], np.float32), (len(names), 1)),
        euler_zyx_deg_x100=np.zeros((frames, len(names), 3), np.int16),
        root_pos=np.zeros((frames, 3), np.float32),
        clip_start=np.array([0, frames]),
        clip_name=np.array(["05_01"]),
    )
    return path


def pickled(content: Any) -> bytes:
    return pickle.dumps(content, protocol=2)
