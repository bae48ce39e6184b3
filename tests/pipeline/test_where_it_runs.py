"""The same job on this machine, on a standalone cluster of real processes, and over Spark Connect: the same result."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import fusee
import pyspark_fusee
from fusee.pipeline.session import SETTINGS
from tests.pipeline.standalone import SPARK_HOME, WORKERS, environment, process_of_spark, standalone_cluster
from tests.pipeline.topics_of_tests import fill
from tests.pipeline.written import bodies_in

if TYPE_CHECKING:
    from fusee.sync import EmbeddedServer

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]
# What docs/spark.md says that workers need beside what `--py-files` brings.
NEEDED = ("pyspark", "pyarrow", "numpy", "numpy.libs", "msgspec", "lz4", "zstandard")


@pytest.fixture
def connect_server(tmp_path: Path) -> Iterator[str]:
    """A server of Spark Connect; its address for clients."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    settings = {
        **SETTINGS,
        "spark.connect.grpc.binding.port": str(port),
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
    }
    with process_of_spark(
        tmp_path,
        r"Spark Connect server started",
        "org.apache.spark.deploy.SparkSubmit",
        *("--master", "local[2]", "--driver-memory", "512m"),
        *(word for name, value in settings.items() for word in ("--conf", f"{name}={value}")),
        *("--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"),
    ):
        yield f"sc://127.0.0.1:{port}"


@pytest.fixture
def orders(server: EmbeddedServer) -> EmbeddedServer:
    """A server with a topic of 400 messages, those of a queue all with one tag, and topics to be written."""
    server.create_topics({"orders": 4, "here": 4, "there": 4})
    fill(server, "orders", range(400))
    return server


def run_job(
    master: str,
    server: EmbeddedServer,
    folder: Path,
    *,
    program: tuple[str | Path, ...] = (sys.executable, "-m", "tests.pipeline.job_of_tests"),
    more: Mapping[str, str] | None = None,
) -> Any:
    folder.mkdir()
    done = subprocess.run(
        [*program, master, server.name_server, str(folder)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=environment() | dict(more or {}),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def check(found: Any, server: EmbeddedServer, topic: str) -> None:
    """What the job must find in those 400 messages, and has written to a topic."""
    assert [row[:2] for row in found["batch"]] == [["open", 1], ["open", 3], ["paid", 0], ["paid", 2]]
    assert all({100, sum(range(100))} < set(row) for row in found["batch"])
    assert found["batch"] == found["stream"]
    assert bodies_in(server.name_server, topic) == bodies_in(server.name_server, "orders")


def test_two_workers_find_what_one_machine_finds(orders: EmbeddedServer, tmp_path: Path) -> None:
    here = run_job("local[2]", orders, tmp_path / "here")
    check(here, orders, "here")
    assert here["archive"]["rows"] == here["batch"]
    assert here.pop("readers") == 1
    with standalone_cluster(tmp_path) as cluster:
        there = run_job(cluster.master, orders, tmp_path / "there")
    assert there.pop("readers") == WORKERS
    check(there, orders, "there")
    assert there == here


def test_client_of_spark_connect_finds_the_source_by_its_name(
    connect_server: str, orders: EmbeddedServer, tmp_path: Path
) -> None:
    check(run_job(connect_server, orders, tmp_path / "here"), orders, "here")


def bare_python(folder: Path) -> Path:
    """A command that runs Python: as here, but with no more than NEEDED where the environment has BARE."""
    packages = folder / "packages"
    packages.mkdir()
    installed = SPARK_HOME.parent
    for name in NEEDED:
        if (installed / name).exists():
            (packages / name).symlink_to(installed / name)
    command = folder / "python"
    # -S leaves out site-packages, and with it this package.
    command.write_text(
        "#!/bin/sh\n"
        'if [ -z "$BARE" ]; then\n'
        f'  exec "{sys.executable}" "$@"\n'
        "fi\n"
        f'PYTHONPATH="$PYTHONPATH:{packages}" exec "{Path(sys.executable).resolve()}" -S "$@"\n'
    )
    command.chmod(0o755)
    return command


def zipped_packages(folder: Path) -> Path:
    """A zip of both packages, as docs/spark.md says to make it."""
    for package in (fusee, pyspark_fusee):
        source = Path(package.__file__ or "").parent
        shutil.copytree(source, folder / "zip" / source.name, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    return Path(shutil.make_archive(str(folder / "packages"), "zip", folder / "zip"))


def test_workers_without_the_package_get_it_by_py_files(orders: EmbeddedServer, tmp_path: Path) -> None:
    python = bare_python(tmp_path)
    bare = {"BARE": "yes"}
    lacking = subprocess.run([python, "-c", "import fusee"], capture_output=True, text=True, env=os.environ | bare)
    assert "No module named 'fusee'" in lacking.stderr
    submit = (
        *(SPARK_HOME / "bin" / "spark-submit", "--driver-memory", "512m", "--py-files", zipped_packages(tmp_path)),
        *("--conf", "spark.driver.host=127.0.0.1", ROOT / "tests" / "pipeline" / "job_of_tests.py"),
    )
    with standalone_cluster(tmp_path, more=bare) as cluster:
        settings = {"PYSPARK_PYTHON": str(python), "PYSPARK_DRIVER_PYTHON": sys.executable}
        found = run_job(cluster.master, orders, tmp_path / "there", program=submit, more=settings)
    assert found["readers"] == WORKERS
    check(found, orders, "there")
