"""The arrays of a batch say what its objects say."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fusee.message.properties import find_tag
from fusee.store.commit_log import CommitLog
from fusee.store.config import StoreConfig
from fusee.store.dispatch import LogScanner
from fusee.store.dispatch_batch import DispatchBatch
from fusee.store.key_hash import index_hash
from tests.store.test_commit_log import HOST, new_log

CONFIG = StoreConfig(mapped_file_size_commit_log=1024 * 1024)
PIECES = st.lists(
    st.one_of(
        st.sampled_from(
            ["TAGS\x01a", "TAGS\x01", "TAGS", "KEYS\x01k1 k2", "KEYS\x01 x  y ", "UNIQ_KEY\x017F00", "\x01v"]
        ),
        st.text("abKEYSTG \x01é", max_size=12),
    ),
    max_size=6,
)


def append(log: CommitLog, topic: str, queue_id: int, queue_offset: int, sys_flag: int, properties: bytes) -> None:
    from fusee.message.record_layout import body_crc, pack_record, record_size

    size = record_size(sys_flag, 2, len(topic.encode()), len(properties))
    log_offset = log.place(size)
    log.append(
        pack_record(
            *(topic.encode(), b"hi", properties, body_crc(b"hi"), queue_id, 0, queue_offset, log_offset, sys_flag),
            *(5, HOST, 1000 + queue_offset, HOST, 0, 0),
        )
    )


def batch_of(log: CommitLog) -> DispatchBatch:
    log.write()
    batch, _ = LogScanner(log).scan(0)
    assert batch is not None
    return batch


records = st.lists(
    st.tuples(
        st.sampled_from(["T", "U", "topic-with-a-long-name", "topic-with-a-lonG-name", "t" * 130]),
        st.integers(0, 3),
        st.integers(0, 5),
        st.sampled_from([0, 0, 0, 4, 8, 12]),
        PIECES,
    ),
    min_size=1,
    max_size=30,
)


@given(records)
def test_arrays_agree_with_objects(made: list[tuple[str, int, int, int, list[str]]]) -> None:
    log = new_log(config=CONFIG)
    for topic, queue_id, queue_offset, sys_flag, pieces in made:
        append(log, topic, queue_id, queue_offset, sys_flag, "\x02".join(pieces).encode())
    batch = batch_of(log)
    objects = batch.objects
    assert len(batch) == len(objects) == len(made)
    assert [batch.topics[number] for number in batch.topic_ids] == [told.topic for told in objects]
    assert batch.last_log_offset == objects[-1].log_offset
    assert batch.last_timestamp_ms == objects[-1].store_timestamp_ms
    if not batch.is_plain:
        assert any(not told.properties.isascii() for told in objects)
        return
    assert batch.tags_codes.tolist() == [told.tags_code for told in objects]

    expected: dict[tuple[str, int], list[tuple[int, int, int]]] = {}
    offsets: dict[tuple[str, int], list[int]] = {}
    for told in objects:
        if told.sys_flag & 0xC in (0, 8):
            key = (told.topic, told.queue_id)
            expected.setdefault(key, []).append((told.log_offset, told.size, told.tags_code))
            offsets.setdefault(key, []).append(told.queue_offset)
    found = {}
    for run in batch.groups():
        key = (run.topic, run.queue_id)
        found[key] = [tuple(entry) for entry in run.entries.tolist()]
        first = run.first_queue_offset
        assert offsets[key][0] == first
        assert run.is_consecutive == (offsets[key] == list(range(first, first + len(offsets[key]))))
        assert [objects[row].log_offset for row in run.rows] == [entry[0] for entry in found[key]]
    assert found == expected

    hashes, rows = batch.index_keys()
    wanted = []
    for number, told in enumerate(objects):
        if told.sys_flag & 0xC != 0xC:
            tag = find_tag(told.properties)
            tokens = ((told.unique_key,) if told.unique_key else ()) + told.keys
            tokens += (f"T#{tag.decode()}",) if tag else ()
            wanted += [(index_hash(told.topic, token), number) for token in tokens]
    assert list(zip(hashes.tolist(), rows.tolist(), strict=True)) == wanted


def test_delayed_messages_and_inner_batches_are_not_plain() -> None:
    log = new_log(config=CONFIG)
    append(log, "SCHEDULE_TOPIC_XXXX", 2, 0, 0, b"DELAY\x013\x02")
    assert not batch_of(log).is_plain
    log = new_log(config=CONFIG)
    append(log, "T", 2, 0, 0x80, b"INNER_NUM\x013\x02")
    assert not batch_of(log).is_plain
