"""The consumer that is asked for messages: by subscription, by assignment, by hand."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

import fusee
from fusee.client.broker_calls import PullStatus
from fusee.errors import ClientStateError
from tests.client_suite.inbox import bodies
from tests.client_suite.stage import Stage, scene


async def poll_until(
    stage: Stage, consumer: fusee.PullConsumer, wanted: list[bytes], *, more: int = 0
) -> list[fusee.ReceivedMessage]:
    """What polls bring until all of these are there."""
    found: list[fusee.ReceivedMessage] = []

    async def is_there() -> bool:
        found.extend(await consumer.poll(200))
        return len(found) >= len(wanted) + more

    await stage.eventually(f"{len(wanted)} messages are polled", is_there)
    return found


@pytest.mark.quick
@scene
async def test_poll_when_subscribed_brings_each_message_once_and_commits(stage: Stage) -> None:
    topic, group = await stage.topic(), stage.group()
    await asyncio.gather(*(stage.mq.send(topic, body) for body in bodies(40)))
    async with stage.mq.pull_consumer(topic, group=group, consume_from="first") as consumer:
        found = await poll_until(stage, consumer, bodies(40))
    assert Counter(message.body for message in found) == Counter(bodies(40))
    await stage.await_consumed(group, topic)


@scene
async def test_poll_when_two_members_subscribe_share_the_queues(stage: Stage) -> None:
    topic, group = await stage.topic(), stage.group()
    other = await stage.connect(instance_name=stage.name("other"))
    await asyncio.gather(*(stage.mq.send(topic, body) for body in bodies(40)))
    async with (
        stage.mq.pull_consumer(topic, group=group, consume_from="first") as first,
        other.pull_consumer(topic, group=group, consume_from="first") as second,
    ):
        await stage.until("each has half", lambda: len(first.assignment) == len(second.assignment) == 2)
        assert not first.assignment & second.assignment
        found: list[fusee.ReceivedMessage] = []

        async def all_there() -> bool:
            for consumer in (first, second):
                found.extend(await consumer.poll(100))
            return {message.body for message in found} == set(bodies(40))

        await stage.eventually("all are polled", all_there)


@scene
async def test_poll_when_nothing_comes_returns_after_its_time(stage: Stage) -> None:
    topic = await stage.topic()
    async with stage.mq.pull_consumer(topic, group=stage.group(), consume_from="first") as consumer:
        assert await consumer.poll(100) == []
        polling = asyncio.ensure_future(consumer.poll(30_000))
        await stage.mq.send(topic, b"x")
        assert [message.body for message in await stage.within(polling, "the poll ends")] == [b"x"]


@scene
async def test_poll_when_limited_brings_no_more(stage: Stage) -> None:
    topic = await stage.topic(queues=1)
    await stage.mq.send_batch([fusee.Message.of(topic, body) for body in bodies(30)])
    async with stage.mq.pull_consumer(topic, group=stage.group(), consume_from="first") as consumer:
        found: list[bytes] = []
        while len(found) < 30:
            batch = await consumer.poll(max_messages=7)
            assert len(batch) <= 7
            found += [message.body for message in batch]
    assert found == bodies(30)


@scene
async def test_assign_when_queues_are_named_reads_only_those(stage: Stage) -> None:
    topic = await stage.topic()
    queues = await stage.queues(topic)
    for queue in queues:
        for number in range(5):
            await stage.mq.send(topic, f"{queue.queue_id}:{number}", queue=queue)
    async with stage.mq.pull_consumer(group=stage.group(), consume_from="first") as consumer:
        await consumer.assign([queues[1], queues[2]])
        assert consumer.assignment == {queues[1], queues[2]}
        wanted = [f"{queue_id}:{number}".encode() for queue_id in (1, 2) for number in range(5)]
        found = await poll_until(stage, consumer, wanted)
        assert Counter(message.body for message in found) == Counter(wanted)
        with pytest.raises(ClientStateError):
            await consumer.subscribe(topic)


@scene
async def test_seek_when_polling_moves_the_position(stage: Stage) -> None:
    topic = await stage.topic(queues=1)
    [queue] = await stage.queues(topic)
    for body in bodies(10, "old"):
        await stage.mq.send(topic, body)
    between = await stage.apart()
    for body in bodies(10, "new"):
        await stage.mq.send(topic, body)
    await stage.stored(topic, 20)
    async with stage.mq.pull_consumer(group=stage.group()) as consumer:
        await consumer.assign([queue])
        await consumer.seek(queue, 15)
        found = await poll_until(stage, consumer, bodies(5))
        assert [message.queue_offset for message in found] == list(range(15, 20))
        assert await consumer.position(queue) == 20
        await consumer.seek_to_begin(queue)
        found = await poll_until(stage, consumer, bodies(20))
        assert [message.body for message in found] == [*bodies(10, "old"), *bodies(10, "new")]
        assert await consumer.offset_for_timestamp(queue, between) == 10
        await consumer.seek(queue, between)
        found = await poll_until(stage, consumer, bodies(10))
        assert [message.body for message in found] == bodies(10, "new")
        await consumer.seek_to_end(queue)
        await stage.mq.send(topic, b"last")
        assert [message.body for message in await poll_until(stage, consumer, [b"last"])] == [b"last"]


@scene
async def test_commit_when_by_hand_is_all_that_is_committed(stage: Stage) -> None:
    topic, group = await stage.topic(queues=1), stage.group()
    [queue] = await stage.queues(topic)
    for body in bodies(10):
        await stage.mq.send(topic, body)
    async with stage.mq.pull_consumer(topic, group=group, consume_from="first", auto_commit=False) as consumer:
        await poll_until(stage, consumer, bodies(10))
        await consumer.commit({queue: 4})
        assert await consumer.committed(queue) == 4
    assert await stage.committed(group, topic) == {0: 4}
    async with stage.mq.pull_consumer(topic, group=group, auto_commit=False) as consumer:
        found = await poll_until(stage, consumer, bodies(6))
        assert [message.body for message in found] == bodies(10)[4:]
        await consumer.commit()
    assert await stage.committed(group, topic) == {0: 10}


@scene
async def test_pause_when_polling_keeps_a_queue_back(stage: Stage) -> None:
    topic = await stage.topic(queues=2)
    held, free = await stage.queues(topic)
    async with stage.mq.pull_consumer(group=stage.group(), consume_from="first") as consumer:
        await consumer.assign([held, free])
        consumer.pause(held)
        await stage.mq.send(topic, b"held", queue=held)
        await stage.mq.send(topic, b"free", queue=free)
        assert [message.body for message in await poll_until(stage, consumer, [b"free"])] == [b"free"]
        assert await consumer.poll(300) == []
        consumer.resume(held)
        assert [message.body for message in await poll_until(stage, consumer, [b"held"])] == [b"held"]


@scene
async def test_pull_when_by_hand_says_what_a_queue_holds(stage: Stage) -> None:
    topic = await stage.topic(queues=1)
    [queue] = await stage.queues(topic)
    for number in range(10):
        await stage.mq.send(topic, f"{number}", tag="even" if number % 2 == 0 else "odd")
    await stage.stored(topic, 10)
    async with stage.mq.pull_consumer(group=stage.group()) as consumer:
        found = await consumer.pull(queue, 2, 3)
        assert found.status is PullStatus.FOUND
        assert [message.body for message in found.messages] == [b"2", b"3", b"4"]
        assert (found.next_offset, found.min_offset, found.max_offset) == (5, 0, 10)
        tagged = await consumer.pull(queue, 0, 32, tags="odd")
        assert [message.body for message in tagged.messages] == [b"1", b"3", b"5", b"7", b"9"]
        chosen = await consumer.pull(queue, 0, 32, sql="TAGS = 'even'")
        assert [message.body for message in chosen.messages] == [b"0", b"2", b"4", b"6", b"8"]
        assert (await consumer.pull(queue, 10)).status is PullStatus.NO_NEW_MESSAGE
        beyond = await consumer.pull(queue, 99)
        assert beyond.status is PullStatus.OFFSET_ILLEGAL
        assert beyond.next_offset == 10
        unmatched = await consumer.pull(queue, 0, tags="neither")
        assert unmatched.status is PullStatus.NO_MATCHED_MESSAGE
        assert unmatched.next_offset == 10
        waiting = asyncio.ensure_future(consumer.pull(queue, 10, wait_ms=20_000))
        await stage.mq.send(topic, b"10")
        assert [message.body for message in (await waiting).messages] == [b"10"]
