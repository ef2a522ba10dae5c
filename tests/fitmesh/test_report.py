"""`report.html`: self-contained, and true to the result."""

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from fitmesh.exports import EXPORTERS
from fitmesh.exports.report.person_section import (
    ABSENT,
    OUTLIER,
    RELIABLE,
    SWAPPED,
    UNCERTAIN,
    UNOBSERVED,
    keypoint_status,
)
from fitmesh.exports.report.plots import Line, Times, plot, runs, thinned
from fitmesh.result import Result
from fitmesh.ui.events import Reporter
from pose2d.events import Event
from tests.fitmesh.walkers import walkers
from tests.videos import write_video

QUIET = Reporter()
EMPTY_TAGS = {"meta", "img", "br", "link", "rect", "line", "path", "polyline", "polygon"}


class Page(HTMLParser):
    """Collects what is on a page and checks that tags close."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.tags: list[str] = []
        self.words: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        assert not self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.addresses += [
            value or ""
            for name, value in attrs
            if name in ("src", "href", "srcset", "action", "data")
        ]
        if tag not in EMPTY_TAGS:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in EMPTY_TAGS:
            assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Result:
    folder = tmp_path_factory.mktemp("report")
    write_video(
        folder / "overlay.mp4", [round(1000 * i * 1001 / 30000) for i in range(24)], size=(640, 360)
    )
    result = walkers(folder)
    EXPORTERS["report"].write(result, folder, QUIET)
    return result


@pytest.fixture(scope="module")
def text(result: Result) -> str:
    return (result.folder / "report.html").read_text(encoding="utf-8")


def test_the_page_loads_nothing_but_the_overlay_beside_it(text: str) -> None:
    page = Page(text)
    assert set(page.addresses) == {"overlay.mp4"}
    assert not re.search(r"@import|url\(|fetch\(|XMLHttp", text)
    assert "default-src 'none'" in text


def test_file_names_are_escaped(text: str) -> None:
    page = Page(text)
    assert "walk <b>&.mp4" in page.words  # as text, in the title
    assert "walk <b>&.mp4" not in text
    assert page.tags.count("h1") == 1


def test_a_stage_or_setting_with_markup_in_it_stays_text(result: Result, tmp_path: Path) -> None:
    evil = "<script>alert(1)</script>"
    person = replace(result.people[0], stopped=evil)
    hostile = replace(
        result,
        people=[person],
        pose_model=evil,
        source=evil,
        weighting="precision",
        init=evil,
        body_name=evil,
        settings={evil: evil},
        timings_s={evil: 1.0},
        clip_path=Path(f"{evil}.mp4"),
    )
    EXPORTERS["report"].write(hostile, tmp_path, QUIET)
    page = (tmp_path / "report.html").read_text()
    assert "<script>alert" not in page
    assert Page(page).tags.count("script") == 1


def test_it_shows_every_person_the_settings_and_the_timings(text: str) -> None:
    words = " ".join(Page(text).words)
    for expected in (
        "Person 1",
        "Person 4",
        "Knee flexion",
        "movenet-thunder",
        "precision",
        "5.8 s",
        "CCNet",
    ):
        assert expected in words


def test_settings_that_were_given_are_shown(result: Result, tmp_path: Path) -> None:
    settings = {"start_s": 1.5, "end_s": None, "exports": ["bvh", "csv"], "overwrite": False}
    EXPORTERS["report"].write(replace(result, settings=settings, folder=tmp_path), tmp_path, QUIET)
    words = Page((tmp_path / "report.html").read_text()).words
    assert words[words.index("start_s") + 1] == "1.5"
    assert words[words.index("exports") + 1] == "bvh, csv"
    assert "end_s" not in words
    assert "overwrite" in words


def test_every_keypoint_has_its_status(result: Result) -> None:
    person = result.people[0]
    swapped = person.swapped.copy()
    swapped[1, [5, 6]] = True
    status = keypoint_status(result, replace(person, swapped=swapped))
    count = len(person)
    assert (status[1, [5, 6]] == SWAPPED).all()
    assert (
        status[: count // 2, 16] == np.where(person.observed[: count // 2], ABSENT, UNOBSERVED)
    ).all()
    assert (status[person.observed, 9] == UNCERTAIN).all()
    assert status[count // 3, 13] == OUTLIER
    assert (status[2 * count // 3] == UNOBSERVED).all()
    assert (status[person.observed][:, 0] == RELIABLE).all()


def test_no_people_one_frame_and_no_overlay_still_make_a_page(tmp_path: Path) -> None:
    for result in (replace(walkers(tmp_path, frames=3), people=[]), walkers(tmp_path, frames=1)):
        EXPORTERS["report"].write(result, tmp_path, QUIET)
        page = Page((tmp_path / "report.html").read_text())
        assert "img" not in page.tags
        assert any("overlay.mp4" in words for words in page.words)


def test_angles_that_were_not_observed_are_dotted(tmp_path: Path) -> None:
    result = walkers(tmp_path, frames=12)
    EXPORTERS["report"].write(replace(result, people=result.people[:1]), tmp_path, QUIET)
    page = (tmp_path / "report.html").read_text()
    elbow = page[page.index("Elbow flexion") : page.index("Shoulder elevation")]
    assert 'class="curve left inferred"' in elbow  # the left wrist is never observed
    assert 'class="curve left"' not in elbow
    assert 'class="curve right"' in elbow


def test_uncertainty_that_is_unknown_is_said_to_be_unknown(tmp_path: Path) -> None:
    result = walkers(tmp_path, frames=6)
    unknown = [
        replace(
            p,
            joint_std_mm=np.full_like(p.joint_std_mm, np.nan),
            joint_std_relative_mm=np.full((len(p), 24), np.nan),
        )
        for p in result.people
    ]
    EXPORTERS["report"].write(replace(result, people=unknown), tmp_path, QUIET)
    words = Page((tmp_path / "report.html").read_text()).words
    assert "unknown" in words
    assert not any(word.startswith("Uncertainty") for word in words)


def test_a_long_track_is_drawn_with_few_points(tmp_path: Path) -> None:
    values = np.sin(np.arange(9000) / 50)
    times = Times(np.arange(9000) / 30, np.zeros(9000, bool), np.zeros(9000, bool))
    drawn = plot(times, "a", "", [Line("", values, "one")])
    assert len(drawn) < 20_000
    assert len(thinned(values)) <= 600


def test_gaps_interrupt_a_line() -> None:
    values = np.array([1.0, 2.0, np.nan, 3.0, 4.0, np.nan, 5.0])
    times = Times(np.arange(7.0), ~np.isfinite(values), np.zeros(7, bool))
    drawn = plot(times, "a", "", [Line("", values, "one")])
    assert drawn.count("<polyline") == 2
    assert drawn.count('class="dot') == 1
    assert runs(~np.isfinite(values)) == [(2, 2), (5, 5)]


def test_every_event_is_a_warning_with_its_time(result: Result, tmp_path: Path) -> None:
    start_s = float(result.time_s[0])
    events = [
        Event(start_s + 0.5, 4, "lost", "not seen again"),
        Event(start_s + 0.25, 1, "swap", "may have changed places with <b>4</b>"),
        *(Event(start_s + 0.6, 1, "swap", f"number {n}") for n in range(20)),
    ]
    EXPORTERS["report"].write(replace(result, events=events), tmp_path, QUIET)
    text = (tmp_path / "report.html").read_text()
    words = " ".join(" ".join(Page(text).words).split())
    assert "22 things to check" in words
    assert "14 more" in words
    assert words.index("likely swap") < words.index("lost")
    assert f'data-seconds="0.250">0.25 s</button> ({start_s + 0.25:.2f} s of the video)' in text
    assert "with &lt;b&gt;4" in text
    EXPORTERS["report"].write(result, tmp_path, QUIET)
    assert "to check" not in (tmp_path / "report.html").read_text()


@pytest.mark.parametrize(
    ("scene", "up", "std_deg", "reason", "words"),
    [
        (
            "dropped",
            None,
            np.nan,
            "keypoints contradict it",
            "scene dropped: keypoints contradict it",
        ),
        (
            "softened",
            [0, -1, 0],
            3.0,
            "softened for person 2",
            "scene softened: softened for person 2",
        ),
        (
            "used",
            [0, -1, 0],
            8.0,
            "3 plumb lines",
            "gravity doubtful: the up direction is uncertain by 8 degrees",
        ),
        (
            "used",
            [0, -1, 0],
            3.0,
            "floor not known: people jump",
            "floor not known: floor not known: people jump",
        ),
        ("not known", None, np.nan, "nobody stands", "gravity not known: nobody stands"),
        ("not known", None, np.nan, "not looked for", ""),
    ],
)
def test_every_belief_that_was_dropped_or_is_doubtful_is_to_be_checked(
    result: Result,
    tmp_path: Path,
    scene: str,
    up: list | None,
    std_deg: float,
    reason: str,
    words: str,
) -> None:
    up_cam = None if up is None else np.array(up, np.float32)
    shot = replace(
        result.shots[0], scene=scene, up_cam=up_cam, up_std_deg=std_deg, scene_reason=reason
    )
    EXPORTERS["report"].write(replace(result, shots=[shot]), tmp_path, QUIET)
    text = " ".join(" ".join(Page((tmp_path / "report.html").read_text()).words).split()).replace(
        " :", ":"
    )
    assert ("1 thing to check" in text) == bool(words)
    assert words in text


def test_shots_are_listed_with_their_people(result: Result, tmp_path: Path) -> None:
    first, second = (
        replace(result.shots[0], first_frame=int(frame)) for frame in result.frames[[0, 12]]
    )
    people = [result.people[0], replace(result.people[1], shot=1, same_as=1)]
    two = replace(result, shots=[first, replace(second, camera="moving")], people=people)
    EXPORTERS["report"].write(two, tmp_path, QUIET)
    words = " ".join(" ".join(Page((tmp_path / "report.html").read_text()).words).split())
    step_s = 1001 / 30000
    assert "2 shots" in words
    assert f"0.00 s to {11 * step_s:.2f} s" in words
    assert f"{12 * step_s:.2f} s" in words
    assert "4 (the same as 1)" in words
    assert " shots" not in " ".join(Page((result.folder / "report.html").read_text()).words)


def test_many_people_are_folded(result: Result, tmp_path: Path) -> None:
    crowd = [replace(result.people[0], identity=number, same_as=number) for number in range(1, 6)]
    EXPORTERS["report"].write(replace(result, people=crowd), tmp_path, QUIET)
    page = Page((tmp_path / "report.html").read_text())
    assert page.tags.count("details") == 5 + 1  # and the settings
    assert Page((result.folder / "report.html").read_text()).tags.count("details") == 1


def test_the_video_is_shown_where_there_is_one(result: Result, tmp_path: Path) -> None:
    assert Page((result.folder / "report.html").read_text()).tags.count("video") == 1
    alone = replace(result, folder=tmp_path)
    EXPORTERS["report"].write(alone, tmp_path, QUIET)
    assert Page((tmp_path / "report.html").read_text()).tags.count("video") == 0
