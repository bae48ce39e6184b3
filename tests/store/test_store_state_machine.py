"""The file store against the memory store, over any sequence of operations, crashes among them.

The file store lives on a simulated disk. After a crash the memory store is told where the file store's log ends now,
which must be at or behind what was flushed; from there on both must agree again, number by number and byte by byte.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from fusee.clock import ManualClock
from fusee.message.batch import BatchElement, join_batch
from fusee.message.hashing import tags_code
from fusee.message.properties import encode_properties
from fusee.message.record import iterate_records
from fusee.store.batch_body import BatchBody
from fusee.store.engine import MessageStore
from fusee.store.memory import MemoryStore
from fusee.store.new_record import NewRecord
from fusee.store.results import GetResult, GetStatus
from fusee.store.simulated_disk import Outcome, SimulatedDisk
from tests.store.crash.ledger import index_offsets, messages_of, small_config

if TYPE_CHECKING:
    from fusee.message.model import StoredMessage

ROOT = Path("/store")
LONG = bool(os.environ.get("FUSEE_LONG"))
TOPICS = st.sampled_from(["a", "b"])
QUEUES = st.integers(0, 1)
SIZES = st.sampled_from([0, 1, 60, 400, 1500])
TAGS = st.sampled_from(["", "red", "blue"])
KEYS = st.sampled_from(["", "k1", "k2", "k1 k3"])
# Where nothing can be got the two stores may tell it differently: one remembers a queue that the other never had.
NOTHING_THERE = (GetStatus.NO_MATCHED_LOGIC_QUEUE, GetStatus.NO_MESSAGE_IN_QUEUE)


def properties(tag: str, keys: str, number: int) -> bytes:
    values = {"UNIQ_KEY": f"U{number}", "TAGS": tag, "KEYS": keys}
    return encode_properties({name: value for name, value in values.items() if value})


class FileStoreAgainstMemoryStore(RuleBasedStateMachine):
    """Both stores get every operation; everything that they say is compared."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.config = small_config(enabled_append_prop_crc=False)
        self.disk = SimulatedDisk(self.clock)
        self.memory = MemoryStore(self.config, clock=self.clock)
        self.store = MessageStore(ROOT, self.config, files=self.disk, clock=self.clock)
        self.number = 0

    @initialize()
    def start(self) -> None:
        self.store.noted_count_min = 1
        self.store.open()

    # Putting

    @rule(topic=TOPICS, queue_id=QUEUES, size=SIZES, tag=TAGS, keys=KEYS)
    def put(self, topic: str, queue_id: int, size: int, tag: str, keys: str) -> None:
        self.number += 1
        record = NewRecord(topic, queue_id, bytes([self.number % 251 + 1]) * size, properties(tag, keys, self.number))
        assert self.store.put(record) == self.memory.put(record)
        self._dispatched_on_the_way()

    @rule(
        topic=TOPICS,
        queue_id=QUEUES,
        sizes=st.lists(SIZES.filter(lambda size: size < 500), min_size=1, max_size=5),
        as_body=st.booleans(),
    )
    def put_batch(self, topic: str, queue_id: int, sizes: list[int], as_body: bool) -> None:
        elements: list[BatchElement] = []
        for size in sizes:
            self.number += 1
            elements.append(BatchElement(0, bytes(size), properties("red", "", self.number)))
        record = NewRecord(topic, queue_id, b"")
        # As it comes over the wire, and so known before it is written; or by its parts.
        batch = BatchBody(join_batch(elements)) if as_body else elements
        assert self.store.put_batch(record, batch) == self.memory.put_batch(record, elements)
        self._dispatched_on_the_way()

    def _dispatched_on_the_way(self) -> None:
        """The file store dispatches when it must look for the end of a queue."""
        if self.store.dispatched_offset == self.store.written_offset:
            self.memory.dispatch()

    @rule()
    def roll(self) -> None:
        """Put until the next segment begins."""
        segment = self.store.end_offset // self.config.mapped_file_size_commit_log
        while self.store.end_offset // self.config.mapped_file_size_commit_log == segment:
            self.put("a", 0, 1500, "blue", "roll")

    # Steps behind the put

    @rule()
    def write(self) -> None:
        assert self.store.write() == self.memory.write()

    @rule()
    def flush(self) -> None:
        assert self.store.flush() == self.memory.flush()

    @rule()
    def dispatch(self) -> None:
        assert self.store.dispatch() == self.memory.dispatch()

    @rule()
    def flush_derived(self) -> None:
        self.store.flush_derived()

    @rule()
    def prepare(self) -> None:
        self.store.prepare()

    @rule(milliseconds=st.sampled_from([1, 500, 4_000]))
    def time_passes(self, milliseconds: int) -> None:
        self.clock.advance(milliseconds / 1000)

    # Getting

    @rule(
        topic=TOPICS,
        queue_id=QUEUES,
        queue_offset=st.integers(0, 25),
        count=st.integers(1, 12),
        size=st.sampled_from([None, 1, 700, 10_000]),
        tags=st.sampled_from([None, ["red"], ["red", "blue"], ["green"]]),
    )
    def get(
        self, topic: str, queue_id: int, queue_offset: int, count: int, size: int | None, tags: list[str] | None
    ) -> None:
        codes = None if tags is None else frozenset(tags_code(tag.encode()) for tag in tags)
        ours = self.store.get(topic, queue_id, queue_offset, count, size, codes)
        expected = self.memory.get(topic, queue_id, queue_offset, count, size, codes)
        if ours.status in NOTHING_THERE and expected.status in NOTHING_THERE:
            return
        assert seen(ours) == seen(expected)

    @rule(topic=TOPICS, key=st.sampled_from(["k1", "k2", "k3", "roll"]))
    def query(self, topic: str, key: str) -> None:
        assert index_offsets(self.store, topic, key) == self.memory.query_key(topic, key)

    # Ends and new beginnings

    @rule()
    def close_and_open(self) -> None:
        self.store.close()
        self.memory.flush()
        self.memory.dispatch()
        self._open(self.disk)

    @rule(seed=st.integers(0, 1 << 16), outcome=st.sampled_from(Outcome))
    def crash(self, seed: int, outcome: Outcome) -> None:
        flushed = self.store.flushed_offset
        self._open(self.disk.crash(seed, outcome))
        end_offset = self.store.end_offset
        assert end_offset >= flushed
        self.memory.truncate(end_offset)
        self.memory.flush()
        self.memory.dispatch()

    @rule()
    def kill(self) -> None:
        written = self.store.written_offset
        self._open(self.disk.kill())
        assert self.store.end_offset == written
        self.memory.truncate(written)
        self.memory.flush()
        self.memory.dispatch()

    def _open(self, disk: SimulatedDisk) -> None:
        self.disk = disk
        self.store = MessageStore(ROOT, self.config, files=disk, clock=self.clock)
        self.store.open()

    @rule(choice=st.integers(0, 1 << 16))
    def truncate(self, choice: int) -> None:
        self.write()
        offsets = [message.log_offset for message in messages_of(self.store)]
        if offsets:
            log_offset = offsets[choice % len(offsets)]
            self.store.truncate(log_offset)
            self.memory.truncate(log_offset)

    @precondition(lambda self: len(self.store.log.segments()) > 1)
    @rule()
    def expire(self) -> None:
        self.clock.advance(80 * 3600)
        self.write()
        self.dispatch()
        self.store.retention.delete_by_hand()
        self.store.expire()
        self.memory.drop_before(self.store.log.min_offset)

    # Always

    @invariant()
    def offsets_agree(self) -> None:
        assert self.store.end_offset == self.memory.end_offset
        assert self.store.written_offset == self.memory.written_offset
        assert self.store.flushed_offset == self.memory.flushed_offset
        assert self.store.dispatched_offset == self.memory.dispatched_offset

    @invariant()
    def records_agree(self) -> None:
        for message in messages_of(self.store):
            ours, expected = self.store.record_at(message.log_offset), self.memory.record_at(message.log_offset)
            assert ours is not None
            assert expected is not None
            assert bytes(ours) == bytes(expected)

    @invariant()
    def queues_agree(self) -> None:
        for topic in ("a", "b"):
            for queue_id in (0, 1):
                if self.store.queues.get(topic, queue_id) is None and self.memory.max_offset(topic, queue_id) == 0:
                    continue
                ours = self.store.min_offset(topic, queue_id), self.store.max_offset(topic, queue_id)
                assert ours == (self.memory.min_offset(topic, queue_id), self.memory.max_offset(topic, queue_id))


def seen(result: GetResult) -> tuple[object, ...]:
    """What a caller sees of a get, however the records are sliced."""
    messages: list[StoredMessage] = [message for part in result.slices for message in iterate_records(bytes(part))]
    return (
        result.status,
        result.next_offset,
        result.min_offset,
        result.max_offset,
        result.count,
        result.size,
        list(result.queue_offsets),
        messages,
    )


TestFileStoreAgainstMemoryStore = FileStoreAgainstMemoryStore.TestCase
# Minutes are for making a failure small.
TestFileStoreAgainstMemoryStore.pytestmark = [pytest.mark.timeout(1_800 if LONG else 600)]  # type: ignore[attr-defined]
TestFileStoreAgainstMemoryStore.settings = settings(
    max_examples=2_000 if LONG else 60,
    stateful_step_count=60 if LONG else 40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
