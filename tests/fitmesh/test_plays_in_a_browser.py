"""The film that a run leaves plays in a real browser."""

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from pose2d.io.video_writer import video_writer
from tests.films import picture, write_film

FRAMES, RATE = 45, 30
# A video element tells what it can: size, length, how much it has, how far it came, and what colour a pixel has.
WATCH = """async () => {
    const film = document.querySelector("video");
    film.muted = true;
    await film.play();
    await new Promise((done) => {
        film.addEventListener("ended", done);
        film.addEventListener("error", done);
        setTimeout(done, 20000);
    });
    const canvas = document.createElement("canvas");
    canvas.width = film.videoWidth;
    canvas.height = film.videoHeight;
    const context = canvas.getContext("2d");
    context.drawImage(film, 0, 0);
    return {
        error: film.error && film.error.message, ready: film.readyState, ended: film.ended,
        time: film.currentTime, length: film.duration, size: [film.videoWidth, film.videoHeight],
        corner: Array.from(context.getImageData(8, 8, 1, 1).data),
    };
}"""


def watched(browser: Any, film: Path) -> dict[str, Any]:
    """What a video element says of a film after playing it."""
    page_file = film.with_suffix(".html")
    page_file.write_text(f"<video src={json.dumps(film.name)}></video>")
    page = browser.new_page()
    # Pixels of a page's own origin only may be read, and files have none: serve them under a made-up address.
    page.route("http://films/*", lambda route: route.fulfill(path=film.parent / route.request.url.rsplit("/", 1)[1]))
    page.goto(f"http://films/{page_file.name}")
    return page.evaluate(WATCH)


def test_a_browser_plays_what_we_write_to_its_end_in_its_size_and_colours(browser: Any, tmp_path: Path) -> None:
    times_ms = [round(1000 * number / RATE) for number in range(FRAMES)]
    source = write_film(tmp_path / "source.mp4", times_ms, sound="aac")
    with video_writer(tmp_path / "overlay.mp4", Fraction(RATE), Fraction(1, 3000), source) as writer:
        for number in range(FRAMES):
            writer.write(picture(number, 63, 48), Fraction(number, RATE))
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
