"""Once for real: two Ray nodes with ports of their own, which share nothing but a store that speaks
S3.
"""

import csv
import io
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import fitmesh as package
from tests.fitmesh.many.conftest import RESULTS

EXAMPLE = Path(__file__).parents[3] / "examples" / "park.mp4"
CLIPS = ("one", "two")
pytestmark = pytest.mark.slow
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "any",
    "AWS_SECRET_ACCESS_KEY": "any",
    "AWS_DEFAULT_REGION": "us-east-1",
}


@pytest.fixture(scope="module")
def environment() -> Iterator[pytest.MonkeyPatch]:
    """What nodes and commands inherit."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("RAY_worker_niceness", "0")  # workers would starve beside other tests
        environment.setenv("PYTHONPATH", str(Path(__file__).parents[3]))
        yield environment


@pytest.fixture(scope="module")
def bucket(environment: pytest.MonkeyPatch) -> Iterator[Any]:
    """s3://bucket/in has two clips and a file that is none; the store answers at a port of this
    machine.
    """
    server = pytest.importorskip(
        "moto.server", reason="needs the package moto[server]"
    ).ThreadedMotoServer(port=0)
    s3fs = pytest.importorskip("s3fs", reason="needs the package s3fs")
    server.start()
    for name, value in {
        **CREDENTIALS,
        "AWS_ENDPOINT_URL": "http://{}:{}".format(*server.get_host_and_port()),
    }.items():
        environment.setenv(name, value)
    files = s3fs.S3FileSystem()
    files.mkdir("bucket")
    for name in CLIPS:
        files.put_file(str(EXAMPLE), f"bucket/in/{name}.mp4")
    files.pipe_file("bucket/in/none.mp4", b"no video" * 100)
    yield files
    server.stop()


@pytest.fixture(scope="module")
def nodes(environment: pytest.MonkeyPatch, bucket: Any) -> Iterator[str]:
    """The address of a head and one more node, with a core each."""
    pytest.importorskip("ray", reason="needs the package ray")
    from ray.cluster_utils import Cluster

    cluster = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False}
    )
    cluster.add_node(num_cpus=1)
    yield cluster.address
    cluster.shutdown()


def test_tasks_go_to_both_nodes(nodes: str, tmp_path: Path) -> None:
    work = f"""
from fitmesh.many.executors import RayExecutor
from tests.fitmesh.many import jobs
from pathlib import Path
cluster = RayExecutor({nodes!r}, 1)
print(cluster)
found = [one.result for one in cluster.map(jobs.meet, [(Path({str(tmp_path)!r}), n) for n in range(2)], print)]
print(len(set(found)), "nodes")
"""
    ended = subprocess.run([sys.executable, "-c", work], capture_output=True, text=True, check=True)
    assert ended.stdout.splitlines() == [
        "Ray with 2 cores on 2 machines, 1 for each clip",
        "2 nodes",
    ]


def test_clips_from_a_store_and_results_in_it_are_those_of_one_machine(
    nodes: str, bucket: Any, tmp_path: Path
) -> None:
    there = (
        "--videos",
        "s3://bucket/in/*.mp4",
        "--out",
        "s3://bucket/out",
        "--ray",
        nodes,
        "--end",
        "0.2",
    )

    def states() -> list[str]:
        ended = subprocess.run(
            [sys.executable, "-m", "fitmesh", "run", *there],
            capture_output=True,
            text=True,
            check=False,
        )
        assert ended.returncode == 3, ended.stderr  # none.mp4 is no video
        rows = csv.DictReader(io.StringIO(bucket.cat_file("bucket/out/summary.csv").decode()))
        return [row["state"] for row in sorted(rows, key=lambda row: row["clip"])]

    assert states() == ["failed", "done", "done"]
    package.run(EXAMPLE, tmp_path, end_s=0.2)
    assert package.load(tmp_path).people
    for clip in CLIPS:
        for name in RESULTS[:-1]:
            assert bucket.cat_file(f"bucket/out/{clip}/{name}") == (tmp_path / name).read_bytes(), (
                clip,
                name,
            )
    assert states() == ["failed", "kept", "kept"]
