"""The viewer in a real browser: video and scene show the same frame, clicks show values, 3D matches
the image.
"""

import base64
import os
import shlex
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

import fitting
from fitmesh.exports import EXPORTERS
from fitmesh.loading import load
from fitmesh.result import Result
from fitmesh.tracks import list_tracks
from fitmesh.ui.events import Reporter
from fitmesh.viewer.server import serve
from fitting.render import Mesh, render
from pose2d.events import Event
from tests.fitmesh.conftest import Fitmesh
from tests.fitmesh.walkers import NUMBER, SIZE, in_world, walkers
from tests.videos import write_video

QUIET = Reporter()
SCREENSHOTS = os.environ.get("FITMESH_SCREENSHOTS", "")  # a folder for looking at the pages
PATIENCE_MS = 60_000  # software rendering on a busy machine
FRAMES = 24
# The canvas with nothing but meshes; drawn and read in one call, since a canvas is cleared after
# each frame.
SILHOUETTE = """() => {
    const { scene } = fitmesh;
    scene.scene.traverse(thing => { if (thing.isLineSegments) thing.visible = false; });
    scene.jointsShown = false;
    scene.show(scene.frame);
    scene.render();
    return { png: scene.canvas.toDataURL('image/png').split(',')[1], fov: scene.camera.fov };
}"""
# The number that the test video writes into its images, as the video element shows it now.
VIDEO_NUMBER = """() => {
    const video = document.getElementById('video'), canvas = document.createElement('canvas');
    canvas.width = video.videoWidth; canvas.height = video.videoHeight;
    const context = canvas.getContext('2d');
    context.drawImage(video, 0, 0);
    return Math.round(context.getImageData(video.videoWidth - 8, 40, 1, 1).data[0] / 8);
}"""


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Result:
    folder = tmp_path_factory.mktemp("viewed")
    write_video(
        folder / "overlay.mp4", [round(1000 * i * 1001 / 30000) for i in range(FRAMES)], size=SIZE
    )
    result = walkers(folder, frames=FRAMES)
    result = replace(
        result, events=[Event(float(result.time_s[FRAMES // 2]), 1, "swap", "a time to look at")]
    )
    for name in ("glb", "report"):
        EXPORTERS[name].write(result, folder, QUIET)
    return result


@pytest.fixture(scope="module")
def page(browser: Any, result: Result) -> Iterator[Any]:
    """A page that is ready; the errors that it logs are in `errors_logged`."""
    server = serve(result)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    page = browser.new_page(viewport={"width": 1000, "height": 560})
    page.set_default_timeout(PATIENCE_MS)
    page.errors_logged = []
    page.on(
        "console",
        lambda line: (
            page.errors_logged.append(line.text) if line.type in ("error", "warning") else None
        ),
    )
    page.on("pageerror", lambda error: page.errors_logged.append(str(error)))
    page.on(
        "request",
        lambda request: (
            None if request.url.startswith(server.url) else page.errors_logged.append(request.url)
        ),
    )
    page.goto(server.url)
    page.wait_for_selector("body[data-ready=yes]")
    yield page
    page.close()
    server.shutdown()
    server.server_close()


def wait(page: Any, condition: str) -> None:
    """Until it is true on the page. The page's own rules forbid `wait_for_function`, which makes
    code from text.
    """
    end = time.monotonic() + PATIENCE_MS / 1000
    while not page.evaluate(condition):
        assert time.monotonic() < end, condition
        page.wait_for_timeout(30)


def slide(page: Any, frame: int) -> None:
    """Move the slider as a hand does."""
    page.locator("#slider").fill(str(frame))
    wait(page, f"document.body.dataset.frame === '{frame}'")
    wait(
        page,
        "!document.getElementById('video').seeking && document.getElementById('video').readyState >= 2",
    )


def test_the_slider_moves_scene_and_video_to_the_same_frame(page: Any, result: Result) -> None:
    for frame in (0, 17, 5, FRAMES - 1):
        slide(page, frame)
        assert page.evaluate("fitmesh.scene.frame") == frame
        assert page.evaluate("fitmesh.scene.action.time") == pytest.approx(
            frame * 1001 / 30000, abs=1e-6
        )
        assert page.evaluate(VIDEO_NUMBER) == frame
        assert f"frame {result.frames[frame]}" in page.locator("#time").inner_text()


def test_marks_say_the_command_of_the_part_and_playing_stays_in_it(
    page: Any, result: Result
) -> None:
    slide(page, 6)
    page.click("#mark-first")
    slide(page, 11)
    page.keyboard.press("o")
    words = shlex.split(page.locator("#command").inner_text())
    assert words[:5] == ["fitmesh", "run", "walk <b>&.mp4", "--out", f"{result.folder}-part"]
    start_s = float(words[words.index("--start") + 1])
    end_s = float(words[words.index("--end") + 1])
    inside = (result.time_s >= start_s) & (result.time_s < end_s)
    np.testing.assert_array_equal(np.flatnonzero(inside), range(6, 12))
    page.click("#play")
    seen = set()
    for _ in range(60):
        page.wait_for_timeout(20)
        seen.add(page.evaluate("fitmesh.scene.frame"))
    page.click("#play")
    assert seen <= set(range(6, 12))
    slide(page, 2)
    page.click("#mark-last")  # before the first: that mark goes
    assert "--start" not in page.locator("#command").inner_text()
    page.click("#mark-last")
    assert page.locator("#trim").is_hidden()


def test_people_are_shown_only_while_they_are_tracked(page: Any, result: Result) -> None:
    late = result.people[1]
    first = int(late.frame[0] - result.frames[0])
    for frame, there in (
        (first - 1, False),
        (first, True),
        (first + len(late) - 1, True),
        (first + len(late), False),
    ):
        slide(page, frame)
        assert page.evaluate("fitmesh.scene.figures.map(figure => figure.mesh.visible)") == [
            True,
            there,
        ]


def test_the_scene_seen_through_the_videos_camera_is_where_the_video_shows_it(
    page: Any, result: Result
) -> None:
    page.click("#camera-view")
    for frame in (8, 16):
        slide(page, frame)
        assert_seen_as_in_the_video(page, result, frame)
    page.evaluate("fitmesh.scene.jointsShown = true")


def assert_seen_as_in_the_video(page: Any, result: Result, frame: int) -> None:
    """The page's silhouettes are those of the fitted meshes through the video's camera."""
    answer = page.evaluate(SILHOUETTE)
    image = cv2.imdecode(
        np.frombuffer(base64.b64decode(answer["png"]), np.uint8), cv2.IMREAD_UNCHANGED
    )
    drawn = (
        image[..., 3] > 10
    )  # however little of a pixel is covered: skin that was not observed is 0.35 opaque
    height, width = drawn.shape
    focal = height / 2 / np.tan(np.radians(answer["fov"]) / 2)
    middle = (
        width / 2 - 0.5,
        height / 2 - 0.5,
    )  # of the canvas, where (0, 0) is the centre of a pixel
    camera = fitting.Camera.from_focal(float(focal), (width, height), middle)
    people = [(person, frame - int(person.frame[0] - result.frames[0])) for person in result.people]
    meshes = [
        Mesh(result.vertices(person, row), result.body.faces, (0, 0, 0)) for person, row in people
    ]
    expected = render(meshes, camera, alpha=1).mean(2) < 200
    assert expected.sum() > 1000
    assert (drawn & expected).sum() / (drawn | expected).sum() > 0.98
    mirrored = drawn[:, ::-1]
    assert (mirrored & expected).sum() / (mirrored | expected).sum() < 0.5


def test_in_the_world_frame_the_camera_pans_and_the_floor_is_level(
    browser: Any, tmp_path: Path
) -> None:
    result = in_world(walkers(tmp_path, frames=FRAMES), pitch_deg=18, height_m=1.4, pan_deg=12)
    EXPORTERS["glb"].write(result, tmp_path, QUIET)
    server = serve(result)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    page = browser.new_page(viewport={"width": 700, "height": 400})
    page.set_default_timeout(PATIENCE_MS)
    page.goto(server.url)
    page.wait_for_selector("body[data-ready=yes]")
    assert "camera 1.40 m high" in page.locator("#frame-note").inner_text()
    page.click("#world-view")
    for frame in (6, 16):
        page.locator("#slider").fill(str(frame))
        shown = page.evaluate("""() => {
            const { scene } = fitmesh, lens = scene.frustums[0], grid = scene.scene.getObjectByName('grid');
            const { elements } = lens.matrixWorld;
            return { lens: lens.visible, eye: [...elements.slice(12, 15)], axis: [...elements.slice(8, 11)],
                     grid: grid.visible && grid.position.y,
                     prints: scene.footprints.prints.filter(print => print.mesh.visible).length };
        }""")
        assert shown["lens"]
        assert shown["grid"] == 0
        np.testing.assert_allclose(shown["eye"], (0, 1.4, 0), atol=1e-6)
        forward = -np.array(shown["axis"]) / np.linalg.norm(shown["axis"])
        world = result.world_from_camera[frame]
        np.testing.assert_allclose(forward, world[:3, :3] @ (0, 0, 1), atol=1e-5)
        first = page.evaluate(
            "fitmesh.meta.people.flatMap(person => person.footprints.map(print => print.first))"
        )
        assert shown["prints"] == sum(when <= frame for when in first) > 0
    page.uncheck("#footprints")
    assert (
        page.evaluate("fitmesh.scene.footprints.prints.some(print => print.mesh.visible)") is False
    )
    page.click("#camera-view")
    assert page.evaluate("fitmesh.scene.frustums[0].visible") is False
    for frame in (8, 16):
        page.locator("#slider").fill(str(frame))
        wait(page, f"document.body.dataset.frame === '{frame}'")
        assert_seen_as_in_the_video(page, result, frame)
    page.close()
    server.shutdown()
    server.server_close()


def test_a_click_on_a_joint_shows_its_values(page: Any, result: Result) -> None:
    slide(page, 10)
    page.click("#camera-view")
    place = page.evaluate("fitmesh.scene.canvasPosition(fitmesh.meta.people[0], 4)")
    box = page.locator("#canvas").bounding_box()
    page.mouse.click(box["x"] + place["x"], box["y"] + place["y"])
    words = page.locator("#panel").inner_text()
    person = result.people[0]
    assert "left knee, person 1" in words
    assert f"{person.joint_std_relative_mm[10, 4]:.0f} mm" in words
    assert f"{person.reprojection_px[10, 13]:.1f} px" in words
    assert f"{person.confidence[10, 13]:.2f}" in words
    slide(page, 11)  # the panel follows
    assert f"{person.confidence[11, 13]:.2f}" in page.locator("#panel").inner_text()
    page.click("#panel .close")
    assert page.locator("#panel").is_hidden()


def test_uncertainty_is_shown_as_colour(page: Any) -> None:
    slide(page, 3)
    page.select_option("#colour", "absolute")
    assert page.locator("#legend-high").inner_text().endswith("+ mm")
    pelvis, hand = page.evaluate(
        "[0, 23].map(joint => fitmesh.scene.figures[0].joints[joint].material.color.getHexString())"
    )
    assert int(pelvis[4:], 16) > int(pelvis[:2], 16)  # certain: blue
    assert int(hand[:2], 16) > int(hand[4:], 16)  # uncertain: towards red
    page.select_option("#colour", "person")
    assert page.locator("#legend").is_hidden()


def test_skin_that_was_not_observed_is_pale_and_lets_the_scene_shine_through(
    page: Any, result: Result
) -> None:
    """Of person 1 the left wrist is never observed, so neither is the forearm."""
    page.select_option("#colour", "person")
    slide(page, 3)
    forearm, thigh = (
        int(np.flatnonzero(result.body.weights[:, joint].numpy() > 0.95)[0])
        for joint in (NUMBER["left_elbow"], 1)
    )
    read = "v => [0, 1, 2, 3].map(k => fitmesh.scene.figures[0].mesh.geometry.attributes.color.array[4 * v + k])"
    pale = page.evaluate(read, forearm)
    own = page.evaluate(read, thigh)
    assert max(pale[:3]) - min(pale[:3]) < 0.1 < max(own[:3]) - min(own[:3])
    assert pale[3] < 0.5 < 0.95 < own[3]


def test_play_moves_both_and_pause_stops_both(page: Any) -> None:
    slide(page, 0)
    page.click("#play")
    wait(
        page,
        "Number(document.body.dataset.frame) > 2 || document.getElementById('video').currentTime > 0.2",
    )
    page.click("#play")
    wait(page, "document.getElementById('video').paused")
    page.wait_for_timeout(100)
    frame, time_s = page.evaluate(
        "[fitmesh.scene.frame, document.getElementById('video').currentTime]"
    )
    assert frame == pytest.approx(time_s * 30000 / 1001, abs=2)


def test_keys_move_the_video_after_a_click_on_a_button(page: Any) -> None:
    slide(page, 6)
    page.click("#side-view")
    page.keyboard.press("i")
    assert "--start" in page.locator("#command").inner_text()
    page.keyboard.press("i")
    assert page.locator("#trim").is_hidden()
    page.keyboard.press(" ")
    assert page.locator("#play").get_attribute("aria-label") == "Pause"
    page.keyboard.press(" ")
    assert page.locator("#play").get_attribute("aria-label") == "Play"
    page.click("#camera-view")


def test_space_presses_a_button_that_was_reached_by_tab(page: Any) -> None:
    page.focus("#side-view")
    page.keyboard.press(" ")
    assert page.locator("#side-view").get_attribute("aria-pressed") == "true"
    assert page.locator("#play").get_attribute("aria-label") == "Play"
    page.click("#camera-view")


def test_arrow_keys_step_frames_while_the_colour_menu_has_the_focus(page: Any) -> None:
    slide(page, 6)
    page.select_option("#colour", "person")
    page.focus("#colour")
    page.keyboard.press("ArrowRight")
    wait(page, "document.body.dataset.frame === '7'")
    assert page.locator("#colour").input_value() == "person"
    page.keyboard.press("ArrowLeft")
    wait(page, "document.body.dataset.frame === '6'")
    assert page.locator("#colour").input_value() == "person"


def test_one_person_can_be_shown_alone(page: Any, result: Result) -> None:
    both_present = int(result.people[1].frame[0] - result.frames[0])
    slide(page, both_present)
    shown = "fitmesh.scene.figures.map(figure => figure.mesh.visible)"
    joints = "fitmesh.scene.figures.map(figure => figure.joints[0].visible)"
    assert page.evaluate(shown) == [True, True]
    # A person's first frame must not be hidden by a time that was rounded down.
    scales = "fitmesh.meta.people.map(p => fitmesh.scene.scene.getObjectByName(`person_${p.identity}`).scale.x)"
    assert page.evaluate(scales) == [1, 1]
    page.select_option("#person", str(result.people[1].identity))
    assert page.evaluate(shown) == page.evaluate(joints) == [False, True]
    hidden_place = page.evaluate("fitmesh.scene.canvasPosition(fitmesh.meta.people[0], 4)")
    picked = page.evaluate(
        "place => fitmesh.scene.pick(place.x, place.y)?.person.identity", hidden_place
    )
    assert picked != result.people[0].identity
    page.select_option("#person", "")
    assert page.evaluate(shown) == [True, True]


def test_on_a_phone_the_slider_is_as_wide_as_the_screen(browser: Any, result: Result) -> None:
    server = serve(result)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    page = browser.new_page(viewport={"width": 390, "height": 800})
    page.set_default_timeout(PATIENCE_MS)
    page.goto(server.url)
    page.wait_for_selector("body[data-ready=yes]")
    assert page.locator("#slider").bounding_box()["width"] > 340
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    if SCREENSHOTS:
        page.screenshot(path=f"{SCREENSHOTS}/phone.png")
    page.close()
    server.shutdown()
    server.server_close()


def test_the_report_opened_from_the_page_plays_its_video(page: Any) -> None:
    with page.expect_popup() as popup:
        page.click("#report")
    report = popup.value
    wait(report, "document.querySelector('.video video').readyState > 0")
    assert report.evaluate("document.querySelector('.video video').videoWidth") == SIZE[0]
    assert report.locator(".video p").is_hidden()
    if SCREENSHOTS:
        report.screenshot(path=f"{SCREENSHOTS}/report.png")
        page.screenshot(path=f"{SCREENSHOTS}/page.png")
    report.close()


def test_identities_are_corrected_in_the_page(
    browser: Any, fitmesh: Fitmesh, walk: tuple, tmp_path: Path
) -> None:
    """What the page writes is what `fitmesh tracks` reads."""
    assert fitmesh("run", *walk, "--out", tmp_path) == 0
    server = serve(load(tmp_path))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    page = browser.new_page(viewport={"width": 1000, "height": 560})
    page.set_default_timeout(PATIENCE_MS)
    page.goto(server.url)
    page.wait_for_selector("body[data-ready=yes]")
    assert page.locator("#identities").is_hidden()
    page.click("#identities-button")
    said = page.locator("#edit-list")
    slide(page, 6)
    page.select_option("#edit-person", "2")
    page.click("#edit-split")
    said.filter(has_text="split 2 at").wait_for()
    frames = {person.identity: person.frames for person in list_tracks(tmp_path)}
    assert frames == {1: 12, 2: 6, 3: 6}
    page.select_option("#edit-person", "1")
    page.select_option("#edit-other", "2")
    page.click("#edit-merge")
    said.filter(has_text="cannot be merged").wait_for()
    page.select_option("#edit-other", "3")
    page.select_option("#edit-person", "2")
    page.click("#edit-merge")
    said.filter(has_text="merge 2, 3").wait_for()
    page.select_option("#edit-person", "1")
    page.click("#edit-drop")
    said.filter(has_text="drop 1").wait_for()
    assert [person.identity for person in list_tracks(tmp_path)] == [2]
    if SCREENSHOTS:
        page.screenshot(path=f"{SCREENSHOTS}/identities.png")
    page.click("#edit-undo")
    said.filter(has_text="merge 2, 3. Run").wait_for()
    assert [person.identity for person in list_tracks(tmp_path)] == [1, 2]
    page.close()
    server.shutdown()
    server.server_close()


def test_the_page_logged_no_error(page: Any) -> None:
    assert page.errors_logged == []


def test_the_report_opens_and_fits_a_phone(browser: Any, result: Result) -> None:
    page = browser.new_page(viewport={"width": 390, "height": 800}, color_scheme="dark")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("pageerror", lambda error: asked.append(str(error)))
    address = f"file://{(result.folder / 'report.html').resolve()}"
    page.goto(address)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    plot = page.locator(".plot svg").first
    plot.hover()
    assert " s" in page.locator(".plot output").first.inner_text()
    beside = {address, address.replace("report.html", "overlay.mp4")}
    assert set(url for url in asked if not url.startswith("data:")) <= beside
    page.close()


def test_the_reports_times_move_its_video(browser: Any, result: Result) -> None:
    page = browser.new_page(viewport={"width": 900, "height": 800})
    page.goto(f"file://{(result.folder / 'report.html').resolve()}")
    wait(page, "document.querySelector('.video video').readyState > 0")
    time = page.locator(".time").last
    time.click()
    seconds = time.get_attribute("data-seconds")
    wait(page, f"Math.abs(document.querySelector('.video video').currentTime - {seconds}) < 0.05")
    page.close()


def test_a_report_without_its_video_says_so(browser: Any, result: Result, tmp_path: Path) -> None:
    (tmp_path / "report.html").write_bytes((result.folder / "report.html").read_bytes())
    page = browser.new_page(viewport={"width": 900, "height": 800})
    page.goto(f"file://{tmp_path / 'report.html'}")
    wait(page, "document.querySelector('.video video').hidden")
    assert page.locator(".video p").is_visible()
    assert page.locator(".time").first.is_disabled()
    page.close()


def test_without_a_video_the_scene_plays_by_itself(browser: Any, tmp_path: Path) -> None:
    result = walkers(tmp_path, frames=6)
    EXPORTERS["glb"].write(result, tmp_path, QUIET)
    server = serve(result)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    page = browser.new_page(viewport={"width": 600, "height": 400})
    page.set_default_timeout(PATIENCE_MS)
    page.goto(server.url)
    page.wait_for_selector("body[data-ready=yes]")
    assert page.locator("#video").is_hidden()
    page.click("#play")
    wait(page, "Number(document.body.dataset.frame) > 0")
    page.close()
    server.shutdown()
    server.server_close()
