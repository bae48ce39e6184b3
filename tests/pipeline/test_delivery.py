"""Rows to a running broker, without Spark."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import fusee.sync
from fusee.client.selection import java_hash
from fusee.errors import FuseeError, InvalidRequestError, SendFailedError, TopicNotFoundError
from fusee.pipeline.delivery import Delivery, Staging
from fusee.pipeline.row_encoding import Columns, EncodedRows, encode_rows, queue_hashes
from fusee.pipeline.staged_commit import Staged, StagedCommit
from fusee.pipeline.write_routes import WriteQueue, WriteRoutes, WriteSettings
from tests.pipeline.written import bodies_in, messages_in

_numbers = itertools.count()


@pytest.fixture(scope="module")
def server() -> Iterator[fusee.sync.EmbeddedServer]:
    with fusee.sync.embedded() as running:
        yield running


@pytest.fixture
def topic(server: fusee.sync.EmbeddedServer) -> str:
    name = f"delivered-{next(_numbers)}"
    server.create_topics({name: 4})
    return name


def settings(server: fusee.sync.EmbeddedServer, **changes: Any) -> WriteSettings:
    given: dict[str, Any] = {"request_timeout_ms": 5000, "retries": 2, "retry_delay_ms": 1, **changes}
    return WriteSettings(name_servers=server.name_server, **given)


def rows(*bodies: bytes, **columns: Any) -> EncodedRows:
    return encode_rows(Columns(pa.array(bodies, pa.binary()), **columns), first_row=0)


def write(given: WriteSettings, topic: str, *batches: EncodedRows, staging: Staging | None = None) -> dict[str, int]:
    delivery = Delivery(given, staging=staging)
    for batch in batches:
        delivery.write(topic, batch)
    return delivery.finish().parts


def test_rows_go_to_all_queues_in_turn_and_none_is_lost(server: fusee.sync.EmbeddedServer, topic: str) -> None:
    bodies = [b"%04d" % number for number in range(500)]
    delivery = Delivery(settings(server, batch_bytes=200))
    delivery.write(topic, rows(*bodies))
    assert delivery.finish().messages == 500
    found = messages_in(server.name_server, topic)
    assert sorted(message.body for each in found.values() for message in each) == bodies
    assert all(len(each) > 50 for each in found.values())


def test_rows_of_one_key_are_in_one_queue_in_their_order(server: fusee.sync.EmbeddedServer, topic: str) -> None:
    keys = pa.array([f"key-{number % 7}" for number in range(300)])
    delivery = Delivery(settings(server, batch_bytes=500))
    delivery.write(topic, rows(*[b"%d" % number for number in range(300)], order_by=keys), queue_hashes(keys))
    delivery.finish()
    places: dict[str, list[int]] = {}
    for queue, found in messages_in(server.name_server, topic).items():
        for message in found:
            key = message.properties["__SHARDINGKEY"]
            assert java_hash(key) is not None
            assert queue.queue_id == abs(java_hash(key)) % 4
            places.setdefault(key, []).append(int(message.body))
    assert places == {f"key-{key}": list(range(key, 300, 7)) for key in range(7)}


def test_staged_rows_are_there_after_the_commit_and_not_before(server: fusee.sync.EmbeddedServer, topic: str) -> None:
    given = settings(server, batch_bytes=100)
    parts = write(given, topic, rows(b"a", b"b"), rows(b"c" * 90), staging=Staging("app-1", 0, "t"))
    assert sum(parts.values()) == 2
    assert bodies_in(server.name_server, topic) == []
    commit = StagedCommit(given, "app-1")
    assert commit.commit(0, [Staged("t", parts)])
    assert bodies_in(server.name_server, topic) == [b"a", b"b", b"c" * 90]
    assert not commit.commit(0, [Staged("t", parts)])
    # The batch again, as a query does it that did not hear of its commit.
    again = write(given, topic, rows(b"a", b"b"), staging=Staging("app-1", 0, "u"))
    commit.commit(0, [Staged("u", again)])
    assert bodies_in(server.name_server, topic) == [b"a", b"b", b"c" * 90]


def test_dropped_rows_cannot_be_committed(server: fusee.sync.EmbeddedServer, topic: str) -> None:
    given = settings(server)
    staged = Staged("t", write(given, topic, rows(b"a"), staging=Staging("app-2", 0, "t")))
    commit = StagedCommit(given, "app-2")
    commit.drop([staged])
    with pytest.raises(FuseeError, match="stage the batch again"):
        commit.commit(0, [staged])


def test_cluster_of_fusee_knows_staged_batches(server: fusee.sync.EmbeddedServer) -> None:
    assert StagedCommit(settings(server), "app").knows_staged_batches()


def test_delayed_rows_wait_sent_or_staged(server: fusee.sync.EmbeddedServer, topic: str) -> None:
    given = settings(server)
    delayed = rows(b"later", b"now", delay_level=pa.array([18, 0]))
    write(given, topic, delayed)
    assert bodies_in(server.name_server, topic) == [b"now"]
    parts = write(given, topic, delayed, staging=Staging("app-3", 0, "t"))
    StagedCommit(given, "app-3").commit(0, [Staged("t", parts)])
    assert bodies_in(server.name_server, topic) == [b"now", b"now"]
    assert len(messages_in(server.name_server, "SCHEDULE_TOPIC_XXXX")[WriteQueue(broker_of(given), 17)]) == 2


def broker_of(given: WriteSettings) -> str:
    (name,) = WriteRoutes(given, None).masters()
    return name


def test_exact_time_is_refused_by_name_of_the_column(server: fusee.sync.EmbeddedServer, topic: str) -> None:
    exact = rows(b"a", deliver_at_ms=pa.array([4_000_000_000_000]))
    with pytest.raises(InvalidRequestError, match="column deliverAt.*delayLevel"):
        write(settings(server), topic, exact)
    with pytest.raises(FuseeError, match="deliverAt"):
        write(settings(server), topic, exact, staging=Staging("app-4", 0, "t"))


def test_topic_that_is_missing_is_named_or_made(server: fusee.sync.EmbeddedServer) -> None:
    with pytest.raises(TopicNotFoundError, match="createTopics"):
        write(settings(server, retries=0), "missing", rows(b"a"))
    write(settings(server, create_queues=3), "made", rows(b"a"))
    assert len(messages_in(server.name_server, "made")) == 3
    assert bodies_in(server.name_server, "made") == [b"a"]


def test_broker_that_does_not_answer_is_named_with_the_tries(server: fusee.sync.EmbeddedServer) -> None:
    with fusee.sync.embedded() as other:
        other.create_topics(["gone"])
        given = settings(other)
        delivery = Delivery(given)
        delivery.write("gone", rows(b"a"))
        delivery.finish()
    with pytest.raises((SendFailedError, FuseeError), match="tries|name server"):
        write(given, "gone", rows(b"b"))


def test_message_over_the_limit_is_refused_with_the_limit(server: fusee.sync.EmbeddedServer, topic: str) -> None:
    with pytest.raises(FuseeError, match="4194304"):
        write(settings(server, request_timeout_ms=20_000), topic, rows(b"x" * 5_000_000))
