"""What was fetched is handed out once, in order and fairly, and only what the application came back from is done."""

from __future__ import annotations

from typing import Any, NamedTuple, cast

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from fusee.client.consumer.assigned_queues import AssignedQueue, AssignedQueues, FetchLimits
from fusee.client.received import ReceivedMessage
from fusee.client.subscriptions import subscription
from fusee.message.model import MessageQueue

EVERYTHING = subscription("orders", version_ms=1)


class Fetched(NamedTuple):
    """As much of a message as this module looks at."""

    queue_offset: int


def fetched(*queue_offsets: int) -> list[ReceivedMessage]:
    return cast("list[ReceivedMessage]", [Fetched(at) for at in queue_offsets])


def holding(*queue_ids: int, **limits: int) -> tuple[AssignedQueues, list[AssignedQueue]]:
    queues = AssignedQueues(FetchLimits(**limits))
    held = [queues.add(MessageQueue("orders", "broker-a", each), EVERYTHING) for each in queue_ids]
    for each in held:
        each.move(0)
    return queues, held


def offsets_of(taken: list[tuple[AssignedQueue, list[ReceivedMessage]]]) -> list[tuple[int, list[int]]]:
    return [(held.queue.queue_id, [message.queue_offset for message in messages]) for held, messages in taken]


def marks(held: AssignedQueue) -> tuple[int | None, int | None, int | None]:
    return held.done_offset, held.handed_offset, held.fetch_offset


def test_take_gives_a_chunk_of_each_queue_in_turn() -> None:
    queues, (a, b) = holding(0, 1)
    queues.put(a, fetched(0, 1), 2, 10)
    queues.put(a, fetched(2, 3), 4, 10)
    queues.put(b, fetched(0), 1, 10)
    assert offsets_of(queues.take(100)) == [(0, [0, 1]), (1, [0]), (0, [2, 3])]
    assert queues.count == a.count == a.size == 0
    assert not queues.has_messages


def test_take_when_limit_is_within_chunk_goes_on_there_next_time() -> None:
    queues, (a, b) = holding(0, 1)
    queues.put(a, fetched(0, 1, 2), 5, 10)
    queues.put(b, fetched(0), 1, 10)
    assert offsets_of(queues.take(2)) == [(0, [0, 1])]
    assert marks(a) == (0, 2, 5)
    assert offsets_of(queues.take(2)) == [(0, [2]), (1, [0])]
    assert marks(a) == (0, 5, 5)


def test_settle_makes_done_what_was_handed_out() -> None:
    queues, (a, b) = holding(0, 1)
    queues.put(a, fetched(0, 1), 2, 10)
    queues.take(1)
    queues.put(b, fetched(0), 1, 10)
    queues.settle()
    assert (a.done_offset, b.done_offset) == (1, 0)


def test_put_of_nothing_passes_filtered_messages_when_all_before_is_done() -> None:
    queues, (a,) = holding(0)
    queues.put(a, [], 7, 0)
    assert marks(a) == (7, 7, 7)


def test_put_of_nothing_while_messages_are_under_way_is_done_with_them() -> None:
    queues, (a,) = holding(0)
    queues.put(a, fetched(0), 1, 10)
    queues.take(1)
    queues.put(a, [], 7, 0)
    assert marks(a) == (0, 7, 7)
    queues.settle()
    assert a.done_offset == 7


def test_put_of_nothing_behind_waiting_messages_moves_the_position_when_they_are_taken() -> None:
    queues, (a,) = holding(0)
    queues.put(a, fetched(0), 1, 10)
    queues.put(a, [], 7, 0)
    assert marks(a) == (0, 0, 7)
    queues.take(1)
    assert a.handed_offset == 7


def test_correct_when_queue_is_shorter_goes_back() -> None:
    queues, (a,) = holding(0)
    queues.put(a, fetched(90), 91, 10)
    queues.take(1)
    queues.settle()
    queues.correct(a, 5)
    assert marks(a) == (5, 5, 5)


def test_correct_when_queue_was_cut_in_front_commits_nothing_that_is_under_way() -> None:
    queues, (a,) = holding(0)
    queues.put(a, fetched(0), 1, 10)
    queues.take(1)
    queues.correct(a, 50)
    assert marks(a) == (0, 50, 50)


def test_pause_keeps_what_was_fetched_until_resume() -> None:
    queues, (a, b) = holding(0, 1)
    queues.put(a, fetched(0), 1, 10)
    queues.pause(a)
    queues.pause(a)
    queues.put(a, fetched(1), 2, 10)
    queues.put(b, fetched(0), 1, 10)
    assert queues.count == 1
    assert offsets_of(queues.take(10)) == [(1, [0])]
    queues.resume(a)
    queues.resume(a)
    assert queues.count == 2
    assert offsets_of(queues.take(10)) == [(0, [0]), (0, [1])]


def test_seek_drops_what_was_fetched_and_what_is_under_way() -> None:
    queues, (a,) = holding(0)
    queues.put(a, fetched(0, 1), 2, 10)
    queues.take(1)
    queues.seek(a, 9)
    assert not queues.has_messages
    queues.settle()
    assert marks(a) == (9, 9, 9)


def test_rechoose_drops_what_was_fetched_and_keeps_what_is_under_way() -> None:
    queues, (a,) = holding(0)
    queues.put(a, fetched(0, 1), 2, 10)
    queues.take(1)
    paid = subscription("orders", "paid", version_ms=2)
    queues.rechoose(a, paid)
    assert a.subscription is paid
    assert not queues.has_messages
    assert marks(a) == (0, 1, 1)
    queues.settle()
    assert a.done_offset == 1


def test_remove_leaves_what_is_done_for_a_last_commit() -> None:
    queues, (a, b) = holding(0, 1)
    queues.put(a, fetched(0, 1), 2, 10)
    queues.take(1)
    queues.settle()
    queues.take(1)
    assert queues.remove(a.queue) is a
    queues.settle()
    assert a.is_dropped
    assert a.done_offset == 1
    assert list(queues) == [b]
    assert queues.remove(a.queue) is None
    assert not queues.may_fetch(a)


def test_may_fetch_until_count_bytes_or_span_is_reached() -> None:
    for limit in ("count_for_queue", "bytes_for_queue", "span_for_queue"):
        queues, (a,) = holding(0, **{limit: 10})
        queues.put(a, fetched(0, 1), 2, 5)
        assert queues.may_fetch(a)
        queues.put(a, fetched(*range(2, 11)), 11, 5)
        assert not queues.may_fetch(a), limit
        queues.take(100)
        assert queues.may_fetch(a)


def test_may_fetch_when_all_queues_together_are_full_waits_but_not_for_paused_ones() -> None:
    queues, (a, b) = holding(0, 1, count_for_all=2)
    queues.put(a, fetched(0, 1), 2, 5)
    assert not queues.may_fetch(b)
    queues.pause(a)
    assert queues.may_fetch(b)
    assert not queues.may_fetch(a)


class Marks(RuleBasedStateMachine):
    """Three queues under any order of events, against lists."""

    queue_ids = st.integers(0, 2)

    def __init__(self) -> None:
        super().__init__()
        self.queues, self.held = holding(0, 1, 2)
        self.waiting: list[list[int]] = [[], [], []]
        self.under_way = [0, 0, 0]

    @rule(queue_id=queue_ids, gaps=st.lists(st.integers(0, 2), max_size=4), tail=st.integers(0, 2))
    def fetch(self, queue_id: int, gaps: list[int], tail: int) -> None:
        held = self.held[queue_id]
        at, found = held.fetch_offset or 0, []
        for gap in gaps:
            at += gap
            found.append(at)
            at += 1
        self.queues.put(held, fetched(*found), at + tail, len(found))
        self.waiting[queue_id] += found

    @rule(limit=st.integers(0, 9))
    def take(self, limit: int) -> None:
        wanted = sum(len(self.waiting[held.queue.queue_id]) for held in self.held if not held.is_paused)
        taken = offsets_of(self.queues.take(limit))
        assert sum(len(found) for _, found in taken) == min(limit, wanted)
        for queue_id, found in taken:
            assert self.waiting[queue_id][: len(found)] == found
            del self.waiting[queue_id][: len(found)]
            self.under_way[queue_id] += len(found)

    @rule()
    def settle(self) -> None:
        self.queues.settle()
        self.under_way = [0, 0, 0]

    @rule(queue_id=queue_ids)
    def pause(self, queue_id: int) -> None:
        self.queues.pause(self.held[queue_id])

    @rule(queue_id=queue_ids)
    def resume(self, queue_id: int) -> None:
        self.queues.resume(self.held[queue_id])

    @rule(queue_id=queue_ids, to=st.integers(0, 50))
    def seek(self, queue_id: int, to: int) -> None:
        self.queues.seek(self.held[queue_id], to)
        self.waiting[queue_id] = []
        self.under_way[queue_id] = 0

    @rule(queue_id=queue_ids)
    def rechoose(self, queue_id: int) -> None:
        self.queues.rechoose(self.held[queue_id], EVERYTHING)
        self.waiting[queue_id] = []

    @rule(queue_id=queue_ids)
    def lose_and_get_back(self, queue_id: int) -> None:
        old = self.held[queue_id]
        self.queues.remove(old.queue)
        self.held[queue_id] = self.queues.add(old.queue, EVERYTHING)
        assert old.done_offset is not None
        self.held[queue_id].move(old.done_offset)
        self.waiting[queue_id] = []
        self.under_way[queue_id] = 0

    @invariant()
    def marks_are_in_order(self) -> None:
        total = 0
        for held, waiting, under_way in zip(self.held, self.waiting, self.under_way, strict=True):
            done, handed, fetch = cast("tuple[Any, Any, Any]", marks(held))
            assert done <= handed <= fetch
            assert held.count == held.size == len(waiting) or held.chunks
            assert held.count == len(waiting)
            assert not waiting or handed <= waiting[0]
            assert (done == handed) is (under_way == 0)
            total += 0 if held.is_paused else held.count
        assert self.queues.count == total


TestMarks = Marks.TestCase
TestMarks.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
