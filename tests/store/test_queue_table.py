"""All queues of a store: found, fed, cut and removed."""

from __future__ import annotations

from pathlib import Path

import pytest

from fusee.errors import StoreCorruptError, StoreError, StoreFullError
from fusee.store.batch_consume_queue import BatchConsumeQueue
from fusee.store.config import StoreConfig
from fusee.store.consume_queue import Boundary, ConsumeQueue
from fusee.store.filesystem import OsFileSystem
from fusee.store.layout import StorePaths
from fusee.store.queue_table import QueueTable
from fusee.store.simulated_disk import Outcome, SimulatedDisk
from tests.golden import store as golden
from tests.store.queue_records import consecutive, dispatched, records_of

ROOT = Path("/store")
CONFIG = StoreConfig(mapped_file_size_consume_queue=160, mapper_file_size_batch_consume_queue=230, open_files_max=4)


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def table_on(disk: SimulatedDisk) -> QueueTable:
    table = QueueTable(StorePaths(ROOT), CONFIG, disk)
    table.open()
    return table


def places(queue: ConsumeQueue | BatchConsumeQueue) -> list[list[int]]:
    """[queue offset, log offset, size] of every entry."""
    found: list[list[int]] = []
    queue_offset = queue.min_offset
    while queue_offset < queue.next_offset:
        for base, log_offset, size, _, count in queue.units(queue_offset, 1000):
            found.append([base, log_offset, size])
            queue_offset = base + count
    return found


def limits(table: QueueTable) -> dict[tuple[str, int], tuple[int, int]]:
    return {(queue.topic, queue.queue_id): (queue.min_offset, queue.next_offset) for queue in table}


# What the reference wrote


@pytest.mark.parametrize("verify", [False, True])
def test_golden_clean_store_has_every_queue_as_the_reference_serves_it(tmp_path: Path, verify: bool) -> None:
    root = golden.unpack("clean", tmp_path)
    table = QueueTable(StorePaths(root), golden.CONFIG, OsFileSystem())
    table.open()
    covered = table.recover(verify=verify)
    table.drop_before(0)
    expected = golden.lines("clean", "queue")
    assert len(table) == len(expected) == 28
    for line in expected:
        queue = table.get(line["topic"], line["queueId"])
        assert queue is not None
        assert (queue.min_offset, queue.next_offset) == (line["minOffset"], line["maxOffset"])
        assert places(queue) == line["messages"]
    assert covered == 884_931
    assert isinstance(table.get("StoreBcq", 0), BatchConsumeQueue)
    table.close()


def test_golden_killed_store_recovers_to_what_the_reference_serves(tmp_path: Path) -> None:
    root = golden.unpack("killed", tmp_path)
    table = QueueTable(StorePaths(root), golden.CONFIG, OsFileSystem())
    table.open()
    covered = table.recover(verify=True)
    records = records_of(root)
    assert 0 < covered <= records[-1].log_offset + records[-1].size == 1_165_666
    table.accept(records)
    for line in golden.lines("killed", "queue"):
        queue = table.get(line["topic"], line["queueId"])
        assert queue is not None
        assert (queue.min_offset, queue.next_offset) == (line["minOffset"], line["maxOffset"])
        assert places(queue) == line["messages"]
    table.close()


@pytest.mark.parametrize("variant", ["properties_zeroed", "torn_from_mid_body", "body_byte_flipped"])
def test_golden_damaged_store_is_cut_to_what_the_reference_serves(tmp_path: Path, variant: str) -> None:
    root = golden.unpack("killed", tmp_path)
    table = QueueTable(StorePaths(root), golden.CONFIG, OsFileSystem())
    table.open()
    table.recover(verify=True)
    table.accept(records_of(root))
    lines = [line for line in golden.lines("damaged") if line["variant"] == variant]
    (log_end,) = [line["commitLogMaxOffset"] for line in lines if line["kind"] == "broker"]
    table.truncate(log_end)
    for line in lines:
        if line["kind"] == "queue":
            queue = table.get(line["topic"], line["queueId"])
            assert queue is not None
            assert (queue.min_offset, queue.next_offset) == (line["minOffset"], line["maxOffset"])
            assert places(queue)[-1] == line["last"]
    table.close()


@pytest.mark.parametrize("name", ["clean", "killed"])
def test_golden_queues_built_anew_are_the_bytes_of_the_reference(tmp_path: Path, name: str) -> None:
    root = golden.unpack(name, tmp_path)
    if name == "killed":
        # The broker died before it had told the last records to the queues.
        recovered = QueueTable(StorePaths(root), golden.CONFIG, OsFileSystem())
        recovered.open()
        recovered.recover()
        recovered.accept(records_of(root))
        recovered.close()
    paths = StorePaths(tmp_path / "anew")
    table = QueueTable(paths, golden.CONFIG, OsFileSystem())
    records = records_of(root)
    for start in range(0, len(records), 50):
        table.accept(records[start : start + 50])
    made = {path.relative_to(paths.root) for path in paths.root.rglob("0" * 10 + "*")}
    theirs = {path.relative_to(root) for kind in ("consumequeue", "batchconsumequeue") for path in files(root / kind)}
    assert made == theirs
    for path in made:
        # The tags codes of delayed messages are delivery times, which only their broker can tell.
        if "SCHEDULE_TOPIC_XXXX" not in path.parts:
            assert (paths.root / path).read_bytes() == (root / path).read_bytes(), path
    table.close()


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


# Dispatch


def test_accept_groups_by_queue_and_writes_once_for_each() -> None:
    disk = SimulatedDisk()
    table = table_on(disk)
    batch = [dispatched(number * 100, number // 4, queue_id=number % 4) for number in range(24)]
    table.accept(batch)
    assert disk.counts["write"] == 4
    assert limits(table) == {("orders", queue_id): (0, 6) for queue_id in range(4)}
    table.accept(batch)
    assert disk.counts["write"] == 4
    assert table.recover(verify=False) == 2400


@pytest.mark.parametrize(("kind", "is_visible"), [(0x0, True), (0x4, False), (0x8, True), (0xC, False)])
def test_accept_makes_entries_only_for_what_consumers_may_see(kind: int, is_visible: bool) -> None:
    table = table_on(SimulatedDisk())
    table.accept([dispatched(0, 0, sys_flag=kind | 0x3)])
    assert table.next_offset("orders", 0) == int(is_visible)
    assert len(table) == int(is_visible)


def test_accept_of_a_batch_makes_a_queue_of_batches() -> None:
    disk = SimulatedDisk()
    table = table_on(disk)
    table.accept(
        [dispatched(0, 0, batch_count=3), dispatched(100, 3, batch_count=2), dispatched(200, 0, topic="plain")]
    )
    table.accept([dispatched(300, 0, queue_id=1)])
    for seen in (table, table_on(disk)):
        assert isinstance(seen.get("orders", 0), BatchConsumeQueue)
        assert isinstance(seen.get("orders", 1), BatchConsumeQueue)
        assert isinstance(seen.get("plain", 0), ConsumeQueue)
        assert limits(seen) == {("orders", 0): (0, 5), ("orders", 1): (0, 1), ("plain", 0): (0, 1)}


@pytest.mark.parametrize("topic", ["", ".", "..", "a/b", "a\0b"])
def test_accept_of_a_topic_that_is_no_name_reports_damage(topic: str) -> None:
    table = table_on(SimulatedDisk())
    with pytest.raises(StoreCorruptError, match="log offset 700"):
        table.accept([dispatched(700, 0, topic=topic)])
    with pytest.raises(StoreCorruptError, match="queue -1"):
        table.accept([dispatched(700, 0, queue_id=-1)])


def test_accept_when_disk_is_full_can_be_done_again() -> None:
    disk = SimulatedDisk()
    table = table_on(disk)
    batch = [dispatched(number * 100, number // 8, queue_id=number % 8) for number in range(64)]
    disk.capacity = 4096 * 3
    with pytest.raises(StoreFullError):
        table.accept(batch)
    disk.capacity = 1 << 30
    table.accept(batch)
    assert limits(table) == {("orders", queue_id): (0, 8) for queue_id in range(8)}
    assert limits(table_on(disk)) == limits(table)


def test_accept_with_more_queues_than_open_files_forgets_nothing(tmp_path: Path) -> None:
    config = StoreConfig(mapped_file_size_consume_queue=200, open_files_max=8)
    before = descriptors()
    table = QueueTable(StorePaths(tmp_path), config, OsFileSystem())
    table.open()
    for turn in range(3):
        table.accept([dispatched((turn * 100 + number) * 100, turn, queue_id=number) for number in range(100)])
        assert descriptors() - before <= 8
    collected = table.collect_dirty()
    assert len(collected) == 100
    for file in collected:
        file.sync()
    assert table.collect_dirty() == []
    table.close()
    again = QueueTable(StorePaths(tmp_path), config, OsFileSystem())
    again.open()
    assert limits(again) == {("orders", number): (0, 3) for number in range(100)}
    again.close()
    assert descriptors() == before


def test_collect_dirty_then_power_failure_keeps_every_queue() -> None:
    disk = SimulatedDisk()
    table = table_on(disk)
    table.accept([dispatched(number * 100, number // 20, queue_id=number % 20) for number in range(200)])
    for file in table.collect_dirty():
        file.sync()
    table.accept([dispatched(20_000 + number * 100, 10 + number // 20, queue_id=number % 20) for number in range(200)])
    after = table_on(disk.crash(outcome=Outcome.NOTHING))
    assert after.recover(verify=True) == 20_000
    assert limits(after) == {("orders", queue_id): (0, 10) for queue_id in range(20)}


def test_collect_dirty_with_least_pages_leaves_little_changes() -> None:
    disk = SimulatedDisk()
    table = QueueTable(StorePaths(ROOT), StoreConfig(mapped_file_size_consume_queue=20_000), disk)
    table.accept(consecutive(0, 500))
    table.accept([dispatched(60_000, 0, queue_id=1)])
    assert [file.path.parent.name for file in table.collect_dirty(2)] == ["0"]
    assert [file.path.parent.name for file in table.collect_dirty()] == ["1"]


# Opening


def test_open_passes_over_what_is_no_queue() -> None:
    disk = SimulatedDisk()
    table_on(disk).accept([dispatched(0, 0, topic="%RETRY%group"), dispatched(100, 0, queue_id=17)])
    queues = ROOT / "consumequeue"
    disk.open(queues / "notes.txt", size=1).close()
    disk.make_folder(queues / "orders" / "lost+found")
    disk.open(queues / "orders" / "5", size=1).close()
    assert limits(table_on(disk)) == {("%RETRY%group", 0): (0, 1), ("orders", 17): (0, 1)}


def test_open_when_queue_is_of_both_kinds_names_it() -> None:
    disk = SimulatedDisk()
    table_on(disk).accept([dispatched(0, 0)])
    disk.make_folder(ROOT / "batchconsumequeue" / "orders" / "0")
    with pytest.raises(StoreError, match="/store/batchconsumequeue/orders/0.*queue.type"):
        table_on(disk)


def test_recover_tells_how_far_it_is() -> None:
    disk = SimulatedDisk()
    table_on(disk).accept([dispatched(number * 100, 0, queue_id=number) for number in range(1030)])
    table = table_on(disk)
    told: list[tuple[int, int]] = []
    table.recover(progress=lambda done, total: told.append((done, total)))
    assert told == [(1024, 1030)]


def test_recover_of_nothing_covers_nothing() -> None:
    assert table_on(SimulatedDisk()).recover() == 0


# Truncation, retention, removal


def filled(disk: SimulatedDisk) -> QueueTable:
    """Four topics in turn, the first two with 30 messages each, at log offsets 0, 100, 200 ..."""
    table = table_on(disk)
    topics = ["one", "two", "rmq_sys_three", "%LMQ%four"]
    table.accept([dispatched(number * 100, number // 4, topic=topics[number % 4]) for number in range(120)])
    return table


def test_truncate_cuts_every_queue_durably() -> None:
    disk = SimulatedDisk()
    table = filled(disk)
    for file in table.collect_dirty():
        file.sync()
    table.truncate(4_200)
    expected = {("one", 0): (0, 11), ("two", 0): (0, 11), ("rmq_sys_three", 0): (0, 10), ("%LMQ%four", 0): (0, 10)}
    assert limits(table) == expected
    assert limits(table_on(disk.crash(outcome=Outcome.NOTHING))) == expected
    assert table.next_offset("one", 0) == 11


def test_drop_before_raises_min_offsets_and_removes_files() -> None:
    disk = SimulatedDisk()
    table = filled(disk)
    table.drop_before(8_000)
    assert limits(table)["one", 0] == (20, 30)
    assert table.min_offset("one", 0) == 20
    assert disk.names(ROOT / "consumequeue" / "one" / "0") == ["00000000000000000320", "00000000000000000480"]
    table.drop_before(20_000)
    assert limits(table)["two", 0] == (30, 30)
    assert disk.names(ROOT / "consumequeue" / "two" / "0") == ["00000000000000000480"]


def test_delete_topic_leaves_no_trace_and_begins_at_zero_again() -> None:
    disk = SimulatedDisk()
    table = filled(disk)
    assert table.delete_topic("one")
    assert not table.delete_topic("one")
    assert not disk.exists(ROOT / "consumequeue" / "one")
    assert table.topics() == ["%LMQ%four", "rmq_sys_three", "two"]
    assert table.next_offset("one", 0) == 0
    table.accept([dispatched(50_000, 0, topic="one")])
    assert limits(table_on(disk))["one", 0] == (0, 1)


def test_delete_topic_while_its_files_wait_for_a_sync_does_no_harm() -> None:
    table = filled(SimulatedDisk())
    collected = table.collect_dirty()
    table.delete_topic("one")
    for file in collected:
        file.sync()


def test_dispatch_over_a_topic_deleted_and_made_again_keeps_the_new_messages() -> None:
    """Recovery may tell of both lives of a topic: the later one counts."""
    table = table_on(SimulatedDisk())
    first_life = consecutive(0, 20)
    second_life = consecutive(0, 5, start=2_000)
    table.accept([*first_life, *second_life])
    queue = table.get("orders", 0)
    assert queue is not None
    assert places(queue) == [[number, 2_000 + number * 100, 100] for number in range(5)]


def test_remove_unused_keeps_the_systems_own_topics() -> None:
    table = filled(SimulatedDisk())
    assert table.remove_unused({"two", "other"}) == ["one"]
    assert table.topics() == ["%LMQ%four", "rmq_sys_three", "two"]


def test_remove_expired_takes_queues_without_a_message_in_the_log() -> None:
    table = filled(SimulatedDisk())
    table.accept([dispatched(20_000, 0, topic="late")])
    assert table.remove_expired(15_000) == [("one", 0), ("two", 0), ("%LMQ%four", 0)]
    assert table.topics() == ["late", "rmq_sys_three"]


def test_offset_by_time_of_a_queue_that_is_not_there_is_zero() -> None:
    table = filled(SimulatedDisk())

    def store_time_of(log_offset: int) -> int:
        return log_offset

    assert table.offset_by_time("none", 0, 50, Boundary.LOWER, store_time_of) == 0
    assert table.offset_by_time("one", 0, 450, Boundary.LOWER, store_time_of) == 2
    assert table.offset_by_time("one", 0, 450, Boundary.UPPER, store_time_of) == 1
    assert table.queue_ids("one") == [0]
    assert table.min_offset("none", 0) == 0
