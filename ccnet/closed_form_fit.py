"""The two numbers the closed form needs and a pose model does not state, measured on training people."""

import numpy as np

from ccnet.closed_form import fit_target_width
from ccnet.observe import Observed
from pose2d.models.base import PoseModel


def cells_across(model: PoseModel) -> float:
    """Cells of the heatmap across the crop's width; a quarter of the input's for a network without maps."""
    return float(model.feature_shape[2] if len(model.feature_shape) == 3 else model.input_wh[0] / 4)


def frame_px_per_cell(observed: Observed, model: PoseModel) -> np.ndarray:
    """[N]"""
    width, height = model.input_wh
    crop_width = (observed.crop_area_px2 * width / height).sqrt()
    return (crop_width / cells_across(model)).double().numpy()


def fit_closed_form(observed: Observed, model: PoseModel) -> tuple[float, float]:
    """Width of the heatmaps' target in cells, and the mean share of its crop a person fills."""
    share = float(observed.area_share.mean())
    l2 = share * observed.crop_area_px2.double().numpy()[:, None] * model.skeleton.oks_variance
    truth = np.where(observed.labelled.numpy() > 0, observed.oks.numpy(), np.nan)
    width = fit_target_width(observed.score.double().numpy(), truth, frame_px_per_cell(observed, model), l2)
    return float(width[0]), share
