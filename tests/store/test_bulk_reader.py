"""Bulk reads against ordinary gets of the same queues."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fusee.message.hashing import tags_code
from fusee.message.record import iterate_records
from fusee.store import bulk_reader
from fusee.store.bulk_reader import QueueSpan, is_bulk_readable, read_bulk
from fusee.store.config import StoreConfig
from fusee.store.engine import MessageStore
from fusee.store.new_record import NewRecord
from fusee.store.simulated_disk import SimulatedDisk

TOPIC = "orders"
CONFIG = StoreConfig(mapped_file_size_commit_log=4096, mapped_file_size_consume_queue=20 * 16)
QUEUES = 3


class Sent(NamedTuple):
    """A message: topic, queue, size of its body, tag."""

    is_ours: bool
    queue_id: int
    size: int
    tag: str


SENDS = st.lists(
    st.builds(
        Sent,
        st.sampled_from([True, True, True, False]),
        st.integers(0, QUEUES - 1),
        st.sampled_from([0, 10, 10, 10, 300]),
        st.sampled_from("ab"),
    ),
    max_size=60,
)


def filled(sends: list[Sent]) -> MessageStore:
    store = MessageStore(Path("/store"), CONFIG, files=SimulatedDisk())
    store.open()
    for number, sent in enumerate(sends):
        properties = b"TAGS\x01%s\x02" % sent.tag.encode()
        body = b"%d" % number + b"." * sent.size
        store.put(NewRecord(TOPIC if sent.is_ours else "other", sent.queue_id, body, properties))
    store.flush()
    store.dispatch()
    return store


def expected(store: MessageStore, span: QueueSpan, codes: frozenset[int] | None) -> list[bytes]:
    """The bodies of a span by ordinary gets."""
    found: list[bytes] = []
    queue_offset = span.start_offset
    end = min(span.end_offset, store.max_offset(TOPIC, span.queue_id))
    while queue_offset < end:
        result = store.get(TOPIC, span.queue_id, queue_offset, 1, tags_codes=codes)
        messages = list(iterate_records(b"".join(result.slices)))
        found.extend(message.body for message in messages if message.queue_offset < end)
        queue_offset = result.next_offset
    return found


@settings(max_examples=150, deadline=None)
@given(
    SENDS,
    st.lists(st.tuples(st.integers(0, 25), st.integers(0, 30)), min_size=QUEUES, max_size=QUEUES),
    st.sampled_from([1, 200, 1000, 100_000]),
    st.sampled_from([None, frozenset({tags_code(b"a")})]),
    st.sampled_from([3, 7, 10_000]),
    st.sampled_from([0, 2, 100]),
)
def test_all_answers_together_are_what_gets_give(
    sends: list[Sent],
    borders: list[tuple[int, int]],
    bytes_max: int,
    codes: frozenset[int] | None,
    entries_max: int,
    slices_max: int,
) -> None:
    store = filled(sends)
    spans = [QueueSpan(queue_id, start, start + length) for queue_id, (start, length) in enumerate(borders)]
    wanted = {span.queue_id: expected(store, span, codes) for span in spans}
    found: dict[int, list[bytes]] = {span.queue_id: [] for span in spans}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bulk_reader, "ENTRIES_MAX", entries_max)
        patch.setattr(bulk_reader, "FILTERED_ENTRIES_MAX", entries_max)
        patch.setattr(bulk_reader, "SLICES_MAX", slices_max)
        while True:
            answer = read_bulk(store.log, store.queues, TOPIC, spans, bytes_max=bytes_max, tags_codes=codes)
            data = b"".join(answer.parts)
            messages = list(iterate_records(data))
            assert [message.store_size for message in messages] == answer.sizes.tolist()
            assert answer.size == len(data)
            assert len(data) <= bytes_max or len(messages) == 1
            assert [message.log_offset for message in messages] == sorted(message.log_offset for message in messages)
            assert {message.topic for message in messages} <= {TOPIC}
            for message in messages:
                found[message.queue_id].append(message.body)
            for read in answer.queues:
                of_queue = [message for message in messages if message.queue_id == read.queue_id]
                assert (read.record_count, read.size) == (
                    len(of_queue),
                    sum(message.store_size for message in of_queue),
                )
                assert all(message.queue_offset < read.next_offset for message in of_queue)
            further = [
                span._replace(start_offset=read.next_offset) for span, read in zip(spans, answer.queues, strict=True)
            ]
            if further == spans:
                break
            spans = further
    assert found == wanted
    for span, read in zip(spans, answer.queues, strict=True):
        end = store.max_offset(TOPIC, span.queue_id)
        assert read.max_offset == end
        assert span.start_offset >= min(span.end_offset, end)


def test_queues_of_a_topic_that_has_the_log_for_itself_are_one_slice() -> None:
    store = filled([Sent(True, number % QUEUES, 10, "a") for number in range(12)])
    answer = read_bulk(
        store.log, store.queues, TOPIC, [QueueSpan(queue_id, 0, 100) for queue_id in range(3)], bytes_max=1 << 20
    )
    assert len(answer.parts) == 1
    assert len(answer.sizes) == 12
    one = read_bulk(store.log, store.queues, TOPIC, [QueueSpan(1, 0, 100)], bytes_max=1 << 20)
    assert [message.queue_id for message in iterate_records(b"".join(one.parts))] == [1] * 4


def test_what_is_expired_or_not_there_yet_is_left_as_it_is() -> None:
    store = filled([Sent(True, 0, 300, "a")] * 30)
    store.log.drop_head(8192)
    store.queues.drop_before(store.log.min_offset)
    first = store.min_offset(TOPIC, 0)
    assert first > 0
    for start in (0, 30, 99):
        answer = read_bulk(store.log, store.queues, TOPIC, [QueueSpan(0, start, 200)], bytes_max=1 << 20)
        (read,) = answer.queues
        assert (read.next_offset, read.min_offset, read.max_offset, answer.parts) == (start, first, 30, [])
    (read,) = read_bulk(store.log, store.queues, TOPIC, [QueueSpan(7, 0, 9)], bytes_max=9).queues
    assert read == (7, 0, 0, 0, 0, 0)


def test_nothing_behind_the_confirmed_offset_is_given() -> None:
    store = filled([Sent(True, 0, 10, "a")] * 3)
    store.confirm(store.written_offset)
    store.put(NewRecord(TOPIC, 0, b"later"))
    store.flush()
    store.dispatch()
    answer = read_bulk(store.log, store.queues, TOPIC, [QueueSpan(0, 0, 9)], bytes_max=1 << 20)
    assert len(answer.sizes) == 3
    store.confirm(None)
    store.dispatch()
    answer = read_bulk(store.log, store.queues, TOPIC, [QueueSpan(0, 0, 9)], bytes_max=1 << 20)
    assert len(answer.sizes) == 4


def test_sizes_are_numbers_of_32_bits() -> None:
    store = filled([Sent(True, 0, 10, "a")])
    answer = read_bulk(store.log, store.queues, TOPIC, [QueueSpan(0, 0, 9)], bytes_max=1)
    assert answer.sizes.dtype == np.int32
    assert is_bulk_readable(store.queues, TOPIC, [QueueSpan(0, 0, 1), QueueSpan(9, 0, 1)])
