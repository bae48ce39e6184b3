"""The pipeline's reader against a real Apache RocketMQ 5.5.0, by pulls, and the store that it wrote."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

import fusee.sync
from fusee.pipeline.fetch import FetchSettings, fetch
from fusee.pipeline.ranges import QueueRange
from fusee.pipeline.schema import COLUMNS
from tests.interop.harness.servers import JavaBroker, JavaNameServer

if TYPE_CHECKING:
    from tests.interop.harness.processes import Fleet
    from tests.interop.harness.toolchain import Runtime

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

BROKER = "broker-pipeline"
ALL = tuple(column.name for column in COLUMNS)


@pytest.fixture(scope="module")
def name_server(fleet: Fleet, current: Runtime) -> Iterator[str]:
    """Of a broker with a topic `orders`: 2 queues, 300 messages, tags a and b in turn, large bodies among them."""
    servers = JavaNameServer(fleet, "pipeline-namesrv", current)
    servers.start()
    servers.await_ready()
    broker = JavaBroker(fleet, current, [servers], name=BROKER, settings={"enablePropertyFilter": "true"})
    broker.start()
    broker.await_ready()
    with fusee.sync.connect(servers.address) as mq:
        mq.admin.create_topic("orders", queues=2)
        for number in range(300):
            body = b"%d-" % number + b"x" * (20_000 if number % 50 == 0 else 10)
            mq.send("orders", body, tag="ab"[number % 2], key=f"k{number}")
    yield servers.address
    broker.kill()
    servers.kill()


def settings(name_server: str, **changes: object) -> FetchSettings:
    return FetchSettings(name_servers=name_server, group="pipeline", **changes)  # type: ignore[arg-type]


def ranges(name_server: str) -> list[QueueRange]:
    with fusee.sync.connect(name_server) as mq:
        stats = mq.admin.topic_stats("orders")
    return [
        QueueRange("orders", BROKER, queue.queue.queue_id, queue.min_offset, queue.max_offset)
        for queue in stats.queues
        if queue.max_offset
    ]


def test_every_message_comes_once_in_order(name_server: str) -> None:
    rows = [row for batch in fetch(settings(name_server), ranges(name_server), ALL) for row in batch.to_pylist()]
    assert sorted(int(row["body"].split(b"-")[0]) for row in rows) == list(range(300))
    for queue_id in (0, 1):
        offsets = [row["queueOffset"] for row in rows if row["queueId"] == queue_id]
        assert offsets == list(range(len(offsets)))
    assert all(row["msgId"] and row["brokerName"] == BROKER for row in rows)
    assert {row["keys"] for row in rows} == {f"k{number}" for number in range(300)}


@pytest.mark.parametrize("choice", [{"tags": "a"}, {"sql": "TAGS = 'a'"}])
def test_the_broker_filters(name_server: str, choice: dict[str, str]) -> None:
    found = fetch(settings(name_server, **choice), ranges(name_server), ("body", "tags"))
    rows = [row for batch in found for row in batch.to_pylist()]
    assert sorted(int(row["body"].split(b"-")[0]) for row in rows) == list(range(0, 300, 2))
    assert {row["tags"] for row in rows} == {"a"}
