"""Consuming in a group: listeners and iterators, filters, where a group begins, pause, seek and the end."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from typing import Any

import pytest

import fusee
from fusee.client.hooks import ConsumeContext
from tests.client_suite.inbox import Inbox, bodies
from tests.client_suite.stage import Stage, scene


async def send_all(stage: Stage, topic: str, wanted: list[bytes]) -> None:
    await asyncio.gather(*(stage.mq.send(topic, body) for body in wanted))


@pytest.mark.quick
@scene
async def test_listener_when_messages_come_gets_each_once(stage: Stage) -> None:
    topic, group = await stage.topic(), stage.group()
    old, new = bodies(40, "old"), bodies(40, "new")
    await send_all(stage, topic, old)
    inbox = Inbox()
    async with stage.mq.consumer(topic, group=group, consume_from="first", listener=inbox.take):
        await inbox.holds(old)
        await send_all(stage, topic, new)
        await inbox.holds(old + new)
    assert Counter(inbox.bodies) == Counter(old + new)
    assert {message.topic for message in inbox.messages} == {topic}
    await stage.await_consumed(group, topic)


@scene
async def test_listener_when_it_blocks_runs_in_threads_at_the_same_time(stage: Stage) -> None:
    topic, group = await stage.topic(), stage.group()
    inbox = Inbox()
    at_work = threading.Barrier(4, timeout=30)

    def listener(message: fusee.ReceivedMessage) -> None:
        at_work.wait()  # nobody gets on before four are here
        inbox.take_in_thread(message)

    await send_all(stage, topic, bodies(8))
    async with stage.mq.consumer(topic, group=group, consume_from="first", listener=listener, consume_thread_max=4):
        await inbox.holds(bodies(8))
    assert Counter(inbox.bodies) == Counter(bodies(8))


@scene
async def test_batch_listener_when_messages_wait_gets_several_at_once(stage: Stage) -> None:
    topic, group = await stage.topic(queues=1), stage.group()
    wanted = bodies(60)
    await stage.mq.send_batch([fusee.Message.of(topic, body) for body in wanted])
    inbox = Inbox()
    sizes: list[int] = []

    async def listener(messages: list[fusee.ReceivedMessage]) -> None:
        sizes.append(len(messages))
        await inbox.take_all(messages)

    async with stage.mq.consumer(
        topic, group=group, consume_from="first", batch_listener=listener, consume_message_batch_max_size=8
    ):
        await inbox.holds(wanted)
        await stage.await_consumed(group, topic)
    assert Counter(inbox.bodies) == Counter(wanted)
    assert max(sizes) == 8


@scene
async def test_listener_when_it_waits_lets_others_run(stage: Stage) -> None:
    topic = await stage.topic(queues=1)
    inbox = Inbox()
    at_work = asyncio.Event()

    async def listener(message: fusee.ReceivedMessage) -> None:
        if message.body == b"first":
            await at_work.wait()
        else:
            at_work.set()
        await inbox.take(message)

    await stage.mq.send(topic, b"first")
    await stage.mq.send(topic, b"second")
    async with stage.mq.consumer(topic, group=stage.group(), consume_from="first", listener=listener):
        await inbox.holds([b"first", b"second"])


@scene
async def test_iterator_when_stepped_acknowledges_what_came_before(stage: Stage) -> None:
    topic, group = await stage.topic(queues=1), stage.group()
    wanted = bodies(10)
    for body in wanted:
        await stage.mq.send(topic, body)
    seen: list[bytes] = []
    async with stage.mq.consumer(topic, group=group, consume_from="first") as messages:
        async for message in messages:
            seen.append(message.body)
            if len(seen) == 5:
                break
    assert seen == wanted[:5]
    committed = (await stage.committed(group, topic))[0]
    # The last one was not stepped over: whether it counts as done is the consumer's choice, those before it do.
    assert committed in (4, 5)
    async with stage.mq.consumer(topic, group=group, consume_from="first") as messages:
        async for message in messages:
            if message.body not in seen:
                seen.append(message.body)
            if len(seen) == len(wanted):
                break
    assert seen == wanted


@scene
async def test_iterator_when_batches_are_asked_for_gives_them(stage: Stage) -> None:
    topic, group = await stage.topic(queues=1), stage.group()
    wanted = bodies(50)
    await stage.mq.send_batch([fusee.Message.of(topic, body) for body in wanted])
    seen: list[bytes] = []
    sizes: list[int] = []
    async with stage.mq.consumer(topic, group=group, consume_from="first") as messages:
        async for batch in messages.batches(16):
            sizes.append(len(batch))
            seen += [message.body for message in batch]
            if len(seen) == len(wanted):
                break
    assert seen == wanted
    assert max(sizes) <= 16
    assert len(sizes) < len(wanted)


@scene
async def test_tags_when_subscribed_let_only_those_through(stage: Stage) -> None:
    # One queue: when the last message is there, those before it have been let through or not.
    topic = await stage.topic(queues=1)
    for number in range(20):
        await stage.mq.send(topic, f"{number}", tag=f"Tag{'ABCDé'[number % 5]}")
    await stage.mq.send(topic, "no tag")
    await stage.mq.send(topic, "last", tag="Tagé")
    inbox = Inbox()
    async with stage.mq.consumer(
        topic, group=stage.group(), tags="TagA || TagC || Tagé", consume_from="first", listener=inbox.take
    ):
        await inbox.holds([b"last"])
    wanted = [f"{number}".encode() for number in range(20) if number % 5 in (0, 2, 4)]
    assert sorted(inbox.bodies) == sorted([*wanted, b"last"])


@scene
async def test_sql_when_subscribed_lets_only_matches_through(stage: Stage) -> None:
    topic = await stage.topic(queues=1)
    for number in range(21):
        properties = {"region": "eu" if number % 2 == 0 else "us"}
        if number != 4:
            properties["amount"] = str(number)
        await stage.mq.send(topic, f"{number}", tag="t", properties=properties)
    inbox = Inbox()
    async with stage.mq.consumer(
        topic,
        group=stage.group(),
        sql="(amount BETWEEN 3 AND 12 OR amount > 17) AND region IN ('eu', 'asia') AND TAGS IS NOT NULL",
        consume_from="first",
        listener=inbox.take,
    ):
        await inbox.holds([b"20"])
    assert sorted(map(int, inbox.bodies)) == [6, 8, 10, 12, 18, 20]


@scene
async def test_topics_when_several_have_an_expression_each(stage: Stage) -> None:
    first, second = await stage.topic(queues=1), await stage.topic(queues=1)
    for topic in (first, second):
        await stage.mq.send(topic, f"{topic} A", tag="A")
        await stage.mq.send(topic, f"{topic} B", tag="B")
        await stage.mq.send(topic, f"{topic} end", tag="end")
    inbox = Inbox()
    async with stage.mq.consumer(
        {first: "A || end", second: fusee.Sql("TAGS <> 'A'")},
        group=stage.group(),
        consume_from="first",
        listener=inbox.take,
    ):
        await inbox.holds([f"{first} end".encode(), f"{second} end".encode()])
    assert sorted(inbox.bodies) == sorted(
        text.encode() for text in (f"{first} A", f"{first} end", f"{second} B", f"{second} end")
    )


@pytest.mark.parametrize("place", ["first", "last", "time"])
@scene
async def test_consume_from_when_topic_is_young_begins_at_its_first_message(stage: Stage, place: str) -> None:
    # A broker of RocketMQ tells a new group to begin at 0 in a queue that is young and in memory, whatever the group
    # would like; so it is with every client.
    topic = await stage.topic()
    await send_all(stage, topic, bodies(12))
    await stage.stored(topic, 12)
    consume_from: Any = stage.now() if place == "time" else place
    inbox = Inbox()
    async with stage.mq.consumer(topic, group=stage.group(), consume_from=consume_from, listener=inbox.take):
        await inbox.holds(bodies(12))
    assert Counter(inbox.bodies) == Counter(bodies(12))


@scene
async def test_consume_from_when_time_is_given_begins_at_messages_stored_then_or_later(stage: Stage) -> None:
    # The queues were empty when the group came, so that the broker had no place to name.
    topic, group = await stage.topic(), stage.group()
    inbox = Inbox()
    async with stage.mq.consumer(topic, group=group, consume_from=stage.now(), listener=inbox.take):
        await send_all(stage, topic, bodies(12))
        await inbox.holds(bodies(12))
    assert Counter(inbox.bodies) == Counter(bodies(12))


@scene
async def test_consume_from_when_last_and_topic_is_empty_misses_nothing_sent_afterwards(stage: Stage) -> None:
    topic = await stage.topic()
    inbox = Inbox()
    async with stage.mq.consumer(topic, group=stage.group(), consume_from="last", listener=inbox.take):
        await send_all(stage, topic, bodies(12))
        await inbox.holds(bodies(12))
    assert Counter(inbox.bodies) == Counter(bodies(12))


@scene
async def test_consume_from_when_group_has_committed_begins_there_whatever_is_asked(stage: Stage) -> None:
    topic, group = await stage.topic(), stage.group()
    await send_all(stage, topic, bodies(12, "old"))
    inbox = Inbox()
    async with stage.mq.consumer(topic, group=group, consume_from="first", listener=inbox.take):
        await inbox.holds(bodies(12, "old"))
    await send_all(stage, topic, bodies(12, "missed"))
    again = Inbox()
    async with stage.mq.consumer(topic, group=group, consume_from="first", listener=again.take):
        await again.holds(bodies(12, "missed"))
    assert Counter(again.bodies) == Counter(bodies(12, "missed"))


@scene
async def test_reset_when_group_is_away_begins_at_the_time_given(stage: Stage) -> None:
    topic, group = await stage.topic(), stage.group()
    await send_all(stage, topic, bodies(12, "old"))
    inbox = Inbox()
    async with stage.mq.consumer(topic, group=group, consume_from="first", listener=inbox.take):
        await inbox.holds(bodies(12, "old"))
    between = await stage.apart()
    await send_all(stage, topic, bodies(12, "new"))
    await stage.stored(topic, 24)
    await stage.admin.reset_offsets(group, topic, "last")
    await stage.admin.reset_offsets(group, topic, between)
    again = Inbox()
    async with stage.mq.consumer(topic, group=group, consume_from="last", listener=again.take):
        await again.holds(bodies(12, "new"))
    assert Counter(again.bodies) == Counter(bodies(12, "new"))


@scene
async def test_reset_when_group_is_at_work_sends_it_back_in_time(stage: Stage) -> None:
    topic, group = await stage.topic(), stage.group()
    await send_all(stage, topic, bodies(12, "old"))
    between = await stage.apart()
    await send_all(stage, topic, bodies(12, "again"))
    inbox = Inbox()
    async with stage.mq.consumer(topic, group=group, consume_from="first", listener=inbox.take):
        await inbox.holds([*bodies(12, "old"), *bodies(12, "again")])
        await stage.await_consumed(group, topic)
        await stage.admin.reset_offsets(group, topic, between)
        # A pull that is held at the end of its queue learns of the reset when it ends: these end it now.
        for queue in await stage.queues(topic):
            await stage.mq.send(topic, b"nudge", queue=queue)
        await inbox.until(
            "what came after that time comes again",
            lambda: all(len(inbox.of(body)) == 2 for body in bodies(12, "again")),
        )
        await stage.await_consumed(group, topic)
    assert {len(inbox.of(body)) for body in bodies(12, "old")} == {1}


@scene
async def test_pause_when_called_holds_messages_back_until_resume(stage: Stage) -> None:
    topic, group = await stage.topic(queues=2), stage.group()
    held, free = await stage.queues(topic)
    inbox = Inbox()
    async with stage.mq.consumer(topic, group=group, consume_from="first", listener=inbox.take) as consumer:
        await stage.owns(consumer, topic, 2)
        consumer.pause(held)
        # A pull that was under way may still bring the first message.
        await stage.mq.send(topic, b"under way", queue=held)
        await stage.mq.send(topic, b"free", queue=free)
        await inbox.holds([b"free"])
        await stage.mq.send(topic, b"held", queue=held)
        for number in range(5):
            await stage.mq.send(topic, f"free {number}", queue=free)
        await inbox.holds([f"free {number}".encode() for number in range(5)])
        assert b"held" not in inbox.bodies
        consumer.resume(held)
        await inbox.holds([b"held", b"under way"])
    assert Counter(inbox.bodies)[b"held"] == 1
    await stage.await_consumed(group, topic)


@scene
async def test_seek_when_called_goes_on_there(stage: Stage) -> None:
    topic, group = await stage.topic(queues=1), stage.group()
    [queue] = await stage.queues(topic)
    wanted = bodies(10)
    for body in wanted:
        await stage.mq.send(topic, body)
    inbox = Inbox()
    async with stage.mq.consumer(topic, group=group, consume_from="first", listener=inbox.take) as consumer:
        await inbox.holds(wanted)
        await consumer.seek(queue, 7)
        await inbox.until("three come again", lambda: len(inbox.messages) == 13)
        await consumer.seek(queue, "first")
        await inbox.until("all come again", lambda: len(inbox.messages) == 23)
        await stage.await_consumed(group, topic)
    assert Counter(inbox.bodies) == Counter([*wanted, *wanted[7:], *wanted])


@scene
async def test_close_when_listeners_are_at_work_waits_and_commits(stage: Stage) -> None:
    topic, group = await stage.topic(queues=1), stage.group()
    started, finish = asyncio.Event(), asyncio.Event()
    done: list[bytes] = []

    async def listener(message: fusee.ReceivedMessage) -> None:
        started.set()
        await finish.wait()
        done.append(message.body)

    await stage.mq.send(topic, b"long work")
    consumer = stage.mq.consumer(topic, group=group, consume_from="first", listener=listener)
    await consumer.start()
    await stage.within(started.wait(), "the listener is called")
    closing = asyncio.ensure_future(consumer.close())
    await stage.tick()
    assert not closing.done()
    finish.set()
    await stage.within(closing, "the consumer closes")
    assert done == [b"long work"]
    assert await stage.committed(group, topic) == {0: 1}


@scene
async def test_hooks_when_consuming_see_every_call_of_the_listener(stage: Stage) -> None:
    topic, group = await stage.topic(queues=1), stage.group()
    seen: list[tuple[str, bool, str]] = []

    class Watcher:
        def before_consume(self, context: ConsumeContext) -> None:
            seen.append((context.group, context.success, context.status))

        def after_consume(self, context: ConsumeContext) -> None:
            seen.append((context.group, context.success, context.status))

    inbox = Inbox()
    await stage.mq.send(topic, b"x")
    async with stage.mq.consumer(topic, group=group, consume_from="first", listener=inbox.take, hooks=[Watcher()]):
        await inbox.holds([b"x"])
    assert seen[-1] == (group, True, "CONSUME_SUCCESS")
    assert len(seen) == 2


@scene
async def test_consumer_when_messages_are_many_commits_all_of_them(stage: Stage) -> None:
    topic, group = await stage.topic(), stage.group()
    batches = [[fusee.Message.of(topic, f"{batch}-{i}".encode()) for i in range(250)] for batch in range(8)]
    for batch in batches:
        await stage.mq.send_batch(batch)
    inbox = Inbox()
    async with stage.mq.consumer(topic, group=group, consume_from="first", listener=inbox.take):
        await inbox.until("all arrive", lambda: len(inbox.messages) >= 2000)
    assert len(set(inbox.bodies)) == len(inbox.messages) == 2000
    await stage.await_consumed(group, topic)
