from __future__ import annotations

import asyncio

import pytest

from fusee.errors import TopicNotFoundError
from tests.admin.scene import Scene, play, queue


def test_follow_tells_what_is_there_and_then_what_comes() -> None:
    async def scene(on: Scene) -> None:
        await on.do(on.admin.create_topic("orders", queues=2))
        await on.send("orders", b"one", 0)
        await on.send("orders", b"two", 1)
        await on.world.advance(0.1)
        seen: list[bytes] = []

        async def follow() -> None:
            async for message in on.admin.follow("orders", "first"):
                seen.append(message.body)  # noqa: PERF401  it has no end

        task = asyncio.ensure_future(follow())
        await on.world.advance(1)
        assert seen == [b"one", b"two"]
        await on.send("orders", b"three", 1)
        await on.world.advance(1)
        await on.world.advance(40)  # pulls are held and asked for again
        await on.send("orders", b"four", 0)
        await on.world.advance(1)
        assert seen == [b"one", b"two", b"three", b"four"]
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    play(scene)


def test_follow_from_the_end_from_an_offset_and_of_one_queue() -> None:
    async def scene(on: Scene) -> None:
        await on.do(on.admin.create_topic("orders", queues=2))
        for body in (b"one", b"two", b"three"):
            await on.send("orders", body, 0)
        await on.send("orders", b"elsewhere", 1, TAGS="x")
        await on.world.advance(0.1)

        async def first(**options: object) -> bytes:
            async for message in on.admin.follow("orders", **options):  # type: ignore[arg-type]
                return message.body
            raise AssertionError("it has no end")

        assert await on.do(first(start_offset=2)) == b"three"
        assert await on.do(first(start="first", queue=queue(queue_id=1))) == b"elsewhere"
        assert await on.do(first(start="first", tags="x")) == b"elsewhere"
        waiting = asyncio.ensure_future(first())
        await on.world.advance(1)
        assert not waiting.done()
        await on.send("orders", b"new", 0)
        await on.world.advance(1)
        assert await waiting == b"new"
        with pytest.raises(TopicNotFoundError):
            await on.do(anext(on.admin.follow("none")))  # type: ignore[arg-type]

    play(scene)
