"""Rows to a running broker, without Spark."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import fusee.sync
from fusee.client.selection import java_hash
from fusee.errors import ConnectionLostError, FuseeError, InvalidRequestError, SendFailedError, TopicNotFoundError
from fusee.pipeline.blocking_link import Answer, BlockingLink
from fusee.pipeline.delivery import Delivery, Staging
from fusee.pipeline.row_encoding import Columns, EncodedRows, encode_rows, queue_hashes
from fusee.pipeline.staged_commit import Staged, StagedCommit
from fusee.pipeline.write_routes import WriteQueue, WriteRoutes, WriteSettings
from fusee.wire.codes import RequestCode
from fusee.wire.command import Command
from fusee.wire.headers.handover import OpenHandoverResponse
from tests.pipeline.written import bodies_in, messages_in

_numbers = itertools.count()
WAY: dict[str, bool] = {}


@pytest.fixture(scope="module")
def server() -> Iterator[fusee.sync.EmbeddedServer]:
    with fusee.sync.embedded() as running:
        yield running


@pytest.fixture
def topic(server: fusee.sync.EmbeddedServer) -> str:
    name = f"delivered-{next(_numbers)}"
    server.create_topics({name: 4})
    return name


@pytest.fixture(params=[True, False], ids=["handed over", "over the network"], autouse=True)
def ways(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test writes both ways: the broker is beside it, where a writer shares memory with it."""
    monkeypatch.setitem(WAY, "local_writes", request.param)


def settings(server: fusee.sync.EmbeddedServer, **changes: Any) -> WriteSettings:
    given: dict[str, Any] = {"request_timeout_ms": 5000, "retries": 2, "retry_delay_ms": 1, **WAY, **changes}
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
    application = f"app-{topic}"
    parts = write(given, topic, rows(b"a", b"b"), rows(b"c" * 90), staging=Staging(application, 0, "t"))
    assert sum(parts.values()) == 2
    assert bodies_in(server.name_server, topic) == []
    commit = StagedCommit(given, application)
    assert commit.commit(0, [Staged("t", parts)])
    assert bodies_in(server.name_server, topic) == [b"a", b"b", b"c" * 90]
    assert not commit.commit(0, [Staged("t", parts)])
    # The batch again, as a query does it that did not hear of its commit.
    again = write(given, topic, rows(b"a", b"b"), staging=Staging(application, 0, "u"))
    commit.commit(0, [Staged("u", again)])
    assert bodies_in(server.name_server, topic) == [b"a", b"b", b"c" * 90]


def test_rows_of_many_batches_go_in_few_requests(server: fusee.sync.EmbeddedServer, topic: str) -> None:
    bodies = [b"%04d" % number for number in range(400)]
    batches = [rows(*bodies[first : first + 20]) for first in range(0, 400, 20)]
    given, application = settings(server), f"app-5-{topic}"
    parts = write(given, topic, *batches, staging=Staging(application, 0, "t"))
    assert list(parts.values()) == [1]
    assert StagedCommit(given, application).commit(0, [Staged("t", parts)])
    assert bodies_in(server.name_server, topic) == bodies
    write(given, topic, *batches)
    found = [[each.body for each in each_queue] for each_queue in messages_in(server.name_server, topic).values()]
    assert sorted(map(len, found)) in ([0, 0, 0, 800], [0, 0, 400, 400])


def test_rows_of_several_topics_and_queues_are_gathered_each_by_itself(
    server: fusee.sync.EmbeddedServer, topic: str
) -> None:
    """More at once than there is memory for: the oldest goes first, and nothing is lost or changes its order."""
    topics = [topic, *(f"{topic}-{number}" for number in range(6))]
    server.create_topics(dict.fromkeys(topics[1:], 4))
    delivery = Delivery(settings(server, batch_bytes=1000, in_flight_bytes=4000))
    for first in range(0, 300, 10):
        numbers = range(first, first + 10)
        for name in topics:
            keys = pa.array([f"key-{number % 7}" for number in numbers])
            batch = rows(*[b"%d" % number for number in numbers], order_by=keys)
            delivery.write(name, batch, queue_hashes(keys) if name != topic else None)
    assert delivery.finish().messages == 300 * len(topics)
    for name in topics:
        found = [[int(each.body) for each in queue] for queue in messages_in(server.name_server, name).values()]
        assert sorted(number for queue in found for number in queue) == list(range(300))
        if name != topic:
            assert all(queue == sorted(queue) for queue in found)


def test_rows_of_many_topics_that_come_mixed_go_in_few_requests(server: fusee.sync.EmbeddedServer, topic: str) -> None:
    """Each topic gets a share of the memory, so none has to make room for the next."""
    topics = [f"{topic}-mixed-{number}" for number in range(5)]
    server.create_topics(dict.fromkeys(topics, 1))
    given, application = settings(server), f"app-6-{topic}"
    delivery = Delivery(given, staging=Staging(application, 0, "t"))
    for number in range(40):
        for name in topics:
            delivery.write(name, rows(b"%d" % number))
    parts = delivery.finish().parts
    # The first two begin with the share of fewer, and are sent once to make room.
    assert 5 <= sum(parts.values()) <= 10
    StagedCommit(given, application).commit(0, [Staged("t", parts)])
    for name in topics:
        (queue,) = messages_in(server.name_server, name).values()
        assert [int(each.body) for each in queue] == list(range(40))


def test_request_that_was_being_filled_when_its_connection_broke_is_whole(
    server: fusee.sync.EmbeddedServer, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    receive = BlockingLink.receive
    delivery = Delivery(settings(server, batch_bytes=5000, in_flight_bytes=40_000, retries=3))
    being_filled: list[int] = []

    def breaking(link: BlockingLink, opaque: int, *, reuse: bool = False) -> Answer:
        filled = [each.count for each in delivery._gathered.values()]
        if filled and not being_filled:
            being_filled.extend(filled)
            link.close()
            raise ConnectionLostError("gone", address=link.address)
        return receive(link, opaque, reuse=reuse)

    bodies = [b"%05d" % number * 20 for number in range(2000)]
    keys = pa.array(["a", "b"] * 25)
    for first in range(0, len(bodies), 50):
        delivery.write(topic, rows(*bodies[first : first + 50], order_by=keys), queue_hashes(keys))
        # The first connection has shared its memory by now, and may go.
        monkeypatch.setattr(BlockingLink, "receive", breaking)
    delivery.finish()
    assert any(being_filled)
    assert set(bodies_in(server.name_server, topic)) == set(bodies)


def test_dropped_rows_cannot_be_committed(server: fusee.sync.EmbeddedServer, topic: str) -> None:
    given = settings(server)
    staged = Staged("t", write(given, topic, rows(b"a"), staging=Staging(f"app-2-{topic}", 0, "t")))
    commit = StagedCommit(given, f"app-2-{topic}")
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
    parts = write(given, topic, delayed, staging=Staging(f"app-3-{topic}", 0, "t"))
    StagedCommit(given, f"app-3-{topic}").commit(0, [Staged("t", parts)])
    assert bodies_in(server.name_server, topic) == [b"now", b"now"]
    waiting = messages_in(server.name_server, "SCHEDULE_TOPIC_XXXX")[WriteQueue(broker_of(given), 17)]
    assert [message.properties["REAL_TOPIC"] for message in waiting].count(topic) == 2


def broker_of(given: WriteSettings) -> str:
    (name,) = WriteRoutes(given, None).masters()
    return name


def test_exact_time_is_refused_by_name_of_the_column(server: fusee.sync.EmbeddedServer, topic: str) -> None:
    exact = rows(b"a", deliver_at_ms=pa.array([4_000_000_000_000]))
    with pytest.raises(InvalidRequestError, match="column deliverAt.*delayLevel"):
        write(settings(server), topic, exact)
    with pytest.raises(FuseeError, match="deliverAt"):
        write(settings(server), topic, exact, staging=Staging(f"app-4-{topic}", 0, "t"))


def test_topic_that_is_missing_is_named_or_made(server: fusee.sync.EmbeddedServer) -> None:
    with pytest.raises(TopicNotFoundError, match="createTopics"):
        write(settings(server, retries=0), "missing", rows(b"a"))
    made = f"made-{next(_numbers)}"
    write(settings(server, create_queues=3), made, rows(b"a"))
    assert len(messages_in(server.name_server, made)) == 3
    assert bodies_in(server.name_server, made) == [b"a"]


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


def test_very_many_small_messages_are_divided_as_the_broker_stores_them(
    server: fusee.sync.EmbeddedServer,
) -> None:
    name = f"{next(_numbers):t>120}"
    server.create_topics({name: 1})
    many = 40_000  # of which a request could hold all, and a broker could store a third of at once
    write(settings(server), name, rows(*[b"x"] * many))
    with server.connect() as client:
        assert sum(queue.max_offset for queue in client.admin.topic_stats(name).queues) == many


def test_many_messages_are_divided_for_a_broker_that_seals_each_with_a_crc() -> None:
    many = 60_000
    with fusee.sync.embedded(enabled_append_prop_crc=True) as sealing:
        sealing.create_topics({"sealed": 1})
        write(settings(sealing), "sealed", rows(*[b"x" * 40] * many))
        with sealing.connect() as client:
            assert sum(queue.max_offset for queue in client.admin.topic_stats("sealed").queues) == many


def test_small_memory_is_used_again_and_again(server: fusee.sync.EmbeddedServer, topic: str) -> None:
    bodies = [b"%05d" % number * 20 for number in range(3000)]
    given = settings(server, batch_bytes=900, in_flight_bytes=4000)
    write(given, topic, rows(*bodies), rows(b"larger than all memory " * 400))
    assert sorted(bodies_in(server.name_server, topic)) == sorted([*bodies, b"larger than all memory " * 400])


def test_what_was_under_way_when_a_connection_broke_is_sent_again_unharmed(
    server: fusee.sync.EmbeddedServer, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bodies = [b"%05d" % number * 20 for number in range(3000)]
    receive = BlockingLink.receive
    answers = itertools.count()

    def breaking(link: BlockingLink, opaque: int, *, reuse: bool = False) -> Answer:
        if next(answers) in (20, 60, 61):
            raise ConnectionLostError("gone", address=link.address)
        return receive(link, opaque, reuse=reuse)

    monkeypatch.setattr(BlockingLink, "receive", breaking)
    write(settings(server, batch_bytes=900, in_flight_bytes=8000, retries=3), topic, rows(*bodies))
    monkeypatch.undo()
    found = bodies_in(server.name_server, topic)
    assert set(found) == set(bodies)
    assert len(found) > len(bodies)


def test_bytes_do_not_travel_to_a_broker_on_this_machine(
    server: fusee.sync.EmbeddedServer, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[int] = []
    send = BlockingLink.send

    def counting(link: BlockingLink, command: Command, body: memoryview | None = None) -> int:
        sent.append(0 if body is None else len(body))
        return send(link, command, body)

    monkeypatch.setattr(BlockingLink, "send", counting)
    write(settings(server), topic, rows(b"x" * 100_000), staging=Staging(f"app-{topic}", 0, "t"))
    write(settings(server), topic, rows(b"x" * 100_000))
    assert sum(sent) == (0 if WAY["local_writes"] and hasattr(os, "memfd_create") else 2 * 100_022)


def test_memory_that_is_not_the_broker_s_is_not_written_to(
    server: fusee.sync.EmbeddedServer, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tunnel leads to a broker elsewhere: its path names something else here, or nothing."""
    other = tmp_path / "other"
    other.write_bytes(bytes(10_000))
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    request = BlockingLink.request
    for path in (other, fifo, tmp_path / "absent", tmp_path):

        def elsewhere(link: BlockingLink, command: Command, path: Path = path) -> Answer:
            if command.code == RequestCode.OPEN_HANDOVER:
                header = OpenHandoverResponse(path=str(path), size=10_000, mark="m" * 32)
                return Answer(Command.request(0, header), memoryview(b""))
            return request(link, command)

        monkeypatch.setattr(BlockingLink, "request", elsewhere)
        write(settings(server, producer_group=f"P-{path.name}"), topic, rows(b"%b" % path.name.encode()))
    assert other.read_bytes() == bytes(10_000)
    assert len(bodies_in(server.name_server, topic)) == 4
