from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusee.errors import StoreFullError
from fusee.message.hashing import java_string_hash
from fusee.message.properties import encode_properties
from fusee.message.record_layout import body_crc, pack_record
from fusee.message.topics import CHECK_MAX_TIME_TOPIC, HALF_OP_TOPIC, HALF_TOPIC
from fusee.store.commit_log import CommitLog
from fusee.store.config import StoreConfig
from fusee.store.dispatch import Dispatcher, LogScanner
from fusee.store.filesystem import OsFileSystem
from fusee.store.layout import StorePaths
from fusee.store.simulated_disk import Outcome, SimulatedDisk
from fusee.store.transaction_redo import REDO_SIZE
from fusee.store.transaction_table import STATE_SIZE, TransactionState, TransactionTable
from tests.golden import store as golden

HOST = b"\x7f\x00\x00\x01\x00\x00\x2a\x9f"
START_MS = 1_700_000_000_000
PATHS = StorePaths(Path("/store"))
CONFIG = StoreConfig(mapped_file_size_commit_log=1 << 16, transaction_segment_entries=4)
ALL = 1 << 30
State = TransactionState


class Half(NamedTuple):
    """Where a half record went."""

    queue_offset: int
    log_offset: int


class Desk:
    """A log on a disk that does not fail, and a transaction table over it on one that may."""

    def __init__(self, config: StoreConfig = CONFIG) -> None:
        self.config = config
        self.disk = SimulatedDisk()
        self.log = CommitLog(Path("/store/commitlog"), config, SimulatedDisk())
        self.log.open()
        self.log.truncate(0)
        self.next_half = 0
        self.keys: dict[int, str] = {}
        self.now_ms = START_MS
        self.min_offset = 0
        self.take_up(self.disk, unclean=False)

    def take_up(self, disk: SimulatedDisk, *, unclean: bool) -> None:
        """What a store does with the table when it opens."""
        self.disk = disk
        self.table = TransactionTable(PATHS, self.config, disk, record_at=self.log.record_at)
        self.table.open(unclean=unclean)
        self.table.truncate(self.log.end_offset)
        self.table.drop_before(self.min_offset)
        self.dispatcher = Dispatcher(LogScanner(self.log), [self.table])
        self.again(max(self.table.covered_offset, self.min_offset))

    def again(self, log_offset: int) -> None:
        self.dispatcher.dispatched_offset = log_offset
        self.dispatcher.run()

    def flush(self) -> None:
        for file in self.table.collect_dirty():
            file.sync()

    def put(
        self, topic: str, body: bytes, properties: dict[str, str], *, sys_flag: int = 0, prepared_offset: int = 0
    ) -> int:
        raw, raw_topic = encode_properties(properties), topic.encode()
        queue_offset = self.next_half if topic == HALF_TOPIC else 0
        log_offset = self.log.place(91 + len(body) + len(raw_topic) + len(raw))
        self.now_ms += 10
        head = (body_crc(body), 0, 0, queue_offset, log_offset, sys_flag, 0, HOST, self.now_ms, HOST, 0)
        self.log.append(pack_record(raw_topic, body, raw, *head, prepared_offset))
        self.log.write()
        self.next_half += topic == HALF_TOPIC
        return log_offset

    def half(self, key: str = "", *, group: str = "G", checks: int = 0, root: int | None = None) -> Half:
        properties = {"PGROUP": group}
        if key:
            properties["UNIQ_KEY"] = key
        if checks:
            properties["TRANSACTION_CHECK_TIMES"] = str(checks)
        if root is not None:
            properties["TRAN_PREPARED_QUEUE_OFFSET"] = str(root)
        log_offset = self.put(HALF_TOPIC, b"half", properties)
        self.keys[log_offset] = key
        return Half(self.next_half - 1, log_offset)

    def op(self, *queue_offsets: int, tag: str = "d") -> int:
        return self.put(HALF_OP_TOPIC, b"".join(b"%d," % number for number in queue_offsets), {"TAGS": tag})

    def commit(self, log_offset: int, key: str | None = None) -> int:
        if key is None:
            key = self.keys.get(log_offset, "")
        properties = {"UNIQ_KEY": key} if key else {}
        return self.put("orders", b"half", properties, sys_flag=0x8, prepared_offset=log_offset)

    def give_up(self, key: str) -> int:
        return self.put(CHECK_MAX_TIME_TOPIC, b"half", {"UNIQ_KEY": key})

    def plain(self) -> int:
        return self.put("orders", b"plain", {"UNIQ_KEY": "P"})

    def pending(self) -> list[int]:
        self.dispatcher.run()
        found = [transaction.queue_offset for transaction in self.table.pending(ALL)]
        assert len(found) == self.table.pending_count
        return found

    def states(self) -> list[State]:
        self.dispatcher.run()
        entries = [self.table.entry(number) for number in range(self.next_half)]
        return [State(entry.state) if entry is not None else State.NONE for entry in entries]


def test_half_record_when_nobody_has_decided_is_pending() -> None:
    desk = Desk()
    first = desk.half("a", group="payments")
    desk.plain()
    second = desk.half("b")
    assert desk.pending() == [0, 1]
    (found, _) = desk.table.pending(2)
    assert (found.log_offset, found.store_timestamp_ms) == (first.log_offset, START_MS + 10)
    assert found.group_hash == java_string_hash("payments")
    record = desk.log.record_at(first.log_offset)
    assert record is not None
    assert found.size == len(record)
    assert desk.table.find(second.log_offset) == 1
    assert desk.table.find(second.log_offset - 1) is None
    assert desk.table.entry(2) is None


def test_op_record_when_it_names_queue_offsets_decides_them() -> None:
    desk = Desk()
    for number in range(12):
        desk.half(f"k{number}")
    desk.op(0, 3, 4, 11, 99)
    assert desk.pending() == [1, 2, 5, 6, 7, 8, 9, 10]
    assert desk.table.entry(3) is not None
    assert desk.states()[3] is State.DECIDED


@pytest.mark.parametrize("body", [b"", b",", b"x,1,", b"-1,1", b"1", b" 1,1,,"])
def test_op_record_when_its_body_holds_other_things_takes_the_numbers(body: bytes) -> None:
    desk = Desk()
    desk.half()
    desk.half()
    desk.put(HALF_OP_TOPIC, body, {"TAGS": "d"})
    assert desk.pending() == ([0] if b"1" in body.replace(b"-1", b"") else [0, 1])


def test_op_record_when_its_tag_is_another_is_passed_over() -> None:
    desk = Desk()
    desk.half()
    desk.op(0, tag="x")
    assert desk.pending() == [0]


def test_message_when_committed_decides_its_half_record_before_the_op_record_comes() -> None:
    desk = Desk()
    halves = [desk.half(f"k{number}") for number in range(6)]
    desk.commit(halves[4].log_offset)
    desk.commit(halves[1].log_offset + 1)
    assert desk.pending() == [0, 1, 2, 3, 5]
    desk.op(4)
    assert desk.states()[4] is State.COMMITTED


def test_half_record_at_the_start_of_the_log_is_not_decided_by_a_copy_of_another_committed_message() -> None:
    desk = Desk()
    assert desk.half("waits").log_offset == 0
    other = desk.half("other")
    desk.commit(other.log_offset)
    desk.commit(0, key="other")  # a retry of it: the flag is kept, the offset is not
    assert desk.pending() == [0]
    desk.commit(0, key="waits")
    assert desk.pending() == []


def test_half_record_when_put_again_after_a_check_is_pending_in_its_place() -> None:
    desk = Desk()
    desk.half("a")
    desk.half("b")
    desk.half("a", checks=1)
    assert desk.pending() == [1, 2]
    desk.half("a", checks=2)
    assert desk.pending() == [1, 3]
    assert desk.states() == [State.SUPERSEDED, State.PREPARED, State.SUPERSEDED, State.PREPARED]
    desk.op(3)
    assert desk.pending() == [1]


def test_half_record_when_put_again_and_the_old_one_deleted_stays_pending() -> None:
    desk = Desk()
    desk.half("a")
    desk.half("a", checks=1)
    desk.op(0)
    assert desk.pending() == [1]
    assert desk.states() == [State.DECIDED, State.PREPARED]


def test_half_record_when_the_old_one_is_deleted_first_stays_pending() -> None:
    desk = Desk()
    desk.half("a")
    desk.op(0)
    desk.half("a", checks=1)
    assert desk.pending() == [1]


def test_half_record_when_an_older_copy_was_committed_is_not_pending() -> None:
    desk = Desk()
    first = desk.half("a")
    desk.half("a", checks=1)
    desk.half("a", checks=2)
    desk.commit(first.log_offset)
    assert desk.pending() == []
    assert desk.states() == [State.COMMITTED] * 3


def test_half_record_when_a_producer_sent_it_twice_is_pending_twice() -> None:
    desk = Desk()
    desk.half("a")
    desk.half("a")
    assert desk.pending() == [0, 1]
    desk.half("a", checks=1)
    assert desk.pending() == [1, 2]
    desk.half("a", checks=1)
    assert desk.pending() == [2, 3]


def test_half_record_when_deferred_is_decided_by_what_its_producer_says_of_the_first() -> None:
    desk = Desk()
    desk.half("a")
    desk.half("a", checks=1, root=0)
    desk.half("a", checks=2, root=0)
    assert desk.pending() == [2]
    assert desk.states() == [State.DEFERRED, State.SUPERSEDED, State.PREPARED]
    desk.op(0)
    assert desk.pending() == []
    desk.half("a", checks=3, root=0)
    assert desk.pending() == [], "it was answered for while it was put again"


def test_half_record_when_deferred_and_copies_deleted_stays_pending() -> None:
    desk = Desk()
    desk.half("a")
    desk.half("a", checks=1, root=0)
    desk.half("a", checks=2, root=0)
    desk.op(1)
    assert desk.pending() == [2]


def test_half_record_when_checked_too_often_is_given_up() -> None:
    desk = Desk()
    desk.half("a")
    desk.half("b")
    desk.half("a", checks=1)
    desk.give_up("a")
    desk.give_up("unknown")
    assert desk.pending() == [1]
    assert desk.states()[2] is State.DISCARDED


def test_half_record_when_it_has_no_unique_key_is_never_taken_for_a_copy() -> None:
    desk = Desk()
    desk.half()
    desk.half(checks=1)
    assert desk.pending() == [0, 1]


def test_pending_when_limited_gives_the_oldest_that_are_old_enough() -> None:
    desk = Desk()
    for number in range(20):
        desk.half(f"k{number}")
    desk.op(*range(9), 12)
    assert desk.pending() == [9, 10, 11, *range(13, 20)]
    table = desk.table
    assert [found.queue_offset for found in table.pending(3)] == [9, 10, 11]
    assert [found.queue_offset for found in table.pending(ALL, START_MS + 120)] == [9, 10]
    assert table.pending(ALL, START_MS) == []
    assert table.pending(0) == []


def test_pending_when_segments_hold_none_does_not_look_at_them() -> None:
    desk = Desk()
    for number in range(40):
        desk.half(f"k{number}")
    desk.op(*range(1, 39))
    assert desk.pending() == [0, 39]
    assert len(desk.table._counts) == 2


def test_accept_when_records_come_again_changes_nothing() -> None:
    desk = Desk()
    first = desk.half("a")
    desk.half("b")
    desk.half("a", checks=1)
    desk.op(1)
    desk.commit(first.log_offset)
    before = desk.states()
    desk.flush()
    contents = desk.disk.contents()
    for log_offset in (0, first.log_offset, desk.log.end_offset):
        desk.again(log_offset)
        assert desk.states() == before
    desk.flush()
    assert desk.disk.contents() == contents


def test_accept_when_disk_is_full_can_take_the_same_again() -> None:
    desk = Desk()
    desk.half("a")
    assert desk.pending() == [0]
    desk.half("b")
    desk.half("a", checks=1)
    desk.op(1)
    desk.disk.fail_write(code=28)
    with pytest.raises(StoreFullError):
        desk.dispatcher.run()
    assert [found.queue_offset for found in desk.table.pending(ALL)] == [0]
    assert desk.pending() == [2]
    desk.take_up(desk.disk.kill(), unclean=True)
    assert desk.pending() == [2]


def test_accept_when_half_queue_has_a_gap_begins_anew() -> None:
    desk = Desk()
    for _ in range(6):
        desk.half()
    assert desk.pending() == [0, 1, 2, 3, 4, 5]
    # The broker ran without this table, and the log has lost what lay between.
    desk.next_half = 1000
    desk.half("a")
    desk.half("b")
    assert desk.pending() == [1000, 1001]
    desk.op(1000, 3)
    assert desk.pending() == [1001]
    desk.flush()
    for unclean in (False, True):
        desk.take_up(desk.disk.kill(), unclean=unclean)
        assert desk.pending() == [1001]
        assert desk.table.entry(3) is None


def test_table_when_written_has_entries_where_their_queue_offset_says() -> None:
    desk = Desk()
    halves = [desk.half(f"k{number}") for number in range(6)]
    desk.op(5)
    desk.pending()
    desk.flush()
    data = desk.disk.read_file(PATHS.transaction_states / f"{4 * STATE_SIZE:020d}")
    assert len(data) == 4 * STATE_SIZE
    assert int.from_bytes(data[32:40], "big") == halves[5].log_offset
    assert int.from_bytes(data[40:48], "big") == START_MS + 60
    assert int.from_bytes(data[56:60], "big") == State.DECIDED
    # Six half records, one decision and the mark.
    redo = [desk.disk.read_file(PATHS.transaction_redo / name) for name in desk.disk.names(PATHS.transaction_redo)]
    assert len(b"".join(redo).rstrip(b"\0")) > 7 * REDO_SIZE
    assert len(redo) == 2


def test_open_when_stop_was_clean_reads_only_from_the_first_pending_on() -> None:
    desk = Desk()
    for number in range(30):
        desk.half(f"k{number}")
    desk.op(*range(20), 25)
    assert len(desk.pending()) == 9
    covered = desk.plain()
    desk.dispatcher.run()
    desk.flush()
    steps = desk.disk.kill()
    desk.take_up(steps, unclean=False)
    assert desk.table.covered_offset == covered
    assert desk.pending() == [20, 21, 22, 23, 24, 26, 27, 28, 29]
    assert steps.counts["write"] == 0
    desk.op(20)
    assert desk.pending()[0] == 21


def test_open_when_table_is_gone_makes_it_from_the_redo_log() -> None:
    desk = Desk()
    for number in range(10):
        desk.half(f"k{number}")
    desk.op(2, 3)
    expected = desk.pending()
    states = desk.states()
    desk.flush()
    disk = desk.disk.kill()
    for name in disk.names(PATHS.transaction_states):
        disk.remove(PATHS.transaction_states / name)
    table = TransactionTable(PATHS, CONFIG, disk, record_at=lambda log_offset: None)
    table.open(unclean=False)
    assert [found.queue_offset for found in table.pending(ALL)] == expected
    assert [entry.state for number in range(10) if (entry := table.entry(number))] == [state.value for state in states]


def test_open_when_no_transaction_was_ever_seen_is_covered_by_the_mark() -> None:
    desk = Desk()
    for _ in range(10):
        last = desk.plain()
    desk.dispatcher.run()
    desk.flush()
    desk.take_up(desk.disk.crash(outcome=Outcome.NOTHING), unclean=True)
    assert desk.table.covered_offset == last


def test_truncate_when_log_lost_a_decision_makes_it_pending_again() -> None:
    desk = Desk()
    first = desk.half("a")
    desk.half("b")
    desk.pending()
    cut = desk.op(0, 1)
    desk.commit(first.log_offset)
    assert desk.pending() == []
    desk.flush()
    desk.log.truncate(cut)
    desk.table.truncate(cut)
    assert [found.queue_offset for found in desk.table.pending(ALL)] == [0, 1]
    desk.dispatcher.dispatched_offset = cut
    desk.op(1)
    assert desk.pending() == [0]


def test_drop_before_when_log_lost_its_head_forgets_what_was_pending_there() -> None:
    desk = Desk()
    halves = [desk.half(f"k{number}") for number in range(20)]
    assert len(desk.pending()) == 20
    desk.flush()
    desk.table.drop_before(halves[10].log_offset)
    assert desk.pending() == list(range(10, 20))
    assert desk.table.entry(9) is None
    assert desk.table.find(halves[9].log_offset) is None
    assert desk.disk.names(PATHS.transaction_states)[0] == f"{8 * STATE_SIZE:020d}"
    assert desk.disk.names(PATHS.transaction_redo)[0] == f"{8 * REDO_SIZE:020d}"
    desk.half("k9", checks=1)
    desk.half("k12", checks=1)
    assert desk.pending() == [10, 11, *range(13, 22)]
    desk.min_offset = halves[10].log_offset
    desk.flush()
    for unclean in (False, True):
        desk.take_up(desk.disk.kill(), unclean=unclean)
        assert desk.pending() == [10, 11, *range(13, 22)]


@pytest.mark.parametrize(("name", "folder"), [("states", PATHS.transaction_states), ("redo", PATHS.transaction_redo)])
def test_format_page_when_its_example_is_written_is_the_same(name: str, folder: Path) -> None:
    desk = Desk()
    desk.half("a", group="G")
    desk.op(0)
    assert desk.pending() == []
    desk.flush()
    page = Path(__file__).parents[2] / "docs" / "formats" / "transaction_table.md"
    found = re.search(rf"^```hex {name}\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert found
    example = bytes.fromhex("".join(line.partition("#")[0] for line in found[1].splitlines()))
    data = desk.disk.read_file(folder / ("0" * 20))
    assert data == example.ljust(len(data), b"\0")


# Against a model


class Event(NamedTuple):
    """A record that was put, as the model sees it."""

    log_offset: int
    kind: str
    transaction: int = -1
    copy: int = -1
    queue_offset: int = -1


class Copy:
    """A half record in the model."""

    def __init__(self, event: Event) -> None:
        self.event = event
        self.is_pending = True


class Model:
    """What is pending, worked out from all events."""

    def __init__(self, events: list[Event]) -> None:
        self.transactions: dict[int, list[Copy]] = {}
        self.deferred: set[int] = set()
        for event in events:
            copies = self.transactions.setdefault(event.transaction, []) if event.transaction >= 0 else []
            match event.kind:
                case "half" | "again" | "defer":
                    if copies:
                        copies[-1].is_pending = False
                    if event.kind == "defer":
                        self.deferred.add(event.transaction)
                    copies.append(Copy(event))
                case "op":
                    copies[event.copy].is_pending = False
                    if event.copy == 0 and event.transaction in self.deferred:
                        copies[-1].is_pending = False
                case "commit" | "discard":
                    copies[-1].is_pending = False

    def pending(self, min_offset: int = 0) -> list[int]:
        return sorted(
            copy.event.queue_offset
            for copies in self.transactions.values()
            for copy in copies
            if copy.is_pending and copy.event.log_offset >= min_offset
        )

    def open_ones(self, min_offset: int) -> list[int]:
        return [
            number
            for number, copies in sorted(self.transactions.items())
            if copies[-1].is_pending and copies[0].event.log_offset >= min_offset
        ]


ACTIONS = st.tuples(
    st.sampled_from(
        ["half"] * 4
        + ["again", "again", "defer", "op", "op", "op last", "op last", "commit", "discard", "plain"]
        + ["flush", "flush", "stop", "kill", "crash", "truncate", "drop", "redispatch"]
    ),
    st.integers(0, 1 << 30),
)


@given(st.lists(ACTIONS, max_size=40))
def test_table_when_anything_happens_knows_what_is_pending(actions: list[tuple[str, int]]) -> None:
    desk = Desk()
    events: list[Event] = []
    count = 0
    for name, chance in actions:
        model = Model(events)
        choice = model.open_ones(desk.min_offset)
        number = choice[chance % len(choice)] if choice else -1
        copies = model.transactions.get(number, [])
        key = f"key{number}"
        if name == "half":
            half = desk.half(f"key{count}")
            events.append(Event(half.log_offset, "half", count, 0, half.queue_offset))
            count += 1
        elif name == "plain":
            events.append(Event(desk.plain(), "plain"))
        elif name in ("again", "defer") and copies:
            # A producer that wants to be left in peace is so from the first copy on.
            is_deferred = number in model.deferred or (name == "defer" and len(copies) == 1)
            root = copies[0].event.queue_offset if is_deferred else None
            half = desk.half(key, checks=len(copies), root=root)
            kind = "defer" if is_deferred else "again"
            events.append(Event(half.log_offset, kind, number, len(copies), half.queue_offset))
        elif name in ("op", "op last") and copies:
            copy = len(copies) - 1 if name == "op last" else chance // 7 % len(copies)
            log_offset = desk.op(copies[copy].event.queue_offset)
            events.append(Event(log_offset, "op", number, copy))
        elif name == "commit" and copies:
            log_offset = desk.commit(copies[chance // 7 % len(copies)].event.log_offset)
            events.append(Event(log_offset, "commit", number))
        elif name == "discard" and copies:
            events.append(Event(desk.give_up(key), "discard", number))
        elif name == "flush":
            desk.dispatcher.run()
            desk.flush()
        elif name == "stop":
            desk.dispatcher.run()
            desk.flush()
            desk.take_up(desk.disk.kill(), unclean=False)
        elif name == "kill":
            desk.take_up(desk.disk.kill(), unclean=True)
        elif name == "crash":
            desk.take_up(desk.disk.crash(chance), unclean=True)
        elif name == "truncate" and events:
            cut = max(events[chance % len(events)].log_offset, desk.min_offset)
            desk.log.truncate(cut)
            desk.table.truncate(cut)
            events = [event for event in events if event.log_offset < cut]
            desk.next_half = max((event.queue_offset for event in events), default=-1) + 1
            desk.again(min(max(desk.table.covered_offset, desk.min_offset), cut))
        elif name == "drop" and events:
            desk.min_offset = max(events[chance % len(events)].log_offset, desk.min_offset)
            desk.table.drop_before(desk.min_offset)
        elif name == "redispatch":
            desk.again(desk.min_offset)
        assert desk.pending() == Model(events).pending(desk.min_offset), name


# What Apache RocketMQ wrote


def test_golden_when_log_is_dispatched_gives_the_three_that_are_pending(tmp_path: Path) -> None:
    root = golden.unpack("clean", tmp_path)
    files = OsFileSystem()
    log = CommitLog(root / "commitlog", golden.CONFIG, files)
    log.open()
    (broker,) = golden.lines("clean", "broker")
    log.truncate(int(broker["commitLogMaxOffset"]))
    table = TransactionTable(StorePaths(root), golden.CONFIG, files, record_at=log.record_at)
    table.open(unclean=False)
    Dispatcher(LogScanner(log), [table]).run()
    halves = [line for line in golden.lines("clean", "record") if line["topic"] == HALF_TOPIC]
    copies = [line for line in halves if "TRANSACTION_CHECK_TIMES" in line["properties"]]
    assert len(copies) == 3
    group_hash = java_string_hash("PG_store_tx")
    assert [
        (found.queue_offset, found.log_offset, found.size, found.store_timestamp_ms, found.group_hash)
        for found in table.pending(ALL)
    ] == [
        (line["queueOffset"], line["commitLogOffset"], line["storeSize"], line["storeTimestamp"], group_hash)
        for line in copies
    ]
    states = [State(entry.state) for number in range(12) if (entry := table.entry(number))]
    assert states == [State.COMMITTED, State.DECIDED, State.SUPERSEDED] * 3 + [State.PREPARED] * 3
    for file in table.collect_dirty():
        file.sync()
    table.close()
    again = TransactionTable(StorePaths(root), golden.CONFIG, files, record_at=log.record_at)
    again.open(unclean=True)
    assert [found.queue_offset for found in again.pending(ALL)] == [9, 10, 11]
    again.close()
    log.close()
