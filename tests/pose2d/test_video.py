import os
import subprocess
import sys
import weakref
from fractions import Fraction
from pathlib import Path

import av
import cv2
import numpy as np
import pytest

from pose2d.base.errors import UserError
from pose2d.video.frames import Span
from pose2d.video.images import ImageFolder, read_image
from pose2d.video.video_file import Video
from pose2d.video.writer import video_writer
from tests.videos import image, number_of, turn, write_sound, write_video

EVEN_MS = [0, 40, 80, 120, 160, 200, 240, 280]
UNEVEN_MS = [0, 33, 67, 300, 333, 1000, 1500]


def times_ms(clip: Video, span: Span | None = None) -> list[int]:
    return [round(frame.time_s * 1000) for frame in clip.frames(span or Span())]


@pytest.mark.parametrize("suffix", [".mp4", ".mov", ".mkv", ".webm", ".gif"])
def test_every_kind_of_video_gives_its_frames_in_order_at_their_times(
    tmp_path: Path, suffix: str
) -> None:
    clip = Video(write_video(tmp_path / f"a{suffix}", EVEN_MS))
    frames = list(clip.frames())
    assert [round(frame.time_s * 1000) for frame in frames] == EVEN_MS
    assert [frame.index for frame in frames] == list(range(8))
    assert frames[0].rgb.dtype == np.uint8
    assert frames[0].rgb.shape == (48, 64, 3)
    assert (clip.info.width_px, clip.info.height_px, clip.info.has_audio) == (64, 48, False)
    tolerance = 2 if suffix == ".gif" else 0  # eight grey levels only
    assert all(abs(number_of(frame.rgb) - frame.index) <= tolerance for frame in frames)
    assert clip.warnings == []


def test_uneven_frames_keep_their_own_times(tmp_path: Path) -> None:
    assert times_ms(Video(write_video(tmp_path / "a.mp4", UNEVEN_MS))) == UNEVEN_MS


def test_a_video_that_starts_late_keeps_its_clock(tmp_path: Path) -> None:
    assert times_ms(Video(write_video(tmp_path / "a.mkv", [500, 533, 567]))) == [500, 533, 567]


def test_the_rate_is_an_exact_fraction(tmp_path: Path) -> None:
    ntsc = Fraction(30000, 1001)
    with video_writer(tmp_path / "a.mp4", ntsc, 1 / ntsc) as video:
        for number in range(30):
            video.write(image(number), number / ntsc)
    info = Video(tmp_path / "a.mp4").info
    assert info.rate == ntsc
    assert info.frames == 30


@pytest.mark.parametrize(
    ("matrix", "size", "red_corner"),
    [
        ((1, 0, 0, 1), (64, 48), (0, 0)),
        ((0, 1, -1, 0), (48, 64), (0, -1)),  # a quarter turn clockwise
        ((-1, 0, 0, -1), (64, 48), (-1, -1)),
        ((0, -1, 1, 0), (48, 64), (-1, 0)),
        ((-1, 0, 0, 1), (64, 48), (0, -1)),  # a mirror
        ((0, 1, 1, 0), (48, 64), (0, 0)),  # a mirror and a quarter turn
    ],
)
def test_rotation_metadata_turns_frames_upright(
    tmp_path: Path,
    matrix: tuple[int, int, int, int],
    size: tuple[int, int],
    red_corner: tuple[int, int],
) -> None:
    clip = Video(turn(write_video(tmp_path / "a.mp4", [0, 33]), tmp_path / "b.mp4", matrix))
    first = next(iter(clip.frames()))
    assert (clip.info.width_px, clip.info.height_px) == size == first.rgb.shape[1::-1]
    corners = {
        (y, x): int(first.rgb[3 * (1 + 2 * y), 3 * (1 + 2 * x), 0])
        for y in (0, -1)
        for x in (0, -1)
    }
    assert (
        max(
            corners,
            key=lambda c: corners[c] - int(first.rgb[3 * (1 + 2 * c[0]), 3 * (1 + 2 * c[1]), 1]),
        )
        == red_corner
    )


def test_a_span_picks_frames_by_time_and_stride_and_keeps_their_numbers(tmp_path: Path) -> None:
    clip = Video(write_video(tmp_path / "a.mp4", EVEN_MS))
    frames = list(clip.frames(Span(start_s=0.05, end_s=0.25, every=2)))
    assert [frame.index for frame in frames] == [2, 4, 6]
    assert [number_of(frame.rgb) for frame in frames] == [2, 4, 6]


def test_a_span_means_the_decimal_number_that_was_written(tmp_path: Path) -> None:
    clip = Video(write_video(tmp_path / "a.mp4", [0, 100, 300, 700, 1300, 1400]))
    assert times_ms(clip, Span(start_s=1.3)) == [1300, 1400]
    assert times_ms(clip, Span(start_s=0.1, end_s=0.7)) == [100, 300]


def test_a_span_beyond_the_end_says_where_the_end_is(tmp_path: Path) -> None:
    clip = Video(write_video(tmp_path / "a.mp4", EVEN_MS))
    with pytest.raises(UserError, match=r"ends at 0\.28 s, before --start 9 s"):
        list(clip.frames(Span(start_s=9)))


def test_frames_are_streamed_not_gathered(tmp_path: Path) -> None:
    clip = Video(write_video(tmp_path / "a.mp4", list(range(0, 1000, 10))))
    given: list[weakref.ref[np.ndarray]] = []
    for frame in clip.frames():
        given.append(weakref.ref(frame.rgb))
        assert sum(ref() is not None for ref in given) <= 2
    assert len(given) == 100


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("missing.mp4", None, "no video at"),
        ("empty.mp4", b"", "is empty"),
        ("words.mp4", b"this is not a video at all " * 40, "is not a video"),
        (
            "words.txt",
            b"plain text, which FFmpeg would play on a terminal\n" * 40,
            "is not a video",
        ),
        ("noise.mkv", bytes(range(256)) * 64, "is not a video"),
        (
            "list.m3u8",
            b"#EXTM3U\n#EXTINF:1,\nhttp://127.0.0.1:9/a.ts\n#EXT-X-ENDLIST\n",
            "is not a video",
        ),
    ],
)
def test_what_is_no_video_is_refused_by_name(
    tmp_path: Path, name: str, content: bytes | None, words: str
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=words) as refused:
        Video(tmp_path / name)
    assert name in str(refused.value)


def test_a_folder_is_sent_to_images_and_a_photo_to_image(tmp_path: Path) -> None:
    cv2.imwrite(str(tmp_path / "a.png"), image(0))
    with pytest.raises(UserError, match="use --images"):
        Video(tmp_path)
    with pytest.raises(UserError, match="use --image"):
        Video(tmp_path / "a.png")


def test_sound_alone_is_no_video(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="only sound"):
        Video(write_sound(tmp_path / "a.m4a"))


def test_an_mp4_cut_before_its_index_cannot_be_opened(tmp_path: Path) -> None:
    whole = write_video(tmp_path / "a.mp4", EVEN_MS).read_bytes()
    (tmp_path / "b.mp4").write_bytes(whole[: whole.index(b"moov") - 20])
    with pytest.raises(UserError, match="cut off"):
        Video(tmp_path / "b.mp4")


@pytest.mark.parametrize("suffix", [".mp4", ".mkv", ".webm"])
def test_a_cut_video_is_read_as_far_as_it_goes_with_a_warning(tmp_path: Path, suffix: str) -> None:
    options = {"movflags": "+faststart"} if suffix == ".mp4" else {}
    whole = write_video(
        tmp_path / f"a{suffix}", list(range(0, 3200, 40)), options=options
    ).read_bytes()
    (tmp_path / f"b{suffix}").write_bytes(whole[: len(whole) * 6 // 10])
    clip = Video(tmp_path / f"b{suffix}")
    frames = list(clip.frames())
    assert 5 < len(frames) < 75
    assert clip.warnings
    assert f"b{suffix}" in clip.warnings[0]


def test_damage_in_the_middle_does_not_lose_the_rest(tmp_path: Path) -> None:
    data = bytearray(write_video(tmp_path / "a.mp4", list(range(0, 3200, 40))).read_bytes())
    middle = (data.index(b"mdat") + data.index(b"moov")) // 2
    data[middle : middle + 60] = bytes(60)
    (tmp_path / "b.mp4").write_bytes(data)
    clip = Video(tmp_path / "b.mp4")
    assert list(clip.frames())[-1].time_s > 3
    assert "damaged" in clip.warnings[0]


def test_a_image_is_read_upright_in_rgb(tmp_path: Path) -> None:
    cv2.imwrite(str(tmp_path / "a.png"), image(3)[..., ::-1])
    np.testing.assert_array_equal(read_image(tmp_path / "a.png"), image(3))
    jpeg = cv2.imencode(".jpg", image(0)[..., ::-1])[1].tobytes()
    quarter_turn = (
        b"\xff\xe1\x00\x22Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0"
    )
    (tmp_path / "b.jpg").write_bytes(jpeg[:2] + quarter_turn + jpeg[2:])
    turned = read_image(tmp_path / "b.jpg")
    assert turned.shape == (64, 48, 3)
    assert turned[5, -5, 0] > 200


@pytest.mark.parametrize("kind", ["grey", "transparent", "16 bit"])
def test_grey_transparent_and_16_bit_images_become_plain_rgb(tmp_path: Path, kind: str) -> None:
    rgb = image(3)
    stored = {
        "grey": rgb[..., 0],
        "transparent": np.dstack([rgb[..., ::-1], np.full(rgb.shape[:2], 255, np.uint8)]),
        "16 bit": rgb[..., ::-1].astype(np.uint16) * 257,
    }[kind]
    cv2.imwrite(str(tmp_path / "a.png"), stored)
    read = read_image(tmp_path / "a.png")
    assert read.dtype == np.uint8
    assert read.shape == rgb.shape
    np.testing.assert_array_equal(read[..., 0], rgb[..., 0])


def test_a_folder_of_images_counts_like_a_person(tmp_path: Path) -> None:
    for number in (0, 2, 9, 10, 11):
        cv2.imwrite(str(tmp_path / f"frame_{number}.png"), image(number))
    (tmp_path / "notes.txt").write_text("not an image")
    clip = ImageFolder(tmp_path, Fraction(25))
    frames = list(clip.frames())
    assert [number_of(frame.rgb) for frame in frames] == [0, 2, 9, 10, 11]
    assert [frame.time_s for frame in frames] == [Fraction(i, 25) for i in range(5)]


def test_images_of_two_sizes_are_no_video(tmp_path: Path) -> None:
    cv2.imwrite(str(tmp_path / "a.png"), image(0))
    cv2.imwrite(str(tmp_path / "b.png"), image(0, 32, 48))
    with pytest.raises(UserError, match=r"b\.png is 32x48 pixels"):
        list(ImageFolder(tmp_path).frames())


@pytest.mark.parametrize("content", [b"", b"no image", None])
def test_what_is_no_image_is_refused_by_name(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "a.jpg").write_bytes(content)
    with pytest.raises(UserError, match=r"a\.jpg"):
        ImageFolder(tmp_path / "a.jpg")


def test_a_folder_without_images_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no images in"):
        ImageFolder(tmp_path)


def test_a_written_video_is_what_browsers_play(tmp_path: Path) -> None:
    with video_writer(tmp_path / "a.mp4", Fraction(25), Fraction(1, 25)) as video:
        for number in range(20):
            video.write(image(number), Fraction(number, 25))
    with av.open(str(tmp_path / "a.mp4")) as container:
        stream = container.streams.video[0]
        assert stream.codec_context.name == "h264"
        assert stream.codec_context.pix_fmt == "yuv420p"
    data = (tmp_path / "a.mp4").read_bytes()
    assert data.index(b"moov") < data.index(b"mdat")
    frames = list(Video(tmp_path / "a.mp4").frames())
    assert [number_of(frame.rgb) for frame in frames] == list(range(20))
    assert np.abs(frames[3].rgb.astype(int) - image(3)).mean() < 4


def test_uneven_times_survive_writing(tmp_path: Path) -> None:
    source = Video(write_video(tmp_path / "a.mp4", UNEVEN_MS))
    with video_writer(tmp_path / "b.mp4", source.info.rate, source.info.tick_s) as video:
        for frame in source.frames():
            video.write(frame.rgb, frame.time_s)
    copy = Video(tmp_path / "b.mp4")
    assert times_ms(copy) == UNEVEN_MS
    assert copy.info.duration_s == pytest.approx(1.5 + 1 / source.info.rate, abs=0.01)


def test_odd_sizes_grow_by_one_pixel(tmp_path: Path) -> None:
    with video_writer(tmp_path / "a.mp4", Fraction(30), Fraction(1, 30)) as video:
        video.write(image(0, 63, 47), Fraction(0))
    info = Video(tmp_path / "a.mp4").info
    assert (info.width_px, info.height_px, info.frames) == (64, 48, 1)


@pytest.mark.parametrize(
    ("suffix", "codec", "result"),
    [
        (".mp4", "aac", "aac"),
        (".mkv", "ac3", "aac"),
        (".mkv", "pcm_s16le", "aac"),
        (".webm", "libopus", "opus"),
    ],
)
def test_sound_comes_along_cut_to_the_images(
    tmp_path: Path, suffix: str, codec: str, result: str
) -> None:
    source = Video(write_video(tmp_path / f"a{suffix}", list(range(0, 3000, 40)), sound=codec))
    assert source.info.has_audio
    with video_writer(
        tmp_path / "b.mp4", source.info.rate, source.info.tick_s, source.path
    ) as video:
        for frame in source.frames(Span(start_s=1, end_s=2)):
            video.write(frame.rgb, frame.time_s)
    with av.open(str(tmp_path / "b.mp4")) as container:
        track = container.streams.audio[0]
        assert track.codec_context.name == result
        assert float(track.duration * track.time_base) == pytest.approx(1.0, abs=0.12)
        samples = np.concatenate(
            [frame.to_ndarray().astype(float).ravel() for frame in container.decode(track)]
        )
    assert samples.std() > 0.1
    assert Video(tmp_path / "b.mp4").info.frames == 25


def test_a_video_that_fails_halfway_leaves_nothing(tmp_path: Path) -> None:
    def fail() -> None:
        with video_writer(tmp_path / "a.mp4", Fraction(30), Fraction(1, 30)) as video:
            video.write(image(0), Fraction(0))
            raise RuntimeError("midway")

    with pytest.raises(RuntimeError, match="midway"):
        fail()
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_a_clear_sentence_and_leaves_nothing(tmp_path: Path) -> None:
    """A limit on file size stands in for the disk: writes fail the same way."""
    code = (
        "import resource, sys; from fractions import Fraction; import numpy as np\n"
        "from pose2d.base.errors import UserError; from pose2d.video.writer import video_writer\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000))\n"
        "noise = np.random.default_rng(0).integers(0, 255, (60, 240, 320, 3), np.uint8)\n"
        "try:\n"
        "    with video_writer(sys.argv[1], Fraction(30), Fraction(1, 30)) as video:\n"
        "        for i, rgb in enumerate(noise): video.write(rgb, Fraction(i, 30))\n"
        "except UserError as error: print('said:', error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "a.mp4")],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        check=False,
    )
    assert "said: cannot write" in done.stdout, done.stderr
    assert list(tmp_path.iterdir()) == []
