"""Ranges of queues as batches, read from a running broker."""

from __future__ import annotations

import itertools
import pickle
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import fusee.sync
from fusee.errors import ConnectError, DataLossError, InvalidRequestError, TopicNotFoundError
from fusee.message.model import Message, MessageQueue
from fusee.pipeline.fetch import FetchSettings, fetch
from fusee.pipeline.ranges import QueueRange
from tests.pipeline.topics_of_tests import SMALL_LOG, expire

COLUMNS = ("queueId", "queueOffset", "body", "tags")
WAY: dict[str, bool] = {}
_numbers = itertools.count()


@pytest.fixture(scope="module")
def server() -> Iterator[fusee.sync.EmbeddedServer]:
    with fusee.sync.embedded() as running:
        yield running


@pytest.fixture
def mq(server: fusee.sync.EmbeddedServer) -> Iterator[fusee.sync.Connection]:
    with server.connect() as connection:
        yield connection


@pytest.fixture
def topic(server: fusee.sync.EmbeddedServer) -> str:
    name = f"fetched-{next(_numbers)}"
    server.create_topics({name: 4})
    return name


@pytest.fixture(params=[True, False], ids=["from files", "over the network"], autouse=True)
def ways(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test reads both ways: the broker is beside it, where a reader takes bytes from its files."""
    monkeypatch.setitem(WAY, "local_reads", request.param)


def settings(server: fusee.sync.EmbeddedServer, **changes: Any) -> FetchSettings:
    given: dict[str, Any] = {"pull_timeout_ms": 5000, "retries": 2, "retry_delay_ms": 1, **WAY, **changes}
    return FetchSettings(name_servers=server.name_server, group="spark", **given)


def fill(mq: fusee.sync.Connection, topic: str, count: int, *, size: int = 20) -> dict[int, list[bytes]]:
    """Messages with tags a and b in turn; what each queue has."""
    queues: dict[int, list[bytes]] = {}
    with mq.producer(group=f"p-{topic}") as producer:
        sent = [
            (body, producer.send_soon(topic, body, tag="ab"[number % 2], keys=[f"k{number}"]))
            for number in range(count)
            for body in [f"{number}-".encode().ljust(size, b".")]
        ]
        placed = [(future.result(), body) for body, future in sent]
    for result, body in sorted(placed, key=lambda each: each[0].queue_offset):
        queues.setdefault(result.queue.queue_id, []).append(body)
    return queues


def ranges_of(topic: str, queues: dict[int, list[bytes]], broker_name: str = "embedded") -> list[QueueRange]:
    return [QueueRange(topic, broker_name, queue_id, 0, len(bodies)) for queue_id, bodies in queues.items()]


def rows(batches: Iterator[pa.RecordBatch]) -> dict[int, list[tuple[int, bytes, str | None]]]:
    found: dict[int, list[tuple[int, bytes, str | None]]] = {}
    for batch in batches:
        for row in batch.to_pylist():
            found.setdefault(row["queueId"], []).append((row["queueOffset"], row["body"], row["tags"]))
    return found


def test_all_of_every_queue_in_order(server: fusee.sync.EmbeddedServer, mq: fusee.sync.Connection, topic: str) -> None:
    queues = fill(mq, topic, 1000)
    found = rows(fetch(settings(server), ranges_of(topic, queues), COLUMNS))
    assert {queue_id: [body for _, body, _ in each] for queue_id, each in found.items()} == queues
    assert all([offset for offset, _, _ in each] == list(range(len(each))) for each in found.values())


@pytest.mark.parametrize("pull_batch_size", [1, 7, 32, 1000])
def test_a_range_is_exact(
    server: fusee.sync.EmbeddedServer, mq: fusee.sync.Connection, topic: str, pull_batch_size: int
) -> None:
    queues = fill(mq, topic, 800)
    asked = [QueueRange(topic, "embedded", queue_id, 3 + queue_id, 150 + queue_id) for queue_id in queues]
    found = rows(fetch(settings(server, pull_batch_size=pull_batch_size), asked, COLUMNS))
    for queue_id, bodies in queues.items():
        first, last = 3 + queue_id, 150 + queue_id
        assert [body for _, body, _ in found[queue_id]] == bodies[first:last]


@pytest.mark.parametrize("choice", [{"tags": "a || c"}, {"sql": "TAGS = 'a'"}])
def test_the_broker_filters(
    server: fusee.sync.EmbeddedServer, mq: fusee.sync.Connection, topic: str, choice: dict[str, str]
) -> None:
    queues = fill(mq, topic, 400)
    asked = [QueueRange(topic, "embedded", queue_id, 10, 90) for queue_id in queues]
    found = rows(fetch(settings(server, **choice), asked, COLUMNS))
    expected = {
        queue_id: [(10 + place, body) for place, body in enumerate(bodies[10:90]) if int(body.split(b"-")[0]) % 2 == 0]
        for queue_id, bodies in queues.items()
    }
    assert {queue_id: [each[:2] for each in some] for queue_id, some in found.items()} == {
        queue_id: some for queue_id, some in expected.items() if some
    }


@pytest.mark.parametrize("tags", ["*", "b"])
def test_bulk_reads_and_pulls_give_the_same(
    mq: fusee.sync.Connection, server: fusee.sync.EmbeddedServer, topic: str, tags: str
) -> None:
    with fusee.sync.embedded(topics={"t": 3}, bulk_read_enable=False) as without, without.connect() as other:
        bulk = fill(mq, topic, 700, size=300)
        pulled = fill(other, "t", 700, size=300)
        both = [
            rows(fetch(settings(at, tags=tags), ranges_of(name, queues), COLUMNS, batch_size=50_000))
            for at, name, queues in ((server, topic, bulk), (without, "t", pulled))
        ]
    for found, queues in zip(both, (bulk, pulled), strict=True):
        assert {queue_id: [body for _, body, _ in some] for queue_id, some in found.items()} == {
            queue_id: wanted
            for queue_id, bodies in queues.items()
            if (wanted := [body for body in bodies if tags == "*" or int(body.split(b"-")[0]) % 2])
        }


def test_tags_of_the_same_hash_are_left_out(
    server: fusee.sync.EmbeddedServer, mq: fusee.sync.Connection, topic: str
) -> None:
    with mq.producer(group="p") as producer:
        results = [producer.send(topic, tag, tag=tag) for tag in ("Aa", "BB")]
    asked = [
        QueueRange(topic, "embedded", result.queue.queue_id, result.queue_offset, result.queue_offset + 1)
        for result in results
    ]
    found = rows(fetch(settings(server, tags="Aa"), asked, COLUMNS))
    assert [each for some in found.values() for each in some] == [(0, b"Aa", "Aa")]


def test_large_and_compressed_bodies(server: fusee.sync.EmbeddedServer, mq: fusee.sync.Connection, topic: str) -> None:
    bodies = [b"x" * 3_900_000, bytes(range(256)) * 15_000, b"small", b""]
    with mq.producer(group="p") as producer:
        results = [producer.send(Message(topic, body), queue=None) for body in bodies[:3]]
    asked = [
        QueueRange(topic, "embedded", result.queue.queue_id, result.queue_offset, result.queue_offset + 1)
        for result in results
    ]
    found = rows(fetch(settings(server), asked, COLUMNS))
    assert sorted(body for some in found.values() for _, body, _ in some) == sorted(bodies[:3])


def test_offsets_behind_the_end_are_a_loss(
    server: fusee.sync.EmbeddedServer, mq: fusee.sync.Connection, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    queues = fill(mq, topic, 40)
    asked = [QueueRange(topic, "embedded", queue_id, 0, len(bodies) + 5) for queue_id, bodies in queues.items()]
    with pytest.raises(DataLossError, match="failOnDataLoss"):
        list(fetch(settings(server, retries=1), asked, COLUMNS))
    found = rows(fetch(settings(server, retries=1, fail_on_data_loss=False), asked, COLUMNS))
    assert {queue_id: [body for _, body, _ in some] for queue_id, some in found.items()} == queues
    assert len([record for record in caplog.records if "going on without them" in record.message]) == len(queues)


@pytest.mark.parametrize("is_in_bulk", [True, False])
def test_expired_offsets_are_a_loss_or_left_out(
    tmp_path: Path, is_in_bulk: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with fusee.sync.embedded(store=tmp_path, topics={"t": 1}, **SMALL_LOG) as server:
        with server.connect() as mq:
            (bodies,) = fill(mq, "t", 300, size=500).values()
        first = expire(server, tmp_path, MessageQueue("t", "embedded", 0))
        chosen = settings(server, bulk_reads=is_in_bulk)
        asked = [QueueRange("t", "embedded", 0, 5, 290)]
        with pytest.raises(DataLossError, match=f"offsets 5 to {first - 1} of topic 't'.*expired or were lost"):
            list(fetch(chosen, asked, COLUMNS))
        (found,) = rows(fetch(replace(chosen, fail_on_data_loss=False), asked, COLUMNS)).values()
        assert [(queue_offset, body) for queue_offset, body, _ in found] == [
            (place, bodies[place]) for place in range(first, 290)
        ]
        assert f"offsets 5 to {first - 1}" in caplog.text
        gone = [QueueRange("t", "embedded", 0, 0, first)]
        assert list(fetch(replace(chosen, fail_on_data_loss=False), gone, COLUMNS)) == []


def test_a_topic_that_is_not_there(server: fusee.sync.EmbeddedServer) -> None:
    asked = [QueueRange("nowhere", "embedded", 0, 0, 5)]
    with pytest.raises((DataLossError, TopicNotFoundError), match="nowhere"):
        list(fetch(settings(server, retries=1), asked, COLUMNS))
    assert list(fetch(settings(server, retries=1, fail_on_data_loss=False), asked, COLUMNS)) == []


def test_a_wrong_filter_is_said_at_once(server: fusee.sync.EmbeddedServer, topic: str) -> None:
    with pytest.raises(InvalidRequestError, match="subscription"):
        list(fetch(settings(server, sql="a ="), [QueueRange(topic, "embedded", 0, 0, 1)], COLUMNS))


def test_no_name_server_is_said(topic: str) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    wrong = FetchSettings(name_servers=f"127.0.0.1:{port}", group="g", retries=1, retry_delay_ms=1)
    with pytest.raises(ConnectError, match="no name server answers"):
        list(fetch(wrong, [QueueRange(topic, "embedded", 0, 0, 1)], COLUMNS))


def test_reading_goes_on_after_a_restart_of_the_broker() -> None:
    with fusee.sync.embedded(topics={"t": 2}, bulk_read_bytes_max=300_000) as server, server.connect() as mq:
        queues = fill(mq, "t", 2000, size=2000)
        reading = fetch(settings(server, retries=50, retry_delay_ms=10), ranges_of("t", queues), COLUMNS)
        batches = [next(reading)]
        server.stop_broker()
        server.start_broker()
        batches.extend(reading)
    found = rows(iter(batches))
    assert {queue_id: [body for _, body, _ in some] for queue_id, some in found.items()} == queues


def test_a_reader_that_stops_early_leaves_nothing_behind(
    server: fusee.sync.EmbeddedServer, mq: fusee.sync.Connection, topic: str
) -> None:
    queues = fill(mq, topic, 1000)
    for _ in range(3):
        reading = fetch(settings(server), ranges_of(topic, queues), COLUMNS, batch_size=1)
        next(reading)
        reading.close()  # type: ignore[attr-defined]
    assert sum(map(len, rows(fetch(settings(server), ranges_of(topic, queues), COLUMNS)).values())) == 1000


def test_several_threads_read_with_the_same_settings(
    server: fusee.sync.EmbeddedServer, mq: fusee.sync.Connection, topic: str
) -> None:
    queues = fill(mq, topic, 1000)
    counts: list[int] = []

    def read() -> None:
        counts.append(sum(batch.num_rows for batch in fetch(settings(server), ranges_of(topic, queues), COLUMNS)))

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counts == [1000] * 4


def test_settings_travel(server: fusee.sync.EmbeddedServer) -> None:
    chosen = settings(server, tags="a")
    assert pickle.loads(pickle.dumps(chosen)) == chosen
