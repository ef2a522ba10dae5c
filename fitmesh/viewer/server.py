"""A web server for one result, on the loopback address only.

It serves a fixed list of URLs: nothing in a request is ever made into a path. A page of another
site could still make the user's browser send requests here (DNS rebinding), so the Host header must
be the server's own address."""

import base64
import hashlib
import os
import re
import secrets
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path
from socketserver import BaseServer
from typing import Any, BinaryIO

from fitmesh.result import Result
from fitmesh.viewer.data import viewer_data
from fitmesh.viewer.edits import MOST_BYTES, apply_request, can_edit, edits_of
from pose2d.base.errors import UserError
from pose2d.base.files import open_regular

LOOPBACK = "127.0.0.1"
PAGE = Path(__file__).parent / "page"
_BLOCK = 1 << 18  # bytes sent at once
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".glb": "model/gltf-binary",
    ".mp4": "video/mp4",
}
# No file has so many bytes that a position needs more digits.
_RANGE = re.compile(r"bytes=([0-9]{0,18})-([0-9]{0,18})")
# A report may come from another person: it runs in a sandbox, loads the overlay beside it and sees
# nothing else of this server.
_REPORT_POLICY = (
    "default-src 'none'; img-src data:; media-src 'self'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; sandbox allow-scripts"
)
_INLINE_SCRIPT = re.compile(rb"<script type=\"importmap\">(.*?)</script>", re.DOTALL)


@dataclass(frozen=True)
class Content:
    """What one URL serves: bytes, or a file of the result that is read on request."""

    kind: str  # media type
    source: Path | bytes
    policy: str = ""  # Content-Security-Policy
    # Cross-Origin-Resource-Policy. "cross-origin" lets other pages embed it, if they know the URL.
    embedding: str = "same-origin"


class ViewerServer(ThreadingHTTPServer):
    """Serves one result. Its address is `url`."""

    daemon_threads = True  # a video that is still being sent does not delay the exit
    # Connections that may wait to be accepted; a browser opens a few, a test hundreds.
    request_queue_size = 512

    def __init__(
        self,
        contents: Mapping[str, Content],
        port: int,
        edited_folder: Path | None = None,
        edit_token: str = "",
    ) -> None:
        """edited_folder: where the page may correct identities; None: nowhere. Requests for it have
        the token, which only the page can read.
        """
        self.contents = contents
        self.edited_folder = edited_folder
        self.edit_token = edit_token
        self.edit_lock = threading.Lock()
        try:
            super().__init__((LOOPBACK, port), _Handler)
        except OSError as error:
            raise UserError(
                f"cannot listen on port {port}: {error.strerror}. Choose another with --port."
            ) from error
        self.hosts = {f"{name}:{self.server_port}" for name in (LOOPBACK, "localhost")}

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.server_port}/"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Report an error of a request, unless the connection was closed: browsers do so in the
        middle of videos, and Ctrl-C does so here.
        """
        closed_here = request.fileno() == -1
        if not closed_here and not isinstance(sys.exc_info()[1], ConnectionError | TimeoutError):
            super().handle_error(request, client_address)


def serve(result: Result, port: int = 0) -> ViewerServer:
    """Return a server that is bound to a port but does not run yet; port 0 takes a free one."""
    scene = result.folder / "scene.glb"
    if not scene.is_file():
        raise UserError(f"{scene} is missing. Run `fitmesh run` again: it makes missing files.")
    report = result.folder / "report.html"
    # To the browser, the sandbox of the report is another site. A secret folder keeps other sites
    # from embedding the overlay, as the report does.
    report_folder = f"/{secrets.token_urlsafe(16)}"
    report_url = f"{report_folder}/{report.name}" if report.is_file() else ""
    token = secrets.token_urlsafe(16)
    editing = None
    if can_edit(result):
        try:
            editing = {"edits": edits_of(result.folder), "edit_token": token}
        except UserError:
            editing = None  # tracks or edits are damaged: the result can still be viewed
    meta, values = viewer_data(result, report_url, editing)
    contents = {
        f"/{path.relative_to(PAGE).as_posix()}": Content(_TYPES[path.suffix], path.read_bytes())
        for path in PAGE.rglob("*")
        if path.suffix in _TYPES
    }
    page = (PAGE / "index.html").read_bytes()
    contents["/"] = Content(_TYPES[".html"], page, _policy(page))
    contents["/meta.json"] = Content(_TYPES[".json"], meta)
    contents["/values.bin"] = Content("application/octet-stream", values)
    contents[f"/{scene.name}"] = Content(_TYPES[".glb"], scene)
    overlay = result.overlay_path
    if overlay.is_file():
        contents[f"/{overlay.name}"] = Content(_TYPES[".mp4"], overlay)
    if report_url:
        contents[report_url] = Content(_TYPES[".html"], report, _REPORT_POLICY)
        contents[f"{report_folder}/{overlay.name}"] = Content(
            _TYPES[".mp4"], overlay, embedding="cross-origin"
        )
    return ViewerServer(contents, port, result.folder if editing else None, token)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 30  # seconds without a byte: a connection that was never closed ends here
    server_version = "fitmesh"
    sys_version = ""
    server: BaseServer

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def do_POST(self) -> None:
        """Correct identities, if the page of this server asks for it."""
        server = self.server
        assert isinstance(server, ViewerServer)
        length = self.headers.get("Content-Length", "")
        self.close_connection = True  # a body that is refused is not read
        if self.headers.get("Host") not in server.hosts:
            return self._refuse(HTTPStatus.FORBIDDEN)
        if self.path != "/edit" or server.edited_folder is None:
            return self._refuse(HTTPStatus.NOT_IMPLEMENTED)
        token = self.headers.get("X-Fitmesh-Token", "")
        if not secrets.compare_digest(token.encode(), server.edit_token.encode()):
            return self._refuse(HTTPStatus.FORBIDDEN)
        if not re.fullmatch("[0-9]{1,6}", length) or int(length) > MOST_BYTES:
            return self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        with server.edit_lock:
            status, answer = apply_request(server.edited_folder, self.rfile.read(int(length)))
        self._send_head(status, Content(_TYPES[".json"], answer), len(answer))
        self.wfile.write(answer)

    def _answer(self, with_body: bool) -> None:
        """Send the content of the URL, or a range of its bytes: browsers seek in videos so."""
        assert isinstance(self.server, ViewerServer)
        # A second Host header is refused too: programs differ in which of the two counts.
        hosts = self.headers.get_all("Host", [])
        if len(hosts) != 1 or hosts[0] not in self.server.hosts:
            return self._refuse(HTTPStatus.FORBIDDEN)
        content = self.server.contents.get(self.path.split("?")[0].split("#")[0])
        if content is None:
            return self._refuse(HTTPStatus.NOT_FOUND)
        try:
            file = _open_source(content.source)
        except PermissionError:
            return self._refuse(HTTPStatus.FORBIDDEN)
        except (
            OSError,
            RuntimeError,
        ):  # deleted, or replaced by a folder, a pipe, a circle of links
            return self._refuse(HTTPStatus.NOT_FOUND)
        with file:
            size = file.seek(0, os.SEEK_END)
            byte_range = _byte_range(self.headers.get("Range"), size)
            if byte_range is None:
                limits = {"Content-Range": f"bytes */{size}"}
                return self._refuse(HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE, limits)
            first, end = byte_range
            if "Range" in self.headers:
                headers = {"Content-Range": f"bytes {first}-{end - 1}/{size}"}
                self._send_head(HTTPStatus.PARTIAL_CONTENT, content, end - first, headers)
            else:
                self._send_head(HTTPStatus.OK, content, size)
            file.seek(first)
            unsent = end - first if with_body else 0
            while unsent > 0 and (block := file.read(min(_BLOCK, unsent))):
                self.wfile.write(block)
                unsent -= len(block)

    def _send_head(
        self,
        status: HTTPStatus,
        content: Content,
        length: int,
        extra: Mapping[str, str] | None = None,
    ) -> None:
        """Send the status line and headers; extra: headers besides those of every answer."""
        self.send_response(status)
        headers = {
            "Content-Type": content.kind,
            "Content-Length": str(length),
            "Accept-Ranges": "bytes",
            "Cache-Control": "no-store",
            "X-Content-Type-Options": "nosniff",
            "Cross-Origin-Resource-Policy": content.embedding,
            "Referrer-Policy": "no-referrer",
            **({"Content-Security-Policy": content.policy} if content.policy else {}),
            **(extra or {}),
        }
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def _refuse(self, status: HTTPStatus, extra: Mapping[str, str] | None = None) -> None:
        """Send an error as plain text."""
        data = f"{status.value} {status.phrase}\n".encode()
        self._send_head(status, Content("text/plain; charset=utf-8", b""), len(data), extra)
        if self.command != "HEAD":
            self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing: the terminal is for the user."""


def _open_source(source: Path | bytes) -> BinaryIO:
    """Open a content's bytes; PermissionError for a link that leads out of the file's folder."""
    if isinstance(source, bytes):
        return BytesIO(source)
    real = source.resolve(strict=True)
    if not real.is_relative_to(source.parent.resolve()):
        raise PermissionError(f"{source} leads out of its folder")
    return open_regular(real)


def _byte_range(header: str | None, size: int) -> tuple[int, int] | None:
    """Return the first byte and the end that a Range header asks for; None if the file has no such
    range.
    """
    if header is None:
        return 0, size
    match = _RANGE.fullmatch(header.strip())
    if match is None or match.group(0) == "bytes=-":
        return None
    first, last = match.groups()
    if not first:  # "bytes=-500": the last 500 bytes
        return (max(0, size - int(last)), size) if int(last) > 0 and size else None
    end = min(size, int(last) + 1) if last else size
    return (int(first), end) if int(first) < end else None


def _policy(page: bytes) -> str:
    """Return the page's Content-Security-Policy: everything comes from this server; the one inline
    script, the import map, is allowed by its digest.
    """
    match = _INLINE_SCRIPT.search(page)
    assert match is not None
    digest = base64.b64encode(hashlib.sha256(match.group(1)).digest()).decode()
    return (
        f"default-src 'self'; script-src 'self' 'sha256-{digest}'; img-src 'self' data:; "
        "frame-ancestors 'none'"
    )
