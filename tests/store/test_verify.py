"""`verify` finds nothing wrong with what RocketMQ and Fusee wrote, and every kind of damage where it was done."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from struct import Struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fusee.message.flags import SysFlag
from fusee.message.hashing import java_string_hash, tags_code
from fusee.store.config import StoreConfig
from fusee.store.engine import MessageStore
from fusee.store.new_record import NewRecord
from fusee.store.offline.columns import SliceHashes, Topics, columns_of
from fusee.store.offline.findings import Severity
from fusee.store.offline.index_files import open_index
from fusee.store.offline.verify import verify
from fusee.store.offline.walk import Chunk, Damage, LogEnd, find_record, walk
from tests.golden.store import lines, unpack
from tests.store.offline_stores import (
    TIME_MS,
    HandmadeStore,
    check,
    contents,
    errors,
    fill,
    flip,
    kinds,
    notes,
    only,
    opened,
    patch,
    record_of,
    records,
)

INT32 = Struct(">i")
INT64 = Struct(">q")
SMALL = StoreConfig(
    mapped_file_size_commit_log=65_536,
    mapped_file_size_consume_queue=400,
    max_hash_slot_num=100,
    max_index_num=400,
    max_message_size=16_384,
    transaction_segment_entries=64,
)


@pytest.fixture
def clean(tmp_path: Path) -> Path:
    return unpack("clean", tmp_path)


@pytest.fixture
def killed(tmp_path: Path) -> Path:
    return unpack("killed", tmp_path)


# What is whole


def test_clean_store_of_rocketmq_has_no_errors_and_the_numbers_that_java_gives(clean: Path) -> None:
    report = check(clean)
    assert errors(report) == []
    assert kinds(notes(report)) == {"unread"}
    assert report.state == "clean"
    assert report.records == len(lines("clean", "record")) == 337
    assert report.log_end_offset == int(lines("clean", "broker")[0]["commitLogMaxOffset"])
    assert report.queue_entries == 333
    assert report.batch_units == 4
    assert report.index_files == 3


def test_killed_store_has_notes_of_what_recovery_mends_and_no_errors(killed: Path) -> None:
    report = check(killed)
    assert errors(report) == []
    assert report.state == "unclean"
    assert report.log_end_offset == int(lines("killed", "broker")[0]["commitLogMaxOffset"])
    assert {"queue-entry-missing", "index-behind", "queue-file-empty"} <= kinds(notes(report))
    missing = [note for note in notes(report) if note.kind == "queue-entry-missing"]
    assert missing[0].file == "consumequeue/StoreNormal/0/00000000000000006400"
    assert missing[0].position == 0


def test_verify_touches_nothing(clean: Path) -> None:
    before = contents(clean)
    check(clean)
    assert contents(clean) == before


def make_store(root: Path, count: int = 200) -> MessageStore:
    store = MessageStore(root, SMALL)
    store.open()
    for number in range(count):
        topic = "RMQ_SYS_TRANS_HALF_TOPIC" if number % 5 == 0 else f"topic{number % 3}"
        properties = f"UNIQ_KEY\x01U{number}\x02KEYS\x01a{number} ü{number}\x02TAGS\x01t{number % 4}\x02PGROUP\x01g\x02"
        store.put(NewRecord(topic, 0 if number % 5 == 0 else number % 2, b"x" * number * 5, properties.encode()))
        if number % 20 == 0:
            store.write()
            store.dispatch()
    store.write()
    store.dispatch()
    return store


def test_store_written_here_is_clean_after_close(tmp_path: Path) -> None:
    make_store(tmp_path).close()
    report = check(tmp_path)
    assert report.findings == []
    assert (report.state, report.records, report.queue_entries) == ("clean", 200, 200)
    assert report.index_entries >= 600


def test_open_store_is_read_without_disturbing_its_lock(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    report = check(tmp_path)
    assert (report.state, report.errors, report.records) == ("open", 0, 200)
    assert [note.kind for note in notes(report)] == ["in-motion"]
    with opened(tmp_path) as offline:
        assert offline.holder() is not None  # still locked after we have looked
    store.put(NewRecord("topic0", 0, b"more"))
    store.close()
    assert check(tmp_path).findings == []


def test_image_of_a_running_store_has_only_notes(tmp_path: Path) -> None:
    store = make_store(tmp_path / "running")
    shutil.copytree(tmp_path / "running", tmp_path / "image")
    store.close()
    report = check(tmp_path / "image")
    assert (report.state, report.errors, report.records) == ("unclean", 0, 200)
    assert "index-behind" in kinds(notes(report))


def test_file_that_is_removed_meanwhile_is_a_note(tmp_path: Path) -> None:
    made = fill(HandmadeStore(tmp_path, log_size=4096), 100)
    root = made.write(unclean=True)
    with opened(root) as store:
        store.log.segments[0].path.unlink()
        report = verify(store)
    assert errors(report) == []
    assert only(notes(report), "log-removed").file == f"commitlog/{0:020d}"
    assert 0 < report.records < 100


def test_damaged_transaction_files_are_named(tmp_path: Path) -> None:
    make_store(tmp_path).close()
    flip(tmp_path / "transaction/states/00000000000000000000", 32 * 3 + 7)
    flip(tmp_path / "transaction/redo/00000000000000000000", 40 * 2 + 3)
    report = check(tmp_path)
    assert only(report.findings, "transaction-state").position == 32 * 3
    assert only(report.findings, "transaction-redo").position == 40 * 2


# Records


def test_flipped_body_byte_is_a_wrong_checksum_at_the_record(clean: Path) -> None:
    placed = record_of(clean, "StoreOrder", 3)
    flip(placed.path, placed.position + 90)
    error = only(errors(check(clean)), "record-checksum")
    assert error.file == f"commitlog/{placed.path.name}"
    assert error.position == placed.position
    assert error.log_offset == placed.log_offset


@pytest.mark.parametrize(
    ("at", "mask"), [(4, 0x01), (0, 0x40), (3, 0x01), (87, 0x01)], ids=["magic", "huge", "size", "body size"]
)
def test_broken_head_is_damage_and_the_walk_goes_on_behind_it(clean: Path, at: int, mask: int) -> None:
    placed = record_of(clean, "StoreNormal", 50)
    flip(placed.path, placed.position + at, mask)
    report = check(clean)
    error = only(errors(report), "log-damaged")
    assert (error.file, error.position) == (f"commitlog/{placed.path.name}", placed.position)
    assert report.records == 336
    assert {"queue-into-damage", "index-into-damage"} <= kinds(notes(report))


def test_record_that_says_it_belongs_elsewhere_is_told(clean: Path) -> None:
    placed = record_of(clean, "StoreUni")
    flip(placed.path, placed.position + 35)
    assert only(errors(check(clean)), "record-offset").position == placed.position


def test_wrong_queue_offset_in_a_record_is_told(clean: Path) -> None:
    placed = record_of(clean, "StoreOrder", 4)
    flip(placed.path, placed.position + 27, 0x01)
    assert {"queue-offset", "queue-entry-wrong"} & kinds(errors(check(clean)))


def test_zeroed_properties_are_told(clean: Path) -> None:
    placed = record_of(clean, "StoreNormal", 10)
    size = len(placed.message.properties_bytes)
    patch(placed.path, placed.position + placed.message.store_size - size, bytes(size))
    assert only(errors(check(clean)), "record-properties").position == placed.position


def test_store_time_that_is_none_is_told(clean: Path) -> None:
    placed = record_of(clean, "StoreNormal", 10)
    patch(placed.path, placed.position + 56, INT64.pack(0))
    assert only(errors(check(clean)), "record-time").position == placed.position


def test_clock_that_was_set_back_is_a_note(tmp_path: Path) -> None:
    made = HandmadeStore(tmp_path)
    made.put(queue_offset=0, time_ms=TIME_MS + 5000)
    back = made.put(queue_offset=1, time_ms=TIME_MS)
    report = check(made.write())
    assert errors(report) == []
    note = only(notes(report), "log-clock")
    assert note.log_offset == back
    assert "5000 ms" in note.text


def test_properties_that_are_no_text_are_a_note(tmp_path: Path) -> None:
    made = HandmadeStore(tmp_path)
    made.put(properties=b"name\x01\xff\xfe\x02")
    report = check(made.write())
    assert errors(report) == []
    assert "record-text" in kinds(notes(report))


def test_properties_without_last_separator_or_value_are_fine(tmp_path: Path) -> None:
    made = HandmadeStore(tmp_path)
    made.put(queue_offset=0, properties=b"TAGS\x01a\x02KEYS\x01k")
    made.put(queue_offset=1, properties=b"TAGS\x01\x02KEYS\x01k\x02")
    assert errors(check(made.write())) == []


def test_seal_of_the_whole_record_is_checked(tmp_path: Path) -> None:
    made = HandmadeStore(tmp_path)
    made.put(queue_offset=0, sealed=True)
    second = made.put(queue_offset=1, sealed=True)
    made.put(queue_offset=2, sealed=True)
    root = made.write()
    assert errors(check(root)) == []
    flip(root / "commitlog" / f"{0:020d}", second + 16)  # the flag, which no other checksum covers
    assert only(errors(check(root)), "record-checksum").log_offset == second


# How the log ends


@pytest.mark.parametrize("variant", ["torn_from_mid_body", "body_byte_flipped"])
def test_torn_last_record_of_a_killed_store_is_a_note_and_the_log_ends_where_java_ends_it(
    killed: Path, variant: str
) -> None:
    edit = next(line for line in lines("damaged", "edit") if line["variant"] == variant)
    last = killed / "commitlog/00000000000001048576"
    position = edit["from"] - 1048576
    if variant == "body_byte_flipped":
        flip(last, position)
    else:
        patch(last, position, bytes(edit["to"] - edit["from"]))
    report = check(killed)
    assert errors(report) == []
    assert only(notes(report), "log-torn").log_offset == edit["recordOffset"]
    ended = next(line for line in lines("damaged", "broker") if line["variant"] == variant)
    assert report.log_end_offset == ended["commitLogMaxOffset"]


def test_torn_last_record_of_a_clean_store_is_an_error(clean: Path) -> None:
    *_, placed = records(clean)
    flip(placed.path, placed.position + 4)
    report = check(clean)
    assert only(errors(report), "log-damaged").position == placed.position
    assert "queue-beyond-log" in kinds(errors(report))


def test_damage_in_the_middle_of_an_unclean_log_is_an_error(killed: Path) -> None:
    placed = record_of(killed, "StoreNormal", 600)
    flip(placed.path, placed.position + 4)
    assert only(errors(check(killed)), "log-damaged").position == placed.position


def test_older_records_behind_the_end_are_leftovers(tmp_path: Path) -> None:
    made = HandmadeStore(tmp_path)
    made.put(queue_offset=0, time_ms=TIME_MS + 10)
    made.log += b"torn" * 10
    made.put(queue_offset=1, time_ms=TIME_MS, queued=False)
    report = check(made.write())
    assert errors(report) == []
    assert only(notes(report), "log-leftovers").position == made.places[0][1]
    assert report.records == 1


def test_hole_before_newer_records_is_an_error(tmp_path: Path) -> None:
    made = fill(HandmadeStore(tmp_path), 4, queues=1)
    start = len(made.log)
    made.log += bytes(100)
    made.put(queue_offset=4)
    assert only(errors(check(made.write())), "log-unwritten").position == start


def test_missing_middle_file_of_the_log_is_told(clean: Path) -> None:
    (clean / "commitlog/00000000000000262144").unlink()
    report = check(clean)
    assert only(errors(report), "log-file-missing").file == "commitlog/00000000000000524288"
    assert only(errors(report), "log-missing").log_offset == 262144
    assert {"queue-into-damage", "index-into-damage"} <= kinds(notes(report))


def test_cut_middle_file_of_the_log_is_told(clean: Path) -> None:
    path = clean / "commitlog/00000000000000262144"
    with path.open("r+b") as file:
        file.truncate(100_000)
    report = check(clean)
    assert only(errors(report), "log-file-size").file == "commitlog/00000000000000262144"
    damage = only(errors(report), "log-damaged")
    assert damage.file == "commitlog/00000000000000262144"
    assert damage.position is not None
    assert damage.position <= 100_000


def test_damaged_blank_is_told(clean: Path) -> None:
    placed = [placed for placed in records(clean) if placed.path.name.endswith("0000")][-1]
    flip(placed.path, placed.position + placed.message.store_size + 3)
    assert only(errors(check(clean)), "log-damaged").position == placed.position + placed.message.store_size


def test_file_that_does_not_belong_is_a_note(clean: Path) -> None:
    (clean / "commitlog/core.123").write_bytes(b"x")
    (clean / "notes.txt").write_text("x")
    report = check(clean)
    assert errors(report) == []
    assert {note.file for note in notes(report) if note.kind == "foreign"} == {"commitlog/core.123", "notes.txt"}


def test_log_of_many_pieces_is_walked_whole(tmp_path: Path) -> None:
    made = fill(HandmadeStore(tmp_path, log_size=4096), 300)
    root = made.write()
    with opened(root) as store:
        for size in (400, 1000, 5000, 100_000):
            events = list(walk(store.log, chunk_size=size))
            places = [int(place) for event in events if isinstance(event, Chunk) for place in event.log_offsets]
            assert places == [log_offset for log_offset, _ in made.places]
            assert isinstance(events[-1], LogEnd)
            assert not any(isinstance(event, Damage) for event in events)


def test_record_larger_than_a_piece_is_read(tmp_path: Path) -> None:
    made = HandmadeStore(tmp_path)
    made.put(queue_offset=0, body=b"x" * 9000)
    made.put(queue_offset=1)
    with opened(made.write()) as store:
        found = [event for event in walk(store.log, chunk_size=256) if isinstance(event, Chunk)]
    assert sum(len(chunk.parts.positions) for chunk in found) == 2


def test_find_record_gives_the_next_one_that_belongs_there(tmp_path: Path) -> None:
    made = fill(HandmadeStore(tmp_path), 5)
    with opened(made.write()) as store:
        place = find_record(store.log, made.places[1][0] + 1)
        assert place is not None
        assert place.log_offset == made.places[2][0]
        assert find_record(store.log, made.places[4][0] + 1) is None


# Consume queues


@pytest.mark.parametrize("field", [7, 11, 19], ids=["log offset", "size", "tags code"])
def test_flipped_queue_entry_is_told_with_file_and_position(clean: Path, field: int) -> None:
    path = clean / "consumequeue/StoreNormal/2/00000000000000000400"
    flip(path, 5 * 20 + field, 0x01)
    error = only(errors(check(clean)), "queue-entry-wrong")
    assert (error.file, error.position) == ("consumequeue/StoreNormal/2/00000000000000000400", 100)
    assert "StoreNormal queue 2 at 25" in error.text


def test_wrong_delivery_time_of_a_delayed_message_is_told(clean: Path) -> None:
    path = clean / "consumequeue/SCHEDULE_TOPIC_XXXX/0/00000000000000000000"
    flip(path, 3 * 20 + 18)
    assert only(errors(check(clean)), "queue-entry-wrong").position == 60


def test_erased_queue_entry_is_missing(clean: Path) -> None:
    patch(clean / "consumequeue/StoreOrder/1/00000000000000000000", 40, bytes(20))
    error = only(errors(check(clean)), "queue-entry-missing")
    assert (error.file, error.position) == ("consumequeue/StoreOrder/1/00000000000000000000", 40)


def test_entry_without_record_is_astray(tmp_path: Path) -> None:
    made = fill(HandmadeStore(tmp_path), 6)
    log_offset, size = made.places[0]
    made.entry("orders", 1, 3, log_offset, size)
    error = only(errors(check(made.write())), "queue-entry-astray")
    assert (error.file, error.position) == (f"consumequeue/orders/1/{0:020d}", 60)


def test_entry_behind_the_log_is_an_error_when_closed_and_a_note_when_not(tmp_path: Path) -> None:
    made = fill(HandmadeStore(tmp_path), 6)
    made.entry("orders", 1, 3, len(made.log) + 10, 100)
    root = made.write()
    assert "queue-beyond-log" in kinds(errors(check(root)))
    (root / "abort").touch()
    report = check(root)
    assert errors(report) == []
    assert "queue-beyond-log" in kinds(notes(report))


def test_blanks_before_a_queue_that_started_late_are_a_note(tmp_path: Path) -> None:
    made = HandmadeStore(tmp_path)
    for number in range(13, 16):
        made.put(queue_offset=number)
    for number in range(10, 13):
        made.entry("orders", 0, number, 0, 0x7FFFFFFF)
    report = check(made.write())
    assert errors(report) == []
    assert "3 blank entries" in only(notes(report), "queue-pre-blank").text


def test_entries_of_expired_records_are_fine(tmp_path: Path) -> None:
    made = HandmadeStore(tmp_path)
    made.base = made.log_size
    for number in range(3):
        made.entry("orders", 0, number, number * 100, 100)
    for number in range(3, 6):
        made.put(queue_offset=number)
    assert check(made.write()).errors == 0


def test_topic_made_anew_leaves_old_records_without_entries(tmp_path: Path) -> None:
    made = HandmadeStore(tmp_path)
    for number in range(5):
        made.put(queue_offset=number, queued=False)
    for number in range(3):
        made.put(queue_offset=number)
    report = check(made.write())
    assert errors(report) == []
    assert "queue-anew" in kinds(notes(report))


@pytest.mark.parametrize("first", [3, 8], ids=["repeats", "skips"])
def test_queue_offsets_that_do_not_follow_are_told(tmp_path: Path, first: int) -> None:
    made = fill(HandmadeStore(tmp_path), 6, queues=1)
    place = made.put(queue_offset=first)
    assert only(errors(check(made.write())), "queue-offset").log_offset == place


def test_deleted_topic_is_a_note_and_lost_queue_an_error(clean: Path) -> None:
    shutil.rmtree(clean / "consumequeue/StoreOrder")
    assert {error.kind for error in errors(check(clean))} == {"queue-missing"}
    topics = clean / "config/topics.json"
    value = json.loads(topics.read_text())
    del value["topicConfigTable"]["StoreOrder"]
    topics.write_text(json.dumps(value))
    report = check(clean)
    assert errors(report) == []
    assert "queue-deleted" in kinds(notes(report))


def test_prepared_and_rolled_back_records_need_no_entry(tmp_path: Path) -> None:
    made = HandmadeStore(tmp_path)
    made.put(queue_offset=0)
    made.put(queue_offset=0, sys_flag=0x4, queued=False)
    made.put(queue_offset=0, sys_flag=0xC, queued=False)
    made.put(queue_offset=1, sys_flag=0x8)
    assert check(made.write()).errors == 0


def test_light_queues_are_checked_by_what_records_say(tmp_path: Path) -> None:
    made = HandmadeStore(tmp_path)
    for number in range(3):
        properties = {"INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%b", "INNER_MULTI_QUEUE_OFFSET": f"{number},{number + 10}"}
        place = made.put(queue_offset=number, properties=properties)
        size = made.places[-1][1]
        made.entry("%LMQ%a", 0, number, place, size)
        made.entry("%LMQ%b", 0, number + 10, place, size)
    root = made.write()
    assert check(root).errors == 0
    flip(root / "consumequeue/%LMQ%b/0" / f"{200:020d}", 27)
    assert only(errors(check(root)), "queue-entry-wrong").file.startswith("consumequeue/%LMQ%b/0/")


def test_tags_code_in_the_extension_queue_is_followed(tmp_path: Path) -> None:
    made = HandmadeStore(tmp_path)
    place = made.put(properties={"TAGS": "a"})
    made.entry("orders", 0, 0, place, made.places[0][1], 40 - (1 << 63))
    root = made.write()
    folder = root / "consumequeue_ext/orders/0"
    folder.mkdir(parents=True)
    unit = Struct(">hqqh")
    (folder / f"{0:020d}").write_bytes(bytes(40) + unit.pack(20, tags_code(b"a"), TIME_MS, 0) + bytes(100))
    assert check(root).errors == 0
    flip(folder / f"{0:020d}", 45)
    assert "queue-entry-wrong" in kinds(errors(check(root)))


def test_cut_queue_file_is_told(clean: Path) -> None:
    path = clean / "consumequeue/StoreNormal/1/00000000000000000400"
    with path.open("r+b") as file:
        file.truncate(120)
    report = check(clean)
    assert only(errors(report), "queue-file-size").file == "consumequeue/StoreNormal/1/00000000000000000400"
    missing = [error for error in errors(report) if error.kind == "queue-entry-missing"]
    assert len(missing) == 14
    assert missing[0].position == 120


def test_missing_queue_file_is_told(clean: Path) -> None:
    (clean / "consumequeue/StoreNormal/1/00000000000000000400").unlink()
    report = check(clean)
    assert only(errors(report), "queue-file-missing").file == "consumequeue/StoreNormal/1/00000000000000000800"
    assert "queue-entry-missing" in kinds(errors(report))


def test_flipped_batch_unit_is_told(clean: Path) -> None:
    flip(clean / "batchconsumequeue/StoreBcq/0/00000000000000000000", 46 + 37, 0x01)
    error = only(errors(check(clean)), "batch-unit-wrong")
    assert (error.file, error.position) == ("batchconsumequeue/StoreBcq/0/00000000000000000000", 46)


def test_erased_batch_unit_is_told(clean: Path) -> None:
    path = clean / "batchconsumequeue/StoreBcq/0/00000000000000000000"
    data = path.read_bytes()
    path.write_bytes(data[:46] + data[92:] + bytes(46))
    assert only(errors(check(clean)), "batch-unit-missing").position == 46


# Index


def index_positions(root: Path, file: int) -> tuple[Path, int]:
    with opened(root) as store:
        view = open_index(store)[0][file]
        assert view.shape is not None
        return view.path, view.shape.entries_position


def test_erased_index_slot_is_told(clean: Path) -> None:
    path, entries = index_positions(clean, 1)
    data = path.read_bytes()
    slot = next(at for at in range(40, entries, 4) if data[at : at + 4] != bytes(4))
    patch(path, slot, bytes(4))
    error = only(errors(check(clean)), "index-slot")
    assert (error.file, error.position) == (f"index/{path.name}", slot)


def test_flipped_hash_breaks_a_chain_and_hides_a_key(clean: Path) -> None:
    path, entries = index_positions(clean, 0)
    flip(path, entries + 20 * 7 + 3, 0x01)
    report = check(clean)
    assert {"index-chain", "index-entry-astray"} <= kinds(errors(report))
    assert entries + 20 * 7 in {error.position for error in errors(report) if error.kind == "index-entry-astray"}


def test_flipped_link_is_told(clean: Path) -> None:
    path, entries = index_positions(clean, 0)
    flip(path, entries + 20 * 200 + 19, 0x01)
    assert only(errors(check(clean)), "index-chain").position == entries + 20 * 200


@pytest.mark.parametrize("byte", [4, 11])
def test_entry_that_leads_to_another_record_is_told(clean: Path, byte: int) -> None:
    path, entries = index_positions(clean, 0)
    number = 1 + next(
        number
        for number, line in enumerate(
            path.read_bytes()[entries + 20 * at + 4 : entries + 20 * at + 12] for at in range(1, 300)
        )
        if INT64.unpack(line)[0] > 50_000
    )
    number += 1  # the second entry of its record, which is a key
    flip(path, entries + 20 * number + byte, 0x02)
    report = check(clean)
    assert {"index-entry-order", "index-entry-astray"} & kinds(errors(report))
    assert entries + 20 * number in {error.position for error in errors(report)}
    assert "index-key-missing" in kinds(errors(report))


def test_wrong_time_of_an_index_entry_is_told(clean: Path) -> None:
    path, entries = index_positions(clean, 2)
    flip(path, entries + 20 * 300 + 15, 0x20)
    assert only(errors(check(clean)), "index-entry-time").position == entries + 20 * 300


@pytest.mark.parametrize(("position", "value"), [(36, 5_000), (32, 7), (24, 1 << 40), (0, -5)])
def test_index_header_that_cannot_be_true_is_told(clean: Path, position: int, value: int) -> None:
    path, _ = index_positions(clean, 2)
    patch(path, position, (INT32 if position >= 32 else INT64).pack(value))
    error = next(error for error in errors(check(clean)) if error.kind == "index-header")
    assert (error.file, error.position) == (f"index/{path.name}", position)


def test_lost_index_file_hides_keys(clean: Path) -> None:
    sorted((clean / "index").iterdir())[1].unlink()
    report = check(clean)
    missing = [error for error in errors(report) if error.kind == "index-key-missing"]
    assert len(missing) == 50
    assert report.errors > 200
    assert missing[0].file.startswith("commitlog/")


def test_index_that_begins_late_or_is_not_there_is_a_note(clean: Path) -> None:
    min((clean / "index").iterdir()).unlink()
    report = check(clean)
    assert errors(report) == []
    assert "index-starts-late" in kinds(notes(report))
    shutil.rmtree(clean / "index")
    report = check(clean)
    assert errors(report) == []
    assert "index-none" in kinds(notes(report))


def test_lost_last_index_file_is_an_error_when_closed(clean: Path) -> None:
    sorted((clean / "index").iterdir())[2].unlink()
    assert {error.kind for error in errors(check(clean))} == {"index-behind"}


def test_index_file_too_short_for_a_header_is_told(clean: Path) -> None:
    path = clean / "index/20261116093100000"
    path.write_bytes(b"short")
    assert only(errors(check(clean)), "index-file").file == "index/20261116093100000"


@pytest.mark.parametrize(("slots", "entries"), [(97, 400), (100, 1000), (501, 333)])
def test_unusual_index_shape_is_found_out(tmp_path: Path, slots: int, entries: int) -> None:
    store = MessageStore(tmp_path, StoreConfig(max_hash_slot_num=slots, max_index_num=entries))
    store.open()
    for number in range(100):
        store.put(NewRecord("topic", 0, b"", f"KEYS\x01key{number}\x02UNIQ_KEY\x01U{number}\x02".encode()))
    store.write()
    store.dispatch()
    store.close()
    with opened(tmp_path) as offline:
        views, _ = open_index(offline)
        assert views[0].shape == (slots, entries)
    assert check(tmp_path).findings == []


# Everything else


def test_checkpoint_ahead_of_the_log_is_told(clean: Path) -> None:
    patch(clean / "checkpoint", 8, INT64.pack(TIME_MS * 2))
    error = only(errors(check(clean)), "checkpoint-ahead")
    assert (error.file, error.position) == ("checkpoint", 8)
    (clean / "abort").touch()
    assert "checkpoint-ahead" in kinds(notes(check(clean)))


def test_damaged_checkpoint_is_told(clean: Path) -> None:
    patch(clean / "checkpoint", 16, INT64.pack(-1))
    assert only(errors(check(clean)), "checkpoint-time").position == 16
    (clean / "checkpoint").write_bytes(b"1234")
    assert "checkpoint-size" in kinds(errors(check(clean)))
    (clean / "checkpoint").unlink()
    report = check(clean)
    assert errors(report) == []
    assert "checkpoint-none" in kinds(notes(report))


def test_configuration_that_is_no_json_is_told(clean: Path) -> None:
    (clean / "config/topics.json").write_text('{"topicConfigTable": {')
    (clean / "config/delayOffset.json").write_text("")
    (clean / "config/delayOffset.json.bak").unlink()
    (clean / "config/consumerFilter.json.bak").write_text("[")
    report = check(clean)
    told = {error.file: error.text for error in errors(report)}
    assert set(told) == {"config/topics.json", "config/delayOffset.json"}
    assert "topics.json.bak instead" in told["config/topics.json"]
    assert "there is no delayOffset.json.bak" in told["config/delayOffset.json"]
    assert only(notes(report), "config-backup").file == "config/consumerFilter.json.bak"


def test_group_behind_the_end_of_its_queue_is_a_note(clean: Path) -> None:
    path = clean / "config/consumerOffset.json"
    path.write_text('{"offsetTable":{"StoreNormal@CG_far":{0:999,1:3}}}')
    assert "CG_far is at 999" in only(notes(check(clean)), "config-offset").text


def test_damaged_timer_log_and_wheel_are_told(clean: Path) -> None:
    flip(clean / "timerlog/00000000000000000000", 52 * 2 + 30)
    error = only(errors(check(clean)), "timer-unit")
    assert (error.file, error.position) == ("timerlog/00000000000000000000", 104)
    flip(clean / "timerlog/00000000000000000000", 52 * 2 + 30)
    wheel = clean / "timerwheel"
    data = wheel.read_bytes()
    slot = next(at for at in range(0, len(data), 32) if data[at : at + 8] != bytes(8))
    flip(wheel, slot + 23, 0x01)
    error = only(errors(check(clean)), "timer-slot")
    assert (error.file, error.position) == ("timerwheel", slot)


def test_findings_of_one_kind_are_bounded_and_counted(clean: Path) -> None:
    path = clean / "consumequeue/StoreNormal/0/00000000000000000000"
    path.write_bytes(b"\x01" * 400)
    report = check(clean, shown_per_kind=3)
    assert len([error for error in errors(report) if error.kind == "queue-entry-wrong"]) == 3
    counts = {(count.severity, count.kind): count.count for count in report.counts}
    assert counts[Severity.ERROR, "queue-entry-wrong"] == 20
    assert report.errors == 20


def test_progress_goes_up_to_its_total(clean: Path) -> None:
    seen: dict[str, list[tuple[int, int]]] = {}
    with opened(clean) as store:
        verify(store, lambda what, done, total: seen.setdefault(what, []).append((done, total)))
    for steps in seen.values():
        assert steps[-1][0] == steps[-1][1]
        assert steps == sorted(steps)
    assert set(seen) == {"log", "queues"}


@pytest.fixture(scope="module")
def victim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack("clean", tmp_path_factory.mktemp("victim"))


@settings(max_examples=20, deadline=None)
@given(st.data())
def test_no_damage_makes_it_fail(victim: Path, data: st.DataObject) -> None:
    files = sorted(
        path for path in victim.rglob("*") if path.is_file() and path.stat().st_size and path.name != "timerwheel"
    )
    path = data.draw(st.sampled_from(files))
    original = path.read_bytes()
    position = data.draw(st.integers(0, len(original) - 1))
    garbage = data.draw(st.binary(min_size=1, max_size=40))
    try:
        patch(path, position, garbage)
        report = check(victim)
        assert report.errors == sum(count.count for count in report.counts if count.severity is Severity.ERROR)
    finally:
        path.write_bytes(original)


@given(st.lists(st.tuples(st.text(max_size=12), st.text(min_size=1, max_size=12)), min_size=1, max_size=12))
def test_hashes_of_slices_are_those_of_java(pairs: list[tuple[str, str]]) -> None:
    import numpy as np

    # A property string is read as UTF-8 that replaces what it cannot read; a lone surrogate never comes out of it.
    texts = [text.encode("utf-8", "replace") for _, text in pairs]
    prefixes = [prefix.encode("utf-8", "replace").decode() for prefix, _ in pairs]
    raw = b"".join(texts)
    ends = np.cumsum([len(text) for text in texts])
    starts = ends - [len(text) for text in texts]
    hashes = SliceHashes(raw, np.frombuffer(raw, np.uint8))
    assert hashes.of(starts, ends).view(np.int32).tolist() == [java_string_hash(text.decode()) for text in texts]
    before = np.array([java_string_hash(prefix) & 0xFFFFFFFF for prefix in prefixes], np.uint32)
    assert hashes.after(before, starts, ends).view(np.int32).tolist() == [
        java_string_hash(prefix + text.decode()) for prefix, text in zip(prefixes, texts, strict=True)
    ]


def test_columns_say_what_records_say(clean: Path) -> None:
    topics = Topics()
    with opened(clean) as store:
        rows = [
            (columns, row)
            for event in walk(store.log)
            if isinstance(event, Chunk)
            for columns in [columns_of(event, topics)]
            for row in range(len(columns.size))
        ]
    for (columns, row), placed in zip(rows, records(clean), strict=True):
        message = placed.message
        assert topics.names[columns.topic[row]] == message.topic
        assert columns.log_offset[row] == placed.log_offset
        assert columns.queue_offset[row] == message.queue_offset
        assert columns.tags_code[row] == (java_string_hash(message.tag) if message.tag else 0)
        assert columns.properties_of(row) == dict(message.properties)
        assert bool(columns.is_batch[row]) == bool(message.sys_flag & SysFlag.INNER_BATCH)
        expected = sorted(
            abs(java_string_hash(f"{message.topic}#{key}")) for key in (message.unique_id, *message.keys) if key
        )
        assert sorted(columns.key_hash[columns.key_row == row].tolist()) == expected


def test_every_kind_of_finding_is_documented() -> None:
    root = Path(__file__).parents[2]
    documented = (root / "docs/store_tools.md").read_text()
    kind = re.compile(
        r'"((?:in|log|record|queue|batch|index|checkpoint|config|timer|transaction)-[a-z-]+|foreign|unread)"'
    )
    found = {
        match for path in (root / "src/fusee/store/offline").glob("*.py") for match in kind.findall(path.read_text())
    } - {"batch-queue"}
    assert len(found) > 50
    assert [each for each in sorted(found) if f"`{each}`" not in documented and "-file-" not in each] == []
