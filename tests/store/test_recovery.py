"""Opening a store after a clean stop, after a crash, and after damage that no crash explains."""

from __future__ import annotations

from pathlib import Path

import pytest

from fusee.clock import ManualClock
from fusee.errors import StoreCorruptError, StoreError
from fusee.message.record import iterate_records
from fusee.store.engine import MessageStore
from fusee.store.new_record import NewRecord
from fusee.store.results import GetStatus
from fusee.store.simulated_disk import Outcome, SimulatedDisk
from tests.golden import store as golden
from tests.store.test_store_contract import CONFIG, bodies, record, settle

ROOT = Path("/store")


def opened(disk: SimulatedDisk, *, repair: bool = False) -> MessageStore:
    store = MessageStore(ROOT, CONFIG, files=disk, clock=ManualClock())
    store.open(repair=repair)
    return store


def filled(disk: SimulatedDisk, count: int = 30, size: int = 900) -> MessageStore:
    """A store with messages over several segments, all flushed."""
    clock = ManualClock()
    store = MessageStore(ROOT, CONFIG, files=disk, clock=clock)
    store.open()
    for number in range(count):
        store.put(record(queue_id=number % 3, body=b"%03d" % number + b"x" * size, KEYS=f"k{number}"))
        clock.advance(0.01)
    settle(store)
    store.flush()
    store.flush_derived()
    return store


def everything(store: MessageStore) -> list[bytes]:
    found = []
    for queue_id in range(3):
        queue_offset = store.min_offset("T", queue_id)
        while (result := store.get("T", queue_id, queue_offset, 32)).status is GetStatus.FOUND:
            found += [body[:3] for body in bodies(result)]
            queue_offset = result.next_offset
    return sorted(found)


def flip(disk: SimulatedDisk, log_offset: int, value: bytes = b"\xff") -> None:
    """Damage a byte of the commit log behind the store's back."""
    base = log_offset - log_offset % CONFIG.mapped_file_size_commit_log
    disk.open(ROOT / "commitlog" / f"{base:020d}").write(value, log_offset - base)


def test_clean_stop_leaves_nothing_to_do() -> None:
    disk = SimulatedDisk()
    store = filled(disk)
    end = store.end_offset
    store.close()
    assert not disk.exists(ROOT / "abort")
    again = MessageStore(ROOT, CONFIG, files=disk, clock=ManualClock())
    report = again.open()
    assert (report.unclean, report.end_offset, report.cut_reason) == (False, end, "")
    assert report.dispatched <= 1  # the last record may be told again, to no effect
    assert len(everything(again)) == 30
    assert again.put(record(queue_id=0)).queue_offset == 10


def test_abort_file_is_there_while_the_store_is_open() -> None:
    disk = SimulatedDisk()
    store = opened(disk)
    assert disk.read_file(ROOT / "abort").isdigit()
    with pytest.raises(StoreError, match="held by another process|open already"):
        opened(disk)
    store.close()
    opened(disk).close()


@pytest.mark.parametrize("outcome", list(Outcome))
def test_crash_keeps_what_was_flushed(outcome: Outcome) -> None:
    disk = SimulatedDisk()
    store = filled(disk)
    for number in range(30, 40):
        store.put(record(queue_id=number % 3, body=b"%03d" % number))
    settle(store)
    again = opened(disk.crash(seed=5, outcome=outcome))
    found = everything(again)
    assert found[:30] == [b"%03d" % number for number in range(30)]
    assert found == [b"%03d" % number for number in range(len(found))]
    for number in range(len(found)):
        assert again.index.query("T", f"k{number}", 5, 0, 1 << 60).log_offsets if number < 30 else True


def test_torn_tail_is_cut_and_reported() -> None:
    disk = SimulatedDisk()
    store = filled(disk)
    last = store.put(record(queue_id=0, body=b"torn"))
    store.write()
    flip(disk, last.end_offset - 2)  # in the body's bytes or behind them: the record no longer holds
    flip(disk, last.log_offset + 90)
    crashed = disk.crash(outcome=Outcome.EVERYTHING)
    again = MessageStore(ROOT, CONFIG, files=crashed, clock=ManualClock())
    report = again.open()
    assert report.unclean
    assert report.end_offset == last.log_offset
    assert 0 < report.cut_bytes <= last.end_offset - last.log_offset
    assert f"(log offset {last.log_offset})" in report.cut_reason
    assert len(everything(again)) == 30
    assert again.put(record(queue_id=0)).log_offset == last.log_offset


def test_damage_before_synced_records_is_refused_with_file_and_position() -> None:
    disk = SimulatedDisk()
    filled(disk)
    flip(disk, 20 * 1000 + 300)
    crashed = disk.crash(outcome=Outcome.EVERYTHING)
    with pytest.raises(StoreCorruptError) as raised:
        opened(crashed)
    text = str(raised.value)
    assert "commitlog/" in text
    assert "Good records follow from log offset" in text
    # Refusing has changed nothing: a restored file opens.
    assert crashed.exists(ROOT / "abort")


def test_damage_after_a_clean_stop_is_refused_and_repaired_only_when_asked() -> None:
    disk = SimulatedDisk()
    store = filled(disk)
    end = store.end_offset
    store.close()
    flip(disk, end - 1500)
    with pytest.raises(StoreCorruptError):
        opened(disk)
    again = opened(disk, repair=True)
    assert again.end_offset < end
    assert 20 < len(everything(again)) < 30
    again.close()
    opened(disk).close()


def test_stale_records_behind_a_cut_do_not_come_back() -> None:
    disk = SimulatedDisk()
    store = filled(disk, count=6)
    second = [store.put(record(queue_id=0, body=b"old%d" % number)) for number in range(4)]
    settle(store)
    store.flush()
    store.truncate(second[0].log_offset)
    store.put(record(queue_id=0, body=b"new0"))
    settle(store)
    store.flush()
    again = opened(disk.crash(outcome=Outcome.NOTHING))
    assert again.end_offset == second[0].end_offset
    assert [body[:4] for body in bodies(again.get("T", 0, 2, 10))] == [b"new0"]


def test_queues_that_were_lost_are_made_again_from_the_log() -> None:
    disk = SimulatedDisk()
    store = filled(disk)
    before = everything(store)
    store.close()
    for queue_id in range(3):
        folder = ROOT / "consumequeue" / "T" / str(queue_id)
        for name in disk.names(folder):
            disk.remove(folder / name)
    again = opened(disk)
    assert everything(again) == before


def test_index_that_was_lost_is_made_again_from_the_log() -> None:
    disk = SimulatedDisk()
    store = filled(disk)
    store.close()
    for name in disk.names(ROOT / "index"):
        disk.remove(ROOT / "index" / name)
    again = opened(disk)
    for number in range(30):
        assert len(again.index.query("T", f"k{number}", 5, 0, 1 << 60).log_offsets) == 1


def test_progress_is_told_on_long_walks(tmp_path: Path) -> None:
    store = MessageStore(tmp_path, clock=ManualClock())
    store.open()
    for _ in range(9000):
        store.put(record(body=b""))
    store.close()
    (tmp_path / "abort").touch()
    seen: list[tuple[int, int]] = []
    again = MessageStore(tmp_path, clock=ManualClock())
    again.open(lambda done, total: seen.append((done, total)))
    assert len(seen) >= 2
    assert all(0 < done <= total for done, total in seen)
    again.close()


def limits(store: MessageStore, topic: str, queue_id: int) -> tuple[int, int]:
    return store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)


@pytest.mark.parametrize("name", ["clean", "killed"])
def test_store_of_the_reference_opens_with_everything_java_reports(name: str, tmp_path: Path) -> None:
    store = MessageStore(golden.unpack(name, tmp_path), golden.CONFIG)
    report = store.open()
    assert report.unclean == (name == "killed")
    (broker,) = golden.lines(name, "broker")
    assert store.end_offset == int(broker["commitLogMaxOffset"])
    for line in golden.lines(name, "queue"):
        topic, queue_id = line["topic"], line["queueId"]
        assert limits(store, topic, queue_id) == (line["minOffset"], line["maxOffset"]), line
        found = []
        queue_offset = line["minOffset"]
        while (result := store.get(topic, queue_id, queue_offset, 32)).status is GetStatus.FOUND:
            records = [message for piece in result.slices for message in iterate_records(piece)]
            found += [[m.queue_offset, m.log_offset, m.store_size] for m in records]
            queue_offset = result.next_offset
        assert found == line["messages"], line["topic"]
    for line in golden.lines(name, "index"):
        answer = store.index.query(line["topic"], line["key"], 64, 0, 1 << 62)
        # Java, after its crash, has indexed some records twice and answers them twice.
        assert list(answer.log_offsets) == sorted(set(line["commitLogOffsets"])), line
    store.close()


@pytest.mark.parametrize("variant", sorted({line["variant"] for line in golden.lines("damaged")}))
def test_damaged_store_of_the_reference_gives_the_limits_java_gives(variant: str, tmp_path: Path) -> None:
    root = golden.unpack("killed", tmp_path)
    said = [line for line in golden.lines("damaged") if line["variant"] == variant]
    (edit,) = [line for line in said if line["kind"] == "edit"]
    size = golden.CONFIG.mapped_file_size_commit_log
    base = edit["from"] - edit["from"] % size
    path = root / "commitlog" / f"{base:020d}"
    data = bytearray(path.read_bytes())
    for position in range(edit["from"] - base, edit["to"] - base):
        data[position] = data[position] ^ 0xFF if "flip" in variant else 0
    path.write_bytes(data)
    store = MessageStore(root, golden.CONFIG)
    store.open()
    (broker,) = [line for line in said if line["kind"] == "broker"]
    if variant == "properties_zeroed":
        # Java does not look at properties, and serves the torn record. We cut it.
        assert (broker["commitLogMaxOffset"], store.end_offset) == (edit["to"], edit["recordOffset"])
        assert limits(store, edit["topic"], edit["queueId"]) == (0, edit["queueOffset"])
        store.close()
        return
    assert store.end_offset == broker["commitLogMaxOffset"]
    for line in said:
        if line["kind"] == "queue":
            assert limits(store, line["topic"], line["queueId"]) == (line["minOffset"], line["maxOffset"])
    store.close()


def test_zero_bytes_that_belong_to_properties_are_no_tear() -> None:
    disk = SimulatedDisk()
    store = filled(disk)
    strange = NewRecord("T", 0, b"strange", b"k\x01" + b"\0" * 1500 + b"\x02")
    last = store.put(strange)
    settle(store)
    store.flush()
    again = opened(disk.crash(outcome=Outcome.NOTHING))
    assert again.end_offset == last.end_offset
    (found,) = iterate_records(again.record_at(last.log_offset) or b"")
    assert found.body == b"strange"
    assert b"\0" * 1500 in found.properties_bytes
