"""The video that a run leaves plays in a real browser."""

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from pose2d.video.writer import video_writer
from tests.videos import image, write_video

FRAMES, RATE = 45, 30
# A video element tells what it can: size, length, how much it has, how far it came, and what colour
# a pixel has.
WATCH = """async () => {
    const video = document.querySelector("video");
    video.muted = true;
    await video.play();
    await new Promise((done) => {
        video.addEventListener("ended", done);
        video.addEventListener("error", done);
        setTimeout(done, 20000);
    });
    const canvas = document.createElement("canvas");
    canvas.width = video.videoWidth;
    canvas.height = video.videoHeight;
    const context = canvas.getContext("2d");
    context.drawImage(video, 0, 0);
    return {
        error: video.error && video.error.message, ready: video.readyState, ended: video.ended,
        time: video.currentTime, length: video.duration, size: [video.videoWidth, video.videoHeight],
        corner: Array.from(context.getImageData(8, 8, 1, 1).data),
    };
}"""


def watched(browser: Any, video: Path) -> dict[str, Any]:
    """What a video element says of a video after playing it."""
    page_file = video.with_suffix(".html")
    page_file.write_text(f"<video src={json.dumps(video.name)}></video>")
    page = browser.new_page()
    # Pixels of a page's own origin only may be read, and files have none: serve them under a
    # made-up address.
    page.route(
        "http://videos/*",
        lambda route: route.fulfill(path=video.parent / route.request.url.rsplit("/", 1)[1]),
    )
    page.goto(f"http://videos/{page_file.name}")
    return page.evaluate(WATCH)


def test_a_browser_plays_what_we_write_to_its_end_in_its_size_and_colours(
    browser: Any, tmp_path: Path
) -> None:
    times_ms = [round(1000 * number / RATE) for number in range(FRAMES)]
    source = write_video(tmp_path / "source.mp4", times_ms, sound="aac")
    with video_writer(
        tmp_path / "overlay.mp4", Fraction(RATE), Fraction(1, 3000), source
    ) as writer:
        for number in range(FRAMES):
            writer.write(image(number, 63, 48), Fraction(number, RATE))
    seen = watched(browser, tmp_path / "overlay.mp4")
    assert seen["error"] is None
    assert seen["ready"] >= 2  # HAVE_CURRENT_DATA
    assert seen["ended"]
    assert seen["size"] == [64, 48]
    assert seen["length"] == pytest.approx(FRAMES / RATE, abs=0.1)
    assert seen["time"] == pytest.approx(seen["length"], abs=0.05)
    red, green, blue, _ = seen["corner"]
    assert red > 230
    assert max(green, blue) < 30
