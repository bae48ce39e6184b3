"""Saving tables beside the loop: one at a time, nothing forgotten, and tried again when the disk refuses."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import pytest

from fusee.broker.table_saves import TableSaves
from fusee.clock import ManualClock
from fusee.errors import StoreFullError
from tests.broker.world import HeldWorker


class Table:
    """A table of one number."""

    def __init__(self) -> None:
        self.value = self.saved = 0
        self.saves = 0
        self.is_full = False
        self._taken: int | None = None

    @property
    def is_dirty(self) -> bool:
        return self.value != (self.saved if self._taken is None else self._taken)

    def begin_save(self) -> Callable[[], None] | None:
        if self._taken is not None or not self.is_dirty:
            return None
        self._taken = self.value

        def job() -> None:
            taken, self._taken = self._taken, None
            self.saves += 1
            if self.is_full:
                raise StoreFullError("no space left for the table")
            assert taken is not None
            self.saved = taken

        return job

    def save(self) -> None:
        job = self.begin_save()
        if job is not None:
            job()


class Desk:
    def __init__(self, *, saves_at_once: bool = True) -> None:
        self.clock = ManualClock()
        self.table = Table()
        self.worker = HeldWorker()
        self.worker.is_held = True
        self.saves = TableSaves(
            self.table, name="numbers", worker=self.worker, timers=self.clock, saves_at_once=saves_at_once
        )

    def change(self, value: int) -> None:
        self.table.value = value
        self.saves.begin()


def test_change_made_during_a_save_goes_into_the_next_one() -> None:
    desk = Desk()
    for value in (1, 2, 3):
        desk.change(value)
    assert len(desk.worker.waiting) == 1
    desk.worker.release()
    assert (desk.table.saved, len(desk.worker.waiting)) == (1, 1)
    desk.worker.release()
    assert (desk.table.saved, len(desk.worker.waiting), desk.table.saves) == (3, 0, 2)
    desk.saves.begin()
    assert desk.worker.waiting == []


def test_table_that_is_saved_by_interval_does_not_chase_its_changes() -> None:
    desk = Desk(saves_at_once=False)
    desk.change(1)
    desk.change(2)
    desk.worker.release()
    assert (desk.table.saved, desk.worker.waiting) == (1, [])
    desk.saves.begin()
    desk.worker.release()
    assert desk.table.saved == 2


@pytest.mark.parametrize("saves_at_once", [False, True])
def test_settled_waits_until_what_has_changed_is_saved(saves_at_once: bool) -> None:
    async def scene() -> None:
        desk = Desk(saves_at_once=saves_at_once)
        await asyncio.wait_for(desk.saves.settled(), 1)
        desk.change(1)
        desk.change(2)
        waiting = [asyncio.ensure_future(desk.saves.settled()) for _ in range(3)]
        await asyncio.sleep(0)
        desk.worker.release()
        assert desk.table.saved == 1
        for _ in range(5):
            await asyncio.sleep(0)
        assert not any(each.done() for each in waiting)
        desk.worker.release()
        await asyncio.gather(*waiting)
        assert desk.table.saved == 2

    asyncio.run(scene())


def test_save_that_fails_is_reported_and_tried_again_until_it_works(caplog: pytest.LogCaptureFixture) -> None:
    async def scene() -> None:
        desk = Desk()
        desk.table.is_full = True
        desk.change(1)
        waiting = asyncio.ensure_future(desk.saves.settled())
        await asyncio.sleep(0)
        desk.worker.release()
        await asyncio.sleep(0)
        desk.worker.release()
        await waiting
        assert desk.table.saved == 0
        assert "numbers could not be saved" in caplog.text
        assert "no space left for the table" in caplog.text
        desk.table.is_full = False
        desk.clock.advance(5.1)
        desk.worker.release()
        assert desk.table.saved == 1
        saves = desk.table.saves
        desk.clock.advance(60)
        assert desk.table.saves == saves

    with caplog.at_level(logging.ERROR):
        asyncio.run(scene())


def test_many_failures_lead_to_one_try_every_few_seconds() -> None:
    desk = Desk()
    desk.worker.is_held = False
    desk.table.is_full = True
    for value in range(1, 50):
        desk.change(value)
    before = desk.table.saves
    desk.clock.advance(50.5)
    assert desk.table.saves - before <= 10
    desk.table.is_full = False
    desk.clock.advance(5.1)
    assert desk.table.saved == 49


def test_stopped_saves_begin_nothing_more() -> None:
    desk = Desk()
    desk.change(1)
    desk.table.value = 2
    desk.saves.stop()
    desk.worker.release()
    assert desk.table.saved == 1
    desk.saves.begin()
    desk.clock.advance(60)
    assert desk.worker.waiting == []
    desk.table.save()
    assert desk.table.saved == 2
