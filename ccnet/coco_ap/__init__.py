"""COCO keypoint AP and AR, vectorised over images."""
