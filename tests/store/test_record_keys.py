"""Hashes of tags and keys are those of the texts, found one by one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusee.message.hashing import java_string_hash, tags_code
from fusee.message.properties import decode_properties
from fusee.store.key_hash import index_hash, topic_prefix_hash
from fusee.store.record_keys import find_keys_of

TOPICS = ("orders", "T" * 100, "a")
PIECES = st.sampled_from(
    ["TAGS\x01", "KEYS\x01", "UNIQ_KEY\x01", "WAIT\x01", "\x01", "\x02", " ", "a", "Paid", "k1 k2", "0", "TAGS", "\x00"]
)
PROPERTIES = st.lists(PIECES, max_size=14).map(lambda pieces: "".join(pieces).encode())
ROWS = st.lists(st.tuples(PROPERTIES, st.integers(0, 2), st.booleans()), min_size=1, max_size=8)


def expected_keys(raw: bytes, topic: str) -> list[int]:
    entries = decode_properties(raw)
    keys = [entries["UNIQ_KEY"]] if "UNIQ_KEY" in entries else []
    keys += [token for token in entries.get("KEYS", "").split(" ") if token]
    keys += [f"T#{entries['TAGS']}"] if "TAGS" in entries else []
    return [index_hash(topic, key) for key in keys]


@given(ROWS, st.binary(max_size=3))
def test_hashes_are_those_of_the_decoded_texts(rows: list[tuple[bytes, int, bool]], between: bytes) -> None:
    data = between
    starts, ends = [], []
    for raw, _, _ in rows:
        starts.append(len(data))
        data += raw
        ends.append(len(data))
        data += between
    keys = find_keys_of(memoryview(data), np.array(starts, np.int64), np.array(ends, np.int64))
    assert keys is not None
    decoded = [decode_properties(raw) for raw, _, _ in rows]
    assert keys.tags_codes.tolist() == [tags_code(one["TAGS"].encode()) if "TAGS" in one else 0 for one in decoded]
    prefixes = np.array([[topic_prefix_hash(topic), topic_prefix_hash(f"{topic}#T")] for topic in TOPICS], np.uint32)
    topic_ids = np.array([topic for _, topic, _ in rows], np.intp)
    is_kept = np.array([kept for _, _, kept in rows], bool)
    hashes, of_rows = keys.index_keys(prefixes, topic_ids, is_kept)
    expected = [
        (code, row) for row, (raw, topic, kept) in enumerate(rows) if kept for code in expected_keys(raw, TOPICS[topic])
    ]
    assert list(zip(hashes.tolist(), of_rows.tolist(), strict=True)) == expected


def test_text_that_is_not_ascii_is_left_to_others() -> None:
    data = memoryview("KEYS\x01é\x02".encode())
    assert find_keys_of(data, np.array([0]), np.array([len(data)])) is None
    assert find_keys_of(data, np.array([0]), np.array([4])) is not None


def test_hash_without_counterpart_is_stored_as_zero() -> None:
    text = "polygenelubricants"
    assert java_string_hash(text) == -(1 << 31)
    data = memoryview(b"UNIQ_KEY\x01" + text.encode())
    keys = find_keys_of(data, np.array([0]), np.array([len(data)]))
    assert keys is not None
    hashes, _ = keys.index_keys(np.zeros((1, 2), np.uint32), np.zeros(1, np.intp), np.ones(1, bool))
    assert hashes.tolist() == [0]


def test_no_rows_have_no_keys() -> None:
    keys = find_keys_of(memoryview(b""), np.empty(0, np.int64), np.empty(0, np.int64))
    assert keys is not None
    hashes, rows = keys.index_keys(np.zeros((0, 2), np.uint32), np.empty(0, np.intp), np.empty(0, bool))
    assert len(hashes) == len(rows) == 0


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 7, 8, 9, 200, 5_000])
def test_long_keys_and_short_ones(size: int) -> None:
    data = memoryview(b"KEYS\x01" + b"k" * size)
    keys = find_keys_of(data, np.array([0]), np.array([len(data)]))
    assert keys is not None
    prefix = np.array([[topic_prefix_hash("t"), 0]], np.uint32)
    hashes, _ = keys.index_keys(prefix, np.zeros(1, np.intp), np.ones(1, bool))
    assert hashes.tolist() == [index_hash("t", "k" * size)]
