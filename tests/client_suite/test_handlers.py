"""Decorated functions that are called with typed payloads."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass

import msgspec

import fusee
from tests.client_suite.stage import DELAYS_S, Stage, scene


@dataclass
class Order:
    number: int
    customer: str


class Payment(msgspec.Struct):
    amount: int


@scene
async def test_handler_when_annotated_gets_what_the_body_says(stage: Stage) -> None:
    orders, payments, texts = [await stage.topic(queues=1) for _ in range(3)]
    mq = await stage.connect(instance_name=stage.name("handlers"))
    seen: dict[str, object] = {}
    loop = asyncio.get_running_loop()

    @mq.handler(orders, group=stage.group(), consume_from="first")
    async def take_order(order: Order, message: fusee.ReceivedMessage) -> None:
        seen["order"] = (order, message.tag)

    @mq.handler(payments, group=stage.group(), consume_from="first")
    def take_payment(payment: Payment) -> None:
        thread = threading.current_thread()
        loop.call_soon_threadsafe(seen.__setitem__, "payment", (payment, thread is threading.main_thread()))

    @mq.handler(texts, group=stage.group(), consume_from="first", tags="wanted")
    async def take_text(text: str) -> None:
        seen["text"] = text

    await stage.mq.send(orders, Order(7, "zoë"), tag="paid")
    await stage.mq.send(payments, Payment(amount=12))
    await stage.mq.send(texts, "not wanted", tag="other")
    await stage.mq.send(texts, "grüße", tag="wanted")
    await mq.start_handlers()
    await stage.until("each was called", lambda: len(seen) == 3)
    await mq.close()
    assert seen == {"order": (Order(7, "zoë"), "paid"), "payment": (Payment(amount=12), False), "text": "grüße"}
    # Functions stay what they are.
    await take_text("by hand")
    assert seen["text"] == "by hand"


@scene
async def test_handler_when_body_is_not_of_its_type_makes_a_dead_letter(stage: Stage) -> None:
    topic, group = await stage.topic(queues=1), stage.group()
    mq = await stage.connect(instance_name=stage.name("handlers"))
    seen: list[Order] = []

    @mq.handler(topic, group=group, consume_from="first")
    async def take(order: Order) -> None:
        seen.append(order)

    await stage.mq.send(topic, b"{ this is no order", key="bad")
    await stage.mq.send(topic, Order(1, "a"))
    await mq.start_handlers()
    await stage.until("the good one is handled", lambda: seen == [Order(1, "a")])
    [letter] = await stage.eventually("the bad one is put aside", lambda: stage.stored_if_any(f"%DLQ%{group}"))
    await stage.await_consumed(group, topic)
    assert letter.keys == ("bad",)


@scene
async def test_handler_when_it_fails_is_called_again_as_its_policy_says(stage: Stage) -> None:
    topic, group = await stage.topic(queues=1), stage.group()
    mq = await stage.connect(instance_name=stage.name("handlers"))
    tries: list[int] = []
    policy = fusee.RetryPolicy(max_attempts=3, delays=[1], level_seconds=sorted(DELAYS_S))

    @mq.handler(topic, group=group, consume_from="first", retry=policy)
    async def take(message: fusee.ReceivedMessage) -> None:
        tries.append(message.reconsume_times)
        raise ConnectionError("the database is away")

    await stage.mq.send(topic, b"x")
    running = asyncio.create_task(mq.run())
    [letter] = await stage.eventually("it is put aside", lambda: stage.stored_if_any(f"%DLQ%{group}"))
    running.cancel()
    await asyncio.wait({running})
    assert tries == [0, 1, 2]
    assert letter.body == b"x"
