"""`inspect` tells of a store what Java tells of it, without reading all of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fusee.errors import StoreError
from fusee.store.offline import inspect as inspection
from fusee.store.offline.files import Descriptors, OfflineStore, SegmentRow
from fusee.store.offline.inspect import Overview, inspect
from fusee.store.offline.queue_ends import entry_at, last_entry, queue_span
from tests.golden.store import lines, unpack
from tests.store.offline_stores import TIME_MS, HandmadeStore, contents, fill, flip, opened


def look(root: Path) -> Overview:
    with OfflineStore(root) as store:
        return inspect(store)


def test_clean_store_is_told_as_java_tells_it(tmp_path: Path) -> None:
    overview = look(unpack("clean", tmp_path))
    assert (overview.state, overview.holder_pid) == ("clean", None)
    assert overview.writer.startswith("Apache RocketMQ")
    log = overview.log
    stored = [line["storeTimestamp"] for line in lines("clean", "record")]
    assert (log.min_offset, log.end_offset) == (0, int(lines("clean", "broker")[0]["commitLogMaxOffset"]))
    assert (log.segments, log.segment_size, log.size) == (4, 262_144, 4 * 262_144)
    assert log.allocated < log.size
    assert (log.records, log.records_estimated, log.problem) == (337, False, "")
    assert (log.first_store_time_ms, log.last_store_time_ms) == (stored[0], stored[-1])


def test_limits_of_every_queue_are_those_of_java(tmp_path: Path) -> None:
    overview = look(unpack("clean", tmp_path))
    found = {(view.topic, view.queue_id): (view.min_offset, view.max_offset) for view in overview.queues}
    expected = {
        (line["topic"], line["queueId"]): (line["minOffset"], line["maxOffset"])
        for line in lines("clean", "queue")
        if line["maxOffset"]
    }
    assert {key: value for key, value in found.items() if value[1]} == expected
    assert {view.kind for view in overview.queues if view.topic == "StoreBcq"} == {"batch"}


def test_lag_of_groups_comes_from_committed_offsets(tmp_path: Path) -> None:
    root = unpack("clean", tmp_path)
    overview = look(root)
    lags = {view.queue_id: (view.committed_offset, view.lag) for view in overview.groups if view.group == "CG_store"}
    assert lags == {0: (10, 36), 1: (11, 35), 2: (12, 34), 3: (13, 33)}
    topic = next(view for view in overview.topics if view.topic == "StoreNormal")
    assert (topic.queues, topic.messages, topic.groups, topic.lag_max) == (4, 184, 1, 138)
    (root / "config/consumerOffset.json").write_text('{"offsetTable":{"Gone@g":{0:5}}}')
    gone = look(root).groups[0]
    assert (gone.max_offset, gone.lag) == (None, None)


def test_index_checkpoint_configuration_and_timer_are_told(tmp_path: Path) -> None:
    overview = look(unpack("clean", tmp_path))
    assert [(view.slots, view.capacity, view.entries) for view in overview.index] == [
        (100, 400, 399),
        (100, 400, 399),
        (100, 400, 397),
    ]
    assert overview.index[0].end_log_offset == overview.index[1].begin_log_offset == 238_203
    assert overview.checkpoint is not None
    assert overview.checkpoint.log_time_ms == 1_794_821_415_176
    assert overview.checkpoint.queues_time_ms == 0
    counts = {view.name: view.count for view in overview.config}
    assert counts["topics.json"] == 29
    assert counts["subscriptionGroup.json"] == 12
    assert overview.timer is not None
    assert (overview.timer.slots, overview.timer.slots_used, overview.timer.log_units) == (1_209_600, 8, 17)
    assert overview.transactions is None
    assert overview.allocated < overview.size


def test_killed_store_is_unclean_and_its_end_is_found(tmp_path: Path) -> None:
    overview = look(unpack("killed", tmp_path))
    assert overview.state == "unclean"
    assert overview.log.end_offset == int(lines("killed", "broker")[0]["commitLogMaxOffset"])
    assert overview.log.records == 1295


def test_large_log_is_estimated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = fill(HandmadeStore(tmp_path), 500)
    monkeypatch.setattr(inspection, "COUNTED_MAX", 1000)
    log = look(made.write()).log
    assert log.records_estimated
    assert 450 < log.records < 550


def test_end_of_the_log_is_found_without_queues(tmp_path: Path) -> None:
    made = HandmadeStore(tmp_path, log_size=4096)
    for number in range(100):
        made.put(queue_offset=number, queued=False)
    log = look(made.write()).log
    assert (log.end_offset, log.records) == (len(made.log), 100)
    assert log.last_store_time_ms == TIME_MS + 100


def test_damage_on_the_way_is_mentioned(tmp_path: Path) -> None:
    made = fill(HandmadeStore(tmp_path), 20)
    root = made.write()
    flip(root / "commitlog" / f"{0:020d}", made.places[10][0] + 4)
    assert f"no record at log offset {made.places[10][0]}" in look(root).log.problem


def test_min_offset_of_a_queue_passes_over_blanks_and_expired_entries(tmp_path: Path) -> None:
    made = HandmadeStore(tmp_path)
    made.base = made.log_size
    for number in (0, 1):
        made.entry("orders", 0, number, 0, 0x7FFFFFFF)
    for number in range(2, 12):
        made.entry("orders", 0, number, number * 100, 100)
    for number in range(12, 25):
        made.put(queue_offset=number)
    with opened(made.write()) as store:
        row = store.queue("orders", 0)
        span = queue_span(row, store.log.min_offset)
        assert (span.min_offset, span.max_offset) == (12, 25)
        assert span.last_log_offset == made.places[-1][0]
        last = last_entry(row)
        assert last is not None
        assert last.log_offset == made.places[-1][0]
        assert entry_at(row, 1000) is None
        assert queue_span(store.queue("none", 0), 0) == (0, 0, -1)


def test_empty_store_and_missing_parts_are_told(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    overview = look(tmp_path)
    assert (overview.log.segments, overview.log.records, overview.log.end_offset) == (0, 0, 0)
    assert (overview.checkpoint, overview.timer, overview.transactions) == (None, None, None)
    assert overview.writer == "nobody yet"


def test_separate_commit_log_is_found_where_it_is(tmp_path: Path) -> None:
    root = fill(HandmadeStore(tmp_path / "store"), 5).write()
    (root / "commitlog").rename(tmp_path / "elsewhere")
    with OfflineStore(root, tmp_path / "elsewhere") as store:
        overview = inspect(store)
        assert store.relative(store.log.segments[0].path).startswith(str(tmp_path))
    assert overview.log.records == 5


@pytest.mark.parametrize("name", ["", "commitlog", "nowhere"])
def test_path_that_is_no_store_is_refused_with_a_hint(tmp_path: Path, name: str) -> None:
    root = fill(HandmadeStore(tmp_path / "store"), 1).write()
    path = {"": tmp_path, "commitlog": root / "commitlog", "nowhere": tmp_path / "nowhere"}[name]
    with pytest.raises(StoreError) as caught:
        OfflineStore(path)
    assert str(path) in str(caught.value)
    assert (f"did you mean {root}" in str(caught.value)) == (name == "commitlog")


def test_inspect_touches_nothing(tmp_path: Path) -> None:
    root = unpack("clean", tmp_path)
    before = contents(root)
    look(root)
    assert contents(root) == before


def test_backup_stands_in_for_configuration_that_is_broken(tmp_path: Path) -> None:
    root = unpack("clean", tmp_path)
    good = (root / "config/consumerOffset.json.bak").read_text()
    (root / "config/consumerOffset.json").write_text("{oops")
    overview = look(root)
    assert {view.group for view in overview.groups} >= {"CG_store"}
    assert next(view for view in overview.config if view.name == "consumerOffset.json").problem
    assert "offsetTable" in good


def test_descriptors_are_bounded(tmp_path: Path) -> None:
    paths = [tmp_path / str(number) for number in range(20)]
    for path in paths:
        path.write_bytes(path.name.encode())
    descriptors = Descriptors(count_max=3)
    for _ in range(2):
        for path in paths:
            assert descriptors.read(path, 0, 10) == path.name.encode()
            assert len(descriptors._open) <= 3
    descriptors.close()
    assert not descriptors._open


def test_row_reads_over_borders_and_stops_at_gaps(tmp_path: Path) -> None:
    for base in (0, 10, 30):
        (tmp_path / f"{base:020d}").write_bytes(bytes([base] * 10))
    descriptors = Descriptors()
    row = SegmentRow(tmp_path, descriptors)
    assert row.read(5, 10) == bytes([0] * 5 + [10] * 5)
    assert row.read(15, 10) == bytes([10] * 5)
    assert row.read_past_gaps(15, 20) == bytes([10] * 5 + [0] * 10 + [30] * 5)
    assert row.read_past_gaps(35, 20) == bytes([30] * 5)
    assert row.locate(25) is None
    (tmp_path / f"{0:020d}").unlink()
    assert SegmentRow(tmp_path, Descriptors()).min_offset == 10
    descriptors.close()
    assert row.read(5, 10) == b""  # removed after the row was listed
    descriptors.close()


def test_files_of_configuration_without_a_table_count_nothing(tmp_path: Path) -> None:
    root = unpack("clean", tmp_path)
    (root / "config/own.json").write_text(json.dumps({"a": 1}))
    view = next(view for view in look(root).config if view.name == "own.json")
    assert (view.count, view.problem) == (None, "")
