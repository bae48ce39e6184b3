"""The same job on this machine, on a standalone cluster of real processes, and over Spark Connect: the same result."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyspark
import pytest

from fusee.pipeline.java import find_java, usable_home
from fusee.pipeline.session import SETTINGS
from tests.pipeline.topics_of_tests import fill

if TYPE_CHECKING:
    from fusee.sync import EmbeddedServer

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]
SPARK_HOME = Path(pyspark.__file__).parent


def environment() -> dict[str, str]:
    return os.environ | {
        "JAVA_HOME": str(usable_home(find_java())),
        "SPARK_HOME": str(SPARK_HOME),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "512m",
    }


@contextmanager
def process_of_spark(folder: Path, ready: str, *arguments: str) -> Iterator[re.Match[str]]:
    """A process of Spark, from when it says that it is ready; what it said."""
    started = subprocess.Popen(
        [SPARK_HOME / "bin" / "spark-class", *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env=environment(),
    )
    assert started.stderr is not None
    said: list[str] = []
    try:
        for line in started.stderr:
            said.append(line)
            if found := re.search(ready, line):
                break
        else:
            pytest.fail("".join(said))
        with ThreadPoolExecutor(1) as reader:
            reader.submit(started.stderr.read)
            try:
                yield found
            finally:
                started.terminate()
                started.wait(60)
    finally:
        started.kill()
        started.communicate()


@pytest.fixture
def standalone(tmp_path: Path) -> Iterator[str]:
    """A master and two workers of one core each, as processes of their own; the address of the master."""
    with ExitStack() as stack:
        master = stack.enter_context(
            process_of_spark(
                tmp_path,
                r"Starting Spark master at (spark://\S+)",
                "org.apache.spark.deploy.master.Master",
                *("--host", "127.0.0.1", "--port", "0", "--webui-port", "0"),
            )
        )[1]
        for number in range(2):
            stack.enter_context(
                process_of_spark(
                    tmp_path,
                    r"Successfully registered with master",
                    "org.apache.spark.deploy.worker.Worker",
                    *("--host", "127.0.0.1", "--port", "0", "--webui-port", "0", "--cores", "1", "--memory", "512m"),
                    *("--work-dir", str(tmp_path / f"worker-{number}"), master),
                )
            )
        yield master


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


def run_job(master: str, server: EmbeddedServer, folder: Path) -> Any:
    folder.mkdir()
    done = subprocess.run(
        [sys.executable, "-m", "tests.pipeline.job_of_tests", master, server.name_server, str(folder)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=environment(),
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def orders(server: EmbeddedServer) -> EmbeddedServer:
    """A server with a topic of 400 messages, those of a queue all with one tag."""
    server.create_topics({"orders": 4})
    fill(server, "orders", range(400))
    return server


def check(found: Any) -> None:
    assert [row[:2] for row in found["batch"]] == [["open", 1], ["open", 3], ["paid", 0], ["paid", 2]]
    assert all({100, sum(range(100))} < set(row) for row in found["batch"])
    assert found["batch"] == found["stream"]


def test_two_workers_find_what_one_machine_finds(standalone: str, orders: EmbeddedServer, tmp_path: Path) -> None:
    here = run_job("local[2]", orders, tmp_path / "here")
    check(here)
    assert run_job(standalone, orders, tmp_path / "there") == here


def test_client_of_spark_connect_finds_the_source_by_its_name(
    connect_server: str, orders: EmbeddedServer, tmp_path: Path
) -> None:
    check(run_job(connect_server, orders, tmp_path / "job"))
