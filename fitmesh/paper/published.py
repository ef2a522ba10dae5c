"""What the paper prints (arXiv 2311.17105v1), as far as it is known here, in percent and millimetres.

All rows on COCO are with annotated boxes and the flip test.
"""

from collections.abc import Mapping

Figures = Mapping[str, float]

# model, confidence -> AP; AR is the same for every confidence and stands beside the network's own.
COCO: Mapping[tuple[str, str], Figures] = {
    ("sbl-resnet50-256x192", "raw"): {"ap": 72.4, "ar": 75.6},
    ("sbl-resnet152-384x288", "raw"): {"ap": 76.5, "ar": 79.3},
    ("hrnet-w32-256x192", "raw"): {"ap": 76.0, "ar": 79.3},
    ("hrnet-w48-384x288", "raw"): {"ap": 77.4, "ar": 80.9},
    ("vitpose-b", "raw"): {"ap": 77.3, "ar": 80.4},
    ("rle-resnet50-256x192", "raw"): {"ap": 72.2, "ar": 75.4},
    ("rle-resnet152-384x288", "raw"): {"ap": 76.3, "ar": 79.2},
    ("rle-hrnet-w32-256x192", "raw"): {"ap": 76.7},
    ("rle-hrnet-w48-384x288", "raw"): {"ap": 77.9},
    ("poseur-resnet50-256x192", "raw"): {"ap": 76.8, "ar": 79.7},
    ("ipr-resnet50-256x256", "raw"): {"ap": 65.6, "ar": 74.9},
    ("ipr-resnet50-256x256", "raw-heatmap"): {"ap": 69.5},
}
# The closed form by the area that it is given, on Simple Baselines' ResNet-50.
AREAS: Mapping[tuple[str, str], Figures] = {
    ("sbl-resnet50-256x192", "raw"): {"ap": 72.4},
    ("sbl-resnet50-256x192", "ones"): {"ap": 67.5},
    ("sbl-resnet50-256x192", "closed-form"): {"ap": 72.2},
    ("sbl-resnet50-256x192", "closed-form-predicted"): {"ap": 73.0},
    ("sbl-resnet50-256x192", "closed-form-annotated"): {"ap": 73.6},
    ("sbl-resnet50-256x192", "oracle"): {"ap": 75.6},
}
# Losses of the head, on RLE's ResNet-50 (72.2 with its own confidence).
LOSSES: Mapping[tuple[str, str], Figures] = {
    ("rle-resnet50-256x192", "raw"): {"ap": 72.2},
    ("rle-resnet50-256x192", "aleatoric"): {"ap": 73.4},
    ("rle-resnet50-256x192", "cross-entropy"): {"ap": 73.5},
    ("rle-resnet50-256x192", "ensemble"): {"ap": 73.5},
    ("rle-resnet50-256x192", "soap"): {"ap": 73.4},
}
MPII: Mapping[tuple[str, str], Figures] = {("sbl-resnet50-256x256-mpii", "raw"): {"pckh": 88.5, "pckh_0.1": 33.9}}
# SPIN without keypoints: the start of the fits.
THREE_DPW: Mapping[tuple[str, str], Figures] = {
    ("spin", "none"): {"pa_mpjpe_mm": 60.2, "mpjpe_mm": 102.1, "mve_mm": 130.6}
}
