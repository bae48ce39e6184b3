from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusee.errors import MessageError
from fusee.message.ids import encode_offset_id
from fusee.message.properties import encode_properties
from fusee.message.record import decode_record
from fusee.message.record_layout import body_crc, pack_record
from fusee.store import index as index_module
from fusee.store.commit_log import CommitLog
from fusee.store.config import StoreConfig
from fusee.store.dispatch import Dispatcher, LogScanner
from fusee.store.index import Index
from fusee.store.query import RecordQuery
from fusee.store.simulated_disk import SimulatedDisk

HOST = b"\x7f\x00\x00\x01\x00\x00\x2a\x9f"
START_MS = 1_700_000_000_000
# One slot, so that every record is in one chain.
CONFIG = StoreConfig(mapped_file_size_commit_log=4096, max_hash_slot_num=1, max_index_num=10)


class Shelf:
    """A log with an index over it."""

    def __init__(self, config: StoreConfig = CONFIG) -> None:
        disk = SimulatedDisk()
        self.log = CommitLog(Path("/store/commitlog"), config, disk)
        self.log.open()
        self.log.truncate(0)
        self.index = Index(Path("/store/index"), config, disk, disk.clock)
        self.index.open(unclean=False)
        self.dispatcher = Dispatcher(LogScanner(self.log), [self.index])
        self.query = RecordQuery(self.log, self.index)

    def put(self, topic: str, *, at_ms: int = 0, **properties: str) -> int:
        raw = encode_properties(properties)
        size = 91 + len(topic.encode()) + len(raw)
        log_offset = self.log.place(size)
        raw_topic = topic.encode()
        now_ms = START_MS + at_ms
        self.log.append(
            pack_record(raw_topic, b"", raw, body_crc(b""), 0, 0, 0, log_offset, 0, 0, HOST, now_ms, HOST, 0, 0)
        )
        self.log.write()
        self.dispatcher.run()
        return log_offset


def test_by_key_when_topic_or_key_differs_gives_only_records_that_carry_it() -> None:
    shelf = Shelf()
    first = shelf.put("t", KEYS="a b", UNIQ_KEY="u1")
    shelf.put("other", KEYS="a b", UNIQ_KEY="u1")
    second = shelf.put("t", KEYS="b", UNIQ_KEY="a")
    shelf.put("t", KEYS="ab", UNIQ_KEY="u2")
    answer = shelf.query.by_key("t", "a", 64)
    assert answer.log_offsets == (first, second)
    assert [decode_record(record).log_offset for record in answer.records] == [first, second]
    assert answer.size == sum(len(record) for record in answer.records)
    assert answer.is_complete
    assert shelf.query.by_key("t", "", 64).log_offsets == ()
    assert shelf.query.by_key("t", "c", 64).log_offsets == ()


def test_by_key_when_hashes_are_equal_compares_the_text() -> None:
    # Java's oldest pair of different texts with one hash.
    shelf = Shelf()
    first = shelf.put("t", KEYS="Aa")
    second = shelf.put("t", KEYS="BB")
    assert shelf.index.query("t", "Aa", 64, 0, 1 << 62).log_offsets == (first, second)
    assert shelf.query.by_key("t", "Aa", 1).log_offsets == (first,)
    assert shelf.query.by_key("t", "BB", 1).log_offsets == (second,)


def test_by_key_when_a_second_is_shared_compares_the_millisecond() -> None:
    shelf = Shelf()
    times = [0, 1, 500, 999, 1000, 5000]
    places = [shelf.put("t", KEYS="a", at_ms=at_ms) for at_ms in times]
    for begin in range(6):
        for end in range(begin, 6):
            answer = shelf.query.by_key("t", "a", 64, START_MS + times[begin], START_MS + times[end])
            assert answer.log_offsets == tuple(places[begin : end + 1])
    assert shelf.query.by_key("t", "a", 64, START_MS + 2, START_MS + 499).log_offsets == ()


def test_by_key_when_more_match_than_wanted_gives_the_newest() -> None:
    shelf = Shelf()
    places = [shelf.put("t", KEYS="a") for _ in range(100)]
    assert shelf.query.by_key("t", "a", 5).log_offsets == tuple(places[-5:])
    assert shelf.query.by_key("t", "a", 1000).log_offsets == tuple(places[-64:])
    assert shelf.query.by_key("t", "a", 0).log_offsets == ()


def test_by_key_when_log_has_lost_its_head_passes_over_what_is_gone() -> None:
    shelf = Shelf()
    places = [shelf.put("t", KEYS="a") for _ in range(100)]
    shelf.log.drop_head(4096)
    answer = shelf.query.by_key("t", "a", 64)
    assert answer.log_offsets == tuple(place for place in places if place >= 4096)[-64:]
    assert shelf.query.by_log_offset(0) is None


def test_by_key_when_too_many_share_the_slot_says_that_it_is_not_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    shelf = Shelf()
    shelf.put("t", KEYS="a")
    for number in range(20):
        shelf.put("t", KEYS=f"k{number}")
    monkeypatch.setattr(index_module, "LOOKUP_STEPS_MAX", 10)
    answer = shelf.query.by_key("t", "a", 64)
    assert answer.log_offsets == ()
    assert not answer.is_complete


def test_by_unique_key_when_key_is_one_of_keys_does_not_count_it() -> None:
    shelf = Shelf()
    shelf.put("t", KEYS="u", UNIQ_KEY="x")
    found = shelf.put("t", KEYS="k", UNIQ_KEY="u")
    again = shelf.put("t", KEYS="k", UNIQ_KEY="u")
    assert shelf.query.by_unique_key("t", "u").log_offsets == (found, again)
    assert len(shelf.query.by_key("t", "u", 64).log_offsets) == 3


def test_by_tag_when_key_looks_like_a_tag_tells_them_apart() -> None:
    shelf = Shelf()
    tagged = shelf.put("t", TAGS="red", KEYS="a")
    keyed = shelf.put("t", TAGS="blue", KEYS="T#red")
    assert shelf.query.by_tag("t", "red", 64).log_offsets == (tagged,)
    assert shelf.query.by_key("t", "T#red", 64).log_offsets == (keyed,)


def test_by_log_offset_when_no_record_begins_there_gives_nothing() -> None:
    shelf = Shelf()
    first = shelf.put("t", KEYS="a")
    second = shelf.put("t", KEYS="b")
    found = shelf.query.by_log_offset(second)
    assert found is not None
    assert decode_record(found).log_offset == second
    for log_offset in (-1, first + 1, shelf.log.end_offset, 1 << 60):
        assert shelf.query.by_log_offset(log_offset) is None


def test_by_offset_id_when_id_names_a_record_gives_it_whatever_the_address() -> None:
    shelf = Shelf()
    shelf.put("t", KEYS="a")
    second = shelf.put("t", KEYS="b")
    for host in (HOST, b"\x0a\x00\x00\x02\x00\x00\x2a\x9f"):
        found = shelf.query.by_offset_id(encode_offset_id(host, second))
        assert found is not None
        assert decode_record(found).log_offset == second
    assert shelf.query.by_offset_id(encode_offset_id(HOST, second + 1)) is None
    with pytest.raises(MessageError, match="offset message id"):
        shelf.query.by_offset_id("no id")


@given(
    st.lists(
        st.tuples(st.sampled_from("ts"), st.lists(st.sampled_from(["a", "b", "Aa", "BB", "ü"]), max_size=3)),
        max_size=30,
    ),
    st.integers(1, 10),
)
def test_by_key_when_records_are_any_agrees_with_reading_all_of_them(
    records: list[tuple[str, list[str]]], count: int
) -> None:
    shelf = Shelf()
    places = [
        shelf.put(topic, KEYS=" ".join(keys)) if keys else shelf.put(topic, TAGS="untagged") for topic, keys in records
    ]
    for topic in "ts":
        for key in ("a", "b", "Aa", "BB", "ü"):
            expected = [
                place for place, (where, keys) in zip(places, records, strict=True) if where == topic and key in keys
            ]
            assert shelf.query.by_key(topic, key, count).log_offsets == tuple(expected[-count:])
