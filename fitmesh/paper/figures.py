"""The paper's figures of each network: reliability and bias, visible and invisible keypoints, the
heatmap's maximum, and people with raw and calibrated confidence."""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

import ccnet
import pose2d
from ccnet.closed_form import area_and_width, cells_across
from ccnet.comparison import check_plots
from ccnet.data.datasets import Split, evenly, load_image, read_split, usual_split
from ccnet.data.observations import observe
from ccnet.heads.files import about_of
from ccnet.heads.head import CalibrationHead
from ccnet.paper.panels import PersonPanel
from ccnet.predicted_people import USUAL_SOURCES, Predictions, predict_split
from fitmesh.paper.cells import Cells, GivenModel, PaperRequest
from fitmesh.paper.coco_tables import BIAS, BIAS_COLUMNS, SOURCE_LABELS, coco_row, describe_data
from fitmesh.paper.table import PaperTable, Row
from pose2d import crops
from pose2d.base.threads import check_device, default_device
from pose2d.crops import crop_people
from pose2d.models.base import PoseModel
from pose2d.skeletons import COCO17, HALPE26

MAXIMUM_PEOPLE = 300  # of the check of the heatmap's maximum
SHOWN_PEOPLE = 5  # of the qualitative figure
IMAGES = "reliability, precision_recall, sparsification, visibility, heatmap_maximum, people"


def make_figures(request: PaperRequest) -> PaperTable:
    """Draw the images of every network into OUT/figures/NAME, and compare the bias of every
    confidence.
    """
    cells = Cells(request, (COCO17, HALPE26), trains=False)
    sources = tuple(name for name in USUAL_SOURCES if name not in ("ones", "raw-mean", "oracle"))
    rows: list[Row] = []
    for model in cells.models:
        fitting = tuple(
            name for name in sources if name != "raw-heatmap" or model.name.startswith("ipr")
        )
        folder = request.out / "figures" / model.name
        head = cells.head(model)
        measured = cells.evaluated(model, head, fitting, folder)
        draw_images(request, model, head, folder)
        for source in fitting:
            rows.append(coco_row((model.name, SOURCE_LABELS[source]), measured, source))
    title = f"Bias of confidence in keypoints, {describe_data(request, measured)}"
    notes = (BIAS, f"images: {request.out / 'figures'}/NAME/ ({IMAGES})")
    labels = ("network", "confidence")
    return PaperTable(title, labels, BIAS_COLUMNS, tuple(rows), notes=notes)


def draw_images(request: PaperRequest, model: GivenModel, head_name: str, folder: Path) -> None:
    """Draw the figures that need the predictions themselves."""
    check_plots()
    from ccnet.paper import plots

    device = request.device or default_device()
    check_device(device)
    network = pose2d.load(model.name, model.checkpoint).to(device)
    head = ccnet.load(head_name).to(device)
    split_name = request.test or usual_split("test", network.skeleton)
    split = read_split(request.data, split_name, network.skeleton)
    predictions = predict_split(network, head, split)
    keypoints = predictions.skeleton.size
    visibility = np.stack([person.keypoints[:keypoints, 2] for person in split.people]).astype(int)
    confidence = predictions.confidence
    by_name = {
        "raw score": confidence["raw"].keypoint,
        "CCNet's confidence": confidence["ccnet"].keypoint,
        "CCNet's presence": confidence["ccnet"].presence,
    }
    plots.draw_visibility(folder / "visibility.png", by_name, visibility)
    maximum, estimated = heatmap_maxima(network, head, split)
    if len(maximum):
        plots.draw_heatmap_maximum(folder / "heatmap_maximum.png", maximum, estimated)
    people = choose_people(predictions)
    panels = [_panel(network, split, predictions, number) for number in people]
    plots.draw_people(folder / "people.png", panels)


def heatmap_maxima(
    network: PoseModel, head: CalibrationHead, split: Split
) -> tuple[np.ndarray, np.ndarray]:
    """Return the maximum of every heatmap and w^2 / sigma^2 of the Gaussian fitted to it, flat.

    Both are empty for networks without heatmaps or without such a fit.
    """
    nothing = np.zeros(0)
    _, width_cells = area_and_width(network, about_of(head))
    if len(network.feature_shape) != 3 or width_cells == 0:
        return nothing, nothing

    def no_features(features: Tensor) -> Tensor:
        return features.as_subclass(Tensor)[:, :0]

    observed = observe(network, no_features, evenly(split.people, MAXIMUM_PEOPLE))
    if bool(torch.isnan(observed.sigma_px).all()):
        return nothing, nothing
    aspect = network.input_wh[0] / network.input_wh[1]
    px_per_cell = (observed.crop_area_px2 * aspect).sqrt() / cells_across(network)
    target_px = (width_cells * px_per_cell)[:, None]
    estimated = (target_px**2 / observed.sigma_px.square().mean(-1)).numpy().ravel()
    maximum = observed.score.numpy().ravel()
    usable = np.isfinite(estimated)
    return maximum[usable], estimated[usable]


def choose_people(predictions: Predictions) -> list[int]:
    """Return people whose raw and calibrated confidence differ most, from low to high OKS."""
    raw = predictions.confidence["raw"].person(predictions.box_score)
    calibrated = predictions.confidence["ccnet"].person(predictions.box_score)
    improvement = abs(raw - predictions.oks) - abs(calibrated - predictions.oks)
    groups = np.array_split(np.argsort(predictions.oks), min(SHOWN_PEOPLE, len(raw)))
    return [int(group[np.argmax(abs(improvement[group]))]) for group in groups]


def _panel(network: PoseModel, split: Split, predictions: Predictions, number: int) -> PersonPanel:
    """Return the crop of a person with keypoints and every confidence in them."""
    person = split.people[number]
    cropped = crop_people(network, load_image(person), np.array([person.box_px]))
    xy = torch.from_numpy(predictions.xy_px[number][None])
    in_crop = crops.move(cropped.affine, xy)[0].numpy()
    confidence = {
        "raw": predictions.confidence["raw"].keypoint[number],
        "CCNet": predictions.confidence["ccnet"].keypoint[number],
        "OKS": predictions.keypoint_oks[number],
    }
    ones = predictions.box_score
    in_person = {
        "raw": float(predictions.confidence["raw"].person(ones)[number]),
        "CCNet": float(predictions.confidence["ccnet"].person(ones)[number]),
        "OKS": float(predictions.oks[number]),
    }
    return PersonPanel(cropped.pixels[0].permute(1, 2, 0).numpy(), in_crop, confidence, in_person)
