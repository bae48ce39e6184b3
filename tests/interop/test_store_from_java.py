"""A store that the real broker wrote, stopped or killed, is opened here: all of it must be what Java says it is.

Two witnesses speak for Java: its clients, who were told where each message went, and its broker, which is started on
the same files again and asked for everything it has.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any
from zlib import crc32

import pytest

from fusee.message.batch import unwrap_message
from fusee.message.compression import decompress_message
from fusee.message.ids import decode_offset_id
from fusee.message.record import decode_record
from fusee.message.topics import HALF_OP_TOPIC, HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC, dlq_topic, retry_topic
from fusee.store.config import StoreConfig
from fusee.store.consume_queue import Boundary
from fusee.store.transaction_table import TransactionState
from tests.interop.harness.processes import eventually
from tests.interop.harness.programs import Workload
from tests.interop.harness.servers import FuseeNameServer, JavaBroker
from tests.interop.harness.stores import (
    BrokerView,
    Entry,
    FolderView,
    QueueLimits,
    broker_settings,
    copy_store,
    log_offset_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from fusee.message.model import StoredMessage
    from tests.interop.harness.processes import Fleet
    from tests.interop.harness.toolchain import Runtime

pytestmark = [pytest.mark.interop, pytest.mark.timeout(900)]

GROUP = "C_from_java"
INDEX_ANSWERS_MAX = 64
FLOOD_THREADS = 8

# How a store was left: by a broker that was stopped, or killed; or with nothing but its log.
CLEAN, KILLED, REBUILT = "clean", "killed", "rebuilt"
DERIVED = ("consumequeue", "batchconsumequeue", "index")

Events = list[dict[str, Any]]


@dataclass(frozen=True)
class Scale:
    """How much is sent, and into files of which size."""

    with_clean_stop: bool
    mixed: int
    flooded: int
    keys_asked: int
    config: StoreConfig


QUICK = Scale(
    with_clean_stop=False,
    mixed=208,
    flooded=200,
    keys_asked=400,
    config=StoreConfig(
        mapped_file_size_commit_log=262_144,
        mapped_file_size_consume_queue=400,
        mapper_file_size_batch_consume_queue=460,
        max_hash_slot_num=100,
        max_index_num=400,
        max_message_size=65_536,
    ),
)
LONG = Scale(
    with_clean_stop=True,
    mixed=16_000,
    flooded=20_000,
    keys_asked=4_000,
    config=StoreConfig(
        mapped_file_size_commit_log=4 << 20,
        mapped_file_size_consume_queue=4_000,
        mapper_file_size_batch_consume_queue=4_600,
        max_hash_slot_num=5_000,
        max_index_num=20_000,
        max_message_size=65_536,
    ),
)


@dataclass
class Served:
    """All that a broker has served, asked for at once so that it can go on afterwards."""

    started_ms: int
    consumer_offsets: dict[str, dict[str, int]]
    limits: dict[tuple[str, int], QueueLimits] = field(default_factory=dict)
    records: dict[tuple[str, int], list[bytes]] = field(default_factory=dict)
    entries: dict[tuple[str, int], list[Entry]] = field(default_factory=dict)
    keys: dict[tuple[str, str, bool], list[int]] = field(default_factory=dict)
    times: dict[tuple[str, int, int, Boundary], int] = field(default_factory=dict)


@dataclass
class Evidence:
    """A store opened by Fusee and what Java says about it."""

    how: str
    sent: Events
    consumed: Events
    served: Served
    folder: FolderView

    def of_kind(self, *kinds: str) -> Events:
        return [event for event in self.sent if event["kind"] in kinds]

    def in_folder(self, records: list[bytes]) -> list[bytes]:
        """Those that were in the store when the broker was stopped: it goes on writing when it is started again."""
        end_offset = self.folder.store.end_offset
        later = [record for record in records if log_offset_of(record) >= end_offset]
        for record in later:
            assert decode_record(record).store_timestamp_ms >= self.served.started_ms, "this should have been found"
        return [record for record in records if log_offset_of(record) < end_offset]

    def message_of(self, event: dict[str, Any]) -> StoredMessage:
        """The record that this message became when it was sent."""
        if event["offsetId"] is None:
            # The half of a transaction: its sender is told a queue offset and no more.
            result = self.folder.store.get(HALF_TOPIC, 0, event["queueOffset"], 1)
            return decode_record(bytes(result.slices[0]))
        log_offset = decode_offset_id(event["offsetId"]).log_offset
        message = decode_record(self.folder.record_at(event["topic"], log_offset))
        assert message.offset_id == event["offsetId"]
        return message

    @cached_property
    def by_unique_key(self) -> dict[str, list[StoredMessage]]:
        """Every record of the topics that people send to."""
        found: dict[str, list[StoredMessage]] = {}
        for topic, queue_id in self.folder.queues():
            if topic.startswith("from_java"):
                for record in self.folder.records(topic, queue_id):
                    message = decode_record(record)
                    found.setdefault(message.unique_id or "", []).append(message)
        return found


class Site:
    """A broker that is filled, stopped or killed, and started on the same files to tell what it has."""

    def __init__(self, fleet: Fleet, runtime: Runtime, scale: Scale, folder: Path) -> None:
        self._scale = scale
        self._folder = folder
        self._name_server = FuseeNameServer(fleet, "namesrv-store")
        self._broker = JavaBroker(fleet, runtime, [self._name_server], settings=broker_settings(scale.config))
        self._sent: Events = []
        self._consumed: Events = []
        self._fleet = fleet
        self._runtime = runtime

    def gather(self) -> dict[str, Evidence]:
        """Everything to be known about this store, by how it was left. No process is left behind."""
        found: dict[str, Evidence] = {}
        workload = self._fill()
        if self._scale.with_clean_stop:
            self._broker.stop()
            assert not (self._broker.store_dir / "abort").exists(), "the broker did not stop properly"
            folder = self._open_copy(CLEAN)
            found[CLEAN] = Evidence(CLEAN, list(self._sent), self._consumed, self._serve(), folder)
        self._flood_and_kill(workload)
        folders = {KILLED: self._open_copy(KILLED), REBUILT: self._open_copy(REBUILT, without=DERIVED)}
        served = self._serve()
        for how, folder in folders.items():
            found[how] = Evidence(how, self._sent, self._consumed, served, folder)
        self._broker.kill()
        self._name_server.kill()
        return found

    def _fill(self) -> Workload:
        """Messages of every kind, all that is due delivered, a group that has read. The clients can go on sending."""
        self._name_server.start()
        self._broker.start()
        workload = Workload(self._fleet, self._runtime, self._name_server, self._broker, "from_java")
        self._name_server.await_ready()
        self._broker.await_ready()
        workload.begin()
        self._sent += workload.mix(self._scale.mixed)
        self._consumed += workload.consume(GROUP)
        assert self._consumed[-1]["complete"], self._consumed[-1]
        assert all(event["status"] == "SEND_OK" for event in self._sent)
        self._await_deliveries()
        return workload

    def _await_deliveries(self) -> None:
        due = sum(event["kind"] in ("delayDelivered", "timerDelivered") for event in self._sent)
        decided = {
            str(event["queueOffset"]) for event in self._sent if event["kind"] in ("COMMIT_MESSAGE", "ROLLBACK_MESSAGE")
        }
        view = BrokerView(self._broker.address)

        def all_is_settled() -> bool:
            delivered = sum(view.limits("from_java_delay", queue_id).max_offset for queue_id in range(2))
            ops = b"".join(decode_record(record).body for record in view.records(HALF_OP_TOPIC, 0))
            return delivered == due and decided <= set(ops.decode().split(","))

        eventually("everything due is delivered and every transaction decided", all_is_settled, timeout_s=60.0)
        view.close()
        # The broker saves them by a timer that starts some seconds after it; a kill before leaves nothing to compare.
        saved = self._broker.store_dir / "config" / "consumerOffset.json"
        eventually("the broker has saved consumer offsets", saved.exists, timeout_s=30.0)

    def _flood_and_kill(self, workload: Workload) -> None:
        """Kills the broker while many threads are sending to it."""
        workload.begin_flood(FLOOD_THREADS)
        events = workload.flooded(self._scale.flooded)
        self._broker.kill()
        events += workload.end_of_flood()
        workload.kill()
        assert sum(event["event"] == "ended" for event in events) == FLOOD_THREADS
        self._sent += [event for event in events if event["event"] == "sent" and event["status"] == "SEND_OK"]

    def _open_copy(self, name: str, *, without: tuple[str, ...] = ()) -> FolderView:
        """What Fusee makes of the files as they are now."""
        copy = copy_store(self._broker.store_dir, self._folder / name, without=without)
        return FolderView(copy, self._scale.config)

    def _serve(self) -> Served:
        """Starts the broker and asks for all it has."""
        queues = [
            (topic.name, int(queue.name))
            for root in ("consumequeue", "batchconsumequeue")
            for topic in sorted((self._broker.store_dir / root).iterdir())
            for queue in sorted(topic.iterdir())
        ]
        started_ms = time.time_ns() // 1_000_000
        self._broker.start()
        self._broker.await_ready()
        view = BrokerView(self._broker.address)
        served = Served(started_ms, view.consumer_offsets())
        for queue in queues:
            served.limits[queue] = view.limits(*queue)
            served.records[queue] = view.records(*queue)
            served.entries[queue] = view.entries(*queue)
        self._ask_keys(view, served)
        self._ask_times(view, served)
        view.close()
        return served

    def _ask_keys(self, view: BrokerView, served: Served) -> None:
        asked: dict[tuple[str, str, bool], None] = {}
        for event in self._sent:
            if event["kind"] != "inner":
                asked[event["topic"], event["uniqueKey"], True] = None
                for key in (event["keys"] or "").split():
                    asked[event["topic"], key, False] = None
        every = max(len(asked) // self._scale.keys_asked, 1)
        for topic, key, unique in list(asked)[::every]:
            served.keys[topic, key, unique] = view.by_key(topic, key, unique=unique)
        assert all(not view.by_key(topic, "no such key") for topic in {topic for topic, _, _ in asked})

    def _ask_times(self, view: BrokerView, served: Served) -> None:
        for queue, records in served.records.items():
            if queue[0] != "from_java_plain":
                continue
            times = sorted({decode_record(record).store_timestamp_ms for record in records})
            probed = [times[0] - 1, *times[:: max(len(times) // 20, 1)], times[-1] + 1]
            for timestamp_ms in {moved for each in probed for moved in (each - 1, each, each + 1)}:
                for boundary in Boundary:
                    asked = (*queue, timestamp_ms, boundary)
                    served.times[asked] = view.by_time(*asked)


def gathered(
    fleet: Fleet, runtime: Runtime, tmp_path_factory: pytest.TempPathFactory, scale: Scale
) -> Iterator[dict[str, Evidence]]:
    found = Site(fleet, runtime, scale, tmp_path_factory.mktemp("stores")).gather()
    yield found
    for evidence in found.values():
        evidence.folder.close()


@pytest.fixture(scope="module")
def quick_stores(
    fleet: Fleet, current: Runtime, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Evidence]]:
    yield from gathered(fleet, current, tmp_path_factory, QUICK)


@pytest.fixture(scope="module")
def long_stores(
    fleet: Fleet, current: Runtime, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Evidence]]:
    yield from gathered(fleet, current, tmp_path_factory, LONG)


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(("quick_stores", KILLED), id="quick-killed", marks=pytest.mark.quick),
        pytest.param(("quick_stores", REBUILT), id="quick-rebuilt", marks=pytest.mark.quick),
        pytest.param(("long_stores", CLEAN), id="long-clean"),
        pytest.param(("long_stores", KILLED), id="long-killed"),
        pytest.param(("long_stores", REBUILT), id="long-rebuilt"),
    ],
)
def evidence(request: pytest.FixtureRequest) -> Evidence:
    stores, how = request.param
    found: Evidence = request.getfixturevalue(stores)[how]
    return found


def test_recovery_cuts_nothing(evidence: Evidence) -> None:
    report = evidence.folder.report
    assert (report.unclean, report.cut_bytes) == (evidence.how != CLEAN, 0)


def test_store_has_several_files_of_each_kind(evidence: Evidence) -> None:
    for folder in ("commitlog", "index", "consumequeue/from_java_plain/0", "batchconsumequeue/from_java_inner/0"):
        assert len(list((evidence.folder.root / folder).iterdir())) > 1, folder


def test_every_message_is_where_the_client_was_told(evidence: Evidence) -> None:
    for event in evidence.sent:
        message = evidence.message_of(event)
        if event["kind"] == "inner":
            [message] = [each for each in unwrap_message(message) if each.queue_offset == event["queueOffset"]]
        assert_content(message, event)


def test_every_queue_holds_what_the_broker_serves(evidence: Evidence) -> None:
    folder, served = evidence.folder, evidence.served
    expected = {queue: evidence.in_folder(records) for queue, records in served.records.items()}
    assert set(folder.queues()) == {queue for queue, records in expected.items() if records}
    for queue in folder.queues():
        records = expected[queue]
        assert folder.records(*queue) == records, queue
        assert folder.entries(*queue) == served.entries[queue][: len(records)], queue
        assert folder.limits(*queue).min_offset == served.limits[queue].min_offset, queue
        if len(records) == len(served.records[queue]):
            assert folder.limits(*queue) == served.limits[queue], queue


def test_every_key_finds_what_the_broker_finds(evidence: Evidence) -> None:
    end_offset = evidence.folder.store.end_offset
    for (topic, key, unique), answer in evidence.served.keys.items():
        # The broker may have an entry twice, and has delivered more since it was started again.
        expected = sorted({log_offset for log_offset in answer if log_offset < end_offset})
        found = evidence.folder.by_key(topic, key, unique=unique)
        if len(answer) == INDEX_ANSWERS_MAX:
            found = found[-len(expected) :]
        assert found == expected, (topic, key)


def test_every_search_by_time_finds_what_the_broker_finds(evidence: Evidence) -> None:
    assert evidence.served.times
    for asked, queue_offset in evidence.served.times.items():
        assert evidence.folder.by_time(*asked) == queue_offset, asked


def test_consumer_offsets_are_the_brokers(evidence: Evidence) -> None:
    folder = evidence.folder
    offsets = folder.consumer_offsets()
    assert offsets == evidence.served.consumer_offsets
    if evidence.how == CLEAN:
        consumed = {str(queue_id): folder.limits("from_java_plain", queue_id).max_offset for queue_id in range(4)}
        assert offsets[f"from_java_plain@{GROUP}"] == consumed


def test_messages_that_were_sent_back_came_again(evidence: Evidence) -> None:
    folder = evidence.folder
    for event_name, topic in (("sentBack", retry_topic(GROUP)), ("dead", dlq_topic(GROUP))):
        expected = sorted(event["uniqueKey"] for event in evidence.consumed if event["event"] == event_name)
        records = [
            record for each, queue_id in folder.queues() if each == topic for record in folder.records(topic, queue_id)
        ]
        assert sorted(decode_record(record).unique_id or "" for record in records) == expected
        assert expected


def test_delayed_messages_wait_or_were_delivered(evidence: Evidence) -> None:
    for event in evidence.of_kind("delayDelivered", "timerDelivered"):
        [message] = evidence.by_unique_key[event["uniqueKey"]]
        assert message.topic == event["topic"]
        assert_content(message, event)
    for event in evidence.of_kind("delayPending", "timerPending"):
        assert event["uniqueKey"] not in evidence.by_unique_key
        message = evidence.message_of(event)
        assert message.topic == (SCHEDULE_TOPIC if event["kind"] == "delayPending" else TIMER_TOPIC)
        assert message.properties["REAL_TOPIC"] == event["topic"]


def test_transactions_are_committed_rolled_back_or_pending(evidence: Evidence) -> None:
    folder, table = evidence.folder, evidence.folder.store.transactions
    for event in evidence.of_kind("COMMIT_MESSAGE"):
        [message] = evidence.by_unique_key[event["uniqueKey"]]
        assert_content(message, event)
        entry = table.entry(event["queueOffset"])
        assert entry is not None
        assert entry.state == TransactionState.COMMITTED
    for event in evidence.of_kind("ROLLBACK_MESSAGE"):
        assert event["uniqueKey"] not in evidence.by_unique_key
        entry = table.entry(event["queueOffset"])
        assert entry is not None
        assert entry.state == TransactionState.DECIDED
    pending = [decode_record(folder.record_at(HALF_TOPIC, each.log_offset)) for each in table.pending(100_000)]
    expected = evidence.of_kind("UNKNOW")
    assert sorted(each.unique_id or "" for each in pending) == sorted(event["uniqueKey"] for event in expected)
    assert table.pending_count == len(expected) > 0
    assert not {event["uniqueKey"] for event in expected} & set(evidence.by_unique_key)


def assert_content(message: StoredMessage, event: dict[str, Any]) -> None:
    """A stored message is the one that was sent."""
    body = decompress_message(message).body
    assert (len(body), crc32(body)) == (event["bodySize"], event["bodyCrc"]), event
    assert message.unique_id == event["uniqueKey"], event
    assert message.tag == event["tag"], event
    assert message.properties.get("KEYS") == event["keys"], event
    assert message.properties.get("origin") == event["origin"], event
    assert message.flag == event["flag"], event
    if event["kind"] in ("plain", "batch", "inner"):
        place = (message.topic, message.queue_id, message.queue_offset)
        assert place == (event["topic"], event["queueId"], event["queueOffset"]), event
