import numpy as np
import pytest
import torch
from torch import Tensor

from pose2d import decode


def gaussian(x: float, y: float, sigma: float = 2.0, h: int = 64, w: int = 48) -> Tensor:
    """One map [1, 1, h, w] with its top at (x, y)."""
    rows = torch.arange(h)[:, None]
    columns = torch.arange(w)
    return torch.exp(-((columns - x) ** 2 + (rows - y) ** 2) / (2 * sigma**2))[None, None]


def in_image(xy_cells: Tensor, conventions: dict[str, np.ndarray], udp: bool) -> np.ndarray:
    size = conventions["scale"][:, None] * 200
    cells = np.array([48, 64]) - (1 if udp else 0)
    return xy_cells.numpy() * size / cells + conventions["center"][:, None] - size / 2


@pytest.mark.parametrize(
    ("name", "decoder", "udp"),
    [
        ("sbl", decode.quarter_offset, False),
        ("mm_default", decode.mmpose_default, False),
        ("dark", decode.dark, False),
        ("udp", decode.udp, True),
    ],
)
def test_places_and_heights_are_those_of_the_original_decoders(conventions, name, decoder, udp):
    xy_cells, score = decoder(torch.from_numpy(conventions["heatmaps"]))
    np.testing.assert_allclose(
        in_image(xy_cells, conventions, udp), conventions[f"{name}_preds"], atol=1e-3
    )
    heights = conventions["sbl_max" if name == "mm_default" else f"{name}_max"]
    np.testing.assert_array_equal(score.numpy(), heights[..., 0])


@pytest.mark.parametrize("decoder", [decode.dark, decode.udp])
@pytest.mark.parametrize("place", [(20.3, 31.8), (10.0, 40.5), (33.49, 12.51)])
def test_a_gaussian_is_found_between_its_cells(decoder, place):
    xy_cells, _ = decoder(gaussian(*place))
    torch.testing.assert_close(xy_cells[0, 0], torch.tensor(place), atol=0.02, rtol=0)


def test_the_quarter_step_goes_towards_the_higher_neighbours():
    xy_cells, score = decode.quarter_offset(gaussian(20.3, 31.8))
    assert xy_cells[0, 0].tolist() == [20.25, 31.75]
    assert score.item() == pytest.approx(gaussian(20.3, 31.8)[0, 0, 32, 20].item())


@pytest.mark.parametrize("cell", [(1, 30), (47, 30), (20, 1), (20, 63), (0, 0)])
def test_peaks_at_the_edge_stay_in_their_cell(cell):
    x, y = cell
    maps = gaussian(x, y)
    assert decode.quarter_offset(maps)[0][0, 0].tolist() == [x, y]
    assert decode.dark(maps)[0][0, 0].tolist() == [x, y]


@pytest.mark.parametrize(
    ("decoder", "place"),
    [(decode.quarter_offset, 0), (decode.mmpose_default, -1), (decode.dark, -1), (decode.udp, -1)],
)
def test_a_map_without_a_positive_value_has_no_place(decoder, place):
    xy_cells, score = decoder(gaussian(20, 30) - 2)
    assert xy_cells[0, 0].tolist() == [place, place]
    assert score.item() == -1


@pytest.mark.parametrize(
    "decoder", [decode.quarter_offset, decode.mmpose_default, decode.dark, decode.udp]
)
def test_people_do_not_influence_each_other(decoder):
    maps = torch.rand(3, 2, 64, 48, generator=torch.Generator().manual_seed(1))
    together = decoder(maps)[0]
    alone = torch.cat([decoder(one)[0] for one in maps.split(1)])
    torch.testing.assert_close(together, alone)


def test_no_people_is_no_error():
    assert decode.udp(torch.zeros(0, 17, 64, 48))[0].shape == (0, 17, 2)


def test_the_expected_cell_of_a_flat_map_is_its_middle():
    assert decode.soft_argmax(torch.zeros(1, 1, 64, 48))[0][0, 0].tolist() == pytest.approx(
        [23.5, 31.5]
    )


def test_the_expected_cell_of_a_sharp_map_is_its_peak():
    maps = torch.zeros(1, 1, 64, 48)
    maps[0, 0, 10, 20] = 100
    assert decode.soft_argmax(maps)[0][0, 0].tolist() == pytest.approx([20, 10])
