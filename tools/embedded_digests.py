"""Write `pose2d/embedded.json`, the digests by which embedded files are verified when loaded.

Run it after changing one of the files:

    python tools/embedded_digests.py
"""

import hashlib
import json
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LIST = ROOT / "pose2d" / "embedded.json"
PATTERNS = (
    "pose2d/weights/*.npz",
    "pose2d/weights/*.json",
    "pose2d/graphs/*.onnx",
    "ccnet/weights/*.safetensors",
    "fitting/data/*.npz",
    "fitting/data/*.json",
    "eval3dpw/synth/data/*.npz",
)
WHAT = {
    "rtmpose_s_halpe26_fp16.npz": "keypoints: RTMPose-s",
    "rtmpose_s_halpe26.onnx": "graph of RTMPose-s",
    "rtmpose-s-halpe26.safetensors": "head of RTMPose-s",
    "movenet_thunder_fp16.npz": "keypoints: Thunder",
    "movenet-thunder.safetensors": "head of Thunder",
    "movenet_lightning_fp16.npz": "keypoints: Lightning",
    "movenet-lightning.safetensors": "head of Lightning",
    "yolox_tiny_humanart_fp16.npz": "detector: YOLOX-tiny",
    "yolox_tiny.onnx": "graph of YOLOX-tiny",
    "movenet_multipose_fp16.npz": "detector: MultiPose",
    "hand_landmarks_fp16.npz": "hands: MediaPipe",
    "hand_landmarks.onnx": "graph of hands",
    "hand_error.json": "stated error of hands",
    "person_mask_fp16.npz": "masks: MediaPipe",
    "person_mask.onnx": "graph of masks",
    "appearance.npz": "colours of people",
    "open_body.npz": "the open body",
    "open_hands.npz": "its fingers",
    "lifter.npz": "lifter",
    "pose_prior.npz": "pose prior",
    "stated_errors.json": "stated errors",
    "halpe26_on_smpl.json": "keypoints on SMPL",
    "held_out_motion.npz": "motion for synth",
}


def listed() -> dict[str, dict[str, str | int]]:
    """Return every embedded file with what it is, its size in bytes and its SHA-256."""
    result = sorted(path for pattern in PATTERNS for path in ROOT.glob(pattern))
    return {
        path.relative_to(ROOT).as_posix(): {
            "what": WHAT.get(path.name, path.stem),
            "bytes": path.stat().st_size,
            "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        }
        for path in result
    }


if __name__ == "__main__":
    LIST.write_text(json.dumps(listed(), indent=1) + "\n")
    print(f"{LIST}: {len(listed())} files")
