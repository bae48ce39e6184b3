"""A scripted day in the life of a store: every kind of operation, in an order that makes each depend on others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fusee.message.topics import HALF_OP_TOPIC, HALF_TOPIC
from tests.store.crash.ledger import COMMIT, PREPARED, ROLLBACK, Ledger

if TYPE_CHECKING:
    from collections.abc import Callable


def _first_messages(day: Ledger) -> None:
    day.open()
    for number in range(3):
        day.put(queue_id=number % 2, tag="paid", keys=f"k{number}")
    day.store.write()
    day.store.dispatch()
    day.flush()


def _batch(day: Ledger) -> None:
    day.put_batch(4)
    day.put(tag="refunded", keys="k0 k1")
    day.flush()
    day.store.dispatch()


def _checkpoint(day: Ledger) -> None:
    day.store.flush_derived()
    day.clock.advance(5)


def _roll(day: Ledger) -> None:
    day.store.prepare()
    for number in range(6):
        day.put(queue_id=number % 3, size=900, keys=f"roll{number}")
        if number == 3:
            day.store.write()
    day.store.dispatch()
    day.flush()
    day.clock.advance(5)


def _derived_ahead_of_log(day: Ledger) -> None:
    """Consume queues and index are synced, the log behind them is not: the checkpoint may promise only the older."""
    for number in range(5):
        day.put("payments", 0, size=300, tag="x", keys=f"ahead{number}")
    day.store.write()
    day.store.dispatch()
    day.store.flush_derived()
    day.clock.advance(5)
    day.put("payments", 1)
    day.store.write()


def _log_ahead_of_derived(day: Ledger) -> None:
    for number in range(5):
        day.put("payments", 0, size=200, keys=f"behind{number}")
    day.flush()
    day.clock.advance(5)


def _transactions(day: Ledger) -> None:
    """One is committed, one rolled back, the others stay pending; records of the older kind make no queue entry."""
    halves = [day.put(HALF_TOPIC, 0, keys=f"tx{number}") for number in range(5)]
    day.flush()
    day.store.dispatch()
    day.put("orders", 1, sys_flag=COMMIT, prepared=halves[0].log_offset, keys="tx0")
    day.put(HALF_OP_TOPIC, 0, tag="d", body=b"%d," % halves[0].queue_offset)
    day.store.write()
    day.store.dispatch()
    day.put(HALF_OP_TOPIC, 0, tag="d", body=b"%d," % halves[1].queue_offset)
    day.put("orders", 1, sys_flag=PREPARED, keys="old")
    day.put("orders", 1, sys_flag=ROLLBACK, keys="old")
    day.flush()
    day.store.dispatch()
    day.store.flush_derived()
    day.put(HALF_TOPIC, 0, keys="tx5")
    day.store.write()


def _truncate(day: Ledger) -> None:
    """Promised messages are given up, as a replica does that went another way than its master."""
    first = day.put(size=500, keys="gone")
    for _ in range(9):
        day.put(queue_id=1, size=500, keys="gone too")
    day.flush()
    day.store.dispatch()
    day.store.flush_derived()
    day.clock.advance(5)
    day.truncate(first.log_offset)
    day.put(size=500, keys="instead")
    day.flush()
    day.store.dispatch()


def _expire(day: Ledger) -> None:
    day.clock.advance(80 * 3600)
    day.store.retention.delete_by_hand()
    for number in range(4):
        day.put(queue_id=number % 2, size=900, keys=f"young{number}")
    day.flush()
    day.store.dispatch()
    assert day.expire()
    day.put("orders", 2, keys="young2")
    day.flush()
    day.store.dispatch()
    day.store.flush_derived()


def _restart(day: Ledger) -> None:
    day.put("late", 0, keys="before")
    day.reopen()
    day.put("late", 0, keys="after")
    day.flush()
    day.store.dispatch()
    day.close()


PARTS: tuple[Callable[[Ledger], None], ...] = (
    _first_messages,
    _batch,
    _checkpoint,
    _roll,
    _derived_ahead_of_log,
    _log_ahead_of_derived,
    _checkpoint,
    _transactions,
    _truncate,
    _expire,
    _restart,
)


def run_day(day: Ledger) -> None:
    """The whole script."""
    for part in PARTS:
        part(day)
