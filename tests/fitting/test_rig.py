"""Several cameras: their files, their check against people, when they looked, who is who, and one
fit for all.
"""

import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.spatial.transform import Rotation

import fitting
from bench.lib.rigs import SimulatedRig, placed_around, simulate
from bench.lib.simulation import Noise
from fitting.camera import Camera
from fitting.camera.focal import focal_from_user
from fitting.fits import OtherView
from fitting.keypoints.side_swap import reorder_keypoints
from fitting.rig.association import associate
from fitting.rig.calibration import read_rig, write_rig
from fitting.rig.check import check_calibration
from fitting.rig.from_people import place_cameras
from fitting.rig.lifted import Lifted, Recorded
from fitting.rig.offsets import SyncedCamera, find_offset
from fitting.rig.rig import Rig
from fitting.rig.rig_ground import LaboratoryFrame, find_laboratory_frame
from fitting.rig.sides import exchange_sides
from fitting.rig.sights import Sight
from fitting.rig.triangulation import triangulate
from fitting.rig.views import prepare_views, resample_keypoints, triangulate_views
from fitting.shot import ShotPerson, fit_shot
from pose2d.base.errors import UserError

GOOD = Noise(confidence=(0.9, 0.98), outliers=0.01, constant_share=0.2, mixtures=True)
BODY = fitting.load_body()


def sights(sim: SimulatedRig) -> list[list[Sight]]:
    return [
        [Sight.of(points, time, placed.camera) for points in own]
        for own, time, placed in zip(sim.keypoints, sim.time_s, sim.rig.cameras, strict=True)
    ]


def views(sim: SimulatedRig, person: int, cameras: list[int]) -> list[OtherView]:
    return [
        OtherView(
            sim.keypoints[c][person],
            sim.rig.cameras[c].camera,
            *(torch.from_numpy(part).float() for part in sim.rig.relative(c)),
        )
        for c in cameras
    ]


def errors_mm(
    sim: SimulatedRig, cameras: list[int], **how: object
) -> tuple[np.ndarray, np.ndarray]:
    """Distances of joints [T, 24] in the first camera's frame, and their stated deviations."""
    first, *others = views(sim, 0, cameras)
    camera = first.camera
    person = ShotPerson(
        1, first.keypoints, np.arange(len(sim.time_s[0])), other_views=tuple(others)
    )
    found = (
        fit_shot(
            [person], camera, focal_from_user(camera.mean_focal_px, camera.size), BODY, fps=30.0
        )
        .people[1]
        .fit
    )
    base = sim.rig.cameras[0]
    truth = sim.joints_m[0] @ base.rotation.T + base.translation_m
    assert found.joint_std_mm is not None
    away = 1000 * np.linalg.norm(BODY.at(found.params).joints.numpy() - truth, axis=-1)
    return away, found.joint_std_mm.norm(dim=-1).numpy()


# --- files
# ------------------------------------------------------------------------------------------------------------


def same(a: Rig, b: Rig) -> None:
    for one, two in zip(a.cameras, b.cameras, strict=True):
        np.testing.assert_allclose(one.rotation, two.rotation, atol=1e-6)
        np.testing.assert_allclose(one.translation_m, two.translation_m, atol=1e-6)
        np.testing.assert_allclose(one.camera.intrinsics, two.camera.intrinsics, rtol=1e-6)


def opencv_yaml(name: str, values: np.ndarray) -> str:
    rows, columns = np.atleast_2d(values).shape
    numbers = ", ".join(f"{v:.9e}" for v in values.ravel())
    return f"{name}: !!opencv-matrix\n   rows: {rows}\n   cols: {columns}\n   dt: d\n   data: [ {numbers} ]\n"


@pytest.mark.parametrize("layout", ["pose2sim", "json", "yaml", "opencap"])
def test_a_rig_is_the_same_in_every_layout(layout: str, tmp_path: Path) -> None:
    rig = placed_around([0, 80])
    path = tmp_path / "rig.toml"
    if layout == "pose2sim":
        write_rig(path, rig)
    elif layout == "json":
        path = tmp_path / "rig.json"
        cameras = {
            c.name: {
                "K": c.camera.intrinsics.tolist(),
                "dist_coeffs": [0, 0, 0, 0],
                "R": c.rotation.tolist(),
                "T": c.translation_m.tolist(),
            }
            for c in rig.cameras
        }
        path.write_text(__import__("json").dumps(cameras))
    elif layout == "yaml":
        path = tmp_path / "cameras"
        path.mkdir()
        for c in rig.cameras:
            parts = {
                "camera_matrix": c.camera.intrinsics,
                "rvec": Rotation.from_matrix(c.rotation).as_rotvec(),
                "tvec": c.translation_m,
                "distortion_coefficients": np.zeros(5),
            }
            text = "".join(opencv_yaml(name, value) for name, value in parts.items())
            (path / f"{c.name}.yml").write_text(
                f"%YAML:1.0\n---\nimage_width: 1280\nimage_height: 720\n{text}"
            )
    else:
        path = tmp_path / "Videos"
        for c in rig.cameras:
            (path / c.name).mkdir(parents=True)
            content = {
                "intrinsicMat": c.camera.intrinsics,
                "distortion": np.zeros((1, 5)),
                "rotation": c.rotation,
                "translation": 1000 * c.translation_m[:, None],
                "imageSize": np.array([[720], [1280]]),
            }
            (path / c.name / "cameraIntrinsicsExtrinsics.pickle").write_bytes(pickle.dumps(content))
    found = read_rig(path, ["cam1", "cam2"], [(1280, 720)] * 2)
    same(found.scaled(0.001) if layout == "opencap" else found, rig)
    assert [c.name for c in found.cameras] == ["cam1", "cam2"]


def test_cameras_are_found_by_name_whatever_their_order(tmp_path: Path) -> None:
    rig = placed_around([0, 80])
    write_rig(tmp_path / "rig.toml", rig)
    found = read_rig(tmp_path / "rig.toml", ["walk_cam2", "walk_cam1"], [(1280, 720)] * 2)
    same(found, Rig(rig.cameras[::-1], ""))


def test_a_calibration_of_another_resolution_is_scaled_or_refused(tmp_path: Path) -> None:
    write_rig(tmp_path / "rig.toml", placed_around([0, 80]))
    half = read_rig(tmp_path / "rig.toml", ["cam1", "cam2"], [(640, 360)] * 2)
    assert half.cameras[0].camera.focal_px[0] == pytest.approx(512)
    assert "scaled to 640x360" in half.notes[0]
    for size, words in (
        ((720, 1280), "turned by 90 degrees"),
        ((1280, 960), "another part of the sensor"),
    ):
        with pytest.raises(UserError, match=words):
            read_rig(tmp_path / "rig.toml", ["cam1", "cam2"], [size, (1280, 720)])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "has no cameras"),
        ("[a]\nmatrix = 3\n", "matrix must be 9 numbers"),
        (
            "[a]\nmatrix = [[900, 0, 640], [0, 900, 360], [0, 0, 1]]\nrotation = [0, 0, 0]\n",
            "translation is missing",
        ),
        (
            "[a]\nmatrix = [[900, 0, 640], [0, 900, 360], [0, 0, 1]]\nrotation = [1, 0, 0, 0, 1, 0, 0, 0, 2]\n"
            "translation = [0, 0, 0]\n",
            "no rotation",
        ),
        ("[a]\nfisheye = true\n", "fisheye"),
        ("[a\n", "not TOML"),
    ],
)
def test_what_is_wrong_with_a_calibration_file_is_said(
    text: str, words: str, tmp_path: Path
) -> None:
    (tmp_path / "rig.toml").write_text(text)
    with pytest.raises(UserError, match=words):
        read_rig(tmp_path / "rig.toml", ["a"], [(1280, 720)])


# --- rays
# -------------------------------------------------------------------------------------------------------------


def test_points_are_where_exact_rays_meet() -> None:
    rig = placed_around([0, 70, 150])
    points = np.random.default_rng(1).normal(0.5, 0.5, (5, 26, 3))
    own = [points @ c.rotation.T + c.translation_m for c in rig.cameras]
    rays = np.stack([p[..., :2] / p[..., 2:] for p in own])
    rotation, offset = (
        np.stack([getattr(c, n) for c in rig.cameras]) for n in ("rotation", "translation_m")
    )
    sigma = np.full((3, 5, 26), 0.01)
    sigma[0, 0, 0] = np.inf
    sigma[:2, 1, 1] = np.inf
    found, std = triangulate(rays, sigma, rotation, offset)
    assert np.isnan(found[1, 1]).all()
    found[1, 1] = points[1, 1]
    std[1, 1] = 0
    np.testing.assert_allclose(found, points, atol=1e-6)
    assert std[0, 0] > std[0, 1]  # two cameras instead of three


@pytest.mark.parametrize("offset", [0.0, 0.43, -0.21])
def test_an_offset_is_found_within_ten_milliseconds(offset: float) -> None:
    sim = simulate(placed_around([0, 90]), BODY, 4, frames=120, offsets_s=[0.0, offset], noise=GOOD)
    first, second = sights(sim)
    found = find_offset([SyncedCamera(first, 0.0, sim.rig.relative(1))], second, 1 / 30)
    assert found.is_estimated
    assert abs(found.seconds - offset) < 0.01
    assert 0 < found.std_s < 0.02


def test_somebody_who_stands_still_tells_no_time() -> None:
    sim = simulate(placed_around([0, 90]), BODY, 4, frames=40, noise=GOOD)
    still = [
        replace(points, xy_px=points.xy_px[:1].expand_as(points.xy_px))
        for points in (own[0] for own in sim.keypoints)
    ]
    tracks = [
        [Sight.of(p, t, c.camera)]
        for p, t, c in zip(still, sim.time_s, sim.rig.cameras, strict=True)
    ]
    found = find_offset([SyncedCamera(tracks[0], 0.0, sim.rig.relative(1))], tracks[1], 1 / 30)
    assert not found.is_estimated or found.std_s > 0.02


@pytest.mark.parametrize("people", [3, 6])
def test_people_are_told_apart_over_cameras(people: int) -> None:
    sim = simulate(
        placed_around([0, 70, 140], distance_m=6), BODY, 5, people=people, frames=60, noise=GOOD
    )
    tracks = sights(sim)
    order = [
        list(range(people)),
        list(range(people))[::-1],
        [(n + 1) % people for n in range(people)],
    ]
    mixed = [[own[n] for n in numbers] for own, numbers in zip(tracks, order, strict=True)]
    groups = associate(sim.rig, mixed, [0.0] * 3)
    assert sorted(sorted(order[c][n] for c, n in group) for group in groups) == [
        [n] * 3 for n in range(people)
    ]


def test_somebody_whom_one_camera_sees_stays_alone() -> None:
    sim = simulate(placed_around([0, 90]), BODY, 6, people=2, frames=60, noise=GOOD)
    first, second = sights(sim)
    assert associate(sim.rig, [first, second[1:]], [0.0, 0.0]) == [[(0, 1), (1, 0)], [(0, 0)]]


def test_a_track_that_broke_is_one_person_again() -> None:
    sim = simulate(placed_around([0, 90]), BODY, 7, frames=60, noise=GOOD)
    first, second = sights(sim)
    parts = [
        Sight(s.time_s[rows], s.rays[rows], s.sigma[rows])
        for s in second
        for rows in (slice(25), slice(30, None))
    ]
    assert associate(sim.rig, [first, parts], [0.0, 0.0]) == [[(0, 0), (1, 0), (1, 1)]]


# --- checks
# -----------------------------------------------------------------------------------------------------------


def mistaken(sim: SimulatedRig, mistake: str) -> tuple[Rig, list[list[Sight]]]:
    rig = sim.rig
    tracks = sights(sim)
    if mistake == "inverted":
        return replace(rig, cameras=tuple(c.inverse() for c in rig.cameras)), tracks
    if mistake == "order":
        return replace(rig, cameras=(rig.cameras[1], rig.cameras[0], *rig.cameras[2:])), tracks
    if mistake in ("mirrored", "upside down"):
        turned = [s.mirrored(True, mistake == "upside down", np.zeros(2)) for s in tracks[1]]
        return rig, [tracks[0], turned, *tracks[2:]]
    assert mistake == "different scenes"
    other = simulate(rig, BODY, 77, frames=60, noise=GOOD, clip=11)
    return rig, [tracks[0], *sights(other)[1:]]


@pytest.mark.parametrize(
    "mistake", ["inverted", "order", "mirrored", "upside down", "different scenes"]
)
def test_a_usual_mistake_is_named_in_one_sentence(mistake: str) -> None:
    sim = simulate(placed_around([0, 75, 130]), BODY, 8, frames=60, noise=GOOD, clip=3)
    rig, tracks = mistaken(sim, mistake)
    with pytest.raises(UserError, match=mistake):
        check_calibration(rig, tracks, [0.0, None, None], [1 / 30] * 3)


def test_a_right_calibration_passes_and_its_unit_is_found() -> None:
    sim = simulate(placed_around([0, 75]), BODY, 8, frames=60, noise=GOOD)
    rig, offsets = check_calibration(sim.rig.scaled(1000), sights(sim), [0.0, None], [1 / 30] * 2)
    same(rig, sim.rig)
    assert "millimetres" in rig.notes[-1]
    assert abs(offsets[1].seconds) < 0.01
    with pytest.raises(UserError, match="neither metres"):
        check_calibration(sim.rig.scaled(25), sights(sim), [0.0, 0.0], [1 / 30] * 2)


def test_gravity_and_floor_are_those_that_the_calibration_states() -> None:
    sim = simulate(placed_around([0, 75]), BODY, 9, frames=60, noise=GOOD, clip=0)
    frame = find_laboratory_frame(sim.rig, [views(sim, 0, [0, 1])])
    assert frame is not None
    given = frame.ground(sim.rig.cameras[0])
    np.testing.assert_allclose(given.up_cam, sim.rig.cameras[0].rotation[:, 2])
    assert given.camera_height_m == pytest.approx(sim.rig.cameras[0].position_m[2])
    tilted = Rotation.from_euler("x", 25, degrees=True).as_matrix()
    other = replace(
        sim.rig, cameras=tuple(replace(c, rotation=c.rotation @ tilted) for c in sim.rig.cameras)
    )
    assert find_laboratory_frame(other, [views(sim, 0, [0, 1])]) is None


def test_the_floor_is_at_zero_if_one_person_stands_there() -> None:
    sim = simulate(placed_around([0, 75]), BODY, 9, frames=60, noise=GOOD, clip=0)
    standing = views(sim, 0, [0, 1])
    # Keypoints that one camera sees 60 px too low triangulate to a person off the floor.
    shift = torch.tensor([0.0, 60.0])
    keypoints = replace(standing[0].keypoints, xy_px=standing[0].keypoints.xy_px + shift)
    elsewhere = [replace(standing[0], keypoints=keypoints), standing[1]]
    frame = find_laboratory_frame(sim.rig, [standing, elsewhere])
    assert frame is not None
    assert frame.is_floor_at_zero


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_the_laboratory_frame_is_turned_to_y_up(axis: int, sign: float) -> None:
    frame = LaboratoryFrame(sign * np.eye(3)[axis], 0.0)
    np.testing.assert_allclose(frame.y_up @ frame.up, [0, 1, 0])
    assert np.linalg.det(frame.y_up) == pytest.approx(1)


def test_with_z_up_axes_are_those_of_pose2sim() -> None:
    frame = LaboratoryFrame(np.array([0.0, 0.0, 1.0]), 0.0)
    np.testing.assert_allclose(frame.y_up @ [1, 2, 3], [2, 3, 1])


# --- fits
# -------------------------------------------------------------------------------------------------------------


def test_keypoints_between_two_frames_lie_between_them() -> None:
    sim = simulate(placed_around([0]), BODY, 1, frames=20, noise=GOOD)
    points = sim.keypoints[0][0]
    time = sim.time_s[0]
    found = resample_keypoints(points, time, np.array([time[3], (time[3] + time[4]) / 2, 5.0]))
    torch.testing.assert_close(found.xy_px[0], points.xy_px[3])
    torch.testing.assert_close(found.xy_px[1], (points.xy_px[3] + points.xy_px[4]) / 2)
    assert torch.isnan(found.xy_px[2]).all()
    assert not found.presence[2].any()


def test_a_second_camera_makes_a_fit_better_and_surer() -> None:
    sim = simulate(placed_around([0, 90]), BODY, 10, frames=40, noise=GOOD, clip=5)
    alone, alone_std = errors_mm(sim, [0])
    both, both_std = errors_mm(sim, [0, 1])
    assert both.mean() < 35 < alone.mean()
    assert both_std.mean() < alone_std.mean() / 2
    assert (both < 2 * both_std).mean() > 0.8


def test_somebody_whom_only_another_camera_sees_is_fitted_from_that_one() -> None:
    sim = simulate(placed_around([0, 90]), BODY, 10, frames=40, noise=GOOD, clip=5)
    hidden = replace(
        sim.keypoints[0][0], xy_px=torch.full_like(sim.keypoints[0][0].xy_px, torch.nan)
    )
    away, _ = errors_mm(replace(sim, keypoints=[[hidden], sim.keypoints[1]]), [0, 1])
    centred = away - np.median(away)
    assert np.isfinite(away).all()
    assert np.abs(centred).mean() < 200  # the distance is one camera's guess, the body is there


def test_a_gap_in_one_camera_is_bridged_by_the_other() -> None:
    sim = simulate(placed_around([0, 90]), BODY, 12, frames=60, noise=GOOD, clip=5)
    first, second = views(sim, 0, [0, 1])
    xy = first.keypoints.xy_px.clone()
    xy[15:45] = torch.nan
    prepared = prepare_views(
        replace(first.keypoints, xy_px=xy),
        np.arange(60),
        first.camera,
        [second],
        BODY,
        "lifter",
        fps=30.0,
        every=1,
    )
    assert (prepared.grid.segment == 0).all()
    alone = prepare_views(
        replace(first.keypoints, xy_px=xy),
        np.arange(60),
        first.camera,
        [],
        BODY,
        "lifter",
        fps=30.0,
        every=1,
    )
    assert (alone.grid.segment[20:40] < 0).all()


def test_rays_of_a_person_meet_at_the_person() -> None:
    sim = simulate(placed_around([0, 90]), BODY, 13, frames=20, noise=GOOD, clip=2)
    points, std = triangulate_views(views(sim, 0, [0, 1]))
    base = sim.rig.cameras[0]
    truth = sim.joints_m[0] @ base.rotation.T + base.translation_m
    wrists = np.linalg.norm(points[:, 9] - truth[:, 20], axis=-1)
    assert np.nanmedian(wrists) < 0.05
    assert np.nanmedian(std[:, 9]) < 0.1


def test_people_place_cameras_and_say_how_well() -> None:
    rig = placed_around([0, 90, 150])
    sim = simulate(rig, BODY, 14, people=2, frames=90, offsets_s=[0.0, 0.23, 0.0], noise=GOOD)
    cameras: list[Camera] = [c.camera for c in rig.cameras]
    lifted = [
        [Lifted.of(points, time, camera, BODY, 30.0) for points in own]
        for own, time, camera in zip(sim.keypoints, sim.time_s, cameras, strict=True)
    ]
    focals = [focal_from_user(c.mean_focal_px, c.size) for c in cameras]
    found = place_cameras(
        Recorded(
            [c.name for c in rig.cameras], cameras, focals, lifted, [0.0, None, None], [1 / 30] * 3
        )
    )
    for number in (1, 2):
        turn = found.rig.relative(number)[0] @ rig.relative(number)[0].T
        assert np.degrees(Rotation.from_matrix(turn).magnitude()) < 3
        assert abs(found.offsets[number].seconds - sim.offset_s[number]) < 0.01
    assert (found.turn_std_deg < 4).all()


def test_cameras_that_share_nobody_are_not_placed() -> None:
    sim = simulate(placed_around([0, 90]), BODY, 15, frames=40, noise=GOOD)
    cameras = [c.camera for c in sim.rig.cameras]
    lifted = [
        [Lifted.of(own[0], time + 100 * n, c, BODY, 30.0)]
        for n, (own, time, c) in enumerate(zip(sim.keypoints, sim.time_s, cameras, strict=True))
    ]
    focals = [focal_from_user(c.mean_focal_px, c.size) for c in cameras]
    with pytest.raises(UserError, match="record a board"):
        place_cameras(Recorded(["a", "b"], cameras, focals, lifted, [0.0, 0.0], [1 / 30] * 2))


@pytest.mark.parametrize("frames", [range(40), range(8, 20)], ids=["always", "for a while"])
def test_sides_that_one_camera_exchanged_are_put_back(frames: range) -> None:
    sim = simulate(placed_around([0, 80, 150]), BODY, 16, frames=40, noise=GOOD, clip=5)
    given = views(sim, 0, [0, 1, 2])
    order = np.tile(np.arange(26), (40, 1))
    order[frames] = given[1].keypoints.skeleton.flip_order
    wrong = replace(given[1], keypoints=reorder_keypoints(given[1].keypoints, order))
    right = exchange_sides([given[0], wrong, given[2]], 30.0)
    same = (right[1].keypoints.xy_px - given[1].keypoints.xy_px).norm(dim=-1) < 1e-3
    assert same.float().mean() > 0.98
    torch.testing.assert_close(right[0].keypoints.xy_px, given[0].keypoints.xy_px)


def test_cameras_are_placed_though_one_shows_left_for_right() -> None:
    rig = placed_around([0, 80])
    sim = simulate(rig, BODY, 14, people=2, frames=60, noise=GOOD)
    flip = np.asarray(sim.keypoints[0][0].skeleton.flip_order)
    sim.keypoints[1][:] = [
        reorder_keypoints(points, np.tile(flip, (60, 1))) for points in sim.keypoints[1]
    ]
    cameras = [c.camera for c in rig.cameras]
    people, exchanged = (
        [
            [Lifted.of(points, time, camera, BODY, 30.0, other) for points in own]
            for own, time, camera in zip(sim.keypoints, sim.time_s, cameras, strict=True)
        ]
        for other in (False, True)
    )
    focals = [focal_from_user(c.mean_focal_px, c.size) for c in cameras]
    found = place_cameras(
        Recorded(["a", "b"], cameras, focals, people, [0.0, 0.0], [1 / 30] * 2, exchanged=exchanged)
    )
    assert found.exchanged == 1
    turn = found.rig.relative(1)[0] @ rig.relative(1)[0].T
    assert np.degrees(Rotation.from_matrix(turn).magnitude()) < 8
