"""Pulls that wait: what wakes them, what ends them, and what they cost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

import fusee.broker.holds as holds_module
from fusee.broker.holds import Holds
from fusee.clock import ManualClock
from fusee.transport.link import Link
from fusee.transport.router import Router


@dataclass
class Attempts:
    """A pull that notes how often it was tried, and finds something when it is told to."""

    finds: bool = False
    tries: list[bool] = field(default_factory=list)
    then: Callable[[], object] | None = None

    def __call__(self, last: bool) -> bool:
        self.tries.append(last)
        if self.then is not None:
            self.then()
        return self.finds


class Desk:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.lane = Router().lane("pull", 100)
        self.holds = Holds(clock=self.clock, timers=self.clock, lane=self.lane)
        self.holds.start()

    def link(self) -> Link:
        return Link(clock=self.clock, timers=self.clock)

    def hold(self, pull: Attempts, *, queue_id: int = 0, link: Link | None = None, seconds: float = 15.0) -> Attempts:
        self.holds.add("t", queue_id, link or self.link(), seconds, pull)
        return pull


def test_hold_is_tried_when_something_arrives_in_its_queue_alone() -> None:
    desk = Desk()
    mine, other = desk.hold(Attempts()), desk.hold(Attempts(), queue_id=1)
    desk.holds.wake("t", 0)
    desk.holds.wake("another", 0)
    assert (mine.tries, other.tries) == ([False], [])
    assert len(desk.holds) == desk.lane.in_flight == 2


def test_hold_that_finds_something_leaves_and_one_that_does_not_stays() -> None:
    desk = Desk()
    finds, waits = desk.hold(Attempts(finds=True)), desk.hold(Attempts())
    desk.holds.wake("t", 0)
    desk.holds.wake("t", 0)
    assert (finds.tries, waits.tries) == ([False], [False, False])
    assert len(desk.holds) == desk.lane.in_flight == 1
    desk.clock.advance(20)
    assert finds.tries == [False], "its deadline means nothing any more"
    assert waits.tries == [False, False, True]


def test_queue_is_awaited_while_somebody_waits_for_it() -> None:
    desk = Desk()
    assert not desk.holds.is_awaited("t", 0)
    desk.hold(Attempts(finds=True))
    assert desk.holds.is_awaited("t", 0)
    assert not desk.holds.is_awaited("t", 1)
    desk.holds.wake("t", 0)
    assert not desk.holds.is_awaited("t", 0)


def test_connection_that_holds_too_many_pulls_is_answered_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holds_module, "HOLDS_PER_LINK_MAX", 2)
    desk = Desk()
    link = desk.link()
    held = [desk.hold(Attempts(), link=link) for _ in range(2)]
    over, other = desk.hold(Attempts(), link=link), desk.hold(Attempts())
    assert [pull.tries for pull in (*held, over, other)] == [[], [], [True], []]
    assert len(desk.holds) == 3


def test_deadline_is_kept_to_a_tenth_of_a_second() -> None:
    desk = Desk()
    pull = desk.hold(Attempts(), seconds=3.0)
    desk.clock.advance(2.99)
    assert pull.tries == []
    desk.clock.advance(0.11)
    assert pull.tries == [True]
    assert len(desk.holds) == desk.lane.in_flight == 0


def test_holds_of_a_lost_connection_are_dropped() -> None:
    desk = Desk()
    gone, there = desk.link(), desk.link()
    dropped = [desk.hold(Attempts(), link=gone, queue_id=queue_id) for queue_id in range(3)]
    kept = desk.hold(Attempts(), link=there)
    desk.holds.link_lost(gone)
    desk.holds.link_lost(gone)
    assert len(desk.holds) == desk.lane.in_flight == 1
    desk.holds.wake("t", 0)
    desk.clock.advance(20)
    assert [pull.tries for pull in dropped] == [[], [], []]
    assert kept.tries == [False, True]


def test_connection_lost_while_a_hold_is_answered_does_no_harm() -> None:
    desk = Desk()
    link = desk.link()
    first = Attempts(finds=True, then=lambda: desk.holds.link_lost(link))
    desk.hold(first, link=link)
    second = desk.hold(Attempts(finds=True), link=link)
    desk.holds.wake("t", 0)
    assert (first.tries, second.tries) == ([False], [])
    assert len(desk.holds) == desk.lane.in_flight == 0


def test_stop_answers_everybody_and_holds_nobody_any_more() -> None:
    desk = Desk()
    pulls = [desk.hold(Attempts(), queue_id=number % 2) for number in range(4)]
    desk.holds.stop()
    assert [pull.tries for pull in pulls] == [[True]] * 4
    assert len(desk.holds) == desk.lane.in_flight == 0
    late = desk.hold(Attempts())
    assert late.tries == [True], "a pull that comes while the broker stops is answered at once"
    assert desk.lane.in_flight == 0
    desk.holds.stop()


def test_deadlines_of_answered_holds_are_forgotten_long_before_their_time() -> None:
    desk = Desk()
    for _ in range(10_000):
        desk.hold(Attempts(finds=True), seconds=1e6)
        desk.holds.wake("t", 0)
    assert len(desk.holds._deadlines) < 100


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("add"), st.integers(0, 2), st.integers(0, 2), st.booleans()),
            st.tuples(st.just("wake"), st.integers(0, 2), st.just(0), st.just(False)),
            st.tuples(st.just("lose"), st.integers(0, 2), st.just(0), st.just(False)),
            st.tuples(st.just("pass"), st.integers(0, 4), st.just(0), st.just(False)),
        ),
        max_size=40,
    )
)
def test_every_hold_ends_once_however_things_happen(steps: list[tuple[str, int, int, bool]]) -> None:
    desk = Desk()
    links = [desk.link() for _ in range(3)]
    pulls: list[tuple[Attempts, int, int, float]] = []
    over: set[int] = set()
    now = 0.0
    for kind, number, other, flag in steps:
        if kind == "add":
            desk.hold(attempt := Attempts(finds=flag), queue_id=number, link=links[other], seconds=3.0)
            pulls.append((attempt, number, other, now + 3.0))
        elif kind == "wake":
            desk.holds.wake("t", number)
            over |= {key for key, (pull, queue_id, _, _) in enumerate(pulls) if queue_id == number and pull.finds}
        elif kind == "lose":
            desk.holds.link_lost(links[number])
            over |= {key for key, (_, _, link, _) in enumerate(pulls) if link == number}
        else:
            desk.clock.advance(float(number))
            now += number
            over |= {key for key, (_, _, _, deadline) in enumerate(pulls) if deadline < now}
            # At the very deadline it may be either; make it plain.
            desk.clock.advance(0.2)
            now += 0.2
            over |= {key for key, (_, _, _, deadline) in enumerate(pulls) if deadline < now - 0.1}
        assert len(desk.holds) == desk.lane.in_flight
        assert len(desk.holds) >= len(pulls) - len(over)
        for pull, _, _, _ in pulls:
            assert pull.tries.count(True) <= 1
            assert True not in pull.tries[:-1], "nothing is tried behind its end"
    desk.clock.advance(4.0)
    assert len(desk.holds) == desk.lane.in_flight == 0
