"""Sends that wait, and sends that are forgotten."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from fusee.client.outgoing import Outgoing, WaitingRoom
from fusee.client.publication import Publication
from fusee.clock import ManualClock
from fusee.errors import MessageError, RequestTimeoutError, TooManyRequestsError, TransportError
from fusee.message.model import Message
from fusee.wire.command import Command


class _Owner:
    is_watching = False

    def __init__(self) -> None:
        self.failed: list[tuple[Outgoing, Exception]] = []
        self.over: list[Outgoing] = []

    def finished(self, out: Outgoing) -> None:
        self.over.append(out)

    def answered(self, out: Outgoing, response: Command | TransportError) -> None:
        raise AssertionError("nothing was sent")

    def try_failed(self, out: Outgoing, error: Exception) -> None:
        self.failed.append((out, error))
        out.refuse(error)
        out.exception()


def outgoing(owner: _Owner, deadline: float) -> Outgoing:
    out = Outgoing(loop=asyncio.get_running_loop())
    out.owner = owner
    out.lane = out.link = None
    out.is_admitted = False
    out.deadline = deadline
    out.timeout = 10.0
    out.publication = Publication("orders", cast("Any", None), start=0, clock=ManualClock(), timers=ManualClock())
    return out


def test_waiting_room_keeps_order_and_tells_the_time_left() -> None:
    async def scene() -> None:
        clock, owner = ManualClock(), _Owner()
        room = WaitingRoom("a wonder", clock=clock, timers=clock)
        sends = [outgoing(owner, 3.0 + number) for number in range(3)]
        for out in sends:
            room.add(out)
        clock.advance(1.0)
        assert room.take() is sends[0]
        assert sends[0].timeout == 2.0
        assert room.take_all() == sends[1:]
        assert room.take() is None
        assert clock.next_due is None

    asyncio.run(scene())


def test_waiting_room_expires_each_at_its_own_deadline() -> None:
    async def scene() -> None:
        clock, owner = ManualClock(), _Owner()
        room = WaitingRoom("a wonder", clock=clock, timers=clock)
        late, early = outgoing(owner, 5.0), outgoing(owner, 2.0)
        room.add(late)
        room.add(early)
        clock.advance(2.0)
        assert [out for out, _ in owner.failed] == [early]
        assert isinstance(owner.failed[0][1], RequestTimeoutError)
        assert str(owner.failed[0][1]) == "a message for topic 'orders' waited in vain for a wonder"
        assert owner.failed[0][1].topic == "orders"
        clock.advance(3.0)
        assert [out for out, _ in owner.failed] == [early, late]
        assert clock.next_due is None

    asyncio.run(scene())


def test_waiting_room_gives_the_error_it_was_made_with() -> None:
    async def scene() -> None:
        clock, owner = ManualClock(), _Owner()
        room = WaitingRoom("a place", clock=clock, timers=clock, error=TooManyRequestsError)
        room.add(outgoing(owner, 1.0))
        clock.advance(1.0)
        assert isinstance(owner.failed[0][1], TooManyRequestsError)

    asyncio.run(scene())


def test_cancelled_send_is_passed_over_and_never_expires() -> None:
    async def scene() -> None:
        clock, owner = ManualClock(), _Owner()
        room = WaitingRoom("a wonder", clock=clock, timers=clock)
        gone, other = outgoing(owner, 2.0), outgoing(owner, 2.0)
        room.add(gone)
        room.add(other)
        assert gone.cancel()
        assert not gone.cancel()
        assert owner.over == [gone]
        assert room.take() is other
        room.add(gone)
        clock.advance(9.0)
        assert owner.failed == []

    asyncio.run(scene())


def test_reconsume_times_of_a_retried_message_move_to_the_header() -> None:
    async def scene() -> None:
        out = outgoing(_Owner(), 1.0)
        properties = {"RECONSUME_TIME": "3", "MAX_RECONSUME_TIMES": "16", "a": "b"}
        message = out.take_reconsume_times(Message("%RETRY%g", b"x", properties))
        assert (out.reconsume_times, out.max_reconsume_times, out.is_plain) == (3, 16, False)
        assert message.properties == {"a": "b"}
        with pytest.raises(MessageError, match="are numbers"):
            out.take_reconsume_times(Message("%RETRY%g", b"x", {"RECONSUME_TIME": "three"}))

    asyncio.run(scene())
