"""Where two logs part, found by asking."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fusee.clock import ManualClock
from fusee.errors import DivergedError
from fusee.replication.agreement import common_end
from fusee.replication.frames import LogFacts, RecordFacts, facts_of
from fusee.store.engine import MessageStore
from fusee.store.simulated_disk import SimulatedDisk
from tests.broker.log_world import message, small_store


def store_of(sizes: list[int], salt: str = "") -> MessageStore:
    clock = ManualClock()
    store = MessageStore(Path("/store"), small_store(), files=SimulatedDisk(clock), clock=clock)
    store.open()
    grow(store, sizes, salt)
    return store


def grow(store: MessageStore, sizes: list[int], salt: str = "") -> None:
    for number, size in enumerate(sizes):
        store.put(message((f"{salt}{number:05d}" * (size // 5 + 1)).encode()))
    store.write()


def compare(slave: MessageStore, master: MessageStore) -> tuple[int, int]:
    """(where they part, how many questions it took)."""
    asked = 0

    async def ask(log_offset: int) -> RecordFacts:
        nonlocal asked
        asked += 1
        return facts_of(master.record_at(log_offset))

    log = master.log
    facts = LogFacts(log.min_offset, log.written_offset, log.segment_size)
    return asyncio.run(common_end(slave, facts, ask)), asked


def test_logs_that_agree_cost_one_question() -> None:
    master, slave = store_of([100] * 300), store_of([100] * 300)
    assert compare(slave, master) == (slave.written_offset, 1)
    grow(master, [100] * 50, "more")
    assert compare(slave, master) == (slave.written_offset, 1)


SIZES = st.lists(st.integers(5, 3000), min_size=1, max_size=40)
MORE = st.lists(st.integers(5, 3000), max_size=40)


@settings(max_examples=60, deadline=None)
@given(SIZES, MORE, MORE)
def test_place_where_logs_part_is_the_end_of_the_last_common_record(
    common: list[int], mine: list[int], other: list[int]
) -> None:
    slave, master = store_of(common), store_of(common)
    parted = slave.written_offset
    grow(slave, mine, "mine")
    grow(master, other, "other")
    found, asked = compare(slave, master)
    assert found == parted
    assert asked < 40


def test_blank_behind_the_last_record_is_compared_as_well() -> None:
    slave, master = store_of([1000] * 13), store_of([1000] * 13)
    parted = slave.written_offset
    grow(slave, [3000])  # rolls: a blank, and a record in the next segment
    segment = slave.log.segment_size
    assert parted < segment < slave.written_offset
    slave.truncate(segment)
    assert slave.written_offset == segment
    assert compare(slave, master)[0] == parted, "the master has less"
    grow(master, [5])
    grow(master, [4000] * 2)
    assert master.written_offset > segment
    found, _ = compare(slave, master)
    assert found == parted


def test_segments_that_the_master_has_no_more_are_not_asked_for() -> None:
    slave, master = store_of([1000] * 60), store_of([1000] * 60)
    parted = slave.written_offset
    grow(slave, [500] * 9, "mine")
    grow(master, [500] * 7, "other")
    master.log.drop_head(2 * master.log.segment_size)
    assert compare(slave, master)[0] == parted


@pytest.mark.parametrize("other", [[], [100], [100] * 400])
def test_logs_with_nothing_in_common_are_not_cut(other: list[int]) -> None:
    slave, master = store_of([100] * 300), store_of(other, "other")
    with pytest.raises(DivergedError, match="no record in common"):
        compare(slave, master)


def test_question_that_fails_decides_nothing() -> None:
    slave = store_of([100] * 10)

    async def ask(log_offset: int) -> Any:
        raise TimeoutError

    with pytest.raises(TimeoutError):
        asyncio.run(common_end(slave, LogFacts(0, 10_000_000, slave.log.segment_size), ask))
