"""Locks of queues: taken, renewed, refused, expired, released."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from fusee.broker.queue_locks import QueueLocks
from fusee.clock import ManualClock
from fusee.wire.bodies.queue_ref import QueueRef


def queue(queue_id: int, topic: str = "t") -> QueueRef:
    return QueueRef(broker_name="b", queue_id=queue_id, topic=topic)


def test_lock_when_free_is_given_in_order_each_once() -> None:
    locks = QueueLocks(ManualClock())
    assert locks.lock("g", "a", [queue(1), queue(0), queue(1)]) == [queue(1), queue(0)]
    assert len(locks) == 2


def test_lock_when_held_by_another_is_refused_per_queue_and_group() -> None:
    locks = QueueLocks(ManualClock())
    locks.lock("g", "a", [queue(0)])
    assert locks.lock("g", "b", [queue(0), queue(1)]) == [queue(1)]
    assert locks.lock("h", "b", [queue(0)]) == [queue(0)]


def test_lock_when_not_renewed_for_more_than_a_minute_may_be_taken() -> None:
    clock = ManualClock()
    locks = QueueLocks(clock)
    locks.lock("g", "a", [queue(0)])
    clock.advance(60.0)
    assert locks.lock("g", "b", [queue(0)]) == []
    clock.advance(0.001)
    assert locks.lock("g", "b", [queue(0)]) == [queue(0)]
    assert locks.lock("g", "a", [queue(0)]) == []


def test_lock_when_renewed_lives_on() -> None:
    clock = ManualClock()
    locks = QueueLocks(clock)
    for _ in range(5):
        assert locks.lock("g", "a", [queue(0)]) == [queue(0)]
        clock.advance(50.0)
    assert locks.lock("g", "b", [queue(0)]) == []


def test_lock_when_wall_clock_jumps_stays() -> None:
    clock = ManualClock()
    locks = QueueLocks(clock)
    locks.lock("g", "a", [queue(0)])
    clock.jump_wall(3_600_000)
    assert locks.lock("g", "b", [queue(0)]) == []


def test_unlock_when_owner_asks_frees_only_its_own() -> None:
    locks = QueueLocks(ManualClock())
    locks.lock("g", "a", [queue(0)])
    locks.lock("g", "b", [queue(1)])
    locks.unlock("g", "b", [queue(0), queue(1), queue(2)])
    locks.unlock("x", "b", [queue(0)])
    assert locks.lock("g", "c", [queue(0), queue(1)]) == [queue(1)]


def test_holds_live_locks_until_the_last_expires() -> None:
    clock = ManualClock()
    locks = QueueLocks(clock)
    assert not locks.holds_live_locks("g")
    locks.lock("g", "a", [queue(0)])
    clock.advance(60.0)
    assert locks.holds_live_locks("g")
    clock.advance(0.001)
    assert not locks.holds_live_locks("g")
    locks.lock("g", "a", [queue(0)])
    locks.unlock("g", "a", [queue(0)])
    assert not locks.holds_live_locks("g")


def test_lock_when_table_is_full_gives_no_more_until_some_expire() -> None:
    clock = ManualClock()
    locks = QueueLocks(clock, locks_max=2)
    assert locks.lock("g", "a", [queue(0), queue(1), queue(2)]) == [queue(0), queue(1)]
    assert locks.lock("g", "a", [queue(0)]) == [queue(0)]
    clock.advance(60.001)
    locks.expire()
    assert len(locks) == 0
    assert locks.lock("h", "a", [queue(2)]) == [queue(2)]


steps = st.lists(
    st.one_of(
        st.tuples(st.just("lock"), st.sampled_from("ab"), st.lists(st.integers(0, 2), max_size=3)),
        st.tuples(st.just("unlock"), st.sampled_from("ab"), st.lists(st.integers(0, 2), max_size=3)),
        st.tuples(st.just("wait"), st.integers(1, 70)),
        st.tuples(st.just("expire")),
    ),
    max_size=30,
)


@given(steps)
def test_locks_agree_with_the_rules_whatever_happens(script: list[tuple[Any, ...]]) -> None:
    clock = ManualClock()
    locks = QueueLocks(clock)
    owners: dict[int, tuple[str, float]] = {}
    for what, *how in script:
        now = clock.monotonic()
        if what == "lock":
            client, asked = how
            given_out = [q for q in asked if q not in owners or owners[q][0] == client or now - owners[q][1] > 60]
            owners |= dict.fromkeys(given_out, (client, now))
            assert locks.lock("g", client, [queue(q) for q in asked]) == [queue(q) for q in dict.fromkeys(given_out)]
        elif what == "unlock":
            client, asked = how
            locks.unlock("g", client, [queue(q) for q in asked])
            owners = {q: held for q, held in owners.items() if not (q in asked and held[0] == client)}
        elif what == "wait":
            clock.advance(how[0])
        else:
            locks.expire()
        now = clock.monotonic()
        assert locks.holds_live_locks("g") == any(now - at <= 60 for _, at in owners.values())
