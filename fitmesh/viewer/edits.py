"""Corrections of identities from the viewer's page: what `fitmesh tracks` writes, by the same code."""

import json
from http import HTTPStatus
from pathlib import Path
from typing import Any

from fitmesh.result import Result
from fitmesh.stages.people import TRACKS_FILE, read_tracks
from fitmesh.tracks import edit_tracks, list_tracks, read_edits
from pose2d.base.errors import UserError

MOST_BYTES = 4096  # of a request
_EXPECTED = (
    'expected {"merge": [1, 4]}, {"split": [1, 4.5]} (seconds of the video), {"drop": [4]} or '
    '{"undo": true}'
)


def can_edit(result: Result) -> bool:
    """Say whether a result has tracks that belong to its people: those of several cameras do not."""
    return (result.folder / TRACKS_FILE).is_file() and not result.views


def edits_of(folder: Path) -> dict[str, Any]:
    """Return the edits of a folder in words, and the people after them."""
    people = [
        {"identity": person.identity, "start_s": person.start_s, "end_s": person.end_s}
        for person in list_tracks(folder)
    ]
    return {"edits": list(map(str, read_edits(folder, read_tracks(folder)))), "people": people}


def apply_request(folder: Path, body: bytes) -> tuple[HTTPStatus, bytes]:
    """Apply the edit that a request asks for, and return the status and JSON to answer with."""
    try:
        edit_tracks(folder, **_parse(body))
        status = HTTPStatus.OK
        answer = edits_of(folder)
    except UserError as error:
        status = HTTPStatus.BAD_REQUEST
        answer = {"error": str(error)}
    return status, json.dumps(answer).encode()


def _parse(body: bytes) -> dict[str, Any]:
    """Return the arguments of `edit_tracks`; UserError if the request has another form."""
    try:
        request = json.loads(body)
    except (ValueError, RecursionError):
        request = None
    match request:
        case {"merge": [*people]} if len(request) == 1 and all(map(_is_identity, people)):
            return {"merge": [people]}
        case {"split": [identity, int() | float() as time_s]} if (
            len(request) == 1 and _is_identity(identity) and not isinstance(time_s, bool)
        ):
            return {"split": [(identity, float(time_s))]}
        case {"drop": [*people]} if len(request) == 1 and all(map(_is_identity, people)):
            return {"drop": people}
        case {"undo": True} if len(request) == 1:
            return {"undo": 1}
    raise UserError(f"the request is no edit: {_EXPECTED}.")


def _is_identity(value: Any) -> bool:
    """Say whether a value can be the number of a person."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value < 10**9
