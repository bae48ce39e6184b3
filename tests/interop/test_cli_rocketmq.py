"""The command line against a real Apache RocketMQ 5.5.0: every command that tells something, and those that change."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import fusee
import fusee.sync
from tests.cli.scene import Terminal, bury, wait_for
from tests.interop.harness.servers import JavaBroker, JavaNameServer

if TYPE_CHECKING:
    from tests.interop.harness.processes import Fleet
    from tests.interop.harness.toolchain import Runtime

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]


def undecided(message: object) -> None:
    return None


class Cluster:
    """A real name server and broker with something of everything in it."""

    def __init__(self, fleet: Fleet, runtime: Runtime) -> None:
        self._name_server = JavaNameServer(fleet, "cli-namesrv", runtime)
        self._name_server.start()
        self._name_server.await_ready()
        settings = {"traceTopicEnable": "true", "timerWheelEnable": "true"}
        self._broker = JavaBroker(fleet, runtime, [self._name_server], name="broker-cli", settings=settings)
        self._broker.start()
        self._broker.await_ready()
        self.terminal = Terminal(self._name_server.address)
        self.mq = fusee.sync.connect(self._name_server.address)
        self.mq.admin.create_topic("orders", queues=2)
        self.sent = self.mq.send("orders", b"hello", tag="paid", key="order-1")
        self.mq.send("orders", b"later", delay_level=18)
        self.mq.send("orders", b"at its time", deliver_in=3600)
        self.mq.admin.create_topic("transactions", queues=1)
        with self.mq.transaction("transactions", b"half", check=undecided, group="shop") as transaction:
            transaction.leave_open()
        self.transaction_id = transaction.transaction_id
        self.mq.admin.create_topic("poison", queues=1)
        bury(self.mq, "poison", "billing", 2)

    def close(self) -> None:
        self.mq.close()
        self._broker.kill()
        self._name_server.kill()


@pytest.fixture(scope="module")
def cluster(fleet: Fleet, current: Runtime) -> Iterator[Cluster]:
    cluster = Cluster(fleet, current)
    try:
        yield cluster
    finally:
        cluster.close()


@pytest.mark.quick
def test_topics_groups_messages_and_servers(cluster: Cluster) -> None:
    terminal = cluster.terminal
    assert {"orders", "poison"} <= set(terminal.ok("topic", "list").split())
    lines = {line["topic"]: line for line in terminal.json("topic", "list", "--details")}
    assert (lines["orders"]["queues"], lines["orders"]["messages"]) == (2, 1)
    assert terminal.json("topic", "show", "orders")["messages"] == 1
    assert "RW-" in terminal.ok("topic", "show", "orders")
    assert "billing" in terminal.ok("group", "list", "--names")
    assert "billing" in {group["group"] for group in terminal.json("group", "list")}
    assert terminal.json("group", "show", "billing")["settings"][0]["group"] == "billing"
    lag = terminal.json("group", "lag", "billing", "--topic", "poison")
    assert {queue["topic"] for queue in lag["queues"]} >= {"poison"}
    assert [queue["topic"] for queue in terminal.json("offset", "show", "billing", "--topic", "poison")] == ["poison"]
    line = json.loads(terminal.ok("message", "tail", "orders", "--from", "earliest", "--limit", "1", "--json"))
    assert (line["body"], line["tag"], line["keys"]) == ("hello", "paid", ["order-1"])
    assert terminal.json("message", "browse", "orders")[0]["messageId"] == cluster.sent.message_id
    (view,) = terminal.json("cluster", "list")
    assert view["brokers"][0]["state"]["version"] == "V5_5_0"
    assert "master" in terminal.ok("cluster", "list")


def test_messages_are_found_and_their_life_is_told(cluster: Cluster) -> None:
    terminal = cluster.terminal
    wait_for(lambda: terminal.run("message", "query", "orders", "--key", "order-1").exit_code == 0)
    for arguments in (["--key", "order-1"], ["--id", cluster.sent.message_id], ["--since", "1h"]):
        assert terminal.json("message", "query", "orders", *arguments)[0]["body"] == "hello"
    assert terminal.json("message", "query", "--id", cluster.sent.offset_id)[0]["body"] == "hello"
    life = terminal.json("message", "life", "orders", cluster.sent.message_id)
    assert [event["what"] for event in life["events"]][:2] == ["born", "stored"]
    (letter,) = terminal.json("dlq", "inspect", "billing", "--each")[:1]
    life = terminal.json("message", "life", "poison", letter["messageId"])
    assert "dead" in [event["what"] for event in life["events"]]


def test_what_waits_and_what_died(cluster: Cluster) -> None:
    terminal = cluster.terminal
    wait_for(lambda: any(level["waiting"] for level in terminal.json("delay", "list")["levels"]))
    waiting = {level["level"]: level["waiting"] for level in terminal.json("delay", "list")["levels"]}
    assert waiting[18] == 1
    wait_for(lambda: terminal.json("delay", "list")["timed"].get("orders") == 1)
    wait_for(lambda: len(terminal.json("delay", "due")) == 2)
    assert [each["message"]["body"] for each in terminal.json("delay", "due")] == ["at its time", "later"]
    pending = terminal.json("transaction", "list")["transactions"]
    assert [each["transactionId"] for each in pending] == [cluster.transaction_id]
    assert "pending for transactions" in terminal.ok("transaction", "show", cluster.transaction_id)
    assert {line["group"]: line["count"] for line in terminal.json("dlq", "list")} == {"billing": 2}
    (cause,) = terminal.json("dlq", "inspect", "billing")
    assert (cause["count"], cause["values"]["topic"]) == (2, "poison")


def test_settings_and_health(cluster: Cluster) -> None:
    terminal = cluster.terminal
    assert terminal.ok("config", "get", "flushDiskType") == "ASYNC_FLUSH\n"
    (settings,) = terminal.json("config", "show").values()
    assert settings["brokerName"]["value"]
    assert "listenPort" in next(iter(terminal.json("config", "show", "--name-servers").values()))
    answer = terminal.run("doctor", "--json")
    checks = {finding["check"]: finding for finding in answer.data["findings"]}
    assert {"name server", "address", "disk", "clock", "route"} <= set(checks)
    assert checks["clock"]["severity"] == "ok"
    assert terminal.run("cluster", "health", "--json").data["findings"]


def test_what_changes_something_changes_it_there_too(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = cluster.terminal
    monkeypatch.chdir(tmp_path)
    terminal.ok("topic", "create", "blog", "--queues", "2")
    terminal.ok("topic", "update", "blog", "--queues", "3")
    assert len(terminal.json("topic", "show", "blog")["queues"]) == 3
    terminal.ok("message", "send", "blog", "n {n}", "--count", "30")
    terminal.ok("group", "create", "readers")
    terminal.ok("offset", "reset", "readers", "--topic", "blog", "--to", "latest", "--yes")
    assert sum(each["committedOffset"] or 0 for each in terminal.json("offset", "show", "readers", "-t", "blog")) == 30
    terminal.ok("offset", "clone", "readers", "others", "--topic", "blog", "--yes")
    terminal.ok("group", "delete", "readers", "--offsets", "--yes")
    terminal.ok("config", "set", "defaultTopicQueueNums=5", "--yes")
    assert terminal.ok("config", "get", "defaultTopicQueueNums") == "5\n"

    assert terminal.json("dlq", "replay", "billing", "--yes")["counts"]["replayed"] == 2
    terminal.ok("transaction", "commit", cluster.transaction_id, "--yes")
    wait_for(lambda: len(terminal.json("message", "browse", "transactions")) == 1)
    wait_for(lambda: terminal.json("transaction", "list")["transactions"] == [], 60)
    terminal.ok("topic", "delete", "blog", "--yes")
    assert "blog" not in terminal.ok("topic", "list").split()


@pytest.mark.parametrize("load", ["produce", "consume", "end-to-end", "transaction", "delay"])
def test_every_benchmark_runs_against_it(cluster: Cluster, load: str) -> None:
    found = cluster.terminal.json("bench", load, "--count", "200", "--queues", "2")
    assert (found["messages"], found["failed"]) == (200, 0)
