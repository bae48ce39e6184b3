"""Sending to a queue of one's choice: by key, by selector, by name."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import fusee
from tests.client_suite.stage import SEND_TIMEOUT_MS, Stage, scene


@scene
async def test_order_by_when_key_is_equal_keeps_queue_and_order(stage: Stage) -> None:
    topic = await stage.topic(queues=8)
    keys = [f"customer-{number}" for number in range(12)]
    # A broker may serve sends that are in flight together in any order, so each key has one in flight.
    for step in range(10):
        await asyncio.gather(
            *(stage.mq.send(topic, f"{key}:{step}", order_by=key, timeout_ms=SEND_TIMEOUT_MS) for key in keys)
        )
    messages = sorted(await stage.stored(topic, 10 * len(keys)), key=lambda message: message.queue_offset)
    for key in keys:
        mine = [message for message in messages if message.sharding_key == key]
        assert len({message.queue for message in mine}) == 1
        assert [message.body for message in mine] == [f"{key}:{step}".encode() for step in range(10)]
    assert len({message.queue for message in messages}) > 1


@scene
async def test_order_by_when_java_hashes_the_key_goes_to_the_same_queue(stage: Stage) -> None:
    # SelectMessageQueueByHash takes abs(hashCode() % queues); the codes are those that Java gives.
    topic = await stage.topic(queues=8)
    queues = await stage.queues(topic)
    for key, hash_code in (("customer-7", -1581185528), ("a", 97), ("é消", 35263), ("polygenelubricants", -(2**31))):
        sent = await stage.mq.send(topic, b"x", order_by=key)
        assert sent.queue == queues[abs(hash_code) % 8], key


@scene
async def test_selector_when_given_chooses_the_queue(stage: Stage) -> None:
    topic = await stage.topic()

    def choose(queues: Sequence[fusee.MessageQueue], message: fusee.Message, argument: object) -> fusee.MessageQueue:
        assert message.topic == topic
        assert isinstance(argument, int)
        return queues[argument % len(queues)]

    for number in range(8):
        sent = await stage.mq.send(topic, b"x", selector=choose, selector_argument=number)
        assert sent.queue.queue_id == number % 4


@scene
async def test_queue_when_given_gets_the_message(stage: Stage) -> None:
    topic = await stage.topic()
    for queue in await stage.queues(topic):
        assert (await stage.mq.send(topic, b"x", queue=queue)).queue == queue
