"""Consumption in order: one message of a queue at a time, on one member, whatever happens to locks."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from fusee.client.consumer.options import ConsumeResult, RetryLater
from fusee.client.received import ReceivedMessage
from fusee.wire.bodies.queue_ref import QueueRef
from tests.client.consumer.stage import GROUP, TOPIC, Notes, Stage, queue, stage

REF = QueueRef(topic=TOPIC, broker_name="broker-a", queue_id=0)


def is_lent_to(on: Stage, client_id: str) -> bool:
    """Whether this client has the lock of the first queue: the broker says so to it alone."""
    locks = on.world.broker.locks
    if locks.lock(GROUP, "somebody else", [REF]):
        locks.unlock(GROUP, "somebody else", [REF])
        return False
    return bool(locks.lock(GROUP, client_id, [REF]))


def test_queue_when_consumed_keeps_its_order_one_at_a_time() -> None:
    async def scene(on: Stage) -> None:
        notes = Notes()
        first, second = notes.hold("a0"), notes.hold("a1")
        await on.send("a0", "b0", "c0", to=queue(0))
        await on.send("a1", "b1", to=queue(1))
        consumer = await on.consumer(notes, ordered=True)
        assert sorted(notes.bodies) == ["a0", "a1"]
        assert notes.at_work == 2
        second.set_result(None)
        await on.world.settle()
        assert sorted(notes.bodies) == ["a0", "a1", "b1"]
        first.set_result(None)
        await on.world.settle()
        assert [body for body in notes.bodies if body.endswith("0")] == ["a0", "b0", "c0"]
        await on.world.do(consumer.close())
        assert (on.committed(queue(0)), on.committed(queue(1))) == (3, 2)

    stage(scene, queues=2)


@pytest.mark.parametrize("failure", [ValueError("no"), False, ConsumeResult.RETRY_LATER])
def test_message_when_it_fails_holds_up_its_queue_until_it_succeeds(failure: Any) -> None:
    async def scene(on: Stage) -> None:
        notes = Notes()
        notes.answers["b"] = [failure, failure]
        await on.send(*"abc")
        consumer = await on.consumer(notes, ordered=True)
        assert notes.bodies == ["a", "b"]
        await on.world.advance(0.9)
        assert notes.bodies == ["a", "b"]
        await on.world.advance(0.2)
        assert notes.bodies == ["a", "b", "b"]
        assert consumer.position(queue()) == 1
        await on.world.advance(1)
        assert notes.bodies == ["a", "b", "b", "b", "c"]
        assert notes.messages[3].reconsume_times == 2
        assert consumer.position(queue()) == 3

    stage(scene)


def test_message_when_a_rest_is_asked_for_rests_so_long() -> None:
    async def scene(on: Stage) -> None:
        notes = Notes()
        notes.answers["a"] = [RetryLater(suspend_ms=5000)]
        await on.send("a")
        await on.consumer(notes, ordered=True)
        await on.world.advance(4.9)
        assert notes.bodies == ["a"]
        await on.world.advance(0.2)
        assert notes.bodies == ["a", "a"]

    stage(scene)


def test_message_when_it_fails_too_often_is_a_dead_letter_and_the_queue_goes_on() -> None:
    async def scene(on: Stage) -> None:
        notes = Notes()
        notes.answers["a"] = [ValueError("never")] * 9
        await on.send("a", "b")
        consumer = await on.consumer(notes, ordered=True, max_reconsume_times=2)
        await on.world.advance(5)
        assert notes.bodies == ["a", "a", "a", "b"]
        assert on.dead_letters() == ["a"]
        assert consumer.position(queue()) == 2

    stage(scene)


def test_message_when_declared_dead_is_a_dead_letter_at_once() -> None:
    async def scene(on: Stage) -> None:
        notes = Notes()
        notes.answers["a"] = [ConsumeResult.DEAD_LETTER]
        await on.send("a", "b")
        await on.consumer(notes, ordered=True)
        assert notes.bodies == ["a", "b"]
        assert on.dead_letters() == ["a"]

    stage(scene)


def test_message_when_no_broker_takes_the_dead_letter_holds_up_its_queue() -> None:
    async def scene(on: Stage) -> None:
        notes = Notes()
        gate = notes.hold("a")
        await on.send("a", "b")
        consumer = await on.consumer(notes, ordered=True)
        on.world.kill("broker-a")
        gate.set_result(ConsumeResult.DEAD_LETTER)
        await on.world.advance(20)
        assert "b" not in notes.bodies
        assert consumer.position(queue()) == 0
        await on.world.start_broker("broker-a")
        await on.world.advance(20)
        assert notes.bodies[-1] == "b"

    stage(scene)


def test_batch_when_it_fails_comes_again_as_a_whole() -> None:
    async def scene(on: Stage) -> None:
        seen: list[str] = []

        async def listen(batch: list[ReceivedMessage]) -> bool:
            seen.append("".join(message.body.decode() for message in batch))
            return len(seen) > 1

        await on.send(*"abcde")
        consumer = await on.consumer(None, batch_listener=listen, ordered=True, consume_message_batch_max_size=3)
        await on.world.advance(2)
        assert seen == ["abc", "abc", "de"]
        assert consumer.position(queue()) == 5

    stage(scene)


def test_lock_when_another_member_leaves_is_taken_over_with_its_offset() -> None:
    async def scene(on: Stage) -> None:
        notes, others = Notes(), Notes()
        await on.send("a", "b")
        first = await on.consumer(notes, ordered=True)
        assert is_lent_to(on, first._session.client_id)
        second = await on.consumer(others, ordered=True)
        await on.world.advance(40)
        assert others.bodies == []
        await on.world.do(first.close())
        await on.send("c")
        await on.world.advance(5)
        assert is_lent_to(on, second._session.client_id)
        assert others.bodies == ["c"]

    stage(scene)


def test_lock_when_queue_moves_waits_for_the_listener_and_commits_its_message() -> None:
    async def scene(on: Stage) -> None:
        notes, others = Notes(), Notes()
        for number in range(2):
            await on.send(f"a{number}", f"b{number}", to=queue(number))
        gates = [notes.hold("a0"), notes.hold("a1")]
        first = await on.consumer(notes, ordered=True)
        second = await on.consumer(others, ordered=True)
        await on.world.advance(90)
        # For so long the first member works at a message, and nobody else gets the queue.
        assert others.bodies == []
        for gate in gates:
            gate.set_result(None)
        await on.world.advance(5)
        (moved,) = second.assignment & {queue(0), queue(1)}
        assert others.bodies == [f"b{moved.queue_id}"]
        assert f"b{moved.queue_id}" not in notes.bodies
        assert first.assignment & {queue(0), queue(1)} == {queue(1 - moved.queue_id)}

    stage(scene, queues=2)


def test_lock_when_another_has_it_gives_the_queue_up_and_takes_it_up_from_the_commit(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scene(on: Stage) -> None:
        notes = Notes()
        await on.send(*"abc")
        gate = notes.hold("b")
        consumer = await on.consumer(notes, ordered=True)
        await on.world.advance(6)
        assert (notes.bodies, on.committed()) == (["a", "b"], 1)
        locks = on.world.broker.locks
        locks.unlock(GROUP, consumer._session.client_id, [REF])
        assert locks.lock(GROUP, "thief", [REF])
        await on.world.advance(20)
        assert "the lock of" in caplog.text
        # Meanwhile the other member went on, and let go.
        on.world.broker.offsets.commit(GROUP, TOPIC, 0, 3)
        locks.unlock(GROUP, "thief", [REF])
        gate.set_result(None)
        await on.send("d")
        await on.world.advance(10)
        assert notes.bodies == ["a", "b", "d"]
        assert on.committed() >= 3

    with caplog.at_level(logging.WARNING):
        stage(scene)


def test_lock_when_the_connection_was_cut_is_confirmed_before_going_on() -> None:
    async def scene(on: Stage) -> None:
        notes = Notes()
        gate = notes.hold("a")
        await on.send(*"abc")
        consumer = await on.consumer(notes, ordered=True)
        on.world.network.cut(consumer._session.ip, on.world.broker_hosts["broker-a"])
        await on.world.advance(0.05)
        on.world.network.weather(consumer._session.ip, on.world.broker_hosts["broker-a"]).held = True
        gate.set_result(None)
        await on.world.advance(5)
        # It may be that the broker was started anew and gave the queue to another.
        assert notes.bodies == ["a"]
        on.world.network.release(consumer._session.ip, on.world.broker_hosts["broker-a"])
        await on.world.advance(10)
        assert notes.bodies == ["a", "b", "c"]
        assert consumer.position(queue()) == 3

    stage(scene)


def test_lock_when_the_broker_stays_away_runs_out_and_nothing_is_consumed() -> None:
    async def scene(on: Stage) -> None:
        notes = Notes()
        gate = notes.hold("a")
        await on.send("a", "b")
        consumer = await on.consumer(notes, ordered=True)
        on.world.kill("broker-a")
        await on.world.advance(40)
        gate.set_result(None)
        await on.world.advance(20)
        assert notes.bodies == ["a"]
        assert consumer._held.fetch_of(queue()) is None
        await on.world.start_broker("broker-a")
        await on.world.advance(30)
        # What was done was committed as soon as there was a broker again, before the queue was taken up anew.
        assert notes.bodies == ["a", "b"]

    stage(scene)


def test_seek_when_the_listener_is_at_work_does_not_call_it_twice_at_a_time() -> None:
    async def scene(on: Stage) -> None:
        notes = Notes()
        gate = notes.hold("b")
        await on.send(*"abc")
        consumer = await on.consumer(notes, ordered=True)
        await on.world.do(consumer.seek(queue(), 0))
        await on.world.advance(1)
        assert notes.bodies == ["a", "b"]
        gate.set_result(None)
        await on.world.settle()
        assert notes.bodies == ["a", "b", "a", "b", "c"]
        assert notes.at_work_max == 1

    stage(scene)


def test_pause_when_the_message_failed_meanwhile_resumes_with_it() -> None:
    async def scene(on: Stage) -> None:
        notes = Notes()
        gate = notes.hold("a")
        await on.send("a", "b")
        consumer = await on.consumer(notes, ordered=True)
        consumer.pause()
        gate.set_result(False)
        await on.world.advance(10)
        assert notes.bodies == ["a"]
        consumer.resume()
        await on.world.advance(1)
        assert notes.bodies == ["a", "a", "b"]

    stage(scene)


def test_close_when_the_listener_does_not_end_gives_the_lock_back() -> None:
    async def scene(on: Stage) -> None:
        notes, others = Notes(), Notes()
        notes.hold("a")
        await on.send("a")
        consumer = await on.consumer(notes, ordered=True)
        await on.world.do(consumer.close(timeout=3))
        assert not is_lent_to(on, consumer._session.client_id)
        await on.consumer(others, ordered=True)
        assert others.bodies == ["a"]

    stage(scene)
