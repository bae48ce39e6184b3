"""The commands that run on Spark, as a user runs them: in a process of their own, against a server that runs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.cli.scene import server as embedded

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fusee.sync import EmbeddedServer

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(600)]
SMALL = ("--master", "local[1]", "--conf", "spark.driver.memory=512m", "--conf", "spark.sql.shuffle.partitions=1")


@pytest.fixture
def server() -> Iterator[EmbeddedServer]:
    with embedded() as running, running.connect() as mq:
        for number in range(12):
            mq.send("orders", b"order %d" % number, tag=["paid", "open"][number % 2], key=f"k{number}")
        yield running


def fusee(*arguments: str, name_server: str = "", code: int = 0) -> str:
    """What the command prints; the exit code is as expected."""
    environment = {**os.environ, "NAMESRV_ADDR": name_server, "COLUMNS": "120", "NO_COLOR": "1"}
    ran = subprocess.run(
        [sys.executable, "-m", "fusee", *arguments], capture_output=True, text=True, env=environment, timeout=300
    )
    assert ran.returncode == code, f"{ran.stdout}\n{ran.stderr}"
    return ran.stdout if code == 0 else ran.stderr


def test_sql_over_a_live_topic_and_its_archive(server: EmbeddedServer, tmp_path: Path) -> None:
    here = server.name_server
    statement = "select tags, count(*) as n from orders group by tags order by tags"
    table = fusee("sql", statement, *SMALL, name_server=here)
    assert [line.split() for line in table.splitlines()] == [["tags", "n"], ["open", "6"], ["paid", "6"]]

    archived = fusee("pipeline", "archive", "orders", "--to", str(tmp_path / "a"), *SMALL, "--json", name_server=here)
    assert json.loads(archived)["facts"]["new rows"] == 12
    with server.connect() as mq:
        mq.send("orders", b"late", tag="paid")
    both = fusee("sql", statement, "--archive", str(tmp_path / "a"), *SMALL, "--json", name_server=here)
    assert [json.loads(line) for line in both.splitlines()] == [{"tags": "open", "n": 6}, {"tags": "paid", "n": 7}]


def test_stats_with_a_report(server: EmbeddedServer, tmp_path: Path) -> None:
    report = tmp_path / "orders.html"
    said = fusee("pipeline", "stats", "orders", "--report", str(report), *SMALL, name_server=server.name_server)
    assert "hot keys" in said
    assert str(report) in said
    assert "<svg" in report.read_text()


def test_replay_asks_first_and_looks_without_sending(server: EmbeddedServer) -> None:
    here = server.name_server
    refused = fusee("pipeline", "replay", "orders", "--to", "again", name_server=here, code=2)
    assert "--yes" in refused
    looked = fusee("pipeline", "replay", "orders", "--to", "again", "--dry-run", *SMALL, "--json", name_server=here)
    assert json.loads(looked)["facts"]["would be sent"] == 12


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("sql", "select 1"), "where are the messages"),
        (("pipeline", "archive", "--to", "x", "-n", "127.0.0.1:1"), "which topics"),
        (("pipeline", "stats", "orders", "-n", "127.0.0.1:1", "-o", "nothing"), "is not NAME=VALUE"),
        (("pipeline", "run", "nowhere.yaml"), "cannot be read"),
        (("pipeline", "dlq", "--replay", "-n", "127.0.0.1:1"), "give one group"),
    ],
)
def test_mistakes_are_told_before_spark_is_started(arguments: tuple[str, ...], said: str) -> None:
    assert said in fusee(*arguments, code=2)


def test_archive_that_is_interrupted_ends_between_batches(server: EmbeddedServer, tmp_path: Path) -> None:
    to = tmp_path / "a"
    command = [
        *(sys.executable, "-m", "fusee", "pipeline", "archive", "orders", "--to", str(to), "--continuous"),
        *("--every", "0.1", "--json", *SMALL),
    ]
    child = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "NAMESRV_ADDR": server.name_server},
    )
    try:
        _until_archived(to, child)
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=120)
    finally:
        child.kill()
    assert child.returncode == 0, err
    assert json.loads(out)["facts"]["rows"] == 12
    assert "stopping when" in err


def _until_archived(to: Path, child: subprocess.Popen[Any]) -> None:
    import threading

    waiting = threading.Event()
    while not list(to.glob("_catalog/*.json")):
        assert child.poll() is None, child.stderr.read() if child.stderr else ""
        waiting.wait(0.1)
