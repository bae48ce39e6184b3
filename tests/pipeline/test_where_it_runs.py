"""The same job on this machine, on a standalone cluster of real processes, and over Spark Connect: the same result."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
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
        "SPARK_DAEMON_MEMORY": "256m",
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
        reader = threading.Thread(target=started.stderr.read, daemon=True)
        reader.start()
        yield found
    finally:
        started.terminate()
        started.wait(60)
        reader.join(60)
        started.stderr.close()


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
def orders(server: EmbeddedServer) -> list[list[Any]]:
    """A topic of 400 messages; what the job finds in it."""
    server.create_topics({"orders": 4})
    fill(server, "orders", range(400))
    return [
        [tag, queue_id, sum(range(100)), 100, f"orders {396 + queue_id if queue_id else 96}"]
        for tag, queues in (("open", (1, 3)), ("paid", (0, 2)))
        for queue_id in queues
    ]


def check(found: Any, orders: list[list[Any]]) -> None:
    assert [row[:2] for row in found["batch"]] == [row[:2] for row in orders]
    assert found["batch"] == found["stream"]
    assert all(100 in row and sum(range(100)) in row for row in found["batch"])


def test_two_workers_find_what_one_machine_finds(
    standalone: str, server: EmbeddedServer, orders: list[list[Any]], tmp_path: Path
) -> None:
    here = run_job("local[2]", server, tmp_path / "here")
    check(here, orders)
    assert run_job(standalone, server, tmp_path / "there") == here


def test_client_of_spark_connect_finds_the_source_by_its_name(
    connect_server: str, server: EmbeddedServer, orders: list[list[Any]], tmp_path: Path
) -> None:
    check(run_job(connect_server, server, tmp_path / "job"), orders)
