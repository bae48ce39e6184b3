from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusee.clock import ManualClock
from fusee.errors import StoreError, StoreFullError
from fusee.store import index as index_module
from fusee.store.commit_log import CommitLog
from fusee.store.config import StoreConfig
from fusee.store.dispatch import Dispatcher, LogScanner
from fusee.store.filesystem import OsFileSystem
from fusee.store.index import Index, tag_key
from fusee.store.key_hash import index_hash
from fusee.store.results import Dispatched
from fusee.store.simulated_disk import Outcome, SimulatedDisk
from tests.golden import store as golden

FOLDER = Path("/store/index")
START_MS = 1_700_000_000_000
FOREVER = (0, 1 << 62)
SMALL = StoreConfig(max_hash_slot_num=5, max_index_num=7)
ROLLBACK = 0xC


def opened(disk: SimulatedDisk, config: StoreConfig = SMALL, **how: Any) -> Index:
    index = Index(FOLDER, config, disk, disk.clock)
    index.open(**{"unclean": False, **how})
    return index


def record(
    log_offset: int, *keys: str, unique: str = "", topic: str = "t", second: float = 0, sys_flag: int = 0
) -> Dispatched:
    timestamp_ms = START_MS + round(second * 1000)
    return Dispatched(topic, 0, 0, log_offset, 10, 0, timestamp_ms, sys_flag, 0, unique, keys, b"")


def look_up(index: Index, key: str, *, topic: str = "t", count: int = 64) -> tuple[int, ...]:
    return index.query(topic, key, count, *FOREVER).log_offsets


def flush(index: Index, *, thorough: bool = True) -> int:
    files = index.collect_dirty(thorough=thorough)
    for file in files:
        file.sync()
    return len(files)


def entries_of(index: Index) -> list[tuple[int, int, int, int]]:
    return [entry for file in index.files for entry in file.entries(1, file.count).tolist()]


# Taking in and looking up


def test_accept_when_record_has_unique_key_and_keys_indexes_each_with_its_topic() -> None:
    index = opened(SimulatedDisk())
    index.accept([record(0, "a", "b", unique="u"), record(10, "a", topic="other")])
    assert look_up(index, "u") == look_up(index, "b") == (0,)
    assert look_up(index, "a") == (0,)
    assert look_up(index, "a", topic="other") == (10,)
    assert look_up(index, "c") == ()


def test_accept_when_record_has_a_tag_indexes_it_behind_its_keys() -> None:
    index = opened(SimulatedDisk())
    tagged = record(0, "a", unique="u")
    tagged.properties = b"TAGS\x01red\x02"
    index.accept([tagged])
    assert look_up(index, tag_key("red")) == (0,)
    assert look_up(index, "red") == ()
    assert [entry[0] for entry in entries_of(index)] == [index_hash("t", key) for key in ("u", "a", "T#red")]


def test_accept_when_record_is_rolled_back_is_skipped() -> None:
    index = opened(SimulatedDisk())
    index.accept([record(0, "a", sys_flag=ROLLBACK), record(10, "a", sys_flag=0x8), record(20, "a", sys_flag=0x4)])
    assert look_up(index, "a") == (10, 20)


def test_accept_when_record_has_no_keys_still_counts_as_covered() -> None:
    index = opened(SimulatedDisk())
    index.accept([record(0), record(10)])
    assert index.covered_offset == 10
    assert index.last_update_log_offset == 10
    assert entries_of(index) == []


def test_accept_when_records_come_again_adds_nothing() -> None:
    index = opened(SimulatedDisk())
    batch = [record(0, "a", unique="u"), record(10, "a", "b")]
    index.accept(batch)
    before = entries_of(index)
    index.accept(batch)
    index.accept(batch[1:])
    index.accept(batch[:1])
    assert entries_of(index) == before


def test_accept_when_only_some_keys_of_the_last_record_are_in_adds_the_others() -> None:
    disk = SimulatedDisk()
    index = opened(disk)
    index.accept([record(0, "a", "b", "c", "d", "e")])
    # The sixth entry fills the file; there is no space for another file and its header.
    disk.capacity = disk.used
    batch = [record(10, "x", "y", "z")]
    with pytest.raises(StoreFullError):
        index.accept(batch)
    assert look_up(index, "x") == (10,)
    assert look_up(index, "y") == ()
    disk.capacity = 1 << 40
    index.accept(batch)
    assert [look_up(index, key) for key in "xyz"] == [(10,)] * 3
    assert len(entries_of(index)) == 8
    index.accept(batch)
    assert len(entries_of(index)) == 8


def test_query_when_more_than_wanted_match_gives_the_newest_in_log_order() -> None:
    index = opened(SimulatedDisk())
    index.accept([record(number * 10, "a") for number in range(30)])
    assert look_up(index, "a", count=4) == (260, 270, 280, 290)
    assert look_up(index, "a", count=0) == ()
    assert len(look_up(index, "a", count=100)) == 30


def test_query_when_limit_of_settings_is_lower_keeps_to_it() -> None:
    config = StoreConfig(max_hash_slot_num=5, max_index_num=7, max_msgs_num_batch=3)
    index = opened(SimulatedDisk(), config)
    index.accept([record(number * 10, "a") for number in range(10)])
    assert look_up(index, "a", count=100) == (70, 80, 90)


def test_query_when_key_stands_twice_in_a_record_gives_it_once() -> None:
    index = opened(SimulatedDisk())
    index.accept([record(0, "a", "a", unique="a")])
    assert look_up(index, "a") == (0,)


def test_query_when_time_span_is_given_finds_what_was_stored_in_it() -> None:
    index = opened(SimulatedDisk())
    index.accept([record(number * 10, "a", second=number * 10) for number in range(20)])
    answer = index.query("t", "a", 64, START_MS + 50_000, START_MS + 80_000)
    assert answer.log_offsets == (50, 60, 70, 80)
    assert answer.last_update_timestamp_ms == START_MS + 190_000
    assert answer.last_update_log_offset == 190
    assert index.query("t", "a", 64, START_MS + 200_000, START_MS + 300_000).log_offsets == ()
    assert index.query("t", "a", 64, 0, START_MS - 1).log_offsets == ()


def test_query_when_chain_is_too_long_says_that_it_is_not_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    index = opened(SimulatedDisk())
    index.accept([record(number * 10, "a") for number in range(20)])
    monkeypatch.setattr(index_module, "LOOKUP_STEPS_MAX", 9)
    answer = index.query("t", "a", 64, *FOREVER)
    assert len(answer.log_offsets) == 9
    assert not answer.is_complete
    assert index.query("t", "a", 5, *FOREVER).is_complete


def test_query_when_nothing_is_indexed_says_so() -> None:
    answer = opened(SimulatedDisk()).query("t", "a", 64, *FOREVER)
    assert answer == index_module.IndexAnswer((), 0, 0)


# Files


def test_files_when_full_are_followed_by_one_named_after_the_local_time() -> None:
    disk = SimulatedDisk(ManualClock(START_MS + 123))
    index = opened(disk)
    index.accept([record(number * 10, "a") for number in range(20)])
    first = time.strftime("%Y%m%d%H%M%S", time.localtime(START_MS // 1000)) + "123"
    names = [int(file.path.name) for file in index.files]
    assert names == [int(first) + number for number in range(4)]
    assert [file.count for file in index.files] == [7, 7, 7, 3]
    assert look_up(index, "a") == tuple(range(0, 200, 10))


def test_files_when_clock_is_set_back_keep_their_order() -> None:
    clock = ManualClock(START_MS)
    disk = SimulatedDisk(clock)
    index = opened(disk)
    index.accept([record(0, *"abcdef")])
    clock.jump_wall(-3_600_000)
    index.accept([record(10, "a")])
    assert [file.path.name for file in index.files] == disk.names(FOLDER)
    again = opened(disk.kill(), unclean=True)
    again.accept([record(0, *"abcdef"), record(10, "a")])
    assert look_up(again, "a") == (0, 10)


def test_files_when_one_cannot_be_made_leave_nothing_behind() -> None:
    disk = SimulatedDisk()
    index = opened(disk)
    index.accept([record(0, *"abcdef")])
    for _ in range(3):
        disk.fail_write(code=28)
        with pytest.raises(StoreFullError):
            index.accept([record(10, "a")])
    assert len(disk.names(FOLDER)) == 1
    index.accept([record(10, "a")])
    assert look_up(index, "a") == (0, 10)


def test_files_when_many_are_finished_keep_only_some_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_module, "OPEN_FILES_MAX", 2)
    disk = SimulatedDisk()
    index = opened(disk)
    for number in range(60):
        index.accept([record(number * 10, "a")])
        flush(index)
    flush(index)
    assert look_up(index, "a") == tuple(range(0, 600, 10))
    assert sum(file._file is not None for file in index.files) <= 10
    index.accept([record(600, "a")])
    assert len(look_up(index, "a")) == 61


def test_open_when_file_has_another_size_names_the_settings() -> None:
    disk = SimulatedDisk()
    opened(disk).accept([record(0, "a")])
    with pytest.raises(StoreError, match="maxIndexNum=8"):
        opened(disk.kill(), StoreConfig(max_hash_slot_num=5, max_index_num=8))


def test_open_when_other_files_lie_there_passes_over_them() -> None:
    disk = SimulatedDisk()
    index = opened(disk)
    index.accept([record(0, "a")])
    flush(index)
    disk.open(FOLDER / "20261116120000000.bak", size=5)
    disk.open(FOLDER / "readme", size=5)
    assert look_up(opened(disk.kill()), "a") == (0,)


def test_safe_timestamp_when_a_file_is_finished_and_on_disk_is_its_last() -> None:
    index = opened(SimulatedDisk())
    index.accept([record(number * 10, "a", second=number) for number in range(8)])
    assert index.safe_timestamp_ms == 0
    assert flush(index) == 2
    assert flush(index) == 2
    assert flush(index) == 0
    assert index.safe_timestamp_ms == START_MS + 5000


def test_collect_dirty_when_no_key_came_keeps_what_is_covered() -> None:
    disk = SimulatedDisk()
    index = opened(disk)
    index.accept([record(0, "a")])
    flush(index)
    index.accept([record(number * 10) for number in range(1, 9)])
    flush(index)
    flush(index)
    again = opened(disk.crash(outcome=Outcome.NOTHING), unclean=True)
    assert again.covered_offset == 80
    assert look_up(again, "a") == (0,)


def test_collect_dirty_when_a_write_fails_gives_out_everything_the_next_time() -> None:
    disk = SimulatedDisk()
    index = opened(disk)
    index.accept([record(number * 10, "a") for number in range(9)])
    disk.fail_write(nth=4, code=28)
    with pytest.raises(StoreFullError):
        index.collect_dirty()
    assert len(index.files) == 2
    assert flush(index) == 2
    flush(index)
    again = opened(disk.crash(outcome=Outcome.NOTHING), unclean=True)
    assert look_up(again, "a") == tuple(range(0, 90, 10))


# In step with the log


def test_truncate_when_log_lost_records_forgets_them_and_takes_others_instead() -> None:
    disk = SimulatedDisk()
    index = opened(disk)
    index.accept([record(number * 10, "a", f"k{number}") for number in range(20)])
    flush(index)
    flush(index)
    index.truncate(75)
    assert look_up(index, "a") == tuple(range(0, 80, 10))
    assert look_up(index, "k8") == ()
    assert index.covered_offset == 70
    index.accept([record(80, "other")])
    assert look_up(index, "other") == (80,)
    survivor = opened(disk.crash(outcome=Outcome.NOTHING), unclean=True)
    assert look_up(survivor, "a") == tuple(range(0, 80, 10))


def test_truncate_when_everything_goes_leaves_an_empty_index() -> None:
    disk = SimulatedDisk()
    index = opened(disk)
    index.accept([record(number * 10, "a") for number in range(20)])
    index.truncate(0)
    assert disk.names(FOLDER) == []
    assert index.covered_offset == 0
    index.accept([record(0, "b")])
    assert look_up(index, "b") == (0,)


def test_truncate_when_index_is_not_as_far_changes_nothing() -> None:
    disk = SimulatedDisk()
    index = opened(disk)
    index.accept([record(number * 10, "a") for number in range(20)])
    steps = disk.steps
    index.truncate(191)
    assert disk.steps == steps


def test_drop_before_when_log_lost_its_head_removes_files_but_never_the_last() -> None:
    disk = SimulatedDisk()
    index = opened(disk)
    index.accept([record(number * 10, "a") for number in range(20)])
    dropped = index.drop_before(110)
    assert [path.name for path in dropped] == sorted(path.name for path in dropped)
    assert len(dropped) == 1
    assert look_up(index, "a") == tuple(range(60, 200, 10))
    assert len(index.drop_before(10_000)) == 2
    assert len(disk.names(FOLDER)) == 1
    assert look_up(index, "a") == (180, 190)


def test_recovery_when_last_file_was_not_finished_keeps_it_issue_8007() -> None:
    """The reference deletes the last file after a crash, and the keys of old records are gone for good."""
    config = StoreConfig(max_hash_slot_num=50, max_index_num=1000)
    disk = SimulatedDisk()
    index = opened(disk, config)
    index.accept([record(number * 10, f"k{number}", second=number) for number in range(100)])
    flush(index)
    flush(index)
    index.accept([record(1000, "late", second=100)])
    again = opened(disk.kill(), config, unclean=True)
    assert again.covered_offset == 990
    assert [look_up(again, f"k{number}") for number in range(100)] == [(number * 10,) for number in range(100)]


def test_recovery_when_file_spans_the_checkpoint_keeps_what_is_older_issue_3868() -> None:
    """The reference drops a file whose last write is younger than the checkpoint with everything in it."""
    config = StoreConfig(max_hash_slot_num=50, max_index_num=1000)
    disk = SimulatedDisk()
    index = opened(disk, config)
    index.accept([record(number * 10, f"k{number}", second=number) for number in range(100)])
    flush(index)
    (name,) = disk.names(FOLDER)
    # Without a mark, as the reference writes it.
    disk.open(FOLDER / name).write(bytes(20), 40 + 4 * 50)
    again = opened(disk.kill(), config, unclean=True, safe_timestamp_ms=START_MS + 80_000)
    assert again.covered_offset == 780
    assert look_up(again, "k78") == (780,)
    assert look_up(again, "k79") == ()
    again.accept([record(number * 10, f"k{number}", second=number) for number in range(78, 100)])
    assert [look_up(again, f"k{number}") for number in range(100)] == [(number * 10,) for number in range(100)]


class Model:
    """A log of records, and what an index over it must answer."""

    def __init__(self) -> None:
        self.disk = SimulatedDisk()
        self.index = opened(self.disk)
        self.records: list[Dispatched] = []
        self.min_offset = 0

    def put(self, count: int, keys: int) -> None:
        start = self.records[-1].log_offset + 10 if self.records else 0
        batch = [
            record(
                start + 10 * number,
                *[f"k{(start // 10 + number * keys + key) % 9}" for key in range((keys + number) % 4)],
                unique=f"u{start // 10 + number}" if (keys + number) % 3 else "",
                topic="ts"[number % 2],
                second=(start + number) / 7,
                sys_flag=ROLLBACK if (start // 10 + number) % 11 == 10 else 0,
            )
            for number in range(count)
        ]
        self.records += batch
        self.index.accept(batch)

    def again(self, log_offset: int) -> None:
        position = next((i for i, old in enumerate(self.records) if old.log_offset >= log_offset), len(self.records))
        for start in range(position, len(self.records), 5):
            self.index.accept(self.records[start : start + 5])

    def reopen(self, disk: SimulatedDisk, *, unclean: bool) -> None:
        self.index.close()
        self.disk = disk
        self.index = opened(disk, unclean=unclean)
        self.again(max(self.index.covered_offset, self.min_offset))

    def check(self) -> None:
        expected: dict[tuple[str, str], list[int]] = {}
        for item in self.records:
            if item.sys_flag != ROLLBACK and item.log_offset >= self.min_offset:
                for key in dict.fromkeys((item.unique_key, *item.keys)):
                    if key:
                        expected.setdefault((item.topic, key), []).append(item.log_offset)
        for (topic, key), offsets in expected.items():
            found = [offset for offset in look_up(self.index, key, topic=topic) if offset >= self.min_offset]
            assert found == offsets[-64:], (topic, key)
        for file in self.index.files:
            file.check()


ACTIONS = st.one_of(
    st.tuples(st.just("put"), st.integers(1, 12), st.integers(0, 5)),
    st.tuples(st.just("flush"), st.booleans(), st.just(0)),
    st.tuples(st.just("stop"), st.just(0), st.just(0)),
    st.tuples(st.just("kill"), st.just(0), st.just(0)),
    st.tuples(st.just("crash"), st.integers(0, 1 << 30), st.just(0)),
    st.tuples(st.just("truncate"), st.integers(0, 100), st.just(0)),
    st.tuples(st.just("drop"), st.integers(0, 100), st.just(0)),
    st.tuples(st.just("again"), st.integers(0, 100), st.just(0)),
)


@given(st.lists(ACTIONS, max_size=25))
def test_index_when_anything_happens_finds_every_key_of_the_log(actions: list[tuple[str, int, int]]) -> None:
    model = Model()
    dropped = False
    for name, first, second in actions:
        at = model.min_offset + 10 * (first * (len(model.records) + 1) // 100)
        if name == "put":
            model.put(first, second)
        elif name == "flush":
            flush(model.index, thorough=bool(first))
        elif name == "stop":
            flush(model.index)
            model.reopen(model.disk.kill(), unclean=False)
        elif name == "kill":
            model.reopen(model.disk.kill(), unclean=True)
        elif name == "crash":
            model.reopen(model.disk.crash(first), unclean=True)
        elif name == "truncate":
            model.records = [old for old in model.records if old.log_offset < at]
            model.index.truncate(at)
            model.again(model.min_offset)
        elif name == "drop":
            model.min_offset = max(min(at, model.records[-1].log_offset if model.records else 0), model.min_offset)
            model.index.drop_before(model.min_offset)
            dropped = dropped or model.min_offset > 0
        else:
            model.again(at)
        model.check()
    if not dropped and model.records:
        rebuilt = opened(SimulatedDisk())
        rebuilt.accept(model.records)
        hashes_and_offsets = [entry[:2] for entry in entries_of(rebuilt)]
        assert [entry[:2] for entry in entries_of(model.index)] == hashes_and_offsets
        assert [file.count for file in model.index.files] == [file.count for file in rebuilt.files]


# What Apache RocketMQ wrote and answers


def golden_log(name: str, tmp_path: Path) -> tuple[Path, CommitLog]:
    root = golden.unpack(name, tmp_path)
    log = CommitLog(root / "commitlog", golden.CONFIG, OsFileSystem())
    log.open()
    (broker,) = golden.lines(name, "broker")
    log.truncate(int(broker["commitLogMaxOffset"]))
    return root, log


def dispatch(log: CommitLog, index: Index, log_offset: int) -> None:
    dispatcher = Dispatcher(LogScanner(log), [index])
    dispatcher.dispatched_offset = log_offset
    dispatcher.run()


def check_golden(index: Index, name: str) -> None:
    asked = golden.lines(name, "index")
    assert len(asked) > 300
    for line in asked:
        # The reference has entered the last record before the crash twice, and gives it twice.
        expected = tuple(dict.fromkeys(line["commitLogOffsets"]))
        answer = index.query(line["topic"], line["key"], 64, 0, (1 << 63) - 1)
        assert answer.log_offsets == expected, line
        if expected:
            assert answer.last_update_log_offset == int(line["indexLastUpdatePhyoffset"])
            assert answer.last_update_timestamp_ms == int(line["indexLastUpdateTimestamp"])


def test_golden_when_store_was_closed_answers_as_the_reference_does(tmp_path: Path) -> None:
    root = golden.unpack("clean", tmp_path)
    index = Index(root / "index", golden.CONFIG, OsFileSystem(), ManualClock())
    index.open(unclean=False)
    assert len(index.files) == 3
    for file in index.files:
        file.check()
    check_golden(index, "clean")
    index.close()


def test_golden_when_store_was_killed_answers_as_the_reference_does_after_recovery(tmp_path: Path) -> None:
    root, log = golden_log("killed", tmp_path)
    index = Index(root / "index", golden.CONFIG, OsFileSystem(), ManualClock())
    checkpoint = (root / "checkpoint").read_bytes()
    index.open(unclean=True, safe_timestamp_ms=int.from_bytes(checkpoint[16:24], "big"))
    assert index.files, "finished files stay"
    index.truncate(log.end_offset)
    dispatch(log, index, max(index.covered_offset, log.min_offset))
    check_golden(index, "killed")
    for file in index.files:
        file.check()
    index.close()
    log.close()


@pytest.mark.parametrize("name", ["clean", "killed"])
def test_golden_when_index_is_made_from_the_log_answers_as_the_reference_does(name: str, tmp_path: Path) -> None:
    root, log = golden_log(name, tmp_path)
    index = Index(root / "rebuilt", golden.CONFIG, OsFileSystem(), ManualClock())
    index.open(unclean=False)
    dispatch(log, index, 0)
    check_golden(index, name)
    if name == "clean":
        reference = Index(root / "index", golden.CONFIG, OsFileSystem(), ManualClock())
        reference.open(unclean=False)
        assert [(file.count, file.slots_used) for file in index.files] == [
            (file.count, file.slots_used) for file in reference.files
        ]
        for ours, theirs in zip(index.files, reference.files, strict=True):
            first, *others = zip(
                ours.entries(1, ours.count).tolist(), theirs.entries(1, ours.count).tolist(), strict=True
            )
            assert all(mine == reference_s for mine, reference_s in others)
            # The reference counts the seconds of the first entry from the end of the file before.
            assert first[0][:2] == first[1][:2]
        reference.close()
    index.close()
    log.close()


@pytest.mark.parametrize("name", ["clean", "killed"])
def test_golden_when_records_come_one_by_one_or_as_arrays_makes_the_same_index(name: str, tmp_path: Path) -> None:
    root, log = golden_log(name, tmp_path)
    made: list[Index] = []
    for folder in ("arrays", "objects"):
        index = Index(root / folder, golden.CONFIG, OsFileSystem(), ManualClock())
        index.open(unclean=False)
        made.append(index)
    arrays, objects = made
    scanner = LogScanner(log)
    log_offset = 0
    while True:
        batch, next_offset = scanner.scan(log_offset)
        if batch is None:
            break
        arrays.accept(batch)
        objects.accept(list(batch))
        log_offset = next_offset
    assert entries_of(arrays) == entries_of(objects)
    assert arrays.covered_offset == objects.covered_offset
    for index in made:
        index.close()
    log.close()
