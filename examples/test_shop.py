"""Tests of a program that uses a message queue, with the fixtures that `pip install fusee` brings.

    pytest examples/test_shop.py

It needs no server and no plugin for coroutines: each test gets a name server and a broker of its own, in milliseconds.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

import fusee

if TYPE_CHECKING:
    from fusee.sync import Connection, EmbeddedServer


class Shop:
    """The program under test."""

    def __init__(self, mq: Connection) -> None:
        self.mq = mq
        self.mailed: list[str] = []
        self.mail_is_down = False

    def order(self, customer: str) -> None:
        self.mq.send("orders", customer, key=customer)
        self.mq.send("reminders", customer, delay_level=14)  # ten minutes

    def mail(self, message: fusee.ReceivedMessage) -> None:
        if self.mail_is_down:
            raise ConnectionError("the mail server does not answer")
        self.mailed.append(message.body.decode())


def test_order_is_sent(fusee_server: EmbeddedServer) -> None:
    with fusee_server.connect() as mq:
        Shop(mq).order("ada")
        with mq.pull_consumer("orders", group="test", consume_from="first") as orders:
            (order,) = orders.poll()
        assert (order.body, order.keys) == (b"ada", ("ada",))


@pytest.mark.fusee(topics=["orders", "reminders"])
def test_customer_is_reminded_after_ten_minutes(fusee_clocked: EmbeddedServer) -> None:
    with fusee_clocked.connect() as mq:
        shop = Shop(mq)
        with mq.consumer("reminders", group="mailer", listener=shop.mail):
            shop.order("ada")
            fusee_clocked.advance(599)
            assert shop.mailed == []
            fusee_clocked.advance(1)
            assert shop.mailed == ["ada"]


@pytest.mark.fusee(topics=["orders", "reminders"])
def test_reminder_is_tried_again_when_mail_was_down(fusee_clocked: EmbeddedServer) -> None:
    with fusee_clocked.connect() as mq:
        shop = Shop(mq)
        shop.mail_is_down = True
        with mq.consumer("reminders", group="mailer", listener=shop.mail):
            shop.order("ada")
            fusee_clocked.advance(600)
            shop.mail_is_down = False
            fusee_clocked.advance(10)  # the first of the delays between tries
            assert shop.mailed == ["ada"]


def test_coroutines_use_the_address(fusee_name_server: str) -> None:
    async def scenario() -> fusee.SendResult:
        async with fusee.connect(fusee_name_server) as mq:
            return await mq.send("orders", b"ada")

    assert asyncio.run(scenario()).status is fusee.SendStatus.SEND_OK
