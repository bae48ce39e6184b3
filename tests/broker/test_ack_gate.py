"""When a producer is answered: not before its promise is true, once, and in one write per connection."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusee.broker.ack_gate import UNAVAILABLE, AckGate, PutStatus
from fusee.broker.handlers.send import amend_answer
from fusee.clock import ManualClock
from fusee.transport.link import Link
from fusee.transport.router import Router
from fusee.wire.codes import ResponseCode
from fusee.wire.send_answers import SendAnswers
from tests.broker.log_world import STORE_HOST, Wire

ANSWERS = SendAnswers(STORE_HOST, "DefaultRegion", True)


class CountingWire(Wire):
    """A byte stream that counts its writes."""

    def __init__(self) -> None:
        super().__init__()
        self.writes = 0

    def write(self, data: bytes) -> None:
        self.writes += 1
        super().write(data)

    def codes(self) -> list[tuple[int, int]]:
        """(opaque, code) of what was sent."""
        return [(answer.opaque, answer.code) for answer in self.sent]


@dataclass
class Desk:
    """A gate, its lane and connections."""

    waits_for_flush: bool = True
    clock: ManualClock = field(default_factory=ManualClock)

    def __post_init__(self) -> None:
        self.lane = Router().lane("send", 100)
        self.gate = AckGate(waits_for_flush=self.waits_for_flush, timeout=5.0, lane=self.lane, amend=amend_answer)

    def link(self) -> tuple[Link, CountingWire]:
        link = Link(clock=self.clock, timers=self.clock)
        wire = CountingWire()
        link.connection_made(wire)
        return link, wire

    def send(self, link: Link, opaque: int, end_offset: int, *, wait: bool = True) -> None:
        self.gate.add_answer(end_offset, wait, link, ANSWERS.frame(opaque, end_offset - 10, 3, 7, b"ID1"))


def test_answer_when_store_flushes_at_leisure_leaves_with_the_write() -> None:
    desk = Desk(waits_for_flush=False)
    link, wire = desk.link()
    desk.send(link, 1, 100)
    assert (wire.sent, desk.gate.waiting, desk.lane.in_flight) == ([], 1, 1)
    desk.gate.written(100, 0.0)
    assert wire.codes() == [(1, 0)]
    assert (desk.gate.waiting, desk.lane.in_flight) == (0, 0)


def test_answer_when_store_flushes_at_once_waits_for_the_flush() -> None:
    desk = Desk()
    link, wire = desk.link()
    desk.send(link, 1, 100)
    desk.send(link, 2, 200)
    desk.gate.written(200, 0.0)
    assert wire.sent == []
    assert desk.gate.waits_for_disk is True
    desk.gate.flushed(199)
    assert wire.codes() == [(1, 0)]
    desk.gate.flushed(200)
    assert wire.codes() == [(1, 0), (2, 0)]
    assert (desk.gate.waits_for_disk, desk.gate.waiting) == (False, 0)


def test_message_that_does_not_wait_is_answered_before_the_flush() -> None:
    desk = Desk()
    link, wire = desk.link()
    desk.send(link, 1, 100)
    desk.send(link, 2, 200, wait=False)
    desk.gate.written(200, 0.0)
    assert wire.codes() == [(2, 0)]
    assert desk.lane.in_flight == 1


@pytest.mark.parametrize("waits_for_flush", [False, True])
def test_answers_for_one_connection_leave_in_one_write(waits_for_flush: bool) -> None:
    desk = Desk(waits_for_flush)
    (first, first_wire), (second, second_wire) = desk.link(), desk.link()
    for number in range(1, 7):
        desk.send(first if number % 2 else second, number, number * 100)
    desk.gate.written(600, 0.0)
    desk.gate.flushed(600)
    assert (first_wire.writes, second_wire.writes) == (1, 1)
    assert first_wire.codes() == [(1, 0), (3, 0), (5, 0)]
    assert second_wire.codes() == [(2, 0), (4, 0), (6, 0)]


@pytest.mark.parametrize("waits_for_flush", [False, True])
def test_what_was_not_written_is_void_and_says_so(waits_for_flush: bool) -> None:
    desk = Desk(waits_for_flush)
    link, wire = desk.link()
    desk.send(link, 1, 100)
    desk.send(link, 2, 200)
    desk.gate.written(100, 0.0)
    desk.gate.flushed(100)
    assert sorted(wire.codes()) == [(1, 0), (2, ResponseCode.SERVICE_NOT_AVAILABLE)]
    void = next(answer for answer in wire.sent if answer.opaque == 2)
    assert void.remark == UNAVAILABLE
    assert void.ext_fields == {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}
    assert desk.lane.in_flight == 0


def test_disk_that_takes_too_long_is_told_with_the_place_of_the_message() -> None:
    desk = Desk()
    link, wire = desk.link()
    desk.send(link, 1, 100)
    desk.gate.written(100, 10.0)
    desk.send(link, 2, 200)
    desk.gate.written(200, 12.0)
    desk.gate.expire(14.9)
    assert wire.sent == []
    desk.gate.expire(15.0)
    assert wire.codes() == [(1, ResponseCode.FLUSH_DISK_TIMEOUT)]
    assert wire.sent[0].all_fields()["queueOffset"] == "7"
    assert wire.sent[0].remark is None
    desk.gate.flushed(200)
    assert wire.codes() == [(1, ResponseCode.FLUSH_DISK_TIMEOUT), (2, 0)]
    desk.gate.expire(100.0)
    assert len(wire.sent) == 2


def test_failed_store_answers_everybody() -> None:
    desk = Desk()
    link, wire = desk.link()
    desk.send(link, 1, 100)
    desk.gate.written(100, 0.0)
    desk.send(link, 2, 200)
    desk.gate.fail_all()
    assert wire.codes() == [(1, ResponseCode.FLUSH_DISK_TIMEOUT), (2, ResponseCode.SERVICE_NOT_AVAILABLE)]
    assert (desk.gate.waiting, desk.lane.in_flight) == (0, 0)


def test_closed_connection_is_passed_over() -> None:
    desk = Desk(waits_for_flush=False)
    (gone, gone_wire), (link, wire) = desk.link(), desk.link()
    desk.send(gone, 1, 100)
    desk.send(link, 2, 200)
    gone_wire.closing = True
    gone.connection_lost(None)
    desk.gate.written(200, 0.0)
    assert gone_wire.sent == []
    assert wire.codes() == [(2, 0)]
    assert desk.lane.in_flight == 0


def test_callback_may_put_the_next_record() -> None:
    desk = Desk(waits_for_flush=False)
    heard: list[PutStatus] = []

    def put_another(status: PutStatus) -> None:
        heard.append(status)
        if len(heard) < 3:
            desk.gate.add(100 * (len(heard) + 1), True, put_another)

    desk.gate.add(100, True, put_another)
    assert desk.lane.in_flight == 0, "only what a client waits for counts"
    for end_offset in (100, 200, 300):
        desk.gate.written(end_offset, 0.0)
    assert heard == [PutStatus.PUT_OK] * 3
    assert desk.gate.waiting == 0


@pytest.mark.parametrize(
    ("status", "code", "is_stored"),
    [
        (PutStatus.PUT_OK, 0, True),
        (PutStatus.FLUSH_DISK_TIMEOUT, 10, True),
        (PutStatus.SLAVE_NOT_AVAILABLE, 11, True),
        (PutStatus.FLUSH_SLAVE_TIMEOUT, 12, True),
        (PutStatus.NOT_STORED, 14, False),
    ],
)
def test_outcome_has_the_code_of_the_reference(status: PutStatus, code: int, is_stored: bool) -> None:
    assert (status.code, status.is_stored) == (code, is_stored)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.booleans(), st.booleans()),
        st.tuples(st.just("write"), st.booleans(), st.just(False)),
        st.tuples(st.sampled_from(["flush", "later", "fail"]), st.just(False), st.just(False)),
    ),
    max_size=30,
)


@given(STEPS, st.booleans())
def test_every_promise_is_kept_once_and_never_early(steps: list[tuple[str, bool, bool]], waits_for_flush: bool) -> None:
    desk = Desk(waits_for_flush)
    link, wire = desk.link()
    placed: dict[int, tuple[int, bool]] = {}
    called: list[tuple[int, PutStatus]] = []
    end_offset = written_offset = flushed_offset = 0
    now = 0.0
    may_be_answered: set[int] = set()
    for number, (kind, flag, other) in enumerate(steps):
        if kind == "put":
            end_offset += 10
            placed[number] = (end_offset, flag)
            if other:
                desk.send(link, number, end_offset, wait=flag)
            else:
                desk.gate.add(end_offset, flag, lambda status, number=number: called.append((number, status)))  # type: ignore[misc]
        elif kind == "write":
            # A write that fails leaves the log where it was: the next record gets the place.
            if flag:
                written_offset = end_offset
            may_be_answered |= {
                key for key, (end, wait) in placed.items() if end > written_offset or not (wait and waits_for_flush)
            }
            desk.gate.written(written_offset, now)
            end_offset = written_offset
        elif kind == "flush":
            flushed_offset = written_offset
            may_be_answered |= {key for key, (end, _) in placed.items() if end <= flushed_offset}
            desk.gate.flushed(flushed_offset)
        elif kind == "later":
            now += 3.0
            may_be_answered |= {key for key, (end, _) in placed.items() if end <= written_offset}
            desk.gate.expire(now)
        else:
            may_be_answered |= set(placed)
            desk.gate.fail_all()
        answered = [opaque for opaque, _ in wire.codes()] + [key for key, _ in called]
        assert len(answered) == len(set(answered))
        assert set(answered) <= may_be_answered
        assert len(answered) + desk.gate.waiting == len(placed)
    desk.gate.fail_all()
    assert desk.gate.waiting == desk.lane.in_flight == 0
    assert len(wire.sent) + len(called) == len(placed)


# Slaves


def slave_desk(*, flush: bool = False) -> tuple[Desk, Link, CountingWire]:
    desk = Desk(waits_for_flush=flush)
    desk.gate = AckGate(
        waits_for_flush=flush,
        timeout=5.0,
        lane=desk.lane,
        amend=amend_answer,
        waits_for_slaves=True,
        slave_timeout=3.0,
    )
    link, wire = desk.link()
    return desk, link, wire


def test_answer_when_slaves_are_required_waits_for_them() -> None:
    desk, link, wire = slave_desk()
    desk.gate.slaves_changed(True)
    desk.send(link, 1, 100)
    desk.send(link, 2, 200)
    desk.send(link, 3, 300, wait=False)
    desk.gate.written(300, 0.0)
    assert wire.codes() == [(3, 0)]
    assert not desk.gate.waits_for_disk
    desk.gate.replicated(150)
    assert wire.codes() == [(3, 0), (1, 0)]
    desk.gate.replicated(100)
    desk.gate.replicated(200)
    assert wire.codes() == [(3, 0), (1, 0), (2, 0)]
    assert (desk.gate.waiting, desk.lane.in_flight) == (0, 0)


def test_answer_when_there_are_too_few_slaves_says_so_at_once() -> None:
    desk, link, wire = slave_desk()
    desk.send(link, 1, 100)
    desk.gate.written(100, 0.0)
    assert wire.codes() == [(1, ResponseCode.SLAVE_NOT_AVAILABLE)]
    desk.gate.slaves_changed(True)
    desk.send(link, 2, 200)
    desk.gate.written(200, 0.0)
    assert len(wire.sent) == 1
    desk.gate.slaves_changed(False)
    assert wire.codes()[1:] == [(2, ResponseCode.SLAVE_NOT_AVAILABLE)]


def test_answer_when_slaves_take_too_long_says_so() -> None:
    desk, link, wire = slave_desk()
    desk.gate.slaves_changed(True)
    desk.send(link, 1, 100)
    desk.gate.written(100, 10.0)
    desk.gate.expire(12.9)
    assert not wire.sent
    desk.gate.expire(13.0)
    assert wire.codes() == [(1, ResponseCode.FLUSH_SLAVE_TIMEOUT)]


def test_answer_when_both_are_promised_waits_for_both_and_tells_what_failed() -> None:
    desk, link, wire = slave_desk(flush=True)
    desk.gate.slaves_changed(True)
    for opaque in range(1, 6):
        desk.send(link, opaque, opaque * 100)
    desk.gate.written(500, 0.0)
    desk.gate.replicated(300)
    assert not wire.sent
    desk.gate.flushed(200)
    assert wire.codes() == [(1, 0), (2, 0)]
    desk.gate.expire(3.0)
    assert len(wire.sent) == 2, "the disk has two seconds more"
    desk.gate.flushed(400)
    assert wire.codes()[2:] == [(3, 0)]
    desk.gate.expire(3.1)
    assert wire.codes()[3:] == [(4, ResponseCode.FLUSH_SLAVE_TIMEOUT)]
    desk.gate.expire(5.0)
    assert wire.codes()[4:] == [(5, ResponseCode.FLUSH_DISK_TIMEOUT)]


def test_what_is_replicated_stays_so_when_slaves_go() -> None:
    desk, link, wire = slave_desk(flush=True)
    desk.gate.slaves_changed(True)
    desk.send(link, 1, 100)
    desk.send(link, 2, 200)
    desk.gate.written(200, 0.0)
    desk.gate.replicated(100)
    desk.gate.slaves_changed(False)
    assert not wire.sent
    desk.gate.flushed(200)
    assert wire.codes() == [(1, 0), (2, ResponseCode.SLAVE_NOT_AVAILABLE)]


def test_readers_see_what_slaves_have_and_wait_no_longer_than_senders() -> None:
    desk, _link, _ = slave_desk()
    gate = desk.gate
    gate.start_at(50)
    assert gate.confirmed_offset == 50
    gate.written(100, 0.0)
    assert gate.confirmed_offset == 100, "nobody to wait for"
    gate.slaves_changed(True)
    gate.written(300, 1.0)
    assert gate.confirmed_offset == 100
    gate.replicated(250)
    assert gate.confirmed_offset == 250
    gate.expire(1.0)
    gate.written(400, 2.0)
    gate.expire(2.0)
    gate.expire(3.9)
    assert gate.confirmed_offset == 250
    gate.expire(4.0)
    assert gate.confirmed_offset == 300
    gate.expire(5.0)
    assert gate.confirmed_offset == 400
    gate.written(500, 5.0)
    gate.slaves_changed(False)
    assert gate.confirmed_offset == 500


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("put"), st.integers(1, 50)),
            st.tuples(st.just("write"), st.just(0)),
            st.tuples(st.just("flush"), st.integers(0, 500)),
            st.tuples(st.just("replicate"), st.integers(0, 500)),
            st.tuples(st.just("slaves"), st.integers(0, 1)),
            st.tuples(st.just("wait"), st.integers(1, 4)),
        ),
        max_size=40,
    ),
    st.booleans(),
)
def test_success_is_never_said_before_it_is_true(steps: list[tuple[str, int]], flush: bool) -> None:
    desk, link, wire = slave_desk(flush=flush)
    end = written = flushed = replicated = confirmed = 0
    now = 0.0
    opaques: dict[int, int] = {}
    for kind, value in steps:
        if kind == "put":
            end += value
            opaques[len(opaques)] = end
            desk.send(link, len(opaques) - 1, end)
        elif kind == "write":
            written = end
            desk.gate.written(written, now)
        elif kind == "flush":
            flushed = max(flushed, min(value, written))
            desk.gate.flushed(flushed)
        elif kind == "replicate":
            replicated = max(replicated, min(value, written))
            desk.gate.replicated(replicated)
        elif kind == "slaves":
            desk.gate.slaves_changed(bool(value))
        else:
            now += value
            desk.gate.expire(now)
        for opaque, code in wire.codes():
            if code == 0:
                assert opaques[opaque] <= replicated
                assert not flush or opaques[opaque] <= flushed
        assert confirmed <= desk.gate.confirmed_offset <= written
        confirmed = desk.gate.confirmed_offset
        wire.sent = [answer for answer in wire.sent if answer.code]
    now += 10.0
    desk.gate.written(end, now)
    desk.gate.expire(now + 10.0)
    assert (desk.gate.waiting, desk.lane.in_flight) == (0, 0)
