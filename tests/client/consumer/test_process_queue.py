"""Whatever order messages are finished in, what may be committed is the lowest that is not."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from fusee.client.consumer.process_queue import Chunk, ProcessQueue
from fusee.client.pulled import decode_pulled
from fusee.client.received import ReceivedMessage
from fusee.message.model import MessageQueue
from fusee.message.record import encode_record
from tests.client.test_received import stored

QUEUE = MessageQueue("orders", "broker-a", 3)


def messages(*offsets: int) -> list[ReceivedMessage]:
    return decode_pulled(b"".join(encode_record(stored(queue_offset=at)) for at in offsets), "broker-a", "orders")


def queue_with(*offsets: int, start: int = 0) -> tuple[ProcessQueue, Chunk]:
    process_queue = ProcessQueue(QUEUE, start)
    chunk = process_queue.put(messages(*offsets), offsets[-1] + 1, 100)
    assert chunk is not None
    return process_queue, chunk


def test_watermark_when_nothing_is_here_is_the_next_offset() -> None:
    process_queue = ProcessQueue(QUEUE, 40)
    assert process_queue.watermark == 40
    assert process_queue.put([], 55, 0) is None
    assert (process_queue.watermark, process_queue.next_offset, process_queue.count) == (55, 55, 0)


def test_watermark_when_finished_in_order_follows() -> None:
    process_queue, chunk = queue_with(10, 12, 15)
    assert process_queue.watermark == 10
    chunk.finish(*chunk.take(1))
    assert process_queue.watermark == 12
    chunk.finish(*chunk.take(2))
    assert (process_queue.watermark, process_queue.count, process_queue.byte_size) == (16, 0, 0)


def test_watermark_when_finished_out_of_order_waits_for_the_first() -> None:
    process_queue, chunk = queue_with(10, 11, 12, 13)
    works = [chunk.take(1) for _ in range(4)]
    for work in reversed(works[1:]):
        chunk.finish(*work)
        assert process_queue.watermark == 10
    assert (process_queue.count, process_queue.span) == (1, 3)
    chunk.finish(*works[0])
    assert process_queue.watermark == 14


def test_watermark_when_later_chunk_ends_first_waits_for_the_earlier() -> None:
    process_queue, first = queue_with(0, 1)
    second = process_queue.put(messages(2, 3), 4, 50)
    assert second is not None
    second.finish(*second.take(2))
    assert (process_queue.watermark, process_queue.byte_size, process_queue.count) == (0, 100, 2)
    first.finish(*first.take(2))
    assert (process_queue.watermark, process_queue.byte_size) == (4, 0)


def test_steps_when_walked_finish_all_but_the_last() -> None:
    process_queue, chunk = queue_with(0, 1, 2)
    chunk.begin_steps()
    assert (process_queue.watermark, process_queue.count) == (0, 3)
    chunk.taken = 1
    assert process_queue.watermark == 0
    chunk.taken = 3
    assert (process_queue.watermark, process_queue.count) == (2, 1)
    assert chunk.finish_steps() == 3
    assert process_queue.watermark == 3


def test_steps_when_left_keep_the_last_one_open() -> None:
    process_queue, chunk = queue_with(0, 1, 2)
    assert chunk.stop_steps() is None
    chunk.begin_steps()
    chunk.taken = 2
    assert chunk.stop_steps() == 1
    assert process_queue.watermark == 1
    chunk.finish(1, 2)
    assert process_queue.watermark == 2


def test_hold_when_paused_keeps_back_what_was_not_taken() -> None:
    process_queue, chunk = queue_with(0, 1, 2)
    chunk.take(1)
    process_queue.hold()
    assert not chunk.has_more
    later = process_queue.put(messages(3), 4, 10)
    assert later is not None
    assert not later.has_more
    assert (process_queue.watermark, process_queue.count) == (0, 4)
    chunk.finish(0, 1)
    assert process_queue.watermark == 1
    process_queue.unhold()
    assert [each.queue_offset for open_chunk in process_queue.open_chunks() for each in open_chunk.messages] == [
        0,
        1,
        2,
        3,
    ]
    assert chunk.take(5) == (1, 3)


def test_give_back_when_held_meanwhile_is_kept_back() -> None:
    process_queue, chunk = queue_with(0, 1)
    start, _ = chunk.take(1)
    process_queue.hold()
    chunk.give_back(start)
    assert not chunk.has_more
    process_queue.unhold()
    assert chunk.take(1) == (0, 1)
    assert chunk.messages[0].queue_offset == 0


def test_drop_when_messages_are_with_listeners_hands_out_no_more() -> None:
    process_queue, chunk = queue_with(0, 1)
    drained: list[int] = []
    process_queue.when_drained = lambda: drained.append(1)
    work = chunk.take(1)
    process_queue.drop()
    process_queue.unhold()
    assert not chunk.has_more
    chunk.finish(*work)
    assert (process_queue.watermark, drained) == (1, [])


def test_skip_to_when_broker_lost_the_rest_commits_past_what_is_in_hand() -> None:
    process_queue, chunk = queue_with(5, 6)
    process_queue.skip_to(90)
    assert process_queue.watermark == 90
    chunk.finish(*chunk.take(2))
    assert process_queue.watermark == 90


def test_when_drained_when_a_chunk_ends_is_called_once() -> None:
    process_queue, chunk = queue_with(0, 1)
    called: list[int] = []
    process_queue.when_drained = lambda: called.append(1)
    chunk.finish(*chunk.take(1))
    assert called == []
    chunk.finish(*chunk.take(1))
    assert called == [1]
    assert process_queue.when_drained is None


class Life(RuleBasedStateMachine):
    """Pulls, takes, finishes and pauses in any order, beside a plain set of offsets."""

    @initialize(start=st.integers(0, 1000))
    def begin(self, start: int) -> None:
        self.queue = ProcessQueue(QUEUE, start)
        self.start = start
        self.open: set[int] = set()
        self.taken: list[tuple[Chunk, int, int]] = []
        self.offered: list[Chunk] = []
        self.lowest = start

    @rule(gaps=st.lists(st.integers(1, 3), max_size=5), behind=st.integers(0, 3))
    def pull(self, gaps: list[int], behind: int) -> None:
        at = self.queue.next_offset
        offsets = [at := at + gap - 1 + (place > 0) for place, gap in enumerate(gaps)]
        end = (offsets[-1] + 1 if offsets else at) + behind
        chunk = self.queue.put(messages(*offsets), end, 10 * len(offsets))
        assert (chunk is None) == (not offsets)
        if chunk is not None:
            self.offered.append(chunk)
        self.open |= set(offsets)

    @precondition(lambda self: any(chunk.has_more for chunk in self.offered))
    @rule(data=st.data(), most=st.integers(1, 4))
    def take(self, data: st.DataObject, most: int) -> None:
        chunk = data.draw(st.sampled_from([each for each in self.offered if each.has_more]))
        start, stop = chunk.take(most)
        assert start < stop
        self.taken.append((chunk, start, stop))

    @precondition(lambda self: self.taken)
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        work = data.draw(st.sampled_from(self.taken))
        self.taken.remove(work)
        chunk, start, stop = work
        offsets = {each.queue_offset for each in chunk.messages[start:stop]}
        chunk.finish(start, stop)
        assert offsets <= self.open
        self.open -= offsets

    @rule()
    def hold(self) -> None:
        self.queue.hold()
        assert self.queue.open_chunk is None

    @rule()
    def unhold(self) -> None:
        self.queue.unhold()

    @invariant()
    def watermark_is_the_lowest_not_done(self) -> None:
        if not hasattr(self, "queue"):
            return
        expected = min(self.open, default=self.queue.next_offset)
        assert self.queue.watermark == expected
        assert expected >= self.lowest
        self.lowest = expected
        assert self.queue.count == len(self.open)
        if self.open:
            assert self.queue.span >= max(self.open) - min(self.open)
        else:
            assert (self.queue.byte_size, self.queue.span, self.queue.bounds) == (0, 0, None)


TestLife = Life.TestCase
