from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop

from fusee.in_process import stillness
from fusee.in_process.stillness import NotSettledError, Stillness, watch
from fusee.in_process.traffic import Traffic
from fusee.transport.tcp import TcpNetwork


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def play(request: pytest.FixtureRequest) -> Callable[..., None]:
    def run(scene: Callable[[Stillness, Traffic], Coroutine[Any, Any, None]]) -> None:
        async def main() -> None:
            watched = watch(asyncio.get_running_loop())
            try:
                await scene(watched, Traffic(TcpNetwork()))
            finally:
                watched.end()

        with asyncio.Runner(loop_factory=request.param) as runner:
            runner.run(main())

    return run


def test_settle_follows_a_long_chain_of_futures_to_its_end(play: Any) -> None:
    async def scene(watched: Stillness, traffic: Traffic) -> None:
        loop = asyncio.get_running_loop()
        futures = [loop.create_future() for _ in range(1000)]

        async def pass_on(index: int) -> None:
            await futures[index]
            futures[index + 1].set_result(None)

        tasks = [loop.create_task(pass_on(index)) for index in range(999)]
        futures[0].set_result(None)
        await watched.settle(traffic)
        assert futures[-1].done()
        await asyncio.gather(*tasks)

    play(scene)


def test_settle_of_an_idle_loop_turns_it_once(play: Any) -> None:
    async def scene(watched: Stillness, traffic: Traffic) -> None:
        await watched.settle(traffic)
        before = watched.calls
        await watched.settle(traffic)
        assert watched.calls == before + 1

    play(scene)


def test_settle_leaves_what_waits_for_real_time_alone(play: Any) -> None:
    async def scene(watched: Stillness, traffic: Traffic) -> None:
        task = asyncio.ensure_future(asyncio.sleep(3600))
        await watched.settle(traffic)
        assert not task.done()
        task.cancel()

    play(scene)


def test_settle_waits_for_threads_and_for_what_they_set_off(play: Any) -> None:
    async def scene(watched: Stillness, traffic: Traffic) -> None:
        entered, may_go = threading.Event(), threading.Event()
        seen = []

        def work() -> str:
            entered.set()
            may_go.wait()
            return "done"

        async def follow() -> None:
            seen.append(await asyncio.to_thread(work))

        task = asyncio.ensure_future(follow())
        await asyncio.sleep(0)
        entered.wait()
        asyncio.get_running_loop().call_later(0.01, may_go.set)
        await watched.settle(traffic)
        assert seen == ["done"]
        await task

    play(scene)


def test_settle_waits_for_threads_that_report_by_themselves(play: Any) -> None:
    async def scene(watched: Stillness, traffic: Traffic) -> None:
        loop = asyncio.get_running_loop()
        under_way = 0
        done = []

        def collect(number: int) -> None:
            nonlocal under_way
            under_way -= 1
            done.append(number)
            if number < 200:
                begin(number + 1)

        def begin(number: int) -> None:
            nonlocal under_way
            under_way += 1
            threading.Thread(target=loop.call_soon_threadsafe, args=(collect, number)).start()

        def is_at_work() -> bool:
            return under_way > 0

        watched.at_work.append(is_at_work)
        begin(1)
        await watched.settle(traffic)
        assert done == list(range(1, 201))
        watched.at_work.remove(is_at_work)

    play(scene)


def test_settle_when_a_task_never_waits_says_so(play: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stillness, "SETTLE_TIMEOUT", 0.05)

    async def scene(watched: Stillness, traffic: Traffic) -> None:
        async def spin() -> None:
            for _ in itertools.count():
                await asyncio.sleep(0)

        task = asyncio.ensure_future(spin())
        with pytest.raises(NotSettledError, match="without ever waiting"):
            await watched.settle(traffic)
        task.cancel()

    play(scene)


def test_settle_when_a_thread_waits_says_so(play: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stillness, "SETTLE_TIMEOUT", 0.05)

    async def scene(watched: Stillness, traffic: Traffic) -> None:
        may_go = threading.Event()
        task = asyncio.ensure_future(asyncio.to_thread(may_go.wait))
        await asyncio.sleep(0)
        with pytest.raises(NotSettledError, match="calls in threads"):
            await watched.settle(traffic)
        may_go.set()
        await task

    play(scene)


def test_end_when_the_last_user_leaves_gives_the_loop_back_as_it_was(play: Any) -> None:
    async def scene(watched: Stillness, traffic: Traffic) -> None:
        loop = asyncio.get_running_loop()
        second = watch(loop)
        assert second is watched
        second.end()
        assert "call_soon" in vars(loop)
        watched.end()
        assert not {"call_soon", "call_soon_threadsafe", "run_in_executor"} & set(vars(loop))
        watch(loop)

    play(scene)
