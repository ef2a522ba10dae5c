"""The viewer's server: what it serves, and what it refuses."""

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fitmesh.exports import EXPORTERS
from fitmesh.exports.scene import foot_points, scene_frame
from fitmesh.loading import load
from fitmesh.result import Result
from fitmesh.ui.events import Reporter
from fitmesh.viewer.data import footprints, viewer_data
from fitmesh.viewer.server import PAGE, ViewerServer, serve
from pose2d.base.errors import UserError
from tests.fitmesh.conftest import Fitmesh
from tests.fitmesh.walkers import in_world, walkers

VIDEO = bytes(range(256)) * 40


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Result:
    folder = tmp_path_factory.mktemp("view") / "out"
    folder.mkdir()
    result = walkers(folder, frames=8)
    EXPORTERS["glb"].write(result, folder, Reporter())
    (folder / "overlay.mp4").write_bytes(VIDEO)
    (folder / "secret.txt").write_text("secret")
    (folder.parent / "outside.txt").write_text("secret")
    return result


@pytest.fixture(scope="module")
def server(result: Result) -> Iterator[ViewerServer]:
    server = serve(result)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def ask(
    server: ViewerServer, path: str, headers: dict[str, str] | None = None, method: str = "GET"
) -> tuple[int, bytes, dict[str, str]]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10)
    connection.putrequest(method, path, skip_host="Host" in (headers or {}))
    for name, value in (headers or {}).items():
        connection.putheader(name, value)
    connection.endheaders()
    answer = connection.getresponse()
    data = answer.read()
    connection.close()
    return answer.status, data, dict(answer.getheaders())


def test_it_listens_on_the_loopback_address_only(server: ViewerServer) -> None:
    assert server.server_address[0] == "127.0.0.1"
    assert server.url == f"http://127.0.0.1:{server.server_port}/"


def test_it_serves_the_page_and_every_file_of_the_page(server: ViewerServer) -> None:
    status, page, headers = ask(server, "/")
    assert status == 200
    assert headers["Content-Type"].startswith("text/html")
    wanted = re.findall(rb'(?:src|href)="/?([^"]+)"', page)
    wanted += re.findall(rb'": "/([^"]+)"', page)  # the import map
    scripts = [path for path in PAGE.glob("*.js")]
    wanted += [
        name for script in scripts for name in re.findall(rb"from '/([^']+)'", script.read_bytes())
    ]
    assert b"three/three.module.min.js" in wanted
    for name in set(wanted) - {b"report.html"}:
        assert ask(server, "/" + name.decode())[0] == 200, name


def test_the_page_loads_nothing_from_elsewhere() -> None:
    for path in PAGE.glob("*"):
        if path.suffix in (".html", ".js", ".css"):
            text = path.read_text()
            assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", text), path.name


def test_every_element_that_the_scripts_use_is_in_the_page_once() -> None:
    ids = re.findall(r'\bid="([^"]+)"', (PAGE / "index.html").read_text())
    used = {
        name
        for path in PAGE.glob("*.js")
        for name in re.findall(r"\$\('([^']+)'\)", path.read_text())
    }
    styled = set(re.findall(r"#([a-z][\w-]*)(?=[^;{}]*\{)", (PAGE / "viewer.css").read_text()))
    assert len(ids) == len(set(ids))
    assert used
    assert used | styled <= set(ids)


def test_three_comes_with_its_licence() -> None:
    assert "MIT" in (PAGE / "three" / "LICENSE").read_text()


@pytest.mark.parametrize(
    "path",
    [
        "/secret.txt",
        "/../outside.txt",
        "/%2e%2e/outside.txt",
        "//etc/passwd",
        "/three/../../server.py",
        "/three/..%2f..%2fserver.py",
        "/fit.npz",
        "/run.json",
        "/../server.py",
        "/overlay.mp4/../secret.txt",
        "/.",
        "*",
    ],
)
def test_every_other_path_is_refused(server: ViewerServer, path: str) -> None:
    status, data, _ = ask(server, path)
    assert status == 404
    assert b"secret" not in data


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "127.0.0.1", "127.0.0.1:1", "", "localhost.evil:1"]
)
def test_another_host_header_is_refused(server: ViewerServer, host: str) -> None:
    assert ask(server, "/meta.json", {"Host": host})[0] == 403


def test_localhost_is_a_valid_host_header(server: ViewerServer) -> None:
    assert ask(server, "/meta.json", {"Host": f"localhost:{server.server_port}"})[0] == 200


def test_only_get_and_head_are_allowed(server: ViewerServer) -> None:
    for method in ("POST", "PUT", "DELETE", "OPTIONS"):
        assert ask(server, "/overlay.mp4", method=method)[0] == 501


def test_only_the_page_of_this_server_may_correct_identities(
    fitmesh: Fitmesh, walk: tuple, tmp_path: Path
) -> None:
    assert fitmesh("run", *walk, "--out", tmp_path) == 0
    server = serve(load(tmp_path))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    token = json.loads(ask(server, "/meta.json")[1])["edit_token"]
    drop = b'{"drop": [1]}'

    def post(body: bytes, **headers: str) -> int:
        connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10)
        connection.request("POST", "/edit", body, headers)
        status = connection.getresponse().status
        connection.close()
        return status

    own = {"X-Fitmesh-Token": token}
    assert post(drop) == post(drop, **{"X-Fitmesh-Token": "guess"}) == 403
    assert post(drop, Host="evil.example", **own) == 403
    assert post(b"x" * 5000, **own) == 413
    for nonsense in (b"", b"[", b"[" * 3000, b'{"drop": ["1"]}', b'{"drop": [1], "undo": true}'):
        assert post(nonsense, **own) == 400
    assert not (tmp_path / "tracks_edits.json").exists()
    assert post(drop, **own) == 200
    assert json.loads((tmp_path / "tracks_edits.json").read_text())["edits"] == [{"drop": 1}]
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(
    ("asked", "first", "end"),
    [
        ("bytes=0-", 0, 10240),
        ("bytes=100-199", 100, 200),
        ("bytes=10000-99999", 10000, 10240),
        ("bytes=-40", 10200, 10240),
    ],
)
def test_byte_ranges_of_a_video_are_served(
    server: ViewerServer, asked: str, first: int, end: int
) -> None:
    status, data, headers = ask(server, "/overlay.mp4", {"Range": asked})
    assert status == 206
    assert data == VIDEO[first:end]
    assert headers["Content-Range"] == f"bytes {first}-{end - 1}/{len(VIDEO)}"
    assert headers["Accept-Ranges"] == "bytes"


@pytest.mark.parametrize(
    "asked", ["bytes=10240-", "bytes=20-10", "bytes=-", "bytes=-0", "lines=1-2", "bytes=0-1,5-6"]
)
def test_byte_ranges_that_do_not_exist_are_refused(server: ViewerServer, asked: str) -> None:
    status, _, headers = ask(server, "/overlay.mp4", {"Range": asked})
    assert status == 416
    assert headers["Content-Range"] == f"bytes */{len(VIDEO)}"


def test_head_sends_the_size_without_a_body(server: ViewerServer) -> None:
    status, data, headers = ask(server, "/overlay.mp4", method="HEAD")
    assert (status, data, headers["Content-Length"]) == (200, b"", str(len(VIDEO)))


def test_the_page_may_run_nothing_but_its_own_scripts(server: ViewerServer) -> None:
    policy = ask(server, "/")[2]["Content-Security-Policy"]
    assert "unsafe" not in policy
    assert "default-src 'self'" in policy


def test_the_numbers_the_page_gets_are_those_of_the_result(result: Result) -> None:
    meta_json, values = viewer_data(result)
    meta = json.loads(meta_json)
    numbers = np.frombuffer(values, "<f4")

    def array(person: int, name: str) -> np.ndarray:
        entry = meta["people"][person]["arrays"][name]
        size = int(np.prod(entry["shape"]))
        return numbers[entry["first"] : entry["first"] + size].reshape(entry["shape"])

    late = result.people[1]
    assert [person["identity"] for person in meta["people"]] == [1, 4]
    assert meta["frames"][meta["people"][1]["first"]] == late.frame[0]
    np.testing.assert_allclose(
        array(1, "joints_m"), scene_frame(result).points(late.joints_m, late.frame), atol=1e-5
    )
    np.testing.assert_array_equal(array(1, "relative_mm"), late.joint_std_relative_mm)
    assert np.isnan(array(1, "absolute_mm")[~late.observed]).all()
    assert meta["time_s"][0] == 0
    assert meta["scale_mm"]["absolute"] > meta["scale_mm"]["relative"] > 0


def test_no_people_and_unknown_uncertainty_can_be_viewed(result: Result) -> None:
    nobody = json.loads(viewer_data(replace(result, people=[]))[0])
    assert nobody["people"] == []
    unknown = [
        replace(
            person,
            joint_std_mm=np.full((len(person), 24), np.nan),
            joint_std_relative_mm=np.full((len(person), 24), np.nan),
        )
        for person in result.people
    ]
    meta = json.loads(viewer_data(replace(result, people=unknown))[0])
    assert meta["scale_mm"] == {"relative": None, "absolute": None}


def test_a_port_in_use_is_a_user_error(result: Result, server: ViewerServer) -> None:
    with pytest.raises(UserError, match="--port"):
        serve(result, server.server_port)


def test_a_folder_without_a_scene_is_a_user_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"scene\.glb"):
        serve(walkers(tmp_path, frames=1))


@pytest.mark.parametrize("stopped", [True, False])
def test_a_connection_that_stopping_closes_is_no_error(
    result: Result, stopped: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    ours, theirs = socket.socketpair()
    with theirs, ours, serve(result) as server:
        if stopped:
            ours.close()
        try:
            raise ValueError("read of a closed file")
        except ValueError:
            server.handle_error(ours, ("127.0.0.1", 1))
    assert ("read of a closed file" in capsys.readouterr().err) is not stopped


@pytest.mark.slow
def test_the_command_says_where_and_stops_on_ctrl_c(result: Result, tmp_path: Path) -> None:
    """The command itself, as a process: `fit.npz` stands in for a run's."""
    script = (
        "import signal, sys, fitmesh.loading, pathlib\n"
        # whoever starts the tests may ignore it
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from tests.fitmesh.walkers import in_world, walkers\n"
        f"fitmesh.loading.load = lambda out: walkers(pathlib.Path({str(result.folder)!r}), frames=8)\n"
        "from fitmesh.cli import main\n"
        "sys.argv = ['fitmesh', 'view', 'out', '--no-browser']\n"
        "main()\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script],
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        match = re.search(r"http://127\.0\.0\.1:(\d+)/", line)
        assert match, line
        with socket.create_connection(("127.0.0.1", int(match.group(1))), timeout=10):
            pass
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=20)
    finally:
        process.kill()
    assert (process.returncode, out.strip(), err) == (0, "Stopped.", "")


@pytest.mark.parametrize(
    "header", ["bytes=" + "9" * 5000 + "-", "bytes=-" + "9" * 5000, "bytes=0-" + "9" * 40]
)
def test_a_range_of_thousands_of_digits_is_refused(server: ViewerServer, header: str) -> None:
    assert ask(server, "/scene.glb", {"Range": header})[0] == 416


def test_a_link_out_of_the_folder_is_not_served(
    result: Result, server: ViewerServer, tmp_path: Path
) -> None:
    (tmp_path / "secret.mp4").write_bytes(b"secret")
    result.overlay_path.unlink()
    result.overlay_path.symlink_to(tmp_path / "secret.mp4")
    try:
        status, body, _ = ask(server, "/overlay.mp4")
        assert (status, b"secret" in body) == (403, False)
    finally:
        result.overlay_path.unlink()
        result.overlay_path.write_bytes(VIDEO)


def test_a_report_of_somebody_else_runs_alone(result: Result) -> None:
    report = result.folder / "report.html"
    report.write_text("<script>fetch('/meta.json')</script>")
    try:
        with serve(result) as other:
            threading.Thread(target=other.serve_forever, daemon=True).start()
            address = next(url for url in other.contents if url.endswith("/report.html"))
            policy = ask(other, address)[2]["Content-Security-Policy"]
            other.shutdown()
    finally:
        report.unlink()
    assert "default-src 'none'" in policy
    assert "sandbox allow-scripts" in policy


def test_two_hundred_requests_at_once_are_all_answered(server: ViewerServer) -> None:
    with ThreadPoolExecutor(200) as pool:
        answers = list(pool.map(lambda _: ask(server, "/meta.json")[0], range(200)))
    assert answers == [200] * 200


def test_a_connection_that_says_nothing_is_closed(
    server: ViewerServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server.RequestHandlerClass, "timeout", 0.2)
    with socket.create_connection(("127.0.0.1", server.server_port), 10) as half_open:
        half_open.sendall(b"GET /meta.json HTT")
        assert half_open.recv(100) == b""


def test_every_stance_leaves_one_footprint_where_the_foot_stood(tmp_path: Path) -> None:
    result = in_world(walkers(tmp_path, frames=12))
    contact = np.zeros((12, 4), np.float32)
    contact[2:6, 0], contact[4:7, 1] = (
        0.9,
        0.8,
    )  # the left foot: heel first, then it rolls onto the toes
    contact[9:12, 3] = 0.6  # the right foot: toes only, until the end
    person = replace(result.people[0], contact=contact)
    scene = scene_frame(result)
    places = foot_points(result, person, scene)
    left, right = footprints(result, person, scene)
    assert [(one["left"], one["first"], one["last"]) for one in (left, right)] == [
        (True, 2, 6),
        (False, 9, 11),
    ]
    np.testing.assert_allclose(
        left["heel_m"], np.median(places[2:6, 0], 0), atol=5.1e-5
    )  # rounded to 0.1 mm
    np.testing.assert_allclose(left["toes_m"], np.median(places[4:7, 1], 0), atol=5.1e-5)
    np.testing.assert_allclose(right["toes_m"], np.median(places[9:12, 3], 0), atol=5.1e-5)
    np.testing.assert_allclose(right["heel_m"], np.median(places[9:12, 2], 0), atol=5.1e-5)
    meta = json.loads(viewer_data(replace(result, people=[person]))[0])
    assert [(print_["first"], print_["last"]) for print_ in meta["people"][0]["footprints"]] == [
        (2, 6),
        (9, 11),
    ]
    assert meta["shots"][0]["upright"] is True
    assert "camera 1.40 m high" in meta["shots"][0]["about"]


def test_without_gravity_there_are_no_footprints(result: Result) -> None:
    person = replace(result.people[0], contact=np.ones((len(result.people[0]), 4), np.float32))
    assert footprints(result, person, scene_frame(result)) == []
    assert "gravity not known" in json.loads(viewer_data(result)[0])["shots"][0]["about"]


def test_the_page_has_the_motion_of_the_scene(result: Result) -> None:
    """Of a run that exported in place, joints lie in the meshes that stay over the origin."""
    moved = replace(result, settings={"export_fps": 24.0, "smooth": 0.0, "in_place": True})
    meta_json, values = viewer_data(moved)
    at = json.loads(meta_json)["people"][0]["arrays"]["joints_m"]
    joints = np.frombuffer(values, "<f4")[at["first"] :][: np.prod(at["shape"])].reshape(
        at["shape"]
    )
    np.testing.assert_allclose(joints[:, 0, [0, 2]], 0, atol=2e-3)
    for damaged in ({}, {"smooth": "a"}, {"smooth": 9, "in_place": 1}):
        assert viewer_data(replace(result, settings=damaged))[1] == viewer_data(result)[1]


def test_a_second_host_header_is_refused(server: ViewerServer) -> None:
    own = f"Host: 127.0.0.1:{server.server_port}\r\n"
    for other in ("Host: example.org\r\n", own):
        with socket.create_connection(("127.0.0.1", server.server_port), 10) as connection:
            connection.sendall(f"GET /meta.json HTTP/1.1\r\n{own}{other}\r\n".encode())
            assert connection.recv(100).startswith(b"HTTP/1.1 403 ")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_or_a_folder_in_place_of_a_file_is_not_found(
    result: Result, server: ViewerServer
) -> None:
    overlay = result.overlay_path
    for put, remove in ((os.mkfifo, os.unlink), (os.mkdir, os.rmdir)):
        overlay.unlink()
        put(overlay)
        try:
            assert ask(server, "/overlay.mp4")[0] == 404
        finally:
            remove(overlay)
            overlay.write_bytes(VIDEO)
