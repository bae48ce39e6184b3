from __future__ import annotations

import errno
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusee.broker.delay import level_count, schedule_record
from fusee.broker.delay_progress import DelayOffsets, delivered_record, skip_delivered
from fusee.errors import StoreError
from fusee.message.properties import decode_properties, encode_properties, find_property
from fusee.message.topics import HALF_TOPIC, SCHEDULE_TOPIC
from fusee.store.engine import MessageStore
from fusee.store.new_record import NewRecord
from fusee.store.simulated_disk import SimulatedCrash
from tests.broker.log_world import ROOT, LogWorld, message, messages_of, small_store
from tests.golden.store import CONFIG, unpack

LEVELS = 4


def delayed(body: bytes, level: int, topic: str = "orders", queue_id: int = 0, **properties: str) -> NewRecord:
    return schedule_record(message(body, topic, queue_id, DELAY=str(level), **properties), level, LEVELS)


@pytest.fixture
def world() -> LogWorld:
    world = LogWorld()
    world.delay.start()
    return world


# The record that waits


def test_schedule_record_keeps_the_message_and_says_where_it_is_to_go() -> None:
    record = message(b"hello", "orders", 3, TAGS="A", DELAY="2")
    waiting = schedule_record(record, 2, 18)
    assert (waiting.topic, waiting.queue_id) == (SCHEDULE_TOPIC, 1)
    assert decode_properties(waiting.properties) == {
        **decode_properties(record.properties),
        "REAL_TOPIC": "orders",
        "REAL_QID": "3",
    }
    assert (waiting.body, waiting.born_timestamp_ms, waiting.born_host) == (
        record.body,
        record.born_timestamp_ms,
        record.born_host,
    )


def test_schedule_record_when_level_is_over_the_highest_takes_the_highest() -> None:
    waiting = schedule_record(message(b"hello", DELAY="99"), 99, 18)
    assert waiting.queue_id == 17
    assert find_property(waiting.properties, b"DELAY") == b"18"


def test_schedule_record_drops_timer_wishes_because_the_level_wins() -> None:
    waiting = schedule_record(message(b"x", DELAY="1", TIMER_DELAY_SEC="9", TIMER_DELIVER_MS="1"), 1, 18)
    assert not any(name.startswith("TIMER") for name in decode_properties(waiting.properties))


@given(
    st.dictionaries(
        st.sampled_from(["KEYS", "REAL_TOPIC", "REAL_QID", "DELAY", "A", "REAL", "XDELAY"]),
        st.text("abc0123", min_size=1),
    ),
    st.integers(1, 40),
    st.booleans(),
)
def test_schedule_record_changes_no_other_property(properties: dict[str, str], level: int, is_open: bool) -> None:
    raw = encode_properties(properties)
    raw = raw[:-1] if is_open else raw
    waiting = schedule_record(NewRecord("orders", 5, b"x", raw), level, 18)
    assert decode_properties(waiting.properties) == {
        **properties,
        "DELAY": str(min(level, 18)),
        "REAL_TOPIC": "orders",
        "REAL_QID": "5",
    }


def test_level_count_counts_the_default_levels() -> None:
    assert level_count("1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h") == 18


# Delivery


def test_delivery_comes_when_the_delay_is_over_and_not_before(world: LogWorld) -> None:
    world.put(delayed(b"five", 2, queue_id=3))
    world.run(4.95)
    assert world.bodies("orders", 3) == []
    world.run(0.1)
    assert world.bodies("orders", 3) == [b"five"]


def test_delivered_message_has_what_java_leaves_in_it(world: LogWorld) -> None:
    record = message(b"tagged", TAGS="A", KEYS="k1", DELAY="1")
    record.flag, record.reconsume_times, record.sys_flag = 5, 2, 0x8
    waiting = world.put(schedule_record(record, 1, LEVELS))
    world.run(1.1)
    (found,) = world.messages("orders")
    (kept,) = world.messages(SCHEDULE_TOPIC)
    assert found.properties_bytes == kept.properties_bytes
    assert dict(found.properties) == {
        "UNIQ_KEY": "ID-tagged",
        "TAGS": "A",
        "KEYS": "k1",
        "DELAY": "1",
        "REAL_TOPIC": "orders",
        "REAL_QID": "0",
    }
    assert (found.flag, found.reconsume_times, found.sys_flag) == (5, 2, 0x8)
    assert (found.born_timestamp_ms, found.born_host_bytes) == (kept.born_timestamp_ms, kept.born_host_bytes)
    assert found.store_timestamp_ms >= waiting.store_timestamp_ms + 1000
    assert world.store.get("orders", 0, 0, 1, tags_codes=frozenset({ord("A")})).count == 1


def test_delivered_copies_of_java_are_what_we_would_deliver(tmp_path: Path) -> None:
    store = MessageStore(unpack("clean", tmp_path), CONFIG)
    store.open()
    records = messages_of(store)
    waiting = {found.unique_id: found for found in records if found.topic == SCHEDULE_TOPIC}
    copies = 0
    for found in records:
        kept = waiting.get(found.unique_id)
        if kept is None or found.topic not in ("StoreDelay", "%RETRY%CG_store_retry"):
            continue
        ours = delivered_record(kept)
        assert ours is not None
        assert (ours.topic, ours.queue_id, ours.body) == (found.topic, found.queue_id, found.body)
        assert decode_properties(ours.properties) == dict(found.properties)
        assert (ours.reconsume_times, ours.sys_flag) == (found.reconsume_times, found.sys_flag)
        assert (ours.born_host, ours.store_host) == (found.born_host_bytes, found.store_host_bytes)
        copies += 1
    assert copies == 8
    # Java has saved that level 1 is done; forgotten, it is found in the log.
    positions = {1: 0, 17: 0, 18: 0}
    assert skip_delivered(store, positions, None, unclean=True) == {1: 8, 17: 0, 18: 0}
    assert skip_delivered(store, {1: 5}, None, unclean=True) == {1: 8}
    assert skip_delivered(store, {1: 5}, None, unclean=False) == {1: 5}
    store.close()


def test_delivery_keeps_the_order_of_a_level(world: LogWorld) -> None:
    bodies = [b"%03d" % number for number in range(100)]
    for body in bodies:
        world.writer.put(delayed(body, 1))
    world.run(1.5)
    assert world.bodies("orders") == bodies


def test_delivery_of_more_than_one_turn_takes_delivers_all(world: LogWorld) -> None:
    bodies = [b"%04d" % number for number in range(700)]
    for body in bodies:
        world.writer.put(delayed(body, 1))
    world.run(1.5)
    assert world.bodies("orders") == bodies


def test_delivery_of_a_shorter_level_does_not_wait_for_a_longer(world: LogWorld) -> None:
    world.put(delayed(b"long", 4))
    world.put(delayed(b"short", 1))
    world.run(1.1)
    assert world.bodies("orders") == [b"short"]
    world.run(29)
    assert world.bodies("orders") == [b"short", b"long"]


def test_delivery_without_anything_waiting_sets_no_timer(world: LogWorld) -> None:
    world.delay._saves.stop()
    world.writer.stop()
    world.run(1.0)
    assert world.clock.next_due is None
    world.writer.put(delayed(b"x", 1))
    world.run(0.1)
    assert world.clock.next_due is not None


def test_delivery_when_wall_clock_jumps_ahead_comes_within_a_second(world: LogWorld) -> None:
    world.put(delayed(b"x", 4))
    world.clock.jump_wall(30_000)
    world.run(1.1)
    assert world.bodies("orders") == [b"x"]


def test_delivery_time_later_than_the_level_can_mean_counts_as_now(world: LogWorld) -> None:
    world.put(delayed(b"x", 2))
    world.clock.jump_wall(-3_600_000)
    world.run(1.1)
    assert world.bodies("orders") == [b"x"]


def test_message_without_a_place_to_go_to_is_passed_over(world: LogWorld) -> None:
    lost = delayed(b"lost", 1)
    lost.properties = encode_properties({"DELAY": "1", "UNIQ_KEY": "u"})
    world.put(lost)
    world.put(delayed(b"half", 1, HALF_TOPIC))
    world.put(delayed(b"good", 1))
    world.run(1.5)
    assert world.bodies("orders") == [b"good"]
    assert world.bodies(HALF_TOPIC) == []
    assert world.delay.offsets[1] == (3, 3)


def test_delivery_when_disk_is_full_is_tried_again_until_it_is_not(world: LogWorld) -> None:
    for number in range(5):
        world.put(delayed(b"%d" % number, 1))
    world.run(0.5)
    world.disk.capacity = world.disk.used
    for _ in range(200):  # the segment has room left; fill it so that the next one is needed
        try:
            world.writer.put(message(b"f" * 2000, "filler"))
        except StoreError:  # full, as wanted
            break
        world.run(0.001)
    world.run(2.0)
    delivered = world.bodies("orders")
    assert delivered == [b"0", b"1", b"2", b"3", b"4"][: len(delivered)]
    assert len(delivered) < 5
    world.disk.capacity = 1 << 40
    world.run(30)
    assert world.bodies("orders") == [b"0", b"1", b"2", b"3", b"4"]
    assert world.delay.offsets[1] == (5, 5)


def test_delivery_when_a_write_fails_goes_on_from_the_first_void_copy(world: LogWorld) -> None:
    for number in range(20):
        world.writer.put(delayed(b"%02d" % number, 1))
    world.run(0.9)
    world.disk.fail_write(1, code=errno.EIO, under=ROOT / "commitlog")
    world.run(2.0)
    assert world.bodies("orders") == [b"%02d" % number for number in range(20)]


def test_statistics_count_what_is_delivered(world: LogWorld) -> None:
    world.put(delayed(b"x", 1))
    world.run(1.1)
    world.statistics.sample()
    world.run(11)
    world.statistics.sample()
    assert world.statistics.windows("TOPIC_PUT_NUMS", "orders") is not None


# Levels that changed


def test_level_that_became_shorter_is_delivered_by_its_new_delay(world: LogWorld) -> None:
    world.put(delayed(b"x", 4))
    world.run(11)
    after = world.stopped(store_config=small_store(message_delay_level="1s 5s 10s 2s"))
    after.delay.start(unclean=False)
    after.run(1.1)
    assert after.bodies("orders") == [b"x"]


def test_level_that_is_no_more_is_delivered_to_its_end(world: LogWorld) -> None:
    world.put(delayed(b"x", 4))
    world.run(1)
    after = world.stopped(store_config=small_store(message_delay_level="1s 5s"))
    after.delay.start(unclean=False)
    after.run(20)
    assert after.bodies("orders") == []
    after.run(10)
    assert after.bodies("orders") == [b"x"]


# Progress


def test_progress_is_saved_in_java_s_form_with_one_number_more(world: LogWorld) -> None:
    world.put(delayed(b"a", 1))
    world.put(delayed(b"b", 3))
    world.run(2)
    world.delay.stop()
    text = world.disk.read_file(ROOT / "config" / "delayOffset.json").decode()
    assert text == (
        '{\n\t"dataVersion":{\n\t\t"counter":0,\n\t\t"stateVersion":0,\n\t\t"timestamp":0\n\t},\n'
        f'\t"logOffset":{world.store.flushed_offset},\n\t"offsetTable":{{\n\t\t1:1,\n\t\t3:0\n\t}}\n}}'
    )


def test_progress_of_java_is_read(world: LogWorld) -> None:
    text = '{\n\t"dataVersion":{\n\t\t"counter":4,\n\t\t"stateVersion":0,\n\t\t"timestamp":17\n\t},\n'
    text += '\t"offsetTable":{\n\t\t1:8,\n\t\t17:0,\n\t\t18:0\n\t}\n}'
    path = ROOT / "config" / "delayOffset.json"
    world.disk.make_folder(path.parent)
    file = world.disk.open(path, size=len(text))
    file.write(text.encode(), 0)
    loaded = world.document.load()
    assert loaded is not None
    assert loaded.offset_table == {1: 8, 17: 0, 18: 0}
    assert loaded.log_offset is None
    assert loaded.data_version.counter == 4


def test_progress_is_saved_by_interval(world: LogWorld) -> None:
    world.put(delayed(b"a", 1))
    world.run(25)
    saved = world.document.load()
    assert saved is not None
    assert saved.offset_table[1] == 1


def test_progress_is_saved_by_an_interval_that_changed() -> None:
    world = LogWorld(store_config=small_store(flush_commit_log_least_pages=0))
    world.delay.start()
    world.delay.config = replace(world.config, flush_delay_offset_interval=1_000)
    world.run(12)  # the first save was set before
    world.put(delayed(b"a", 1))
    world.run(3.5)
    saved = world.document.load()
    assert saved is not None
    assert saved.offset_table == {1: 1}


def test_progress_of_what_is_not_on_the_disk_is_not_saved() -> None:
    # Nothing is flushed for a long time: the log is written but could be lost.
    lazy = small_store(flush_interval_commit_log=10**6, flush_commit_log_thorough_interval=10**9)
    world = LogWorld(store_config=lazy)
    world.delay.start()
    world.put(delayed(b"a", 1))
    flushed = world.store.flushed_offset
    world.run(25)
    assert world.bodies("orders") == [b"a"]
    saved = world.document.load()
    assert saved is not None
    assert saved.offset_table == {1: 0}
    assert saved.log_offset == flushed


def test_progress_beyond_the_queue_is_corrected(world: LogWorld) -> None:
    world.put(delayed(b"a", 1))
    world.delay.stop()
    world.document.save(DelayOffsets(offset_table={1: 99, 7: 3, -1: 4}))
    world.delay.start(unclean=False)
    assert world.delay.offsets[1] == (1, 1)


def test_running_stats_and_table_for_slaves_are_java_s(world: LogWorld) -> None:
    world.put(delayed(b"a", 1))
    world.put(delayed(b"b", 1))
    world.put(delayed(b"c", 4))
    world.run(1.02)
    assert world.delay.running_stats() == {"scheduleMessageOffset_1": "2,2", "scheduleMessageOffset_4": "0,1"}
    assert world.delay.encode() == (
        b'{"dataVersion":{"counter":0,"stateVersion":0,"timestamp":0},"offsetTable":{1:2,4:0}}'
    )


def test_start_after_clean_stop_delivers_the_rest_once(world: LogWorld) -> None:
    world.put(delayed(b"a", 1))
    world.put(delayed(b"b", 2))
    world.run(2)
    after = world.stopped()
    after.delay.start(unclean=after.recovery.unclean)
    after.run(6)
    assert after.bodies("orders") == [b"a", b"b"]


def test_save_that_fails_is_repeated(world: LogWorld) -> None:
    world.put(delayed(b"a", 1))
    world.run(5)
    world.disk.fail_sync(1, under=ROOT / "config")
    world.run(6)
    assert world.document.load() is None
    world.run(10)
    saved = world.document.load()
    assert saved is not None
    assert saved.offset_table == {1: 1}


# After a crash


def check_exact(world: LogWorld) -> None:
    """Every message that waits in the log was delivered once, and nothing else was."""
    waiting = sorted(found.body for found in world.messages(SCHEDULE_TOPIC))
    delivered = sorted(found.body for found in world.messages("orders"))
    assert delivered == waiting


def test_copy_in_the_log_counts_though_progress_was_not_saved(world: LogWorld) -> None:
    for number in range(50):
        world.put(delayed(b"%d" % number, 1 + number % 3))
    world.run(2)
    assert world.document.load() is None
    assert 0 < len(world.messages("orders")) < 50
    after = world.killed()
    after.delay.start(unclean=True)
    after.run(12)
    check_exact(after)
    assert len(after.messages("orders")) == 50


def test_message_sent_twice_with_the_same_id_is_delivered_twice(world: LogWorld) -> None:
    twin = delayed(b"twin", 1)
    world.put(twin)
    world.run(0.5)
    world.put(msgspec.structs.replace(twin))
    world.run(0.7)
    assert world.bodies("orders") == [b"twin"]
    after = world.killed()
    after.delay.start(unclean=True)
    assert after.delay.offsets[1] == (1, 2)
    after.run(2)
    assert after.bodies("orders") == [b"twin", b"twin"]


def test_saved_copy_before_the_cut_is_not_taken_for_the_next_twin(world: LogWorld) -> None:
    twin = delayed(b"twin", 1)
    world.put(twin)
    world.run(25)  # delivered, flushed and saved
    assert world.document.load().offset_table == {1: 1}  # type: ignore[union-attr]
    world.put(msgspec.structs.replace(twin))
    after = world.killed()
    after.delay.start(unclean=True)
    after.run(2)
    assert after.bodies("orders") == [b"twin", b"twin"]


def test_progress_of_java_after_a_crash_is_corrected_from_the_log(world: LogWorld) -> None:
    for number in range(10):
        world.put(delayed(b"%d" % number, 1))
    world.run(2)
    world.document.save(DelayOffsets(offset_table={1: 4}))
    after = world.killed()
    after.delay.start(unclean=True)
    assert after.delay.offsets[1] == (10, 10)


def workload(world: LogWorld) -> None:
    """Messages of all levels, saves and flushes in between."""
    world.delay.start(unclean=True)
    number = len(world.messages(SCHEDULE_TOPIC)) * 100
    for _ in range(12):
        for level in (1, 2, 1, 3):
            number += 1
            world.writer.put(delayed(b"%06d" % number, level))
        world.writer.put(message(b"p" * 300, "plain"))
        world.run(1.3)


@pytest.mark.parametrize("seed", range(16))
def test_crash_at_any_step_loses_nothing_and_delivers_nothing_twice(seed: int) -> None:
    chance = Random(seed)
    world = LogWorld(flush_delay_offset_interval=chance.choice([500, 2_000, 10_000]))
    for _ in range(3):
        world.disk.stop_at(world.disk.steps + chance.randrange(1, 400), tear_at=chance.randrange(0, 600))
        with suppress(SimulatedCrash):
            workload(world)
        world = world.killed() if chance.random() < 0.4 else world.crashed(chance.randrange(1 << 30))
    world.delay.start(unclean=world.recovery.unclean)
    world.run(12)
    check_exact(world)
