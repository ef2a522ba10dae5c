"""SPIN's network answers as the original does, loads from its containers, and gives bodies in the
full frame.
"""

import numpy as np
import pytest
import torch
from torch import nn

from fitting import Camera
from fitting.camera.crop import crop_to_full
from fitting.init.regressors import (
    CARDS,
    CLIFF_CROPPING,
    SPIN_CROPPING,
    BodyRegressor,
    cut_crops,
    initialise,
    initialise_track,
    load_regressor,
    place_windows,
)
from pose2d.base.errors import UserError
from tests.references import answers, hollow, relative_error, state_and_input

CAMERA = Camera.from_focal(900.0, (160, 120))
BOXES = np.array([[10.0, 5.0, 60.0, 110.0], [80.0, 20.0, 150.0, 90.0], [-20.0, 30.0, 30.0, 140.0]])


def bare(name):
    with torch.device("meta"):
        return CARDS[name].build()


def saved(tmp_path, content):
    torch.save(content, tmp_path / "checkpoint.pt")
    return tmp_path / "checkpoint.pt"


@torch.inference_mode()
def test_the_answers_are_spins(tmp_path):
    state, crops = state_and_input("spin_hmr")
    content = {
        "model": state,
        "epoch": 3,
        "dataset_perm": torch.arange(5),
    }  # the trainer's own things
    network = load_regressor("spin", saved(tmp_path, content))
    rotation, shape, crop_camera = network(crops)
    expected = answers("spin_hmr")
    assert relative_error(rotation, expected["rotmat"]) < 1e-4
    assert relative_error(shape, expected["betas"]) < 1e-4
    assert relative_error(crop_camera, expected["cam"]) < 1e-4


def test_the_parameters_are_as_many_as_published():
    assert sum(p.numel() for p in bare("spin").parameters()) == 26_977_501
    assert len(bare("spin").state_dict()) == 331


def test_a_file_of_another_network_is_named(tmp_path):
    with pytest.raises(
        UserError,
        match=r"fc1.weight is \[1024, 2208\], expected \[1024, 2205\].*looks like cliff-res50",
    ):
        load_regressor("spin", saved(tmp_path, {"model": hollow(bare("cliff-res50").state_dict())}))
    with pytest.raises(UserError, match="looks like the 2D pose network sbl-resnet50"):
        load_regressor("spin", saved(tmp_path, hollow(sbl_state())))
    with pytest.raises(UserError, match=r"ships no weights.*nkolot/SPIN"):
        load_regressor("spin")
    with pytest.raises(UserError, match="choose spin, cliff, cliff-res50, cliff-hr48"):
        load_regressor("hmr", tmp_path / "x.pt")


def sbl_state():
    from pose2d.models.registry import card

    with torch.device("meta"):
        return card("sbl-resnet50-256x192").build().state_dict()


def test_mean_parameters_come_from_the_checkpoint_or_from_their_own_file(tmp_path):
    state = {
        key.removeprefix("encoder."): value
        for key, value in hollow(bare("spin").state_dict()).items()
    }
    without = {key: value for key, value in state.items() if not key.startswith("init_")}
    path = saved(tmp_path, {"model": without})
    with pytest.raises(UserError, match=r"pass smpl_mean_params\.npz"):
        load_regressor("spin", path)
    mean = tmp_path / "smpl_mean_params.npz"
    np.savez(mean, pose=np.arange(144.0), shape=np.ones(10), cam=np.array([0.9, 0.0, 0.0]))
    network = load_regressor("spin", path, mean_params=mean)
    assert network.init_pose[0, 143] == 143
    assert network.init_cam.tolist() == [[pytest.approx(0.9), 0, 0]]
    np.savez(mean, pose=np.arange(72.0), shape=np.ones(10), cam=np.ones(3))
    with pytest.raises(UserError, match=r"expected an .npz with `pose` \[144\]"):
        load_regressor("spin", path, mean_params=mean)


def test_the_window_is_a_square_of_whole_pixels_black_outside_the_image():
    image = np.full((120, 160, 3), 200, np.uint8)
    where = place_windows(BOXES, SPIN_CROPPING)
    np.testing.assert_allclose(where.height_px, [126, 84, 132])
    assert where.first.tolist() == [[-28, -5], [73, 13], [-61, 19]]  # -5.5 is cut to -5
    crops = cut_crops(image, where, SPIN_CROPPING)
    assert crops.shape == (3, 3, 224, 224)
    assert crops[0, :, 112, :40].max() == 0
    assert crops[0, :, 112, 60:].min() == 200


def test_a_box_as_large_as_a_country_is_refused():
    with pytest.raises(UserError, match="at most 20000"):
        place_windows(np.array([[0.0, 0.0, 1e6, 1e6]]), SPIN_CROPPING)


class Tiny(nn.Module):
    """A trunk that reads the mean colour of the crop's quarters."""

    def stages(self, x):
        return [
            nn.functional.adaptive_avg_pool2d(x, 2).flatten(1).repeat(1, 171)[:, :2048, None, None]
        ]


@pytest.fixture(params=[(SPIN_CROPPING, False), (CLIFF_CROPPING, True)], ids=["spin", "cliff"])
def network(request):
    torch.manual_seed(0)
    network = BodyRegressor(Tiny(), *request.param).eval()
    network.init_pose.copy_(torch.tensor([1.0, 0, 0, 1, 0, 0]).repeat(24))
    network.init_cam.copy_(torch.tensor([0.9, 0.0, 0.0]))
    return network


@pytest.fixture(scope="module")
def image():
    return np.random.default_rng(0).integers(0, 255, (120, 160, 3), np.uint8)


def test_people_do_not_depend_on_who_else_is_in_the_batch(network, image):
    together = initialise(network, image, BOXES, CAMERA)
    apart = initialise(network, image, BOXES, CAMERA, batch=1)
    assert (together.pose.shape, together.shape.shape) == ((3, 24, 3), (3, 10))
    assert together.pose.std(0).max() > 0
    for name in ("pose", "shape", "translation"):
        torch.testing.assert_close(getattr(together, name), getattr(apart, name))
    assert not together.pose.is_inference()  # a fit may take it from here with gradients


def test_a_track_is_its_images_one_by_one(network, image):
    images = [image, image[::-1].copy(), image]
    track = initialise_track(network, iter(images), BOXES, CAMERA, batch=2)
    for t, (one, box) in enumerate(zip(images, BOXES, strict=True)):
        torch.testing.assert_close(
            track.translation[t], initialise(network, one, box[None], CAMERA).translation[0]
        )
    with pytest.raises(UserError, match="3 boxes for 2 images"):
        initialise_track(network, images[:2], BOXES, CAMERA)


def test_the_body_stands_where_the_crop_camera_says(network, image):
    """With a network that never corrects the mean camera, s = 0.9 and no shift, the pelvis is on
    the window's ray.
    """
    nn.init.zeros_(network.deccam.weight)
    nn.init.zeros_(network.deccam.bias)
    found = initialise(network, image, BOXES, CAMERA)
    where = place_windows(BOXES, network.cropping)
    center = torch.tensor(where.center_px).float()
    side = torch.tensor(where.height_px).float()
    torch.testing.assert_close(found.translation[:, 2], 2 * 900 / (0.9 * side))
    torch.testing.assert_close(CAMERA.project(found.translation), center, atol=1e-3, rtol=0)
    cam = torch.tensor([0.9, 0.0, 0.0]).expand(3, 3)
    torch.testing.assert_close(found.translation, crop_to_full(cam, center, side, CAMERA))


def test_nobody_is_an_answer_and_a_strange_image_is_not(network, image):
    assert len(initialise(network, image, np.zeros((0, 4)), CAMERA).pose) == 0
    with pytest.raises(UserError, match="image is 160 x 120, but the camera sees 1920 x 1080"):
        initialise(network, image, BOXES, Camera.default((1920, 1080)))
    with pytest.raises(UserError, match="x2 > x1"):
        initialise(network, image, np.array([[5.0, 5.0, 2.0, 9.0]]), CAMERA)
