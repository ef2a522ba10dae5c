import os
import signal
import subprocess
import sys
import textwrap
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import pose2d
from ccnet.data.augment import Augment, degrade, jitter_box
from ccnet.data.datasets import read_split
from ccnet.data.observations import augmented, observe
from ccnet.heads.kinds import build, fitting_kinds
from ccnet.train import TrainingSettings, make_examples, new_head, passes, train
from pose2d.base.distributed import ProcessGroup
from pose2d.base.errors import UserError
from tests.ccnet.toy import toy_model, write_coco

ALONE = ProcessGroup(0, 1, torch.device("cpu"))
SETTINGS = TrainingSettings(
    head="gap-fc", epochs=2, batch=4, augmented_passes=1, learning_rate=1e-2
)
ROOT = Path(__file__).parents[2]


@pytest.fixture
def people(tmp_path):
    write_coco(tmp_path / "data", "train2017", count=6, people=2)
    return read_split(tmp_path / "data", "train2017").people


def trained(people, settings, folder, name="training.pt"):
    model = toy_model()
    head = new_head(model, settings)
    examples = make_examples(model, head, people, settings, ALONE, folder / "cache")
    train(head, examples, settings, ALONE, folder / name)
    return head


def test_the_mirrored_crop_is_told_in_the_images_own_left_and_right(people):
    """A network that finds a dot must find it in the mirror image too, under the other name."""
    model = toy_model()
    head = new_head(toy_model(), SETTINGS)
    never = Augment(
        scale_log=0, shift=0, grey=0, coarse=0, hidden=0, light=0, flip=0, surroundings=0
    )
    plain = observe(model, head.inputs, people)
    still = observe(model, head.inputs, people, augmented(never))
    torch.testing.assert_close(plain.xy_px, still.xy_px)
    mirrored = observe(model, head.inputs, people, augmented(replace(never, flip=1.0)))
    order = model.skeleton.flip_order
    torch.testing.assert_close(mirrored.labelled, plain.labelled[:, order])
    torch.testing.assert_close(mirrored.present, plain.present[:, order])
    along_x = torch.tensor([-1.0, 1.0])
    torch.testing.assert_close(
        mirrored.error.square().sum(-1).neg().div(2).exp() * mirrored.labelled, mirrored.oks
    )
    back = (
        mirrored.xy_px - torch.tensor(np.stack([person.keypoints[order, :2] for person in people]))
    ) * along_x
    unit = torch.tensor([person.area_px2 for person in people])[:, None] * torch.tensor(
        model.skeleton.oks_variance
    )
    expected = back / unit.sqrt()[..., None] * mirrored.labelled[..., None]
    torch.testing.assert_close(mirrored.error, expected, check_dtype=False, atol=1e-4, rtol=1e-4)
    pixels = model.normalize(torch.zeros(1, 3, 32, 24))
    assert pixels.shape == (1, 3, 32, 24)


def test_oks_is_that_of_the_decoded_keypoint_in_image_pixels(people):
    model = toy_model()
    head = new_head(toy_model(), SETTINGS)
    seen = observe(model, head.inputs, people)
    for row, person in enumerate(people[:3]):
        distance2 = ((seen.xy_px[row].numpy() - person.keypoints[:, :2]) ** 2).sum(1)
        expected = np.exp(-distance2 / (2 * person.area_px2 * model.skeleton.oks_variance))
        expected[person.keypoints[:, 2] == 0] = 0
        np.testing.assert_allclose(seen.oks[row], expected, atol=1e-5)
        difference = seen.xy_px[row].numpy() - person.keypoints[:, :2]
        unit = np.sqrt(person.area_px2 * model.skeleton.oks_variance)[:, None]
        labelled = person.keypoints[:, 2:] > 0
        np.testing.assert_allclose(
            seen.error[row], np.where(labelled, difference / unit, 0), atol=1e-4
        )


def test_one_persons_crop_does_not_depend_on_its_neighbours(people):
    model = toy_model()
    head = new_head(toy_model(), SETTINGS)
    together = observe(model, head.inputs, people, augmented(Augment()), (3, 1))
    alone = observe(model, head.inputs, people[5:6], augmented(Augment()), (3, 1))
    torch.testing.assert_close(together.features[5:6], alone.features)


def test_augmentation_keeps_shape_and_type():
    random = np.random.default_rng(0)
    always = Augment(grey=1, coarse=1, hidden=1, light=1)
    crop = random.integers(0, 255, (32, 24, 3), np.uint8)
    worse = degrade(crop, np.array([0, 0, 24, 32]), np.array([[12.0, 16.0]]), always, random)
    assert worse.shape == crop.shape
    assert worse.dtype == np.uint8
    assert (worse != crop).any()
    box = np.array([10.0, 20, 30, 60])
    np.testing.assert_allclose(jitter_box(box, replace(always, scale_log=0, shift=0), random), box)


def test_equal_seeds_give_equal_weights_and_other_seeds_others(people, tmp_path):
    one, two = (trained(people, SETTINGS, tmp_path / str(i)).state_dict() for i in range(2))
    other = trained(people, replace(SETTINGS, seed=1), tmp_path / "other").state_dict()
    assert all(torch.equal(one[key], two[key]) for key in one)
    assert not all(torch.equal(one[key], other[key]) for key in one)


@pytest.mark.parametrize("loss", ["mse", "cross-entropy", "aleatoric", "ensemble", "soap"])
def test_training_lowers_every_loss(people, tmp_path, loss):
    settings = replace(
        SETTINGS, loss=loss, epochs=60, batch=12, augmented_passes=0, weight_decay=0.0
    )
    model = toy_model()
    head = new_head(model, settings)
    examples = make_examples(model, head, people, settings, ALONE, tmp_path / "cache")
    seen: list[float] = []
    train(
        head,
        examples,
        settings,
        ALONE,
        tmp_path / "t.safetensors",
        lambda steps, value: seen.append(value),
    )
    assert np.mean(seen[-5:]) < np.mean(seen[:5])


@pytest.mark.parametrize("head", ["conv", "gap-fc", "peaks"])
def test_every_kind_of_head_learns_from_the_cache(people, tmp_path, head):
    model = toy_model()
    learnt = trained(people, replace(SETTINGS, head=head), tmp_path)
    confidence, _ = learnt(model.features(torch.rand(2, 3, 32, 24)))
    assert confidence.shape == (2, 17)
    assert bool(confidence.isfinite().all())


def test_what_does_not_fit_the_disk_budget_is_streamed_and_learnt_from_alike(people, tmp_path):
    model = toy_model()
    settings = replace(SETTINGS, cache_bytes=100, epochs=1)
    head = new_head(model, settings)
    examples = make_examples(model, head, people, settings, ALONE, tmp_path / "cache")
    assert examples.streamed
    assert not (tmp_path / "cache").exists()
    seen = [int(i) for number in range(3) for i in examples.batch(0, number, 4, ALONE)[1].index]
    assert sorted(seen) == list(range(12))
    train(head, examples, settings, ALONE, tmp_path / "t.safetensors")


def test_a_cache_is_used_again_and_only_for_the_same_network(people, tmp_path):
    model = toy_model()
    settings = replace(SETTINGS, augmented_passes=0)
    head = new_head(model, settings)
    make_examples(model, head, people, settings, ALONE, tmp_path)
    files = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.npy")}
    assert not make_examples(model, head, people, settings, ALONE, tmp_path).streamed
    assert files == {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.npy")}
    make_examples(toy_model(seed=1), head, people, settings, ALONE, tmp_path)
    assert len(list(tmp_path.rglob("*.npy"))) == 2 * len(files)


def test_no_pass_at_all_is_refused():
    with pytest.raises(UserError, match="at least one pass"):
        passes(TrainingSettings(plain_passes=0, augmented_passes=0))


SCRIPT = """
import sys, time, torch
from pathlib import Path
torch.set_num_threads(1)
from ccnet import train as training
from ccnet.heads.files import save
from ccnet.data.datasets import read_split
from pose2d.base.distributed import process_group
from ccnet.train import TrainingSettings, make_examples
from tests.ccnet.toy import toy_model
training.SAVE_EVERY = 3
folder, pause = Path(sys.argv[1]), float(sys.argv[2])
settings = TrainingSettings(head=sys.argv[3], epochs=5, batch=4, augmented_passes=1)
people = read_split(folder / "data", "train2017").people
with process_group("cpu") as here:
    model = toy_model()
    head = training.new_head(model, settings)
    examples = make_examples(model, head, people, settings, here, folder / "cache")
    done = 0
    def slowly(steps, loss):
        global done
        done += steps
        print(done, flush=True)
        time.sleep(pause)
    training.train(head, examples, settings, here, folder / "training.pt", slowly)
    if here.is_main:
        save(head, folder / sys.argv[4], model, "toy")
"""


def start(folder: Path, pause: float, head: str, out: str, *launcher: str) -> subprocess.Popen[str]:
    script = folder / "script.py"
    script.write_text(textwrap.dedent(SCRIPT))
    command = [sys.executable, *launcher, str(script), str(folder), str(pause), head, out]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment, cwd=folder)


@pytest.mark.slow
def test_a_run_killed_half_way_ends_in_the_same_bytes(people, tmp_path):
    killed = start(tmp_path, 0.05, "peaks", "never.safetensors")
    assert killed.stdout is not None
    for line in killed.stdout:
        if int(line) >= 14:
            break
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    assert (tmp_path / "training.pt").is_file()
    resumed = start(tmp_path, 0, "peaks", "resumed.safetensors")
    steps = [int(line) for line in resumed.communicate()[0].split()]
    assert resumed.returncode == 0
    assert steps[0] > 10  # it did go on, and did not begin again
    (tmp_path / "training.pt").unlink()
    whole = start(tmp_path, 0, "peaks", "whole.safetensors")
    assert whole.communicate()[0].startswith("1\n")
    assert (tmp_path / "resumed.safetensors").read_bytes() == (
        tmp_path / "whole.safetensors"
    ).read_bytes()


@pytest.mark.slow
def test_two_processes_learn_what_one_does(people, tmp_path):
    one = start(tmp_path, 0, "gap-fc", "one.safetensors")
    assert one.wait() == 0
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    (tmp_path / "training.pt").unlink(missing_ok=True)
    two = start(tmp_path, 0, "gap-fc", "two.safetensors", *launcher)
    deadline = time.time() + 120
    while two.poll() is None and time.time() < deadline:
        time.sleep(0.2)
    assert two.returncode == 0
    from ccnet import load

    weights = (load(tmp_path / f"{name}.safetensors").state_dict() for name in ("one", "two"))
    for a, b in zip(*(state.values() for state in weights), strict=True):
        torch.testing.assert_close(a, b, rtol=2e-3, atol=1e-3)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("sbl-resnet50-256x192", "peaks"),
        ("rle-resnet50-256x192", "fc"),
        ("poseur-resnet50-256x192", "query"),
    ],
)
def test_every_family_of_networks_can_be_calibrated(people, name, kind):
    torch.manual_seed(0)
    model = pose2d.card(name).build().eval().requires_grad_(False)
    assert fitting_kinds(model)[0] == kind
    head = build(model, kind).eval()
    seen = observe(model, head.inputs, people[:2], augmented(Augment()))
    with torch.inference_mode():
        confidence, presence = head.logits(seen.features).sigmoid().unbind(-1)
    assert confidence.shape == presence.shape == seen.oks.shape == (2, 17)
    assert bool(confidence.isfinite().all())
