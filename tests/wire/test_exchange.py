"""Requests in flight end exactly once."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from fusee.errors import ConnectionLostError, RequestTimeoutError, TooManyRequestsError, TransportError
from fusee.wire.command import Command
from fusee.wire.exchange import Exchange


def test_answer_reaches_the_sink_of_its_opaque() -> None:
    exchange = Exchange()
    seen: list[Command | TransportError] = []
    first = exchange.begin(105, now=0.0, timeout=3.0, sink=seen.append)
    second = exchange.begin(106, now=0.0, timeout=3.0, sink=seen.append)
    assert exchange.resolve(Command(0, second, 1))
    assert exchange.resolve(Command(0, first, 1))
    assert [item.opaque for item in seen if isinstance(item, Command)] == [second, first]
    assert not exchange.resolve(Command(0, first, 1))


def test_expired_request_gets_an_error_that_names_code_address_and_time() -> None:
    exchange = Exchange()
    seen: list[Command | TransportError] = []
    exchange.begin(105, now=1.0, timeout=3.0, sink=seen.append)
    assert exchange.expire(3.9) == 0
    assert exchange.expire(4.0, "127.0.0.1:9876") == 1
    assert isinstance(seen[0], RequestTimeoutError)
    assert str(seen[0]) == "no answer from 127.0.0.1:9876 to request code 105 within 3 s"


def test_begin_at_the_limit_is_refused() -> None:
    exchange = Exchange(in_flight_max=1)
    exchange.begin(1, 0.0, 1.0, lambda _: None)
    with pytest.raises(TooManyRequestsError):
        exchange.begin(1, 0.0, 1.0, lambda _: None)


def test_opaque_wraps_and_skips_those_in_flight() -> None:
    exchange = Exchange(first_opaque=2**31 - 1)
    opaques = [exchange.begin(1, 0.0, 1.0, lambda _: None) for _ in range(2)]
    assert opaques == [2**31 - 1, 0]
    wrapped = Exchange(first_opaque=2**31 - 1)
    wrapped.begin(1, 0.0, 1.0, lambda _: None)
    wrapped._opaque = 2**31 - 1
    assert wrapped.next_opaque() == 0


class Life(RuleBasedStateMachine):
    """Every request ends once, by answer, deadline, failure, or silence after giving up."""

    def __init__(self) -> None:
        super().__init__()
        self.exchange = Exchange(in_flight_max=8)
        self.now = 0.0
        self.ended: dict[int, int] = {}
        self.open: dict[int, float] = {}
        self.serial = 0
        self.by_opaque: dict[int, int] = {}

    @rule(timeout=st.floats(0.1, 5.0))
    def begin(self, timeout: float) -> None:
        serial = self.serial
        self.serial += 1

        def sink(_: Command | TransportError) -> None:
            self.ended[serial] = self.ended.get(serial, 0) + 1
            self.open.pop(serial)

        try:
            opaque = self.exchange.begin(1, self.now, timeout, sink)
        except TooManyRequestsError:
            assert len(self.open) == 8
            return
        self.by_opaque[opaque] = serial
        self.open[serial] = self.now + timeout

    @rule(data=st.data())
    def answer(self, data: st.DataObject) -> None:
        if self.by_opaque:
            opaque = data.draw(st.sampled_from(sorted(self.by_opaque)))
            alive = self.by_opaque[opaque] in self.open
            assert self.exchange.resolve(Command(0, opaque, 1)) == alive

    @rule(data=st.data())
    def give_up(self, data: st.DataObject) -> None:
        if self.by_opaque:
            opaque = data.draw(st.sampled_from(sorted(self.by_opaque)))
            self.exchange.give_up(opaque)
            self.open.pop(self.by_opaque[opaque], None)

    @rule(seconds=st.floats(0.0, 3.0))
    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.exchange.expire(self.now)
        assert all(deadline > self.now for deadline in self.open.values())

    @rule()
    def lose(self) -> None:
        self.exchange.fail_all(ConnectionLostError("gone"))
        assert not self.open

    @invariant()
    def books_agree(self) -> None:
        assert len(self.exchange) == len(self.open)
        assert all(count == 1 for count in self.ended.values())
        if self.open:
            assert self.exchange.next_deadline is not None
            assert self.exchange.next_deadline <= min(self.open.values())


TestLife = Life.TestCase
