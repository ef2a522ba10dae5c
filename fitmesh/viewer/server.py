"""A web server for one result, on the loopback address only.

It serves a fixed list of URLs: nothing in a request is ever made into a path. A page of another
site could still make the user's browser send requests here (DNS rebinding), so the Host header must
be the server's own address."""

import base64
import hashlib
import os
import re
import sys
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
from pose2d.base.errors import UserError

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
_RANGE = re.compile(
    r"bytes=([0-9]{0,18})-([0-9]{0,18})"
)  # more digits than any file has bytes are no range
# A report may come from somebody else: it runs alone, loads nothing and sees nothing of this
# server.
_REPORT_POLICY = (
    "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; sandbox allow-scripts"
)
_INLINE_SCRIPT = re.compile(rb"<script type=\"importmap\">(.*?)</script>", re.DOTALL)


@dataclass(frozen=True)
class Content:
    """What one URL serves: bytes, or a file of the result that is read on request."""

    kind: str  # media type
    source: Path | bytes
    policy: str = ""  # Content-Security-Policy


class ViewerServer(ThreadingHTTPServer):
    """Serves one result. Its address is `url`."""

    daemon_threads = True  # a video that is still being sent does not delay the exit
    request_queue_size = (
        512  # connections that wait to be accepted; a browser opens a handful, a test hundreds
    )

    def __init__(self, contents: Mapping[str, Content], port: int) -> None:
        self.contents = contents
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
        """Browsers close connections in the middle of videos, and Ctrl-C closes them here: neither
        is an error.
        """
        closed_here = request.fileno() == -1
        if not closed_here and not isinstance(sys.exc_info()[1], ConnectionError | TimeoutError):
            super().handle_error(request, client_address)


def serve(result: Result, port: int = 0) -> ViewerServer:
    """A server that is bound but does not run yet; port 0 takes a free one."""
    scene = result.folder / "scene.glb"
    if not scene.is_file():
        raise UserError(f"{scene} is not there. Run `fitmesh run` again: it makes missing files.")
    meta, values = viewer_data(result)
    contents = {
        f"/{path.relative_to(PAGE).as_posix()}": Content(_TYPES[path.suffix], path.read_bytes())
        for path in PAGE.rglob("*")
        if path.suffix in _TYPES
    }
    page = (PAGE / "index.html").read_bytes()
    contents["/"] = Content(_TYPES[".html"], page, _policy(page))
    contents["/meta.json"] = Content(_TYPES[".json"], meta)
    contents["/values.bin"] = Content("application/octet-stream", values)
    for path in (scene, result.overlay_path, result.folder / "report.html"):
        if path.is_file():
            policy = _REPORT_POLICY if path.suffix == ".html" else ""
            contents[f"/{path.name}"] = Content(_TYPES[path.suffix], path, policy)
    return ViewerServer(contents, port)


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

    def _answer(self, with_body: bool) -> None:
        """What was asked for, or a part of it: browsers seek in videos by asking for ranges of
        bytes.
        """
        assert isinstance(self.server, ViewerServer)
        if self.headers.get("Host") not in self.server.hosts:
            return self._refuse(HTTPStatus.FORBIDDEN)
        content = self.server.contents.get(self.path.split("?")[0].split("#")[0])
        if content is None:
            return self._refuse(HTTPStatus.NOT_FOUND)
        file: BinaryIO
        if isinstance(content.source, bytes):
            file = BytesIO(content.source)
        else:
            try:
                real = content.source.resolve(strict=True)
                if not real.is_relative_to(content.source.parent.resolve()):
                    return self._refuse(HTTPStatus.FORBIDDEN)  # a link out of the folder
                file = real.open("rb")
            except OSError:  # it was deleted meanwhile
                return self._refuse(HTTPStatus.NOT_FOUND)
        with file:
            size = file.seek(0, os.SEEK_END)
            part = _part(self.headers.get("Range"), size)
            if part is None:
                return self._refuse(
                    HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE, {"Content-Range": f"bytes */{size}"}
                )
            first, end = part
            whole = "Range" not in self.headers
            extra = {} if whole else {"Content-Range": f"bytes {first}-{end - 1}/{size}"}
            self._head(
                HTTPStatus.OK if whole else HTTPStatus.PARTIAL_CONTENT, content, end - first, extra
            )
            file.seek(first)
            left = end - first if with_body else 0
            while left > 0 and (block := file.read(min(_BLOCK, left))):
                self.wfile.write(block)
                left -= len(block)

    def _head(
        self,
        status: HTTPStatus,
        content: Content,
        length: int,
        extra: Mapping[str, str] | None = None,
    ) -> None:
        self.send_response(status)
        headers = {
            "Content-Type": content.kind,
            "Content-Length": str(length),
            "Accept-Ranges": "bytes",
            "Cache-Control": "no-store",
            "X-Content-Type-Options": "nosniff",
            "Cross-Origin-Resource-Policy": "same-origin",
            "Referrer-Policy": "no-referrer",
            **({"Content-Security-Policy": content.policy} if content.policy else {}),
            **(extra or {}),
        }
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def _refuse(self, status: HTTPStatus, extra: Mapping[str, str] | None = None) -> None:
        data = f"{status.value} {status.phrase}\n".encode()
        self._head(status, Content("text/plain; charset=utf-8", b""), len(data), extra)
        if self.command != "HEAD":
            self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """No log of requests: the terminal is for the user."""


def _part(header: str | None, size: int) -> tuple[int, int] | None:
    """First byte and end of what a Range header asks for; None when there is no such part."""
    if header is None:
        return 0, size
    match = _RANGE.fullmatch(header.strip())
    if match is None or match.group(0) == "bytes=-":
        return None
    first, last = match.groups()
    if not first:  # the last so many bytes
        return (max(0, size - int(last)), size) if int(last) > 0 and size else None
    end = min(size, int(last) + 1) if last else size
    return (int(first), end) if int(first) < end else None


def _policy(page: bytes) -> str:
    """Everything comes from this server; the one inline script, the import map, is allowed by its
    digest.
    """
    match = _INLINE_SCRIPT.search(page)
    assert match is not None
    digest = base64.b64encode(hashlib.sha256(match.group(1)).digest()).decode()
    return f"default-src 'self'; script-src 'self' 'sha256-{digest}'; img-src 'self' data:; frame-ancestors 'none'"
