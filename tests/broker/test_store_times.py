"""Store times of messages by their queue offset."""

from __future__ import annotations

from pathlib import Path

from fusee.broker.store_times import earliest_store_time, store_time_of
from tests.broker.admin_desk import AdminDesk


def test_store_time_of_each_message_and_of_none(tmp_path: Path) -> None:
    desk = AdminDesk(tmp_path)
    start_ms = desk.clock.time_ms()
    for _ in range(3):
        desk.put("T", 2)
        desk.clock.advance(1)
    desk.make_visible()
    store = desk.store
    assert [store_time_of(store, "T", 2, number) - start_ms for number in range(3)] == [0, 1000, 2000]
    assert [store_time_of(store, "T", 2, number) for number in (-1, 3)] == [-1, -1]
    assert store_time_of(store, "T", 0, 0) == -1
    assert earliest_store_time(store, "T", 2) == start_ms
    assert earliest_store_time(store, "nowhere", 0) == -1
    desk.close()


def test_earliest_store_time_follows_the_log(tmp_path: Path) -> None:
    desk = AdminDesk(tmp_path)
    for number in range(12):
        desk.put("T", body=bytes(3000))
        desk.clock.advance(1)
        if number == 9:
            later_ms = desk.clock.time_ms()
    desk.expire_log()
    assert earliest_store_time(desk.store, "T", 0) >= later_ms
    assert store_time_of(desk.store, "T", 0, 0) == -1
    desk.close()
