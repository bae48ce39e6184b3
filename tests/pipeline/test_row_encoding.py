from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusee.client.selection import java_hash
from fusee.errors import MessageError
from fusee.message.batch import BatchElement, split_batch
from fusee.message.properties import decode_properties
from fusee.pipeline.row_encoding import Columns, EncodedRows, encode_rows, queue_hashes

MAP = pa.map_(pa.string(), pa.string())
NO_LIMIT = {"stored_max": 1 << 40, "stored_extra": 0}
_TEXT = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), max_size=12)


def messages(rows: EncodedRows) -> list[BatchElement]:
    return split_batch(bytes(rows.body(0, len(rows))))


def encoded(**columns: Any) -> list[BatchElement]:
    return messages(encode_rows(Columns(**columns), first_row=0))


@given(
    st.lists(
        st.tuples(
            st.binary(max_size=40),
            st.none() | _TEXT,
            st.none() | _TEXT,
            st.none() | st.dictionaries(_TEXT, _TEXT, max_size=3),
            st.integers(-(2**31), 2**31 - 1),
        ),
        max_size=8,
    ),
    st.integers(0, 3),
)
def test_encoded_rows_are_the_messages_of_the_table(rows: list[Any], skipped: int) -> None:
    """A slice of a table, as Arrow hands them on, is encoded like the rows by themselves."""
    padding = [(b"?", "?", "?", {"?": "?"}, 0)] * skipped
    whole = [*padding, *rows]
    columns = Columns(
        body=pa.array([row[0] for row in whole], pa.binary()).slice(skipped),
        keys=pa.array([row[1] for row in whole], pa.string()).slice(skipped),
        tags=pa.array([row[2] for row in whole], pa.string()).slice(skipped),
        properties=pa.array([None if row[3] is None else list(row[3].items()) for row in whole], MAP).slice(skipped),
        flag=pa.array([row[4] for row in whole], pa.int32()).slice(skipped),
    )
    found = messages(encode_rows(columns, first_row=10, key_prefix="q/1/2"))
    assert len(found) == len(rows)
    for number, (message, (body, keys, tags, properties, flag)) in enumerate(zip(found, rows, strict=True)):
        assert (message.body, message.flag) == (body, flag)
        wanted = {name: value for name, value in (properties or {}).items() if name and value}
        for name in ("KEYS", "TAGS", "UNIQ_KEY", "DELAY", "IDEMPOTENCE_KEY"):
            wanted.pop(name, None)
        wanted |= {name: value for name, value in (("KEYS", keys), ("TAGS", tags)) if value}
        wanted["IDEMPOTENCE_KEY"] = f"q/1/2/{10 + number}"
        assert decode_properties(message.properties_bytes) == wanted


def test_text_bodies_and_nulls() -> None:
    assert [each.body for each in encoded(body=pa.array(["ä", None, ""]))] == ["ä".encode(), b"", b""]


def test_several_keys_are_divided_by_spaces() -> None:
    (found,) = encoded(body=pa.array([b"x"]), keys=pa.array([["a", "b"]]))
    assert decode_properties(found.properties_bytes) == {"KEYS": "a b"}


def test_column_wins_over_the_property_of_that_name_and_what_brokers_set_is_left_out() -> None:
    given_map = [[("TAGS", "old"), ("UNIQ_KEY", "id"), ("REAL_TOPIC", "t"), ("DELAY", "3"), ("mine", "1")]]
    (found,) = encoded(body=pa.array([b"x"]), tags=pa.array(["new"]), properties=pa.array(given_map, MAP))
    assert decode_properties(found.properties_bytes) == {"TAGS": "new", "mine": "1"}
    (found,) = encoded(body=pa.array([b"x"]), properties=pa.array(given_map, MAP))
    assert decode_properties(found.properties_bytes) == {"TAGS": "old", "mine": "1"}


def test_delays_become_properties_and_mark_their_rows() -> None:
    rows = encode_rows(Columns(pa.array([b"a", b"b", b"c"]), delay_level=pa.array([0, 3, None])), first_row=0)
    assert rows.delayed is not None
    assert rows.delayed.tolist() == [False, True, False]
    assert [decode_properties(each.properties_bytes) for each in messages(rows)] == [{}, {"DELAY": "3"}, {}]
    rows = encode_rows(Columns(pa.array([b"a"]), deliver_at_ms=pa.array([1_700_000_000_000])), first_row=0)
    assert decode_properties(messages(rows)[0].properties_bytes) == {"TIMER_DELIVER_MS": "1700000000000"}


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"keys": pa.array(["ok", "a\x01b"])}, "row 8: keys, tags"),
        ({"tags": pa.array(["ok", "a\x02b"])}, "row 8: keys, tags"),
        ({"properties": pa.array([[], [("a", "b\x02c")]], MAP)}, "value of a property"),
        ({"properties": pa.array([[], [("a\x01", "b")]], MAP)}, "name of a property"),
        ({"keys": pa.array(["ok", "x" * 40_000])}, "row 8 has 40006 bytes"),
    ],
)
def test_row_that_no_message_can_have_is_named(columns: dict[str, Any], words: str) -> None:
    with pytest.raises(MessageError, match=words):
        encode_rows(Columns(pa.array([b"a", b"b"]), **columns), first_row=7)


def test_rows_are_taken_in_another_order_and_in_runs_by_size_and_count() -> None:
    rows = encode_rows(Columns(pa.array([b"%d" % number * 100 for number in range(10)])), first_row=0)
    taken = rows.taken(np.array([7, 2, 5]))
    assert [each.body[:1] for each in messages(taken)] == [b"7", b"2", b"5"]
    assert [each.body[:1] for each in messages(taken.taken(np.array([2, 0])))] == [b"5", b"7"]
    assert [each.body[:1] for each in messages(taken.between(1, 3))] == [b"2", b"5"]
    assert [each.body[:1] for each in messages(rows.between(8, 10))] == [b"8", b"9"]
    assert rows.end(2, 250, 100, **NO_LIMIT) == 4
    assert rows.end(2, 10, 100, **NO_LIMIT) == 2
    assert rows.end(2, 1 << 20, 4, **NO_LIMIT) == 6
    assert rows.end(8, 1 << 20, 4, **NO_LIMIT) == 10
    assert rows.end(8, 1 << 20, 0, **NO_LIMIT) == 8
    assert encode_rows(Columns(pa.array([], pa.binary())), first_row=0).end(0, 10, 10, **NO_LIMIT) == 0


@given(
    st.lists(st.integers(0, 60), min_size=1, max_size=40),
    st.integers(0, 300),
    st.integers(0, 400),
    st.integers(0, 90),
    st.integers(0, 39),
)
def test_runs_are_as_long_as_request_and_store_allow(
    sizes: list[int], size_max: int, stored_max: int, extra: int, first: int
) -> None:
    rows = encode_rows(Columns(pa.array([b"x" * size for size in sizes], pa.binary())), first_row=0)
    first = min(first, len(sizes) - 1)
    end = rows.end(first, size_max, 15, stored_max=stored_max, stored_extra=extra)

    def fits(end: int) -> bool:
        size = rows.size(first, end)
        return size <= size_max and end - first <= 15 and size + (end - first) * extra <= stored_max

    assert first <= end <= len(sizes)
    assert end == first or fits(end)
    assert end == len(sizes) or not fits(end + 1)


def test_queue_hashes_are_those_of_java_s_selector() -> None:
    keys = ["order-1", "", "polygenelubricants", None, "order-1"]
    assert queue_hashes(pa.array(keys)).tolist() == [abs(java_hash(key or "")) for key in keys]
    assert queue_hashes(pa.array([5, 17])).tolist() == [abs(java_hash("5")), abs(java_hash("17"))]
