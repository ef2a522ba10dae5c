"""What a user should know of a finished run, besides its numbers."""

from fitmesh.result import Result
from fitmesh.stages.people import read_tracks


def warnings_of(result: Result) -> list[str]:
    """About the video, and about people who were not found."""
    seen = read_tracks(result.folder)
    nobody = (
        f"nobody was found in {len(seen.frames)} frames. Try a larger --detector-size (640) if people are small, a "
        "smaller one (256) for close-ups that show only a part of somebody, or a lower --min-score."
    )
    return [*seen.warnings, *([] if seen.tracks else [nobody])]
