"""A store written here, closed or crashed, is opened by the real broker, read by the real client, and opened again.

In the long form two brokers run side by side: one on a store that was closed, one on the files of a store that was in
use, with the last record torn. One client reads both, looks messages up, and sends more; then the brokers stop, and
Fusee goes on.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from fusee.clock import ManualClock
from fusee.message.batch import BatchElement, join_batch
from fusee.message.compression import compress, compressed_sys_flag
from fusee.message.flags import CompressionType, SysFlag
from fusee.message.hosts import pack_host, pack_ip
from fusee.message.ids import UniqueIds, decode_offset_id, encode_offset_id
from fusee.message.properties import encode_properties
from fusee.message.record import decode_record
from fusee.message.topics import SCHEDULE_TOPIC
from fusee.store.config import StoreConfig
from fusee.store.consume_queue import Boundary
from fusee.store.engine import MessageStore
from fusee.store.new_record import NewRecord
from tests.interop.harness.processes import eventually
from tests.interop.harness.programs import Lookup
from tests.interop.harness.servers import FuseeNameServer, JavaBroker
from tests.interop.harness.stores import BrokerView, FolderView, broker_settings, copy_store

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tests.interop.harness.processes import Fleet
    from tests.interop.harness.toolchain import Runtime

pytestmark = [pytest.mark.interop, pytest.mark.timeout(900)]

CONFIG = StoreConfig(
    mapped_file_size_commit_log=262_144,
    mapped_file_size_consume_queue=400,
    mapper_file_size_batch_consume_queue=460,
    max_hash_slot_num=100,
    max_index_num=400,
    max_message_size=65_536,
)
LARGE_CONFIG = StoreConfig(
    mapped_file_size_commit_log=2 << 20,
    mapped_file_size_consume_queue=4_000,
    mapper_file_size_batch_consume_queue=4_600,
    max_hash_slot_num=5_000,
    max_index_num=20_000,
    max_message_size=65_536,
)
GROUP = "C_for_java"
BORN_HOST = pack_host("192.0.2.17", 54321)
HOUR_MS = 3_600_000
APPENDED = 20
# Messages that share a key; fewer than the most that one look-up gives.
SHARING = 40

Event = dict[str, Any]
Place = tuple[str, int, int]


@dataclass(frozen=True)
class Written:
    """A message as a client should see it, and where it was put."""

    topic: str
    queue_id: int
    queue_offset: int
    log_offset: int
    store_timestamp_ms: int
    body: bytes
    properties: dict[str, str]
    flag: int = 0

    @property
    def place(self) -> Place:
        return self.topic, self.queue_id, self.queue_offset


class Writer:
    """Puts messages of every kind into a store and remembers them."""

    def __init__(self, store: MessageStore, clock: ManualClock, prefix: str, store_host: bytes) -> None:
        self.store = store
        self.prefix = prefix
        self.queues = {
            f"{prefix}_plain": 4,
            f"{prefix}_batch": 2,
            f"{prefix}_inner": 1,
            f"{prefix}_delay": 1,
            # Over 127 bytes: its records are of version 2.
            f"{prefix}_{'long' * 40}": 1,
        }
        self.plain, self.batch, self.inner, self.delay, self.long = self.queues
        self.written: list[Written] = []
        self.delayed: dict[str, str] = {}
        self.pauses_ms: list[int] = []
        self._clock = clock
        self._store_host = store_host
        self._ids = UniqueIds(clock=clock, ip=pack_ip("192.0.2.17"), pid=7, seed=8)
        self._count = 0

    def fill(self, count: int) -> None:
        """So many puts, in groups of different size, with two pauses; everything dispatched, most of it flushed."""
        self.put_delayed()
        for number in range(count):
            self._put(number)
            if number % 7 == 0:
                self.store.write()
                self._clock.advance(0.025)
            if number % 50 == 0:
                self.store.dispatch()
                self.store.flush()
            if number % 120 == 0:
                self.store.flush_derived()
            if number in (count // 3, count * 2 // 3):
                # Clients look for keys by the second.
                self._clock.advance(5.0)
                self.pauses_ms.append(self._clock.time_ms())
                self._clock.advance(5.0)
        self.store.write()
        self.store.dispatch()

    def put_plain(self, queue_id: int, size: int) -> None:
        self._put_one(self.plain, queue_id, self._body(size))

    def put_delayed(self) -> None:
        """A message that was due long ago: the broker has to deliver it."""
        properties = self._properties()
        self.delayed = dict(properties)
        properties |= {"DELAY": "1", "REAL_TOPIC": self.delay, "REAL_QID": "0"}
        self.store.put(self._record(SCHEDULE_TOPIC, 0, b"late", properties))

    def _put(self, number: int) -> None:
        kind, turn = number % 12, number // 12
        if kind == 0:
            self._put_batch(turn % 2)
        elif kind == 1:
            self._put_inner_batch()
        elif kind == 2:
            codec = list(CompressionType)[turn % len(CompressionType)]
            body = self._body(5_000)
            self._put_one(self.plain, turn % 4, body, compress(body, codec), compressed_sys_flag(0, codec))
        elif kind == 3:
            self._put_one(self.long, 0, self._body(100))
        elif kind == 4:
            self._put_one(self.plain, turn % 4, b"\0", flag=-5 - turn)
        else:
            self.put_plain(number % 4, number * 37 % 3_000)

    def _put_one(
        self,
        topic: str,
        queue_id: int,
        body: bytes,
        stored_body: bytes | None = None,
        sys_flag: int = 0,
        flag: int = 0,
    ) -> None:
        properties = self._properties()
        record = self._record(topic, queue_id, body if stored_body is None else stored_body, properties, sys_flag, flag)
        result = self.store.put(record)
        self.written.append(
            Written(
                *(topic, queue_id, result.queue_offset, result.log_offset, result.store_timestamp_ms),
                *(body, properties, flag),
            )
        )

    def _put_batch(self, queue_id: int) -> None:
        messages = [(self._body(200), self._properties(), place) for place in range(6)]
        elements = [BatchElement(flag, body, encode_properties(properties)) for body, properties, flag in messages]
        result = self.store.put_batch(self._record(self.batch, queue_id, b"", {}), elements)
        for place, (body, properties, flag) in enumerate(messages):
            where = (self.batch, queue_id, result.queue_offset + place, result.log_offsets[place])
            self.written.append(Written(*where, result.store_timestamp_ms, body, properties, flag))

    def _put_inner_batch(self) -> None:
        messages = [(self._body(50), self._properties(), place) for place in range(5)]
        elements = [BatchElement(flag, body, encode_properties(properties)) for body, properties, flag in messages]
        sys_flag = SysFlag.NEED_UNWRAP | SysFlag.INNER_BATCH
        record = self._record(self.inner, 0, join_batch(elements), {"INNER_NUM": str(len(elements))}, sys_flag)
        result = self.store.put(record)
        for place, (body, properties, flag) in enumerate(messages):
            where = (self.inner, 0, result.queue_offset + place, result.log_offset)
            self.written.append(Written(*where, result.store_timestamp_ms, body, properties, flag))

    def _record(
        self, topic: str, queue_id: int, body: bytes, properties: dict[str, str], sys_flag: int = 0, flag: int = 0
    ) -> NewRecord:
        return NewRecord(
            topic,
            queue_id,
            body,
            encode_properties(properties),
            flag,
            sys_flag,
            self._clock.time_ms(),
            BORN_HOST,
            self._store_host,
        )

    def _body(self, size: int) -> bytes:
        return f"{self.prefix}-{self._count} é 消息 ".encode().ljust(size, b".")

    def _properties(self) -> dict[str, str]:
        number = self._count
        self._count += 1
        properties = {
            "KEYS": f"{self.prefix}-{number} shared-{number // SHARING} clé-{number}",
            "UNIQ_KEY": self._ids.next_id(),
            "origin": f"{number} 🚀",
            "WAIT": "true",
        }
        if number % 4:
            properties["TAGS"] = ("TagA", "TagB", "标签")[number % 4 - 1]
        return properties


@dataclass
class Case:
    """One store on its way: what was written, what the broker and the client said, what is there in the end."""

    prefix: str
    broker: JavaBroker
    writer: Writer
    expected: list[Written]
    consumed: list[Event] = field(default_factory=list)
    by_key: dict[tuple[str, str, int, int], list[Event]] = field(default_factory=dict)
    by_id: dict[tuple[str, str], Event] = field(default_factory=dict)
    by_time: dict[tuple[str, int, int], int] = field(default_factory=dict)
    sent: dict[int, list[Event]] = field(default_factory=dict)
    torn: Written | None = None
    folder: FolderView | None = None

    @property
    def reopened(self) -> FolderView:
        assert self.folder is not None
        return self.folder

    def in_queue(self, topic: str, queue_id: int) -> list[Written]:
        return [each for each in self.expected if (each.topic, each.queue_id) == (topic, queue_id)]


def closed_case(broker: JavaBroker, prefix: str, count: int, config: StoreConfig) -> Case:
    """A store that was closed properly."""
    writer = new_writer(broker.store_dir, broker, prefix, config)
    writer.fill(count)
    writer.store.close()
    write_broker_config(broker.store_dir, writer.queues)
    return Case(prefix, broker, writer, writer.written)


def crashed_case(broker: JavaBroker, prefix: str, count: int, config: StoreConfig, folder: Path) -> Case:
    """The files of a store as they were when it was in use, the last record torn in the middle of its body."""
    writer = new_writer(folder, broker, prefix, config)
    writer.fill(count)
    writer.put_plain(queue_id=3, size=1_000)
    writer.store.write()
    writer.store.dispatch()
    copy_store(folder, broker.store_dir)
    writer.store.close()
    *expected, torn = writer.written
    base = torn.log_offset - torn.log_offset % config.mapped_file_size_commit_log
    with (broker.store_dir / "commitlog" / f"{base:020}").open("r+b") as segment:
        segment.seek(torn.log_offset - base + 500)
        segment.write(bytes(config.mapped_file_size_commit_log - segment.tell()))
    write_broker_config(broker.store_dir, writer.queues)
    return Case(prefix, broker, writer, expected, torn=torn)


def new_writer(root: Path, broker: JavaBroker, prefix: str, config: StoreConfig) -> Writer:
    clock = ManualClock(time.time_ns() // 1_000_000 - HOUR_MS)
    store = MessageStore(root, config, clock=clock)
    store.open()
    return Writer(store, clock, prefix, pack_host("127.0.0.1", broker.port))


def write_broker_config(root: Path, queues: dict[str, int]) -> None:
    """What a broker has to know besides the store: its topics and groups, in its own format."""
    topics = {
        topic: {
            "attributes": {"queue.type": "BatchCQ"} if topic.endswith("_inner") else {},
            "order": False,
            "perm": 6,
            "readQueueNums": count,
            "topicFilterType": "SINGLE_TAG",
            "topicName": topic,
            "topicSysFlag": 0,
            "writeQueueNums": count,
        }
        for topic, count in queues.items()
    }
    version = {"counter": 1, "stateVersion": 0, "timestamp": 1_700_000_000_000}
    groups = {GROUP: {"groupName": GROUP, "consumeEnable": True, "consumeFromMinEnable": True, "retryQueueNums": 1}}
    config_dir = root / "config"
    config_dir.mkdir(exist_ok=True)
    for name, content in (
        ("topics.json", {"dataVersion": version, "topicConfigTable": topics}),
        ("subscriptionGroup.json", {"dataVersion": version, "subscriptionGroupTable": groups}),
    ):
        (config_dir / name).write_text(json.dumps(content, indent=1), encoding="utf-8")


def run_cases(
    fleet: Fleet, runtime: Runtime, count: int, config: StoreConfig, *, crash_dir: Path | None = None
) -> dict[str, Case]:
    """Writes the stores, lets Java work on them, and opens them again. No process is left behind.

    With `crash_dir` there is one that crashes, in this folder, beside the one that is closed.
    """
    name_server = FuseeNameServer(fleet, "namesrv-store")
    name_server.start()
    name_server.await_ready()
    settings = broker_settings(config)
    cases = [closed_case(JavaBroker(fleet, runtime, [name_server], settings=settings), "closed", count, config)]
    if crash_dir is not None:
        broker = JavaBroker(fleet, runtime, [name_server], name="broker-b", settings=settings)
        cases.append(crashed_case(broker, "crashed", count, config, crash_dir))
    for case in cases:
        case.broker.start()
    lookup = Lookup(fleet, runtime, name_server.address)
    for case in cases:
        case.broker.await_ready()
    lookup.await_ready()
    await_delivery(cases)
    consume(lookup, cases)
    for case in cases:
        ask(lookup, case)
    for case in cases:
        case.broker.begin_stop()
    lookup.kill()
    for case in cases:
        case.broker.stop()
        assert not (case.broker.store_dir / "abort").exists(), "the broker did not stop properly"
        case.folder = FolderView(case.broker.store_dir, config)
    name_server.kill()
    return {case.prefix: case for case in cases}


def await_delivery(cases: Sequence[Case]) -> None:
    for case in cases:
        view = BrokerView(case.broker.address)
        topic = case.writer.delay
        eventually(f"{topic} gets its message", lambda: view.limits(topic, 0).max_offset == 1)  # noqa: B023
        view.close()


def consume(lookup: Lookup, cases: Sequence[Case]) -> None:
    topics = [topic for case in cases for topic in case.writer.queues]
    count = sum(len(case.expected) + 1 for case in cases)
    received = lookup.consume(GROUP, count, *topics)
    for case in cases:
        case.consumed = [event for event in received if event["topic"] in case.writer.queues]


def ask(lookup: Lookup, case: Case) -> None:
    """Looks up some messages in every way there is, then sends more."""
    sample = [each for each in case.expected if each.topic != case.writer.inner][:: len(case.expected) // 15]
    asked = [*sample, case.torn] if case.torn else sample
    windows = [(0, (1 << 63) - 1), (case.writer.pauses_ms[0], case.writer.pauses_ms[1])]
    for each in asked:
        for key in each.properties["KEYS"].split():
            for begin_ms, end_ms in windows:
                case.by_key[each.topic, key, begin_ms, end_ms] = lookup.by_key(each.topic, key, begin_ms, end_ms)
    store_host = pack_host("127.0.0.1", case.broker.port)
    for each in sample:
        offset_id = encode_offset_id(store_host, each.log_offset)
        for message_id in (offset_id, each.properties["UNIQ_KEY"]):
            case.by_id[each.topic, message_id] = lookup.by_id(each.topic, message_id)
        for timestamp_ms in range(each.store_timestamp_ms - 1, each.store_timestamp_ms + 2):
            found = lookup.by_time(each.topic, case.broker.name, each.queue_id, timestamp_ms)
            case.by_time[each.topic, each.queue_id, timestamp_ms] = found
    for queue_id in range(4):
        prefix = f"{case.prefix}-from-java-{queue_id}"
        case.sent[queue_id] = lookup.send(case.writer.plain, case.broker.name, queue_id, APPENDED, prefix)


@pytest.fixture(scope="module")
def quick_cases(fleet: Fleet, current: Runtime) -> Iterator[dict[str, Case]]:
    cases = run_cases(fleet, current, 480, CONFIG)
    yield cases
    for case in cases.values():
        case.reopened.close()


@pytest.fixture(scope="module")
def long_cases(fleet: Fleet, current: Runtime, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Case]]:
    cases = run_cases(fleet, current, 20_000, LARGE_CONFIG, crash_dir=tmp_path_factory.mktemp("crash") / "store")
    yield cases
    for case in cases.values():
        case.reopened.close()


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(("quick_cases", "closed"), id="quick-closed", marks=pytest.mark.quick),
        pytest.param(("long_cases", "closed"), id="long-closed"),
        pytest.param(("long_cases", "crashed"), id="long-crashed"),
    ],
)
def case(request: pytest.FixtureRequest) -> Case:
    cases, name = request.param
    found: Case = request.getfixturevalue(cases)[name]
    return found


def test_client_consumes_every_message(case: Case) -> None:
    received = {(event["topic"], event["queueId"], event["queueOffset"]): event for event in case.consumed}
    delivered = received.pop((case.writer.delay, 0, 0))
    assert delivered["body"] == b"late".hex()
    assert delivered["msgId"] == case.writer.delayed["UNIQ_KEY"]
    assert delivered["keys"] == case.writer.delayed["KEYS"]
    assert set(received) == {each.place for each in case.expected}
    for each in case.expected:
        assert_is(received[each.place], each)


def test_client_consumes_each_queue_in_order_and_nothing_twice(case: Case) -> None:
    for topic, count in case.writer.queues.items():
        for queue_id in range(count):
            mine = [event for event in case.consumed if (event["topic"], event["queueId"]) == (topic, queue_id)]
            assert [event["queueOffset"] for event in mine] == list(range(len(mine)))
            assert mine


def test_client_finds_messages_by_key(case: Case) -> None:
    assert case.by_key
    for (topic, key, begin_ms, end_ms), events in case.by_key.items():
        expected = [
            each
            for each in case.expected
            if each.topic == topic
            and key in each.properties["KEYS"].split()
            and begin_ms <= each.store_timestamp_ms <= end_ms
        ]
        assert len(events) == len(expected), (topic, key)
        for event, each in zip(sorted(events, key=lambda event: event["logOffset"]), expected, strict=True):
            assert_is(event, each)


def test_client_finds_messages_by_id(case: Case) -> None:
    assert case.by_id
    by_offset_id = {(each.topic, each.log_offset): each for each in case.expected}
    by_unique_key = {(each.topic, each.properties["UNIQ_KEY"]): each for each in case.expected}
    for (topic, message_id), event in case.by_id.items():
        found = by_unique_key.get((topic, message_id))
        assert_is(event, found or by_offset_id[topic, decode_offset_id(message_id).log_offset])


def test_client_finds_messages_by_time(case: Case) -> None:
    assert case.by_time
    for (topic, queue_id, timestamp_ms), queue_offset in case.by_time.items():
        queue = case.in_queue(topic, queue_id)
        later = [each.queue_offset for each in queue if each.store_timestamp_ms >= timestamp_ms]
        assert queue_offset == (later[0] if later else len(queue)), (topic, queue_id, timestamp_ms)


def test_what_java_sent_goes_on_where_the_store_ended(case: Case) -> None:
    for queue_id, sent in case.sent.items():
        first = len(case.in_queue(case.writer.plain, queue_id))
        assert [event["status"] for event in sent] == ["SEND_OK"] * APPENDED
        assert [event["queueOffset"] for event in sent] == list(range(first, first + APPENDED))
    if case.torn:
        assert case.sent[3][0]["queueOffset"] == case.torn.queue_offset


def test_store_that_java_stopped_is_whole_here(case: Case) -> None:
    report = case.reopened.report
    assert (report.unclean, report.cut_bytes) == (False, 0)
    assert len(list((case.reopened.root / "commitlog").iterdir())) > 2


def test_every_message_is_still_here(case: Case) -> None:
    for each in case.expected:
        message = decode_record(case.reopened.record_at(each.topic, each.log_offset))
        if each.topic != case.writer.inner:
            assert (message.topic, message.queue_id, message.queue_offset) == each.place
            assert message.properties == each.properties
        assert message.store_timestamp_ms == each.store_timestamp_ms
    for topic, count in case.writer.queues.items():
        for queue_id in range(count):
            mine = [each.log_offset for each in case.in_queue(topic, queue_id)]
            log_offsets = [entry.log_offset for entry in case.reopened.entries(topic, queue_id)]
            assert log_offsets[: len(set(mine))] == sorted(set(mine))


def test_everything_java_added_is_here_too(case: Case) -> None:
    folder, topic = case.reopened, case.writer.plain
    for queue_id, sent in case.sent.items():
        records = folder.records(topic, queue_id)[-APPENDED:]
        for event, record in zip(sent, records, strict=True):
            message = decode_record(record)
            assert message.body.decode() == f"body of {event['name']}"
            assert (message.queue_offset, message.offset_id) == (event["queueOffset"], event["offsetId"])
            assert folder.by_key(topic, event["name"]) == [message.log_offset]
            assert folder.by_key(topic, event["uniqueKey"], unique=True) == [message.log_offset]
    [delivered] = [decode_record(record) for record in folder.records(case.writer.delay, 0)]
    assert delivered.body == b"late"


def test_keys_and_times_are_found_here_as_java_found_them(case: Case) -> None:
    folder = case.reopened
    for (topic, key, begin_ms, end_ms), events in case.by_key.items():
        expected = sorted(event["logOffset"] for event in events)
        assert folder.by_key(topic, key, begin_ms=begin_ms, end_ms=end_ms) == expected
    for (topic, queue_id, timestamp_ms), queue_offset in case.by_time.items():
        assert folder.by_time(topic, queue_id, timestamp_ms, Boundary.LOWER) == queue_offset


def test_next_message_put_here_follows_those_of_java(case: Case) -> None:
    store, topic = case.reopened.store, case.writer.plain
    queue_offset = case.reopened.limits(topic, 1).max_offset
    assert queue_offset >= case.sent[1][-1]["queueOffset"] + 1
    result = store.put(NewRecord(topic, 1, b"after Java"))
    store.write()
    store.dispatch()
    assert result.queue_offset == queue_offset
    assert decode_record(case.reopened.record_at(topic, result.log_offset)).body == b"after Java"


def assert_is(event: Event, each: Written) -> None:
    """A client was given this message."""
    assert (event["topic"], event["queueId"], event["queueOffset"]) == each.place
    assert event["logOffset"] == each.log_offset
    assert event["storeTimestamp"] == each.store_timestamp_ms
    assert event["body"] == each.body.hex()
    assert event["flag"] == each.flag
    assert event["tag"] == each.properties.get("TAGS")
    assert {name: event["properties"].get(name) for name in each.properties} == each.properties
    assert event["msgId"] == each.properties["UNIQ_KEY"]
