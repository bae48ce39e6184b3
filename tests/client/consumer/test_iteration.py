"""Loops over a consumer: a step says that the message before is done, and leaving says what leaving means."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from typing import Any

import pytest

from fusee.client.consumer.iteration import Iteration
from fusee.client.consumer.push import Consumer
from fusee.client.hooks import ConsumeContext
from fusee.client.received import ReceivedMessage
from fusee.errors import ClientStateError, ConfigError
from tests.client.consumer.stage import Stage, queue, stage


class Walk:
    """A loop that the test takes step by step."""

    def __init__(self, consumer: Consumer) -> None:
        self.steps: AsyncIterator[ReceivedMessage] = aiter(consumer)

    async def step(self, on: Stage) -> str:
        """The next body, which must be there."""
        message = await on.world.within(0.0, asyncio.ensure_future(anext(self.steps)))
        return message.body.decode()


def test_step_when_taken_finishes_the_message_before() -> None:
    async def scene(on: Stage) -> None:
        await on.send("a", "b", "c")
        consumer = await on.consumer()
        walk = Walk(consumer)
        assert await walk.step(on) == "a"
        assert consumer.position(queue()) == 0
        assert await walk.step(on) == "b"
        assert consumer.position(queue()) == 1
        await on.world.advance(6)
        assert on.committed() == 1
        assert await walk.step(on) == "c"
        waiting = asyncio.ensure_future(anext(walk.steps))
        await on.world.settle()
        assert consumer.position(queue()) == 3
        await on.send("d")
        assert (await on.world.within(1, waiting)).body == b"d"

    stage(scene)


async def consume(consumer: Consumer, seen: list[str], *, until: str, error: BaseException | None = None) -> None:
    async with consumer as messages:
        async for message in messages:
            seen.append(message.body.decode())
            if message.body.decode() == until:
                if error is not None:
                    raise error
                break


def test_block_when_left_without_exception_finishes_the_last_message() -> None:
    async def scene(on: Stage) -> None:
        await on.send(*"abcd")
        seen: list[str] = []
        await on.world.do(consume(await on.new_consumer(), seen, until="b"))
        assert seen == ["a", "b"]
        assert on.committed() == 2

    stage(scene)


def test_block_when_left_by_an_exception_sends_the_last_message_back() -> None:
    async def scene(on: Stage) -> None:
        await on.send(*"abcd")
        seen: list[str] = []
        with pytest.raises(ValueError, match="bad b"):
            await on.world.do(consume(await on.new_consumer(), seen, until="b", error=ValueError("bad b")))
        assert (on.committed(), on.sent_back()) == (2, 1)
        again: list[str] = []
        task = asyncio.ensure_future(consume(await on.new_consumer(), again, until="b"))
        await on.world.advance(9)
        assert again == ["c", "d"]
        await on.world.within(5, task)
        assert again == ["c", "d", "b"]

    stage(scene)


def test_block_when_cancelled_leaves_the_last_message_to_whoever_is_next() -> None:
    async def scene(on: Stage) -> None:
        await on.send(*"abc")
        consumer = await on.new_consumer()

        async def work() -> None:
            async with consumer as messages:
                async for message in messages:
                    if message.body == b"b":
                        await asyncio.get_running_loop().create_future()

        task = asyncio.ensure_future(work())
        await on.world.settle()
        task.cancel()
        await on.world.advance(1)
        assert task.cancelled()
        assert on.committed() == 1
        assert on.sent_back() == 0
        again: list[str] = []
        await on.world.do(consume(await on.new_consumer(), again, until="c"))
        assert again == ["b", "c"]

    stage(scene)


def test_loop_when_left_and_begun_anew_goes_on_behind() -> None:
    async def scene(on: Stage) -> None:
        await on.send(*"abcd")
        consumer = await on.consumer()
        seen: list[str] = []

        async def some() -> None:
            async for message in consumer:
                seen.append(message.body.decode())
                if len(seen) % 2 == 0:
                    break

        await on.world.do(some())
        assert consumer.position(queue()) == 1
        await on.world.do(some())
        assert seen == ["a", "b", "c", "d"]
        assert consumer.position(queue()) == 3

    stage(scene)


def test_loops_when_several_share_the_messages() -> None:
    async def scene(on: Stage) -> None:
        consumer = await on.consumer()
        one, two = Walk(consumer), Walk(consumer)
        first, second = asyncio.ensure_future(anext(one.steps)), asyncio.ensure_future(anext(two.steps))
        await on.send("a")
        await on.send("b", to=queue(1))
        await on.world.settle()
        assert {first.result().body, second.result().body} == {b"a", b"b"}
        # Each finishes its own only.
        third = asyncio.ensure_future(anext(one.steps))
        await on.world.settle()
        assert (consumer.position(queue(0)), consumer.position(queue(1))) in {(1, 0), (0, 1)}
        third.cancel()
        await on.world.settle()

    stage(scene, queues=2)


def test_wait_when_cancelled_loses_no_message() -> None:
    async def scene(on: Stage) -> None:
        consumer = await on.consumer()
        walk = Walk(consumer)
        waiting = asyncio.ensure_future(anext(walk.steps))
        await on.world.settle()
        waiting.cancel()
        await on.send("a")
        await on.world.settle()
        assert await walk.step(on) == "a"

    stage(scene)


def test_close_when_a_loop_is_waiting_ends_it() -> None:
    async def scene(on: Stage) -> None:
        await on.send("a")
        consumer = await on.consumer()
        seen: list[bytes] = []

        async def loop() -> None:
            async for message in consumer:
                seen.append(message.body)  # noqa: PERF401 - a loop as applications write it

        task = asyncio.ensure_future(loop())
        await on.world.settle()
        await on.world.do(consumer.close())
        await on.world.within(0, task)
        assert seen == [b"a"]
        assert on.committed() == 1
        with pytest.raises(ClientStateError, match="closed"):
            aiter(consumer)

    stage(scene)


def test_close_when_a_loop_is_busy_waits_for_its_next_step() -> None:
    async def scene(on: Stage) -> None:
        await on.send("a", "b")
        consumer = await on.consumer()
        gate: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        seen: list[bytes] = []

        async def loop() -> None:
            async for message in consumer:
                seen.append(message.body)
                await gate

        task = asyncio.ensure_future(loop())
        await on.world.settle()
        closing = asyncio.ensure_future(consumer.close())
        await on.world.advance(5)
        assert not closing.done()
        gate.set_result(None)
        await on.world.within(5, closing)
        await on.world.within(0, task)
        assert seen == [b"a"]
        assert on.committed() == 1

    stage(scene)


def test_close_when_called_inside_its_own_loop_does_not_wait() -> None:
    async def scene(on: Stage) -> None:
        await on.send("a", "b")
        consumer = await on.consumer()

        async def loop() -> None:
            async for _ in consumer:
                await consumer.close()

        await on.world.within(1, asyncio.ensure_future(loop()))
        assert on.committed() == -1

    stage(scene)


def test_batches_when_messages_wait_gives_them_together() -> None:
    async def scene(on: Stage) -> None:
        for number in range(3):
            await on.send(*(f"{number}.{each}" for each in range(4)), to=queue(number))
        consumer = await on.consumer()
        batches = consumer.batches(10)
        first = await on.world.within(0, asyncio.ensure_future(anext(batches)))
        assert len(first) == 10
        assert [consumer.position(queue(number)) for number in range(3)] == [0, 0, 0]
        second = await on.world.within(0, asyncio.ensure_future(anext(batches)))
        assert len(second) == 2
        assert sorted(each.body for each in first + second) == [
            f"{number}.{each}".encode() for number in range(3) for each in range(4)
        ]
        assert sum(consumer.position(queue(number)) for number in range(3)) == 10
        with pytest.raises(ConfigError, match="at least one message"):
            consumer.batches(0)

    stage(scene, queues=3)


def test_batches_when_block_is_left_by_an_exception_are_sent_back_whole() -> None:
    async def scene(on: Stage) -> None:
        await on.send(*"abc")
        consumer = await on.new_consumer()

        async def work() -> None:
            async with consumer as messages:
                async for _ in messages.batches(2):
                    raise RuntimeError("no")

        with pytest.raises(RuntimeError):
            await on.world.do(work())
        assert on.committed() == 2
        await on.world.advance(15)
        again: list[str] = []
        await on.world.do(consume(await on.new_consumer(), again, until="b"))
        assert again == ["c", "a", "b"]

    stage(scene)


def test_pause_when_a_loop_is_in_the_middle_keeps_the_rest_for_later() -> None:
    async def scene(on: Stage) -> None:
        await on.send(*"abc")
        consumer = await on.consumer()
        walk = Walk(consumer)
        assert await walk.step(on) == "a"
        consumer.pause()
        waiting = asyncio.ensure_future(anext(walk.steps))
        await on.world.advance(1)
        assert not waiting.done()
        assert consumer.position(queue()) == 1
        consumer.resume()
        assert (await on.world.within(0, waiting)).body == b"b"
        assert await walk.step(on) == "c"

    stage(scene)


def test_pause_when_resumed_before_the_next_step_gives_each_message_once() -> None:
    async def scene(on: Stage) -> None:
        await on.send(*"abc")
        consumer = await on.consumer()
        walk = Walk(consumer)
        assert await walk.step(on) == "a"
        consumer.pause()
        consumer.resume()
        other = Walk(consumer)
        waiting = asyncio.ensure_future(anext(other.steps))
        await on.world.settle()
        assert not waiting.done()
        assert [await walk.step(on), await walk.step(on)] == ["b", "c"]
        waiting.cancel()
        await on.world.settle()

    stage(scene)


def test_seek_when_inside_the_loop_goes_on_from_there() -> None:
    async def scene(on: Stage) -> None:
        await on.send(*"abcd")
        consumer = await on.consumer()
        walk = Walk(consumer)
        assert [await walk.step(on), await walk.step(on)] == ["a", "b"]
        await on.world.do(consumer.seek(queue(), 3))
        assert await walk.step(on) == "d"
        assert consumer.position(queue()) == 3

    stage(scene)


def test_send_back_when_the_loop_asks_for_it_is_delivered_again() -> None:
    async def scene(on: Stage) -> None:
        await on.send("a", "b")
        consumer = await on.consumer()
        walk = Walk(consumer)
        message = await on.world.within(0, asyncio.ensure_future(anext(walk.steps)))
        assert await on.world.do(consumer.send_back(message, delay_level=1))
        assert await walk.step(on) == "b"
        waiting = asyncio.ensure_future(anext(walk.steps))
        again = await on.world.within(5, waiting)
        assert (again.body, again.reconsume_times, again.topic) == (b"a", 1, "orders")

    stage(scene)


def test_loops_when_ordered_have_one_chunk_of_a_queue_at_a_time() -> None:
    async def scene(on: Stage) -> None:
        consumer = await on.consumer(ordered=True)
        one, two = Walk(consumer), Walk(consumer)
        await on.send("a")
        await on.world.settle()
        assert await one.step(on) == "a"
        await on.send("b")
        waiting = asyncio.ensure_future(anext(two.steps))
        await on.world.advance(1)
        assert not waiting.done()
        following = asyncio.ensure_future(anext(one.steps))
        await on.world.settle()
        assert {task.done() for task in (waiting, following)} == {True, False}
        for task in (waiting, following):
            task.cancel()
        await on.world.settle()

    stage(scene)


def test_hooks_when_a_loop_steps_hear_of_every_message() -> None:
    class Hook:
        def __init__(self) -> None:
            self.heard: list[str] = []

        def before_consume(self, context: ConsumeContext) -> None:
            self.heard.append("before " + ",".join(each.body.decode() for each in context.messages))

        def after_consume(self, context: ConsumeContext) -> None:
            self.heard.append(f"after {context.messages[0].body.decode()} {context.success} {context.status}")

    async def scene(on: Stage) -> None:
        await on.send(*"abc")
        hook = Hook()
        consumer = await on.new_consumer(hooks=[hook])
        seen: list[str] = []
        with pytest.raises(ValueError, match="x"):
            await on.world.do(consume(consumer, seen, until="b", error=ValueError("x")))
        assert hook.heard == [
            "before a",
            "after a True CONSUME_SUCCESS",
            "before b",
            "after b False RECONSUME_LATER",
        ]
        assert on.committed() == 2

    stage(scene)


def test_loops_of_both_kinds_when_they_share_a_chunk_commit_only_what_is_done() -> None:
    async def scene(on: Stage) -> None:
        await on.send(*"abcdef")
        consumer = await on.consumer()
        batches = consumer.batches(2)
        batch = await on.world.within(0.0, asyncio.ensure_future(anext(batches)))
        assert [message.body for message in batch] == [b"a", b"b"]
        walk = Walk(consumer)
        for body in "cdef":
            assert await walk.step(on) == body
            assert consumer.position(queue()) == 0
        steps: list[asyncio.Future[Any]] = [asyncio.ensure_future(anext(walk.steps))]
        await on.world.settle()
        assert consumer.position(queue()) == 0
        steps.append(asyncio.ensure_future(anext(batches)))
        await on.world.settle()
        assert consumer.position(queue()) == 6
        await on.send("g", "h")
        await on.world.settle()
        assert all(step.done() for step in steps)
        assert consumer.position(queue()) == 6

    stage(scene)


@pytest.mark.parametrize("ordered", [False, True])
def test_pause_and_resume_when_repeated_without_a_loop_keeps_each_chunk_once(ordered: bool) -> None:
    async def scene(on: Stage) -> None:
        await on.send(*map(str, range(70)))
        consumer = await on.consumer(ordered=ordered)
        walk = Walk(consumer)
        assert await walk.step(on) == "0"
        for _ in range(100):
            consumer.pause()
            consumer.resume()
            await on.world.settle()
        iteration = consumer._consumption
        assert isinstance(iteration, Iteration)
        in_line = [*iteration._ready, *(chunk for behind in iteration._behind.values() for chunk in behind)]
        assert 1 <= len(in_line) == len(set(in_line))
        assert [await walk.step(on) for _ in range(69)] == [str(number) for number in range(1, 70)]

    stage(scene)


def test_pause_and_resume_when_ordered_keep_the_order_of_chunks() -> None:
    """The first chunk may have left the line while it was held back, and those behind it not."""

    async def scene(on: Stage) -> None:
        await on.send(*"abc")  # one chunk, as they are there before the first pull
        consumer = await on.consumer(ordered=True)
        walk = Walk(consumer)
        assert await walk.step(on) == "a"
        await on.send(*"def")
        await on.world.settle()
        consumer.pause()
        del walk
        walk = Walk(consumer)  # takes the message of the loop that was left for done, and finds the rest held back
        consumer.resume()
        assert "".join([await walk.step(on) for _ in range(5)]) == "bcdef"

    stage(scene)


class Looper:
    """A loop of either kind that the test steps, leaves waiting, cancels, or whose last step it undoes."""

    def __init__(self, consumer: Consumer, chance: random.Random) -> None:
        self.loop: Any = consumer.batches(chance.choice([1, 2, 5, 32])) if chance.random() < 0.5 else aiter(consumer)
        self.current: list[ReceivedMessage] = []
        self.step: asyncio.Future[Any] | None = None

    def begin_step(self, done: set[tuple[int, int]]) -> None:
        if self.step is None:
            done.update(map(_place, self.current))
            self.current = []
            self.step = asyncio.ensure_future(anext(self.loop))

    def collect(self, seen: list[tuple[int, int]]) -> None:
        if self.step is not None and self.step.done():
            given = self.step.result()
            self.step = None
            self.current = given if isinstance(given, list) else [given]
            seen += map(_place, self.current)

    def undo(self) -> None:
        """What the last step gave never arrived."""
        if self.step is not None and self.step.done():
            self.loop.take_back(self.step.result())
            self.step = None

    async def cancel(self, on: Stage) -> None:
        if self.step is not None and not self.step.done():
            self.step.cancel()
            await on.world.settle()
            if self.step.cancelled():
                self.step = None


def _place(message: ReceivedMessage) -> tuple[int, int]:
    return message.queue_id, message.queue_offset


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("seed", [3, 14, 23, 31])
def test_whatever_loops_do_each_message_is_given_once_and_only_what_is_done_is_committed(
    seed: int, ordered: bool
) -> None:
    async def scene(on: Stage) -> None:
        chance = random.Random(seed)
        consumer = await on.consumer(ordered=ordered)
        done: set[tuple[int, int]] = set()
        seen: list[tuple[int, int]] = []
        loops = [Looper(consumer, chance)]
        sent = 0
        for _ in range(120):
            for _ in range(chance.randrange(8)):
                await on.send(str(sent), to=queue(chance.randrange(2)))
                sent += 1
            match chance.choices(
                ["begin", "pause", "pause one", "resume", "undo", "cancel", ""], [3, 1, 1, 3, 2, 2, 9]
            )[0]:
                case "begin" if len(loops) < 4:
                    loops.append(Looper(consumer, chance))
                case "pause":
                    consumer.pause()
                case "pause one":
                    consumer.pause(queue(chance.randrange(2)))
                case "resume":
                    consumer.resume()
                case "undo":
                    chance.choice(loops).undo()
                case "cancel":
                    await chance.choice(loops).cancel(on)
            for each in loops:
                each.collect(seen)
                if chance.random() < 0.7:
                    each.begin_step(done)
            await on.world.advance(chance.choice([0.0, 0.0, 0.1, 6.0]))
            _check_done(on, consumer, done)
        consumer.resume()
        while len(done) < sent:
            for each in loops:
                each.collect(seen)
                each.begin_step(done)
            await on.world.settle()
        await on.world.advance(6)
        _check_done(on, consumer, done)
        assert on.committed(queue(0)) + on.committed(queue(1)) == sent
        assert len(seen) == len(set(seen))
        if ordered:
            assert all(
                found == sorted(found) for found in ([at for q, at in seen if q == queue_id] for queue_id in (0, 1))
            )
        for each in loops:
            await each.cancel(on)

    stage(scene, queues=2)


def _check_done(on: Stage, consumer: Consumer, done: set[tuple[int, int]]) -> None:
    for queue_id in (0, 1):
        reached = max(on.committed(queue(queue_id)), consumer.position(queue(queue_id)))
        assert done >= {(queue_id, at) for at in range(reached)}
