"""Consuming in order: one message of a queue at a time, also around those that fail."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter

import pytest

import fusee
from tests.client_suite.inbox import Inbox
from tests.client_suite.stage import SEND_TIMEOUT_MS, Stage, owned, scene


@pytest.mark.quick
@scene
async def test_orderly_when_a_message_fails_holds_its_queue_and_no_other(stage: Stage) -> None:
    topic, group = await stage.topic(), stage.group()
    for step in range(10):
        await asyncio.gather(
            *(stage.mq.send(topic, f"{shard}:{step}", order_by=shard, timeout_ms=SEND_TIMEOUT_MS) for shard in "abc")
        )
    left = Counter({b"a:3": 1, b"b:5": 2})
    in_queue: Counter[fusee.MessageQueue] = Counter()
    tries: list[int] = []
    inbox = Inbox()

    async def listener(message: fusee.ReceivedMessage) -> None:
        if message.body == b"b:5":
            tries.append(message.reconsume_times)
        in_queue[message.queue] += 1
        assert in_queue[message.queue] == 1, "two of one queue at a time"
        await stage.tick()
        in_queue[message.queue] -= 1
        await inbox.take(message)
        if left[message.body]:
            left[message.body] -= 1
            raise RuntimeError("not yet")

    async with stage.mq.consumer(
        topic,
        group=group,
        ordered=True,
        consume_from="first",
        listener=listener,
        suspend_current_queue_time_ms=100,
    ):
        await inbox.until("every message is consumed", lambda: len(inbox.messages) >= 33)
        await stage.await_consumed(group, topic)
    assert Counter(inbox.bodies) == Counter(
        [f"{shard}:{step}".encode() for shard in "abc" for step in range(10)] + [b"a:3", b"b:5", b"b:5"]
    )
    for shard in ("a", "b", "c"):
        given = [message.body for message in inbox.messages if message.sharding_key == shard]
        assert [body for body, _ in itertools.groupby(given)] == [f"{shard}:{step}".encode() for step in range(10)]
    assert tries == [0, 1, 2]


@scene
async def test_orderly_when_tries_are_used_up_the_queue_goes_on_without_it(stage: Stage) -> None:
    topic, group = await stage.topic(queues=1), stage.group()
    for body in (b"good 1", b"bad", b"good 2"):
        await stage.mq.send(topic, body, key="k", tag="t")
    inbox = Inbox(fails=lambda message: message.body == b"bad")
    async with stage.mq.consumer(
        topic,
        group=group,
        ordered=True,
        consume_from="first",
        listener=inbox.take,
        max_reconsume_times=1,
        suspend_current_queue_time_ms=100,
    ):
        await inbox.holds([b"good 2"])
        [letter] = await stage.eventually("it is a dead letter", lambda: stage.stored_if_any(f"%DLQ%{group}"))
        await stage.await_consumed(group, topic)
    assert [body for body, _ in itertools.groupby(inbox.bodies)] == [b"good 1", b"bad", b"good 2"]
    assert len(inbox.of(b"bad")) == 2
    assert (letter.body, letter.tag, letter.keys) == (b"bad", "t", ("k",))


@scene
async def test_orderly_when_a_member_leaves_the_other_goes_on_in_order(stage: Stage) -> None:
    topic, group = await stage.topic(), stage.group()
    inbox = Inbox()
    first = await stage.connect(instance_name=stage.name("first"))
    second = await stage.connect(instance_name=stage.name("second"))
    steps = range(60)

    async def send() -> None:
        for step in steps:
            await asyncio.gather(*(stage.mq.send(topic, f"{s}:{step}", order_by=s) for s in "abcdefgh"))

    def member(connection: fusee.Connection) -> fusee.Consumer:
        return connection.consumer(topic, group=group, ordered=True, consume_from="first", listener=inbox.take)

    async with member(first) as staying:
        async with member(second) as leaving:
            await stage.until("both have queues", lambda: owned(staying, topic) and owned(leaving, topic))
            await send()
            await inbox.until("some arrive", lambda: len(inbox.messages) > 100)
        await inbox.until("all arrive", lambda: len(set(inbox.bodies)) == 8 * len(steps))
        await stage.await_consumed(group, topic)
    for shard in "abcdefgh":
        given = [int(m.body.split(b":")[1]) for m in inbox.messages if m.sharding_key == shard]
        # What was not committed may come again; what is new comes in order.
        firsts = list(dict.fromkeys(given))
        assert firsts == list(steps)
