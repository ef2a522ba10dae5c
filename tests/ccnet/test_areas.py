"""Areas read from features: a network whose features say the area, and people whose areas are
known.
"""

import json

import cv2
import numpy as np
import pytest
import torch

from ccnet.areas import fit_areas, pooled
from ccnet.data.datasets import evenly, read_split
from ccnet.data.observations import observe
from tests.ccnet.toy import ToyModel, write_coco


class Brightness(ToyModel):
    """Features are the crop's brightness, in every channel and cell."""

    def features(self, crops: torch.Tensor) -> torch.Tensor:
        return crops.mean((1, 2, 3))[:, None, None, None].expand(-1, *self.feature_shape)


@pytest.fixture
def people(tmp_path):
    """Grey images: the brighter, the larger the person in it."""
    write_coco(tmp_path, "train2017", count=12, people=1)
    path = tmp_path / "annotations" / "person_keypoints_train2017.json"
    dataset = json.loads(path.read_text())
    for number, (image, person) in enumerate(
        zip(dataset["images"], dataset["annotations"], strict=True)
    ):
        cv2.imwrite(
            str(tmp_path / "train2017" / image["file_name"]),
            np.full((60, 80, 3), 20 * number, np.uint8),
        )
        person |= {"bbox": [30, 20, 16, 16], "area": 100 * np.exp(number / 11)}
    path.write_text(json.dumps(dataset))
    return read_split(tmp_path, "train2017").people


def test_areas_that_the_features_say_are_read_from_them(people):
    model = Brightness().eval()
    fit = fit_areas(model, people)
    grey = torch.tensor([person.area_px2 for person in people]).div(100).log() * 11 * 20 / 255
    features = grey[:, None, None, None].expand(-1, *model.feature_shape).float()
    observed = observe(model, pooled, people)
    torch.testing.assert_close(fit.share(features), observed.area_share.double(), rtol=0.01, atol=0)
    assert fit.mean_share == pytest.approx(float(observed.area_share.mean()))


def test_features_of_every_shape_become_one_vector_a_person():
    assert pooled(torch.rand(2, 8, 4, 3)).shape == (2, 8)
    assert pooled(torch.rand(2, 17, 8)).shape == (2, 8)
    assert pooled(torch.rand(2, 8)).shape == (2, 8)


def test_people_to_fit_on_are_spread_over_the_set():
    assert evenly(range(10), 1500) == list(range(10))
    chosen = evenly(range(100_000), 1500)
    assert (len(chosen), chosen[0], chosen[-1]) == (1500, 0, 99_999)
