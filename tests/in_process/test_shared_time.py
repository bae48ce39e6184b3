from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop

from fusee.in_process.shared_time import SHORT, SharedTime
from fusee.in_process.stillness import watch
from fusee.in_process.traffic import Traffic
from fusee.transport.tcp import TcpNetwork

START_MS = 1_700_000_000_000


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def play(request: pytest.FixtureRequest) -> Callable[..., None]:
    def run(scene: Callable[[SharedTime], Coroutine[Any, Any, None]]) -> None:
        async def main() -> None:
            loop = asyncio.get_running_loop()
            watched = watch(loop)
            try:
                await scene(SharedTime(loop, Traffic(TcpNetwork()), watched, start_ms=START_MS))
            finally:
                watched.end()

        with asyncio.Runner(loop_factory=request.param) as runner:
            runner.run(main())

    return run


async def pause(time: SharedTime, seconds: float) -> None:
    waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    time.call_later(seconds, waiter.set_result, None)
    await waiter


def test_advance_lets_coroutines_see_each_moment_in_order(play: Any) -> None:
    async def scene(time: SharedTime) -> None:
        seen: list[tuple[str, float]] = []

        async def tick(name: str, seconds: float, times: int) -> None:
            for _ in range(times):
                await pause(time, seconds)
                await asyncio.sleep(0)
                seen.append((name, time.monotonic()))

        tasks = [asyncio.ensure_future(tick("a", 2.0, 3)), asyncio.ensure_future(tick("b", 3.0, 2))]
        await time.advance(5.5)
        assert seen == [("a", 2.0), ("b", 3.0), ("a", 4.0)]
        await time.advance(0.5)
        assert sorted(seen[3:]) == [("a", 6.0), ("b", 6.0)]
        assert time.time_ms() == START_MS + 6000
        await asyncio.gather(*tasks)

    play(scene)


def test_a_timer_of_no_delay_needs_nobody_to_advance(play: Any) -> None:
    async def scene(time: SharedTime) -> None:
        await pause(time, 0)
        assert time.monotonic() == 0

    play(scene)


def test_a_short_timer_fires_by_real_time_once(play: Any) -> None:
    async def scene(time: SharedTime) -> None:
        fired: list[float] = []
        time.call_later(0.001, lambda: fired.append(time.monotonic()))
        await pause(time, 0.002)
        assert fired == [0]
        await time.advance(1)
        assert fired == [0]

    play(scene)


def test_a_short_timer_fires_by_the_clock_when_that_is_sooner(play: Any) -> None:
    async def scene(time: SharedTime) -> None:
        fired: list[float] = []
        time.call_later(SHORT, lambda: fired.append(time.monotonic()))
        await time.advance(SHORT)
        assert fired == [SHORT]

    play(scene)


@pytest.mark.parametrize("delay", [0.0, SHORT, 1.0])
def test_a_cancelled_timer_does_not_fire(play: Any, delay: float) -> None:
    async def scene(time: SharedTime) -> None:
        fired: list[int] = []
        time.call_later(delay, fired.append, 1).cancel()
        await time.advance(2)
        assert fired == []

    play(scene)


def test_a_longer_timer_waits_for_the_clock_alone(play: Any) -> None:
    async def scene(time: SharedTime) -> None:
        fired: list[int] = []
        time.call_later(SHORT * 1.01, fired.append, 1)
        done = asyncio.Event()
        asyncio.get_running_loop().call_later(SHORT * 1.5, done.set)
        await done.wait()
        assert fired == []
        await time.advance(SHORT * 1.01)
        assert fired == [1]

    play(scene)


def test_advance_by_two_tasks_adds_up(play: Any) -> None:
    async def scene(time: SharedTime) -> None:
        await asyncio.gather(time.advance(1), time.advance(2))
        assert time.monotonic() == 3

    play(scene)


def test_finish_lets_no_more_time_pass_than_the_work_takes(play: Any) -> None:
    async def scene(time: SharedTime) -> None:
        work = asyncio.ensure_future(pause(time, 7))
        time.call_later(100, lambda: None)
        await time.finish(work, 60)
        assert work.done()
        assert time.monotonic() == 7

    play(scene)


def test_finish_of_what_never_ends_stops_at_its_limit(play: Any) -> None:
    async def scene(time: SharedTime) -> None:
        def again() -> None:
            time.call_later(1, again)

        again()
        await time.finish(asyncio.get_running_loop().create_future(), 10)
        assert time.monotonic() == 10

    play(scene)
