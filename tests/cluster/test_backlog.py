"""What lies in a stretch of a log."""

from __future__ import annotations

from pathlib import Path

import pytest

from fusee.cluster import backlog as module
from fusee.cluster.backlog import Backlog, backlog, log_end_of, store_time_after
from tests.store.offline_stores import LOG_SIZE, TIME_MS, HandmadeStore


@pytest.fixture
def store(tmp_path: Path) -> HandmadeStore:
    """Five hundred messages in several files."""
    made = HandmadeStore(tmp_path)
    for number in range(500):
        made.put(queue_offset=number)
    made.write()
    assert len(made.log) > 2 * LOG_SIZE
    return made


def test_whole_log_is_counted(store: HandmadeStore) -> None:
    end = store.places[-1][0] + store.places[-1][1]
    assert log_end_of(store.root) == end
    assert backlog(store.root, 0, end) == Backlog(messages=500)


def test_stretch_from_a_record_to_a_record_is_counted(store: HandmadeStore) -> None:
    assert backlog(store.root, store.places[10][0], store.places[450][0]) == Backlog(messages=440)


def test_record_that_is_cut_counts_because_nobody_else_has_it_whole(store: HandmadeStore) -> None:
    end = store.places[-1][0] + store.places[-1][1]
    assert backlog(store.root, store.places[400][0] + 5, end) == Backlog(messages=100)


def test_empty_stretch_has_nothing(store: HandmadeStore) -> None:
    assert backlog(store.root, 500, 500) == Backlog(messages=0)
    assert backlog(store.root, 500, 400) == Backlog(messages=0)


def test_long_stretch_is_estimated_from_its_beginning(store: HandmadeStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "COUNTED_MAX", LOG_SIZE // 2)
    found = backlog(store.root, 0, store.places[-1][0])
    assert found is not None
    assert found.is_estimated
    assert 450 <= found.messages <= 550


def test_age_is_that_of_the_first_whole_message(store: HandmadeStore) -> None:
    assert store_time_after(store.root, 0) == TIME_MS + 1
    assert store_time_after(store.root, store.places[7][0]) == TIME_MS + 8
    assert store_time_after(store.root, store.places[7][0] + 1) == TIME_MS + 9
    assert store_time_after(store.root, store.places[-1][0] + 1) is None


def test_what_is_no_store_is_not_known(tmp_path: Path) -> None:
    assert log_end_of(tmp_path / "none") is None
    assert backlog(tmp_path / "none", 0, 10) is None
    assert store_time_after(tmp_path / "none", 0) is None
