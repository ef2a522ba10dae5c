"""A server on this machine that answers as the Hugging Face hub does, as far as `pose2d.hub` asks."""

import hashlib
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

REVISION = "0123456789abcdef0123456789abcdef01234567"


@dataclass
class FakeHub:
    """What it offers, how it misbehaves, and what it was asked for."""

    content: bytes
    licence: str = "apache-2.0"
    sha256: str = ""  # what it states; empty: the truth
    break_off_after: list[int] = field(
        default_factory=list
    )  # bytes of the next answers, in order; then all of them
    knows_parts: bool = True
    asked: list[str] = field(default_factory=list)  # "api", or the Range of a download
    address: str = ""
    # Replaces the answer about a repository by another, which JSON can hold
    change: Callable[[dict[str, Any]], Any] = lambda facts: facts

    def about(self, repository: str) -> bytes:
        lfs = {
            "sha256": self.sha256 or hashlib.sha256(self.content).hexdigest(),
            "size": len(self.content),
        }
        file = {
            "rfilename": "model.safetensors",
            "size": len(self.content),
            "blobId": "b",
            "lfs": {**lfs, "pointerSize": 1},
        }
        facts = {
            "_id": "1",
            "id": repository,
            "sha": REVISION,
            "private": False,
            "tags": [f"license:{self.licence}", "vitpose"],
            "siblings": [{"rfilename": "README.md"}, file],
        }
        return json.dumps(self.change(facts)).encode()


@contextmanager
def serving(hub: FakeHub) -> Iterator[FakeHub]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path.startswith("/api/models/"):
                hub.asked.append("api")
                self._answer(200, hub.about(self.path.removeprefix("/api/models/").split("?")[0]))
                return
            if "/resolve/" not in self.path:
                self._answer(404, b"{}")
                return
            wanted = self.headers.get("Range", "")
            hub.asked.append(wanted)
            start = (
                int(wanted.removeprefix("bytes=").removesuffix("-"))
                if wanted and hub.knows_parts
                else 0
            )
            rest = hub.content[start:]
            self._answer(
                206 if start else 200,
                rest,
                hub.break_off_after.pop(0) if hub.break_off_after else len(rest),
            )

        def _answer(self, status: int, body: bytes, sent: int | None = None) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body[:sent])

        def log_message(self, format: str, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    hub.address = f"http://127.0.0.1:{server.server_port}"
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
