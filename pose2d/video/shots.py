"""Where a video changes to another shot: hard cuts, fades and dissolves, found from small frames as
they are decoded.

A frame continues its shot when its parts can be found again in the frame before, each moved by up
to an eighth of the image and made brighter or darker: block matching with normalised
cross-correlation. The share of structure that cannot be found again (0: all is there, 1: nothing)
is the score of a cut. Unlike a difference of pixels or of colour histograms it ignores flicker,
exposure and camera motion, and it sees a cut between two views of one room. bench/tuning/shots.py compares
the score over continued and cut shots and chose the thresholds.

Three rules around it: a cut must stand out from the frames around it (as whip pans do not), the
image must not return to what it was a moment later (as after a flash), and frames without structure
(black, white) are skipped, so that a fade is a comparison of the last image before it with the
first one after."""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

import cv2
import numpy as np

from pose2d.video.frames import Frame

SIZE_PX = (64, 36)  # width and height of a frame as compared here
BLOCK_PX = (16, 12)  # 4 x 3 blocks
REACH_PX = (8, 6)  # how far a block may move between frames: an eighth and a sixth of the image
FADED = 0.4  # a fade takes away more than the rest of the contrast
NOISE = 2.0  # grey levels by which compression changes a small frame that shows the same


CUT_SCORE = (
    0.25  # a cut's least score; bench/tuning/shots.py: 99.9 % of continued frames stay below
)
ABOVE_LEVEL = 0.15  # and its least distance from the scores around it
SAME_SCORE = 0.18  # two frames below this show the same view
FLASH_S = 0.2  # a view that returns within this time was interrupted by a flash, not by a cut
FLASH_FRAMES = 6  # the same in frames, for high frame rates
DISSOLVE_S = (0.4, 0.8, 1.2)  # lengths of fades and dissolves looked for
DISSOLVE_SCORE = 0.35  # the views at its ends must differ by this
DISSOLVE_FIT = 0.9  # share of the variance that a blend of the ends explains in every frame between
LEAST_CONTRAST = 2.0  # standard deviation of grey levels below which a frame has no structure
BAR_LEVEL = 24  # rows and columns that were never brighter are bars beside the image
LOOKAHEAD_FRAMES = 48  # the most frames kept; bounds memory at any frame rate


CutKind = Literal["cut", "fade", "dissolve"]


@dataclass
class _Seen:
    frame: int
    time_s: float
    grey: np.ndarray  # [36, 64] float32, bars included
    contrast: float  # its standard deviation
    image: Frame | None  # until it is passed on
    before: np.ndarray | None = (
        None  # the last frame with structure before it; None at the start, or without any
    )
    score: float = 0.0
    after_blank: bool = False
    decided: bool = False  # whether it is a cut
    is_start: bool = False  # a cut was reported here


def shrunk(rgb: np.ndarray) -> np.ndarray:
    """An RGB uint8 image [H, W, 3] of the size that is compared here, [36, 64, 3]."""
    # 16 samples a pixel are enough: 0.1 ms, not 2.8 ms, at 1920x1080.
    if rgb.shape[1] > 4 * SIZE_PX[0] and rgb.shape[0] > 4 * SIZE_PX[1]:
        rgb = cv2.resize(rgb, (4 * SIZE_PX[0], 4 * SIZE_PX[1]), interpolation=cv2.INTER_NEAREST)
    return (
        cv2.resize(rgb, SIZE_PX, interpolation=cv2.INTER_AREA)
        if rgb.shape[1::-1] != SIZE_PX
        else rgb
    )


def thumbnail(rgb: np.ndarray) -> np.ndarray:
    """An RGB uint8 image [H, W, 3] as compared here: [36, 64] grey levels, float32."""
    return cv2.cvtColor(shrunk(rgb), cv2.COLOR_RGB2GRAY).astype(np.float32)


def new_structure(before: np.ndarray, after: np.ndarray) -> float:
    """Share of the structure in `after` [36, 64] that is nowhere near in `before`, 0..1."""
    (block_w, block_h), (reach_x, reach_y) = BLOCK_PX, REACH_PX
    around = cv2.copyMakeBorder(before, reach_y, reach_y, reach_x, reach_x, cv2.BORDER_REPLICATE)
    old_structure = total = 0.0
    for y in range(0, SIZE_PX[1], block_h):
        for x in range(0, SIZE_PX[0], block_w):
            block = after[y : y + block_h, x : x + block_w]
            area = around[y : y + block_h + 2 * reach_y, x : x + block_w + 2 * reach_x]
            contrast = float(cv2.meanStdDev(block)[1][0, 0])
            weight = contrast**2 / (contrast + 2 * NOISE)
            best = float(cv2.matchTemplate(area, block, cv2.TM_CCOEFF_NORMED).max())
            best *= (
                1 + (NOISE / max(contrast, NOISE)) ** 2
            )  # noise alone lowers a correlation by this
            old_structure += weight * min(max(best, 0.0), 1.0)
            total += weight
    return 1 - old_structure / total if total > 0 else 0.0


class ShotMarker:
    """Frames as they are decoded, each with whether a shot begins there. A frame waits only while
    it, or one before it, may still turn out to be the first of a shot: a few frames after a sudden
    change, none otherwise. A dissolve, or a fade that does not reach black, is known only after it
    has ended; where these shots begin is in `late`, for whoever used the frames to take into
    account afterwards."""

    def __init__(self) -> None:
        self.cuts: dict[int, CutKind] = {}  # by the first frame of the new shot
        self.late: list[int] = []  # those not known by the time that their frame was passed on
        self._first: int | None = None  # frame of all
        self._recent: deque[_Seen] = deque()
        self._reference: np.ndarray | None = None  # the last frame with structure
        self._blank = False  # frames without structure lie between it and now
        self._brightest = np.zeros(SIZE_PX[::-1], np.float32)

    def mark(self, frames: Iterable[Frame]) -> Iterator[tuple[Frame, bool]]:
        """Each frame, and whether a shot begins with it: the first, and after a cut. Times must
        increase.
        """
        for frame in frames:
            self._first = frame.index if self._first is None else self._first
            seen = self._look(frame)
            self._decide(seen.time_s)
            self._soft_cut(seen)
            yield from self._settled()
            while len(self._recent) > LOOKAHEAD_FRAMES or (
                len(self._recent) > 4
                and seen.time_s - self._recent[0].time_s > max(2 * FLASH_S, 1.1 * max(DISSOLVE_S))
            ):
                if not self._recent[0].decided:
                    break
                self._recent.popleft()
        self._decide(np.inf)
        yield from self._settled()

    def _report(self, seen: _Seen, kind: CutKind) -> None:
        self.cuts[seen.frame] = kind
        if seen.image is None:
            self.late.append(seen.frame)

    def _settled(self) -> Iterator[tuple[Frame, bool]]:
        """Those before the first frame that may still be a cut or the end of a fade through black."""
        for seen in self._recent:
            if not seen.decided and seen.before is not None and seen.score >= CUT_SCORE:
                return
            if seen.image is not None:
                image = seen.image
                seen.image = None
                yield image, image.index in (self._first, *self.cuts)

    def _look(self, frame: Frame) -> _Seen:
        grey = thumbnail(frame.rgb)
        np.maximum(self._brightest, grey, out=self._brightest)
        seen = _Seen(frame.index, float(frame.time_s), grey, float(grey.std()), frame)
        if seen.contrast < LEAST_CONTRAST:
            self._blank = True
        else:
            if self._reference is not None:
                seen.before = self._reference
                seen.after_blank = self._blank
                seen.score = self._compare(self._reference, grey)
            self._reference, self._blank = grey, False
        self._recent.append(seen)
        return seen

    def _decide(self, now_s: float) -> None:
        """Decide on every frame that was followed by enough others."""
        undecided = [seen for seen in self._recent if not seen.decided]
        while undecided:
            seen, *after = undecided
            waited = now_s - seen.time_s > FLASH_S or len(after) >= FLASH_FRAMES
            if now_s != np.inf and not (len(after) >= 2 and waited):
                break
            seen.decided, undecided = True, after
            if self._is_cut(seen, after):
                seen.is_start = True
                self._report(seen, "fade" if seen.after_blank else "cut")

    def _is_cut(self, seen: _Seen, after: list[_Seen]) -> bool:
        if seen.before is None or seen.score < CUT_SCORE:
            return False
        if not seen.after_blank and seen.score < ABOVE_LEVEL + self._level(seen, after):
            return False
        soon = [
            later
            for number, later in enumerate(after)
            if self._is_close(number, later.time_s - seen.time_s)
        ]
        returned = next((later for later in soon if self._same_view(seen.before, later.grey)), None)
        if returned is not None:
            for later in after:  # the flash's own end is no cut either
                if later.time_s <= returned.time_s:
                    later.before = None
            return False
        # A flash that only hides the bright parts is noticed at its end: what was there before it
        # is there again.
        past = [other for other in self._recent if other.time_s < seen.time_s][-2::-1]
        return not any(
            self._is_close(number, seen.time_s - other.time_s)
            and self._same_view(other.grey, seen.grey)
            for number, other in enumerate(past)
        )

    def _is_close(self, number: int, distance_s: float) -> bool:
        """Is the frame so many frames and seconds away within the length of a flash?"""
        return number == 0 or (number < FLASH_FRAMES and distance_s <= FLASH_S)

    def _same_view(self, before: np.ndarray, after: np.ndarray) -> bool:
        has_structure = min(before.std(), after.std()) >= LEAST_CONTRAST
        return has_structure and self._compare(before, after) < SAME_SCORE

    def _level(self, seen: _Seen, after: list[_Seen]) -> float:
        """The score that frames around this one have: high in fast motion."""
        place = next(number for number, other in enumerate(self._recent) if other is seen)
        before = [
            other.score
            for other in list(self._recent)[max(0, place - 3) : place]
            if not other.is_start
        ]
        level_before = float(np.median(before)) if before else 0.0
        level_after = min((later.score for later in after[:2]), default=0.0)
        return max(level_before, level_after)

    def _soft_cut(self, seen: _Seen) -> None:
        """A fade or dissolve that this frame ends."""
        if seen.before is None:
            return
        for length_s in DISSOLVE_S:
            window = [
                other for other in self._recent if seen.time_s - other.time_s <= length_s + 1e-6
            ]
            if len(window) < 5 or seen.time_s - window[0].time_s < 0.75 * length_s:
                continue
            if any(other.is_start or other.score > CUT_SCORE for other in window[1:]):
                continue
            for kind, find in (("dissolve", self._blended), ("fade", self._dimmed)):
                if (ends := find(window)) is None:
                    continue
                before, middle, after = ends
                if self._compare(before.grey, after.grey) >= DISSOLVE_SCORE:
                    for other in self._recent:  # one transition is reported once
                        other.is_start = other.is_start or middle.time_s <= other.time_s
                    self._report(middle, kind)  # type: ignore[arg-type]
                    return

    def _dimmed(self, window: list[_Seen]) -> tuple[_Seen, _Seen, _Seen] | None:
        """If the image fades out and in again: the last frame before that, the darkest, the first
        one after.
        """
        contrast = np.array([other.contrast for other in window])
        darkest = int(contrast.argmin())
        clear = np.flatnonzero(contrast >= FADED * min(contrast[0], contrast[-1]))
        if darkest in clear:
            return None
        return (
            window[clear[clear < darkest][-1]],
            window[darkest],
            window[clear[clear > darkest][0]],
        )

    def _blended(self, window: list[_Seen]) -> tuple[_Seen, _Seen, _Seen] | None:
        """If the window's first frame dissolves into its last: the first, the one in the middle,
        the last.
        """
        a, b = (window[index].grey - window[index].grey.mean() for index in (0, -1))
        saa = float((a * a).mean())
        sbb = float((b * b).mean())
        sab = float((a * b).mean())
        if min(saa, sbb) < (2 * LEAST_CONTRAST) ** 2 or sab > 0.7 * np.sqrt(saa * sbb):
            return None

        def shares(frames: list[_Seen]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
            """Least squares of each frame in the two ends: the share of either, and the variance
            explained.
            """
            between = np.stack([other.grey for other in frames])
            between = between - between.mean((1, 2), keepdims=True)
            ma, mb, mm = ((between * other).mean((1, 2)) for other in (a, b, between))
            determinant = saa * sbb - sab**2
            share_a = (sbb * ma - sab * mb) / determinant
            share_b = (saa * mb - sab * ma) / determinant
            return share_a, share_b, (share_a * ma + share_b * mb) / np.maximum(mm, 1e-6)

        if shares(window[len(window) // 2 :][:1])[2][0] < DISSOLVE_FIT:
            return None  # cheap, and true of nearly all frames
        share_a, share_b, explained = shares(window[1:-1])
        share = share_b / np.maximum(share_a + share_b, 1e-6)
        mixed = (share > 0.25) & (share < 0.75)
        steady = np.diff(share).min() > -0.1 and np.abs(share_a + share_b - 1).max() < 0.35
        if mixed.sum() < 2 or explained.min() < DISSOLVE_FIT or not steady or share[-1] < 0.5:
            return None
        return window[0], window[1 + int(np.argmax(share >= 0.5))], window[-1]

    def _compare(self, before: np.ndarray, after: np.ndarray) -> float:
        """`new_structure` within the bars; 0 at once for frames that hardly differ."""
        a = before - before.mean()
        b = after - after.mean()
        size2 = float((a * a).sum() * (b * b).sum())
        if float((a * b).sum()) > 0.98 * np.sqrt(size2) > 0:
            return 0.0
        inside = _inside_bars(self._brightest, BAR_LEVEL)
        if inside is None:
            return new_structure(before, after)
        return new_structure(*(cv2.resize(image[inside], SIZE_PX) for image in (before, after)))


def _inside_bars(brightest: np.ndarray, level: float) -> tuple[slice, slice] | None:
    """The part [rows, columns] that is no black bar; None where there are no bars, or nothing else."""
    level = min(level, 0.2 * float(brightest.max()))  # a dark video has dark parts
    rows, columns = (np.flatnonzero(brightest.max(axis) > level) for axis in (1, 0))
    if len(rows) < 8 or len(columns) < 8 or (len(rows), len(columns)) == brightest.shape:
        return None
    if len(rows) > SIZE_PX[1] - 3 and len(columns) > SIZE_PX[0] - 3:
        return None  # a dark edge
    return slice(rows[0], rows[-1] + 1), slice(columns[0], columns[-1] + 1)
