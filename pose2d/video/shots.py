"""Where a video changes to another shot: hard cuts, fades and dissolves, detected on small frames
while they are decoded.

A frame continues its shot when its parts can be found again in the frame before, each moved by up
to an eighth of the image and made brighter or darker: block matching with normalised
cross-correlation. The share of structure that cannot be found again (0: none of it, 1: all) is the
score of a cut. Unlike a difference of pixels or of colour histograms it ignores flicker, exposure
and camera motion, and it sees a cut between two views of one room. bench/tuning/shots.py compares
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
FADED = 0.4  # share of the contrast that a fade leaves, at most
NOISE = 2.0  # grey levels by which compression changes a small frame that shows the same


CUT_SCORE = (
    0.25  # a cut's least score; bench/tuning/shots.py: 99.9 % of continued frames stay below
)
ABOVE_LEVEL = 0.15  # least distance of a cut's score from the scores around it
SAME_SCORE = 0.18  # two frames below this show the same view
FLASH_S = 0.2  # a view that returns within this time was interrupted by a flash, not by a cut
FLASH_FRAMES = 6  # longest flash in frames, for high frame rates
DISSOLVE_S = (0.4, 0.8, 1.2)  # lengths of fades and dissolves that are tried
DISSOLVE_SCORE = 0.35  # the views at its ends must differ by this
DISSOLVE_FIT = 0.9  # share of the variance that a blend of the ends explains in every frame between
LEAST_CONTRAST = 2.0  # standard deviation of grey levels below which a frame has no structure
BAR_LEVEL = 24  # rows and columns that were never brighter are bars beside the image
LOOKAHEAD_FRAMES = 48  # most frames in memory, at any frame rate


CutKind = Literal["cut", "fade", "dissolve"]


@dataclass
class _RecentFrame:
    """A frame that may still take part in a decision."""

    frame: int
    time_s: float
    grey: np.ndarray  # [36, 64] float32, bars included
    contrast: float  # standard deviation of `grey`
    image: Frame | None  # until it is passed on
    # The last frame with structure before it; None at the start, and for a frame without structure.
    before: np.ndarray | None = None
    score: float = 0.0
    after_blank: bool = False  # frames without structure lie between `before` and this one
    is_decided: bool = False  # whether it is a cut
    is_start: bool = False  # a cut was reported here


# The frame before a fade or dissolve, the first frame of the new shot, and the frame after it.
_Transition = tuple[_RecentFrame, _RecentFrame, _RecentFrame]


def shrink(rgb: np.ndarray) -> np.ndarray:
    """Return an RGB uint8 image [H, W, 3] at the size that is compared here, [36, 64, 3]."""
    # 16 samples a pixel are enough: 0.1 ms, not 2.8 ms, at 1920x1080.
    if rgb.shape[1] > 4 * SIZE_PX[0] and rgb.shape[0] > 4 * SIZE_PX[1]:
        rgb = cv2.resize(rgb, (4 * SIZE_PX[0], 4 * SIZE_PX[1]), interpolation=cv2.INTER_NEAREST)
    if rgb.shape[1::-1] == SIZE_PX:
        return rgb
    return cv2.resize(rgb, SIZE_PX, interpolation=cv2.INTER_AREA)


def thumbnail(rgb: np.ndarray) -> np.ndarray:
    """Return the grey levels [36, 64], float32, of an RGB uint8 image [H, W, 3]."""
    return cv2.cvtColor(shrink(rgb), cv2.COLOR_RGB2GRAY).astype(np.float32)


def new_structure(before: np.ndarray, after: np.ndarray) -> float:
    """Return the share of the structure in `after` [36, 64], 0..1, that is nowhere near in
    `before`.
    """
    block_w, block_h = BLOCK_PX
    reach_x, reach_y = REACH_PX
    around = cv2.copyMakeBorder(before, reach_y, reach_y, reach_x, reach_x, cv2.BORDER_REPLICATE)
    old_structure = 0.0
    total = 0.0
    for y in range(0, SIZE_PX[1], block_h):
        for x in range(0, SIZE_PX[0], block_w):
            block = after[y : y + block_h, x : x + block_w]
            area = around[y : y + block_h + 2 * reach_y, x : x + block_w + 2 * reach_x]
            contrast = float(cv2.meanStdDev(block)[1][0, 0])
            weight = contrast**2 / (contrast + 2 * NOISE)
            best = float(cv2.matchTemplate(area, block, cv2.TM_CCOEFF_NORMED).max())
            best *= 1 + (NOISE / max(contrast, NOISE)) ** 2  # noise lowers the correlation by this
            old_structure += weight * min(max(best, 0.0), 1.0)
            total += weight
    return 1 - old_structure / total if total > 0 else 0.0


class ShotMarker:
    """Passes frames on as they are decoded, each with whether a shot begins there.

    A frame waits only while it, or one before it, may still turn out to be the first of a shot: a
    few frames after a sudden change, none otherwise. A dissolve, or a fade that does not reach
    black, is known only after it has ended. The first frames of such shots are in `late`, so that
    the user of the frames can correct what was done with them."""

    def __init__(self) -> None:
        self.cuts: dict[int, CutKind] = {}  # by the first frame of the new shot
        self.late: list[int] = []  # cuts that were detected after their frame was passed on
        self._first: int | None = None  # the video's first frame
        self._recent: deque[_RecentFrame] = deque()
        self._reference: np.ndarray | None = None  # the last frame with structure
        self._blank = False  # frames without structure lie between it and now
        self._brightest = np.zeros(SIZE_PX[::-1], np.float32)

    def mark(self, frames: Iterable[Frame]) -> Iterator[tuple[Frame, bool]]:
        """Yield each frame and whether a shot begins with it: the first, and after a cut. Times
        must increase.
        """
        for frame in frames:
            if self._first is None:
                self._first = frame.index
            current = self._add(frame)
            self._decide(current.time_s)
            self._find_soft_cut(current)
            yield from self._pass_on()
            self._forget(current.time_s)
        self._decide(np.inf)
        yield from self._pass_on()

    def _forget(self, now_s: float) -> None:
        """Drop frames that no decision needs any more."""
        longest_s = max(2 * FLASH_S, 1.1 * max(DISSOLVE_S))
        while self._recent[0].is_decided:
            is_old = len(self._recent) > 4 and now_s - self._recent[0].time_s > longest_s
            if not is_old and len(self._recent) <= LOOKAHEAD_FRAMES:
                return
            self._recent.popleft()

    def _report(self, recent: _RecentFrame, kind: CutKind) -> None:
        """Note that a shot begins with this frame."""
        self.cuts[recent.frame] = kind
        if recent.image is None:
            self.late.append(recent.frame)

    def _pass_on(self) -> Iterator[tuple[Frame, bool]]:
        """Yield the frames before the first one that may still be a cut or the end of a fade
        through black.
        """
        for recent in self._recent:
            if not recent.is_decided and recent.before is not None and recent.score >= CUT_SCORE:
                return
            if recent.image is not None:
                image = recent.image
                recent.image = None
                yield image, image.index in (self._first, *self.cuts)

    def _add(self, frame: Frame) -> _RecentFrame:
        """Score the next frame against the last one with structure."""
        grey = thumbnail(frame.rgb)
        np.maximum(self._brightest, grey, out=self._brightest)
        recent = _RecentFrame(frame.index, float(frame.time_s), grey, float(grey.std()), frame)
        if recent.contrast < LEAST_CONTRAST:
            self._blank = True
        else:
            if self._reference is not None:
                recent.before = self._reference
                recent.after_blank = self._blank
                recent.score = self._compare(self._reference, grey)
            self._reference = grey
            self._blank = False
        self._recent.append(recent)
        return recent

    def _decide(self, now_s: float) -> None:
        """Decide on every frame that was followed by enough others."""
        undecided = [recent for recent in self._recent if not recent.is_decided]
        while undecided:
            recent, *after = undecided
            has_waited = now_s - recent.time_s > FLASH_S or len(after) >= FLASH_FRAMES
            if now_s != np.inf and not (len(after) >= 2 and has_waited):
                break
            recent.is_decided = True
            undecided = after
            if self._is_cut(recent, after):
                recent.is_start = True
                self._report(recent, "fade" if recent.after_blank else "cut")

    def _is_cut(self, recent: _RecentFrame, after: list[_RecentFrame]) -> bool:
        """Return whether a shot begins with this frame; `after` are the frames after it."""
        if recent.before is None or recent.score < CUT_SCORE:
            return False
        if not recent.after_blank and recent.score < ABOVE_LEVEL + self._level(recent, after):
            return False
        soon = [
            later
            for number, later in enumerate(after)
            if self._is_within_flash(number, later.time_s - recent.time_s)
        ]
        returned = next(
            (later for later in soon if self._is_same_view(recent.before, later.grey)), None
        )
        if returned is not None:
            for later in after:  # the flash's own end is no cut either
                if later.time_s <= returned.time_s:
                    later.before = None
            return False
        # A flash that only hides the bright parts is noticed at its end: the view is the same as
        # before it.
        past = [earlier for earlier in self._recent if earlier.time_s < recent.time_s][-2::-1]
        return not any(
            self._is_within_flash(number, recent.time_s - earlier.time_s)
            and self._is_same_view(earlier.grey, recent.grey)
            for number, earlier in enumerate(past)
        )

    def _is_within_flash(self, frames: int, distance_s: float) -> bool:
        """Return whether a frame that is this many frames and seconds away may lie within the same
        flash.
        """
        return frames == 0 or (frames < FLASH_FRAMES and distance_s <= FLASH_S)

    def _is_same_view(self, before: np.ndarray, after: np.ndarray) -> bool:
        """Return whether two frames show the same view."""
        has_structure = min(before.std(), after.std()) >= LEAST_CONTRAST
        return has_structure and self._compare(before, after) < SAME_SCORE

    def _level(self, recent: _RecentFrame, after: list[_RecentFrame]) -> float:
        """Return the score of the frames around this one, which is high in fast motion."""
        place = next(number for number, other in enumerate(self._recent) if other is recent)
        earlier = list(self._recent)[max(0, place - 3) : place]
        before = [other.score for other in earlier if not other.is_start]
        level_before = float(np.median(before)) if before else 0.0
        level_after = min((later.score for later in after[:2]), default=0.0)
        return max(level_before, level_after)

    def _find_soft_cut(self, last: _RecentFrame) -> None:
        """Report a fade or dissolve that ends with this frame."""
        if last.before is None:
            return
        for length_s in DISSOLVE_S:
            window = [r for r in self._recent if last.time_s - r.time_s <= length_s + 1e-6]
            if len(window) < 5 or last.time_s - window[0].time_s < 0.75 * length_s:
                continue
            if any(r.is_start or r.score > CUT_SCORE for r in window[1:]):
                continue
            for kind, find in (("dissolve", self._find_dissolve), ("fade", self._find_fade)):
                if (ends := find(window)) is None:
                    continue
                before, middle, after = ends
                if self._compare(before.grey, after.grey) >= DISSOLVE_SCORE:
                    for r in self._recent:  # one transition is reported once
                        r.is_start = r.is_start or middle.time_s <= r.time_s
                    self._report(middle, kind)  # type: ignore[arg-type]
                    return

    def _find_fade(self, window: list[_RecentFrame]) -> _Transition | None:
        """Return the last frame before, the darkest frame of, and the first frame after a fade out
        and in; None if the window has none.
        """
        contrast = np.array([recent.contrast for recent in window])
        darkest = int(contrast.argmin())
        clear = np.flatnonzero(contrast >= FADED * min(contrast[0], contrast[-1]))
        if darkest in clear:
            return None
        last_before = clear[clear < darkest][-1]
        first_after = clear[clear > darkest][0]
        return window[last_before], window[darkest], window[first_after]

    def _find_dissolve(self, window: list[_RecentFrame]) -> _Transition | None:
        """Return the first, the middle and the last frame of a dissolve from the window's first
        frame to its last; None if it is none.
        """
        a = window[0].grey - window[0].grey.mean()
        b = window[-1].grey - window[-1].grey.mean()
        saa = float((a * a).mean())
        sbb = float((b * b).mean())
        sab = float((a * b).mean())
        if min(saa, sbb) < (2 * LEAST_CONTRAST) ** 2 or sab > 0.7 * np.sqrt(saa * sbb):
            return None

        def fit_blend(frames: list[_RecentFrame]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
            """Fit each frame by a weighted sum of the two ends (least squares); return both weights
            and the share of the variance that they explain.
            """
            between = np.stack([recent.grey for recent in frames])
            between = between - between.mean((1, 2), keepdims=True)
            ma, mb, mm = ((between * image).mean((1, 2)) for image in (a, b, between))
            determinant = saa * sbb - sab**2
            share_a = (sbb * ma - sab * mb) / determinant
            share_b = (saa * mb - sab * ma) / determinant
            return share_a, share_b, (share_a * ma + share_b * mb) / np.maximum(mm, 1e-6)

        # One frame is cheap to fit and rules out nearly all windows.
        if fit_blend(window[len(window) // 2 :][:1])[2][0] < DISSOLVE_FIT:
            return None
        share_a, share_b, explained = fit_blend(window[1:-1])
        share = share_b / np.maximum(share_a + share_b, 1e-6)
        is_mixed = (share > 0.25) & (share < 0.75)
        is_steady = np.diff(share).min() > -0.1 and np.abs(share_a + share_b - 1).max() < 0.35
        if is_mixed.sum() < 2 or explained.min() < DISSOLVE_FIT or not is_steady or share[-1] < 0.5:
            return None
        return window[0], window[1 + int(np.argmax(share >= 0.5))], window[-1]

    def _compare(self, before: np.ndarray, after: np.ndarray) -> float:
        """Return `new_structure` within the bars; 0 without computing it for frames that hardly
        differ.
        """
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
    """Return the rows and columns that are not black bars; None if there are no bars, or nothing
    else.
    """
    level = min(level, 0.2 * float(brightest.max()))  # a dark video has dark parts
    rows = np.flatnonzero(brightest.max(1) > level)
    columns = np.flatnonzero(brightest.max(0) > level)
    if len(rows) < 8 or len(columns) < 8 or (len(rows), len(columns)) == brightest.shape:
        return None
    if len(rows) > SIZE_PX[1] - 3 and len(columns) > SIZE_PX[0] - 3:
        return None  # a dark edge
    return slice(rows[0], rows[-1] + 1), slice(columns[0], columns[-1] + 1)
