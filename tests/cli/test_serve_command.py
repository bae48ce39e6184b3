"""`fusee serve` as a person runs it: a real process, its first words, its ends, what it keeps."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

import fusee.sync
from fusee.cluster.local import LocalCluster
from tests.cli.test_broker_command import SMALL
from tests.cli.test_namesrv_command import command, finish


class Serving:
    """A `fusee serve` that has said how to send a first message; `said` is everything until there."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        assert process.stdout is not None
        self.said = ""
        for line in process.stdout:
            self.said += line
            if "message tail" in line:
                break
        found = re.search(r"NAMESRV_ADDR='([^']+)'", self.said)
        assert found is not None, self.said + (process.stderr.read() if process.stderr else "")
        self.name_server = found[1]

    def stop(self, by: signal.Signals = signal.SIGTERM) -> str:
        self.process.send_signal(by)
        _, logged = self.process.communicate(timeout=40)
        assert self.process.returncode == 0, logged
        assert "Traceback" not in logged
        return logged


@contextmanager
def serving(folder: Path, *arguments: str, environment: dict[str, str] | None = None) -> Iterator[Serving]:
    ports = ("--namesrv-port", "0", "--broker-port", "0", "--console-port", "0")
    process = command("serve", *ports, "--data", str(folder), *arguments, **SMALL, **(environment or {}))
    try:
        yield Serving(process)
    finally:
        process.kill()
        process.communicate()
        if (folder / "cluster").exists():
            LocalCluster.open(folder / "cluster").stop(grace=0)


def refused(process: subprocess.Popen[str]) -> str:
    """What it said before it ended with the code of a wrong command line."""
    code, _, said = finish(process)
    assert code == 2, said
    return said


def bodies_after_send(name_server: str) -> list[bytes]:
    with fusee.sync.connect(name_server) as mq:
        mq.send("orders", b"one")
    return bodies(name_server)


def bodies(name_server: str) -> list[bytes]:
    with fusee.sync.connect(name_server) as mq:
        return [message.body for message in mq.admin.browse("orders", limit=10)]


def test_says_where_it_listens_and_keeps_messages_over_a_stop_by_either_signal(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "data"
    with serving(folder) as running:
        assert f"data in {folder}" in running.said
        assert re.search(r"name server listening on 127\.0\.0\.1:\d+", running.said)
        told = re.search(r"listening on (127\.0\.0\.1:\d+), fast port \S+; clients are told (\S+)", running.said)
        assert told is not None
        assert told[1] == told[2]
        with fusee.sync.connect(running.name_server) as mq:
            mq.send("orders", b"one")
        running.stop(signal.SIGTERM)
    assert not (folder / "store" / "abort").exists()
    with serving(folder) as running:
        assert bodies(running.name_server) == [b"one"]
        running.stop(signal.SIGINT)


def test_the_lines_it_prints_send_and_read_a_first_message(tmp_path: Path) -> None:
    with serving(tmp_path) as running:
        lines = [line.strip() for line in running.said.splitlines() if line.startswith("  ")]
        assert len(lines) == 3
        done = subprocess.run("\n".join(["set -e", *lines]), shell=True, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        assert "hello, world" in done.stdout


def test_console_metrics_and_readiness_are_beside_it(tmp_path: Path) -> None:
    with serving(tmp_path) as running:
        found = re.search(r"console on (http://127\.0\.0\.1:\d+)/, metrics on", running.said)
        assert found is not None, running.said
        with httpx.Client(base_url=found[1], timeout=60) as client:
            assert "Overview" in client.get("/").text
            assert "rocketmq_topic_number" in client.get("/metrics").text
            assert client.get("/ready").status_code == 200
            token = client.get("/api/session").json()["csrf"]
            values = {"topic": "orders", "body": "from the console"}
            assert client.post("/api/changes/send", json=values, headers={"X-CSRF-Token": token}).status_code == 200
        running.stop()
    assert b'"action":"send"' in (tmp_path / "console" / "audit.jsonl").read_bytes()


# What only people at a terminal or a browser need, what only Spark needs, and stacks that servers do not use.
UNNEEDED = {
    *("typer", "click", "rich", "pydantic", "markdown_it", "pygments"),
    *("jinja2", "starlette", "uvicorn", "anyio", "h11", "prometheus_client", "lark", "opentelemetry"),
    *("pyarrow", "pandas", "pyspark", "py4j", "grpc", "yaml", "cryptography"),
    *("http.server", "http.client", "urllib.request", "email", "multiprocessing", "sqlite3", "xml", "unittest"),
    *("fusee.admin", "fusee.client", "fusee.connection", "fusee.console.app", "fusee.metrics", "fusee.pipeline"),
    *("fusee.cluster", "fusee.sync", "fusee.in_process", "fusee.cli.tree", "fusee.store.offline"),
}


def test_what_is_not_needed_is_not_loaded_until_somebody_comes_to_the_console(tmp_path: Path) -> None:
    def loaded(logged: str) -> set[str]:
        return UNNEEDED & set(re.findall(r"^import time: .*\| +(\S+)$", logged, re.MULTILINE))

    with serving(tmp_path, environment={"PYTHONPROFILEIMPORTTIME": "1"}) as running:
        assert bodies_after_send(running.name_server) == [b"one"]
        logged = running.stop()
        assert "| fusee.broker.server\n" in re.sub(r"\| +", "| ", logged)
        assert loaded(logged) == set()
    with serving(tmp_path, environment={"PYTHONPROFILEIMPORTTIME": "1"}) as running:
        found = re.search(r"console on (http://127\.0\.0\.1:\d+)/", running.said)
        assert found is not None
        assert "Overview" in httpx.get(found[1], timeout=60).text
        assert {"starlette", "fusee.console.app", "prometheus_client"} <= loaded(running.stop())


def test_a_console_that_cannot_be_does_not_keep_the_broker_from_its_work(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with serving(tmp_path, "--console-port", str(port)) as running:
            assert "no console: the console cannot listen on" in running.said
            assert bodies_after_send(running.name_server) == [b"one"]
    with serving(tmp_path, "--no-console") as running:
        assert "console on" not in running.said
    failed = command("serve", "--data", str(tmp_path), "--console-host", "0.0.0.0")
    assert "needs a password" in refused(failed)


def test_console_command_shows_any_cluster(tmp_path: Path) -> None:
    with serving(tmp_path, "--no-console") as running:
        process = command("console", "--namesrv", running.name_server, "--port", "0")
        try:
            assert process.stdout is not None
            found = re.search(r"on (http://127\.0\.0\.1:\d+)/", process.stdout.readline())
            assert found is not None
            overview = httpx.get(f"{found[1]}/api/overview", timeout=60).json()
            assert overview["brokers"]["value"][0]["broker"]["broker_name"] == "broker-a"
            process.send_signal(signal.SIGTERM)
            _, logged = process.communicate(timeout=30)
            assert process.returncode == 0, logged
        finally:
            process.kill()
            process.communicate()


def test_advertises_what_it_is_told_to(tmp_path: Path) -> None:
    with serving(tmp_path, "--host", "0.0.0.0", "--advertise", "127.0.0.2") as running:
        assert re.search(r"clients are told 127\.0\.0\.2:\d+", running.said)
        assert running.name_server.startswith("127.0.0.1:")


def test_settings_reach_the_broker_and_unknown_ones_are_refused(tmp_path: Path) -> None:
    with (
        serving(tmp_path, "--set", "defaultTopicQueueNums=3") as running,
        fusee.sync.connect(running.name_server) as mq,
    ):
        assert mq.admin.broker_config("broker-a")["defaultTopicQueueNums"] == "3"
    failed = command("serve", "--data", str(tmp_path), "--set", "nonsense=1")
    assert refused(failed).count("fusee broker --print-config") == 1


def test_logs_are_one_json_object_per_line(tmp_path: Path) -> None:
    import msgspec

    with serving(tmp_path, "--log-format", "json") as running:
        logged = running.stop()
    events = [msgspec.json.decode(line) for line in logged.splitlines()]
    assert any(event["part"] == "broker.registration" and event["level"] == "info" for event in events)


def test_several_brokers_are_one_cluster_a_dead_one_comes_back_and_none_outlives_it(tmp_path: Path) -> None:
    with serving(tmp_path, "--brokers", "2") as running:
        with fusee.sync.connect(running.name_server) as mq:
            mq.admin.create_topic("orders", queues=1)
            assert {group.broker_name for group in mq.admin.topic_route("orders").groups} == {"broker-a", "broker-b"}
            cluster = LocalCluster.open(tmp_path / "cluster")
            victim = cluster.node("broker-b").process
            assert victim is not None
            os.kill(victim.pid, signal.SIGKILL)
            assert running.process.stderr is not None
            for line in running.process.stderr:
                if "broker-b ended by itself and was started again" in line:
                    break
            cluster.wait_ready()
        pids = [node.process.pid for node in cluster.nodes.values() if node.process is not None]
        assert victim.pid not in pids
        assert len(pids) == 3
        running.stop()
        assert not any(cluster.is_running(name) for name in cluster.nodes)


def test_a_folder_holds_one_broker_or_a_cluster_never_both(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    failed = command("serve", "--brokers", "2", "--data", str(tmp_path))
    assert "messages of a single broker" in refused(failed)
    (tmp_path / "store").rmdir()
    (tmp_path / "cluster").mkdir()
    (tmp_path / "cluster" / "cluster.json").write_text("{}")
    failed = command("serve", "--data", str(tmp_path))
    assert "--brokers N" in refused(failed)
