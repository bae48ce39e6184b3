"""Messages consumed side by side: what fails is tried again somewhere, and nothing is done before it is."""

from __future__ import annotations

import asyncio
import pickle
from typing import Any

import pytest

from fusee.client.consumer.options import ConsumeResult, RetryLater
from fusee.client.received import ReceivedMessage
from tests.client.consumer.stage import RETRIES, TOPIC, Notes, Stage, held, queue, stage


@pytest.mark.parametrize(
    "failure", [ValueError("no"), False, ConsumeResult.RETRY_LATER, RetryLater("not yet"), asyncio.CancelledError()]
)
def test_message_when_it_fails_comes_again_and_is_done_here(failure: Any) -> None:
    async def scene(on: Stage) -> None:
        notes = Notes()
        notes.answers["b"] = [failure] if not isinstance(failure, asyncio.CancelledError) else []
        if isinstance(failure, asyncio.CancelledError):
            notes.hold("b").cancel()  # something the listener awaited was cancelled, not the listener
        await on.send(*"abc")
        await on.consumer(notes)
        assert notes.bodies == ["a", "b", "c"]
        await on.world.advance(6)
        assert on.committed() == 3
        await on.world.advance(5)
        assert notes.bodies == ["a", "b", "c", "b"]
        again = notes.messages[-1]
        assert (again.topic, again.queue.topic, again.reconsume_times) == (TOPIC, RETRIES, 1)
        assert again.message_id == "ID-b"
        await on.world.advance(6)
        assert on.committed(queue(topic=RETRIES)) == 1

    stage(scene)


@pytest.mark.parametrize("answer", [None, True, ConsumeResult.SUCCESS, 42, "rows"])
def test_message_when_listener_says_nothing_against_it_is_done(answer: Any) -> None:
    async def scene(on: Stage) -> None:
        notes = Notes()
        notes.answers["a"] = [answer]
        await on.send("a")
        consumer = await on.consumer(notes)
        await on.world.advance(20)
        assert notes.bodies == ["a"]
        assert consumer.position(queue()) == 1

    stage(scene)


@pytest.mark.parametrize(
    ("answer", "waits_s"),
    [(RetryLater(delay_level=1), 1), (RetryLater(delay_level=2), 5), (ConsumeResult.RETRY_LATER, 10)],
)
def test_message_when_a_delay_level_is_asked_for_waits_so_long(answer: Any, waits_s: int) -> None:
    async def scene(on: Stage) -> None:
        notes = Notes()
        notes.answers["a"] = [answer]
        consumer = await on.consumer(notes)
        await on.world.advance(3)
        await on.send("a")
        await on.world.advance(waits_s - 0.5)
        assert notes.bodies == ["a"]
        await on.world.advance(1)
        assert notes.bodies == ["a", "a"]
        assert consumer.position(queue()) == 1

    stage(scene)


def test_message_when_levels_are_a_function_asks_it_and_survives_its_failure(caplog: pytest.LogCaptureFixture) -> None:
    def level(message: ReceivedMessage) -> Any:
        if message.body == b"odd":
            raise KeyError("no idea")
        return 1 if message.body == b"even" else None

    async def scene(on: Stage) -> None:
        notes = Notes()
        notes.answers = {"even": [False], "odd": [False], "none": [False]}
        consumer = await on.consumer(notes, delay_level_when_next_consume=level)
        await on.world.advance(3)
        await on.send("even", "odd", "none")
        await on.world.advance(2)
        assert notes.bodies == ["even", "odd", "none", "even"]
        await on.world.advance(10)
        assert notes.bodies == ["even", "odd", "none", "even", "odd", "none"]
        assert "delay_level_when_next_consume failed" in caplog.text
        assert "delay_level_when_next_consume gave None" in caplog.text
        assert consumer.position(queue()) == 3

    stage(scene)


@pytest.mark.parametrize("answer", [ConsumeResult.DEAD_LETTER, RetryLater(delay_level=-1)])
def test_message_when_declared_dead_is_a_dead_letter_at_once(answer: Any) -> None:
    async def scene(on: Stage) -> None:
        notes = Notes()
        notes.answers["a"] = [answer]
        await on.send("a")
        consumer = await on.consumer(notes)
        await on.world.settle()
        assert on.dead_letters() == ["a"]
        assert consumer.position(queue()) == 1

    stage(scene)


def test_message_when_it_fails_too_often_is_a_dead_letter() -> None:
    async def scene(on: Stage) -> None:
        notes = Notes()
        notes.answers["a"] = [ValueError("never")] * 5
        await on.send("a")
        await on.consumer(notes, max_reconsume_times=2)
        await on.world.advance(60)
        assert [message.reconsume_times for message in notes.messages] == [0, 1, 2]
        assert on.dead_letters() == ["a"]

    stage(scene)


def test_batch_when_part_of_it_fails_sends_back_that_part() -> None:
    async def scene(on: Stage) -> None:
        seen: list[list[str]] = []

        async def listen(batch: list[ReceivedMessage]) -> Any:
            seen.append([message.body.decode() for message in batch])
            bad = [message for message in batch if message.body == b"c" and not message.reconsume_times]
            return RetryLater(messages=bad) if bad else None

        await on.send(*"abcde")
        consumer = await on.consumer(None, batch_listener=listen, consume_message_batch_max_size=4)
        assert seen == [["a", "b", "c", "d"], ["e"]]
        await on.world.settle()
        assert consumer.position(queue()) == 5
        await on.world.advance(12)
        assert seen[2:] == [["c"]]

    stage(scene)


def test_batch_when_it_raises_sends_back_all_of_it() -> None:
    async def scene(on: Stage) -> None:
        seen: list[list[str]] = []

        async def listen(batch: list[ReceivedMessage]) -> None:
            seen.append([message.body.decode() for message in batch])
            if len(seen) == 1:
                raise ValueError("all of them")

        await on.send(*"abc")
        consumer = await on.consumer(None, batch_listener=listen)
        await on.world.settle()
        assert consumer.position(queue()) == 3
        await on.world.advance(12)
        assert sorted(body for batch in seen[1:] for body in batch) == ["a", "b", "c"]

    stage(scene)


def test_send_back_when_its_broker_is_away_goes_to_another() -> None:
    async def scene(on: Stage) -> None:
        notes = Notes()
        gate = notes.hold("a")
        await on.send("a", to=queue(broker="broker-b"))
        consumer = await on.consumer(notes)
        await on.world.advance(3)
        on.world.network.weather(consumer._session.ip, on.world.broker_hosts["broker-b"]).held = True
        gate.set_result(ConsumeResult.RETRY_LATER)
        await on.world.advance(8)
        assert consumer.position(queue(broker="broker-b")) == 1
        await on.world.advance(15)
        assert notes.bodies == ["a", "a"]
        again = notes.messages[-1]
        assert (again.broker_name, again.topic, again.reconsume_times) == ("broker-a", TOPIC, 1)
        assert (again.message_id, again.properties["ORIGIN_MESSAGE_ID"]) == ("ID-a", "ID-a")
        on.world.network.release(consumer._session.ip, on.world.broker_hosts["broker-b"])

    stage(scene, brokers=2)


def test_send_back_when_no_broker_takes_it_is_tried_again_here() -> None:
    async def scene(on: Stage) -> None:
        notes = Notes()
        gate = notes.hold("a")
        await on.send("a", "b")
        consumer = await on.consumer(notes)
        on.world.kill("broker-a")
        gate.set_result(ConsumeResult.RETRY_LATER)
        await on.world.advance(1)
        assert consumer.position(queue()) == 0
        await on.world.advance(30)
        # It failed once and was then consumed, all without a broker; nothing could be committed before.
        assert notes.bodies == ["a", "b", "a"]
        assert notes.messages[-1].reconsume_times == 1
        assert consumer.position(queue()) == 2
        await on.world.start_broker("broker-a")
        await on.world.advance(10)
        assert on.committed() == 2

    stage(scene)


def test_send_back_when_it_fails_and_the_queue_is_paused_waits_for_the_resume() -> None:
    async def scene(on: Stage) -> None:
        notes = Notes()
        gate = notes.hold("a")
        await on.send("a")
        consumer = await on.consumer(notes)
        on.world.kill("broker-a")
        gate.set_result(False)
        await on.world.advance(1)
        consumer.pause()
        await on.world.advance(20)
        assert notes.bodies == ["a"]
        consumer.resume()
        await on.world.advance(6)
        assert notes.bodies == ["a", "a"]
        await on.world.start_broker("broker-a")
        await on.world.settle()

    stage(scene)


def test_message_when_its_queue_is_gone_is_not_sent_back() -> None:
    """Whoever has the queue now gets the message anyway."""

    async def scene(on: Stage) -> None:
        notes = Notes()
        gate = notes.hold("a")
        await on.send("a")
        consumer = await on.consumer(notes)
        held(consumer).drop()
        gate.set_result(False)
        await on.world.advance(20)
        assert notes.bodies == ["a"]
        assert on.sent_back() == 0

    stage(scene)


def test_message_when_it_stays_in_the_listener_for_long_is_sent_back() -> None:
    async def scene(on: Stage) -> None:
        notes = Notes()
        gate = notes.hold("a")
        await on.send("a", "b")
        consumer = await on.consumer(notes, consume_timeout_min=1)
        await on.world.advance(50)
        assert consumer.position(queue()) == 0
        await on.world.advance(75)
        assert consumer.position(queue()) == 2
        await on.world.advance(15)
        assert notes.bodies == ["a", "b", "a"]
        assert notes.messages[-1].reconsume_times == 1
        gate.set_result(None)
        await on.world.advance(1)
        assert consumer.position(queue()) == 2
        assert on.dead_letters() == []

    stage(scene)


def test_message_when_it_fails_after_it_was_sent_back_is_not_sent_back_again() -> None:
    async def scene(on: Stage) -> None:
        notes = Notes()
        gate = notes.hold("a")
        await on.send("a")
        await on.consumer(notes, consume_timeout_min=1)
        await on.world.advance(140)
        assert notes.bodies == ["a", "a"]
        gate.set_result(False)
        await on.world.advance(60)
        assert notes.bodies == ["a", "a"]

    stage(scene)


def test_listener_when_it_waits_runs_as_often_as_allowed() -> None:
    async def scene(on: Stage) -> None:
        notes = Notes()
        gates = [notes.hold(str(number)) for number in range(10)]
        await on.send(*map(str, range(10)))
        consumer = await on.consumer(notes, concurrency=4)
        assert notes.at_work == 4
        gates[2].set_result(None)
        await on.world.settle()
        assert (notes.at_work, len(notes.bodies)) == (4, 5)
        assert consumer.position(queue()) == 0
        for gate in gates:
            if not gate.done():
                gate.set_result(None)
        await on.world.settle()
        assert consumer.position(queue()) == 10
        assert notes.at_work_max == 4

    stage(scene)


def test_listener_when_it_never_waits_is_called_by_one_task() -> None:
    async def scene(on: Stage) -> None:
        tasks: set[Any] = set()

        async def listen(message: ReceivedMessage) -> None:
            tasks.add(asyncio.current_task())

        await on.send(*map(str, range(30)))
        consumer = await on.consumer(listen)
        assert consumer.position(queue()) == 30
        assert len(tasks) == 1

    stage(scene)


def test_message_when_its_listener_ends_as_it_is_given_up_is_finished_once() -> None:
    """Finished twice it would count for another one, and that would be committed before it is done."""

    async def scene(on: Stage) -> None:
        notes = Notes()
        first, third = notes.hold("a"), notes.hold("c")
        await on.send("a", "b", "c")
        consumer = await on.consumer(notes, consume_timeout_min=1, concurrency=1)
        patrol = consumer._consumption._patrol  # type: ignore[attr-defined]
        look = patrol._job

        def look_as_it_ends() -> None:
            if on.world.clock.monotonic() > 100 and not first.done():
                first.set_result(None)
            look()

        patrol._job = look_as_it_ends
        await on.world.advance(125)
        assert notes.bodies[:3] == ["a", "b", "c"]
        assert consumer.position(queue()) == 2
        third.set_result(None)
        await on.world.settle()
        assert consumer.position(queue()) == 3
        assert not consumer._consumption._expired  # type: ignore[attr-defined]

    stage(scene)


def test_message_when_it_was_given_up_and_no_broker_takes_it_is_done_by_its_second_call() -> None:
    async def scene(on: Stage) -> None:
        notes = Notes()
        gate = notes.hold("a")
        await on.send("a", "b")
        consumer = await on.consumer(notes, consume_timeout_min=1)
        send = consumer._send_back.send

        async def send_nowhere(message: Any, delay_level: int) -> bool:
            return False

        consumer._send_back.send = send_nowhere  # type: ignore[method-assign]
        await on.world.advance(135)
        assert notes.bodies == ["a", "b", "a"]
        assert consumer.position(queue()) == 2
        consumer._send_back.send = send  # type: ignore[method-assign]
        gate.set_result(None)
        await on.world.settle()
        await on.send("c")
        await on.world.settle()
        assert consumer.position(queue()) == 3

    stage(scene)


def test_batch_when_the_listener_names_copies_of_its_messages_sends_back_all_of_it() -> None:
    """Of messages that came back from another process none is the one that was given; none may be taken for done."""

    async def scene(on: Stage) -> None:
        async def listener(messages: list[ReceivedMessage]) -> RetryLater | None:
            if messages[0].reconsume_times:
                return None
            return RetryLater(messages=[pickle.loads(pickle.dumps(messages[0]))])

        await on.send("a", "b")
        consumer = await on.consumer(batch_listener=listener)
        await on.world.settle()
        assert on.sent_back() == 2
        assert consumer.position(queue()) == 2

    stage(scene)


def test_pause_and_resume_when_repeated_while_listeners_are_busy_keeps_each_chunk_once() -> None:
    async def scene(on: Stage) -> None:
        notes = Notes()
        gate = notes.hold("0")
        await on.send(*map(str, range(70)))
        consumer = await on.consumer(notes, concurrency=1)
        for _ in range(100):
            consumer.pause()
            consumer.resume()
            await on.world.settle()
        in_line = consumer._consumption._ready  # type: ignore[attr-defined]
        assert 1 <= len(in_line) == len(set(in_line))
        gate.set_result(None)
        await on.world.settle()
        assert sorted(notes.bodies, key=int) == [str(number) for number in range(70)]

    stage(scene)
