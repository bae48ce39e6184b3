"""Where a listener is called: coroutine functions on the loop, plain functions in threads that hold up nobody."""

from __future__ import annotations

import asyncio
import functools
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from fusee.client.consumer.options import RetryLater
from fusee.client.consumer.runners import ThreadRunner, is_coroutine_function
from fusee.client.hooks import ConsumeContext, ConsumeReturn
from fusee.client.received import ReceivedMessage
from tests.client.consumer.stage import Stage, queue, stage


async def until(on: Stage, condition: Callable[[], bool]) -> None:
    """Let everything happen that is due until threads have done what is waited for."""
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline, "threads did not get there"
        await on.world.settle()


def test_plain_function_when_it_blocks_is_in_a_thread_and_the_loop_goes_on() -> None:
    async def scene(on: Stage) -> None:
        gate, begun = threading.Event(), threading.Event()
        where: list[threading.Thread] = []

        def listen(message: ReceivedMessage) -> None:
            where.append(threading.current_thread())
            begun.set()
            assert gate.wait(10)

        await on.send("a")
        consumer = await on.consumer(listen)
        await until(on, begun.is_set)
        await on.world.advance(35)  # heartbeats go out, nobody expires
        assert consumer.position(queue()) == 0
        gate.set()
        await until(on, lambda: consumer.position(queue()) == 1)
        assert where[0] is not threading.main_thread()
        assert where[0].daemon
        assert where[0].name.startswith("fusee-listener")

    stage(scene)


def test_threads_when_many_messages_consume_each_once_with_so_many_at_a_time() -> None:
    async def scene(on: Stage) -> None:
        lock, seen = threading.Lock(), list[str]()
        at_work = at_work_max = 0
        three = threading.Barrier(3, timeout=10)

        def listen(message: ReceivedMessage) -> None:
            nonlocal at_work, at_work_max
            with lock:
                at_work += 1
                at_work_max = max(at_work, at_work_max)
            if message.body in (b"0", b"1", b"2"):
                three.wait()
            with lock:
                at_work -= 1
                seen.append(message.body.decode())

        await on.send(*map(str, range(300)))
        consumer = await on.consumer(listen, concurrency=3)
        await until(on, lambda: len(seen) == 300)
        await on.world.settle()
        await until(on, lambda: consumer.position(queue()) == 300)
        assert sorted(seen) == sorted(map(str, range(300)))
        assert at_work_max == 3
        await on.world.do(consumer.close())
        assert on.committed() == 300

    stage(scene)


@pytest.mark.parametrize("failure", [ValueError("no"), SystemExit(3), False, RetryLater()])
def test_thread_when_the_listener_fails_has_the_message_sent_back(failure: Any) -> None:
    async def scene(on: Stage) -> None:
        times: list[int] = []

        def listen(message: ReceivedMessage) -> Any:
            times.append(message.reconsume_times)
            if message.reconsume_times:
                return None
            if isinstance(failure, BaseException):
                raise failure
            return failure

        consumer = await on.consumer(listen, delay_level_when_next_consume=1)
        await on.world.advance(3)
        await on.send("a")
        await on.world.settle()
        await until(on, lambda: len(times) == 1)
        await on.world.settle()
        assert consumer.position(queue()) == 1
        await on.world.advance(2)
        await until(on, lambda: times == [0, 1])

    stage(scene)


def test_thread_when_the_function_gives_something_to_await_awaits_it_on_the_loop() -> None:
    async def scene(on: Stage) -> None:
        seen: list[str] = []

        async def work(message: ReceivedMessage) -> None:
            seen.append(threading.current_thread().name)
            if message.body == b"bad":
                raise ValueError("bad")

        await on.send("good", "bad")
        consumer = await on.consumer(lambda message: work(message))  # noqa: PLW0108 - not known for a coroutine function
        await until(on, lambda: len(seen) == 2)
        await on.world.settle()
        await until(on, lambda: consumer.position(queue()) == 2)
        await on.world.advance(1)
        assert set(seen) == {threading.current_thread().name}
        assert on.sent_back() == 1

    stage(scene)


def test_threads_when_ordered_keep_the_order() -> None:
    async def scene(on: Stage) -> None:
        seen: dict[int, list[str]] = {0: [], 1: []}

        def listen(message: ReceivedMessage) -> bool:
            seen[message.queue_id].append(message.body.decode())
            return True

        for number in range(2):
            await on.send(*(str(each) for each in range(50)), to=queue(number))
        consumer = await on.consumer(listen, ordered=True)
        await until(on, lambda: all(consumer.position(queue(number)) == 50 for number in range(2)))
        assert seen == {number: [str(each) for each in range(50)] for number in range(2)}

    stage(scene, queues=2)


def test_threads_when_closed_wait_for_calls_and_leave_the_rest() -> None:
    async def scene(on: Stage) -> None:
        gate, begun, seen = threading.Event(), threading.Event(), list[str]()

        def listen(message: ReceivedMessage) -> None:
            seen.append(message.body.decode())
            begun.set()
            assert gate.wait(10)

        await on.send("a", "b", "c")
        consumer = await on.consumer(listen, concurrency=1)
        await until(on, begun.is_set)
        closing = asyncio.ensure_future(consumer.close())
        await on.world.advance(5)
        assert not closing.done()
        gate.set()
        await until(on, lambda: consumer._consumption._runner._outstanding == 0)  # type: ignore[attr-defined]
        await on.world.within(5, closing)
        assert seen == ["a"]
        assert on.committed() == 1

    stage(scene)


def test_thread_when_it_never_ends_does_not_keep_the_consumer() -> None:
    async def scene(on: Stage) -> None:
        gate, begun = threading.Event(), threading.Event()

        def listen(message: ReceivedMessage) -> None:
            begun.set()
            gate.wait(10)

        await on.send("a")
        consumer = await on.consumer(listen)
        await until(on, begun.is_set)
        await on.world.do(consumer.close(timeout=2))
        # nothing is done, so nothing but the beginning is committed
        assert on.committed() in (-1, 0)
        gate.set()

    stage(scene)


def test_thread_when_the_queue_is_gone_is_not_called_with_what_waited() -> None:
    async def scene(on: Stage) -> None:
        gate, begun, seen = threading.Event(), threading.Event(), list[str]()

        def listen(message: ReceivedMessage) -> None:
            seen.append(message.body.decode())
            begun.set()
            assert gate.wait(10)

        await on.send("a", "b", "c")
        consumer = await on.consumer(listen, concurrency=1)
        await until(on, begun.is_set)
        await on.world.do(consumer.seek(queue(), 2))
        gate.set()
        await until(on, lambda: consumer.position(queue()) == 3)
        assert seen == ["a", "c"]

    stage(scene)


def test_plain_function_when_said_not_to_block_is_called_on_the_loop() -> None:
    async def scene(on: Stage) -> None:
        seen: list[threading.Thread] = []

        def listen(message: ReceivedMessage) -> None:
            seen.append(threading.current_thread())

        await on.send("a")
        consumer = await on.consumer(listen, run_in_threads=False)
        assert seen == [threading.current_thread()]
        assert not isinstance(consumer._consumption._runner, ThreadRunner)  # type: ignore[attr-defined]

    stage(scene)


def test_coroutine_function_when_wrapped_is_still_known() -> None:
    async def listen(_: object) -> None: ...

    class Object:
        async def __call__(self, _: object) -> None: ...

    assert is_coroutine_function(listen)
    assert is_coroutine_function(functools.partial(listen, 1))
    assert is_coroutine_function(Object())
    assert not is_coroutine_function(print)


class Hook:
    """Remembers what it was told, and fails at it."""

    def __init__(self) -> None:
        self.heard: list[tuple[Any, ...]] = []

    def before_consume(self, context: ConsumeContext) -> None:
        self.heard.append(("before", [each.body for each in context.messages], context.success))

    def after_consume(self, context: ConsumeContext) -> None:
        self.heard.append(("after", context.success, context.status, context.return_type, context.cost_ms))
        raise RuntimeError("a broken hook")


@pytest.mark.parametrize("in_threads", [False, True])
def test_hooks_when_listener_is_called_hear_before_and_after(in_threads: bool) -> None:
    async def scene(on: Stage) -> None:
        hook = Hook()

        def listen(message: ReceivedMessage) -> None:
            if message.body == b"bad":
                raise ValueError("bad")

        await on.send("good", "bad")
        consumer = await on.consumer(listen, hooks=[hook], run_in_threads=in_threads, concurrency=1)
        await until(on, lambda: len(hook.heard) == 4)
        await on.world.settle()
        assert [each for each in hook.heard if each[0] == "before"] == [
            ("before", [b"good"], False),
            ("before", [b"bad"], False),
        ]
        assert [each for each in hook.heard if each[0] == "after"] == [
            ("after", True, "CONSUME_SUCCESS", ConsumeReturn.SUCCESS, 0),
            ("after", False, "RECONSUME_LATER", ConsumeReturn.EXCEPTION, 0),
        ]
        assert consumer.position(queue()) == 2

    stage(scene)


def test_statistics_when_messages_fail_count_both() -> None:
    async def scene(on: Stage) -> None:
        async def listen(message: ReceivedMessage) -> bool:
            return message.body != b"bad"

        consumer = await on.consumer(listen)
        await on.world.advance(6)
        await on.send("a", "bad", "b")
        await on.world.advance(1)
        status = consumer.running_info().status_table["orders"]
        assert status.consume_failed_messages == 1
        assert status.consume_ok_tps > status.consume_failed_tps > 0

    stage(scene)


def test_threads_when_none_can_be_started_are_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process may be at the limit of its threads for a moment; what was taken then would be with nobody."""
    start = threading.Thread.start
    refused: list[str] = []

    def refuse_at_first(thread: threading.Thread) -> None:
        if thread.name.startswith("fusee-listener") and len(refused) < 2:
            refused.append(thread.name)
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse_at_first)

    async def scene(on: Stage) -> None:
        seen: asyncio.Queue[bytes] = asyncio.Queue()
        loop = asyncio.get_running_loop()

        def listen(message: ReceivedMessage) -> None:
            loop.call_soon_threadsafe(seen.put_nowait, message.body)

        await on.send("a", "b")
        await on.consumer(listen)
        assert refused == ["fusee-listener-1"]
        await on.world.advance(1)
        assert len(refused) == 2
        await on.world.advance(1)
        async with asyncio.timeout(10):
            assert sorted([await seen.get(), await seen.get()]) == [b"a", b"b"]

    stage(scene)
